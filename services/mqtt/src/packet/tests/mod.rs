mod ack;
mod connect;
mod control;
mod publish;
mod subscribe;

use super::*;
use crate::{PacketId, frame};
use Version::{V5, V31, V311};

const ALL: [Version; 3] = [V31, V311, V5];

/// Decodes the one packet that `bytes` are.
fn read(version: Version, bytes: &[u8]) -> Result<Packet<'_>, DecodeError> {
    let frame = frame(bytes, u32::MAX)?.expect("a whole packet");
    assert_eq!(frame.size, bytes.len(), "the remaining length of {bytes:02X?}");
    decode(frame.first, frame.body, Some(version))
}

#[track_caller]
fn malformed(version: Version, bytes: &[u8]) {
    let result = read(version, bytes);
    assert!(matches!(result, Err(DecodeError::Malformed(_))), "{version:?} {bytes:02X?}: {result:?}");
}

#[track_caller]
fn protocol_error(version: Version, bytes: &[u8]) {
    let result = read(version, bytes);
    assert!(matches!(result, Err(DecodeError::Protocol(_))), "{version:?} {bytes:02X?}: {result:?}");
}

/// A packet with this first byte and body.
fn packet(first: u8, parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    assert!(body.len() < 128);
    [&[first, body.len() as u8], &body[..]].concat()
}

fn id(id: u16) -> PacketId {
    PacketId::new(id).expect("not 0")
}
