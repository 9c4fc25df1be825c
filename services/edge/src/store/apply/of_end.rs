//! Writes the end of a connection in the writer's transaction: its session goes to the store, or ends.

use std::collections::HashSet;

use bytes::Bytes;
use millrace_layers::qos2::{self, Direction};
use millrace_layers::{LayerError, Position, Positions, sessions, streams, subscriptions};
use millrace_mqtt::PacketId;
use millrace_session::InFlight;
use millrace_storage::Read;

use super::{Applier, WHOLE_BYTES_MAX, WriteOutcome};
use crate::clock::Clock;
use crate::jobs::open_positions;
use crate::store::{DetachWrite, inflight, record};

impl Applier<'_> {
    pub(super) async fn detach(&self, detach: &DetachWrite) -> Result<WriteOutcome, LayerError> {
        let session = &detach.session;
        let owned = self.fence(session).await?;
        if detach.expiry_s > 0 {
            let (cursor, acknowledged) = progress(detach);
            sessions::checkpoint(&owned, cursor, &acknowledged)?;
            qos2::clear_but(&owned, Direction::Outbound, &detach.standing)?;
            let (rows, lost) = rows(detach, &self.shared.clock);
            for (id, row) in rows {
                qos2::set(&owned, Direction::Outbound, id, &row.into())?;
            }
            self.applied().count(&session.broker).lost += lost;
            for id in &detach.received {
                qos2::set(&owned, Direction::Inbound, id.get(), &Bytes::new())?;
            }
            for filter in &detach.replayed {
                subscriptions::replayed(&owned, filter.as_bytes()).await?;
            }
        } else {
            self.return_begun(detach).await?;
        }
        let (now_ms, keep_will) = (detach.now_ms, detach.keep_will);
        let how = sessions::Detach { now_ms, expiry_s: Some(detach.expiry_s), keep_will };
        let left = sessions::leave(owned, how).await?;
        if let Some(will) = left.will {
            self.will(&session.broker, &will).await?;
        }
        self.applied().count(&session.broker).ended += usize::from(left.ended);
        let ended = left.subscriptions.iter().map(|subscription| &*subscription.filter);
        self.note_changes(&session.broker, ended).await?;
        Ok(WriteOutcome::Done)
    }

    /// Returns to the streams of their groups the messages that the session took with packet ids and never sent. They are new messages
    /// there, because the group may be past their positions. More than [`WHOLE_BYTES_MAX`] are dropped and
    /// counted: otherwise the session could never end.
    async fn return_begun(&self, detach: &DetachWrite) -> Result<(), LayerError> {
        if detach.begun.is_empty() {
            return Ok(());
        }
        let (id, broker) = (detach.session.id(), detach.session.broker.id);
        let stored = qos2::list(self.tx, id, Direction::Outbound, Read::Serializable).await?;
        let stored: HashSet<u16> = stored.into_iter().map(|(id, _)| id).collect();
        let (mut bytes, mut is_full) = (0, false);
        for (id, stream, message) in &detach.begun {
            if is_full && stored.contains(id) {
                self.applied().count(&detach.session.broker).lost += 1;
                continue;
            }
            if !stored.contains(id)
                || streams::stream(self.tx, broker, *stream, Read::Serializable).await?.is_none()
            {
                continue;
            }
            bytes += message.size();
            is_full = bytes > WHOLE_BYTES_MAX.max(message.size());
            if is_full {
                self.applied().count(&detach.session.broker).lost += 1;
                continue;
            }
            let clock = &self.shared.clock;
            let body = record::encode_entry(message, record::NO_PUBLISHER, clock).into();
            let number = self.applied().next_number();
            let entry = streams::NewEntry { number, now_ms: clock.unix_now_ms(), body: &body };
            let to = [streams::StreamRef { stream: *stream, partition: 0 }];
            let mut applied = self.applied();
            streams::append_of_many(self.tx, broker, &to, entry, &mut applied.added)?;
            applied.touched.push((broker, *stream));
            applied.returned.push((broker, *stream));
        }
        Ok(())
    }
}

/// Progress of a session whose connection ends, which got all messages up to `base`, and later those in `had` and `recent`: the
/// cursor up to which all is acknowledged, and what is acknowledged after it.
fn progress(detach: &DetachWrite) -> (Position, Positions) {
    let sent = detach.in_flight.iter().filter_map(|(_, in_flight)| match in_flight {
        InFlight::Published(entry) | InFlight::Unsent(entry) => Some(entry),
        InFlight::Released(_) => None,
    });
    let mut had = detach.had.clone();
    let recent = detach.recent.iter().filter_map(|message| message.position()).map(Position);
    recent.for_each(|position| had.add(position));
    had.progress(detach.base, open_positions(sent.chain(&detach.unsent)))
}

/// The rows that the store does not have: not of ids in `standing`, and of whole messages only [`WHOLE_BYTES_MAX`] together.
fn rows(detach: &DetachWrite, clock: &Clock) -> (Vec<(u16, Vec<u8>)>, usize) {
    let (mut whole, mut lost) = (0, 0);
    let row = |(id, in_flight): &(PacketId, InFlight)| {
        if detach.standing.binary_search(&id.get()).is_ok() {
            return None;
        }
        let row = inflight::encode(in_flight, detach.unordered_ids, clock);
        let is_whole = matches!(in_flight, InFlight::Published(entry) | InFlight::Unsent(entry) if entry.replay || entry.message.position().is_none());
        if is_whole {
            whole += row.len();
        }
        let has_room = !is_whole || whole <= WHOLE_BYTES_MAX;
        lost += usize::from(!has_room);
        has_room.then_some((id.get(), row))
    };
    (detach.in_flight.iter().filter_map(row).collect(), lost)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use millrace_layers::sessions::SessionId;
    use millrace_mqtt::{Properties, QoS};
    use millrace_session::{Message, OutboxEntry};
    use smallvec::SmallVec;

    use super::*;
    use crate::broker::Broker;
    use crate::store::writer::Writer;
    use crate::store::{AttachedSession, Job, SessionKey, StoreContext, Write};

    fn at(number: u8) -> [u8; 12] {
        let mut position = [0; 12];
        position[11] = number;
        position
    }

    fn message(position: Option<u8>) -> Arc<Message> {
        let message = Message::new("t".into(), QoS::AtLeastOnce, false, Properties::EMPTY, b"x", 0);
        message.set_position(position.map(at));
        Arc::new(message)
    }

    fn entry(message: &Arc<Message>) -> OutboxEntry {
        let qos = QoS::AtLeastOnce;
        OutboxEntry {
            message: message.clone(),
            qos,
            retain: false,
            replay: false,
            maybe_sent: false,
            shared: 0,
            identifiers: SmallVec::new(),
        }
    }

    #[test]
    fn a_session_comes_back_to_what_it_has_not_acknowledged_and_to_nothing_else() {
        let messages: Vec<Arc<Message>> = (0..10).map(|number| message(Some(number))).collect();
        let unstored = message(None);
        // All up to 5 was handed over; what is unacknowledged; what was had before; what is open or new after the cursor.
        type Case = (&'static [usize], &'static [u8], u8, &'static [u8]);
        let cases: [Case; 5] = [
            (&[], &[], 5, &[10, 11, 12]),
            (&[7], &[], 5, &[7, 10, 11, 12]),
            (&[3, 7], &[], 2, &[3, 7, 10, 11, 12]),
            (&[3], &[1, 3, 4, 12], 2, &[3, 10, 11]),
            (&[6, 9], &[], 5, &[6, 9, 10, 11, 12]),
        ];
        for (open, had, cursor, not_done) in cases {
            let mut in_flight: Vec<(PacketId, InFlight)> = Vec::new();
            for index in open {
                in_flight.push((PacketId::MIN, InFlight::Published(entry(&messages[*index]))));
            }
            in_flight.push((PacketId::MIN, InFlight::Published(entry(&unstored))));
            let broker = Arc::new(Broker::new(1, "b", 1));
            let detach = DetachWrite {
                session: SessionKey { broker, client: "c".into(), epoch: 1 },
                leaves: None,
                keep_will: false.into(),
                expiry_s: 1,
                now_ms: 1,
                base: Position(at(5)),
                in_flight,
                standing: Vec::new(),
                begun: Vec::new(),
                unsent: Vec::new(),
                recent: messages[2..].to_vec(),
                had: had.iter().map(|number| Position(at(*number))).collect(),
                unordered_ids: false,
                received: Vec::new(),
                replayed: Vec::new(),
            };
            let (found, done) = progress(&detach);
            assert_eq!(found, Position(at(cursor)), "{open:?} {had:?}");
            for number in cursor + 1..14 {
                let is_done = number < 13 && !not_done.contains(&number);
                assert_eq!(done.contains(Position(at(number))), is_done, "{open:?} {had:?} {number}");
            }
        }
    }

    /// The epoch of a new session.
    fn attached(shared: &StoreContext, session: SessionId<'_>) -> u64 {
        let (owner, details) = (Bytes::from_static(b"pod"), None);
        let attach = sessions::Attach { owner, clean: true, expiry_s: 9, now_ms: 1, will: None, details };
        shared.run(&async |tx| sessions::attach(tx, session, attach.clone()).await).epoch
    }

    #[test]
    fn what_a_member_cannot_return_is_counted_as_dropped() {
        let (shared, id) = StoreContext::with_broker(false);
        let group = shared.message_of_group(id, "one");
        let broker = shared.open("default").unwrap().unwrap();
        let session = SessionId { broker: id, client: b"member" };
        let epoch = attached(&shared, session);
        let ids = 1..=7;
        shared.run(&async |tx| {
            let owned = sessions::fence(tx, session, epoch).await?;
            let row = Bytes::from_static(b"row");
            ids.clone().try_for_each(|id| qos2::set(&owned, Direction::Outbound, id, &row))
        });
        let payload = vec![b'x'; WHOLE_BYTES_MAX / 5];
        let long = Message::new("t".into(), QoS::AtLeastOnce, false, Properties::EMPTY, &payload, 0);
        let long = Arc::new(long);
        let attached = AttachedSession { client: "member".into(), epoch, ..AttachedSession::default() };
        let detach = DetachWrite {
            begun: ids.map(|id| (id, group.1, long.clone())).collect(),
            ..DetachWrite::unused(broker.clone(), attached, 2)
        };
        let mut writer = Writer::new(&shared);
        writer.write(vec![Job { write: Write::Detach(Box::new(detach)), ack: None }]);
        let totals = shared.run(&async |tx| streams::totals(tx, id, group.1).await);
        let dropped: u64 = broker.counters.iter().map(|counters| counters.dropped_queue.get()).sum();
        assert_eq!(
            (totals.entries, dropped),
            (1 + 4, 3),
            "the message of the group, and those that came back"
        );
    }

    #[test]
    fn a_member_that_ends_its_session_returns_what_it_took_and_never_sent() {
        for is_shared in [false, true] {
            let (shared, id) = StoreContext::with_broker(is_shared);
            let group = shared.message_of_group(id, "one");
            let broker = shared.open("default").unwrap().unwrap();
            let session = SessionId { broker: id, client: b"member" };
            let epoch = attached(&shared, session);
            // The store has the first packet id; that of the second was refused.
            shared.run(&async |tx| {
                let owned = sessions::fence(tx, session, epoch).await?;
                qos2::set(&owned, Direction::Outbound, 7, &Bytes::from_static(b"row"))
            });
            let begun = |id, position| (id, group.1, message(Some(position)));
            let attached = AttachedSession { client: "member".into(), epoch, ..AttachedSession::default() };
            let detach = DetachWrite {
                begun: vec![begun(7, 1), begun(8, 2)],
                standing: vec![7, 8],
                ..DetachWrite::unused(broker, attached, 2)
            };
            let mut writer = Writer::new(&shared);
            writer.has_all(group);
            assert!(!writer.looks_for_more(group));
            writer.write(vec![Job { write: Write::Detach(Box::new(detach)), ack: None }]);
            let all = streams::ReadLimit { entries: 10, bytes: usize::MAX };
            let source = [streams::StreamSource { stream: group.1, since: 0 }];
            let read = shared.run(&async |tx| streams::read(tx, id, &source, Position::MIN, all).await);
            assert_eq!(read.entries.len(), 2, "the message of the group, and the one that came back");
            assert!(writer.looks_for_more(group), "its members get it at once");
            let record = shared.run(&async |tx| sessions::get(tx, session, Read::Snapshot).await);
            assert!(record.is_none(), "the session has ended");
        }
    }

    #[test]
    fn a_session_that_no_client_got_stays_as_it_was_and_its_will_is_not_published() {
        let (shared, id) = StoreContext::with_broker(false);
        let watcher = shared.group(id, "watcher", "will");
        let broker = shared.open("default").unwrap().unwrap();
        let session = SessionId { broker: id, client: b"member" };
        let will = Message::new("will".into(), QoS::AtLeastOnce, false, Properties::EMPTY, b"gone", 0);
        let will = sessions::PendingWill { delay_s: 0, body: record::encode_will(&will, false).into() };
        let (owner, details) = (Bytes::from_static(b"pod"), None);
        let attach =
            sessions::Attach { owner, clean: true, expiry_s: 9, now_ms: 1, will: Some(will), details };
        let epoch = shared.run(&async |tx| sessions::attach(tx, session, attach.clone()).await).epoch;
        // Together they are larger than an ending connection may store.
        let payload = vec![b'x'; WHOLE_BYTES_MAX * 3 / 4];
        let long = Message::new("t".into(), QoS::ExactlyOnce, false, Properties::EMPTY, &payload, 0);
        let in_flight = InFlight::Published(entry(&Arc::new(long)));
        let ids = [65_535, 1].map(|id| PacketId::new(id).unwrap());
        shared.run(&async |tx| {
            let owned = sessions::fence(tx, session, epoch).await?;
            let row = Bytes::from(inflight::encode(&in_flight, true, &shared.clock));
            ids.iter().try_for_each(|id| qos2::set(&owned, Direction::Outbound, id.get(), &row))
        });
        let attached = AttachedSession {
            client: "member".into(),
            epoch,
            expiry_s: 9,
            in_flight: ids.map(|id| (id, in_flight.clone())).into(),
            ..AttachedSession::default()
        };
        let detach = DetachWrite::unused(broker, attached, 2);
        let list =
            || shared.run(&async |tx| qos2::list(tx, session, Direction::Outbound, Read::Snapshot).await);
        let before = list();
        let mut writer = Writer::new(&shared);
        writer.write(vec![Job { write: Write::Detach(Box::new(detach)), ack: None }]);
        assert!(before.len() == 2 && list() == before, "{} rows are left", list().len());
        let record = shared.run(&async |tx| sessions::get(tx, session, Read::Snapshot).await);
        assert!(record.unwrap().is_detached());
        let totals = shared.run(&async |tx| streams::totals(tx, id, watcher.1).await);
        assert_eq!(totals.entries, 0, "the will of a connection that was not accepted");
    }
}
