//! Rate limits of tenants: the next PUBLISH of a publisher over its rate waits until the rate has paid for what it sent.
//! Nobody else waits for it (P8). Messages are lost only if they would wait over `BORROWED_MS` when the client connects again, or
//! over `INSIDE_WAIT_MAX_MS` for the API. Packets behind a waiting PUBLISH wait with it.
//!
//! The first PUBLISH of a connection to a broker in debt waits, too: otherwise clients that connect for each message would
//! never wait, and their debt would stop all others. It is charged while it waits, so that publishers take turns.

mod filters;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::BuildHasher;

use millrace_mqtt::{Publish, ReasonCode};

use super::connection::{ConnectRequest, NONE, Paused};
use super::limits;
use super::{ConnectionEnd, Core, READ_BYTES, work};
use crate::broker::Broker;
use crate::clock::Millis;
use crate::connection_id::ConnectionId;
use crate::quota::ClientRates;
use crate::quota::limiter::{Rate, millis, nanos};

/// Largest PUBLISH of a run: its length takes two bytes.
const RUN_PACKET_BYTES_MAX: u32 = 3 + 0x3FFF;
/// Fewest bytes of a PUBLISH besides its topic.
const PUBLISH_BYTES_MIN: usize = 4;
/// Bytes read at once from a publisher with a rate limit: this much input of each waiting publisher is held.
pub(super) const LIMITED_READ_BYTES: usize = 16 * 1024;
/// Longest wait of a PUBLISH of the API, whose caller waits for the answer.
const INSIDE_WAIT_MAX_MS: Millis = 5_000;
/// When a client connects again, its messages on the former connection pass if their turn would come within this time. So a client
/// that connects for each message makes a debt of this time at most.
const BORROWED_MS: Millis = 5_000;
/// How often a publisher that waits looks whether debt of its broker was given back.
const LOOK_MS: Millis = 1_000;
/// Outdated entries, such as those of ended connections, that `waiting` may hold before it is cleaned.
const OUTDATED_MAX: usize = 1_000;

#[derive(Default)]
pub(super) struct PublishRates {
    by_slot: HashMap<u32, PublishRate>,
    /// Waiting publishers: when to look at them, slot and generation.
    waiting: BinaryHeap<Reverse<(Millis, u32, u32)>>,
    /// When the CONNECTs of client ids are paid for, by broker and hash of the client id: the map that is filled, and
    /// the full one before it.
    coming: [HashMap<(u64, u64), u64>; 2],
}

#[derive(Default)]
struct PublishRate {
    generation: u32,
    rates: ClientRates,
    until: Millis,
    look_at: Millis,
    has_published: bool,
    /// Messages and bytes that are charged already, for the first PUBLISH, while that waits.
    charged: Option<(u64, u64)>,
    /// Filters that are charged already, for a SUBSCRIBE or UNSUBSCRIBE that waits, and until when it waits.
    filters: Option<(u64, Millis)>,
    /// The client has another connection, so nothing waits on this one.
    is_replaced: bool,
}

impl PublishRates {
    pub(super) fn next(&self) -> Option<Millis> {
        self.waiting.peek().map(|Reverse((at, ..))| *at)
    }

    pub(super) fn forget(&mut self, slot: u32) {
        self.by_slot.remove(&slot);
    }

    fn of(&mut self, id: ConnectionId) -> &mut PublishRate {
        let limited = self.by_slot.entry(id.slot).or_default();
        if limited.generation != id.generation {
            *limited = PublishRate { generation: id.generation, ..PublishRate::default() };
        }
        limited
    }

    fn wait(&mut self, id: ConnectionId, until: Millis, now: Millis) {
        self.of(id).until = until;
        self.look(id, until, now);
    }

    fn look(&mut self, id: ConnectionId, until: Millis, now: Millis) {
        let look_at = until.min(now + LOOK_MS);
        self.of(id).look_at = look_at;
        if self.waiting.len() > 2 * self.by_slot.len() + OUTDATED_MAX {
            let Self { by_slot, waiting, .. } = self;
            waiting.retain(|Reverse((at, slot, generation))| is_waiting(by_slot, *slot, *generation, *at));
        }
        self.waiting.push(Reverse((look_at, id.slot, id.generation)));
    }
}

fn is_waiting(by_slot: &HashMap<u32, PublishRate>, slot: u32, generation: u32, at: Millis) -> bool {
    by_slot.get(&slot).is_some_and(|limited| limited.generation == generation && limited.look_at == at)
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
        limited.has_published = true;
        let (mut messages, mut bytes) = (messages as u64, bytes as u64);
        if let Some(charged) = limited.charged.take() {
            (messages, bytes) = (messages.saturating_sub(charged.0), bytes.saturating_sub(charged.1));
            if (messages, bytes) == (0, 0) {
                return;
            }
        }
        let quota = &self.sessions[session as usize].broker.quota;
        let (paid_at, limit) = quota.publish(&mut limited.rates, messages, bytes, now);
        if paid_at > now {
            self.pauses.rates.wait(id, millis(paid_at), self.now_ms);
            self.reached(slot, limit);
        }
    }

    /// Whether this PUBLISH passes now; if not, its publisher is paused until its turn, or closed if the API opened it.
    pub(super) fn is_its_turn(&mut self, slot: u32, publish: &Publish<'_>) -> bool {
        let (id, now_ms) = (self.id_of(slot), self.now_ms);
        let connection = &self.connections[slot as usize];
        if connection.session == NONE {
            return true;
        }
        let quota = &self.sessions[connection.session as usize].broker.quota;
        let limited = self.pauses.rates.of(id);
        if limited.is_replaced {
            return true;
        }
        if limited.until <= now_ms {
            let now = nanos(now_ms);
            if limited.has_published || limited.charged.is_some() || quota.paid_at(now) <= now {
                return true;
            }
            let size = publish.topic.len() + publish.properties.as_bytes().len() + publish.payload.len();
            let (paid_at, limit) = quota.publish(&mut limited.rates, 1, size as u64, now);
            limited.charged = Some((1, size as u64));
            let until = millis(paid_at);
            self.pauses.rates.wait(id, until, now_ms);
            self.reached(slot, limit);
            if until > now_ms + INSIDE_WAIT_MAX_MS
                && self.connections[slot as usize]
                    .origin
                    .as_ref()
                    .is_some_and(|origin| origin.is_in_process())
            {
                let what = "the publish rate of the broker is used up: try again later";
                let reason = ReasonCode::MESSAGE_RATE_TOO_HIGH;
                self.say_and_close(slot, reason, what, ConnectionEnd::Error(reason));
                return false;
            }
        } else {
            let until = limited.until;
            self.pauses.rates.look(id, until, now_ms);
        }
        self.connections[slot as usize].paused = Paused::ForRate;
        false
    }

    /// Processes the input that waits for the rate on a connection, because the client has another connection: a PUBLISH, and
    /// perhaps a DISCONNECT behind it.
    pub(super) fn finish_waiting(&mut self, slot: u32) {
        if self.connections[slot as usize].paused != Paused::ForRate {
            return;
        }
        let id = self.id_of(slot);
        self.pauses.rates.of(id).is_replaced = true;
        self.work.begin_share();
        self.read_again(id);
        if self.connection_of(id).is_some_and(|connection| connection.is_reading()) {
            // The usual buffer may be in use for the CONNECT.
            let buffer = std::mem::replace(&mut self.read_buffer, vec![0; READ_BYTES]);
            self.read(slot);
            self.read_buffer = buffer;
        }
    }

    /// Frees the memory of filters, or of a large first PUBLISH, that wait for the rate although their client has closed the
    /// connection. Other messages wait for their turn.
    pub(super) fn stop_waiting_if_closed(&mut self, slot: u32) {
        let connection = &self.connections[slot as usize];
        if connection.paused != Paused::ForRate || !connection.read_closed {
            return;
        }
        let is_large = connection.partial.as_ref().is_some_and(|partial| partial.charge.is_some());
        let id = self.id_of(slot);
        let limited = self.pauses.rates.of(id);
        limited.is_replaced |= is_large && limited.charged.is_some();
        if limited.is_replaced || limited.filters.is_some() {
            self.read_again(id);
        }
    }

    /// Whether a PUBLISH is dropped because its connection ends before its turn.
    pub(super) fn misses_its_turn(&mut self, slot: u32) -> bool {
        let (id, latest) = (self.id_of(slot), self.now_ms + BORROWED_MS);
        let session = self.connections[slot as usize].session;
        let limited = self.pauses.rates.of(id);
        if !limited.is_replaced {
            return false;
        }
        let broker = &self.sessions[session as usize].broker;
        let is_charged = limited.has_published || limited.charged.is_some();
        let until = if is_charged { limited.until } else { millis(broker.quota.paid_at(nanos(self.now_ms))) };
        if until > latest {
            broker.counters[usize::from(self.index)].publish_rate.add(1);
        }
        until > latest
    }

    pub(super) fn give_back_turn(&mut self, slot: u32, session: u32) {
        let id = self.id_of(slot);
        if session == NONE {
            return;
        }
        self.give_back_filters(slot, session);
        if !self.connections[slot as usize].is_limited {
            return;
        }
        if let Some((messages, bytes)) = self.pauses.rates.of(id).charged.take() {
            self.sessions[session as usize].broker.quota.give_back(messages, bytes, nanos(self.now_ms));
        }
    }

    /// Resumes publishers whose rate has paid for what they sent, as many as the turn has work left for.
    pub(super) fn resume_rate_limited(&mut self) {
        let end = self.work.spent().max(work::TURN / 2) + work::TURN / 2;
        while self.work.spent() < end
            && let Some(Reverse((at, slot, generation))) = self.pauses.rates.waiting.peek().copied()
            && at <= self.now_ms
        {
            self.pauses.rates.waiting.pop();
            let id = ConnectionId { core: self.index, slot, generation };
            if is_waiting(&self.pauses.rates.by_slot, slot, generation, at) && !self.waits_on(id) {
                self.resume_rated(id);
            }
        }
    }

    /// Whether a publisher must wait on: when all debt is paid, nobody must.
    fn waits_on(&mut self, id: ConnectionId) -> bool {
        let now_ms = self.now_ms;
        if let Some(waits) = self.waits_on_for_filters(id) {
            return waits;
        }
        let limited = self.pauses.rates.of(id);
        let (rates, until) = (limited.rates, limited.until);
        let session = self.connection_of(id).map_or(NONE, |connection| connection.session);
        let Some(local) = self.sessions.get(session as usize).filter(|_| until > now_ms) else {
            return false;
        };
        let until = until.min(millis(local.broker.quota.all_paid_at(rates, nanos(now_ms))));
        if until > now_ms {
            self.pauses.rates.wait(id, until, now_ms);
        } else {
            self.pauses.rates.of(id).until = until;
        }
        until > now_ms
    }

    fn resume_rated(&mut self, id: ConnectionId) {
        if self.connection_of(id).is_some_and(|connection| connection.paused == Paused::ForRate) {
            self.read_again(id);
        }
    }

    /// Applies the limits of its broker to a client, perhaps other ones than before: they pay for its debts.
    pub(super) fn limits_changed(&mut self, broker: &Broker, slot: u32) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        connection.is_limited = broker.quota.is_limited();
        if let Some(limited) = self.pauses.rates.by_slot.get_mut(&slot) {
            broker.quota.follow(&mut limited.rates, nanos(self.now_ms));
            limited.charged = limited.charged.filter(|_| connection.is_limited);
            limited.filters = limited.filters.filter(|_| broker.quota.limits_filters());
        }
        if connection.paused == Paused::ForRate {
            self.pauses.rates.look(self.id_of(slot), self.now_ms, self.now_ms);
        }
    }

    /// Whether a user connects more often than it may with a client id. Only authenticated clients count, or anybody could
    /// lock others out.
    pub(super) fn comes_too_often(&mut self, request: &ConnectRequest) -> bool {
        let Some(limit) = request.broker.quota.limits().client.connects_per_min else { return false };
        let (now, rate) = (nanos(self.now_ms), Rate::per_minute(limit));
        let hash = self.process.owners.hash_one((
            &*request.broker.name,
            &*request.client_id,
            request.user.as_deref(),
        ));
        let client = (request.broker.id, hash);
        let [coming, former] = &mut self.pauses.rates.coming;
        if coming.len() >= limits::COUNTED_CLIENT_IDS_MAX {
            *former = std::mem::take(coming);
        }
        let paid_at = coming.get(&client).or_else(|| former.get(&client)).copied().unwrap_or_default();
        let after = rate.add(paid_at, 1, now);
        if after > now {
            return true;
        }
        coming.insert(client, after);
        false
    }
}

#[cfg(test)]
mod tests;
