//! The owner of this machine: an account without e-mail address and password. The server signs in a browser as this
//! owner only while all of its listeners are on loopback addresses.

use millrace_layers::{
    accounts::{self, settings},
    catalog,
};
use millrace_storage::{Read, Transaction};
use serde_json::json;
use uuid::Uuid;

use super::accounts::{Newcomer, audit_as, person, put_unindexed};
use super::audit::Actor;
use super::change::Change;
use super::web_sessions::shortened;
use super::{Control, Once, RequestSource, Result, Role, SignedIn, members, organisations, setup};

const OWNER: &[u8] = b"machine-owner";
/// Audit logs show this name.
const NAME: &str = "Owner of this machine";

impl Control {
    /// The first call creates the account and an organisation named `machine`, which gets the brokers that belong
    /// to no organisation.
    ///
    /// The caller must make sure that the request comes from this machine.
    pub async fn sign_in_machine_owner(&self, machine: &str, source: &RequestSource) -> Result<SignedIn> {
        let (id, organisation) = (self.new_id()?, self.new_id()?);
        let known = self.look(|tx| async move { owner(&tx).await }).await?;
        let agent = source.user_agent.as_deref().map(shortened);
        let actor = Actor { agent, ..person(known.unwrap_or(id), NAME, source.address) };
        let user = self
            .change(actor, &Once::unnamed()?, |change| async move {
                change.use_reserve();
                let user = match owner(&change.tx).await? {
                    Some(user) => user,
                    None => {
                        let newcomer =
                            Newcomer { id, email: String::new(), name: NAME.into(), password: None };
                        put_unindexed(&change, &newcomer).await?;
                        settings().put(&change.tx, OWNER, &id).await?;
                        id
                    }
                };
                let home = home(&change, user, organisation, machine).await?;
                setup::adopt(&change, home).await?;
                audit_as(&change, user, "sign_in", NAME, json!({ "how": "local" })).await?;
                Ok(user)
            })
            .await?;
        self.start(user, source).await
    }
}

pub(super) async fn owner(tx: &Transaction) -> Result<Option<Uuid>> {
    Ok(settings().get::<Uuid>(tx, OWNER, Read::Serializable).await?.map(|owner| owner.value))
}

/// The organisation that a person joins who takes the link of the first start, if the owner has one.
pub(super) async fn organisation(tx: &Transaction) -> Result<Option<Uuid>> {
    let Some(owner) = owner(tx).await? else { return Ok(None) };
    let all = members::of_user(tx, owner, Read::Serializable).await?;
    Ok(all.first().map(|(organisation, _)| *organisation))
}

/// The organisation that the owner works in: the one with the broker `default`, so that the owner sees what runs here;
/// otherwise the owner's first one, created if necessary.
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

pub(super) async fn is_anybody_else_there(tx: &Transaction) -> Result<bool> {
    let owner = owner(tx).await?;
    let people = accounts::users().page::<serde_json::Value>(tx, None, 2, Read::Serializable).await?.items;
    Ok(people.iter().any(|(id, _)| owner.is_none_or(|owner| id != &owner.as_bytes()[..])))
}
