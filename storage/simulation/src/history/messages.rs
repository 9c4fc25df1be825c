//! Messages and their positions in commit order.

use std::collections::BTreeMap;

use bytes::{BufMut, Bytes};
use millrace_layers::{BrokerId, Position};
use millrace_storage::Versionstamp;

pub(crate) type MessageId = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retain {
    No,
    Set,
    Clear,
}

#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) broker: BrokerId,
    pub(crate) topic: String,
    /// The publisher; 0 for wills, which have no order.
    pub(crate) publisher: u64,
    pub(crate) retain: Retain,
    pub(crate) is_acknowledged: bool,
    /// Its positions, as far as they are known. More than one is an error.
    pub(crate) places: Vec<Position>,
}

#[derive(Default)]
pub(crate) struct Messages(BTreeMap<MessageId, Message>);

impl Messages {
    pub(crate) fn add(
        &mut self,
        id: MessageId,
        broker: BrokerId,
        topic: &str,
        publisher: u64,
        retain: Retain,
    ) {
        let (topic, is_acknowledged, places) = (topic.into(), false, Vec::new());
        self.0.insert(id, Message { broker, topic, publisher, retain, is_acknowledged, places });
    }

    pub(crate) fn acknowledge(&mut self, id: MessageId, at: Option<(Versionstamp, u16)>) {
        if let Some(message) = self.0.get_mut(&id) {
            message.is_acknowledged = true;
        }
        if let Some((stamp, place)) = at {
            self.seen(id, Position::new(stamp, place));
        }
    }

    /// Returns false for a message that is not of this run.
    pub(crate) fn seen(&mut self, id: MessageId, at: Position) -> bool {
        let Some(message) = self.0.get_mut(&id) else { return false };
        if !message.places.contains(&at) {
            message.places.push(at);
        }
        true
    }

    pub(crate) fn get(&self, id: MessageId) -> Option<&Message> {
        self.0.get(&id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (MessageId, &Message)> {
        self.0.iter().map(|(id, message)| (*id, message))
    }

    pub(crate) fn in_order(&self, broker: BrokerId) -> BTreeMap<Position, MessageId> {
        let of_broker = self.iter().filter(|(_, message)| message.broker == broker);
        of_broker.flat_map(|(id, message)| message.places.iter().map(move |at| (*at, id))).collect()
    }
}

/// The stored body of a message: its number and derived bytes, either few or so many that they are
/// stored apart.
pub(crate) fn body(id: MessageId) -> Bytes {
    let filler = match id % 32 {
        7 if id % 5 == 2 => 100_000,
        3 | 19 => 1_500,
        _ => id % 50,
    };
    let mut body = Vec::new();
    body.put_u64(id);
    body.resize(8 + usize::try_from(filler).unwrap_or(0), id.to_le_bytes()[0]);
    body.into()
}

/// `None` for an incomplete body.
pub(crate) fn of_body(bytes: &[u8]) -> Option<MessageId> {
    let id = MessageId::from_be_bytes(*bytes.first_chunk()?);
    (body(id) == bytes).then_some(id)
}
