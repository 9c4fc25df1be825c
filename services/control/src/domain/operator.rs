//! Operations of the region's operators: list, suspend and resume them, and find their brokers. These
//! operations check no permission, because the admin port authenticates operators.

use millrace_layers::accounts::{self, touch};
use millrace_layers::catalog;
use millrace_layers::pods;
use millrace_storage::{Read, Transaction};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;
use uuid::Uuid;

use super::organisations::{self, OrganisationRecord};
use super::usage::{all_of, read_all_of};
use super::{Control, Error, Once, Operator, Page, PageRequest, Result, Used, month, names};
use crate::limits::{LOUDEST_LOOKED_AT, MEMBERS_MAX, NAME_CHARS_MAX, PAGE_ROWS};

/// A tenant's suspension by an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Suspension {
    /// Start of the suspension, in unix milliseconds.
    pub since_ms: u64,
    #[schema(example = "the invoice of September is not paid")]
    pub reason: String,
    /// Brokers that the suspension stopped. Brokers that were suspended before are not listed, so that resuming the
    /// tenant leaves them suspended.
    pub brokers: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Tenant {
    pub id: Uuid,
    pub name: String,
    pub created_at_ms: u64,
    pub members: usize,
    pub brokers: usize,
    /// Null: it is not suspended.
    pub suspension: Option<Suspension>,
    /// Name of its plan; null: no plan.
    pub plan: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TenantBroker {
    /// Name in the region.
    pub name: String,
    pub display_name: String,
    pub suspended: bool,
    pub created_at_ms: u64,
    /// The tenant; null: the broker comes from the server's settings, and belongs to no organisation.
    pub tenant: Option<Tenant>,
}

/// A tenant's usage in this month.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LoudTenant {
    pub id: Uuid,
    pub name: String,
    pub used: Used,
}

/// The tenants that have published the most messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Loudest {
    /// The tenant with the most messages first.
    pub items: Vec<LoudTenant>,
    /// Whether tenants are missing: the server compares a bounded number of them.
    pub incomplete: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PodLease {
    pub name: String,
    /// End of its lease, in unix milliseconds. The pod extends the lease while it is alive.
    pub until_ms: u64,
    pub is_alive: bool,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSuspension {
    /// The reason, for people; the tenant's audit log shows it.
    #[schema(example = "invoice 4711 is not paid", min_length = 1, max_length = 100)]
    pub reason: String,
}

impl Control {
    pub async fn tenants(&self, page: &PageRequest) -> Result<Page<Tenant>> {
        self.look(|tx| async move {
            let all = accounts::organisations();
            let rows = all
                .page::<OrganisationRecord>(&tx, page.after.as_deref(), page.limit, Read::Snapshot)
                .await?;
            let rows = Page::of(rows, |id, record| (id.to_vec(), record.value));
            let mut items = Vec::with_capacity(rows.items.len());
            for (id, record) in rows.items {
                items.push(tenant(&tx, super::members::uuid(&id)?, record).await?);
            }
            Ok(Page { items, next: rows.next })
        })
        .await
    }

    pub async fn tenant(&self, id: Uuid) -> Result<Tenant> {
        self.look(|tx| async move {
            let found = organisations::find(&tx, id, Read::Snapshot).await?;
            tenant(&tx, id, found.ok_or(Error::NotFound("organisation"))?.value).await
        })
        .await
    }

    /// Suspends a tenant and all its brokers: clients cannot connect, and the tenant can neither resume nor create a
    /// broker. If the tenant is already suspended, this replaces the reason, and suspends brokers that run
    /// nevertheless.
    pub async fn suspend_tenant(
        &self,
        id: Uuid,
        input: &NewSuspension,
        operator: &Operator,
    ) -> Result<Tenant> {
        let reason = input.reason.trim();
        if reason.is_empty() || reason.chars().count() > NAME_CHARS_MAX {
            return Err(Error::field("reason", format!("must have 1 to {NAME_CHARS_MAX} characters")));
        }
        names::check(reason).map_err(|what| Error::field("reason", what))?;
        self.change(operator.into(), &Once::unnamed()?, |change| async move {
            change.use_reserve();
            let tx = &change.tx;
            let record = found(tx, id).await?;
            let mut stopped = Vec::new();
            // A serializable read: a broker that is resumed or created at this moment makes this transaction run again.
            for broker in read_all_of(tx, id, Read::Serializable).await? {
                if set_suspended(tx, &broker, true).await? {
                    stopped.push(String::from_utf8_lossy(&broker.name).into_owned());
                }
            }
            let said = json!({ "reason": reason, "brokers": stopped });
            let (since_ms, before) = match &record.suspended {
                Some(before) => (before.since_ms, before.brokers.clone()),
                None => (change.now_ms, Vec::new()),
            };
            stopped.retain(|name| !before.contains(name));
            let brokers = [before, stopped].concat();
            let suspended = Suspension { since_ms, reason: reason.into(), brokers };
            let record = OrganisationRecord { suspended: Some(suspended), ..record };
            accounts::organisations().put(tx, id.as_bytes(), &record).await?;
            change.audit(id, "organisation.suspend", &id.to_string(), said)?;
            tenant(tx, id, record).await
        })
        .await
    }

    /// Ends a suspension, and resumes the brokers that it stopped; [`Error::Conflict`] if the tenant is not suspended.
    pub async fn resume_tenant(&self, id: Uuid, operator: &Operator) -> Result<Tenant> {
        self.change(operator.into(), &Once::unnamed()?, |change| async move {
            change.use_reserve();
            let tx = &change.tx;
            let mut record = found(tx, id).await?;
            let suspended = record.suspended.take();
            let suspended = suspended.ok_or_else(|| {
                Error::Conflict("the tenant is not suspended: there is nothing to resume".into())
            })?;
            for broker in read_all_of(tx, id, Read::Serializable).await? {
                if suspended.brokers.iter().any(|name| name.as_bytes() == broker.name) {
                    set_suspended(tx, &broker, false).await?;
                }
            }
            accounts::organisations().put(tx, id.as_bytes(), &record).await?;
            let said = json!({ "brokers": suspended.brokers });
            change.audit(id, "organisation.resume", &id.to_string(), said)?;
            tenant(tx, id, record).await
        })
        .await
    }

    pub async fn loudest(&self, count: usize) -> Result<Loudest> {
        let from_ms = month::of(self.now_ms()).from_ms;
        let (mut items, mut after) = (Vec::new(), None);
        loop {
            let from = &after;
            let rows = self.look(|tx| async move {
                let all = accounts::organisations();
                let rows =
                    all.page::<OrganisationRecord>(&tx, from.as_deref(), PAGE_ROWS, Read::Snapshot).await?;
                Ok(Page::of(rows, |id, record| (id.to_vec(), record.value.name)))
            });
            let rows: Page<(Vec<u8>, String)> = rows.await?;
            for (id, name) in rows.items {
                let id = super::members::uuid(&id)?;
                let mut used = self.used_by_deleted(id, from_ms).await?;
                for broker in self.look(|tx| async move { all_of(&tx, id).await }).await? {
                    used.add(&self.used_since(broker.id, from_ms).await?);
                }
                items.push(LoudTenant { id, name, used: used.shown() });
            }
            after = rows.next;
            if after.is_none() || items.len() >= LOUDEST_LOOKED_AT {
                break;
            }
        }
        items.sort_by_key(|tenant| std::cmp::Reverse(tenant.used.messages_in));
        items.truncate(count);
        Ok(Loudest { items, incomplete: after.is_some() })
    }

    pub async fn tenant_broker(&self, name: &str) -> Result<TenantBroker> {
        self.look(|tx| async move {
            let found = catalog::get(&tx, name.as_bytes(), Read::Snapshot).await?;
            let details = found.ok_or(Error::NotFound("broker"))?.details()?.value;
            let id = details.organisation.as_ref().and_then(|id| id.parse::<Uuid>().ok());
            let tenant = match id {
                Some(id) => match organisations::find(&tx, id, Read::Snapshot).await? {
                    Some(found) => Some(tenant(&tx, id, found.value).await?),
                    None => None,
                },
                None => None,
            };
            let (display_name, suspended) = (details.display_name, details.suspended);
            let created_at_ms = details.created_at_ms;
            Ok(TenantBroker { name: name.into(), display_name, suspended, created_at_ms, tenant })
        })
        .await
    }

    pub async fn pods(&self) -> Result<Vec<PodLease>> {
        let now_ms = self.now_ms();
        let all = self.look(|tx| async move { Ok(pods::list(&tx).await?) }).await?;
        let shown = |pod: pods::Pod| PodLease {
            name: String::from_utf8_lossy(&pod.name).into_owned(),
            until_ms: pod.until_ms,
            is_alive: now_ms <= pod.until_ms,
        };
        Ok(all.into_iter().map(shown).collect())
    }
}

/// # Errors
/// [`Error::Forbidden`] with the reason for a suspended organisation.
pub(super) async fn is_open(tx: &Transaction, organisation: Uuid, read: Read) -> Result<()> {
    let found = organisations::find(tx, organisation, read).await?;
    match found.and_then(|found| found.value.suspended) {
        None => Ok(()),
        Some(Suspension { reason, .. }) => Err(Error::Forbidden(format!(
            "the operator of this service has suspended this organisation: {reason}"
        ))),
    }
}

pub(super) async fn found(tx: &Transaction, id: Uuid) -> Result<OrganisationRecord> {
    let found = organisations::find(tx, id, Read::Serializable).await?;
    Ok(found.ok_or(Error::NotFound("organisation"))?.value)
}

pub(super) async fn tenant(tx: &Transaction, id: Uuid, record: OrganisationRecord) -> Result<Tenant> {
    let members = accounts::members(id.as_bytes());
    let members = members.page::<serde_json::Value>(tx, None, MEMBERS_MAX, Read::Snapshot).await?;
    let brokers = all_of(tx, id).await?.len();
    let OrganisationRecord { name, created_at_ms, suspended, plan } = record;
    let members = members.items.len();
    Ok(Tenant { id, name, created_at_ms, members, brokers, suspension: suspended, plan })
}

async fn set_suspended(tx: &Transaction, broker: &catalog::BrokerRecord, suspended: bool) -> Result<bool> {
    let mut details = broker.details()?.value;
    if details.suspended == suspended {
        return Ok(false);
    }
    details.suspended = suspended;
    catalog::describe(tx, broker, &details).await?;
    touch(tx, broker.id)?;
    Ok(true)
}
