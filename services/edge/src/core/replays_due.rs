//! Retained QoS 1 and 2 messages that a persistent session has not got, or not acknowledged, when its connection or the
//! server ends.
//!
//! The SUBSCRIBE sets a flag of the stored subscription (`REPLAY_DUE`) if its filter has retained messages. The next checkpoint
//! after the client has acknowledged all of them removes the flag. So setting and removing it need no write of their own. When
//! a connection ends earlier, the messages that were not sent are stored under packet ids of their own, and the flags are
//! removed. If the server was killed or the messages were too many, the flag remains, and the replay is repeated.

use millrace_layers::subscriptions::{REPLAY_DUE, StoredOptions, StoredSubscription};
use millrace_mqtt::{PacketId, QoS};
use millrace_router::{TreeStep, Walk};
use millrace_session::{Delivered, DropReason, InFlight, OutboxEntry};

use super::deliver::count;
use super::limits;
use super::replay::{Lookup, ReplayLookups, Topics};
use super::{Core, work};
use crate::broker::Broker;
use crate::jobs::replay::{Replay, RetainedPages, left_out};
use crate::store::WHOLE_BYTES_MAX;

/// Nodes visited for one SUBSCRIBE to find out which of its filters have retained messages. The filters left are flagged.
const NODES_AT_SUBSCRIBE: usize = 256;

type Filters = Vec<(Box<str>, StoredOptions, usize)>;

impl Core {
    /// Flags the filters of a SUBSCRIBE that have retained messages of QoS 1 or 2. `replays` has the filters of `stored` that
    /// get retained messages, in the same order.
    pub(super) fn flag_due(&mut self, broker: &Broker, replays: &[Replay], stored: &mut Filters) {
        let (mut left, mut stored) = (NODES_AT_SUBSCRIBE, stored.iter_mut());
        for replay in replays.iter().filter(|replay| replay.qos > QoS::AtMostOnce) {
            let has_retained = replay.before.is_some_and(|before| before > 0)
                && has_retained(Walk::new(broker.retained.snapshot(), &replay.filter), &mut left);
            let same = stored.find(|(filter, ..)| *filter == replay.filter);
            if let Some((_, options, _)) = same.filter(|_| has_retained) {
                options.bits |= REPLAY_DUE;
            }
        }
        self.spend((NODES_AT_SUBSCRIBE - left) as u64 * work::NODE);
    }

    /// Filters whose retained messages the client has acknowledged since the last call.
    pub(super) fn take_replayed(&mut self, session: u32) -> Vec<Box<str>> {
        let local = &mut self.sessions[session as usize];
        let Some(persistent) = local.persistent.as_mut().filter(|own| !own.due.is_empty()) else {
            return Vec::new();
        };
        let is_open = persistent.subscribing > 0
            || local.session.is_replaying()
            || local.session.entries().any(|entry| entry.replay);
        if is_open { Vec::new() } else { std::mem::take(&mut persistent.due).into_iter().collect() }
    }

    /// For a session whose connection ends: its unsent retained messages, with packet ids, and the filters whose flags are
    /// removed because of that.
    pub(super) fn leave_retained(&mut self, session: u32) -> (Vec<(PacketId, InFlight)>, Vec<Box<str>>) {
        let (looked_up, is_complete) = self.take_unsent_retained(session);
        let local = &mut self.sessions[session as usize];
        let Some(persistent) = &mut local.persistent else { return Default::default() };
        if persistent.due.is_empty()
            && looked_up.is_empty()
            && !local.session.entries().any(|entry| entry.replay)
        {
            return Default::default();
        }
        let (sent, unsent) = local.session.in_flight();
        let is_due = |entry: &&OutboxEntry| entry.replay && entry.shared == 0 && entry.qos > QoS::AtMostOnce;
        let unsent: Vec<OutboxEntry> = unsent.into_iter().filter(is_due).cloned().chain(looked_up).collect();
        let whole = |in_flight: &InFlight| match in_flight {
            InFlight::Published(entry) if entry.replay => entry.message.size(),
            _ => 0,
        };
        let mut bytes: usize = sent.iter().map(|(_, in_flight)| whole(in_flight)).sum();
        let count_all = unsent.len();
        let fits = |entry: &OutboxEntry| {
            bytes += entry.message.size();
            bytes <= WHOLE_BYTES_MAX / 2
        };
        let ids = local.session.unused_ids().take(limits::UNSENT_RETAINED_MAX);
        let left: Vec<_> = unsent.into_iter().take_while(fits).zip(ids).collect();
        let left_out = count_all - left.len();
        let is_flagged = !persistent.due.is_empty();
        if is_flagged && (left_out > 0 || !is_complete || persistent.subscribing > 0) {
            return Default::default();
        }
        let counters = &local.broker.counters[usize::from(self.index)];
        (0..left_out).for_each(|_| count(counters, Delivered::Dropped(DropReason::QueueFull)));
        let replayed = std::mem::take(&mut persistent.due).into_iter().collect();
        (left.into_iter().map(|(entry, id)| (id, InFlight::Unsent(entry))).collect(), replayed)
    }

    /// Replays the retained messages of the flagged subscriptions of a session that has come back. `had`: topics whose
    /// messages are sent again anyway.
    pub(super) fn replay_due(&mut self, session: u32, subscriptions: &[StoredSubscription], had: Topics) {
        let local = &mut self.sessions[session as usize];
        let Some(persistent) = &mut local.persistent else { return };
        let (broker, had) = (local.broker.clone(), had.into());
        let mut lookups = ReplayLookups::new();
        for stored in subscriptions.iter().filter(|stored| is_due(stored)) {
            let Ok(filter) = std::str::from_utf8(&stored.filter) else { continue };
            persistent.due.insert(filter.into());
            let Some(subscription) = local.session.subscription(filter) else { continue };
            let replay = Replay {
                filter: filter.into(),
                qos: subscription.options.qos,
                identifier: subscription.identifier,
                left_out: left_out(local.session.client_id(), subscription.options),
                before: Some(broker.retained.snapshot().insertions()),
                retained: None,
                pages: RetainedPages::default().into(),
            };
            lookups.extend(Lookup::all(&replay, &broker).map(|lookup| lookup.goes_on_without(&had)));
        }
        if !lookups.is_empty() {
            self.replay_later(session, lookups.into(), false);
        }
    }
}

pub(super) fn is_due(stored: &StoredSubscription) -> bool {
    stored.options.bits & REPLAY_DUE != 0
}

pub(super) fn topics_of(in_flight: &[(PacketId, InFlight)]) -> Topics {
    let topic = |in_flight: &InFlight| match in_flight {
        InFlight::Published(entry) | InFlight::Unsent(entry)
            if entry.retain && entry.message.position().is_none() =>
        {
            Some(entry.message.topic().clone())
        }
        _ => None,
    };
    in_flight.iter().filter_map(|(_, in_flight)| topic(in_flight)).collect()
}

/// True also if there is no work left to find out.
fn has_retained(mut walk: Walk<std::sync::Arc<millrace_session::Message>>, left: &mut usize) -> bool {
    while *left > 0 {
        *left -= 1;
        match walk.step() {
            TreeStep::Value(message) if message.qos() > QoS::AtMostOnce => return true,
            TreeStep::Value(_) | TreeStep::Nothing => {}
            TreeStep::Done => return false,
        }
    }
    true
}
