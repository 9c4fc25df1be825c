//! Keys of streams, their entries, shared bodies and claims. The table of all rows is in storage/layers/README.md.

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

pub(crate) fn losses(broker: BrokerId, stream: StreamId) -> Key {
    Key::new(broker, tags::LOSSES).uint(stream)
}

/// Prefix of a partition's entries: the partition comes before the versionstamp, so that the keys of a stream with
/// several partitions grow at several ends.
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

pub(crate) fn body(broker: BrokerId, position: Position) -> Key {
    bodies(broker).position(position)
}

pub(crate) fn group(broker: BrokerId, stream: StreamId) -> Key {
    Key::new(broker, tags::GROUP).uint(stream)
}

/// The position up to which pods have claimed the messages of a shared subscription's stream.
pub(crate) fn head(broker: BrokerId, stream: StreamId) -> Key {
    Key::new(broker, tags::HEAD).uint(stream)
}

/// Messages whose claim a pod gave back.
pub(crate) fn free(broker: BrokerId, stream: StreamId) -> Key {
    Key::new(broker, tags::FREE).uint(stream)
}

pub(crate) fn claims(broker: BrokerId, stream: StreamId) -> Key {
    Key::new(broker, tags::CLAIMS).uint(stream)
}

pub(crate) fn claims_of(pod: &[u8]) -> Key {
    Key::new(tags::REGION, tags::CLAIMS).bytes(pod)
}

pub(crate) fn dropped(broker: BrokerId) -> Key {
    Key::new(broker, tags::DROPPED)
}
