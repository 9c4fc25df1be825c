//! Usage of brokers, for invoices and charts: sums over the hourly windows that servers and the store's layers write.
//!
//! A request names a span of whole hours or days. An organisation's usage includes the brokers that it has deleted:
//! their windows move to its ledger once their data is erased.

mod shapes;

use millrace_layers::metering::{self, WINDOW_MS, Window};
use millrace_layers::usage::{self, Counter};
use millrace_layers::{BrokerId, accounts, catalog};
use millrace_storage::{Read, Transaction};
use uuid::Uuid;

use super::{
    BrokerRef, Caller, Control, Error, Permission, Prices, Result, authorise, brokers, former, ledger, month,
};
pub use shapes::{BrokerUsage, Losses, OrganisationUsage, Span, Usage, UsageStep, UsageWindow, Used};

use crate::limits::{BROKERS_MAX, TIME_MS_MAX, TOO_LATE, USAGE_DAYS_MAX, USAGE_HOURS_MAX};

const DAY_MS: u64 = 24 * WINDOW_MS;
const MINUTE_MS: u64 = 60_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) connected_ms: u64,
    pub(super) stored_session_ms: u64,
    pub(super) messages_in: u64,
    pub(super) messages_delivered: u64,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    pub(super) stored_byte_s: u64,
    pub(super) retained_byte_s: u64,
}

/// Rounded to whole windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct UsageRange {
    from_ms: u64,
    to_ms: u64,
    step: UsageStep,
    now_ms: u64,
}

impl Control {
    pub(crate) async fn usage(&self, caller: &Caller, at: &BrokerRef, span: Span) -> Result<Usage> {
        let range = UsageRange::of(span, self.now_ms())?;
        let prices = self.prices();
        self.look(|tx| async move {
            let id = brokers::find(&tx, caller, at, Permission::BrokersRead, Read::Snapshot).await?.id;
            let sums = range.read(&tx, id).await?;
            let count = async |counter| usage::get(&tx, id, counter).await;
            let losses = Losses {
                dropped_messages: count(Counter::DroppedMessages).await?,
                trimmed_messages: count(Counter::TrimmedEntries).await?,
                trimmed_bytes: count(Counter::TrimmedBytes).await?,
                missed_messages: count(Counter::MissedEntries).await?,
            };
            let (total, windows) = (range.total(&sums, &prices), range.windows(&sums, &prices));
            Ok(Usage { total, windows, losses, currency: self.currency() })
        })
        .await
    }

    pub(crate) async fn organisation_usage(
        &self,
        caller: &Caller,
        organisation: Uuid,
        span: Span,
    ) -> Result<OrganisationUsage> {
        let range = UsageRange::of(span, self.now_ms())?;
        let found = self.look(|tx| async move {
            authorise(&tx, caller, organisation, Permission::BrokersRead, Read::Snapshot).await?;
            all_of(&tx, organisation).await
        });
        self.usage_of_all(organisation, range, found.await?).await
    }

    /// Also of a deleted organisation.
    pub async fn tenant_usage(&self, organisation: Uuid, span: Span) -> Result<OrganisationUsage> {
        let range = UsageRange::of(span, self.now_ms())?;
        let found = self.look(|tx| async move {
            former::check_known(&tx, organisation).await?;
            all_of(&tx, organisation).await
        });
        self.usage_of_all(organisation, range, found.await?).await
    }

    async fn usage_of_all(
        &self,
        organisation: Uuid,
        range: UsageRange,
        found: Vec<catalog::BrokerRecord>,
    ) -> Result<OrganisationUsage> {
        let (mut all, mut brokers) = (Vec::new(), Vec::new());
        let prices = self.prices();
        for broker in found {
            // Each broker has its own transaction, because the windows of all brokers may exceed what one transaction
            // can read.
            let sums = self.look(|tx| async move { range.read(&tx, broker.id).await }).await?;
            let name = String::from_utf8_lossy(&broker.name).into_owned();
            let display_name = broker.details()?.value.display_name;
            let UsageWindow { used, cost_micros, .. } = range.total(&sums, &prices);
            brokers.push(BrokerUsage { name, display_name, used, cost_micros });
            add_all(&mut all, &sums);
        }
        let of_deleted = self.sums_of_deleted(organisation, range).await?;
        let deleted = range.total(&of_deleted, &prices);
        add_all(&mut all, &of_deleted);
        // Each broker's cost is rounded down. Spend caps add the rounded costs, so the total does, too.
        let costs = brokers.iter().map(|broker| broker.cost_micros).chain([deleted.cost_micros]);
        let cost_micros = costs.fold(0, u64::saturating_add);
        Ok(OrganisationUsage {
            total: UsageWindow { cost_micros, ..range.total(&all, &prices) },
            windows: range.windows(&all, &prices),
            brokers,
            deleted: deleted.used,
            deleted_cost_micros: deleted.cost_micros,
            currency: self.currency(),
        })
    }

    pub(super) async fn used_by_deleted(&self, organisation: Uuid, from_ms: u64) -> Result<Sum> {
        let now_ms = self.now_ms();
        let range = UsageRange { from_ms, to_ms: now_ms + 1, step: UsageStep::Total, now_ms };
        let sums = self.sums_of_deleted(organisation, range).await?;
        Ok(sums.first().map_or_else(Sum::default, |(_, sum)| *sum))
    }

    /// One transaction, because usage moves from deleted brokers to the ledger: two could count it twice or not at all.
    async fn sums_of_deleted(&self, organisation: Uuid, range: UsageRange) -> Result<Vec<(u64, Sum)>> {
        self.look(|tx| async move {
            let mut all = range.empty();
            if let Some(ledger) = ledger::of(&tx, organisation, Read::Snapshot).await? {
                add_all(&mut all, &range.read(&tx, ledger).await?);
            }
            for (broker, former) in ledger::former(&tx, organisation).await? {
                let range = UsageRange { now_ms: former.ended_ms.min(range.now_ms), ..range };
                let windows = range.windows_of(&tx, broker, former.from_ms).await?;
                add_all(&mut all, &range.sums(windows));
            }
            Ok(all)
        })
        .await
    }

    pub(super) async fn used_since(&self, broker: BrokerId, from_ms: u64) -> Result<Sum> {
        let now_ms = self.now_ms();
        let range = UsageRange { from_ms, to_ms: now_ms + 1, step: UsageStep::Total, now_ms };
        self.look(|tx| async move {
            Ok(range.read(&tx, broker).await?.first().map_or_else(Sum::default, |(_, sum)| *sum))
        })
        .await
    }
}

pub(super) async fn all_of(tx: &Transaction, organisation: Uuid) -> Result<Vec<catalog::BrokerRecord>> {
    read_all_of(tx, organisation, Read::Snapshot).await
}

pub(super) async fn read_all_of(
    tx: &Transaction,
    organisation: Uuid,
    read: Read,
) -> Result<Vec<catalog::BrokerRecord>> {
    let all = accounts::brokers_of(organisation.as_bytes());
    let rows = all.page::<BrokerId>(tx, None, BROKERS_MAX, read).await?;
    let mut found = Vec::with_capacity(rows.items.len());
    for (name, _) in rows.items {
        found.extend(catalog::get(tx, &name, read).await?);
    }
    Ok(found)
}

impl UsageRange {
    fn of(span: Span, now_ms: u64) -> Result<Self> {
        let Span { from_ms, to_ms, step } = span;
        let (unit_ms, max_ms) = match step {
            UsageStep::Hour => (WINDOW_MS, USAGE_HOURS_MAX * WINDOW_MS),
            UsageStep::Day => (DAY_MS, USAGE_DAYS_MAX * DAY_MS),
            UsageStep::Total => (WINDOW_MS, USAGE_DAYS_MAX * DAY_MS),
        };
        for (name, at_ms) in [("from", from_ms), ("to", to_ms)] {
            if at_ms.is_some_and(|at_ms| at_ms > TIME_MS_MAX) {
                return Err(Error::field(name, TOO_LATE));
            }
        }
        let from_ms = from_ms.unwrap_or_else(|| month::of(now_ms).from_ms);
        let from_ms = from_ms - from_ms % unit_ms;
        // A window that has not begun is not shown.
        let to_ms = to_ms.unwrap_or(u64::MAX).min(now_ms + 1);
        if to_ms <= from_ms {
            return Err(Error::field("from", "must be before `to`, and before now"));
        }
        if to_ms - from_ms > max_ms {
            let days = max_ms / DAY_MS;
            return Err(Error::field("from", format!("with this step at most {days} days can be asked for")));
        }
        Ok(Self { from_ms, to_ms, step, now_ms })
    }

    /// One entry per window, also if its sum is zero.
    async fn read(&self, tx: &Transaction, broker: BrokerId) -> Result<Vec<(u64, Sum)>> {
        Ok(self.sums(self.windows_of(tx, broker, self.from_ms).await?))
    }

    async fn windows_of(&self, tx: &Transaction, broker: BrokerId, from_ms: u64) -> Result<Vec<Window>> {
        let from_ms = from_ms.max(self.from_ms);
        Ok(metering::used(tx, broker, from_ms, self.to_ms, self.now_ms).await?)
    }

    fn empty(&self) -> Vec<(u64, Sum)> {
        let hours = (self.from_ms..self.to_ms.min(self.now_ms + 1)).step_by(WINDOW_MS as usize);
        self.sums(hours.map(|from_ms| Window { from_ms, ..Window::default() }).collect())
    }

    fn sums(&self, windows: Vec<Window>) -> Vec<(u64, Sum)> {
        let mut sums: Vec<(u64, Sum)> = Vec::new();
        for window in windows {
            let from_ms = self.step_of(window.from_ms);
            if sums.last().is_none_or(|(last, _)| *last != from_ms) {
                sums.push((from_ms, Sum::default()));
            }
            if let Some((_, sum)) = sums.last_mut() {
                sum.add(&Sum::from(&window));
            }
        }
        sums
    }

    fn step_of(&self, at_ms: u64) -> u64 {
        match self.step {
            UsageStep::Hour => at_ms,
            UsageStep::Day => at_ms - at_ms % DAY_MS,
            UsageStep::Total => self.from_ms,
        }
    }

    fn total(&self, sums: &[(u64, Sum)], prices: &Prices) -> UsageWindow {
        let mut total = Sum::default();
        sums.iter().for_each(|(_, sum)| total.add(sum));
        let to_ms = self.to_ms.next_multiple_of(WINDOW_MS);
        let cost_micros = prices.of(&total);
        UsageWindow { from_ms: self.from_ms, to_ms, used: total.shown(), cost_micros }
    }

    fn windows(&self, sums: &[(u64, Sum)], prices: &Prices) -> Vec<UsageWindow> {
        let length_ms = match self.step {
            UsageStep::Hour => WINDOW_MS,
            UsageStep::Day => DAY_MS,
            UsageStep::Total => return Vec::new(),
        };
        let window = |(from_ms, sum): &(u64, Sum)| UsageWindow {
            from_ms: *from_ms,
            to_ms: from_ms + length_ms,
            used: sum.shown(),
            cost_micros: prices.of(sum),
        };
        sums.iter().map(window).collect()
    }
}

fn add_all(all: &mut Vec<(u64, Sum)>, sums: &[(u64, Sum)]) {
    for (from_ms, sum) in sums {
        match all.binary_search_by_key(from_ms, |(from_ms, _)| *from_ms) {
            Ok(place) => all[place].1.add(sum),
            Err(place) => all.insert(place, (*from_ms, *sum)),
        }
    }
}

impl From<&Window> for Sum {
    fn from(window: &Window) -> Self {
        Self {
            connected_ms: window.connected_ms,
            stored_session_ms: window.stored_session_ms,
            messages_in: window.messages_in,
            messages_delivered: window.messages_delivered,
            bytes_in: window.bytes_in,
            bytes_out: window.bytes_out,
            stored_byte_s: window.stored_byte_s,
            retained_byte_s: window.retained_byte_s,
        }
    }
}

impl Sum {
    pub(super) fn add(&mut self, other: &Self) {
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut self.connected_ms, other.connected_ms);
        add(&mut self.stored_session_ms, other.stored_session_ms);
        add(&mut self.messages_in, other.messages_in);
        add(&mut self.messages_delivered, other.messages_delivered);
        add(&mut self.bytes_in, other.bytes_in);
        add(&mut self.bytes_out, other.bytes_out);
        add(&mut self.stored_byte_s, other.stored_byte_s);
        add(&mut self.retained_byte_s, other.retained_byte_s);
    }

    pub(super) fn shown(&self) -> Used {
        let per = |count: u64, unit: u64| count as f64 / unit as f64;
        Used {
            connected_session_minutes: per(self.connected_ms, MINUTE_MS),
            stored_session_minutes: per(self.stored_session_ms, MINUTE_MS),
            messages_in: self.messages_in,
            messages_delivered: self.messages_delivered,
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
            stored_byte_hours: per(self.stored_byte_s, 3_600),
            retained_byte_hours: per(self.retained_byte_s, 3_600),
        }
    }
}
