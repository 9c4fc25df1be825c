//! The owner of this machine: an account without e-mail address and password. The server signs a browser in to it while nobody but
//! this machine can reach the server.

use millrace_layers::{
    accounts::{self, settings},
    catalog,
};
use millrace_storage::{Read, Transaction};
use serde_json::json;
use uuid::Uuid;

use super::accounts::{Newcomer, person, put_new};
use super::change::Change;
use super::{Control, Once, Result, Role, SignedIn, Source, members, organisations, setup};

/// The setting that holds the owner's id.
const OWNER: &[u8] = b"machine-owner";
/// How the owner is called, also in audit logs.
const NAME: &str = "Owner of this machine";

impl Control {
    /// Signs the owner of this machine in. The first time it makes the account, with an organisation that is named `machine` and gets
    /// the brokers that belong to nobody.
    ///
    /// The caller has to make sure that the request comes from this machine.
    ///
    /// # Errors
    /// See [`super::Error`].
    pub async fn sign_in_machine_owner(&self, machine: &str, source: &Source) -> Result<SignedIn> {
        let (id, organisation) = (self.new_id()?, self.new_id()?);
        let user = self
            .change(person(id, NAME, source.address), &Once::unnamed()?, |change| async move {
                let user = match owner(&change.tx).await? {
                    Some(user) => user,
                    None => {
                        let newcomer =
                            Newcomer { id, email: String::new(), name: NAME.into(), password: None };
                        put_new(&change, &newcomer).await?;
                        settings().put(&change.tx, OWNER, &id).await?;
                        id
                    }
                };
                let home = home(&change, user, organisation, machine).await?;
                setup::adopt(&change, home).await?;
                for (organisation, _) in members::of_user(&change.tx, user, Read::Snapshot).await? {
                    change.audit(organisation, "sign_in", NAME, json!({ "how": "local" }))?;
                }
                Ok(user)
            })
            .await?;
        self.start(user, source).await
    }
}

/// The owner of this machine, once there is one.
pub(super) async fn owner(tx: &Transaction) -> Result<Option<Uuid>> {
    Ok(settings().get::<Uuid>(tx, OWNER, Read::Serializable).await?.map(|owner| owner.value))
}

/// The first organisation of the owner of this machine.
pub(super) async fn organisation(tx: &Transaction) -> Result<Option<Uuid>> {
    let Some(owner) = owner(tx).await? else { return Ok(None) };
    let all = members::of_user(tx, owner, Read::Serializable).await?;
    Ok(all.first().map(|(organisation, _)| *organisation))
}

/// The organisation that the owner works in: the one that has the broker `default`, so that the owner sees what runs here; else the
/// owner's first one, which is made if there is none.
async fn home(change: &Change, user: Uuid, new: Uuid, machine: &str) -> Result<Uuid> {
    let tx = &change.tx;
    let own = members::of_user(tx, user, Read::Serializable).await?;
    let default = catalog::get(tx, catalog::DEFAULT, Read::Serializable).await?;
    let details = default.map(|broker| broker.details()).transpose()?;
    let has_default = details.and_then(|details| details.value.organisation?.parse::<Uuid>().ok());
    if let Some(organisation) = has_default
        && organisations::find(tx, organisation, Read::Serializable).await?.is_some()
    {
        if !own.iter().any(|(id, _)| *id == organisation) {
            members::add(change, organisation, user, Role::Owner).await?;
            change.audit(organisation, "member.add", NAME, json!({ "how": "local" }))?;
        }
        return Ok(organisation);
    }
    if let Some((organisation, _)) = own.first() {
        return Ok(*organisation);
    }
    organisations::create(change, new, machine, user).await?;
    Ok(new)
}

/// Whether somebody other than the owner of this machine has an account.
pub(super) async fn is_anybody_else_there(tx: &Transaction) -> Result<bool> {
    let owner = owner(tx).await?;
    let people = accounts::users().page::<serde_json::Value>(tx, None, 2, Read::Serializable).await?.items;
    Ok(people.iter().any(|(id, _)| owner.is_none_or(|owner| id != &owner.as_bytes()[..])))
}
