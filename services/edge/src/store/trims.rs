//! Removes messages that their only session has read, if a checkpoint had no room to remove them.
//!
//! The checkpoint has found the session to be the only one of the stream. A session that joins later reads nothing that is
//! removed here, because its subscription begins after the checkpoint. If the process is killed, the next checkpoint of the
//! stream removes the rest.

use std::collections::HashMap;

use millrace_layers::limits::TRIM_BYTES_MAX;
use millrace_layers::streams::{self, Totals, Trimmed};
use millrace_layers::{Position, subscriptions};
use millrace_storage::TransactionOption;

use super::StreamKey;
use super::stream_turns::StreamTurns;
use super::writer::{Writer, may_be_of_content, may_pass};

/// Messages that one transaction removes: a few milliseconds. Large messages use more of it, see [`room_for`].
pub(super) const TRIMMED_MAX: usize = 2_000;
const STREAMS: usize = 32;

pub(super) fn room_for(trimmed: &Trimmed) -> usize {
    let Totals { entries, bytes } = trimmed.removed;
    usize::try_from(entries + bytes / (TRIM_BYTES_MAX / TRIMMED_MAX) as u64).unwrap_or(TRIMMED_MAX)
}

#[derive(Default)]
pub(super) struct Trims {
    through: HashMap<StreamKey, Position>,
    /// Brokers take turns.
    streams: StreamTurns,
}

impl Trims {
    pub(super) fn add(&mut self, stream: StreamKey, through: Position) {
        let known = self.through.entry(stream).or_insert(through);
        *known = through.max(*known);
        self.streams.add(stream);
    }

    fn take_some(&mut self) -> Vec<(StreamKey, Position)> {
        let streams = std::iter::from_fn(|| self.streams.pop()).take(STREAMS);
        streams.filter_map(|stream| self.through.remove_entry(&stream)).collect()
    }
}

impl Writer<'_> {
    pub(super) fn trim_some(&mut self) -> bool {
        let some = self.duties.trims.take_some();
        self.trim_these(&some);
        !self.duties.trims.streams.is_empty()
    }

    fn trim_these(&mut self, some: &[(StreamKey, Position)]) {
        let trimmed = self.shared.layers.run(async |tx| {
            tx.set_option(TransactionOption::FreesSpace);
            let (mut room, mut unserved, mut rest) = (TRIMMED_MAX, Vec::new(), Vec::new());
            for (index, ((broker, stream), through)) in some.iter().enumerate() {
                if room == 0 {
                    unserved.push(((*broker, *stream), *through));
                // As in a checkpoint: nothing is removed for one reader while the stream has others.
                } else if subscriptions::is_sole(&tx, *broker, *stream).await? {
                    // A large one leaves a part to each of the others.
                    let part = room.div_ceil(some.len() - index);
                    let trimmed = streams::trim_some(&tx, *broker, *stream, *through, part).await?;
                    room = room.saturating_sub(room_for(&trimmed));
                    rest.extend(trimmed.more.then_some(((*broker, *stream), *through)));
                }
            }
            unserved.append(&mut rest);
            Ok(unserved)
        });
        match self.wait(trimmed) {
            Ok(rest) => rest.into_iter().for_each(|(stream, through)| self.duties.trims.add(stream, through)),
            // One of the streams may be at fault.
            Err(error) if some.len() > 1 && may_be_of_content(&error) => {
                let (one, other) = some.split_at(some.len() / 2);
                self.trim_these(one);
                self.trim_these(other);
            }
            Err(error) => {
                tracing::warn!(%error, "messages that were read could not be removed from the store, where they take space for now");
                if may_pass(&error) {
                    some.iter().for_each(|(stream, through)| self.duties.trims.add(*stream, *through));
                    self.duties.continue_later();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use millrace_layers::sessions::{self, SessionId};
    use millrace_layers::streams::StreamId;
    use millrace_layers::subscriptions::StoredOptions;
    use millrace_router::Target;

    use super::*;
    use crate::jobs::{Checkpoint, Job, SessionKey, Write};
    use crate::store::{StoreContext, duties};

    #[test]
    fn a_checkpoint_removes_the_backlog_of_very_many_streams_with_jobs_in_between() {
        const STREAMS: u64 = 3;
        for is_shared in [false, true] {
            let (shared, id) = StoreContext::with_broker(is_shared);
            let session = SessionId { broker: id, client: b"reader" };
            let attach = sessions::Attach {
                owner: Bytes::from_static(b"pod"),
                clean: true,
                expiry_s: 9,
                now_ms: 1,
                will: None,
                details: None,
            };
            let epoch = shared.run(&async |tx| sessions::attach(tx, session, attach.clone()).await).epoch;
            let filter = |number: u64| format!("t/{number}");
            let streams: Vec<StreamId> = (0..STREAMS)
                .map(|number| {
                    let subscribed = shared.run(&async |tx| {
                        let owned = sessions::fence(tx, session, epoch).await?;
                        let options = StoredOptions { bits: 1, identifier: 0 };
                        subscriptions::subscribe(&owned, filter(number).as_bytes(), options).await
                    });
                    shared.append_many((id, subscribed.stream), 2_500);
                    subscribed.stream
                })
                .collect();
            let broker = shared.open("default").unwrap().unwrap();
            let mut writer = Writer::new(&shared);
            let checkpoint = Checkpoint {
                session: SessionKey { broker, client: "reader".into(), epoch },
                target: Target { core: 0, slot: 1, generation: 1 },
                cursor: Position::end_of(shared.version()),
                acknowledged: millrace_layers::Positions::default(),
                completed: Vec::new(),
                streams: streams.clone(),
                replayed: Vec::new(),
            };
            let left = || {
                let all = shared.run(&async |tx| streams::all_totals(tx, id, None, 10).await);
                all.iter().map(|(_, totals)| totals.entries).sum::<u64>()
            };
            writer.write(vec![Job { write: Write::Checkpoint(Box::new(checkpoint)), ack: None }]);
            let mut seen = vec![7_500, left()];
            while writer.duties.wait(0).is_some() && seen.len() < 10 {
                duties::step(&mut writer);
                seen.push(left());
            }
            let removed: Vec<u64> = seen.windows(2).map(|seen| seen[0] - seen[1]).collect();
            assert!(removed.iter().all(|removed| *removed <= 2_000) && removed.len() == 4, "{removed:?}");
            assert_eq!(seen.last(), Some(&0));
        }
    }
}
