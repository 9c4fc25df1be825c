//! An encoded packet decodes to the same packet, however its bytes arrive, and no bytes break the
//! decoder.

mod common;

use common::{bytes, packet, version};
use millrace_mqtt::{DecodeError, Packet, Version, decode, frame};
use proptest::{collection::vec, prelude::*, sample::Index};

const NO_LIMIT: u32 = u32::MAX;

fn read(bytes: &[u8], version: Version) -> Result<Packet<'_>, DecodeError> {
    match frame(bytes, NO_LIMIT)? {
        Ok(frame) if frame.size == bytes.len() => decode(frame.first, frame.body, Some(version)),
        other => panic!("not one whole packet: {other:?}"),
    }
}

/// Decodes what may be a packet, and checks that what decodes is written and read again as the same
/// packet.
fn read_any(buf: &[u8], version: Version) {
    let Ok(Ok(found)) = frame(buf, NO_LIMIT) else { return };
    let _ = decode(found.first, found.body, None);
    let Ok(packet) = decode(found.first, found.body, Some(version)) else { return };
    // A CONNECT says its own version.
    let version = if let Packet::Connect(connect) = &packet { connect.version } else { version };
    let again = bytes(&packet, version);
    assert_eq!(read(&again, version).as_ref(), Ok(&packet), "{again:02X?}");
}

/// Takes bytes as a socket brings them, and packets as a connection reads them.
struct Receiver {
    version: Version,
    buf: Vec<u8>,
    needed: usize,
    frames: Vec<Vec<u8>>,
}

impl Receiver {
    fn receive(&mut self, bytes: &[u8]) {
        self.buf.extend_from_slice(bytes);
        while self.buf.len() >= self.needed {
            match frame(&self.buf, NO_LIMIT).expect("good packets") {
                Ok(frame) => {
                    decode(frame.first, frame.body, Some(self.version)).expect("a good packet");
                    let size = frame.size;
                    self.frames.push(self.buf.drain(..size).collect());
                    self.needed = 0;
                }
                Err(needed) => {
                    assert!(needed > self.buf.len());
                    self.needed = needed;
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn every_packet_decodes_to_what_was_encoded(
        (version, packet) in version().prop_flat_map(|version| (Just(version), packet(version))),
    ) {
        let bytes = bytes(&packet, version);
        let decoded = read(&bytes, version);
        prop_assert_eq!(decoded.as_ref(), Ok(&packet));
        // The iterators read all of their bytes.
        if let (Ok(Packet::Subscribe(read)), Packet::Subscribe(written)) = (decoded, &packet) {
            prop_assert_eq!(read.filters.collect::<Vec<_>>(), written.filters.clone().collect::<Vec<_>>());
        }
    }

    #[test]
    fn any_cut_of_a_packet_is_not_yet_a_packet(
        (version, packet) in version().prop_flat_map(|version| (Just(version), packet(version))),
        at in any::<Index>(),
    ) {
        let bytes = bytes(&packet, version);
        let cut = &bytes[..at.index(bytes.len())];
        match frame(cut, NO_LIMIT) {
            Ok(Err(needed)) => prop_assert!(needed > cut.len() && needed <= bytes.len()),
            other => prop_assert!(false, "{other:?}"),
        }
        // And a body that is cut is a packet in its own right, or none: never a panic.
        if let Ok(Ok(frame)) = frame(&bytes, NO_LIMIT) {
            let _ = decode(frame.first, &frame.body[..at.index(frame.body.len() + 1)], Some(version));
        }
    }

    #[test]
    fn packets_are_the_same_however_the_stream_is_cut(
        (version, packets) in version().prop_flat_map(|version| (Just(version), vec(packet(version), 1..6))),
        cuts in vec(any::<Index>(), 0..12),
    ) {
        let sent = packets.iter().map(|packet| bytes(packet, version)).collect::<Vec<_>>();
        let stream = sent.concat();
        let mut cuts = cuts.iter().map(|cut| cut.index(stream.len())).collect::<Vec<_>>();
        cuts.sort_unstable();
        cuts.push(stream.len());
        let mut receiver = Receiver { version, buf: Vec::new(), needed: 0, frames: Vec::new() };
        let mut from = 0;
        for to in cuts {
            receiver.receive(&stream[from..to]);
            from = to;
        }
        prop_assert_eq!(receiver.frames, sent);
        prop_assert!(receiver.buf.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn arbitrary_bytes_do_not_break_the_decoder(
        version in version(),
        first in any::<u8>(),
        body in vec(prop_oneof![0..8_u8, any::<u8>()], 0..60),
    ) {
        read_any(&[&[first, body.len() as u8], &body[..]].concat(), version);
        read_any(&body, version);
    }

    #[test]
    fn spoilt_packets_do_not_break_the_decoder(
        (version, packet) in version().prop_flat_map(|version| (Just(version), packet(version))),
        as_version in version(),
        spoils in vec((any::<Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = bytes(&packet, version);
        read_any(&bytes, as_version);
        for (at, byte) in spoils {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        read_any(&bytes, version);
        read_any(&bytes, as_version);
    }
}
