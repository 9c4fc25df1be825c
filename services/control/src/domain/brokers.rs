//! Brokers of an organisation: create, list, change, suspend and delete them.
//!
//! A broker has an entry in the catalog, which servers look up at each CONNECT, one in its organisation's list, and its
//! access settings. The API's version is that of the catalog's entry, so a change of limits writes that entry too. Each
//! change touches the counter by which servers notice that they must read the settings again.

use bytes::Bytes;
use millrace_access::model::{Access, ClientLimits, Limits};
use millrace_layers::{
    BrokerId,
    accounts::{self, touch},
    catalog::{self, Details},
};
use millrace_storage::{Read, Transaction};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;
use uuid::Uuid;

use super::check::{FieldErrors, room};
use super::difference::{difference, with};
use super::limit_changes::{limited, merged};
use super::parts::{Precondition, Versioned};
use super::{
    Caller, Control, Endpoints, Error, Once, Page, PageRequest, Permission, Result, access, authorise,
    ledger, setup,
};
use super::{Principal, plans, spend, tokens, web_sessions};
use crate::limits::BROKERS_MAX;
use crate::secret;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BrokerRef {
    pub(crate) organisation: Uuid,
    pub(crate) name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Broker {
    /// Unique name in the region. It is the first label of the host name that clients connect to.
    #[schema(example = "k3v9x2mwqd7r")]
    pub name: String,
    pub display_name: String,
    /// Whether the broker refuses all clients because it is suspended.
    pub suspended: bool,
    /// Whether a spend cap stops the broker: it refuses connections and messages.
    pub is_over_cap: bool,
    /// Limits of the broker and of each client. The server's own limit applies where one is null.
    pub limits: Limits,
    /// Maxima of the limits, set by the organisation's plan; they hold where a limit is null. Null: no plan.
    #[serde(default)]
    pub ceiling: Option<Limits>,
    pub created_at_ms: u64,
    /// Addresses for its clients.
    #[serde(default)]
    pub endpoints: Endpoints,
    /// Whether the settings of the server decide who may connect and what clients may do, instead of the broker's
    /// access settings, credentials, groups, issuers and client CAs. True for a broker that existed before its
    /// organisation, until somebody sets its access (`PUT .../access`).
    #[serde(default)]
    #[schema(required = true)]
    pub access_by_settings: bool,
    /// Whether a client without user name, password and certificate may connect, by the access settings or by the
    /// settings of the server, whichever decide.
    #[serde(default)]
    #[schema(required = true)]
    pub anonymous_allowed: bool,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewBroker {
    #[schema(example = "Sensors of plant 7", min_length = 1, max_length = 100)]
    pub display_name: String,
}

/// A change of a broker. A field that is left out keeps its value.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BrokerChange {
    #[schema(min_length = 1, max_length = 100)]
    pub display_name: Option<String>,
    /// Limits to change. A limit that is left out keeps its value; null sets it to the server's own limit.
    #[schema(value_type = Option<Limits>)]
    pub limits: Option<serde_json::Map<String, Value>>,
}

/// Has no characters that look alike.
const LETTERS: &[u8; 32] = b"abcdefghjkmnpqrstuvwxyz023456789";
/// Length of a broker's name: 60 random bits, so that nobody finds other tenants' brokers by guessing.
const NAME_LETTERS: usize = 12;

impl Control {
    pub async fn brokers(
        &self,
        caller: &Caller,
        organisation: Uuid,
        page: &PageRequest,
    ) -> Result<Page<Broker>> {
        self.look(|tx| async move {
            authorise(&tx, caller, organisation, Permission::BrokersRead, Read::Snapshot).await?;
            let all = accounts::brokers_of(organisation.as_bytes());
            let rows = all.page::<BrokerId>(&tx, page.after.as_deref(), page.limit, Read::Snapshot).await?;
            let rows = Page::of(rows, |name, _| name.to_vec());
            let mut items = Vec::with_capacity(rows.items.len());
            for name in rows.items {
                if let Some(broker) = catalog::get(&tx, &name, Read::Snapshot).await? {
                    items.push(self.shown(&tx, &broker, Read::Snapshot).await?.value);
                }
            }
            Ok(Page { items, next: rows.next })
        })
        .await
    }

    /// The broker's name is random, because a chosen name that is refused would reveal another tenant's broker.
    pub async fn create_broker(
        &self,
        caller: &Caller,
        organisation: Uuid,
        input: &NewBroker,
        once: &Once,
    ) -> Result<Versioned<Broker>> {
        let mut fields = FieldErrors::default();
        fields.name("display_name", &input.display_name);
        fields.done()?;
        let name = &new_name()?;
        self.change(caller.into(), once, |change| async move {
            let tx = &change.tx;
            authorise(tx, caller, organisation, Permission::BrokersWrite, Read::Serializable).await?;
            spend::has_room(tx, organisation, change.now_ms).await?;
            let all = accounts::brokers_of(organisation.as_bytes());
            let count = all.page::<BrokerId>(tx, None, BROKERS_MAX, Read::Serializable).await?.items.len();
            room(count, BROKERS_MAX, "brokers of this organisation")?;
            let (broker, is_new) = catalog::ensure(tx, name.as_bytes(), Bytes::new()).await?;
            if !is_new {
                return Err(Error::Internal("the name of the new broker was taken: try again"));
            }
            let details = Details {
                organisation: Some(organisation.to_string()),
                display_name: input.display_name.clone(),
                suspended: false,
                created_at_ms: change.now_ms,
                is_over_cap: false,
                by_settings: false,
            };
            catalog::describe(tx, &broker, &details).await?;
            let ceiling = plans::of(tx, organisation).await?;
            access::put(tx, broker.id, &Access { ceiling, ..Access::default() }).await?;
            setup::add_broker(&change, organisation, name, broker.id).await?;
            change.audit(
                organisation,
                "broker.create",
                name,
                json!({ "display_name": input.display_name }),
            )?;
            let broker = catalog::get(tx, name.as_bytes(), Read::Serializable).await?;
            self.shown(tx, &broker.ok_or(Error::NotFound("broker"))?, Read::Serializable).await
        })
        .await
    }

    pub(crate) async fn broker(&self, caller: &Caller, at: &BrokerRef) -> Result<Versioned<Broker>> {
        self.look(|tx| async move {
            let broker = find(&tx, caller, at, Permission::BrokersRead, Read::Snapshot).await?;
            self.shown(&tx, &broker, Read::Snapshot).await
        })
        .await
    }

    /// Checks that the caller may use a broker's clients, sessions and messages.
    pub(crate) async fn open_broker(
        &self,
        caller: &Caller,
        at: &BrokerRef,
        permission: Permission,
    ) -> Result<BrokerId> {
        self.look(|tx| async move { Ok(find(&tx, caller, at, permission, Read::Snapshot).await?.id) }).await
    }

    pub(crate) async fn open_to_publish(
        &self,
        caller: &Caller,
        at: &BrokerRef,
    ) -> Result<(BrokerId, ClientLimits)> {
        self.look(|tx| async move {
            let broker = find(&tx, caller, at, Permission::MessagesWrite, Read::Snapshot).await?;
            let access = access::get(&tx, &broker, Read::Snapshot).await?.value;
            Ok((broker.id, access.limits_in_force().client))
        })
        .await
    }

    /// A stream calls this again and again: a sign-in or token may end, and a caller may lose the broker, while it
    /// runs.
    pub(crate) async fn may_go_on(
        &self,
        caller: &Caller,
        at: &BrokerRef,
        permission: Permission,
    ) -> Result<()> {
        let now_ms = self.now_ms();
        self.look(|tx| async move {
            is_still_there(&tx, caller, now_ms).await?;
            find(&tx, caller, at, permission, Read::Snapshot).await.map(drop)
        })
        .await
    }

    /// Whether the caller's sign-in or token, which began a long answer, still exists.
    pub(crate) async fn is_still_there(&self, caller: &Caller) -> Result<()> {
        let now_ms = self.now_ms();
        self.look(|tx| async move { is_still_there(&tx, caller, now_ms).await }).await
    }

    pub(crate) async fn change_broker(
        &self,
        caller: &Caller,
        at: &BrokerRef,
        input: &BrokerChange,
        seen: Precondition,
    ) -> Result<Versioned<Broker>> {
        if let Some(name) = &input.display_name {
            let mut fields = FieldErrors::default();
            fields.name("display_name", name);
            fields.done()?;
        }
        // Unknown fields are refused before the store is read.
        let change = input.limits.as_ref();
        change.map_or(Ok(Limits::default()), |change| merged(&Limits::default(), change))?;
        self.edit(caller, at, Some(seen), "broker.change", &json!({}), |details, access| {
            if let Some(change) = &input.limits {
                let before = access.limits.clone();
                access.limits = merged(&before, change)?;
                if let Some(ceiling) = &access.ceiling {
                    access.limits.changed_since(&before).check_within(ceiling)?;
                }
            }
            if let Some(name) = &input.display_name {
                details.display_name.clone_from(name);
            }
            Ok(())
        })
        .await
    }

    pub(crate) async fn suspend_broker(
        &self,
        caller: &Caller,
        at: &BrokerRef,
        suspended: bool,
    ) -> Result<Versioned<Broker>> {
        let action = if suspended { "broker.suspend" } else { "broker.resume" };
        self.edit(caller, at, None, action, &json!({}), |details, _| {
            details.suspended = suspended;
            Ok(())
        })
        .await
    }

    async fn edit(
        &self,
        caller: &Caller,
        at: &BrokerRef,
        seen: Option<Precondition>,
        action: &str,
        said: &Value,
        edit: impl Fn(&mut Details, &mut Access) -> Result<()>,
    ) -> Result<Versioned<Broker>> {
        let edit = &edit;
        self.change(caller.into(), &Once::unnamed()?, |change| async move {
            change.use_reserve();
            let tx = &change.tx;
            let broker = find(tx, caller, at, Permission::BrokersWrite, Read::Serializable).await?;
            let mut details = broker.details()?;
            if let Some(seen) = seen {
                seen.check(Some(details.version))?;
            }
            let before = details.value.clone();
            let old = access::for_change(tx, at.organisation, &broker).await?;
            let mut access = old.value.clone();
            edit(&mut details.value, &mut access)?;
            catalog::describe(tx, &broker, &details.value).await?;
            if access != old.value {
                access::put(tx, broker.id, &access).await?;
            }
            touch(tx, broker.id)?;
            let (one, other) = (limited(&before, &old.value)?, limited(&details.value, &access)?);
            let said = with(said.clone(), difference(Some(&one), Some(&other))?);
            change.audit(at.organisation, action, &at.name, said)?;
            let broker = catalog::get(tx, at.name.as_bytes(), Read::Serializable).await?;
            self.shown(tx, &broker.ok_or(Error::NotFound("broker"))?, Read::Serializable).await
        })
        .await
    }

    /// Servers stop serving the broker at once; the layers erase its data later.
    pub(crate) async fn delete_broker(
        &self,
        caller: &Caller,
        at: &BrokerRef,
        seen: Precondition,
    ) -> Result<()> {
        self.change(caller.into(), &Once::unnamed()?, |change| async move {
            change.use_reserve();
            let tx = &change.tx;
            let broker = find(tx, caller, at, Permission::BrokersWrite, Read::Serializable).await?;
            let details = broker.details()?;
            seen.check(Some(details.version))?;
            ledger::has_room(tx, at.organisation).await?;
            touch(tx, broker.id)?;
            catalog::condemn(tx, &broker, change.now_ms)?;
            accounts::brokers_of(at.organisation.as_bytes()).clear(tx, at.name.as_bytes()).await?;
            ledger::add(&change, at.organisation, broker.id, details.value.created_at_ms).await?;
            let said = json!({ "display_name": details.value.display_name });
            change.audit(at.organisation, "broker.delete", &at.name, said)
        })
        .await
    }
}

pub(super) async fn find(
    tx: &Transaction,
    caller: &Caller,
    at: &BrokerRef,
    permission: Permission,
    read: Read,
) -> Result<catalog::BrokerRecord> {
    authorise(tx, caller, at.organisation, permission, read).await?;
    let missing = Error::NotFound("broker");
    let all = accounts::brokers_of(at.organisation.as_bytes());
    if all.get::<BrokerId>(tx, at.name.as_bytes(), read).await?.is_none() {
        return Err(missing);
    }
    catalog::get(tx, at.name.as_bytes(), read).await?.ok_or(missing)
}

pub(super) async fn has_any(tx: &Transaction, organisation: Uuid) -> Result<bool> {
    let all = accounts::brokers_of(organisation.as_bytes());
    Ok(!all.page::<BrokerId>(tx, None, 1, Read::Serializable).await?.items.is_empty())
}

impl Control {
    async fn shown(
        &self,
        tx: &Transaction,
        broker: &catalog::BrokerRecord,
        read: Read,
    ) -> Result<Versioned<Broker>> {
        let details = broker.details()?;
        let access = access::get(tx, broker, read).await?;
        let name = String::from_utf8_lossy(&broker.name).into_owned();
        let value = Broker {
            access_by_settings: access.value.by_settings,
            anonymous_allowed: match access.value.by_settings {
                true => self.by_settings().anonymous,
                false => access.value.admits_anonymous(),
            },
            endpoints: self.reach().endpoints(&name),
            name,
            display_name: details.value.display_name,
            suspended: details.value.suspended,
            is_over_cap: details.value.is_over_cap,
            limits: access.value.limits,
            ceiling: access.value.ceiling,
            created_at_ms: details.value.created_at_ms,
        };
        Ok(Versioned { value, version: details.version })
    }
}

fn new_name() -> Result<String> {
    let random = secret::random::<NAME_LETTERS>()?;
    let mut letters = random.iter().map(|byte| char::from(LETTERS[usize::from(byte % 32)]));
    // The name begins with a letter, because some programs refuse a host name that begins with a digit.
    let first = letters.next().map_or('b', |first| if first.is_ascii_digit() { 'b' } else { first });
    Ok(std::iter::once(first).chain(letters).collect())
}

async fn is_still_there(tx: &Transaction, caller: &Caller, now_ms: u64) -> Result<()> {
    match &caller.who {
        Principal::Person { sign_in, .. } => {
            web_sessions::still_there(tx, sign_in, now_ms, Read::Snapshot).await
        }
        Principal::Token { organisation, id, .. } => {
            tokens::scopes(tx, *organisation, *id, now_ms, Read::Snapshot).await.map(drop)
        }
    }
}
