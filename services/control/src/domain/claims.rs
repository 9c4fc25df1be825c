//! A device exchanges a claim token for a credential of its own.
//!
//! The device has no account and no session. It learns nothing of the broker but where it is: an unknown, expired,
//! deleted and used up token get one answer, and user names are compared only after the token.

use millrace_access::limits::USER_BYTES_MAX;
use millrace_access::model;
use millrace_layers::BrokerId;
use millrace_layers::accounts;
use millrace_layers::catalog;
use millrace_layers::sessions::{self, SessionId};
use millrace_storage::{Read, Transaction};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;
use uuid::Uuid;

use super::audit::{Actor, ActorKind};
use super::claim_tokens::{self, ClaimToken, ClaimTokenRef, is_plain};
use super::difference::{difference, with};
use super::parts::check_group;
use super::web_sessions::shortened;
use super::{
    Control, Endpoints, Error, Once, Permission, RequestSource, Result, credential_room, members, operator,
    tokens,
};
use crate::secret::{Hash, Secret};

/// Request of a device for its credential.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    #[schema(value_type = String, format = Password, example = "mlc_...", max_length = 100)]
    pub token: Secret,
    /// The user name of the device. It begins with the prefix of the claim token, and nobody has it yet.
    #[schema(example = "pump-7", min_length = 2, max_length = 256, pattern = "^[A-Za-z0-9._:-]+$")]
    pub user: String,
}

/// A claimed credential, without its password.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClaimAnswer {
    #[schema(example = "k3v9x2mwqd7r")]
    pub broker: String,
    /// User name to connect with, prefixed with the broker's name if the host name does not identify the broker.
    #[schema(example = "pump-7")]
    pub username: String,
    /// The client id to connect with; null: any.
    #[schema(example = "pump-7")]
    pub client_id: Option<String>,
    /// Host, ports and URLs of the broker.
    pub endpoints: Endpoints,
}

/// The claim token of a request. It may have expired or be used up.
pub(crate) struct ShownClaimToken {
    hash: Hash,
    claim_ref: ClaimTokenRef,
    token: ClaimToken,
}

impl ShownClaimToken {
    pub(crate) fn id(&self) -> Uuid {
        self.claim_ref.id
    }

    fn actor(&self, source: &RequestSource) -> Actor {
        let agent = source.user_agent.as_deref().map(shortened);
        let name = format!("claim token {}", self.token.name);
        Actor { agent, ..Actor::new(ActorKind::Nobody, &name, source.address) }
    }
}

/// The part of the answer that the server stores for a repeated request.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct ClaimReceipt {
    id: Uuid,
}

impl Control {
    pub(crate) async fn shown_claim_token(&self, hash: Hash) -> Result<ShownClaimToken> {
        let found =
            self.look(|tx| async move { claim_tokens::by_hash(&tx, &hash, Read::Snapshot).await }).await?;
        found.map(|(claim_ref, token)| ShownClaimToken { hash, claim_ref, token }).ok_or_else(void)
    }

    /// Also returns whether the device has repeated its claim: the receipt then has the id of the first one.
    pub(crate) async fn claim(
        &self,
        shown: &ShownClaimToken,
        input: &Claim,
        source: &RequestSource,
        once: &Once,
    ) -> Result<(ClaimAnswer, Secret, bool)> {
        // A repeated claim must pass the checks of a first one, because the token may have ended since. But it need
        // not have uses left: the first claim may have taken the last one.
        let now_ms = self.now_ms();
        self.look(|tx| async move { check_open(&tx, &shown.claim_ref, &shown.token, now_ms).await }).await?;
        let id = self.new_id()?;
        let password = self.generated_for(once, id, &input.user)?;
        let secret = &self.0.mqtt_secret_keys.hash(password.expose().as_bytes());
        let made = self
            .change(shown.actor(source), once, |change| async move {
                let tx = &change.tx;
                let (claim_ref, token) = open(tx, &shown.hash, change.now_ms).await?;
                check_user(&token, &input.user)?;
                check_group(tx, claim_ref.broker_id, "token", token.group.as_deref()).await.map_err(no_group)?;
                let record = record_of(&input.user, secret, &token, claim_ref.id, change.now_ms);
                // The rules were checked with the token, perhaps by an earlier version, which accepted longer ones.
                model::Credential { rules: Vec::new(), ..record.clone() }.validate()?;
                let all = accounts::credentials(claim_ref.broker_id);
                let user = input.user.as_bytes();
                if all.get::<model::Credential>(tx, user, Read::Serializable).await?.is_some() {
                    let what = "another device has this user name: delete its credential first, if it is the same device";
                    return Err(Error::Conflict(what.into()));
                }
                check_session(tx, (claim_ref.broker_id, user), change.now_ms).await?;
                credential_room::add(tx, claim_ref.broker_id, [&record], Read::Snapshot).await?;
                // No `touch`: pods read the credential at each CONNECT, and nobody is connected with it yet.
                all.put(tx, user, &record).await?;
                claim_tokens::count_use(tx, &claim_ref).await?;
                let said = json!({ "broker": claim_ref.broker, "claim_token": claim_ref.id });
                let said = with(said, difference(None, Some(&record))?);
                change.audit(claim_ref.organisation, "credential.claim", &input.user, said)?;
                Ok(ClaimReceipt { id })
            })
            .await?;
        let password = self.generated_for(once, made.id, &input.user)?;
        let secret = &self.0.mqtt_secret_keys.hash(password.expose().as_bytes());
        self.look(|tx| async move { still_there(&tx, &shown.claim_ref, &input.user, secret).await }).await?;
        let endpoints = self.reach().endpoints(&shown.claim_ref.broker);
        let username = format!("{}{}", endpoints.user_prefix.as_deref().unwrap_or_default(), input.user);
        let client_id = shown.token.bind_client_id.then(|| input.user.clone());
        let claimed = ClaimAnswer { broker: shown.claim_ref.broker.clone(), username, client_id, endpoints };
        Ok((claimed, password, made.id != id))
    }

    pub(crate) async fn note_repeated_claim(
        &self,
        shown: &ShownClaimToken,
        input: &Claim,
        source: &RequestSource,
    ) -> Result<()> {
        self.change(shown.actor(source), &Once::unnamed()?, |change| async move {
            let said = json!({ "broker": shown.claim_ref.broker, "claim_token": shown.claim_ref.id });
            change.audit(shown.claim_ref.organisation, "credential.repeat_claim", &input.user, said)
        })
        .await
    }

    pub(crate) async fn note_refused_claim(
        &self,
        shown: &ShownClaimToken,
        input: &Claim,
        source: &RequestSource,
        why: &str,
    ) -> Result<()> {
        let user: &String = &input.user.chars().take(USER_BYTES_MAX).collect();
        self.change(shown.actor(source), &Once::unnamed()?, |change| async move {
            let said =
                json!({ "broker": shown.claim_ref.broker, "claim_token": shown.claim_ref.id, "why": why });
            change.audit(shown.claim_ref.organisation, "credential.refuse_claim", user, said)
        })
        .await
    }
}

fn record_of(
    user: &str,
    secret: &model::Secret,
    token: &ClaimToken,
    token_id: Uuid,
    now_ms: u64,
) -> model::Credential {
    model::Credential {
        user: user.to_owned(),
        secret: Some(secret.clone()),
        group: token.group.clone(),
        rules: token.rules.clone(),
        created_at_ms: now_ms,
        client_id: token.bind_client_id.then(|| user.to_owned()),
        claim_token: Some(token_id.to_string()),
        ..model::Credential::default()
    }
}

/// Refuses a token without uses left, and a token that [`check_open`] refuses.
async fn open(tx: &Transaction, hash: &Hash, now_ms: u64) -> Result<(ClaimTokenRef, ClaimToken)> {
    let found = claim_tokens::by_hash(tx, hash, Read::Serializable).await?;
    let (claim_ref, token) = found.filter(|(_, token)| token.uses < token.uses_max).ok_or_else(void)?;
    check_open(tx, &claim_ref, &token, now_ms).await?;
    Ok((claim_ref, token))
}

/// Refuses a token that has expired, whose member or API token may not make credentials any more, or whose broker or
/// organisation is suspended.
async fn check_open(
    tx: &Transaction,
    claim_ref: &ClaimTokenRef,
    token: &ClaimToken,
    now_ms: u64,
) -> Result<()> {
    if token.expires_at_ms <= now_ms {
        return Err(void());
    }
    let maker = (token.made_by, token.created_at_ms);
    match members::role_of_maker(tx, claim_ref.organisation, maker, Read::Serializable).await {
        Ok(role) if role.may(Permission::AccessWrite) => {}
        Ok(_) | Err(Error::NotFound(_)) => return Err(void()),
        Err(error) => return Err(error),
    }
    if let Some(maker) = token.api_token
        && !tokens::may(tx, claim_ref.organisation, maker, Permission::AccessWrite, now_ms).await?
    {
        return Err(void());
    }
    let broker = catalog::get(tx, claim_ref.broker.as_bytes(), Read::Serializable).await?.ok_or_else(void)?;
    if broker.details()?.value.suspended {
        return Err(no_devices());
    }
    match operator::is_open(tx, claim_ref.organisation, Read::Serializable).await {
        Err(Error::Forbidden(_)) => Err(no_devices()),
        other => other,
    }
}

/// Refuses a repeated claim whose credential was deleted or got another password since.
async fn still_there(
    tx: &Transaction,
    claim_ref: &ClaimTokenRef,
    user: &str,
    secret: &model::Secret,
) -> Result<()> {
    let all = accounts::credentials(claim_ref.broker_id);
    let found = all.get::<model::Credential>(tx, user.as_bytes(), Read::Snapshot).await?;
    if found.is_some_and(|found| found.value.secret.as_ref() == Some(secret)) {
        return Ok(());
    }
    let what = "the credential of this claim was deleted or has another password now: claim with a new Idempotency-Key";
    Err(Error::Conflict(what.into()))
}

fn no_devices() -> Error {
    Error::Forbidden("this broker accepts no new devices now: ask its owner, and try again later".into())
}

fn check_user(token: &ClaimToken, user: &str) -> Result<()> {
    if !is_plain(user) || user.len() > USER_BYTES_MAX {
        let what = format!(
            "must have letters (a to z), digits, dots, colons, underscores and hyphens, {USER_BYTES_MAX} at most"
        );
        return Err(Error::field("user", what));
    }
    match user.strip_prefix(&token.user_prefix) {
        Some(rest) if !rest.is_empty() => Ok(()),
        _ => Err(Error::field("user", format!("must begin with {} and be longer", token.user_prefix))),
    }
}

/// Refuses a name whose session the device would take over: a session belongs to its user name, also if a JWT, a
/// certificate or the webhook has named the user.
async fn check_session(tx: &Transaction, (broker, client): (BrokerId, &[u8]), now_ms: u64) -> Result<()> {
    let found = sessions::get(tx, SessionId { broker, client }, Read::Serializable).await?;
    match found.filter(|session| !session.is_expired(now_ms)) {
        None => Ok(()),
        Some(_) => {
            let what =
                "a session of a client with this name is there: end it first, if it is the same device";
            Err(Error::Conflict(what.into()))
        }
    }
}

/// The rules of a deleted group cannot hold the device back, so the device gets no credential.
fn no_group(error: Error) -> Error {
    match error {
        Error::Invalid(_) => {
            Error::Conflict("the group of this claim token was deleted: make another token".into())
        }
        other => other,
    }
}

fn void() -> Error {
    Error::Unauthenticated("this claim token is unknown, deleted, expired or used up")
}
