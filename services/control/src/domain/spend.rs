//! Spend caps: what an organisation, or one of its brokers, may cost in a month, and what happens then.

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

/// What happens when a spend cap is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CapAction {
    /// Clients are refused, and what they publish is. What is stored is kept, and goes to clients that are connected.
    Stop,
    /// It is only told, in the audit log.
    Continue,
}

/// What may be spent in a month (UTC).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSpendCap {
    /// Millionths of the region's currency.
    #[schema(minimum = 1)]
    pub monthly_micros: u64,
    /// What happens when it is reached.
    pub action: CapAction,
}

/// A spend cap, and how far it is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SpendCap {
    /// Millionths of the region's currency that may be spent in a month (UTC).
    pub monthly_micros: u64,
    /// What happens when they are.
    pub action: CapAction,
    /// What was spent in this month.
    pub spent_micros: u64,
    /// Whether it was reached, as of the last look half a minute ago or less.
    pub is_reached: bool,
    /// When the month is over, and counting begins anew, in unix milliseconds.
    pub resets_at_ms: u64,
}

/// Whose cap it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CapOf {
    pub(crate) organisation: Uuid,
    /// Of all brokers together, without one.
    pub(crate) broker: Option<String>,
}

/// A cap as it is stored. One without limits was taken away, and goes once nobody is held by it any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) cap: Option<NewSpendCap>,
    /// Beginning of the month in which it was reached, in unix milliseconds.
    pub(super) reached_in: Option<u64>,
}

impl CapOf {
    /// The id of its document: those of an organisation stand together.
    pub(super) fn id(&self) -> Vec<u8> {
        let name = self.broker.as_deref().unwrap_or_default();
        [self.organisation.as_bytes(), name.as_bytes()].concat()
    }

    /// What it is called in the audit log.
    pub(super) fn target(&self) -> String {
        self.broker.clone().unwrap_or_else(|| self.organisation.to_string())
    }

    pub(super) async fn get(&self, tx: &Transaction, read: Read) -> Result<Option<Document<Record>>> {
        Ok(accounts::spend_caps().get(tx, &self.id(), read).await?)
    }

    /// For somebody who may. A broker that is not the organisation's is not there.
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

/// Refuses what would cost an organisation more, when its cap is reached and stops its brokers.
///
/// # Errors
/// [`Error::Conflict`].
pub(super) async fn has_room(tx: &Transaction, organisation: Uuid, now_ms: u64) -> Result<()> {
    let whole = CapOf { organisation, broker: None };
    let found = whole.get(tx, Read::Serializable).await?.map(|found| found.value);
    let is_stop = |record: &Record| record.cap.is_some_and(|cap| cap.action == CapAction::Stop);
    match found.filter(is_stop).and_then(|record| record.reached_in) {
        Some(month_ms) if month_ms == month::of(now_ms).from_ms => Err(Error::Conflict(
            "the spend cap of this organisation is reached: raise it, or wait for the next month".into(),
        )),
        _ => Ok(()),
    }
}

impl Control {
    /// A spend cap.
    ///
    /// # Errors
    /// See [`Error`].
    pub(crate) async fn spend_cap(&self, caller: &Caller, of: &CapOf) -> Result<Versioned<SpendCap>> {
        let found = self
            .look(|tx| async move {
                of.authorise(&tx, caller, Permission::BrokersRead, Read::Snapshot).await?;
                of.get(&tx, Read::Snapshot).await
            })
            .await?;
        let missing = Error::NotFound("spend cap");
        let Some(Document { value: Record { cap: Some(cap), reached_in }, version }) = found else {
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

    /// Sets a spend cap, or replaces it. It holds at once.
    ///
    /// # Errors
    /// See [`Error`].
    pub(crate) async fn set_spend_cap(
        &self,
        caller: &Caller,
        of: &CapOf,
        input: &NewSpendCap,
        seen: Precondition,
    ) -> Result<Versioned<SpendCap>> {
        if input.monthly_micros == 0 {
            return Err(Error::field("monthly_micros", "it must be 1 or more: suspend a broker to stop it"));
        }
        self.change(caller.into(), &Once::unnamed()?, |change| async move {
            let tx = &change.tx;
            of.authorise(tx, caller, Permission::OrganisationWrite, Read::Serializable).await?;
            let old = of.get(tx, Read::Serializable).await?;
            seen.check(old.as_ref().filter(|old| old.value.cap.is_some()).map(|old| old.version))?;
            let before = old.as_ref().and_then(|old| old.value.cap);
            let reached_in = old.and_then(|old| old.value.reached_in);
            let record = Record { cap: Some(*input), reached_in };
            accounts::spend_caps().put(tx, &of.id(), &record).await?;
            let said = difference(before.as_ref(), Some(input))?;
            change.audit(of.organisation, "spend_cap.set", &of.target(), said)
        })
        .await?;
        self.hold_caps_of(of.organisation).await?;
        self.spend_cap(caller, of).await
    }

    /// Takes a spend cap away; who was stopped by it goes on.
    ///
    /// # Errors
    /// See [`Error`].
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
            accounts::spend_caps().put(tx, &of.id(), &Record { cap: None, ..value }).await?;
            let said = difference(value.cap.as_ref(), None)?;
            change.audit(of.organisation, "spend_cap.delete", &of.target(), said)
        })
        .await?;
        self.hold_caps_of(of.organisation).await
    }

    /// What was spent since a time.
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
