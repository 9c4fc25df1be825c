//! Plans: upper bounds (ceilings) of the limits that tenants set for their brokers. Operators define plans and assign
//! one to a tenant.
//!
//! The ceiling is copied into the access record of each broker, so that servers read it together with the limits.

use millrace_access::model::Limits;
use millrace_layers::accounts::{self, touch};
use millrace_layers::catalog;
use millrace_storage::{Read, Transaction};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tracing::warn;
use utoipa::ToSchema;
use uuid::Uuid;

use super::change::{Change, use_reserve};
use super::check::{FieldErrors, room};
use super::error::of_one_tenant;
use super::usage::{all_of, read_all_of};
use super::{
    Caller, Control, Error, Once, Operator, Principal, Result, Role, Tenant, access, members, operator,
    organisations, organisations::OrganisationRecord,
};
use crate::limits::{PAGE_ROWS, PLAN_COPIES_FAILED_MAX, PLANS_MAX};

const DEFAULT: &str = "default";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Plan {
    #[schema(example = "small")]
    pub name: String,
    /// Upper bounds of a broker's limits. The server's own limit applies where one is null.
    pub ceiling: Limits,
    /// Whether every tenant sees the plan in `GET /plans`. A tenant always sees its own plan.
    #[serde(default)]
    pub is_public: bool,
}

#[derive(Clone, Serialize, Deserialize)]
struct PlanRecord {
    #[serde(flatten)]
    plan: Plan,
    /// Tenants have yet to get the ceiling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    copy: Option<PlanCopy>,
}

/// How far the copy of a plan's ceiling into the brokers of its tenants has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct PlanCopy {
    /// Tells apart two copies of a plan that were begun one after the other.
    #[serde(default)]
    id: Uuid,
    /// The ceiling before, for the audit logs of the tenants.
    before: Option<Limits>,
    #[serde(flatten)]
    operator: Operator,
    /// The last tenant that has it, in order of ids.
    done: Option<Uuid>,
    /// Tenants before `done` that do not have it yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    failed: Vec<Uuid>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct TenantPlan {
    #[schema(example = "small")]
    pub name: String,
    /// Upper bounds of a broker's limits. The server's own limit applies where one is null.
    pub ceiling: Limits,
    pub organisations: Vec<Uuid>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPlan {
    /// Upper bounds of a broker's limits. The server's own limit applies where one is null or left out.
    pub ceiling: Limits,
    /// Whether every tenant sees the plan. Left out: it stays as it is, and a new plan is seen by its tenants alone.
    pub is_public: Option<bool>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanChoice {
    /// Name of the plan; null: no plan.
    // With a function of its own, serde does not take a field that is left out for null.
    #[serde(deserialize_with = "Option::deserialize")]
    #[schema(required)]
    pub plan: Option<String>,
}

impl Control {
    pub async fn plans(&self) -> Result<Vec<Plan>> {
        self.look(|tx| async move {
            let page = accounts::plans().page::<Plan>(&tx, None, PLANS_MAX, Read::Snapshot).await?;
            Ok(page.items.into_iter().map(|(_, plan)| plan.value).collect())
        })
        .await
    }

    /// The plans that every tenant may see, and those of the caller's organisations, in order of names.
    pub(crate) async fn plans_for(&self, caller: &Caller) -> Result<Vec<TenantPlan>> {
        self.look(|tx| async move {
            let mut own = Vec::new();
            for id in organisations_of(&tx, caller).await? {
                own.push((id, operator::found(&tx, id).await?.plan));
            }
            let page = accounts::plans().page::<Plan>(&tx, None, PLANS_MAX, Read::Snapshot).await?;
            let shown = page.items.into_iter().filter_map(|(_, plan)| {
                let Plan { name, ceiling, is_public } = plan.value;
                let has_it = |(_, plan): &&(Uuid, Option<String>)| plan.as_ref() == Some(&name);
                let organisations: Vec<Uuid> = own.iter().filter(has_it).map(|(id, _)| *id).collect();
                let is_shown = is_public || !organisations.is_empty();
                is_shown.then_some(TenantPlan { name, ceiling, organisations })
            });
            Ok(shown.collect())
        })
        .await
    }

    /// Copies the ceiling into the brokers of each tenant with this plan, one broker in a transaction. The plan's record says how far
    /// the copy has come, so the sweep of any server continues a copy that was interrupted.
    pub async fn set_plan(&self, name: &str, input: &NewPlan, operator: &Operator) -> Result<Plan> {
        let mut fields = FieldErrors::default();
        fields.name("name", name);
        fields.done()?;
        input.ceiling.validate()?;
        let plan = self.store_plan(name, input, operator).await?;
        self.spread_plan(name).await?;
        Ok(plan)
    }

    pub(super) async fn store_plan(&self, name: &str, input: &NewPlan, operator: &Operator) -> Result<Plan> {
        let id = self.new_id()?;
        self.change(operator.into(), &Once::unnamed()?, |change| async move {
            change.use_reserve();
            let (tx, all) = (&change.tx, accounts::plans());
            let page = all.page::<PlanRecord>(tx, None, PLANS_MAX, Read::Serializable).await?;
            let count = page.items.len();
            let known = page.items.into_iter().find(|(known, _)| **known == *name.as_bytes());
            if known.is_none() {
                room(count, PLANS_MAX, "plans")?;
            }
            let before = known.map(|(_, known)| known.value);
            let was_public = before.as_ref().is_some_and(|before| before.plan.is_public);
            let is_public = input.is_public.unwrap_or(was_public);
            let plan = Plan { name: name.into(), ceiling: input.ceiling.clone(), is_public };
            let before = before.map(|before| before.plan.ceiling);
            let said = json!({ "before": before, "after": plan.ceiling, "is_public": is_public });
            let copy =
                Some(PlanCopy { id, before, operator: operator.clone(), done: None, failed: Vec::new() });
            all.put(tx, name.as_bytes(), &PlanRecord { plan: plan.clone(), copy }).await?;
            change.audit_of_region("plan.set", name, said)?;
            Ok(plan)
        })
        .await
    }

    /// Continues the copies of all plans that were interrupted, and tries tenants again that were passed over.
    pub async fn spread_plans(&self) -> Result<()> {
        let page = self.look(|tx| async move {
            Ok(accounts::plans().page::<PlanRecord>(&tx, None, PLANS_MAX, Read::Snapshot).await?)
        });
        let mut failed = Ok(());
        for (name, record) in page.await?.items {
            if record.value.copy.is_some() {
                let spread = of_one_tenant(self.spread_plan(&String::from_utf8_lossy(&name)).await)?;
                failed = spread.and(failed);
            }
        }
        failed
    }

    async fn spread_plan(&self, name: &str) -> Result<()> {
        while let Some(copy) = self.look(|tx| async move { copy_of(&tx, name, Read::Snapshot).await }).await?
        {
            let next = self.look(|tx| async move { next_tenant(&tx, name, copy.done, Read::Snapshot).await });
            let Some(tenant) = next.await? else { return self.end_copy(name, copy).await };
            let is_held = self.copy_plan(name, &copy, tenant).await?;
            let mut next = PlanCopy { done: Some(tenant), ..copy.clone() };
            if !is_held {
                room(next.failed.len(), PLAN_COPIES_FAILED_MAX, "tenants without the ceiling of their plan")?;
                next.failed.push(tenant);
            }
            self.note_copy(name, &copy, Some(next), is_held.then_some(tenant)).await?;
        }
        Ok(())
    }

    /// Tries the tenants again that were passed over, and ends the copy when none is left.
    async fn end_copy(&self, name: &str, mut copy: PlanCopy) -> Result<()> {
        for tenant in copy.failed.clone() {
            if self.copy_plan(name, &copy, tenant).await? {
                let mut next = copy.clone();
                next.failed.retain(|failed| *failed != tenant);
                self.note_copy(name, &copy, Some(next.clone()), Some(tenant)).await?;
                copy = next;
            }
        }
        if copy.failed.is_empty() { self.note_copy(name, &copy, None, None).await } else { Ok(()) }
    }

    /// Copies the plan into the brokers of a tenant, one in a transaction, because access records of earlier versions may be long. Returns
    /// false if it failed at one of them.
    async fn copy_plan(&self, name: &str, seen: &PlanCopy, tenant: Uuid) -> Result<bool> {
        let listed = of_one_tenant(self.look(|tx| async move { all_of(&tx, tenant).await }).await)?;
        let brokers = match listed {
            Ok(brokers) => brokers,
            Err(error) => {
                warn!(%error, plan = name, %tenant, "the brokers of a tenant could not be listed for the ceiling of their plan; the next round tries again");
                return Ok(false);
            }
        };
        let mut is_held = true;
        for broker in &brokers {
            let copied = self.write(|tx| async move {
                use_reserve(&tx);
                let Some(record) = copied_plan(&tx, name, seen).await? else { return Ok(()) };
                let of = organisations::find(&tx, tenant, Read::Serializable).await?;
                let known = catalog::get(&tx, &broker.name, Read::Serializable).await?;
                match (of, known) {
                    (Some(of), Some(broker)) if of.value.plan.as_deref() == Some(name) => {
                        hold(&tx, &broker, Some(&record.plan.ceiling)).await
                    }
                    _ => Ok(()),
                }
            });
            if let Err(error) = of_one_tenant(copied.await)? {
                warn!(%error, plan = name, %tenant, "a broker does not have the ceiling of its plan yet; the next round tries again");
                is_held = false;
            }
        }
        Ok(is_held)
    }

    /// Stores how far a copy has come. Another server may have been quicker: then the record differs from `seen`, and this server looks again.
    async fn note_copy(
        &self,
        name: &str,
        seen: &PlanCopy,
        next: Option<PlanCopy>,
        held: Option<Uuid>,
    ) -> Result<()> {
        let next = &next;
        self.change((&seen.operator).into(), &Once::unnamed()?, |change| async move {
            change.use_reserve();
            let tx = &change.tx;
            let Some(record) = copied_plan(tx, name, seen).await? else { return Ok(()) };
            let said = json!({ "before": seen.before, "after": record.plan.ceiling });
            let record = PlanRecord { copy: next.clone(), ..record };
            accounts::plans().put(tx, name.as_bytes(), &record).await?;
            let Some(tenant) = held else { return Ok(()) };
            match organisations::find(tx, tenant, Read::Serializable).await? {
                Some(of) if of.value.plan.as_deref() == Some(name) => {
                    change.audit(tenant, "plan.change", name, said)
                }
                _ => Ok(()),
            }
        })
        .await
    }

    pub async fn delete_plan(&self, name: &str, operator: &Operator) -> Result<()> {
        self.change(operator.into(), &Once::unnamed()?, |change| async move {
            change.use_reserve();
            let tx = &change.tx;
            let plan = find(tx, name).await?;
            // The read conflicts with an assignment of the plan at the same moment, so one of both transactions runs
            // again.
            if next_tenant(tx, name, None, Read::Serializable).await?.is_some() {
                return Err(Error::Conflict("tenants have this plan: give them another one first".into()));
            }
            accounts::plans().clear(tx, name.as_bytes()).await?;
            change.audit_of_region("plan.delete", name, json!({ "before": plan.ceiling }))
        })
        .await
    }

    pub async fn choose_plan(&self, id: Uuid, input: &PlanChoice, operator: &Operator) -> Result<Tenant> {
        self.change(operator.into(), &Once::unnamed()?, |change| async move {
            change.use_reserve();
            let tx = &change.tx;
            let record = operator::found(tx, id).await?;
            if let Some(name) = &input.plan {
                find(tx, name).await?;
            }
            let said = json!({ "before": { "plan": record.plan }, "after": { "plan": input.plan } });
            let record = OrganisationRecord { plan: input.plan.clone(), ..record };
            accounts::organisations().put(tx, id.as_bytes(), &record).await?;
            apply(&change, id, &record).await?;
            change.audit(id, "organisation.plan", &id.to_string(), said)?;
            operator::tenant(tx, id, record).await
        })
        .await
    }
}

async fn organisations_of(tx: &Transaction, caller: &Caller) -> Result<Vec<Uuid>> {
    match &caller.who {
        Principal::Token { organisation, .. } => Ok(vec![*organisation]),
        Principal::Person { user, .. } => {
            let all = members::of_user(tx, *user, Read::Snapshot).await?;
            Ok(all.into_iter().map(|(id, _)| id).collect())
        }
    }
}

async fn copy_of(tx: &Transaction, plan: &str, read: Read) -> Result<Option<PlanCopy>> {
    let record = accounts::plans().get::<PlanRecord>(tx, plan.as_bytes(), read).await?;
    Ok(record.and_then(|record| record.value.copy))
}

/// The first tenant with a plan, in order of ids, after the tenant `after`.
async fn next_tenant(tx: &Transaction, plan: &str, after: Option<Uuid>, read: Read) -> Result<Option<Uuid>> {
    let mut after = after.map(|id| id.as_bytes().to_vec());
    loop {
        let page = accounts::organisations()
            .page::<OrganisationRecord>(tx, after.as_deref(), PAGE_ROWS, read)
            .await?;
        if let Some((id, _)) = page.items.iter().find(|(_, of)| of.value.plan.as_deref() == Some(plan)) {
            return members::uuid(id).map(Some);
        }
        match page.items.last().filter(|_| page.more) {
            Some((id, _)) => after = Some(id.to_vec()),
            None => return Ok(None),
        }
    }
}

/// The plan of a new organisation: the plan of its owner's other organisations, so that a new organisation is no way
/// out of a plan; otherwise [`DEFAULT`], if operators have defined it.
pub(super) async fn of_new(tx: &Transaction, owner: Uuid) -> Result<Option<String>> {
    let mut strictest = None::<Plan>;
    for (own, role) in members::of_user(tx, owner, Read::Serializable).await? {
        if role == Role::Owner
            && let Some(name) = operator::found(tx, own).await?.plan
        {
            let plan = find(tx, &name).await?;
            let is_stricter = |other: &Plan| plan.ceiling.within(&other.ceiling) == plan.ceiling;
            if strictest.as_ref().is_none_or(is_stricter) {
                strictest = Some(plan);
            }
        }
    }
    match strictest {
        Some(plan) => Ok(Some(plan.name)),
        None => {
            let default = accounts::plans().get::<Plan>(tx, DEFAULT.as_bytes(), Read::Serializable).await?;
            Ok(default.map(|plan| plan.value.name))
        }
    }
}

pub(super) async fn of(tx: &Transaction, organisation: Uuid) -> Result<Option<Limits>> {
    ceiling(tx, &operator::found(tx, organisation).await?).await
}

async fn ceiling(tx: &Transaction, record: &OrganisationRecord) -> Result<Option<Limits>> {
    let Some(name) = &record.plan else { return Ok(None) };
    Ok(Some(find(tx, name).await?.ceiling))
}

async fn find(tx: &Transaction, name: &str) -> Result<Plan> {
    let plan = accounts::plans().get::<Plan>(tx, name.as_bytes(), Read::Serializable).await?;
    plan.map(|plan| plan.value).ok_or(Error::NotFound("plan"))
}

async fn apply(change: &Change, tenant: Uuid, record: &OrganisationRecord) -> Result<()> {
    let (tx, ceiling) = (&change.tx, ceiling(&change.tx, record).await?);
    for broker in read_all_of(tx, tenant, Read::Serializable).await? {
        hold(tx, &broker, ceiling.as_ref()).await?;
    }
    Ok(())
}

async fn hold(tx: &Transaction, broker: &catalog::BrokerRecord, ceiling: Option<&Limits>) -> Result<()> {
    let mut access = access::get(tx, broker, Read::Serializable).await?;
    if access.value.ceiling.as_ref() != ceiling {
        access.value.ceiling = ceiling.cloned();
        access::put(tx, broker.id, &access.value).await?;
        touch(tx, broker.id)?;
    }
    Ok(())
}

/// The plan's record, if its copy has come as far as `seen`.
async fn copied_plan(tx: &Transaction, name: &str, seen: &PlanCopy) -> Result<Option<PlanRecord>> {
    let record = accounts::plans().get::<PlanRecord>(tx, name.as_bytes(), Read::Serializable).await?;
    Ok(record.map(|record| record.value).filter(|record| record.copy.as_ref() == Some(seen)))
}

#[cfg(test)]
mod tests {
    use millrace_access::limits::{
        RULE_FILTER_BYTES_MAX, RULES_BYTES_MAX, RULES_MAX, SIGNING_KEY_BYTES_MAX, URL_BYTES_MAX,
    };
    use millrace_access::model::{Access, Action, Effect, Rule, WebhookAuth};

    use super::*;
    use crate::limits::{ACCESS_BYTES_MAX, NUMBER_MAX};

    fn largest(limits: &Limits) -> Limits {
        let mut shape = serde_json::to_value(limits).unwrap();
        for part in shape.as_object_mut().unwrap().values_mut().filter_map(|part| part.as_object_mut()) {
            part.values_mut().for_each(|limit| *limit = json!(NUMBER_MAX));
        }
        serde_json::from_value(shape).unwrap()
    }

    #[test]
    fn an_access_record_of_the_largest_size_fits_a_hundred_times_into_a_transaction() {
        let long = Rule::new(Effect::Deny, Action::Subscribe, &"a".repeat(RULE_FILTER_BYTES_MAX));
        let mut rules = vec![long; RULES_BYTES_MAX / RULE_FILTER_BYTES_MAX - 1];
        let left = (RULES_BYTES_MAX - rules.len() * RULE_FILTER_BYTES_MAX) / (RULES_MAX - rules.len());
        let short = Rule::new(Effect::Deny, Action::Subscribe, &"\u{1}".repeat(left / 6));
        rules.resize(RULES_MAX, Rule { retain: false, ..short });
        let limits = largest(&Limits::default());
        let webhook = WebhookAuth {
            url: format!("https://a/{}", "a".repeat(URL_BYTES_MAX - 10)),
            signing_key: Some("\u{1}".repeat(SIGNING_KEY_BYTES_MAX).as_str().into()),
            group: Some("a".repeat(64)),
            ..WebhookAuth::default()
        };
        let ceiling = Some(limits.clone());
        let access = Access { rules, webhook: Some(webhook), limits, ceiling, ..Access::default() };
        assert_eq!(access.validate(), Ok(()));
        let bytes = serde_json::to_vec(&access).unwrap().len();
        assert!((ACCESS_BYTES_MAX / 3..ACCESS_BYTES_MAX).contains(&bytes), "{bytes}");
    }
}
