//! Web sessions: the browsers in which a person is signed in.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use millrace_layers::accounts::{
    self,
    expiring::{Expiring, ExpiringKind},
};
use millrace_storage::{Read, Transaction};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;
use uuid::Uuid;

use super::accounts::{UserRecord, audit_everywhere, found, get, person_of};
use super::change::use_reserve;
use super::sign_in_networks::SignInNetwork;
use super::{Caller, Control, Error, Once, Page, PageRequest, Result};
use crate::limits::{SIGN_IN_MS, USER_AGENT_CHARS_MAX, WEB_SESSIONS_MAX};
use crate::secret::{self, Hash, Purpose, Secret};

#[derive(Clone, Debug, Default)]
pub struct RequestSource {
    pub address: Option<IpAddr>,
    pub user_agent: Option<String>,
}

/// A web session: a browser in which somebody is signed in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SignInSession {
    /// Id of the session. It is no secret: nobody can sign in with it.
    #[schema(example = "kPbZl2rVbq0w3nQd8yYxXg")]
    pub id: String,
    /// Whether this request belongs to the session.
    pub is_current: bool,
    /// Start, in unix milliseconds; null for a session that began before the server recorded it.
    pub created_at_ms: Option<u64>,
    /// End of the session, in unix milliseconds, unless it is ended earlier.
    pub expires_at_ms: u64,
    pub address: Option<String>,
    pub user_agent: Option<String>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct SignInRecord {
    pub(super) user: Uuid,
    expires_at_ms: u64,
    /// The account's epoch when the session began, or when a request of this session ended all others.
    #[serde(default)]
    epoch: u64,
    #[serde(default)]
    created_at_ms: Option<u64>,
    #[serde(default)]
    address: Option<String>,
    #[serde(default)]
    user_agent: Option<String>,
    /// Hash of the network from which the person signed in, as in the account's record.
    #[serde(default)]
    network: Option<u64>,
}

/// How many web sessions are searched for an id: accounts from before [`WEB_SESSIONS_MAX`] may have more than that.
const LOOKED_AT_MAX: usize = 5_000;

pub(super) struct NewSession {
    pub(super) secret: Secret,
    pub(super) hash: Hash,
    pub(super) expires_at_ms: u64,
    created_at_ms: u64,
    address: Option<String>,
    network: SignInNetwork,
    user_agent: Option<String>,
}

impl NewSession {
    /// As [`Self::begin`], also on a nearly full disk: for a person whose account exists.
    pub(super) async fn begin_within_reserve(&self, tx: &Transaction, user: Uuid) -> Result<()> {
        use_reserve(tx);
        self.begin(tx, user).await
    }

    /// Runs in the transaction that authenticates the person.
    pub(super) async fn begin(&self, tx: &Transaction, user: Uuid) -> Result<()> {
        make_room(tx, user).await?;
        let mut account = found(get(tx, user, Read::Serializable).await?)?;
        if self.network.note(user, &mut account.networks, self.created_at_ms) {
            accounts::users().put(tx, user.as_bytes(), &account).await?;
        }
        let record = SignInRecord {
            user,
            expires_at_ms: self.expires_at_ms,
            epoch: account.epoch,
            created_at_ms: Some(self.created_at_ms),
            address: self.address.clone(),
            user_agent: self.user_agent.clone(),
            network: Some(self.network.of(user)),
        };
        accounts::sign_ins().put(tx, &self.hash, &record).await?;
        accounts::sign_ins_of(user.as_bytes()).put(tx, &self.hash, &self.expires_at_ms).await?;
        Ok(expiring(&self.hash, self.expires_at_ms).schedule(tx)?)
    }
}

impl Control {
    pub(super) fn new_session(&self, source: &RequestSource) -> Result<NewSession> {
        let (secret, created_at_ms) = (secret::generate()?, self.now_ms());
        Ok(NewSession {
            hash: self.sign_in_hash(&secret)?,
            secret,
            expires_at_ms: created_at_ms + SIGN_IN_MS,
            created_at_ms,
            address: source.address.map(|address| address.to_string()),
            network: self.sign_in_network(source.address)?,
            user_agent: source.user_agent.as_deref().map(shortened),
        })
    }

    pub(super) fn sign_in_hash(&self, secret: &Secret) -> Result<Hash> {
        self.hash(Purpose::SignIn, &[secret.expose().as_bytes()])
    }

    pub(crate) async fn sessions(&self, caller: &Caller, page: &PageRequest) -> Result<Page<SignInSession>> {
        let ((user, current), now_ms) = (person_of(caller)?, self.now_ms());
        self.look(|tx| async move {
            let epoch = found(get(&tx, user, Read::Snapshot).await?)?.epoch;
            let all = accounts::sign_ins_of(user.as_bytes());
            let rows = all.page::<u64>(&tx, page.after.as_deref(), page.limit, Read::Snapshot).await?;
            let rows = Page::of(rows, |hash, _| hash.to_vec());
            let mut items = Vec::with_capacity(rows.items.len());
            for hash in rows.items {
                let record = accounts::sign_ins().get::<SignInRecord>(&tx, &hash, Read::Snapshot).await?;
                let record = record.map(|record| record.value);
                let record = record.filter(|it| now_ms < it.expires_at_ms && it.epoch == epoch);
                items.extend(record.map(|record| record.shown(&hash, current)));
            }
            Ok(Page { items, next: rows.next })
        })
        .await
    }

    /// `None`: ends all but the session that asks.
    pub(crate) async fn end_sessions(&self, caller: &Caller, id: Option<&str>) -> Result<()> {
        let (user, current) = person_of(caller)?;
        self.change(caller.into(), &Once::unnamed()?, |change| async move {
            change.use_reserve();
            let tx = &change.tx;
            still_there(tx, current, change.now_ms, Read::Serializable).await?;
            match id {
                None => end_all(tx, user, Some(current)).await?,
                Some(id) => {
                    let all = accounts::sign_ins_of(user.as_bytes());
                    let page = all.page::<u64>(tx, None, LOOKED_AT_MAX, Read::Serializable).await?;
                    let found = page.items.iter().find(|(hash, _)| shown_id(hash) == id);
                    let (hash, _) = found.ok_or(Error::NotFound("web session"))?;
                    end(tx, user, hash).await?;
                }
            }
            audit_everywhere(&change, user, "person.end_sessions", json!({ "session": id })).await
        })
        .await
    }
}

impl SignInRecord {
    fn shown(self, hash: &[u8], current: &Hash) -> SignInSession {
        SignInSession {
            id: shown_id(hash),
            is_current: hash == current,
            created_at_ms: self.created_at_ms,
            expires_at_ms: self.expires_at_ms,
            address: self.address,
            user_agent: self.user_agent,
        }
    }
}

pub(crate) fn shortened(agent: &str) -> String {
    agent.chars().take(USER_AGENT_CHARS_MAX).collect()
}

/// The shown id does not reveal the hash by which the session is found.
fn shown_id(hash: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(&blake3::derive_key("millrace 2026-11 id of a web session", hash)[..16])
}

/// A session that has ended gets [`Error::Unauthenticated`].
pub(super) async fn still_there(tx: &Transaction, hash: &Hash, now_ms: u64, read: Read) -> Result<()> {
    match find(tx, hash, now_ms, read).await? {
        Some(_) => Ok(()),
        None => Err(Error::Unauthenticated("you are not signed in any more: sign in again")),
    }
}

/// A web session that has not ended, and the account of its person.
pub(super) async fn find(
    tx: &Transaction,
    hash: &Hash,
    now_ms: u64,
    read: Read,
) -> Result<Option<(SignInRecord, UserRecord)>> {
    let session = accounts::sign_ins().get::<SignInRecord>(tx, hash, read).await?;
    let Some(session) = session.map(|it| it.value).filter(|it| now_ms < it.expires_at_ms) else {
        return Ok(None);
    };
    let account = get(tx, session.user, read).await?.map(|account| account.value);
    let account = account.filter(|account| account.epoch == session.epoch);
    Ok(account.map(|account| (session, account)))
}

pub(super) async fn began_since(tx: &Transaction, hash: &Hash, at_ms: u64) -> Result<bool> {
    let session = accounts::sign_ins().get::<SignInRecord>(tx, hash, Read::Snapshot).await?;
    Ok(session.and_then(|session| session.value.created_at_ms).is_some_and(|began_ms| at_ms <= began_ms))
}

pub(super) async fn expire(tx: &Transaction, hash: &[u8]) -> Result<()> {
    if let Some(session) = accounts::sign_ins().get::<SignInRecord>(tx, hash, Read::Serializable).await? {
        accounts::sign_ins_of(session.value.user.as_bytes()).clear(tx, hash).await?;
        accounts::sign_ins().clear(tx, hash).await?;
    }
    Ok(())
}

pub(super) async fn end(tx: &Transaction, user: Uuid, hash: &[u8]) -> Result<()> {
    if let Some(session) = accounts::sign_ins().get::<SignInRecord>(tx, hash, Read::Serializable).await? {
        expiring(hash, session.value.expires_at_ms).cancel(tx)?;
    }
    accounts::sign_ins().clear(tx, hash).await?;
    Ok(accounts::sign_ins_of(user.as_bytes()).clear(tx, hash).await?)
}

/// Ends all web sessions of a person but `keep` by a new epoch, however many there are. It removes one page of their
/// records; the sweep removes the others when they expire. The account forgets the networks of the sign-ins, because somebody who
/// has the password could guess on from there.
pub(super) async fn end_all(tx: &Transaction, user: Uuid, keep: Option<&Hash>) -> Result<()> {
    let mut account = found(get(tx, user, Read::Serializable).await?)?;
    account.epoch += 1;
    let mut own_network = None;
    if let Some(keep) = keep
        && let Some(session) = accounts::sign_ins().get::<SignInRecord>(tx, keep, Read::Serializable).await?
    {
        let session = SignInRecord { epoch: account.epoch, ..session.value };
        own_network = session.network;
        accounts::sign_ins().put(tx, keep, &session).await?;
    }
    account.networks.retain(|known| own_network == Some(known.hash));
    accounts::users().put(tx, user.as_bytes(), &account).await?;
    let all = accounts::sign_ins_of(user.as_bytes());
    let page = all.page::<u64>(tx, None, WEB_SESSIONS_MAX, Read::Serializable).await?;
    for (hash, _) in page.items.iter().filter(|(hash, _)| keep.is_none_or(|keep| **hash != keep[..])) {
        end(tx, user, hash).await?;
    }
    Ok(())
}

/// Ends the oldest web sessions of a person, so that another may begin. The read is a snapshot, so that simultaneous
/// sign-ins do not conflict. They may exceed the limit until the next sign-in.
async fn make_room(tx: &Transaction, user: Uuid) -> Result<()> {
    let all = accounts::sign_ins_of(user.as_bytes());
    let page = all.page::<u64>(tx, None, 2 * WEB_SESSIONS_MAX, Read::Snapshot).await?;
    let mut rows: Vec<_> = page.items.iter().map(|(hash, expires)| (expires.value, hash)).collect();
    rows.sort_unstable();
    for (_, hash) in rows.iter().take((rows.len() + 1).saturating_sub(WEB_SESSIONS_MAX)) {
        end(tx, user, hash).await?;
    }
    Ok(())
}

fn expiring(hash: &[u8], at_ms: u64) -> Expiring {
    Expiring { at_ms, kind: ExpiringKind::SignIn, id: hash.to_vec().into() }
}
