//! The messages of a connected session on their way to its client, as `services/session/src/outbox.rs` has them.

use std::collections::{BTreeSet, VecDeque};

use millrace_layers::Position;
use millrace_mqtt::{PacketId, QoS};
use millrace_session::{InFlight, OutboxEntry, StoredPosition};

use super::core::{Turn, packet_id};
use super::model::Key;
use super::network::ToClient;
use super::world::World;
use crate::encoding::inflight;
use crate::jobs::{Reserve, StreamKey};
use crate::store::bugs::{WriterBug, has_bug};
use crate::streams::StoredGroup;

/// Messages that are on their way to a client.
const WINDOW: usize = 10;
const ID_MAX: u16 = 60_000;

struct Waiting {
    entry: OutboxEntry,
    id: Option<u16>,
    /// The store has the packet id.
    is_confirmed: bool,
    /// An earlier connection may have sent it.
    is_repeat: bool,
}

#[derive(Default)]
pub(super) struct Outbox {
    waiting: VecDeque<Waiting>,
    /// In order of sending.
    flights: Vec<(u16, InFlight)>,
    last_id: u16,
    /// Packet ids with a row in the store.
    stored: BTreeSet<u16>,
    completed: Vec<PacketId>,
    /// Messages of shared subscriptions that no other member needs.
    settled: Vec<(u64, StoredPosition)>,
}

impl Outbox {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.flights.is_empty()
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn has_row(&mut self, id: u16) {
        self.last_id = self.last_id.max(id);
        self.stored.insert(id);
    }

    pub(super) fn push(&mut self, entry: OutboxEntry) {
        self.waiting.push_back(Waiting { entry, id: None, is_confirmed: false, is_repeat: false });
    }

    /// A message in flight from an earlier connection.
    pub(super) fn repeat(&mut self, id: u16, entry: OutboxEntry) {
        self.waiting.push_back(Waiting { entry, id: Some(id), is_confirmed: true, is_repeat: true });
    }

    /// A message that the client has, whose PUBREL it may not have.
    pub(super) fn release_again(&mut self, id: u16, position: Option<StoredPosition>) {
        self.flights.push((id, InFlight::Released(position)));
    }

    /// Gives packet ids to the next messages with QoS 2, to be stored before the messages are sent.
    pub(super) fn reserve(
        &mut self,
        turn: &Turn<'_>,
        progress: (Position, millrace_layers::Positions),
    ) -> Option<Reserve> {
        let room = WINDOW.saturating_sub(self.flights.len());
        let (mut rows, mut taken) = (Vec::new(), Vec::new());
        for at in 0..room.min(self.waiting.len()) {
            if self.waiting[at].entry.qos != QoS::ExactlyOnce || self.waiting[at].id.is_some() {
                continue;
            }
            let id = self.free_id();
            self.waiting[at].id = Some(id);
            self.completed.retain(|completed| completed.get() != id);
            self.stored.insert(id);
            let mut entry = self.waiting[at].entry.clone();
            if let Some(stream) = StoredGroup::stream_of(entry.shared) {
                let position = entry.message.position().expect("a message of a stream has its position");
                taken.push(((turn.broker.id, stream), Position(position)));
                entry.replay = true;
            }
            let row = inflight::encode(&InFlight::Published(entry), false, &turn.pod.shared().clock);
            rows.push((packet_id(id), row));
        }
        let (cursor, acknowledged) = progress;
        (!rows.is_empty()).then_some(Reserve { rows, cursor, acknowledged, taken })
    }

    fn free_id(&mut self) -> u16 {
        let is_used = |local: &Self, id: u16| {
            local.flights.iter().any(|(known, _)| *known == id)
                || local.waiting.iter().any(|waiting| waiting.id == Some(id))
        };
        loop {
            self.last_id = self.last_id % ID_MAX + 1;
            // The row of an earlier message may still be there.
            if !is_used(self, self.last_id) && !self.stored.contains(&self.last_id) {
                return self.last_id;
            }
        }
    }

    pub(super) fn confirm(&mut self, id: u16) {
        self.waiting
            .iter_mut()
            .filter(|waiting| waiting.id == Some(id))
            .for_each(|waiting| waiting.is_confirmed = true);
    }

    pub(super) fn pump(&mut self, world: &World, number: u32) {
        while self.flights.len() < WINDOW {
            let is_ready =
                |waiting: &mut Waiting| waiting.entry.qos < QoS::ExactlyOnce || waiting.is_confirmed;
            let Some(Waiting { entry, id, .. }) = self.waiting.pop_front_if(is_ready) else { return };
            let id = id.unwrap_or_else(|| self.free_id());
            let (qos, key) = (entry.qos as u8, Key::of(entry.message.payload()));
            self.flights.push((id, InFlight::Published(entry)));
            world.send_down(number, ToClient::Publish { id, qos, key });
        }
    }

    /// The client has the message, or has completed it with QoS 2.
    pub(super) fn acknowledge(&mut self, id: u16) {
        let at = self.flights.iter().position(|(known, _)| *known == id);
        if let Some((_, InFlight::Published(entry))) = at.map(|at| self.flights.remove(at)) {
            self.settle(&entry);
        }
        if self.stored.remove(&id) {
            self.completed.push(packet_id(id));
        }
    }

    /// PUBREC has come: returns the position of the message; `None`: it is released already.
    pub(super) fn received(&mut self, id: u16) -> Option<Option<StoredPosition>> {
        let (_, flight) = self.flights.iter().find(|(known, _)| *known == id)?;
        let InFlight::Published(entry) = flight else { return None };
        let (position, entry) = (entry.message.position(), entry.clone());
        self.settle(&entry);
        Some(position)
    }

    pub(super) fn release(&mut self, id: u16, position: Option<StoredPosition>) {
        if let Some((_, flight)) = self.flights.iter_mut().find(|(known, _)| *known == id) {
            *flight = InFlight::Released(position);
        }
    }

    fn settle(&mut self, entry: &OutboxEntry) {
        if let Some(position) = entry.message.position().filter(|_| entry.shared != 0) {
            self.settled.push((entry.shared, position));
        }
    }

    pub(super) fn take_settled(&mut self, broker: u64) -> Vec<(StreamKey, Position)> {
        let settled = std::mem::take(&mut self.settled).into_iter();
        settled
            .filter_map(|(group, position)| {
                Some(((broker, StoredGroup::stream_of(group)?), Position(position)))
            })
            .collect()
    }

    pub(super) fn take_completed(&mut self) -> Vec<PacketId> {
        std::mem::take(&mut self.completed)
    }

    /// A checkpoint with these is not stored. An id that is used again has a new row.
    pub(super) fn take_back(&mut self, completed: Vec<PacketId>) {
        self.completed.extend(completed.into_iter().filter(|id| !self.stored.contains(&id.get())));
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &OutboxEntry> {
        let sent = self.flights.iter().filter_map(|(_, flight)| match flight {
            InFlight::Published(entry) | InFlight::Unsent(entry) => Some(entry),
            InFlight::Released(_) => None,
        });
        sent.chain(self.waiting.iter().map(|waiting| &waiting.entry))
    }

    /// The session ends: its rows in flight, the messages that it never sent, and those that other members must get.
    pub(super) fn end(mut self) -> Ended {
        let (mut in_flight, mut unsent, mut left, mut begun) = <(Vec<_>, Vec<_>, Vec<_>, Vec<_>)>::default();
        let mut standing = BTreeSet::new();
        let repeats: Vec<Waiting> = {
            let (repeats, others): (Vec<_>, Vec<_>) =
                std::mem::take(&mut self.waiting).into_iter().partition(|waiting| waiting.is_repeat);
            for Waiting { entry, id, .. } in others {
                match id {
                    _ if entry.shared == 0 => unsent.push(entry),
                    Some(id) if !has_bug(WriterBug::ReassignsBegun) => {
                        standing.insert(id);
                        begun.push(entry);
                    }
                    _ => left.push(entry),
                }
            }
            repeats
        };
        let repeats =
            repeats.into_iter().filter_map(|repeat| Some((repeat.id?, InFlight::Published(repeat.entry))));
        for (id, flight) in std::mem::take(&mut self.flights).into_iter().chain(repeats) {
            match flight {
                InFlight::Published(entry) if entry.shared != 0 && entry.qos < QoS::ExactlyOnce => {
                    left.push(entry);
                }
                InFlight::Published(entry) => {
                    let is_whole =
                        entry.shared != 0 || entry.message.is_decided() && entry.message.position().is_none();
                    if entry.qos == QoS::ExactlyOnce && is_whole && self.stored.contains(&id) {
                        standing.insert(id);
                    }
                    self.settle(&entry);
                    in_flight.push((packet_id(id), InFlight::Published(entry)));
                }
                other => in_flight.push((packet_id(id), other)),
            }
        }
        Ended { in_flight, standing: standing.into_iter().collect(), unsent, left, begun, outbox: self }
    }
}

pub(super) struct Ended {
    pub(super) in_flight: Vec<(PacketId, InFlight)>,
    pub(super) standing: Vec<u16>,
    pub(super) unsent: Vec<OutboxEntry>,
    /// For other members of their groups.
    pub(super) left: Vec<OutboxEntry>,
    /// The session has these if the store has their packet ids; otherwise they go back.
    pub(super) begun: Vec<OutboxEntry>,
    /// Only what is settled is left in it.
    pub(super) outbox: Outbox,
}
