//! Parts of a broker that callers set by name and as a whole: groups, JWT issuers, client CAs, webhooks, bans.
//!
//! The operations are the same for all kinds; the trait [`BrokerPart`] holds what differs.

use std::collections::HashSet;

use bytes::Bytes;
use millrace_access::jwt::Issuer;
use millrace_access::model::{Ban, Checked, ClientCa, Group, Invalid, JwtIssuer, JwtKey};
use millrace_access::x509::Authority;
use millrace_layers::{
    BrokerId,
    accounts::{self, touch},
    documents::{Collection, Document},
};
use millrace_storage::{Read, Transaction};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::check::room;
use super::difference::{difference, with};
use super::{
    BrokerRef, Caller, Control, Error, Once, Page, PageRequest, Permission, Result, brokers, change::Change,
    names, permits,
};
use crate::limits::{GROUPS_BYTES_MAX, GROUPS_MAX, PARTS_BYTES_MAX, TIME_MS_MAX, TOO_LATE};

/// A record and its version, which the API sends as the ETag.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versioned<T> {
    pub value: T,
    /// Differs after each change of the value.
    pub version: u64,
}

/// The state that the caller expects; the change is refused when the stored state is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    Absent,
    Present,
    Version(u64),
}

/// The record of a part is the caller's input plus its name and creation time.
pub(crate) trait BrokerPart: Clone + Serialize + DeserializeOwned + Send + Sync + 'static {
    const KIND: &'static str;
    const MAX: usize;
    /// Bytes in JSON of all parts of this kind, because every pod that serves the broker holds them.
    const BYTES_MAX: usize = PARTS_BYTES_MAX;
    /// Whether parts of this kind can have an end. A full list then loses those that have ended.
    const ENDS: bool = false;
    /// Whether a part only takes something away from clients, see [`Change::use_reserve`].
    const RESTRAINS: bool = false;

    fn all(broker: BrokerId) -> Collection;
    fn check(&self) -> Checked;
    /// The URL that servers call for the part, with its field.
    fn called(&self) -> Option<(&'static str, &str)> {
        None
    }
    fn group(&self) -> Option<&str> {
        None
    }
    /// Sets the fields that the server determines; `old` is the record that this one replaces.
    fn settle(&mut self, name: &str, now_ms: u64, old: Option<&Self>) -> Checked;
    fn has_ended(&self, _now_ms: u64) -> bool {
        false
    }
    /// Removes secrets from an answer, for callers that may read parts and not change them.
    fn hide_secrets(&mut self) {}
    /// Removes records that belong to the part, when the part is deleted.
    fn removed(_tx: &Transaction, _broker: BrokerId, _name: &str) -> Result<()> {
        Ok(())
    }
}

impl Precondition {
    /// `found`: the stored version; `None`: there is no record.
    pub(super) fn check(self, found: Option<u64>) -> Result<()> {
        let holds = match self {
            Self::Absent => found.is_none(),
            Self::Present => found.is_some(),
            Self::Version(seen) => found == Some(seen),
        };
        if holds { Ok(()) } else { Err(Error::Changed) }
    }
}

impl<T> From<Document<T>> for Versioned<T> {
    fn from(Document { value, version }: Document<T>) -> Self {
        Self { value, version }
    }
}

impl Control {
    pub(crate) async fn parts<P: BrokerPart>(
        &self,
        caller: &Caller,
        at: &BrokerRef,
        page: &PageRequest,
    ) -> Result<Page<P>> {
        self.look(|tx| async move {
            let broker = brokers::find(&tx, caller, at, Permission::AccessRead, Read::Snapshot).await?;
            let all = P::all(broker.id);
            let rows = page.read::<P>(&tx, &all, b"").await?;
            let hides = hides_secrets(&tx, caller, at).await;
            Ok(Page::of(rows, |_, part| seen(part.value, hides)))
        })
        .await
    }

    pub(crate) async fn part<P: BrokerPart>(
        &self,
        caller: &Caller,
        at: &BrokerRef,
        name: &str,
    ) -> Result<Versioned<P>> {
        self.look(|tx| async move {
            let broker = brokers::find(&tx, caller, at, Permission::AccessRead, Read::Snapshot).await?;
            let part = P::all(broker.id).get::<P>(&tx, name.as_bytes(), Read::Snapshot).await?;
            let part = part.ok_or(Error::NotFound(P::KIND))?;
            let value = seen(part.value, hides_secrets(&tx, caller, at).await);
            Ok(Versioned { value, version: part.version })
        })
        .await
    }

    /// Returns the new version, and whether the part was created.
    pub(crate) async fn put_part<P: BrokerPart>(
        &self,
        caller: &Caller,
        at: &BrokerRef,
        name: &str,
        input: &P,
        seen: Precondition,
    ) -> Result<(u64, bool)> {
        self.change(caller.into(), &Once::unnamed()?, |change| async move {
            if P::RESTRAINS {
                change.use_reserve();
            }
            let tx = &change.tx;
            let broker = brokers::find(tx, caller, at, Permission::AccessWrite, Read::Serializable).await?;
            let all = P::all(broker.id);
            let old = all.get::<P>(tx, name.as_bytes(), Read::Serializable).await?;
            seen.check(old.as_ref().map(|old| old.version))?;
            let mut part = input.clone();
            part.settle(name, change.now_ms, old.as_ref().map(|old| &old.value))?;
            part.check()?;
            if let Some((field, url)) = part.called() {
                let stored = old.as_ref().and_then(|old| old.value.called());
                self.check_called(field, url, stored.map(|(_, url)| url))?;
            }
            check_group(tx, broker.id, "group", part.group()).await?;
            // Parsing all of them would make the smallest change expensive.
            let mut others = all.lengths(tx, P::MAX, Read::Serializable).await?;
            if old.is_none() {
                names::plain(name).map_err(|what| Error::field("name", what))?;
                if P::ENDS && others.len() >= P::MAX {
                    let ended = remove_ended::<P>(tx, &all, change.now_ms).await?;
                    others.retain(|(other, _)| !ended.contains(other));
                }
                room(others.len(), P::MAX, &format!("of this kind ({})", P::KIND))?;
            }
            let of_part = bytes_of(&part)?;
            let others = others.iter().filter(|(other, _)| *other != name.as_bytes()).map(|(_, bytes)| bytes);
            let bytes = of_part + others.sum::<usize>();
            let before = old.as_ref().map(|old| bytes_of(&old.value)).transpose()?.unwrap_or(0);
            // A broker above the limit may still shrink its parts.
            if bytes > P::BYTES_MAX && of_part > before {
                let what = format!(
                    "all parts of this kind ({}) of a broker have at most {} bytes together, as JSON",
                    P::KIND,
                    P::BYTES_MAX
                );
                return Err(Error::Conflict(what));
            }
            let version = all.put(tx, name.as_bytes(), &part).await?;
            let what = if old.is_none() { "create" } else { "change" };
            let changed = difference(old.as_ref().map(|old| &old.value), Some(&part))?;
            note::<P>(&change, at, broker.id, what, name, changed)?;
            Ok((version, old.is_none()))
        })
        .await
    }

    pub(crate) async fn delete_part<P: BrokerPart>(
        &self,
        caller: &Caller,
        at: &BrokerRef,
        name: &str,
        seen: Precondition,
    ) -> Result<()> {
        self.change(caller.into(), &Once::unnamed()?, |change| async move {
            change.use_reserve();
            let tx = &change.tx;
            let broker = brokers::find(tx, caller, at, Permission::AccessWrite, Read::Serializable).await?;
            let all = P::all(broker.id);
            let old = all.get::<P>(tx, name.as_bytes(), Read::Serializable).await?;
            let old = old.ok_or(Error::NotFound(P::KIND))?;
            seen.check(Some(old.version))?;
            all.clear(tx, name.as_bytes()).await?;
            P::removed(tx, broker.id, name)?;
            note::<P>(&change, at, broker.id, "delete", name, difference(Some(&old.value), None)?)
        })
        .await
    }
}

async fn remove_ended<P: BrokerPart>(
    tx: &Transaction,
    all: &Collection,
    now_ms: u64,
) -> Result<HashSet<Bytes>> {
    let page = all.page::<P>(tx, None, P::MAX, Read::Serializable).await?;
    let mut ended = HashSet::new();
    for (name, _) in page.items.into_iter().filter(|(_, part)| part.value.has_ended(now_ms)) {
        all.clear(tx, &name).await?;
        ended.insert(name);
    }
    Ok(ended)
}

async fn hides_secrets(tx: &Transaction, caller: &Caller, at: &BrokerRef) -> bool {
    permits(tx, caller, at.organisation, Permission::AccessWrite, Read::Snapshot).await.is_err()
}

fn seen<P: BrokerPart>(mut part: P, hides_secrets: bool) -> P {
    if hides_secrets {
        part.hide_secrets();
    }
    part
}

fn bytes_of(part: &impl Serialize) -> Result<usize> {
    let text = serde_json::to_vec(part).map_err(|_| Error::Internal("a part cannot be written as JSON"))?;
    Ok(text.len())
}

fn note<P: BrokerPart>(
    change: &Change,
    at: &BrokerRef,
    broker: BrokerId,
    what: &str,
    name: &str,
    changed: Value,
) -> Result<()> {
    // Makes pods read the broker's parts again.
    touch(&change.tx, broker)?;
    let action = format!("{}.{what}", P::KIND.replace(' ', "_"));
    change.audit(at.organisation, &action, name, with(json!({ "broker": at.name }), changed))
}

/// Refuses an unknown group: without its rules, its members could do more than they should.
pub(super) async fn check_group(
    tx: &Transaction,
    broker: BrokerId,
    field: &str,
    name: Option<&str>,
) -> Result<()> {
    let Some(name) = name else { return Ok(()) };
    match accounts::groups(broker).get::<Group>(tx, name.as_bytes(), Read::Serializable).await? {
        Some(_) => Ok(()),
        None => Err(Error::field(field, "there is no such group: create it first")),
    }
}

impl BrokerPart for Group {
    const KIND: &'static str = "group";
    const MAX: usize = GROUPS_MAX;
    const BYTES_MAX: usize = GROUPS_BYTES_MAX;

    fn all(broker: BrokerId) -> Collection {
        accounts::groups(broker)
    }

    fn check(&self) -> Checked {
        self.validate()
    }

    fn settle(&mut self, name: &str, now_ms: u64, old: Option<&Self>) -> Checked {
        self.name = name.into();
        self.created_at_ms = old.map_or(now_ms, |old| old.created_at_ms);
        Ok(())
    }
}

impl BrokerPart for JwtIssuer {
    const KIND: &'static str = "JWT issuer";
    const MAX: usize = millrace_access::limits::AUTHORITIES_MAX;

    fn all(broker: BrokerId) -> Collection {
        accounts::jwt_issuers(broker)
    }

    fn check(&self) -> Checked {
        self.check_lengths()?;
        // Builds the verifier that servers build, to find its errors now.
        Issuer::new(self.clone()).map(|_| ())
    }

    fn called(&self) -> Option<(&'static str, &str)> {
        match &self.key {
            JwtKey::Jwks { url } => Some(("key.url", url)),
            _ => None,
        }
    }

    fn group(&self) -> Option<&str> {
        self.group.as_deref()
    }

    fn settle(&mut self, name: &str, now_ms: u64, old: Option<&Self>) -> Checked {
        self.name = name.into();
        self.created_at_ms = old.map_or(now_ms, |old| old.created_at_ms);
        // Answers omit the secret, so a caller that sends an answer back does not have it: the stored secret stays.
        if let (JwtKey::Secret { secret, base64 }, Some(JwtKey::Secret { secret: had, base64: was })) =
            (&mut self.key, old.map(|old| &old.key))
            && secret.expose().is_empty()
        {
            if base64 != was {
                let what = format!("is {was} of the stored secret: send the secret too to change it");
                return Err(vec![Invalid { field: "key.base64".into(), what }]);
            }
            *secret = had.clone();
        }
        Ok(())
    }
}

impl BrokerPart for ClientCa {
    const KIND: &'static str = "client CA";
    const MAX: usize = millrace_access::limits::AUTHORITIES_MAX;

    fn all(broker: BrokerId) -> Collection {
        accounts::client_cas(broker)
    }

    fn check(&self) -> Checked {
        Authority::new(self.clone())?.check_size()
    }

    fn group(&self) -> Option<&str> {
        self.group.as_deref()
    }

    fn settle(&mut self, name: &str, now_ms: u64, old: Option<&Self>) -> Checked {
        self.name = name.into();
        self.created_at_ms = old.map_or(now_ms, |old| old.created_at_ms);
        Ok(())
    }
}

impl BrokerPart for Ban {
    const KIND: &'static str = "ban";
    const MAX: usize = millrace_access::limits::BANS_MAX;
    const ENDS: bool = true;
    const RESTRAINS: bool = true;

    fn all(broker: BrokerId) -> Collection {
        accounts::bans(broker)
    }

    fn check(&self) -> Checked {
        self.validate()?;
        // Pods do not check it, so that stored bans stay in force.
        match self.until_ms.is_some_and(|until_ms| until_ms > TIME_MS_MAX) {
            true => Err(vec![Invalid {
                field: "until_ms".into(),
                what: format!("{TOO_LATE}, or null for no end"),
            }]),
            false => Ok(()),
        }
    }

    fn has_ended(&self, now_ms: u64) -> bool {
        self.until_ms.is_some_and(|until_ms| until_ms <= now_ms)
    }

    fn settle(&mut self, name: &str, now_ms: u64, old: Option<&Self>) -> Checked {
        self.name = name.into();
        self.created_at_ms = old.map_or(now_ms, |old| old.created_at_ms);
        Ok(())
    }
}
