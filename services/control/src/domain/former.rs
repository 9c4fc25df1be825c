//! Deleted organisations. Operators can read their audit log and usage for 400 days; tenants cannot.

use millrace_layers::accounts::{
    self, audit,
    expiring::{Expiring, ExpiringKind},
};
use millrace_storage::{Read, Transaction};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::change::Change;
use super::{Control, Error, Page, PageRequest, Result, ledger, members, organisations};
use crate::limits::FORMER_ORGANISATION_MS;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FormerTenant {
    pub id: Uuid,
    pub name: String,
    #[schema(example = 1_760_000_000_000_u64)]
    pub created_at_ms: u64,
    /// Time of the deletion, in unix milliseconds.
    #[schema(example = 1_790_000_000_000_u64)]
    pub deleted_at_ms: u64,
    /// Time at which the audit log and usage are erased, in unix milliseconds.
    #[schema(example = 1_824_560_000_000_u64)]
    pub erased_at_ms: u64,
}

pub(super) async fn add(change: &Change, id: Uuid, record: &organisations::OrganisationRecord) -> Result<()> {
    let (tx, deleted_at_ms) = (&change.tx, change.now_ms);
    let erased_at_ms = deleted_at_ms + FORMER_ORGANISATION_MS;
    let (name, created_at_ms) = (record.name.clone(), record.created_at_ms);
    let former = FormerTenant { id, name, created_at_ms, deleted_at_ms, erased_at_ms };
    accounts::former_organisations().put(tx, id.as_bytes(), &former).await?;
    let id = id.as_bytes().to_vec().into();
    Ok(Expiring { at_ms: erased_at_ms, kind: ExpiringKind::FormerOrganisation, id }.schedule(tx)?)
}

pub(super) async fn expire(tx: &Transaction, id: &[u8], now_ms: u64) -> Result<()> {
    ledger::remove(tx, members::uuid(id)?, now_ms).await?;
    audit::clear(tx, id)?;
    Ok(accounts::former_organisations().clear(tx, id).await?)
}

/// Refuses an id that no organisation has or had, and one whose data is erased.
pub(super) async fn check_known(tx: &Transaction, id: Uuid) -> Result<()> {
    if organisations::find(tx, id, Read::Snapshot).await?.is_some() {
        return Ok(());
    }
    let all = accounts::former_organisations();
    let former = all.get::<FormerTenant>(tx, id.as_bytes(), Read::Snapshot).await?;
    former.map(|_| ()).ok_or(Error::NotFound("organisation"))
}

impl Control {
    pub async fn former_tenants(&self, page: &PageRequest) -> Result<Page<FormerTenant>> {
        self.look(|tx| async move {
            let all = accounts::former_organisations();
            let rows = all.page(&tx, page.after.as_deref(), page.limit, Read::Snapshot).await?;
            Ok(Page::of(rows, |_, former| former.value))
        })
        .await
    }
}
