//! Retained messages in memory: their limits, and the end of those whose expiry interval has passed.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, OnceLock, PoisonError};

use millrace_mqtt::topic::levels;
use millrace_router::{Snapshot, TopicTree};
use millrace_session::{Message, StoredPosition};

use super::removals::Removals;
use super::reservation::ReservedTopics;
use super::{Broker, Brokers};
use crate::clock::Millis;
use crate::limits::{self, EdgeLimits};
use crate::quota::Limit;

/// Estimated memory of a node in the tree of retained messages; each topic level has one.
const NODE_BYTES: usize = 100;

/// [`TopicTree::insert`], or [`TopicTree::restore`] for SUBSCRIBEs that have not been answered since the message was replaced.
type PutRetained = fn(&TopicTree<Arc<Message>>, &str, Arc<Message>) -> Option<Arc<Message>>;

#[derive(Default)]
pub(super) struct RetainedGate {
    /// Topics of the messages that expire, the earliest first.
    expiring: BTreeSet<(Millis, Arc<str>)>,
    /// Room for messages that wait for their commit, where several pods share the store.
    pub(super) reserved: ReservedTopics,
    removals: Removals,
}

pub(crate) struct RetainedMemory {
    bytes: AtomicU64,
    /// The sum of all brokers; set by [`Brokers::count_retained_of`].
    of_all: OnceLock<Arc<AtomicU64>>,
    /// When the first message expires; [`Millis::MAX`]: none does.
    expires_at: AtomicU64,
    /// Some retained messages are in the store only, because memory had no room for them.
    pub(crate) is_incomplete: AtomicBool,
}

impl Default for RetainedMemory {
    fn default() -> Self {
        Self {
            bytes: AtomicU64::new(0),
            of_all: OnceLock::new(),
            expires_at: AtomicU64::new(Millis::MAX),
            is_incomplete: AtomicBool::new(false),
        }
    }
}

impl Drop for RetainedMemory {
    fn drop(&mut self) {
        if let Some(all) = self.of_all.get() {
            all.fetch_sub(*self.bytes.get_mut(), Ordering::Relaxed);
        }
    }
}

pub(crate) fn retained_size(message: &Message) -> u64 {
    (size_of::<Message>() + message.size() + levels(message.topic().as_bytes()) * NODE_BYTES) as u64
}

impl Brokers {
    /// Whether the retained messages of all brokers have room for `more` bytes of this one. A quarter stays free for
    /// others.
    pub(crate) fn may_retain(&self, broker: &Broker, more: u64) -> bool {
        let fits = |bytes: u64, max: u64| bytes.saturating_add(more) <= max;
        fits(self.retained_bytes.load(Ordering::Relaxed), self.retained_bytes_max)
            && fits(broker.retained_bytes(), self.retained_bytes_max / 4 * 3)
    }

    /// From now on the broker's retained messages count in the sum of all.
    pub(crate) fn count_retained_of(&self, broker: &Broker) {
        let before = broker.retained_bytes();
        if broker.retained_memory.of_all.set(self.retained_bytes.clone()).is_ok() {
            self.retained_bytes.fetch_add(before, Ordering::Relaxed);
        }
    }

    /// The limit that forbids the broker to retain the message. `is_memory_short`: the retained messages must not grow.
    /// Where a limit is reached, expired messages are removed from memory first, and their topics returned: the store
    /// must remove them, too.
    pub(crate) fn limit_of_retaining(
        &self,
        broker: &Broker,
        message: &Message,
        limits: &EdgeLimits,
        (is_memory_short, now): (bool, Millis),
    ) -> (Option<Limit>, Vec<Arc<str>>) {
        let reached = || self.reached_by_retaining(broker, message, limits, is_memory_short);
        let Some(limit) = reached() else { return (None, Vec::new()) };
        let expired = broker.expire_retained(now, limits::EXPIRED_AT_ONCE);
        (if expired.is_empty() { Some(limit) } else { reached() }, expired)
    }

    fn reached_by_retaining(
        &self,
        broker: &Broker,
        message: &Message,
        limits: &EdgeLimits,
        is_memory_short: bool,
    ) -> Option<Limit> {
        if message.payload().is_empty() {
            return None;
        }
        let limit = broker.quota.retained_max(limits.retained_messages_max);
        let room = broker.retained_room(message.topic());
        let has_room = room.is_some() || broker.has_room_for_topic(limit);
        let (before, after) = (room.unwrap_or(0), retained_size(message));
        let grows = after > before;
        let bytes = (broker.retained_bytes() + after).saturating_sub(before);
        match () {
            () if !has_room => Some(Limit::BrokerRetained),
            () if grows && is_memory_short => Some(Limit::Memory),
            () if grows && !self.may_retain(broker, after - before) => Some(Limit::Retained),
            () => (bytes > limits.retained_bytes_max).then_some(Limit::BrokerRetainedBytes),
        }
    }
}

impl Broker {
    /// Makes a message its topic's retained one, or removes that. Returns the subscriptions of that moment: they get the message now,
    /// and later subscriptions get it as a retained one (P6).
    pub(crate) fn retain(&self, message: &Arc<Message>) -> Arc<Snapshot> {
        let mut gate = self.retained_gate();
        self.replace_retained(&mut gate, message, TopicTree::insert);
        self.router.snapshot()
    }

    /// As [`Broker::retain`], with several pods: the message was committed at `position`. Commits of different pods become known in
    /// any order, so the topic keeps what was committed later.
    pub(crate) fn retain_at(&self, message: &Arc<Message>, position: StoredPosition) -> Arc<Snapshot> {
        if message.payload().is_empty() {
            self.clear_at(message.topic(), position);
            return self.router.snapshot();
        }
        let mut gate = self.retained_gate();
        if !self.has_changed_after(&gate, message.topic(), position) {
            self.replace_retained(&mut gate, message, TopicTree::insert);
            gate.removals.forget(message.topic());
        }
        self.router.snapshot()
    }

    fn replace_retained(&self, gate: &mut RetainedGate, message: &Arc<Message>, put: PutRetained) {
        if message.payload().is_empty() {
            //= [MQTT-3.3.1-6] [MQTT-3.3.1-7] v5
            //= [MQTT-3.3.1-10] [MQTT-3.3.1-11] v3.1.1
            self.remove_from_retained(gate, message.topic());
        } else {
            self.put_retained(gate, message, put);
        }
        self.note_expiry(gate);
    }

    fn has_changed_after(&self, gate: &RetainedGate, topic: &str, position: StoredPosition) -> bool {
        self.retained.get(topic).is_some_and(|present| present.is_after(position))
            || gate.removals.is_after(topic, position)
    }

    /// Undoes [`Broker::retain`] unless the topic has changed since; `former` was its message before, or removed it.
    pub(crate) fn take_back(&self, message: &Arc<Message>, former: Option<Arc<Message>>) {
        let mut gate = self.retained_gate();
        let is_unchanged = match self.retained.get(message.topic()) {
            Some(present) => Arc::ptr_eq(&present, message),
            None => message.payload().is_empty(),
        };
        // If memory had no room for all messages, the removal may have removed none from it.
        let may_lack_room =
            message.payload().is_empty() && self.retained_memory.is_incomplete.load(Ordering::Relaxed);
        match former {
            _ if !is_unchanged || may_lack_room => {}
            Some(former) => self.replace_retained(&mut gate, &former, TopicTree::restore),
            None => {
                self.remove_from_retained(&mut gate, message.topic());
                self.note_expiry(&gate);
            }
        }
    }

    /// Retains a committed message again if a later message had replaced it in memory and was then taken back.
    pub(crate) fn retain_again(&self, message: &Arc<Message>) {
        let mut gate = self.retained_gate();
        let stays = |present: Arc<Message>| match message.position() {
            _ if Arc::ptr_eq(&present, message) => true,
            Some(position) => present.is_after(position),
            // A later message waits for its commit.
            None => !present.is_decided(),
        };
        if !self.retained.get(message.topic()).is_some_and(stays) {
            self.replace_retained(&mut gate, message, TopicTree::restore);
        }
    }

    pub(crate) fn remove_retained(&self, topic: &str) -> bool {
        let mut gate = self.retained_gate();
        let was_there = self.remove_from_retained(&mut gate, topic);
        self.note_expiry(&gate);
        was_there
    }

    /// As [`Broker::remove_retained`], with several pods: the removal was committed at `position`. A message behind it stays.
    pub(crate) fn clear_at(&self, topic: &str, position: StoredPosition) {
        let mut gate = self.retained_gate();
        if !self.has_changed_after(&gate, topic, position) {
            self.remove_from_retained(&mut gate, topic);
            self.note_expiry(&gate);
            gate.removals.note(topic, position);
        }
    }

    pub(crate) fn has_expired(&self, now: Millis) -> bool {
        now > self.retained_memory.expires_at.load(Ordering::Relaxed)
    }

    /// Removes up to `most` messages that have expired, and returns their topics.
    pub(crate) fn expire_retained(&self, now: Millis, most: usize) -> Vec<Arc<str>> {
        let mut expired = Vec::new();
        if !self.has_expired(now) {
            return expired;
        }
        let mut gate = self.retained_gate();
        while expired.len() < most
            && let Some((at, topic)) = gate.expiring.first().cloned()
            && now > at
        {
            gate.expiring.pop_first();
            self.remove_from_retained(&mut gate, &topic);
            expired.push(topic);
        }
        self.note_expiry(&gate);
        expired
    }

    fn put_retained(&self, gate: &mut RetainedGate, message: &Arc<Message>, put: PutRetained) {
        self.count_retained(retained_size(message), 0);
        //= [MQTT-3.3.1-5] v5 v3.1.1
        if let Some(old) = put(&self.retained, message.topic(), message.clone()) {
            self.forget_retained(gate, &old);
        }
        self.recount_reserved(gate, message.topic());
        if let Some(at) = message.expires_at_ms() {
            gate.expiring.insert((at, message.topic().clone()));
        }
    }

    fn remove_from_retained(&self, gate: &mut RetainedGate, topic: &str) -> bool {
        let old = self.retained.remove(topic);
        if let Some(old) = &old {
            self.forget_retained(gate, old);
            self.recount_reserved(gate, topic);
        }
        old.is_some()
    }

    fn forget_retained(&self, gate: &mut RetainedGate, old: &Message) {
        self.count_retained(0, retained_size(old));
        if let Some(at) = old.expires_at_ms() {
            gate.expiring.remove(&(at, old.topic().clone()));
        }
    }

    fn note_expiry(&self, gate: &RetainedGate) {
        let first = gate.expiring.first().map_or(Millis::MAX, |(at, _)| *at);
        self.retained_memory.expires_at.store(first, Ordering::Relaxed);
    }

    pub(super) fn count_retained(&self, added: u64, removed: u64) {
        let change = added.wrapping_sub(removed);
        self.retained_memory.bytes.fetch_add(change, Ordering::Relaxed);
        if let Some(all) = self.retained_memory.of_all.get() {
            all.fetch_add(change, Ordering::Relaxed);
        }
    }

    pub(crate) fn retained_bytes(&self) -> u64 {
        self.retained_memory.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn retained_gate(&self) -> MutexGuard<'_, RetainedGate> {
        self.retained_gate.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use millrace_mqtt::{Properties, Property, QoS};
    use millrace_router::Walk;

    use super::*;
    use crate::home::Loads;

    fn message(topic: &str, expiry_s: Option<u32>, bytes: usize) -> Arc<Message> {
        let mut properties = Vec::new();
        expiry_s.into_iter().for_each(|s| Property::MessageExpiryInterval(s).encode(&mut properties));
        let (properties, payload) = (Properties::from_validated(&properties), vec![b'x'; bytes]);
        Message::new(topic.into(), QoS::AtLeastOnce, true, properties, &payload, 0).into()
    }

    #[test]
    fn expired_messages_give_their_room_back_when_a_limit_is_reached() {
        let brokers = Brokers::new(u64::MAX, u64::MAX, Loads::new(1, 0));
        let broker = Arc::new(Broker::new(1, "b", 1));
        brokers.insert(&broker);
        let most = limits::EXPIRED_AT_ONCE + 1;
        for number in 0..most {
            drop(broker.retain(&message(&format!("old/{number}"), Some(10), 1)));
        }
        let (new, full) = (message("new", None, 1), broker.retained_bytes());
        let by_count =
            EdgeLimits { retained_messages_max: u32::try_from(most).unwrap(), ..EdgeLimits::default() };
        let by_bytes = EdgeLimits { retained_bytes_max: full, ..EdgeLimits::default() };
        let reached = |limits, now| brokers.limit_of_retaining(&broker, &new, limits, (false, now));
        assert_eq!(reached(&by_count, 10_000), (Some(Limit::BrokerRetained), Vec::new()));
        assert_eq!(reached(&by_bytes, 10_000), (Some(Limit::BrokerRetainedBytes), Vec::new()));
        let (limit, expired) = reached(&by_bytes, 10_001);
        assert_eq!((limit, expired.len(), broker.retained.len()), (None, most - 1, 1), "the work is bounded");
        assert!(full > broker.retained_bytes());
        assert_eq!(broker.expire_retained(10_001, 10).len(), 1);
        let all = brokers.retained_bytes.load(Ordering::Relaxed);
        assert_eq!((broker.retained_bytes(), all, broker.retained.len()), (0, 0, 0));
    }

    #[test]
    fn a_message_that_was_replaced_or_removed_does_not_expire() {
        let broker = Broker::new(1, "b", 1);
        for (topic, expiry_s) in [("a", 1), ("b", 2), ("c", 3)] {
            drop(broker.retain(&message(topic, Some(expiry_s), 1)));
        }
        drop(broker.retain(&message("a", None, 1)));
        drop(broker.retain(&message("c", Some(3), 1)));
        assert!(broker.remove_retained("b"));
        assert_eq!(broker.expire_retained(3_000, 10), Vec::<Arc<str>>::new());
        assert_eq!(broker.expire_retained(3_001, 10), ["c".into()]);
        assert_eq!((broker.expire_retained(9_000, 10).len(), broker.retained.len()), (0, 1));
        assert!(broker.retained_gate().expiring.is_empty());
    }

    #[test]
    fn a_subscribe_that_waits_gets_a_message_that_comes_back_meanwhile() {
        let broker = Broker::new(1, "b", 1);
        let found = |before: u64| {
            let mut walk = Walk::new(broker.retained.snapshot(), "#");
            walk.limit(before);
            walk.map(|message| message.payload().len()).collect::<Vec<_>>()
        };
        let (stored, refused) = (message("t", None, 1), [message("t", None, 2), message("t", None, 0)]);
        drop(broker.retain(&stored));
        for refused in refused {
            let before = broker.retained.snapshot().insertions();
            drop(broker.retain(&refused));
            let during = broker.retained.snapshot().insertions();
            broker.take_back(&refused, Some(message("t", None, 1)));
            assert_eq!((found(before), found(during)), (vec![1], vec![1]));
        }
        drop(broker.retain(&message("t", None, 3)));
        broker.retain_again(&stored);
        assert_eq!(found(u64::MAX), [3], "a later message waits for its commit");
    }

    #[test]
    fn what_another_pod_wrote_earlier_and_comes_late_leaves_a_newer_message() {
        let broker = Broker::new(1, "b", 1);
        let payload = |broker: &Broker| broker.retained.get("t").map(|message| message.payload().to_vec());
        let at = |position: u8, bytes: usize| {
            let message = message("t", None, bytes);
            message.set_position(Some([position; 12]));
            message
        };
        let retain = |position, bytes| drop(broker.retain_at(&at(position, bytes), [position; 12]));
        retain(5, 5);
        broker.clear_at("t", [4; 12]);
        retain(4, 4);
        retain(3, 0);
        assert_eq!(payload(&broker), Some(vec![b'x'; 5]));
        retain(6, 6);
        assert_eq!(payload(&broker), Some(vec![b'x'; 6]));
        broker.clear_at("t", [7; 12]);
        assert_eq!(payload(&broker), None);
        retain(6, 6);
        assert_eq!(payload(&broker), None, "it was removed since");
        retain(8, 0);
        retain(7, 7);
        assert_eq!(payload(&broker), None);
        retain(9, 9);
        assert_eq!(payload(&broker), Some(vec![b'x'; 9]));
        retain(10, 0);
        assert_eq!((payload(&broker), broker.retained_bytes()), (None, 0));
    }
}
