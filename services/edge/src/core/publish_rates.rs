//! Rate limits of tenants: a publisher over its rate is not read until its rate has paid for what it sent. None of
//! its messages is lost, and nobody else waits for it (P8).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::BuildHasher;

use millrace_mqtt::Publish;

use super::Core;
use super::connection::{NONE, Paused, Request};
use super::limits;
use crate::broker::Broker;
use crate::clock::Millis;
use crate::connection_id::ConnectionId;
use crate::quota::limiter::{Rate, millis, nanos};
use crate::quota::{ClientRates, Limit};

const RUN_PACKET_BYTES_MAX: u32 = 3 + 0x3FFF;
/// Fewest bytes of a PUBLISH besides its topic.
const PUBLISH_BYTES_MIN: usize = 4;
/// Bytes read at once from a publisher with a rate limit: this much input of each waiting publisher is held.
pub(super) const LIMITED_READ_BYTES: usize = 16 * 1024;
/// Entries of ended connections that `waiting` may hold before it is cleaned.
const LEFT_MAX: usize = 1_000;

#[derive(Default)]
pub(super) struct PublishRates {
    /// By slot.
    of: HashMap<u32, PublishRate>,
    /// Waiting publishers: until when, slot and generation.
    waiting: BinaryHeap<Reverse<(Millis, u32, u32)>>,
    /// When the CONNECTs of client ids are paid for, by broker and hash of the client id.
    coming: HashMap<(u64, u64), u64>,
}

#[derive(Default)]
struct PublishRate {
    generation: u32,
    rates: ClientRates,
    until: Millis,
}

impl PublishRates {
    /// When the next publisher may be read again.
    pub(super) fn next(&self) -> Option<Millis> {
        self.waiting.peek().map(|Reverse((at, ..))| *at)
    }

    pub(super) fn forget(&mut self, slot: u32) {
        self.of.remove(&slot);
    }

    fn of(&mut self, id: ConnectionId) -> &mut PublishRate {
        let limited = self.of.entry(id.slot).or_default();
        if limited.generation != id.generation {
            *limited = PublishRate { generation: id.generation, ..PublishRate::default() };
        }
        limited
    }

    fn wait(&mut self, id: ConnectionId, until: Millis) {
        self.of(id).until = until;
        if self.waiting.len() > 2 * self.of.len() + LEFT_MAX {
            let Self { of, waiting, .. } = self;
            waiting.retain(|Reverse((at, slot, generation))| is_waiting(of, *slot, *generation, *at));
        }
        self.waiting.push(Reverse((until, id.slot, id.generation)));
    }
}

fn is_waiting(of: &HashMap<u32, PublishRate>, slot: u32, generation: u32, until: Millis) -> bool {
    of.get(&slot).is_some_and(|limited| limited.generation == generation && limited.until == until)
}

impl Core {
    pub(super) fn packet_size_max(&self, slot: u32) -> u32 {
        let most = self.process.limits.packet_size_max;
        let connection = &self.connections[slot as usize];
        if connection.session == NONE {
            return most.min(self.process.limits.connect_size_max);
        }
        if !connection.is_limited {
            return most;
        }
        self.sessions[connection.session as usize].broker.quota.packet_size_max(most)
    }

    /// Whether clients that may send packets of this size may send any packet of a run.
    pub(super) fn fits_runs(packet_size_max: u32) -> bool {
        packet_size_max >= RUN_PACKET_BYTES_MAX
    }

    /// Where a run that begins with the packet at `at` must end, so that the rate pays for all of it.
    pub(super) fn run_end(&mut self, slot: u32, publish: &Publish<'_>, at: usize, size: usize) -> usize {
        let (id, now) = (self.id_of(slot), nanos(self.now_ms));
        let session = self.connections[slot as usize].session;
        let quota = &self.sessions[session as usize].broker.quota;
        let (messages, bytes) = quota.room(self.pauses.rates.of(id).rates, now);
        let least = (publish.topic.len() + PUBLISH_BYTES_MIN) as u64;
        let bytes = usize::try_from(messages.saturating_mul(least).min(bytes)).unwrap_or(usize::MAX);
        at.saturating_add(bytes.max(size))
    }

    pub(super) fn charge(&mut self, slot: u32, messages: usize, bytes: usize) {
        let (id, now) = (self.id_of(slot), nanos(self.now_ms));
        let session = self.connections[slot as usize].session;
        let limited = self.pauses.rates.of(id);
        let quota = &self.sessions[session as usize].broker.quota;
        let (paid_at, limit) = quota.publish(&mut limited.rates, messages as u64, bytes as u64, now);
        if paid_at > now {
            self.pauses.rates.wait(id, millis(paid_at));
            self.pause_for_rate(slot, limit);
        }
    }

    fn pause_for_rate(&mut self, slot: u32, limit: Limit) {
        let id = self.id_of(slot);
        let was = std::mem::replace(&mut self.connections[slot as usize].paused, Paused::ForRate);
        if matches!(was, Paused::ForMailbox | Paused::ForReceiver) {
            // The mailbox or the receiver pauses it again if necessary.
            self.pauses.paused.remove(id);
        }
        self.reached(slot, limit);
    }

    pub(super) fn resume_rate_limited(&mut self) {
        while let Some(Reverse((at, slot, generation))) = self.pauses.rates.waiting.peek().copied()
            && at <= self.now_ms
        {
            self.pauses.rates.waiting.pop();
            if is_waiting(&self.pauses.rates.of, slot, generation, at) {
                self.resume_rated(ConnectionId { core: self.index, slot, generation });
            }
        }
    }

    fn resume_rated(&mut self, id: ConnectionId) {
        if self.connection_of(id).is_some_and(|connection| connection.paused == Paused::ForRate) {
            self.go_on(id);
        }
    }

    /// Applies new limits to a broker's clients at once: their debts are cancelled.
    pub(super) fn limits_changed(&mut self, broker: &Broker, slots: &[u32]) {
        let is_limited = broker.quota.is_limited();
        for slot in slots {
            // A resumed client may end other connections.
            let Some(connection) = self.connections.get_mut(*slot as usize) else { continue };
            connection.is_limited = is_limited;
            self.pauses.rates.forget(*slot);
            self.resume_rated(self.id_of(*slot));
        }
    }

    /// Whether a client id connects more often than it may. Only authenticated clients count, or anybody could lock
    /// others out.
    pub(super) fn comes_too_often(&mut self, request: &Request) -> bool {
        let Some(limit) = request.broker.quota.limits().client.connects_per_min else { return false };
        let (now, rate) = (nanos(self.now_ms), Rate::per_minute(limit));
        if self.pauses.rates.coming.len() >= limits::COUNTED_CLIENT_IDS_MAX {
            self.pauses.rates.coming.retain(|_, paid_at| *paid_at > now);
        }
        if self.pauses.rates.coming.len() >= limits::COUNTED_CLIENT_IDS_MAX {
            self.pauses.rates.coming.clear();
        }
        let hash = self.process.owners.hash_one((&*request.broker.name, &*request.client_id));
        let paid_at = self.pauses.rates.coming.entry((request.broker.id, hash)).or_default();
        let after = rate.add(*paid_at, 1, now);
        if after > now {
            return true;
        }
        *paid_at = after;
        false
    }
}
