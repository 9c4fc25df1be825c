//! Keys of streams.

use super::StreamId;
use crate::{BrokerId, position::Position, tags, tuple::Key};

pub(crate) fn streams(broker: BrokerId) -> Key {
    Key::new(broker, tags::STREAM)
}

pub(crate) fn stream(broker: BrokerId, stream: StreamId) -> Key {
    streams(broker).uint(stream)
}

pub(crate) fn totals(broker: BrokerId, stream: StreamId) -> Key {
    Key::new(broker, tags::TOTALS).uint(stream)
}

/// What stands before the entries of a partition: the partition comes before the versionstamp, so that a stream with several
/// has several places that grow.
pub(crate) fn partition(broker: BrokerId, stream: StreamId, partition: u8) -> Key {
    Key::new(broker, tags::ENTRY).uint(stream).uint(partition.into())
}

pub(crate) fn entry(broker: BrokerId, of: super::StreamRef, position: Position) -> Key {
    partition(broker, of.stream, of.partition).position(position)
}

pub(crate) fn holders(broker: BrokerId) -> Key {
    Key::new(broker, tags::HOLDERS)
}

pub(crate) fn bodies(broker: BrokerId) -> Key {
    Key::new(broker, tags::BODY)
}

/// The chunks of a body.
pub(crate) fn body(broker: BrokerId, position: Position) -> Key {
    bodies(broker).position(position)
}

/// How far a group has come with its stream.
pub(crate) fn group(broker: BrokerId, stream: StreamId) -> Key {
    Key::new(broker, tags::GROUP).uint(stream)
}

/// What all pods together have claimed of a group's stream.
pub(crate) fn head(broker: BrokerId, stream: StreamId) -> Key {
    Key::new(broker, tags::HEAD).uint(stream)
}

/// What was claimed and given back.
pub(crate) fn free(broker: BrokerId, stream: StreamId) -> Key {
    Key::new(broker, tags::FREE).uint(stream)
}

/// What each pod has of a group's stream.
pub(crate) fn claims(broker: BrokerId, stream: StreamId) -> Key {
    Key::new(broker, tags::CLAIMS).uint(stream)
}

/// The streams of which a pod has something.
pub(crate) fn claims_of(pod: &[u8]) -> Key {
    Key::new(tags::REGION, tags::CLAIMS).bytes(pod)
}

pub(crate) fn dropped(broker: BrokerId) -> Key {
    Key::new(broker, tags::DROPPED)
}
