//! Messages with many receivers, handed out over several turns.
//!
//! The order of a publisher's messages must hold for each receiver, also across its connections, so while a fan-out is unfinished,
//! further messages of its client wait behind it on this loop, and the client is not read.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use millrace_layers::Position;
use millrace_mqtt::QoS;
use millrace_router::Target;
use millrace_session::Message;

use super::connection::Paused;
use super::deliver::{Publisher, RunCopies, SharedRun};
use super::limits;
use super::work::Unfinished;
use super::{Core, work};
use crate::connection_id::ConnectionId;
use crate::deliveries::CommittedMessage;
use crate::fair_queue::FairQueue;
use crate::mailbox::Mail;
use crate::metering::Amount;
use crate::routes::Routes;

/// Estimated memory of a fan-out besides its message.
const FANOUT_BYTES: usize = 256;

pub(super) enum Copies {
    /// QoS 0 messages of one publisher to one topic.
    Run {
        bytes: Arc<[u8]>,
        is_v5: bool,
        amount: Amount,
        received_us: u32,
        shared: SharedRun,
    },
    One(Arc<Message>),
    /// A message for shared subscriptions: their groups are its receivers.
    Shared(Arc<Message>),
    Committed(Arc<CommittedMessage>),
    /// The streams of the topic have grown.
    Grown,
}

impl Copies {
    fn size(&self) -> usize {
        FANOUT_BYTES
            + match self {
                Self::Run { bytes, .. } => bytes.len(),
                Self::One(message) | Self::Shared(message) => message.size(),
                Self::Committed(committed) => committed.message.size(),
                Self::Grown => 0,
            }
    }

    fn messages(&self) -> usize {
        if let Self::Run { amount, .. } = self { amount.messages } else { 1 }
    }
}

struct Fanout {
    routes: Arc<Routes>,
    copies: Copies,
    publisher: Publisher,
    /// Index of the first receiver of this loop, or group, without a copy.
    next: usize,
    /// The message has, or will get, a later position than this one in the store; `None`: it is not stored.
    after: Option<Position>,
    number: u64,
}

impl Fanout {
    fn is_over(&self, core: u16) -> bool {
        match self.copies {
            Copies::Shared(_) => self.next >= self.routes.matched.groups.len(),
            _ => self.next >= self.routes.receivers(core).len(),
        }
    }
}

/// The broker, and [`Publisher::client`].
type FanoutKey = (u64, u64);

#[derive(Default)]
struct ClientFanouts {
    waiting: VecDeque<Fanout>,
    /// Its connections that are not read meanwhile.
    paused: Vec<ConnectionId>,
}

#[derive(Default)]
pub(super) struct Fanouts {
    of: HashMap<FanoutKey, ClientFanouts>,
    ready: FairQueue<FanoutKey>,
    /// The brokers and numbers of all unfinished fan-outs.
    numbers: BTreeSet<(u64, u64)>,
    last: u64,
    /// Sessions that become live once their broker has no fan-out with this number or a smaller one, in the order of the numbers.
    to_live: HashMap<u64, VecDeque<(u64, Target)>>,
    /// How many fan-outs have each value of [`Fanout::after`].
    after: BTreeMap<Position, usize>,
    bytes: BrokerBytes,
}

const OWN_BYTES: usize = limits::REMOTE_BYTES_MAX / 8;

/// Bytes that wait, of each broker and of all.
#[derive(Default)]
struct BrokerBytes {
    of: HashMap<u64, usize>,
    all: usize,
}

impl BrokerBytes {
    fn add(&mut self, broker: u64, bytes: usize) {
        self.all += bytes;
        *self.of.entry(broker).or_default() += bytes;
    }

    fn sub(&mut self, broker: u64, bytes: usize) {
        self.all -= bytes;
        if let Entry::Occupied(mut own) = self.of.entry(broker) {
            *own.get_mut() -= bytes;
            if *own.get() == 0 {
                own.remove();
            }
        }
    }

    /// Too many bytes wait, and the broker has a good part of them, or nearly twice as many wait.
    fn is_over(&self, broker: u64) -> bool {
        let own = self.of.get(&broker).copied().unwrap_or(0);
        self.all > limits::REMOTE_BYTES_MAX
            && (own > OWN_BYTES || self.all + own > 2 * limits::REMOTE_BYTES_MAX)
    }
}

impl Fanouts {
    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// A position before those of all unfinished stored messages.
    pub(super) fn oldest(&self) -> Option<Position> {
        self.after.first_key_value().map(|(after, _)| *after)
    }

    pub(super) fn has(&self, broker: u64) -> bool {
        self.oldest_of(broker).is_some()
    }

    fn oldest_of(&self, broker: u64) -> Option<u64> {
        self.numbers.range((broker, 0)..=(broker, u64::MAX)).next().map(|(_, number)| *number)
    }

    /// Lists a session until all present fan-outs of its broker are finished. Returns their largest number, or `None` if there are
    /// none.
    pub(super) fn wait_for_present(&mut self, broker: u64, session: Target) -> Option<u64> {
        if !self.has(broker) {
            return None;
        }
        self.to_live.entry(broker).or_default().push_back((self.last, session));
        Some(self.last)
    }

    fn take_waiting(&mut self, broker: u64) -> Vec<(u64, Target)> {
        let oldest = self.oldest_of(broker).unwrap_or(u64::MAX);
        let Some(waiting) = self.to_live.get_mut(&broker) else { return Vec::new() };
        let end = waiting.partition_point(|(number, _)| *number < oldest);
        let ready = waiting.drain(..end).collect();
        if waiting.is_empty() {
            self.to_live.remove(&broker);
        }
        ready
    }

    pub(super) fn delays(&self, broker: u64, publisher: Publisher) -> bool {
        !self.of.is_empty() && self.of.contains_key(&(broker, publisher.client))
    }

    fn push(&mut self, mut fanout: Fanout) {
        self.last += 1;
        fanout.number = self.last;
        let broker = fanout.routes.broker.id;
        let key = (broker, fanout.publisher.client);
        self.bytes.add(broker, fanout.copies.size());
        if let Some(after) = fanout.after {
            *self.after.entry(after).or_default() += 1;
        }
        self.numbers.insert((broker, fanout.number));
        // An existing key is in `ready`, or its fan-out is being handed out: then `give_back` or `finish` lists the
        // key again.
        let is_new = !self.of.contains_key(&key);
        self.of.entry(key).or_default().waiting.push_back(fanout);
        if is_new {
            self.ready.push(broker, key);
        }
    }

    /// [`Fanouts::give_back`] or [`Fanouts::finish`] must follow.
    fn pop(&mut self) -> Option<(FanoutKey, Fanout)> {
        let (_, key) = self.ready.pop()?;
        let fanout = self.of.get_mut(&key)?.waiting.pop_front()?;
        self.bytes.sub(key.0, fanout.copies.size());
        Some((key, fanout))
    }

    fn give_back(&mut self, key: FanoutKey, fanout: Fanout) {
        self.bytes.add(key.0, fanout.copies.size());
        self.of.entry(key).or_default().waiting.push_front(fanout);
        self.ready.push(key.0, key);
    }

    /// Drops all but the last fan-out of a key, and returns whether there were others.
    fn keep_last(&mut self, key: FanoutKey) -> bool {
        let Some(own) = self.of.get_mut(&key) else { return false };
        let dropped = own.waiting.drain(..own.waiting.len().saturating_sub(1));
        let mut bytes = 0;
        for fanout in dropped {
            bytes += fanout.copies.size();
            self.numbers.remove(&(key.0, fanout.number));
        }
        self.bytes.sub(key.0, bytes);
        bytes > 0
    }

    /// Returns the connections to read again if it was the last fan-out of its client.
    fn finish(&mut self, key: FanoutKey, fanout: &Fanout) -> Vec<ConnectionId> {
        if let Some(after) = fanout.after
            && let Some(count) = self.after.get_mut(&after)
        {
            *count -= 1;
            if *count == 0 {
                self.after.remove(&after);
            }
        }
        self.numbers.remove(&(key.0, fanout.number));
        if self.of.get(&key).is_some_and(|own| !own.waiting.is_empty()) {
            self.ready.push(key.0, key);
            return Vec::new();
        }
        self.of.remove(&key).map(|own| own.paused).unwrap_or_default()
    }
}

impl Core {
    /// Leaves the receivers from `next` on to a later turn.
    pub(super) fn put_off(
        &mut self,
        routes: &Arc<Routes>,
        copies: Copies,
        publisher: Publisher,
        next: usize,
    ) {
        // Other pods' publishers cannot be paused, nor wills. So these receivers, which are in memory, lose the messages.
        if publisher.id.is_none()
            && self.process.is_shared()
            && !matches!(copies, Copies::Shared(_))
            && self.unfinished.fanouts.bytes.is_over(routes.broker.id)
        {
            let left = routes.receivers(self.index).len() - next;
            return self.broker_counters(&routes.broker).dropped_busy.add(copies.messages() * left);
        }
        let is_stored = matches!(&copies, Copies::One(message) if message.qos() > QoS::AtMostOnce);
        let after = is_stored.then_some(self.following.met);
        self.unfinished.fanouts.push(Fanout {
            routes: routes.clone(),
            copies,
            publisher,
            next,
            after,
            number: 0,
        });
        let own = self.unfinished.fanouts.of.get_mut(&(routes.broker.id, publisher.client));
        let Some((id, own)) = publisher.id.zip(own) else { return };
        if !own.paused.contains(&id) {
            own.paused.push(id);
            self.notify_of_fanout(id, true);
        }
    }

    /// The same for a committed message. While too many bytes wait, the broker's sessions read the store instead.
    pub(super) fn put_off_committed(&mut self, routes: &Arc<Routes>, copies: Copies, next: usize) {
        let routes = routes.clone();
        let key = (routes.broker.id, Publisher::NOBODY.client);
        let commits = &mut self.unfinished.commits;
        commits.push(Fanout { routes, copies, publisher: Publisher::NOBODY, next, after: None, number: 0 });
        if commits.bytes.all > limits::REMOTE_BYTES_MAX && commits.keep_last(key) {
            self.look_around(Some(key.0));
        }
    }

    /// Continues unfinished fan-outs, one slice for each broker in turn.
    pub(super) fn fan_out(&mut self) {
        self.hand_out(|unfinished| &mut unfinished.fanouts);
        self.hand_out(|unfinished| &mut unfinished.commits);
    }

    fn hand_out(&mut self, queue: fn(&mut Unfinished) -> &mut Fanouts) {
        let end = self.work.spent().max(work::TURN / 2) + work::TURN / 2;
        while self.work.spent() < end
            && let Some((key, mut fanout)) = queue(&mut self.unfinished).pop()
        {
            let began = self.begin_work(|_| key.0);
            fanout.next = self.deliver_slice(&mut fanout);
            self.flush_overfull();
            self.end_work(began);
            if !fanout.is_over(self.index) {
                queue(&mut self.unfinished).give_back(key, fanout);
            } else {
                for id in queue(&mut self.unfinished).finish(key, &fanout) {
                    self.notify_of_fanout(id, false);
                }
                for (number, session) in queue(&mut self.unfinished).take_waiting(key.0) {
                    self.put_off_mail(Mail::FannedOut(session, number));
                }
            }
        }
    }

    fn deliver_slice(&mut self, fanout: &mut Fanout) -> usize {
        let Fanout { routes, copies, publisher, next, .. } = fanout;
        match copies {
            Copies::Run { bytes, is_v5, amount, received_us, shared } => {
                let run = RunCopies { bytes, is_v5: *is_v5, amount: *amount, shared };
                let next = self.deliver_run_from(routes, run, *publisher, *next);
                if next == routes.receivers(self.index).len() {
                    self.note_delivery(&routes.broker, *received_us);
                }
                next
            }
            Copies::One(message) => self.deliver_from(routes, message, *publisher, *next),
            Copies::Shared(message) => self.share_from(routes, message, publisher.id, *next),
            Copies::Committed(committed) => self.deliver_committed(committed, *next),
            Copies::Grown => self.grow_from(routes, *next),
        }
    }

    fn notify_of_fanout(&mut self, id: ConnectionId, has_begun: bool) {
        if id.core != self.index {
            return self.post(id.core, Mail::Fanout { id, has_begun });
        }
        self.note_fanout(id, has_begun);
    }

    /// A loop has an unfinished fan-out of this connection, or has finished it. Each loop announces both once, so a count of the
    /// loops is enough.
    pub(super) fn note_fanout(&mut self, id: ConnectionId, has_begun: bool) {
        let loops = self.pauses.fanouts.entry(id).or_default();
        *loops = if has_begun { *loops + 1 } else { loops.saturating_sub(1) };
        let is_over = *loops == 0;
        if is_over {
            self.pauses.fanouts.remove(&id);
        }
        match self.connection_of(id) {
            Some(connection) if !is_over && connection.paused == Paused::No => {
                connection.paused = Paused::ForFanout;
            }
            Some(connection) if is_over && connection.paused == Paused::ForFanout => self.read_again(id),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
