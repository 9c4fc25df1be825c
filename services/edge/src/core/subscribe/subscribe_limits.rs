//! Checks a SUBSCRIBE against the limits of subscriptions, share names and memory of filters.

use millrace_mqtt::topic::Filter;
use millrace_mqtt::{RetainHandling, SubscribeOptions};
use millrace_router::Edit;

use crate::limits::SHARE_NAMES_PER_FILTER_MAX;
use crate::metrics::BrokerCounters;
use crate::quota::Limit;

/// Limits and what they leave, as of the beginning of one edit of the router.
pub(super) struct SubscribeLimits<'b> {
    pub(super) counters: &'b BrokerCounters,
    /// Several pods share the store.
    pub(super) is_shared: bool,
    /// Subscriptions that the broker may still add.
    pub(super) of_broker: u64,
    pub(super) per_session: usize,
    /// Memory lacks some retained messages of the broker, so a subscription could not get them all: a single process reads them only
    /// there.
    pub(super) lacks_retained: bool,
    /// Bytes that the broker's filters may take.
    pub(super) bytes_of_broker: u64,
    /// Bytes of the filters of all brokers, without those that this edit adds.
    pub(super) all_bytes: u64,
    pub(super) all_bytes_max: u64,
    /// Bytes of the broker's filters before this edit.
    pub(super) bytes_before: usize,
}

impl SubscribeLimits<'_> {
    /// The limit that a subscription, which is not in `edit` yet, would exceed; `is_full`: its session has as many as it may.
    pub(super) fn reached(
        &self,
        edit: &Edit<'_>,
        text: &str,
        options: SubscribeOptions,
        is_new: bool,
        is_full: bool,
    ) -> Option<Limit> {
        let wants_retained =
            || Filter::parse(text).is_some_and(|filter| wants_retained(filter, options, is_new));
        match () {
            () if self.lacks_retained && wants_retained() => Some(Limit::Retained),
            () if has_too_many_groups(edit, text) => Some(Limit::ShareNames),
            () if !is_new => None,
            () if self.of_broker == 0 => Some(Limit::BrokerSubscriptions),
            () if is_full => Some(Limit::ClientSubscriptions),
            () => self.reached_bytes(edit),
        }
    }

    fn reached_bytes(&self, edit: &Edit<'_>) -> Option<Limit> {
        let added = edit.bytes().saturating_sub(self.bytes_before) as u64;
        if edit.bytes() as u64 >= self.bytes_of_broker {
            Some(Limit::BrokerFilters)
        } else {
            (self.all_bytes + added >= self.all_bytes_max).then_some(Limit::Filters)
        }
    }
}

/// Whether a filter would give its topic one more share name than a filter may have.
fn has_too_many_groups(edit: &Edit<'_>, text: &str) -> bool {
    let Some(Filter { share: Some(name), filter }) = Filter::parse(text) else { return false };
    edit.groups(filter) >= SHARE_NAMES_PER_FILTER_MAX && !edit.has_group(name, filter)
}

pub(super) fn wants_retained(filter: Filter<'_>, options: SubscribeOptions, is_new: bool) -> bool {
    //= [MQTT-3.3.1-9] [MQTT-3.3.1-10] [MQTT-3.3.1-11] v5
    //= [MQTT-3.3.1-6] v3.1.1
    let wanted = match options.retain_handling {
        RetainHandling::Send => true,
        RetainHandling::SendIfNew => is_new,
        RetainHandling::DoNotSend => false,
    };
    // A shared subscription gets no retained messages (MQTT 5.0 section 4.8.2).
    wanted && filter.share.is_none()
}
