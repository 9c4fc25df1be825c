//! The state of a connected session, as an event loop has it: what it reads, and how far its client is.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_layers::streams::StreamSource;
use millrace_layers::subscriptions::{NO_STREAM, StoredOptions, Subscribed};
use millrace_layers::{Position, Positions};
use millrace_mqtt::topic::{self, Filter};
use millrace_mqtt::{PacketId, QoS};
use millrace_router::Subscription;
use millrace_session::{InFlight, Message, OutboxEntry, StoredPosition};
use smallvec::SmallVec;

use super::core::{Turn, position_of, session_key, target};
use super::model::{Key, WILL_TOPIC};
use super::network::ToClient;
use super::outbox::{Ended, Outbox};
use super::world::World;
use crate::connection_id::ConnectionId;
use crate::jobs::{
    AttachedSession, Checkpoint, DetachWrite, PageReader, Reserve, SessionKey, StoredPage, StreamRead,
    open_positions,
};

/// A session with more messages reads no further page.
const WAITING_MAX: usize = 100;
const SAVE_AFTER_US: u64 = 2_000_000;

pub(super) struct Local {
    pub(super) client: usize,
    number: u32,
    /// The store has given the session to the connection.
    is_open: bool,
    /// The client is gone.
    pub(super) is_cut: bool,
    pub(super) asker: Option<Arc<()>>,
    pub(super) expiry_s: u32,
    pub(super) has_will: bool,
    epoch: u64,
    /// Packet ids of the client's messages with QoS 2.
    pub(super) received: std::collections::BTreeSet<u16>,
    pub(super) subscribing: u32,
    /// Messages of the client that receivers get only after their commits.
    pub(super) uncommitted: u32,
    pub(super) reading: Reading,
    pub(super) outbox: Outbox,
    pub(super) groups: Vec<String>,
    save_us: u64,
}

#[derive(Default)]
pub(super) struct Reading {
    sources: Vec<(String, StreamSource)>,
    pub(super) version: u32,
    through: Position,
    /// Messages behind `through` that it has got.
    had: Positions,
    is_asked: bool,
    asker: Arc<()>,
    is_at_end: bool,
    next_us: u64,
    /// Rows in flight of an earlier connection, until the page with their position is read.
    rows: BTreeMap<Position, (u16, OutboxEntry)>,
}

impl Local {
    pub(super) fn new(client: usize, number: u32, expiry_s: u32, has_will: bool) -> Self {
        Self {
            client,
            number,
            is_open: false,
            is_cut: false,
            asker: Some(Arc::default()),
            expiry_s,
            has_will,
            epoch: 0,
            received: Default::default(),
            subscribing: 0,
            uncommitted: 0,
            reading: Reading { through: Position::MIN, is_at_end: true, ..Reading::default() },
            outbox: Outbox::default(),
            groups: Vec::new(),
            save_us: u64::MAX,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    pub(super) fn is_idle(&self) -> bool {
        self.is_open && self.reading.is_at_end && self.outbox.is_empty() && self.reading.rows.is_empty()
    }

    pub(super) fn next_us(&self) -> u64 {
        self.reading.next_us.min(self.save_us)
    }

    pub(super) fn client_id(&self, world: &World) -> String {
        world.client_name(self.client)
    }

    pub(super) fn options(&self, world: &World) -> StoredOptions {
        StoredOptions { bits: world.client_qos(self.client), identifier: 0 }
    }

    pub(super) fn key(&self, turn: &Turn<'_>) -> SessionKey {
        session_key(turn, &self.client_id(turn.world), self.epoch)
    }

    pub(super) fn is_session(&self, world: &World, session: &SessionKey) -> bool {
        self.is_open && self.epoch == session.epoch && *self.client_id(world) == *session.client
    }

    pub(super) fn open(&mut self, turn: &Turn<'_>, attached: AttachedSession) {
        self.is_open = true;
        self.epoch = attached.epoch;
        self.reading.through = attached.cursor;
        self.reading.had = attached.acknowledged;
        self.received = attached.received.iter().map(|id| id.get()).collect();
        for stored in &attached.subscriptions {
            let filter = String::from_utf8_lossy(&stored.filter).into_owned();
            self.add(turn, filter, StreamSource { stream: stored.stream, since: stored.since });
        }
        self.reading.is_at_end = self.reading.sources.is_empty();
        for (id, in_flight) in attached.in_flight {
            let id = id.get();
            self.outbox.has_row(id);
            match in_flight {
                InFlight::Released(position) => {
                    self.outbox.release_again(id, position);
                    turn.world.send_down(self.number, ToClient::PubRel(id));
                }
                InFlight::Published(entry) | InFlight::Unsent(entry) => match entry.message.position() {
                    Some(position) if !entry.replay => {
                        drop(self.reading.rows.insert(Position(position), (id, entry)));
                    }
                    _ => self.outbox.repeat(id, entry),
                },
            }
        }
    }

    /// A filter is durable: the session reads its stream, or is a member of its group.
    fn add(&mut self, turn: &Turn<'_>, filter: String, source: StreamSource) {
        let parsed = Filter::parse(&filter).unwrap();
        if parsed.share.is_none() {
            if source.stream != NO_STREAM {
                self.reading.add(filter, source);
            }
            return;
        }
        let subscription = Subscription {
            target: target(self.number),
            qos: self.qos(turn.world),
            no_local: false,
            retain_as_published: false,
            persistent: false,
            identifier: 0,
        };
        turn.broker.router.edit(|edit| edit.subscribe(parsed, subscription));
        self.groups.push(filter);
    }

    pub(super) fn leave_groups(&mut self, turn: &Turn<'_>) {
        for filter in std::mem::take(&mut self.groups) {
            let filter = Filter::parse(&filter).unwrap();
            turn.broker.router.edit(|edit| edit.unsubscribe(filter, target(self.number)));
        }
    }

    fn qos(&self, world: &World) -> QoS {
        QoS::from_bits(world.client_qos(self.client)).unwrap()
    }

    pub(super) fn subscribed(&mut self, turn: &Turn<'_>, filter: &str, granted: Option<Subscribed>) {
        self.subscribing -= 1;
        if let Some(granted) = granted {
            self.reading.remove(filter);
            self.groups.retain(|known| known != filter);
            self.add(turn, filter.into(), StreamSource { stream: granted.stream, since: granted.since });
        }
    }

    pub(super) fn next_read(&mut self, turn: &Turn<'_>) -> Option<StreamRead> {
        let (now_us, reading) = (turn.world.micros(), &mut self.reading);
        let is_due = !reading.is_at_end || now_us >= reading.next_us;
        if reading.is_asked || !is_due || self.subscribing > 0 || self.outbox.waiting() > WAITING_MAX {
            return None;
        }
        reading.next_us = now_us + turn.world.random(50_000..1_000_000);
        if reading.sources.is_empty() {
            reading.is_at_end = true;
            self.repeat_rows();
            return None;
        }
        reading.is_asked = true;
        let asker = Arc::downgrade(&reading.asker);
        let reader = PageReader::Session(target(self.number), reading.version, asker);
        let sources = reading.sources.iter().map(|(_, source)| *source).collect();
        Some(StreamRead {
            core: 0,
            broker: turn.broker.clone(),
            sources,
            cursor: reading.through,
            cuts: 0,
            reader,
        })
    }

    /// Without anything more to read, rows in flight have no page to wait for.
    fn repeat_rows(&mut self) {
        for (id, entry) in std::mem::take(&mut self.reading.rows).into_values() {
            self.outbox.repeat(id, entry);
        }
    }

    pub(super) fn page(&mut self, turn: &Turn<'_>, version: u32, page: StoredPage) {
        self.reading.is_asked = false;
        if version != self.reading.version || self.subscribing > 0 {
            self.reading.is_at_end = false;
            return;
        }
        let mut found: BTreeMap<Position, (Option<u16>, OutboxEntry)> = BTreeMap::new();
        for (message, _, _) in page.entries {
            let position = position_of(&message);
            if !self.reading.had.contains(position) {
                found.insert(position, (None, self.entry(turn.world, message, 0)));
            }
        }
        let rows = std::mem::take(&mut self.reading.rows);
        let (read, later) = rows.into_iter().partition(|(position, _)| *position <= page.through);
        self.reading.rows = later;
        let read: BTreeMap<Position, (u16, OutboxEntry)> = read;
        found.extend(read.into_iter().map(|(position, (id, entry))| (position, (Some(id), entry))));
        for (position, (id, entry)) in found {
            self.reading.had.add(position);
            let key = Key::of(entry.message.payload());
            if &**entry.message.topic() == WILL_TOPIC {
                turn.world.model.borrow_mut().will_fires(key.number, position.0);
            }
            match id {
                Some(id) => self.outbox.repeat(id, entry),
                None => self.outbox.push(entry),
            }
        }
        self.reading.ends(page.through, page.more);
        if self.reading.is_at_end {
            self.repeat_rows();
        }
    }

    /// `shared`: the number of its group; 0: none.
    pub(super) fn entry(&self, world: &World, message: Arc<Message>, shared: u64) -> OutboxEntry {
        let qos = message.qos().min(self.qos(world));
        let (retain, replay, maybe_sent) = (false, false, false);
        OutboxEntry { message, qos, retain, replay, maybe_sent, shared, identifiers: SmallVec::new() }
    }

    fn progress(&self) -> (Position, Positions) {
        let rows = self.reading.rows.values().map(|(_, entry)| entry);
        let open = open_positions(self.outbox.entries().chain(rows));
        self.reading.had.progress(self.reading.through, open)
    }

    pub(super) fn reserve(&mut self, turn: &Turn<'_>) -> Option<Reserve> {
        let progress = self.progress();
        self.outbox.reserve(turn, progress)
    }

    /// With QoS 2: the client has completed the message.
    pub(super) fn acknowledge(&mut self, world: &World, id: u16) {
        self.outbox.acknowledge(id);
        self.save_us = self.save_us.min(world.micros() + world.random(0..SAVE_AFTER_US));
    }

    pub(super) fn position_of(&mut self, id: u16) -> Option<Option<StoredPosition>> {
        self.outbox.received(id)
    }

    pub(super) fn checkpoint_in_time(&mut self, turn: &Turn<'_>) -> Option<Checkpoint> {
        if turn.world.micros() < self.save_us {
            return None;
        }
        self.save_us = u64::MAX;
        let completed = self.outbox.take_completed();
        Some(self.checkpoint(turn, completed))
    }

    pub(super) fn unsaved(&mut self, world: &World, checkpoint: Checkpoint) {
        self.outbox.take_back(checkpoint.completed);
        self.save_us = self.save_us.min(world.micros() + world.random(0..SAVE_AFTER_US));
    }

    fn checkpoint(&self, turn: &Turn<'_>, completed: Vec<PacketId>) -> Checkpoint {
        let (cursor, acknowledged) = self.progress();
        let streams = self.reading.sources.iter().map(|(_, source)| source.stream).collect();
        let (session, target) = (self.key(turn), target(self.number));
        Checkpoint { session, target, cursor, acknowledged, completed, streams, replayed: Vec::new() }
    }

    /// Returns the last checkpoint, the detach, and the messages of shared subscriptions that others must get.
    pub(super) fn detach(
        mut self,
        turn: &Turn<'_>,
        keep_will: bool,
        leaves: Option<ConnectionId>,
    ) -> (Option<Checkpoint>, DetachWrite, Ended) {
        let saves = self.save_us < u64::MAX && turn.world.one_in(2);
        let completed = self.outbox.take_completed();
        let checkpoint = saves.then(|| self.checkpoint(turn, completed));
        let (session, sources) = (self.key(turn), &self.reading.sources);
        let is_found = |topic: &str| sources.iter().any(|(filter, _)| topic::matches(filter, topic));
        let mut ended = std::mem::take(&mut self.outbox).end();
        let rows = std::mem::take(&mut self.reading.rows).into_values();
        let rows = rows.map(|(id, entry)| (super::core::packet_id(id), InFlight::Published(entry)));
        let mut in_flight: Vec<(PacketId, InFlight)> = ended.in_flight.drain(..).chain(rows).collect();
        for (_, flight) in &mut in_flight {
            if let InFlight::Published(entry) = flight {
                entry.replay |= entry.shared != 0 || !is_found(entry.message.topic());
            }
        }
        let detach = DetachWrite {
            session,
            leaves,
            keep_will: keep_will.into(),
            expiry_s: self.expiry_s,
            now_ms: turn.pod.shared().clock.unix_now_ms(),
            base: self.reading.through,
            in_flight,
            standing: std::mem::take(&mut ended.standing),
            // Members end their sessions only when nothing is on its way.
            begun: Vec::new(),
            unsent: std::mem::take(&mut ended.unsent),
            recent: Vec::new(),
            had: self.reading.had,
            unordered_ids: false,
            received: Vec::new(),
            replayed: Vec::new(),
        };
        (checkpoint, detach, ended)
    }
}

impl Reading {
    fn add(&mut self, filter: String, source: StreamSource) {
        self.sources.push((filter, source));
        self.is_at_end = false;
    }

    pub(super) fn remove(&mut self, filter: &str) {
        self.sources.retain(|(known, _)| known != filter);
        self.version += 1;
    }

    fn ends(&mut self, through: Position, more: bool) {
        self.through = self.had.skip(self.through.max(through));
        self.had.cut(self.through);
        self.is_at_end = !more;
    }
}
