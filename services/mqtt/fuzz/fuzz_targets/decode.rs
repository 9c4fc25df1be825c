//! No bytes panic the decoder, and what decodes is written and read again as the same packet.
#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_mqtt::{Frame, Packet, Properties, Version, connect_version, decode, encode, frame};

fuzz_target!(|data: &[u8]| {
    let _ = connect_version(data);
    // The bytes as a stream; and as one packet, so that a wrong remaining length does not hide the
    // rest.
    if let Ok(Ok(frame)) = frame(data, u32::MAX) {
        in_every_version(frame);
    }
    if let Some((&first, body)) = data.split_first() {
        in_every_version(Frame { first, body, size: data.len() });
    }
});

fn in_every_version(frame: Frame<'_>) {
    let _ = decode(frame.first, frame.body, None);
    for version in [Version::V31, Version::V311, Version::V5] {
        if let Ok(packet) = decode(frame.first, frame.body, Some(version)) {
            // A CONNECT says its own version.
            let version = if let Packet::Connect(connect) = &packet { connect.version } else { version };
            walk(&packet);
            round_trip(&packet, version);
        }
    }
}

/// Walks the iterators, which read all of their bytes: written again, they give the same.
fn walk(packet: &Packet<'_>) {
    match packet {
        Packet::Connect(p) => {
            rewrite(p.properties);
            p.will.iter().for_each(|will| rewrite(will.properties));
        }
        Packet::ConnAck(p) => rewrite(p.properties),
        Packet::Publish(p) => rewrite(p.properties),
        Packet::PubAck(p) | Packet::PubRec(p) | Packet::PubRel(p) | Packet::PubComp(p) => {
            rewrite(p.properties)
        }
        Packet::Subscribe(p) => rewrite(p.properties),
        Packet::SubAck(p) => rewrite(p.properties),
        Packet::Unsubscribe(p) => rewrite(p.properties),
        Packet::UnsubAck(p) => rewrite(p.properties),
        Packet::Disconnect(p) => rewrite(p.properties),
        Packet::Auth(p) => rewrite(p.properties),
        Packet::PingReq | Packet::PingResp => {}
    }
}

fn rewrite(properties: Properties<'_>) {
    let mut out = Vec::new();
    properties.iter().for_each(|property| property.encode(&mut out));
    assert_eq!(out, properties.as_bytes());
}

fn round_trip(packet: &Packet<'_>, version: Version) {
    let mut out = Vec::new();
    encode::packet(packet, version, &mut out);
    match frame(&out, u32::MAX) {
        Ok(Ok(frame)) => {
            assert_eq!(frame.size, out.len());
            assert_eq!(decode(frame.first, frame.body, Some(version)).as_ref(), Ok(packet));
        }
        other => panic!("{packet:?} was written as {out:02X?}: {other:?}"),
    }
}
