use super::*;
use proptest::prelude::*;

const ANY: u32 = u32::MAX;

#[test]
fn a_whole_packet_is_found_and_what_follows_is_left() {
    let table: &[(&[u8], &[u8], usize)] = &[
        (&[0xC0, 0x00], &[], 2),
        (&[0x40, 0x02, 0x00, 0x01, 0xC0, 0x00], &[0x00, 0x01], 4),
        (&[0x30, 0x03, 0x00, 0x01, b'a', 0xFF], &[0x00, 0x01, b'a'], 5),
    ];
    for &(buf, body, size) in table {
        assert_eq!(frame(buf, ANY), Ok(Ok(Frame { first: buf[0], body, size })), "{buf:02X?}");
    }
}

#[test]
fn a_cut_packet_says_how_much_it_needs() {
    let table: &[(&[u8], usize)] = &[
        (&[], 2),
        (&[0xC0], 2),
        (&[0x40, 0x02], 4),
        (&[0x40, 0x02, 0x00], 4),
        (&[0x30, 0x80], 3),
        (&[0x30, 0x80, 0x01], 131),
        (&[0x30, 0xFF, 0xFF, 0xFF], 5),
        (&[0x30, 0xFF, 0xFF, 0xFF, 0x7F, 0x00], 268_435_460),
    ];
    for &(buf, needed) in table {
        assert_eq!(frame(buf, ANY), Ok(Err(needed)), "{buf:02X?}");
    }
}

#[test]
fn a_packet_over_the_limit_is_refused_by_its_fixed_header() {
    for (buf, limit, size) in [
        (&[0x30, 0x7F][..], 128, 129),
        (&[0x30, 0xFF, 0xFF, 0xFF, 0x7F], 1_000_000, 268_435_460),
        (&[0xC0, 0x00], 1, 2),
    ] {
        assert_eq!(frame(buf, limit), Err(DecodeError::TooLarge { size, limit }), "{buf:02X?}");
        assert!(frame(buf, size).is_ok(), "{buf:02X?}");
    }
}

#[test]
fn a_remaining_length_has_four_bytes_at_most_and_is_minimal_in_5_0() {
    //= [MQTT-1.5.5-1] v5
    for buf in
        [&[0xC0, 0x80, 0x00][..], &[0x40, 0x82, 0x80, 0x00, 0, 1], &[0x40, 0x82, 0x80, 0x80, 0x00, 0, 1]]
    {
        let framed = frame(buf, ANY).unwrap().unwrap();
        assert_eq!(framed.size, buf.len());
        assert!(!framed.has_shortest_length());
        assert_eq!(framed.decode(Some(Version::V5)), Err(wire::NOT_SHORTEST), "{buf:02X?}");
        for version in [Version::V31, Version::V311] {
            assert!(framed.decode(Some(version)).is_ok(), "{buf:02X?}");
        }
    }
    for (connect, is_taken) in [
        (&b"\x10\x8D\0\0\x04MQTT\x04\x02\0\0\0\x01a"[..], true),
        (b"\x10\x8E\0\0\x04MQTT\x05\x02\0\0\0\0\x01a", false),
        (b"\x10\x0E\0\x04MQTT\x05\x02\0\0\0\0\x01a", true),
    ] {
        assert_eq!(frame(connect, ANY).unwrap().unwrap().decode(None).is_ok(), is_taken, "{connect:02X?}");
    }
    let too_long = frame(&[0x30, 0xFF, 0xFF, 0xFF, 0xFF], ANY);
    assert!(matches!(too_long, Err(DecodeError::Malformed(_))));
}

#[test]
fn types_and_flags_that_no_version_has_are_refused_at_the_first_byte() {
    //= [MQTT-2.1.3-1] v5
    //= [MQTT-2.2.2-1] v3.1.1
    for first in 0..=u8::MAX {
        let legal = match first >> 4 {
            0 => false,
            3 => first & 0x06 != 0x06,
            // 3.1 has the DUP bit here, and uses few others.
            6 | 8 | 10 => first & 0x06 == 0x02,
            15 => first & 0x0F == 0,
            _ => true,
        };
        assert_eq!(frame(&[first], ANY).is_ok(), legal, "{first:02X}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn needed_is_always_more_than_there_is(buf in prop::collection::vec(any::<u8>(), 0..12), max in any::<u32>()) {
        match frame(&buf, max) {
            Ok(Ok(frame)) => prop_assert!(frame.size <= buf.len() && frame.size <= max as usize),
            Ok(Err(needed)) => prop_assert!(needed > buf.len()),
            Err(_) => {}
        }
    }
}
