//! Parts of streams in memory: when many sessions read a stream at about the same time, the store is read and decoded
//! once.
//!
//! Only streams with several subscribers have parts. A part is complete: positions are versions of commits, and a part ends
//! before the version at which it was read. So every cursor within a part may use it, whenever it was read.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use millrace_layers::Position;
use millrace_session::Message;

use super::StreamKey;

const BYTES_MAX: usize = 32 * 1024 * 1024;
/// Parts that were not used for this long are removed.
const UNUSED_MAX_MS: u64 = 2_000;

#[derive(Clone, Debug)]
pub(super) struct PartEntry {
    pub(super) position: Position,
    pub(super) message: Arc<Message>,
    pub(super) publisher: u64,
}

/// All entries of a stream after one position and up to another.
pub(super) struct StreamPart {
    pub(super) after: Position,
    pub(super) through: Position,
    /// The stream had more when this was read.
    pub(super) more: bool,
    pub(super) entries: Vec<PartEntry>,
}

impl StreamPart {
    /// The index of the first entry after a cursor.
    pub(super) fn begin(&self, cursor: Position) -> usize {
        self.entries.partition_point(|entry| entry.position <= cursor)
    }

    fn bytes(&self) -> usize {
        128 + self.entries.iter().map(|entry| 64 + entry.message.size()).sum::<usize>()
    }
}

#[derive(Default)]
pub(super) struct PartCache {
    of_stream: HashMap<StreamKey, Vec<UsedPart>>,
    /// The stream and time of each use that is the last one of its part, in the order of uses.
    uses: BTreeMap<u64, (StreamKey, u64)>,
    bytes: usize,
    next_use: u64,
}

struct UsedPart {
    part: Arc<StreamPart>,
    last_use: u64,
}

impl PartCache {
    /// A part that has entries after a cursor, or shows that there are none.
    pub(super) fn find(
        &mut self,
        stream: StreamKey,
        cursor: Position,
        now_ms: u64,
    ) -> Option<Arc<StreamPart>> {
        let parts = self.of_stream.get_mut(&stream)?;
        let found = parts.iter_mut().find(|used| used.part.after <= cursor && cursor < used.part.through)?;
        self.uses.remove(&found.last_use);
        self.uses.insert(self.next_use, (stream, now_ms));
        found.last_use = self.next_use;
        self.next_use += 1;
        Some(found.part.clone())
    }

    pub(super) fn keep(&mut self, stream: StreamKey, part: Arc<StreamPart>, now_ms: u64) {
        self.bytes += part.bytes();
        self.uses.insert(self.next_use, (stream, now_ms));
        self.of_stream.entry(stream).or_default().push(UsedPart { part, last_use: self.next_use });
        self.next_use += 1;
        while self.bytes > BYTES_MAX && self.uses.len() > 1 {
            self.remove_oldest();
        }
    }

    pub(super) fn clean(&mut self, now_ms: u64) {
        while let Some((_, (_, at))) = self.uses.first_key_value()
            && now_ms >= at + UNUSED_MAX_MS
        {
            self.remove_oldest();
        }
    }

    fn remove_oldest(&mut self) {
        let Some((oldest, (stream, _))) = self.uses.pop_first() else { return };
        let Some(parts) = self.of_stream.get_mut(&stream) else { return };
        if let Some(place) = parts.iter().position(|used| used.last_use == oldest) {
            self.bytes -= parts.swap_remove(place).part.bytes();
        }
        if parts.is_empty() {
            self.of_stream.remove(&stream);
        }
    }

    #[cfg(test)]
    pub(super) fn entries(&self) -> usize {
        self.of_stream.values().flatten().map(|used| used.part.entries.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use millrace_mqtt::{Properties, QoS};

    use super::*;

    fn at(version: u64) -> Position {
        Position::end_of(version)
    }

    fn part(after: u64, through: u64) -> Arc<StreamPart> {
        let entry = |version| {
            let message = Message::new("t".into(), QoS::AtLeastOnce, false, Properties::EMPTY, b"x", 0);
            PartEntry { position: at(version), message: Arc::new(message), publisher: 0 }
        };
        let entries = (after + 1..=through).map(entry).collect();
        Arc::new(StreamPart { after: at(after), through: at(through), more: false, entries })
    }

    #[test]
    fn a_part_serves_every_cursor_within_it_until_nobody_uses_it() {
        let mut parts = PartCache::default();
        parts.keep((1, 7), part(10, 20), 0);
        parts.keep((1, 7), part(20, 30), 0);
        assert!(parts.find((1, 7), at(9), 1).is_none() && parts.find((2, 7), at(15), 1).is_none());
        for (cursor, length) in [(10, 10), (15, 5), (19, 1), (20, 10), (29, 1)] {
            let found = parts.find((1, 7), at(cursor), 1).unwrap();
            assert_eq!(found.entries.len() - found.begin(at(cursor)), length, "{cursor}");
        }
        assert!(parts.find((1, 7), at(30), 1).is_none(), "it says nothing of what comes after");
        assert!(parts.find((1, 7), at(12), 1_500).is_some());
        parts.clean(2_500);
        assert!(parts.find((1, 7), at(12), 2_500).is_some() && parts.find((1, 7), at(22), 2_500).is_none());
        parts.clean(9_000);
        assert_eq!((parts.bytes, parts.of_stream.len()), (0, 0));
    }

    #[test]
    fn they_never_take_more_than_their_bound() {
        let mut parts = PartCache::default();
        let one = part(0, 1_000);
        for stream in 0..2_000 {
            parts.keep((1, stream), one.clone(), 0);
            assert!(parts.bytes <= BYTES_MAX);
        }
        assert!(parts.find((1, 1_999), at(3), 0).is_some(), "the last one is there");
    }

    #[test]
    fn without_room_the_part_that_was_not_used_for_the_longest_time_goes() {
        let mut parts = PartCache::default();
        let one = part(0, 1_000);
        for stream in 0..2_000 {
            parts.keep((1, stream), one.clone(), 0);
            assert!(parts.find((1, 0), at(3), 0).is_some(), "{stream}: used again and again");
        }
        assert!(parts.find((1, 1), at(3), 0).is_none());
        assert!(parts.bytes > BYTES_MAX / 10 * 9 && parts.uses.len() == parts.of_stream.len());
    }
}
