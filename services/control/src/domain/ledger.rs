//! Usage of deleted brokers, so that invoices and spend caps still count it.
//!
//! A deleted broker is *former* until its usage has moved to the ledger of its organisation, one month per transaction;
//! then its keys are erased. Each hour of usage is in exactly one of the two at any time.

use millrace_layers::BrokerId;
use millrace_layers::accounts;
use millrace_layers::catalog;
use millrace_layers::limits::USAGE_WINDOWS_KEPT;
use millrace_layers::metering::{Fold, WINDOW_MS, fold};
use millrace_storage::{Read, Transaction};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::change::{Change, use_reserve};
use super::{Control, Error, Result};
use crate::limits::{FORMER_BROKERS_MAX, FORMER_BROKERS_READ};

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct FormerBroker {
    organisation: Uuid,
    pub(super) ended_ms: u64,
    /// The ledger has the usage until then, in unix milliseconds.
    pub(super) from_ms: u64,
}

pub(super) async fn add(change: &Change, organisation: Uuid, id: BrokerId, created_at_ms: u64) -> Result<()> {
    let oldest_ms = change.now_ms.saturating_sub(USAGE_WINDOWS_KEPT * WINDOW_MS);
    let former =
        FormerBroker { organisation, ended_ms: change.now_ms, from_ms: created_at_ms.max(oldest_ms) };
    accounts::former_brokers().put(&change.tx, &id.to_be_bytes(), &former).await?;
    accounts::former_brokers_of(organisation.as_bytes()).put(&change.tx, &id.to_be_bytes(), &()).await?;
    Ok(())
}

/// Every deleted broker is read for the usage of its organisation, so their number is limited until the sweep has settled them.
///
/// # Errors
/// [`Error::Conflict`] while too many brokers of the organisation are deleted and not settled.
pub(super) async fn has_room(tx: &Transaction, organisation: Uuid) -> Result<()> {
    let all = accounts::former_brokers_of(organisation.as_bytes());
    // A snapshot read, so that deletions do not conflict; [`FORMER_BROKERS_READ`] has room for some that pass together.
    let count = all.page::<()>(tx, None, FORMER_BROKERS_MAX, Read::Snapshot).await?.items.len();
    if count < FORMER_BROKERS_MAX {
        return Ok(());
    }
    let what = "many brokers of this organisation were deleted just now, and their usage is being settled: try again in a minute";
    Err(Error::Conflict(what.into()))
}

pub(super) async fn former(tx: &Transaction, organisation: Uuid) -> Result<Vec<(BrokerId, FormerBroker)>> {
    let all = accounts::former_brokers_of(organisation.as_bytes());
    let mut found = Vec::new();
    for (id, _) in all.page::<()>(tx, None, FORMER_BROKERS_READ, Read::Snapshot).await?.items {
        let former = accounts::former_brokers().get::<FormerBroker>(tx, &id, Read::Snapshot).await?;
        found.extend(former.map(|former| Ok::<_, Error>((broker_id(&id)?, former.value))).transpose()?);
    }
    Ok(found)
}

/// The ledger of an organisation: its usage is stored under a broker id that no broker has. `None` if none of its brokers was ever deleted.
pub(super) async fn of(tx: &Transaction, organisation: Uuid, read: Read) -> Result<Option<BrokerId>> {
    let ledger = accounts::ledgers().get::<BrokerId>(tx, organisation.as_bytes(), read).await?;
    Ok(ledger.map(|ledger| ledger.value))
}

impl Control {
    /// Moves a deleted broker's usage to the ledger, so that the broker can be erased.
    pub(super) async fn settle(&self, broker: BrokerId) -> Result<()> {
        while self.write(|tx| async move { settle_month(&tx, broker).await }).await? {}
        Ok(())
    }
}

/// Returns whether more months remain.
async fn settle_month(tx: &Transaction, broker: BrokerId) -> Result<bool> {
    use_reserve(tx);
    let (all, id) = (accounts::former_brokers(), broker.to_be_bytes());
    let Some(found) = all.get::<FormerBroker>(tx, &id, Read::Serializable).await? else { return Ok(false) };
    let FormerBroker { organisation, ended_ms, from_ms } = found.value;
    let ledger = match of(tx, organisation, Read::Serializable).await? {
        Some(ledger) => ledger,
        None => {
            let ledger = catalog::new_id(tx).await?;
            accounts::ledgers().put(tx, organisation.as_bytes(), &ledger).await?;
            ledger
        }
    };
    let next_ms = fold(tx, Fold { broker, ledger, ended_ms }, from_ms).await?;
    match next_ms {
        Some(from_ms) => {
            all.put(tx, &id, &FormerBroker { from_ms, ..found.value }).await?;
        }
        None => {
            all.clear(tx, &id).await?;
            accounts::former_brokers_of(organisation.as_bytes()).clear(tx, &id).await?;
        }
    }
    Ok(next_ms.is_some())
}

/// Erases the ledger of an organisation as a deleted broker is erased. The organisation was deleted
/// [`FORMER_ORGANISATION_MS`](crate::limits::FORMER_ORGANISATION_MS) ago, so all its brokers are settled.
pub(super) async fn remove(tx: &Transaction, organisation: Uuid, now_ms: u64) -> Result<()> {
    if let Some(ledger) = of(tx, organisation, Read::Serializable).await? {
        catalog::condemn_id(tx, ledger, now_ms)?;
        accounts::ledgers().clear(tx, organisation.as_bytes()).await?;
    }
    Ok(())
}

fn broker_id(id: &[u8]) -> Result<BrokerId> {
    let bytes = id.try_into().map_err(|_| Error::Internal("a stored id cannot be read"))?;
    Ok(BrokerId::from_be_bytes(bytes))
}
