//! Setup of a region: each start of a server prints a link until [`is_complete`], and the first person who signs up with a
//! link gets the brokers of the server's settings.

use millrace_layers::{
    BrokerId,
    accounts::{self, settings, touch},
    catalog,
};
use millrace_storage::{Read, Transaction};
use serde::{Deserialize, Serialize};
use serde_json::json;
use uuid::Uuid;

use super::change::Change;
use super::{Control, Result, access, machine, organisations};
use crate::limits::SETUP_MS;
use crate::secret::{self, Hash, Purpose, Secret};

const SETUP: &[u8] = b"setup";

/// Brokers that one transaction reads to adopt them; brokers after these stay without an organisation.
const ADOPTED_MAX: usize = 1_000;

/// Links valid at once, because several servers may start together; one more invalidates the oldest.
const LINKS_MAX: usize = 16;

#[derive(Serialize, Deserialize)]
struct SetupLink {
    hash: Hash,
    expires_at_ms: u64,
}

impl Control {
    /// Stores a new link and returns its secret, or `None` once setup is complete.
    pub async fn setup(&self) -> Result<Option<Secret>> {
        let (secret, now_ms) = (secret::generate()?, self.now_ms());
        let hash = self.setup_hash(&secret)?;
        let is_open = self
            .write(|tx| async move {
                if is_complete(&tx).await? {
                    return Ok(false);
                }
                let mut links = links(&tx).await?;
                links.retain(|link| now_ms < link.expires_at_ms);
                let surplus = (links.len() + 1).saturating_sub(LINKS_MAX);
                links.drain(..surplus);
                links.push(SetupLink { hash, expires_at_ms: now_ms + SETUP_MS });
                settings().put(&tx, SETUP, &links).await?;
                Ok(true)
            })
            .await?;
        Ok(is_open.then_some(secret))
    }

    pub(super) async fn is_setup(&self, tx: &Transaction, secret: &Secret, now_ms: u64) -> Result<bool> {
        let hash = self.setup_hash(secret)?;
        let is_valid = |link: &SetupLink| is_same(&link.hash, &hash) && now_ms < link.expires_at_ms;
        Ok(links(tx).await?.iter().any(is_valid))
    }

    /// If the secret is that of a valid link, invalidates all links and returns true.
    pub(super) async fn take_setup(&self, change: &Change, secret: &Secret) -> Result<bool> {
        let is_valid = self.is_setup(&change.tx, secret, change.now_ms).await?;
        if is_valid {
            settings().clear(&change.tx, SETUP).await?;
        }
        Ok(is_valid)
    }

    fn setup_hash(&self, secret: &Secret) -> Result<Hash> {
        self.hash(Purpose::Setup, &[secret.expose().as_bytes()])
    }
}

/// Whether the organisation of the broker `default` has a member besides the owner of this machine. An account alone does
/// not count, because a stranger may have signed up, unless the region has no such broker.
async fn is_complete(tx: &Transaction) -> Result<bool> {
    let Some(default) = catalog::get(tx, catalog::DEFAULT, Read::Serializable).await? else {
        return machine::is_anybody_else_there(tx).await;
    };
    let organisation = default.details()?.value.organisation;
    match organisation.and_then(|organisation| organisation.parse::<Uuid>().ok()) {
        Some(organisation) => {
            let owner = machine::owner(tx).await?;
            let members = accounts::members(organisation.as_bytes());
            let page = members.page::<serde_json::Value>(tx, None, 2, Read::Serializable).await?;
            let is_there = organisations::find(tx, organisation, Read::Serializable).await?.is_some();
            Ok(is_there
                && page.items.iter().any(|(id, _)| owner.is_none_or(|owner| id != &owner.as_bytes()[..])))
        }
        None => Ok(false),
    }
}

async fn links(tx: &Transaction) -> Result<Vec<SetupLink>> {
    Ok(settings().get(tx, SETUP, Read::Serializable).await?.map_or_else(Vec::new, |links| links.value))
}

/// Gives the organisation the brokers of the server's settings, which belong to no organisation yet.
pub(super) async fn adopt(change: &Change, organisation: Uuid) -> Result<()> {
    let tx = &change.tx;
    for broker in catalog::list(tx, None, ADOPTED_MAX).await? {
        let mut details = broker.details()?.value;
        if details.organisation.is_some() {
            continue;
        }
        let name = String::from_utf8_lossy(&broker.name).into_owned();
        details.organisation = Some(organisation.to_string());
        details.display_name.clone_from(&name);
        details.by_settings = true;
        catalog::describe(tx, &broker, &details).await?;
        let access = access::for_change(tx, organisation, &broker).await?.value;
        // `for_change` has added the ceiling of the tenant's plan, if it has one.
        if access.ceiling.is_some() {
            access::put(tx, broker.id, &access).await?;
            touch(tx, broker.id)?;
        }
        add_broker(change, organisation, &name, broker.id).await?;
        change.audit(organisation, "broker.adopt", &name, json!({}))?;
    }
    Ok(())
}

pub(super) async fn add_broker(change: &Change, organisation: Uuid, name: &str, id: BrokerId) -> Result<()> {
    accounts::brokers_of(organisation.as_bytes()).put(&change.tx, name.as_bytes(), &id).await?;
    Ok(())
}

fn is_same(one: &Hash, other: &Hash) -> bool {
    use subtle::ConstantTimeEq as _;
    one.ct_eq(other).into()
}
