//! Enforces spend caps: every server compares usage with the caps at intervals, and stops brokers or lets them run
//! again.

use std::collections::{BTreeMap, BTreeSet};

use millrace_layers::accounts::{self, touch};
use millrace_layers::catalog;
use millrace_storage::{Read, Transaction};
use serde_json::json;
use tracing::warn;
use uuid::Uuid;

use super::audit::Actor;
use super::change::Change;
use super::error::of_one_tenant;
use super::spend::{CapAction, CapOf, SpendCapRecord};
use super::usage::all_of;
use super::{Control, Once, Result, month};
use crate::limits::{BROKERS_MAX, CAPS_AT_ONCE};

struct Standing {
    month_ms: u64,
    brokers: BTreeMap<String, BrokerStanding>,
    by_deleted: u64,
    caps: Vec<(CapOf, SpendCapRecord)>,
}

struct BrokerStanding {
    /// Cost of the broker; 0 if no cap applies to it, because its usage is not read then.
    spent: u64,
    is_over_cap: bool,
}

impl Control {
    /// A broker is stopped when its cap is reached, and runs again when it no longer is.
    pub async fn hold_caps(&self) -> Result<()> {
        let mut from: Option<Vec<u8>> = None;
        loop {
            let after = from.as_deref();
            let page = self
                .look(|tx| async move {
                    Ok(accounts::spend_caps()
                        .page::<SpendCapRecord>(&tx, after, CAPS_AT_ONCE, Read::Snapshot)
                        .await?)
                })
                .await?;
            let ids = page.items.iter().filter_map(|(id, _)| organisation_of(id));
            for organisation in ids.collect::<BTreeSet<_>>() {
                if let Err(error) = of_one_tenant(self.hold_caps_of(organisation).await)? {
                    warn!(%error, %organisation, "a spend cap could not be compared with usage; the next round tries again");
                }
            }
            match page.items.last().filter(|_| page.more) {
                Some((last, _)) => from = Some(last.to_vec()),
                None => return Ok(()),
            }
        }
    }

    pub(super) async fn hold_caps_of(&self, organisation: Uuid) -> Result<()> {
        let (brokers, caps) = self
            .look(|tx| async move {
                Ok((all_of(&tx, organisation).await?, caps_of(&tx, organisation, Read::Snapshot).await?))
            })
            .await?;
        let month_ms = month::of(self.now_ms()).from_ms;
        let mut standings = BTreeMap::new();
        let is_of_all = caps.iter().any(|(of, record)| of.broker.is_none() && record.cap.is_some());
        for broker in brokers {
            let name = String::from_utf8_lossy(&broker.name).into_owned();
            let is_meant = is_of_all || caps.iter().any(|(of, _)| of.broker.as_ref() == Some(&name));
            let spent =
                if is_meant { self.prices().of(&self.used_since(broker.id, month_ms).await?) } else { 0 };
            let is_over_cap = broker.details()?.value.is_over_cap;
            standings.insert(name, BrokerStanding { spent, is_over_cap });
        }
        let by_deleted = match is_of_all {
            true => self.prices().of(&self.used_by_deleted(organisation, month_ms).await?),
            false => 0,
        };
        let standing = &Standing { month_ms, brokers: standings, by_deleted, caps };
        if standing.is_held() {
            return Ok(());
        }
        self.change(Actor::service(), &Once::unnamed()?, |change| async move {
            change.use_reserve();
            // A cap that was changed meanwhile is compared with the usage by its own change.
            if caps_of(&change.tx, organisation, Read::Serializable).await? != standing.caps {
                return Ok(());
            }
            for (of, record) in &standing.caps {
                standing.note(&change, of, record).await?;
            }
            for name in standing.brokers.keys() {
                standing.hold(&change, organisation, name).await?;
            }
            Ok(())
        })
        .await
    }
}

impl Standing {
    fn spent_of(&self, of: &CapOf) -> u64 {
        match &of.broker {
            Some(name) => self.brokers.get(name).map_or(0, |broker| broker.spent),
            None => {
                self.brokers.values().fold(self.by_deleted, |all, broker| all.saturating_add(broker.spent))
            }
        }
    }

    fn is_held(&self) -> bool {
        self.caps.iter().all(|(of, record)| self.is_noted(of, record))
            && self.brokers.iter().all(|(name, broker)| broker.is_over_cap == self.is_stopped(name))
    }

    fn is_noted(&self, of: &CapOf, record: &SpendCapRecord) -> bool {
        record.cap.is_some() && !self.is_gone(of) && record.reached_in == self.reached_in(of, record)
    }

    fn is_gone(&self, of: &CapOf) -> bool {
        of.broker.as_ref().is_some_and(|name| !self.brokers.contains_key(name))
    }

    fn reached_in(&self, of: &CapOf, record: &SpendCapRecord) -> Option<u64> {
        self.is_reached(of, record).then_some(self.month_ms)
    }

    fn is_stopped(&self, name: &str) -> bool {
        self.caps.iter().any(|(of, record)| {
            let is_about = of.broker.as_deref().is_none_or(|broker| broker == name);
            let is_stop = record.cap.is_some_and(|cap| cap.action == CapAction::Stop);
            is_about && is_stop && self.is_reached(of, record)
        })
    }

    fn is_reached(&self, of: &CapOf, record: &SpendCapRecord) -> bool {
        record.cap.is_some_and(|cap| self.spent_of(of) >= cap.monthly_micros)
    }

    /// Records that a cap is reached or no longer reached.
    async fn note(&self, change: &Change, of: &CapOf, record: &SpendCapRecord) -> Result<()> {
        let all = accounts::spend_caps();
        if self.is_noted(of, record) {
            return Ok(());
        }
        let Some(cap) = record.cap.filter(|_| !self.is_gone(of)) else {
            return Ok(all.clear(&change.tx, &of.id()).await?);
        };
        let reached_in = self.reached_in(of, record);
        all.put(&change.tx, &of.id(), &SpendCapRecord { reached_in, ..*record }).await?;
        let action = if reached_in.is_some() { "spend_cap.reach" } else { "spend_cap.reset" };
        let spent = self.spent_of(of);
        let said =
            json!({ "monthly_micros": cap.monthly_micros, "spent_micros": spent, "action": cap.action });
        change.audit(of.organisation, action, &of.target(), said)
    }

    async fn hold(&self, change: &Change, organisation: Uuid, name: &str) -> Result<()> {
        let is_over_cap = self.is_stopped(name);
        let tx = &change.tx;
        let Some(broker) = catalog::get(tx, name.as_bytes(), Read::Serializable).await? else {
            return Ok(());
        };
        let mut details = broker.details()?.value;
        if details.is_over_cap == is_over_cap {
            return Ok(());
        }
        details.is_over_cap = is_over_cap;
        catalog::describe(tx, &broker, &details).await?;
        touch(tx, broker.id)?;
        let action = if is_over_cap { "broker.stop_at_cap" } else { "broker.go_on" };
        change.audit(organisation, action, name, json!({}))
    }
}

async fn caps_of(tx: &Transaction, organisation: Uuid, read: Read) -> Result<Vec<(CapOf, SpendCapRecord)>> {
    let all = accounts::spend_caps();
    let whole = CapOf { organisation, broker: None };
    let mut caps = Vec::new();
    caps.extend(whole.get(tx, read).await?.map(|found| (whole.clone(), found.value)));
    let page = all.page::<SpendCapRecord>(tx, Some(&whole.id()), BROKERS_MAX + 1, read).await?;
    for (id, found) in page.items {
        let Some(name) = id.strip_prefix(organisation.as_bytes().as_slice()) else { break };
        let broker = Some(String::from_utf8_lossy(name).into_owned());
        caps.push((CapOf { organisation, broker }, found.value));
    }
    Ok(caps)
}

fn organisation_of(id: &[u8]) -> Option<Uuid> {
    id.first_chunk().map(|bytes| Uuid::from_bytes(*bytes))
}
