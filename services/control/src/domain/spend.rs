//! Spend caps: the most that an organisation, or one of its brokers, may cost in a month (UTC).
//!
//! This file sets, shows and deletes caps. `caps.rs` compares them with usage, and stops brokers or lets them run
//! again.

use millrace_layers::accounts;
use millrace_layers::documents::Document;
use millrace_storage::{Read, Transaction};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::difference::difference;
use super::parts::Versioned;
use super::usage::all_of;
use super::{Caller, Control, Error, Once, Permission, Precondition, Result, authorise, month};
use crate::limits::NUMBER_MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CapAction {
    /// Refuse connections and messages of clients. Stored messages are kept, and connected clients still receive them.
    Stop,
    /// Add an entry to the audit log, and nothing else.
    Continue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSpendCap {
    /// Millionths of the region's currency.
    #[schema(minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    pub monthly_micros: u64,
    pub action: CapAction,
}

/// A spend cap and the money spent so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SpendCap {
    /// The cap, in millionths of the region's currency per month (UTC).
    pub monthly_micros: u64,
    pub action: CapAction,
    /// Cost of this month so far, in the same unit.
    pub spent_micros: u64,
    /// Whether the cap was reached at the last comparison, at most half a minute ago.
    pub is_reached: bool,
    /// End of the month, when the count restarts, in unix milliseconds.
    pub resets_at_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CapOf {
    pub(crate) organisation: Uuid,
    /// `None`: all brokers of the organisation together.
    pub(crate) broker: Option<String>,
}

/// `cap` is `None` after its deletion; the record stays until no broker is stopped by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SpendCapRecord {
    pub(super) cap: Option<NewSpendCap>,
    /// Start of the month in which the cap was reached, in unix milliseconds.
    pub(super) reached_in: Option<u64>,
}

impl CapOf {
    /// Caps of an organisation share a prefix, so that one range read finds them.
    pub(super) fn id(&self) -> Vec<u8> {
        let name = self.broker.as_deref().unwrap_or_default();
        [self.organisation.as_bytes(), name.as_bytes()].concat()
    }

    pub(super) fn target(&self) -> String {
        self.broker.clone().unwrap_or_else(|| self.organisation.to_string())
    }

    pub(super) async fn get(&self, tx: &Transaction, read: Read) -> Result<Option<Document<SpendCapRecord>>> {
        Ok(accounts::spend_caps().get(tx, &self.id(), read).await?)
    }

    async fn authorise(
        &self,
        tx: &Transaction,
        caller: &Caller,
        permission: Permission,
        read: Read,
    ) -> Result<()> {
        authorise(tx, caller, self.organisation, permission, read).await?;
        let Some(name) = &self.broker else { return Ok(()) };
        let all = accounts::brokers_of(self.organisation.as_bytes());
        let found = all.get::<u64>(tx, name.as_bytes(), read).await?;
        found.map(|_| ()).ok_or(Error::NotFound("broker"))
    }
}

/// Refuses a new cost while the organisation's cap is reached and its action is to stop.
pub(super) async fn has_room(tx: &Transaction, organisation: Uuid, now_ms: u64) -> Result<()> {
    let whole = CapOf { organisation, broker: None };
    let found = whole.get(tx, Read::Serializable).await?.map(|found| found.value);
    let is_stop = |record: &SpendCapRecord| record.cap.is_some_and(|cap| cap.action == CapAction::Stop);
    match found.filter(is_stop).and_then(|record| record.reached_in) {
        Some(month_ms) if month_ms == month::of(now_ms).from_ms => Err(Error::Conflict(
            "the spend cap of this organisation is reached: raise it, or wait for the next month".into(),
        )),
        _ => Ok(()),
    }
}

impl Control {
    pub(crate) async fn spend_cap(&self, caller: &Caller, of: &CapOf) -> Result<Versioned<SpendCap>> {
        let found = self
            .look(|tx| async move {
                of.authorise(&tx, caller, Permission::BrokersRead, Read::Snapshot).await?;
                of.get(&tx, Read::Snapshot).await
            })
            .await?;
        let missing = Error::NotFound("spend cap");
        let Some(Document { value: SpendCapRecord { cap: Some(cap), reached_in }, version }) = found else {
            return Err(missing);
        };
        let now = month::of(self.now_ms());
        let value = SpendCap {
            monthly_micros: cap.monthly_micros,
            action: cap.action,
            spent_micros: self.spent(of, now.from_ms).await?,
            is_reached: reached_in == Some(now.from_ms),
            resets_at_ms: now.to_ms,
        };
        Ok(Versioned { value, version })
    }

    /// Creates or replaces a spend cap, and compares it with the usage at once.
    pub(crate) async fn set_spend_cap(
        &self,
        caller: &Caller,
        of: &CapOf,
        input: &NewSpendCap,
        seen: Precondition,
    ) -> Result<Versioned<SpendCap>> {
        if !(1..=NUMBER_MAX).contains(&input.monthly_micros) {
            let what = format!("must be a whole number from 1 to {NUMBER_MAX}: suspend a broker to stop it");
            return Err(Error::field("monthly_micros", what));
        }
        self.change(caller.into(), &Once::unnamed()?, |change| async move {
            change.use_reserve();
            let tx = &change.tx;
            of.authorise(tx, caller, Permission::OrganisationWrite, Read::Serializable).await?;
            let old = of.get(tx, Read::Serializable).await?;
            seen.check(old.as_ref().filter(|old| old.value.cap.is_some()).map(|old| old.version))?;
            let before = old.as_ref().and_then(|old| old.value.cap);
            let reached_in = old.and_then(|old| old.value.reached_in);
            let record = SpendCapRecord { cap: Some(*input), reached_in };
            accounts::spend_caps().put(tx, &of.id(), &record).await?;
            let said = difference(before.as_ref(), Some(input))?;
            change.audit(of.organisation, "spend_cap.set", &of.target(), said)
        })
        .await?;
        self.hold_caps_of(of.organisation).await?;
        self.spend_cap(caller, of).await
    }

    /// Brokers that the cap stopped run again.
    pub(crate) async fn delete_spend_cap(
        &self,
        caller: &Caller,
        of: &CapOf,
        seen: Precondition,
    ) -> Result<()> {
        self.change(caller.into(), &Once::unnamed()?, |change| async move {
            let tx = &change.tx;
            of.authorise(tx, caller, Permission::OrganisationWrite, Read::Serializable).await?;
            let found = of.get(tx, Read::Serializable).await?.filter(|found| found.value.cap.is_some());
            let Document { value, version } = found.ok_or(Error::NotFound("spend cap"))?;
            seen.check(Some(version))?;
            accounts::spend_caps().put(tx, &of.id(), &SpendCapRecord { cap: None, ..value }).await?;
            let said = difference(value.cap.as_ref(), None)?;
            change.audit(of.organisation, "spend_cap.delete", &of.target(), said)
        })
        .await?;
        self.hold_caps_of(of.organisation).await
    }

    /// Millionths of the currency.
    async fn spent(&self, of: &CapOf, from_ms: u64) -> Result<u64> {
        let brokers = self.look(|tx| async move { all_of(&tx, of.organisation).await }).await?;
        let mut spent: u64 = 0;
        for broker in brokers {
            if of.broker.as_ref().is_none_or(|name| name.as_bytes() == broker.name) {
                let used = self.used_since(broker.id, from_ms).await?;
                spent = spent.saturating_add(self.prices().of(&used));
            }
        }
        if of.broker.is_none() {
            let used = self.used_by_deleted(of.organisation, from_ms).await?;
            spent = spent.saturating_add(self.prices().of(&used));
        }
        Ok(spent)
    }
}
