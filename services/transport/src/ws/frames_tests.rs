//! Streams of frames as clients send them, whole and cut anywhere.

use proptest::prelude::*;

use super::*;

const MASK: [u8; 4] = [0x37, 0xFA, 0x21, 0x3D];

/// A frame as a client sends it, its length written in the shortest form.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    header(payload.len(), &mut out);
    out[0] = first;
    out[1] |= 0x80;
    out.extend_from_slice(&MASK);
    out.extend(payload.iter().zip(MASK.into_iter().cycle()).map(|(b, m)| b ^ m));
    out
}

/// The meaning of a stream: its MQTT bytes, and each control frame with its position in them.
#[derive(Debug, Default, PartialEq)]
struct Meaning {
    data: Vec<u8>,
    controls: Vec<String>,
}

/// Decodes a stream that arrives in reads of the given lengths (and then in one), as the edge does.
fn decode_in(stream: &[u8], reads: &[usize], data_max: u64) -> Result<Meaning, FrameError> {
    let mut decoder = Decoder::default();
    let mut meaning = Meaning::default();
    let mut buf: Vec<u8> = Vec::new();
    let mut stream = stream;
    for len in reads.iter().copied().chain([usize::MAX]) {
        let (now, later) = stream.split_at(len.min(stream.len()));
        buf.extend_from_slice(now);
        stream = later;
        let controls = &mut meaning.controls;
        let mut control = |control: ControlFrame<'_>| {
            controls.push(format!("{control:?}"));
            ControlFlow::Continue(())
        };
        let Decoded { data, rest, error } = decoder.decode(&mut buf, data_max, &mut control);
        if let Some(error) = error {
            return Err(error);
        }
        assert_eq!(rest.start, data);
        // An incomplete control frame: a header of 14 bytes at most, and 124 of its 125 bytes.
        assert!(rest.len() <= 138);
        meaning.data.extend_from_slice(&buf[..data]);
        buf.truncate(rest.end);
        buf.drain(..data);
    }
    Ok(meaning)
}

fn decode(stream: &[u8]) -> Result<Meaning, FrameError> {
    let whole = decode_in(stream, &[], u64::MAX);
    for cut in 1..stream.len() {
        assert_eq!(decode_in(stream, &[cut], u64::MAX), whole, "cut at {cut}");
    }
    assert_eq!(decode_in(stream, &vec![1; stream.len()], u64::MAX), whole, "byte by byte");
    whole
}

#[test]
fn state_between_reads_is_small() {
    // Each WebSocket connection has one, idle or not.
    assert!(size_of::<Decoder>() <= 24);
}

#[test]
fn the_masked_ping_and_pong_of_the_rfc() {
    // RFC 6455 section 5.7, "Hello".
    let pong = [0x8A, 0x85, 0x37, 0xFA, 0x21, 0x3D, 0x7F, 0x9F, 0x4D, 0x51, 0x58];
    assert_eq!(decode(&pong).unwrap().controls, ["Pong"]);
    let mut ping = pong;
    ping[0] = 0x89;
    assert_eq!(decode(&ping).unwrap().controls, [format!("{:?}", ControlFrame::Ping(b"Hello"))]);
    let mut binary = pong;
    binary[0] = 0x82;
    assert_eq!(decode(&binary).unwrap().data, b"Hello");
}

#[test]
//= [MQTT-6.0.0-2] v5 v3.1.1
fn packets_span_frames_and_frames_hold_many_packets() {
    // Two PINGREQ in one frame, one PINGREQ in two, with an empty frame and a ping in between.
    let stream = [
        frame(0x82, &[0xC0, 0, 0xC0, 0]),
        frame(0x82, &[0xC0]),
        frame(0x82, &[]),
        frame(0x89, b"?"),
        frame(0x82, &[0]),
    ]
    .concat();
    let meaning = decode(&stream).unwrap();
    assert_eq!(meaning.data, [0xC0, 0, 0xC0, 0, 0xC0, 0]);
    assert_eq!(meaning.controls, [format!("{:?}", ControlFrame::Ping(b"?"))]);
}

#[test]
fn fragments_are_one_message_and_control_frames_may_stand_between_them() {
    let stream =
        [frame(2, b"ab"), frame(0x89, b""), frame(0, b"c"), frame(0x80, b"d"), frame(0x82, b"e")].concat();
    let meaning = decode(&stream).unwrap();
    assert_eq!(meaning.data, b"abcde");
    assert_eq!(meaning.controls.len(), 1);
}

#[test]
fn all_forms_of_length_are_read() {
    for len in [0, 1, 125, 126, 127, 65_535, 65_536, 70_001] {
        let payload: Vec<u8> = (0..len).map(|i: u32| i as u8).collect();
        let stream = [frame(0x82, &payload), frame(0x82, b"end")].concat();
        let meaning = decode_in(&stream, &[3, 1, 7, 1000, 13], u64::MAX).unwrap();
        assert_eq!(meaning.data, [&payload[..], b"end"].concat(), "{len}");
    }
    let long_form = [0x82, 0xFF, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, b'x'];
    assert_eq!(decode(&long_form).unwrap().data, b"x");
}

#[test]
fn the_caller_may_break_off_behind_each_control_frame() {
    let stream =
        [frame(2, b"ab"), frame(0x89, b"1"), frame(0x8A, b"2"), frame(0x80, b"cd"), frame(0x89, b"3")]
            .concat();
    let (mut decoder, mut buf, mut meant) = (Decoder::default(), stream, Vec::new());
    loop {
        let mut frames = 0;
        let mut control = |_: ControlFrame<'_>| {
            frames += 1;
            ControlFlow::Break(())
        };
        let Decoded { data, rest, error } = decoder.decode(&mut buf, u64::MAX, &mut control);
        assert_eq!((rest.start, rest.end <= buf.len(), error), (data, true, None));
        meant.push((buf[..data].to_vec(), frames));
        buf.truncate(rest.end);
        buf.drain(..data);
        if buf.is_empty() {
            break;
        }
    }
    assert_eq!(meant, [(b"ab".to_vec(), 1), (vec![], 1), (b"cd".to_vec(), 1)]);
}

#[test]
fn the_data_before_an_invalid_frame_stays_and_nothing_counts_after_it() {
    let mut buf = [frame(0x82, b"ab"), frame(0x89, b""), frame(0x82, b"c"), frame(0x81, b"d")].concat();
    let mut decoder = Decoder::default();
    let mut control = |_: ControlFrame<'_>| ControlFlow::Continue(());
    let Decoded { data, rest, error } = decoder.decode(&mut buf, u64::MAX, &mut control);
    assert_eq!((&buf[..data], rest.len(), error), (&b"abc"[..], 0, Some(FrameError::Text)));
    let later = decoder.decode(&mut frame(0x82, b"e"), u64::MAX, &mut control);
    assert_eq!(later, Decoded { data: 0, rest: 0..0, error: None });
}

#[test]
fn nothing_counts_after_close() {
    for (payload, code) in [(&b""[..], 1005), (&b"\x03\xE8"[..], 1000), (&b"\x0F\xA0bye"[..], 4000)] {
        let stream = [frame(0x82, b"a"), frame(0x88, payload), frame(0x82, b"b"), frame(0x81, b"c")].concat();
        let meaning = decode(&stream).unwrap();
        assert_eq!(meaning.data, b"a");
        assert_eq!(meaning.controls, [format!("Close({code})")]);
    }
}

#[test]
//= [MQTT-6.0.0-1] v5 v3.1.1
fn text_ends_the_connection_with_1003() {
    let error = decode(&frame(0x81, &[0xC0, 0])).unwrap_err();
    assert_eq!((error, error.close_code()), (FrameError::Text, 1003));
}

#[test]
fn wrong_frames_are_refused_with_the_code_of_the_rfc() {
    let bare = |bytes: &[u8]| bytes.to_vec();
    for (stream, error, code) in [
        (bare(&[0x82, 1, b'x']), FrameError::NotMasked, 1002),
        (bare(&[0x88, 0]), FrameError::NotMasked, 1002),
        (frame(0xC2, b"x"), FrameError::ReservedBits, 1002),
        (frame(0x92, b"x"), FrameError::ReservedBits, 1002),
        (frame(0x83, b"x"), FrameError::Opcode, 1002),
        (frame(0x8B, b"x"), FrameError::Opcode, 1002),
        (frame(0x80, b"x"), FrameError::Fragment, 1002),
        ([frame(2, b"x"), frame(0x82, b"x")].concat(), FrameError::Fragment, 1002),
        ([frame(2, b"x"), frame(0x80, b"x"), frame(0, b"x")].concat(), FrameError::Fragment, 1002),
        (frame(0x09, b"x"), FrameError::Control, 1002),
        (frame(0x89, &[0; 126]), FrameError::Control, 1002),
        (frame(0x88, b"\x03"), FrameError::CloseCode, 1002),
        (frame(0x88, &999u16.to_be_bytes()), FrameError::CloseCode, 1002),
        (frame(0x88, &1005u16.to_be_bytes()), FrameError::CloseCode, 1002),
        (frame(0x88, &1006u16.to_be_bytes()), FrameError::CloseCode, 1002),
        (frame(0x88, &1015u16.to_be_bytes()), FrameError::CloseCode, 1002),
        (frame(0x88, &2999u16.to_be_bytes()), FrameError::CloseCode, 1002),
        (frame(0x88, b"\x03\xE8\xFF"), FrameError::CloseReason, 1007),
        (bare(&[0x82, 0xFF, 0x80, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]), FrameError::Length, 1002),
    ] {
        assert_eq!(decode(&stream), Err(error), "{stream:x?}");
        assert_eq!(error.close_code(), code);
    }
    assert_eq!(decode_in(&frame(0x82, b"abcd"), &[], 4).unwrap().data, b"abcd");
    let error = decode_in(&frame(0x82, b"abcde"), &[], 4).unwrap_err();
    assert_eq!((error, error.close_code()), (FrameError::TooLarge, 1009));
}

#[test]
fn frames_of_the_server_are_as_in_the_rfc() {
    let written = |write: &dyn Fn(&mut Vec<u8>)| {
        let mut out = vec![7];
        write(&mut out);
        out.split_off(1)
    };
    for (len, head) in [
        (0, &[0x82, 0][..]),
        (125, &[0x82, 125]),
        (126, &[0x82, 126, 0, 126]),
        // RFC 6455 section 5.7: 256 bytes, 64 KiB.
        (256, &[0x82, 0x7E, 1, 0]),
        (65_535, &[0x82, 126, 0xFF, 0xFF]),
        (65_536, &[0x82, 0x7F, 0, 0, 0, 0, 0, 1, 0, 0]),
    ] {
        assert_eq!(written(&|out| header(len, out)), head, "{len}");
    }
    assert_eq!(written(&|out| close(1000, "bye", out)), b"\x88\x05\x03\xE8bye");
    assert_eq!(written(&|out| close(CLOSE_WITHOUT_CODE, "bye", out)), b"\x88\x00");
    let long = written(&|out| close(1002, &"\u{e9}".repeat(100), out));
    assert_eq!((long.len(), long[1]), (2 + 2 + 122, 124), "cut between characters");
    assert_eq!(written(&|out| pong(b"Hello", out)), b"\x8A\x05Hello");
}

#[derive(Clone, Debug)]
enum Sent {
    Data(Vec<Vec<u8>>),
    Ping(Vec<u8>),
}

fn sent() -> impl Strategy<Value = Sent> {
    let bytes = |len| proptest::collection::vec(any::<u8>(), 0..len);
    prop_oneof![
        3 => proptest::collection::vec(bytes(300), 1..4).prop_map(Sent::Data),
        1 => bytes(126).prop_map(Sent::Ping),
    ]
}

proptest! {
    #[test]
    fn any_stream_in_any_reads_means_the_same(
        all in proptest::collection::vec(sent(), 0..8),
        reads in proptest::collection::vec(0usize..200, 0..40),
    ) {
        let mut stream = Vec::new();
        let mut meant = Meaning::default();
        for sent in &all {
            match sent {
                Sent::Ping(payload) => {
                    stream.extend(frame(0x89, payload));
                    meant.controls.push(format!("{:?}", ControlFrame::Ping(payload)));
                }
                Sent::Data(fragments) => for (i, payload) in fragments.iter().enumerate() {
                    let fin = if i + 1 == fragments.len() { 0x80 } else { 0 };
                    stream.extend(frame(fin | if i == 0 { 2 } else { 0 }, payload));
                    meant.data.extend_from_slice(payload);
                }
            }
        }
        prop_assert_eq!(decode_in(&stream, &reads, u64::MAX), Ok(meant));
    }

    #[test]
    fn no_bytes_make_it_panic(
        stream in proptest::collection::vec(any::<u8>(), 0..200),
        reads in proptest::collection::vec(0usize..50, 0..8),
    ) {
        let whole = decode_in(&stream, &[], 1 << 20);
        prop_assert_eq!(decode_in(&stream, &reads, 1 << 20), whole);
    }
}
