//! Organisations: the tenants, to which brokers belong.

use millrace_layers::{accounts, documents::Document};
use millrace_storage::{Read, Transaction};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;
use uuid::Uuid;

use super::change::Change;
use super::check::FieldErrors;
use super::parts::{Precondition, Versioned};
use super::{
    Caller, Control, Error, Once, Permission, Result, Role, accounts::person_of, authorise, brokers, former,
    invitations, members, month, operator, operator::Suspension, plans, tokens, web_sessions,
};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Organisation {
    pub id: Uuid,
    pub name: String,
    /// When it was made, in unix milliseconds.
    pub created_at_ms: u64,
}

/// A new organisation, or the new name of one.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewOrganisation {
    #[schema(example = "Plant 7", min_length = 1, max_length = 100)]
    pub name: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct OrganisationRecord {
    pub(super) name: String,
    pub(super) created_at_ms: u64,
    /// Set while an operator has suspended the organisation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) suspended: Option<Suspension>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) plan: Option<String>,
}

impl Control {
    /// The caller becomes the first owner.
    pub async fn create_organisation(
        &self,
        caller: &Caller,
        input: &NewOrganisation,
        once: &Once,
    ) -> Result<Versioned<Organisation>> {
        let (user, sign_in) = person_of(caller)?;
        input.check()?;
        let id = self.new_id()?;
        self.change(caller.into(), once, |change| async move {
            web_sessions::still_there(&change.tx, sign_in, change.now_ms, Read::Serializable).await?;
            for (own, role) in members::of_user(&change.tx, user, Read::Serializable).await? {
                if role == Role::Owner {
                    operator::is_open(&change.tx, own, Read::Serializable).await?;
                }
            }
            create(&change, id, &input.name, user).await?;
            get(&change.tx, id, Read::Serializable).await
        })
        .await
    }

    pub async fn organisation(&self, caller: &Caller, id: Uuid) -> Result<Versioned<Organisation>> {
        self.look(|tx| async move {
            authorise(&tx, caller, id, Permission::OrganisationRead, Read::Snapshot).await?;
            get(&tx, id, Read::Snapshot).await
        })
        .await
    }

    pub async fn rename_organisation(
        &self,
        caller: &Caller,
        id: Uuid,
        input: &NewOrganisation,
        seen: &Precondition,
        once: &Once,
    ) -> Result<Versioned<Organisation>> {
        input.check()?;
        self.change(caller.into(), once, |change| async move {
            let tx = &change.tx;
            authorise(tx, caller, id, Permission::OrganisationWrite, Read::Serializable).await?;
            let Document { value, version } =
                find(tx, id, Read::Serializable).await?.ok_or(Error::NotFound("organisation"))?;
            seen.check(Some(version))?;
            let before = value.name.clone();
            let record = OrganisationRecord { name: input.name.clone(), ..value };
            let version = accounts::organisations().put(tx, id.as_bytes(), &record).await?;
            change.audit(
                id,
                "organisation.change",
                &id.to_string(),
                json!({ "name": input.name, "before": before }),
            )?;
            Ok(Versioned { value: record.shown(id), version })
        })
        .await
    }

    /// Removes an organisation without brokers. A suspended organisation stays, and so does one whose usage of this
    /// month costs something.
    pub async fn delete_organisation(
        &self,
        caller: &Caller,
        id: Uuid,
        seen: &Precondition,
        once: &Once,
    ) -> Result<()> {
        self.change(caller.into(), once, |change| async move {
            change.use_reserve();
            let tx = &change.tx;
            authorise(tx, caller, id, Permission::OrganisationWrite, Read::Serializable).await?;
            let found = find(tx, id, Read::Serializable).await?.ok_or(Error::NotFound("organisation"))?;
            seen.check(Some(found.version))?;
            if brokers::has_any(tx, id).await? {
                return Err(Error::Conflict("the organisation has brokers: delete them first".into()));
            }
            let used = self.used_by_deleted(id, month::of(change.now_ms).from_ms).await?;
            if self.prices().of(&used) > 0 {
                let what = "its brokers have used something in this month that is to be paid: delete it when the month (UTC) is over";
                return Err(Error::Conflict(what.into()));
            }
            members::remove_all(tx, id).await?;
            invitations::remove_all(tx, id).await?;
            tokens::remove_all(tx, id).await?;
            accounts::spend_caps().clear(tx, id.as_bytes()).await?;
            change.audit(id, "organisation.delete", &id.to_string(), json!({ "name": found.value.name }))?;
            former::add(&change, id, &found.value).await?;
            Ok(accounts::organisations().clear(tx, id.as_bytes()).await?)
        })
        .await
    }
}

impl NewOrganisation {
    fn check(&self) -> Result<()> {
        let mut fields = FieldErrors::default();
        fields.name("name", &self.name);
        fields.done()
    }
}

impl OrganisationRecord {
    fn shown(self, id: Uuid) -> Organisation {
        Organisation { id, name: self.name, created_at_ms: self.created_at_ms }
    }
}

pub(super) async fn create(change: &Change, id: Uuid, name: &str, owner: Uuid) -> Result<()> {
    let plan = plans::of_new(&change.tx, owner).await?;
    let record =
        OrganisationRecord { name: name.into(), created_at_ms: change.now_ms, suspended: None, plan };
    accounts::organisations().put(&change.tx, id.as_bytes(), &record).await?;
    members::add(change, id, owner, Role::Owner).await?;
    change.audit(id, "organisation.create", &id.to_string(), json!({ "name": name }))
}

pub(super) async fn find(
    tx: &Transaction,
    id: Uuid,
    read: Read,
) -> Result<Option<Document<OrganisationRecord>>> {
    Ok(accounts::organisations().get(tx, id.as_bytes(), read).await?)
}

async fn get(tx: &Transaction, id: Uuid, read: Read) -> Result<Versioned<Organisation>> {
    let found = find(tx, id, read).await?.ok_or(Error::NotFound("organisation"))?;
    Ok(Versioned { value: found.value.shown(id), version: found.version })
}
