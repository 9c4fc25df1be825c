//! The steps of one SUBSCRIBE or UNSUBSCRIBE: how many filters come next, and their changes of the session and the router.

use std::sync::Arc;

use millrace_layers::limits::SUBSCRIPTIONS_MAX;
use millrace_layers::subscriptions::StoredOptions;
use millrace_mqtt::topic::Filter;
use millrace_mqtt::{ReasonCode, Subscribe, SubscribeOptions, Version};
use millrace_router::{Edit, Target};
use millrace_session::ClientSubscription;
use smallvec::SmallVec;

use super::lowered::Identifiers;
use super::read_filters::FiltersToAdd;
use super::subscribe_limits::{SubscribeLimits, wants_retained};
use super::{SubscribeInProgress, UnsubscribeInProgress};
use crate::broker::Broker;
use crate::core::LocalSession;
use crate::core::resume::routed;
use crate::core::work::{self, PacketTask};
use crate::incomplete_packets::{IncompletePackets, OverLimit};
use crate::jobs::replay::{Replay, RetainedPages, left_out};

impl SubscribeInProgress {
    pub(super) fn new(subscribe: &Subscribe<'_>, version: Version) -> Self {
        let read = FiltersToAdd::new(subscribe.filters.clone(), version);
        Self::of(Identifiers::of_packet(subscribe), read, Some(subscribe.packet_id))
    }

    pub(in crate::core) fn into_replays(self) -> SmallVec<[Replay; 2]> {
        self.pending.replays
    }

    /// Whether live messages wait until it is carried out.
    pub(in crate::core) fn holds(&self) -> bool {
        self.holds
    }

    /// Changes session and router for the filters from `done` on whose rights are in `checked`; the caller moves `done`, and
    /// the store has to answer for those in `granted`, so that a refusal can undo them.
    pub(super) fn carry_out(
        &mut self,
        edit: &mut Edit<'_>,
        local: &mut LocalSession,
        target: Target,
        limits: &mut SubscribeLimits<'_>,
    ) {
        let is_kept = local.persistent.is_some();
        let session_max =
            if is_kept { SUBSCRIPTIONS_MAX.min(limits.per_session) } else { limits.per_session };
        for (place, checked) in (self.done..).zip(std::mem::take(&mut self.checked)) {
            let (text, options) = &self.read.filters[place];
            let options = match checked {
                Ok(qos) => SubscribeOptions { qos, ..*options },
                Err((reason, what)) => {
                    self.pending.reasons.push(reason);
                    self.pending.what = what;
                    continue;
                }
            };
            let former = local.session.subscription(text).copied();
            let is_new = former.is_none();
            let is_full = local.session.subscriptions_len() >= session_max;
            let limit = limits.reached(edit, text, options, is_new, is_full);
            if limit.is_some() {
                self.reached = limit;
                limits.counters.subscribe_quota.add(1);
                self.pending.reasons.push(ReasonCode::QUOTA_EXCEEDED);
                self.pending.what = "a limit on subscriptions is reached";
                continue;
            }
            let identifier = self.identifiers.of(place);
            if is_kept {
                let bits = options.to_bits(Version::V5);
                self.stored.push((text.clone(), StoredOptions { bits, identifier }, place));
            }
            if is_kept || limits.is_shared {
                self.granted.push((place, former));
            }
            if limits.is_shared && !is_kept && text.starts_with("$share/") {
                self.shared.push(text.clone());
            }
            limits.of_broker -= u64::from(is_new);
            add(
                edit,
                local,
                target,
                text,
                ClientSubscription { options, identifier },
                &self.no_pages,
                &mut self.pending.replays,
            );
            self.pending.reasons.push(ReasonCode(options.qos as u8));
        }
    }
}

impl UnsubscribeInProgress {
    //= [MQTT-3.10.4-1] v5 v3.1.1
    pub(super) fn carry_out(
        &mut self,
        edit: &mut Edit<'_>,
        local: &mut LocalSession,
        target: Target,
        limits: &mut SubscribeLimits<'_>,
    ) {
        for text in &self.read.filters[self.next.clone()] {
            let existed = local.session.unsubscribe(text);
            limits.of_broker += u64::from(existed);
            if existed && let Some(filter) = Filter::parse(text) {
                edit.unsubscribe(filter, target);
            }
            let reason = if existed { ReasonCode::SUCCESS } else { ReasonCode::NO_SUBSCRIPTION_EXISTED };
            self.reasons.push(reason);
        }
    }
}

impl PacketTask {
    pub(in crate::core) fn read_more(&mut self) -> u64 {
        match self {
            Self::Subscribe(subscribe) => subscribe.read.read_more(),
            Self::Unsubscribe(unsubscribe) => unsubscribe.read.read_more(),
        }
    }

    pub(in crate::core) fn filters(&self) -> usize {
        match self {
            Self::Subscribe(subscribe) => subscribe.read.filters.len(),
            Self::Unsubscribe(unsubscribe) => unsubscribe.read.filters.len(),
        }
    }

    pub(in crate::core) fn is_read(&self) -> bool {
        match self {
            Self::Subscribe(subscribe) => subscribe.read.is_read(),
            Self::Unsubscribe(unsubscribe) => unsubscribe.read.is_read(),
        }
    }

    /// Charges the broker for the memory of a packet that takes several turns, until it is carried out; changes that the server
    /// makes (they have no packet id) count nowhere.
    pub(in crate::core) fn charge(
        &mut self,
        by: &Arc<IncompletePackets>,
        broker: &Arc<Broker>,
    ) -> Result<(), OverLimit> {
        let (unread, filters) = match self {
            Self::Subscribe(subscribe) if subscribe.pending.packet_id.is_some() => {
                (&mut subscribe.read.unread, subscribe.read.filters.len())
            }
            Self::Unsubscribe(unsubscribe) if unsubscribe.packet_id.is_some() => {
                (&mut unsubscribe.read.unread, unsubscribe.read.filters.len())
            }
            _ => return Ok(()),
        };
        unread.charge(filters, by, broker)
    }

    /// Decides how many filters are carried out next, and returns the work of that.
    pub(in crate::core) fn plan(&mut self) -> u64 {
        match self {
            Self::Subscribe(subscribe) => {
                let left = subscribe.read.filters[subscribe.done..].iter().map(|(filter, _)| &**filter);
                let (count, work) = work::filters_at_once(left);
                subscribe.until = subscribe.done + count;
                work
            }
            Self::Unsubscribe(unsubscribe) => {
                let done = unsubscribe.reasons.len();
                let left = unsubscribe.read.filters[done..].iter().map(|filter| &**filter);
                let (count, work) = work::filters_at_once(left);
                unsubscribe.next = done..done + count;
                work
            }
        }
    }

    pub(super) fn ends(&self) -> bool {
        match self {
            Self::Subscribe(subscribe) => subscribe.until == subscribe.read.filters.len(),
            Self::Unsubscribe(unsubscribe) => unsubscribe.next.end == unsubscribe.read.filters.len(),
        }
    }
}

fn add(
    edit: &mut Edit<'_>,
    local: &mut LocalSession,
    target: Target,
    text: &str,
    subscription: ClientSubscription,
    no_pages: &Arc<RetainedPages>,
    replays: &mut SmallVec<[Replay; 2]>,
) {
    let Some(filter) = Filter::parse(text) else { return };
    let (options, identifier) = (subscription.options, subscription.identifier);
    // The store does not have it yet.
    edit.subscribe(filter, routed(target, &subscription, false));
    let is_new = local.session.subscribe(text, subscription);
    if wants_retained(filter, options, is_new) {
        replays.push(Replay {
            filter: filter.filter.into(),
            qos: options.qos,
            identifier,
            left_out: left_out(local.session.client_id(), options),
            before: None,
            retained: None,
            pages: no_pages.clone(),
        });
    }
}
