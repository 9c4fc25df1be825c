//! API tokens: programs of an organisation authenticate with them instead of a password.

use std::net::IpAddr;

use millrace_layers::{accounts, documents::Document};
use millrace_storage::{Read, Transaction};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;
use uuid::Uuid;

use super::accounts as people;
use super::by_secret::{self, BySecret, IndexEntry};
use super::check::{FieldErrors, room};
use super::{
    Caller, Control, Error, Once, Page, PageRequest, Permission, Principal, Result, authorise, members,
};
use crate::limits::TOKENS_MAX;
use crate::secret::{Hash, Purpose, Secret};

/// Scanners find a published token by this prefix.
const PREFIX: &str = "mlr_";

/// An API token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Token {
    pub id: Uuid,
    pub name: String,
    pub scopes: Vec<Permission>,
    pub created_at_ms: u64,
    /// End of the token, in unix milliseconds. Left out: it has no end.
    pub expires_at_ms: Option<u64>,
    /// Id of the member who made the token. The token may do no more than that member, and ends with the membership.
    /// Older tokens have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_by: Option<Uuid>,
    /// Id of the API token that made it, and which it does not outlive by time; null: the member did. After deleting a leaked token,
    /// delete what it made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_token: Option<Uuid>,
}

/// The API token of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct OwnToken {
    /// Id of the organisation that the token belongs to.
    pub organisation: Uuid,
    /// The token. A permission that its maker has lost is not among its scopes.
    #[serde(flatten)]
    pub token: Token,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    #[schema(example = "deployment", min_length = 1, max_length = 100)]
    pub name: String,
    /// Permissions of the token. The caller must have each of them.
    #[schema(min_items = 1)]
    pub scopes: Vec<Permission>,
    /// End of the token, in unix milliseconds. Left out: it has no end, or that of the API token that makes it.
    #[schema(maximum = 253_402_300_799_999_u64)]
    pub expires_at_ms: Option<u64>,
}

impl Token {
    fn is_over(&self, now_ms: u64) -> bool {
        self.expires_at_ms.is_some_and(|at_ms| at_ms <= now_ms)
    }
}

const TOKENS: BySecret = BySecret { all: accounts::tokens, index: accounts::token_hashes };

type TokenRecord = by_secret::SecretRecord<Token>;

impl Control {
    pub async fn tokens(
        &self,
        caller: &Caller,
        organisation: Uuid,
        page: &PageRequest,
    ) -> Result<Page<Token>> {
        self.look(|tx| async move {
            authorise(&tx, caller, organisation, Permission::OrganisationRead, Read::Snapshot).await?;
            let all = TOKENS.of(organisation);
            let rows =
                all.page::<TokenRecord>(&tx, page.after.as_deref(), page.limit, Read::Snapshot).await?;
            Ok(Page::of(rows, |_, record| record.value.shown))
        })
        .await
    }

    /// The API token that the request is authenticated with, and its scopes that are in force.
    pub async fn own_token(&self, caller: &Caller) -> Result<OwnToken> {
        let Principal::Token { organisation, id, scopes, .. } = &caller.who else {
            let what = "GET /token describes an API token, and you are signed in as a person: see GET /me";
            return Err(Error::Forbidden(what.into()));
        };
        let record = self.look(|tx| async move {
            Ok(TOKENS.of(*organisation).get::<TokenRecord>(&tx, id.as_bytes(), Read::Snapshot).await?)
        });
        // The token may have been deleted since the request was authenticated.
        let gone = Error::Unauthenticated("this API token is unknown, deleted or expired");
        let token = record.await?.ok_or(gone)?.value.shown;
        Ok(OwnToken { organisation: *organisation, token: Token { scopes: scopes.clone(), ..token } })
    }

    pub async fn create_token(
        &self,
        caller: &Caller,
        organisation: Uuid,
        input: &NewToken,
        once: &Once,
    ) -> Result<(Token, Secret)> {
        let scopes = &input.check(self.now_ms())?;
        if caller.person().is_none() {
            let what =
                "this API token does not say who made it, so it makes none: make another one in its place";
            return Err(Error::Forbidden(what.into()));
        }
        let id = self.new_id()?;
        let shown = self
            .change(caller.into(), once, |change| async move {
                // `millrace login` signs in with a token.
                change.use_reserve();
                let tx = &change.tx;
                authorise(tx, caller, organisation, Permission::OrganisationWrite, Read::Serializable)
                    .await?;
                for scope in scopes {
                    authorise(tx, caller, organisation, *scope, Read::Serializable).await?;
                }
                make_room(tx, organisation, change.now_ms).await?;
                let expires_at_ms = end_of(tx, caller, organisation, input.expires_at_ms).await?;
                let shown = Token {
                    id,
                    name: input.name.clone(),
                    scopes: scopes.clone(),
                    created_at_ms: members::creation_time_ms(&change, caller, organisation).await?,
                    expires_at_ms,
                    made_by: caller.person(),
                    api_token: caller.api_token(),
                };
                let hash = self.token_hash(&self.token_of(once, id)?)?;
                let record = TokenRecord { shown: shown.clone(), hash };
                TOKENS.put(tx, &IndexEntry { organisation, id }, &record).await?;
                let details = json!({ "name": input.name, "scopes": scopes, "expires_at_ms": expires_at_ms });
                change.audit(organisation, "token.create", &id.to_string(), details)?;
                Ok(shown)
            })
            .await?;
        let secret = self.token_of(once, shown.id)?;
        Ok((shown, secret))
    }

    pub async fn delete_token(
        &self,
        caller: &Caller,
        organisation: Uuid,
        id: Uuid,
        once: &Once,
    ) -> Result<()> {
        self.change(caller.into(), once, |change| async move {
            change.use_reserve();
            let tx = &change.tx;
            // A token may delete itself without further permission.
            if !matches!(&caller.who, Principal::Token { organisation: of, id: own, .. } if (*of, *own) == (organisation, id)) {
                authorise(tx, caller, organisation, Permission::OrganisationWrite, Read::Serializable).await?;
            }
            let all = TOKENS.of(organisation);
            let record = all.get::<TokenRecord>(tx, id.as_bytes(), Read::Serializable).await?;
            let record = record.ok_or(Error::NotFound("token"))?.value;
            let details = json!({ "name": record.shown.name });
            change.audit(organisation, "token.delete", &id.to_string(), details)?;
            remove(tx, organisation, &record).await
        })
        .await
    }

    /// An unknown or expired secret gets [`Error::Unauthenticated`].
    pub async fn with_token(&self, secret: &Secret, address: Option<IpAddr>) -> Result<Caller> {
        let hash = self.token_hash(secret)?;
        let found = self
            .look(|tx| async move {
                let Some((organisation, record)) = TOKENS.find::<Token>(&tx, &hash, Read::Snapshot).await?
                else {
                    return Ok(None);
                };
                let token = record.shown;
                let Some(scopes) = in_force(&tx, organisation, &token, Read::Snapshot).await? else {
                    return Ok(None);
                };
                let maker = match token.made_by {
                    Some(maker) => people::shown(&tx, maker).await?.map(|maker| maker.known_as().to_owned()),
                    None => None,
                };
                Ok(Some((organisation, Token { scopes, ..token }, maker)))
            })
            .await?;
        let now_ms = self.now_ms();
        let Some((organisation, token, maker)) = found.filter(|(_, token, _)| !token.is_over(now_ms)) else {
            return Err(Error::Unauthenticated("this API token is unknown, deleted or expired"));
        };
        let Token { id, name, scopes, made_by, .. } = token;
        let who = Principal::Token { organisation, id, name, scopes, made_by, maker_name: maker };
        Ok(Caller { who, address, agent: None })
    }

    fn token_of(&self, once: &Once, id: Uuid) -> Result<Secret> {
        let secret = self.secret_of(once, id.as_bytes())?;
        Ok(format!("{PREFIX}{}", secret.expose()).as_str().into())
    }

    fn token_hash(&self, secret: &Secret) -> Result<Hash> {
        self.hash(Purpose::Token, &[secret.expose().as_bytes()])
    }
}

impl NewToken {
    fn check(&self, now_ms: u64) -> Result<Vec<Permission>> {
        let mut fields = FieldErrors::default();
        fields.name("name", &self.name);
        let mut scopes = self.scopes.clone();
        scopes.sort_unstable();
        scopes.dedup();
        if scopes.is_empty() {
            fields.add("scopes", "name at least one");
        }
        fields.end("expires_at_ms", self.expires_at_ms, now_ms);
        fields.done()?;
        Ok(scopes)
    }
}

/// Removes expired tokens if there is no room for another one.
async fn make_room(tx: &Transaction, organisation: Uuid, now_ms: u64) -> Result<()> {
    let all = TOKENS.of(organisation);
    let page = all.page::<TokenRecord>(tx, None, TOKENS_MAX, Read::Serializable).await?;
    if page.items.len() < TOKENS_MAX {
        return Ok(());
    }
    let count = page.items.len();
    let expired =
        page.items.into_iter().map(|(_, record)| record.value).filter(|it| it.shown.is_over(now_ms));
    let mut removed = 0;
    for record in expired {
        remove(tx, organisation, &record).await?;
        removed += 1;
    }
    room(count - removed, TOKENS_MAX, "API tokens")
}

/// The scopes of a token that are in force. A deleted or expired token gets [`Error::Unauthenticated`].
pub(super) async fn scopes(
    tx: &Transaction,
    organisation: Uuid,
    id: Uuid,
    now_ms: u64,
    read: Read,
) -> Result<Vec<Permission>> {
    let record = TOKENS.of(organisation).get::<TokenRecord>(tx, id.as_bytes(), read).await?;
    let gone = Error::Unauthenticated("this API token is unknown, deleted or expired");
    let Some(record) = record.filter(|record| !record.value.shown.is_over(now_ms)) else { return Err(gone) };
    in_force(tx, organisation, &record.value.shown, read).await?.ok_or(gone)
}

/// The end of a new token: at the latest that of the API token that makes it, so that a token with an end cannot prolong itself.
async fn end_of(
    tx: &Transaction,
    caller: &Caller,
    organisation: Uuid,
    wanted: Option<u64>,
) -> Result<Option<u64>> {
    let Some(id) = caller.api_token() else { return Ok(wanted) };
    let Some(end_ms) = end(tx, organisation, id).await? else { return Ok(wanted) };
    match wanted {
        Some(at_ms) if at_ms > end_ms => {
            let what = format!(
                "is after the end of your API token or login, {end_ms}: sign in to the console for a later one"
            );
            Err(Error::field("expires_at_ms", what))
        }
        wanted => Ok(wanted.or(Some(end_ms))),
    }
}

/// When the token expires; `None`: never.
pub(super) async fn end(tx: &Transaction, organisation: Uuid, id: Uuid) -> Result<Option<u64>> {
    let record = TOKENS.of(organisation).get::<TokenRecord>(tx, id.as_bytes(), Read::Serializable).await?;
    Ok(record.ok_or(Error::NotFound("token"))?.value.shown.expires_at_ms)
}

/// Whether a token exists, has not expired, and its scopes in force include this permission.
pub(super) async fn may(
    tx: &Transaction,
    organisation: Uuid,
    id: Uuid,
    permission: Permission,
    now_ms: u64,
) -> Result<bool> {
    match scopes(tx, organisation, id, now_ms, Read::Serializable).await {
        Ok(scopes) => Ok(scopes.contains(&permission)),
        Err(Error::Unauthenticated(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The scopes that the token's maker still has; `None`: the membership in which it was made has ended.
async fn in_force(
    tx: &Transaction,
    organisation: Uuid,
    token: &Token,
    read: Read,
) -> Result<Option<Vec<Permission>>> {
    let Some(maker) = token.made_by else { return Ok(Some(token.scopes.clone())) };
    match members::role_of_maker(tx, organisation, (maker, token.created_at_ms), read).await {
        Ok(role) => Ok(Some(token.scopes.iter().copied().filter(|scope| role.may(*scope)).collect())),
        Err(Error::NotFound(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(super) async fn remove_all(tx: &Transaction, organisation: Uuid) -> Result<()> {
    let all = TOKENS.of(organisation);
    let page = all.page(tx, None, TOKENS_MAX, Read::Serializable).await?;
    for (_, Document { value, .. }) in page.items {
        remove(tx, organisation, &value).await?;
    }
    Ok(())
}

async fn remove(tx: &Transaction, organisation: Uuid, record: &TokenRecord) -> Result<()> {
    TOKENS.clear(tx, &IndexEntry { organisation, id: record.shown.id }, &record.hash).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_storage::Database;

    #[tokio::test]
    async fn a_token_that_has_expired_is_not_there_any_more() {
        let (organisation, id) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let shown = Token {
            id,
            name: "ci".into(),
            scopes: vec![Permission::ClientsRead],
            created_at_ms: 0,
            expires_at_ms: Some(1_000),
            made_by: None,
            api_token: None,
        };
        let record = &TokenRecord { shown, hash: [7; 32] };
        let database = Database::memory();
        let put = database
            .run(|tx, _| async move { TOKENS.put(&tx, &IndexEntry { organisation, id }, record).await });
        put.await.unwrap();
        let at = async |now_ms| {
            let look = |tx| async move { scopes(&tx, organisation, id, now_ms, Read::Snapshot).await };
            database.run(|tx, _| look(tx)).await
        };
        let (before, after) = (at(999).await, at(1_000).await);
        assert!(before.is_ok());
        assert!(matches!(after, Err(Error::Unauthenticated(_))));
    }
}
