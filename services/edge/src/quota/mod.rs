//! Tenant limits: the limits in a broker's record, and the usage that counts against them. A broker without a record has no
//! limits here; the process' own ([`crate::limits`]) are never exceeded. Over a rate limit, reading from the publishers pauses.
//! Other limits refuse with the protocol's reason. All loops of a process share one [`Quota`] per broker; pods share limits by
//! exchanging their usage (`reporters/quota.rs`): `passed` is this pod's, `others` that of the others. All times are
//! [`limiter::nanos`].

mod broker_rate;
mod limit;
pub(crate) mod limiter;
mod others;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::{ArcSwap, Guard};
use millrace_access::model::Limits;
use millrace_session::SessionSettings;

use broker_rate::BrokerRate;
pub(crate) use limit::Limit;
use limiter::Rate;
pub(crate) use others::Others;

#[derive(Default)]
pub(crate) struct Quota {
    limits: ArcSwap<Limits>,
    is_limited: AtomicBool,
    limits_queues: AtomicBool,
    messages: BrokerRate,
    bytes: BrokerRate,
    connects: BrokerRate,
    filters: BrokerRate,
    pub(crate) passed: Passed,
    pub(crate) others: Others,
}

#[derive(Debug, Default)]
pub(crate) struct Passed {
    pub(crate) messages: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) connects: AtomicU64,
    pub(crate) filters: AtomicU64,
}

/// Rates of one publishing client: see [`Rate::add`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClientRates {
    messages: ClientRate,
    bytes: ClientRate,
}

#[derive(Clone, Copy, Debug, Default)]
struct ClientRate {
    limit: u64,
    paid_at: u64,
}

impl ClientRate {
    fn under(self, limit: u64, now: u64) -> Self {
        let former = Rate::per_second(self.limit);
        Self { limit, paid_at: Rate::per_second(limit).instead_of(former, self.paid_at, now) }
    }

    fn add(&mut self, limit: u64, amount: u64, now: u64) -> u64 {
        *self = self.under(limit, now);
        self.paid_at = Rate::per_second(limit).add(self.paid_at, amount, now);
        self.paid_at
    }
}

impl Quota {
    /// Sets limits, which pay for the debts that are left.
    pub(crate) fn set(&self, limits: Limits) {
        let (broker, client) = (&limits.broker, &limits.client);
        let rates = [
            broker.publishes_per_s,
            broker.publish_bytes_per_s,
            client.publishes_per_s,
            client.publish_bytes_per_s,
            client.packet_bytes,
        ];
        self.is_limited.store(rates.iter().any(Option::is_some), Ordering::Relaxed);
        let queues = client.queue_messages.is_some() || client.queue_bytes.is_some();
        self.limits_queues.store(queues, Ordering::Relaxed);
        if **self.limits.load() == limits {
            return;
        }
        self.messages.set(broker.publishes_per_s);
        self.bytes.set(broker.publish_bytes_per_s);
        self.connects.set(broker.connects_per_s);
        self.filters.set(broker.filters_per_s);
        self.limits.store(Arc::new(limits));
    }

    pub(crate) fn limits(&self) -> Guard<Arc<Limits>> {
        self.limits.load()
    }

    pub(crate) fn is_limited(&self) -> bool {
        self.is_limited.load(Ordering::Relaxed)
    }

    pub(crate) fn packet_size_max(&self, most: u32) -> u32 {
        at_most(self.limits.load().client.packet_bytes, most)
    }

    pub(crate) fn subscriptions_per_session_max(&self, most: u32) -> u32 {
        at_most(self.limits.load().client.subscriptions, most)
    }

    pub(crate) fn settings(&self, process: &SessionSettings) -> SessionSettings {
        let limits = self.limits.load();
        let client = &limits.client;
        SessionSettings {
            packet_size_max: at_most(client.packet_bytes, process.packet_size_max),
            queue_messages_max: at_most(client.queue_messages, process.queue_messages_max),
            queue_bytes_max: process.queue_bytes_max.min(client.queue_bytes.unwrap_or(u64::MAX)),
            ..*process
        }
    }

    pub(crate) fn queue_settings(&self, process: &SessionSettings) -> Option<SessionSettings> {
        self.limits_queues.load(Ordering::Relaxed).then(|| self.settings(process))
    }

    pub(crate) fn room(&self, rates: ClientRates, now: u64) -> (u64, u64) {
        let limits = self.limits.load();
        let own = |limit: Option<u64>, used: ClientRate| {
            limit.map_or(u64::MAX, |limit| Rate::per_second(limit).room(used.under(limit, now).paid_at, now))
        };
        let all = |used: &BrokerRate, others: &AtomicU64| {
            used.load().at(now).map_or(u64::MAX, |(limit, count)| count.room(share(limit, others), now))
        };
        let client = &limits.client;
        let messages =
            own(client.publishes_per_s, rates.messages).min(all(&self.messages, &self.others.messages));
        let bytes = own(client.publish_bytes_per_s, rates.bytes).min(all(&self.bytes, &self.others.bytes));
        (messages, bytes)
    }

    /// Returns when the publishes are paid for, and the limit that decides it.
    pub(crate) fn publish(
        &self,
        rates: &mut ClientRates,
        messages: u64,
        bytes: u64,
        now: u64,
    ) -> (u64, Limit) {
        let limits = self.limits.load();
        let client = &limits.client;
        let mut latest = (0, Limit::ClientMessages);
        let mut note = |paid_at: u64, limit| {
            if paid_at > latest.0 {
                latest = (paid_at, limit);
            }
        };
        if let Some(limit) = client.publishes_per_s {
            note(rates.messages.add(limit, messages, now), Limit::ClientMessages);
        }
        if let Some(limit) = client.publish_bytes_per_s {
            note(rates.bytes.add(limit, bytes, now), Limit::ClientBytes);
        }
        if let Some((limit, count)) = self.messages.load().at(now) {
            self.passed.messages.fetch_add(messages, Ordering::Relaxed);
            let rate = share(limit, &self.others.messages);
            note(count.add(rate, messages, now), Limit::BrokerMessages);
        }
        if let Some((limit, count)) = self.bytes.load().at(now) {
            self.passed.bytes.fetch_add(bytes, Ordering::Relaxed);
            let rate = share(limit, &self.others.bytes);
            note(count.add(rate, bytes, now), Limit::BrokerBytes);
        }
        latest
    }

    /// Lets the limits of today pay for what a client owes.
    pub(crate) fn follow(&self, rates: &mut ClientRates, now: u64) {
        let limits = self.limits.load();
        let under = |used: ClientRate, limit: Option<u64>| {
            limit.map_or_else(ClientRate::default, |limit| used.under(limit, now))
        };
        rates.messages = under(rates.messages, limits.client.publishes_per_s);
        rates.bytes = under(rates.bytes, limits.client.publish_bytes_per_s);
    }

    /// When the publishes of the broker's clients so far are paid for.
    pub(crate) fn paid_at(&self, now: u64) -> u64 {
        self.messages.paid_at(now).max(self.bytes.paid_at(now))
    }

    /// When a client's publishes and those of the broker so far are paid for.
    pub(crate) fn all_paid_at(&self, mut rates: ClientRates, now: u64) -> u64 {
        self.follow(&mut rates, now);
        self.paid_at(now).max(rates.messages.paid_at).max(rates.bytes.paid_at)
    }

    /// Takes back what was charged for a message that does not pass.
    pub(crate) fn give_back(&self, messages: u64, bytes: u64, now: u64) {
        if let Some((limit, count)) = self.messages.load().at(now) {
            count.give_back(share(limit, &self.others.messages), messages);
        }
        if let Some((limit, count)) = self.bytes.load().at(now) {
            count.give_back(share(limit, &self.others.bytes), bytes);
        }
    }

    pub(crate) fn limits_filters(&self) -> bool {
        self.limits.load().broker.filters_per_s.is_some()
    }

    /// Charges filters of SUBSCRIBE or UNSUBSCRIBE. Returns when the filters before them are paid for.
    pub(crate) fn subscribe(&self, filters: u64, now: u64) -> u64 {
        let counts = self.filters.load();
        let Some((limit, count)) = counts.at(now) else { return 0 };
        self.passed.filters.fetch_add(filters, Ordering::Relaxed);
        let rate = share(limit, &self.others.filters);
        rate.before(count.add(rate, filters, now), filters)
    }

    /// When all filters so far are paid for.
    pub(crate) fn filters_paid_at(&self, now: u64) -> u64 {
        self.filters.paid_at(now)
    }

    pub(crate) fn give_back_filters(&self, filters: u64, now: u64) {
        if let Some((limit, count)) = self.filters.load().at(now) {
            count.give_back(share(limit, &self.others.filters), filters);
        }
    }

    pub(crate) fn take_connect(&self, now: u64) -> bool {
        let counts = self.connects.load();
        let Some((limit, count)) = counts.at(now) else { return true };
        let taken = count.take(share(limit, &self.others.connects), 1, now);
        self.passed.connects.fetch_add(u64::from(taken), Ordering::Relaxed);
        taken
    }

    pub(crate) fn connections_max(&self, most: u32) -> u64 {
        left(self.limits.load().broker.connections, &self.others.connections).min(most.into())
    }

    pub(crate) fn subscriptions_max(&self) -> u64 {
        left(self.limits.load().broker.subscriptions, &self.others.subscriptions)
    }

    pub(crate) fn retained_max(&self, most: u32) -> u64 {
        u64::from(most).min(self.limits.load().broker.retained_messages.unwrap_or(u64::MAX))
    }
}

fn left(limit: Option<u64>, others: &AtomicU64) -> u64 {
    limit.map_or(u64::MAX, |limit| limit.saturating_sub(others.load(Ordering::Relaxed)))
}

fn share(limit: u64, others: &AtomicU64) -> Rate {
    Rate::per_second(limit.saturating_sub(others.load(Ordering::Relaxed)).max(1))
}

fn at_most(limit: Option<u64>, most: u32) -> u32 {
    limit.map_or(most, |limit| u32::try_from(limit).unwrap_or(most).min(most))
}
