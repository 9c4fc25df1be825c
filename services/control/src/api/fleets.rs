//! Routes for credentials of many devices: in batches, and by claim tokens that devices exchange themselves.

use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::credentials::MadeCredential;
use super::extract::{AuthenticatedCaller, CallerSource, IdempotencyKey, Input, PageQuery, Paging, Path};
use super::problem::{ApiResult, Problem};
use super::{Api, AtBroker, List};
use crate::domain::{
    BrokerRef, Claim, ClaimAnswer, ClaimToken, Error, MadeBatch, NewClaimToken, NewCredentialBatch, Once,
    Permission, RequestSource, ShownClaimToken,
};
use crate::limits::{BATCH_RULES_BYTES_MAX, CLAIM_BYTES_MAX, CLAIM_KEY_BYTES_MIN};
use crate::secret::Secret;

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(create_credential_batch))
        .routes(routes!(list_claim_tokens, create_claim_token))
        .routes(routes!(get_claim_token, delete_claim_token))
        .routes(routes!(claim))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct AtClaimToken {
    organisation: Uuid,
    broker: String,
    claim_token: Uuid,
}

impl AtClaimToken {
    fn split(self) -> (BrokerRef, Uuid) {
        (BrokerRef { organisation: self.organisation, name: self.broker }, self.claim_token)
    }
}

/// Credentials with their secrets.
#[derive(Serialize, ToSchema)]
struct MadeCredentials {
    /// Id of the batch, by which the audit log names it.
    batch: Uuid,
    /// In the order of the request.
    items: Vec<MadeCredential>,
}

/// A claim token with its secret.
#[derive(Serialize, ToSchema)]
struct MadeClaimToken {
    #[serde(flatten)]
    claim_token: ClaimToken,
    /// The text that devices show. Only this answer contains it.
    #[schema(value_type = String, example = "mlc_...")]
    secret: Secret,
}

/// The credential that a device has claimed.
#[derive(Serialize, ToSchema)]
struct ClaimedCredential {
    #[serde(flatten)]
    claimed: ClaimAnswer,
    /// The password to connect with. Only this answer contains it.
    #[schema(value_type = String, example = "mr_...")]
    password: Secret,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[allow(dead_code, reason = "only described: the extractor reads the header")]
struct ClaimKey {
    /// A random name for this request, of at least 32 characters. If the answer is lost, the device repeats the request
    /// with the same name within a day, and gets the same password. Anybody with the claim token who knows this name gets
    /// it too, so derive the name from nothing that others know, such as a serial number.
    #[param(rename = "Idempotency-Key", min_length = 32, max_length = 255)]
    idempotency_key: String,
}

/// Creates the credentials of up to 1,000 devices: all of them or none. The server generates their passwords. An
/// organisation may make 5,000 at once, and 100 a second over time. The audit log has one entry for the batch; its
/// `at_ms` is the `created_at_ms` of the credentials.
#[utoipa::path(post, path = "/organisations/{organisation}/brokers/{broker}/credential-batches", tag = "access",
    params(AtBroker, IdempotencyKey), request_body = NewCredentialBatch,
    responses((status = 201, description = "The credentials", body = MadeCredentials)))]
async fn create_credential_batch(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtBroker>,
    Input { value, once }: Input<NewCredentialBatch>,
) -> ApiResult<impl IntoResponse> {
    let at = at.at();
    // The permission comes first, so that strangers cannot use up what the organisation may make.
    api.control().may(&caller, at.organisation, Permission::AccessWrite).await?;
    // The answer repeats the rules for each device.
    let _reserved = api.answers().reserve(caller.account(), BATCH_RULES_BYTES_MAX)?;
    let turn = api.budget().own_turn_of_change(at.organisation, caller.account()).await?;
    let hashing = match value.scram {
        true => Some(api.hashing().own_turn_of_change(at.organisation, caller.account()).await?),
        false => None,
    };
    // A request that gets no turn must not use up the organisation's budget of devices.
    api.rates().devices(at.organisation, value.devices.len())?;
    let mut new = api.control().new_credentials(&value, &once)?;
    if let Some(hashing) = hashing {
        if let Some(made) = api.control().credentials_before(&caller, &value, &once).await? {
            return Ok(answer(made));
        }
        for index in 0..value.devices.len() {
            // A permit for each verifier, so that passwords of others are hashed in between.
            let _permit = hashing.shared().await?;
            api.control().add_verifier(&mut new, index).await?;
        }
    }
    let _permit = turn.shared().await?;
    Ok(answer(api.control().create_credentials(&caller, &at, (&value, new), &once).await?))
}

fn answer((batch, made): MadeBatch) -> (StatusCode, Json<MadeCredentials>) {
    let items =
        made.into_iter().map(|(credential, secret)| MadeCredential { credential, secret: Some(secret) });
    (StatusCode::CREATED, Json(MadeCredentials { batch, items: items.collect() }))
}

/// Claim tokens of a broker.
#[utoipa::path(get, path = "/organisations/{organisation}/brokers/{broker}/claim-tokens", tag = "access",
    params(AtBroker, PageQuery), responses((status = 200, description = "Claim tokens", body = List<ClaimToken>)))]
async fn list_claim_tokens(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtBroker>,
    Paging(page): Paging,
) -> ApiResult<Json<List<ClaimToken>>> {
    let _turn = api.turn(&caller, at.organisation, Permission::AccessRead).await?;
    Ok(List::of(api.control().claim_tokens(&caller, &at.at(), &page).await?))
}

/// Creates a claim token: devices without a credential exchange it for a credential of their own.
#[utoipa::path(post, path = "/organisations/{organisation}/brokers/{broker}/claim-tokens", tag = "access",
    params(AtBroker, IdempotencyKey), request_body = NewClaimToken,
    responses((status = 201, description = "The claim token", body = MadeClaimToken)))]
async fn create_claim_token(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtBroker>,
    Input { value, once }: Input<NewClaimToken>,
) -> ApiResult<impl IntoResponse> {
    let at = at.at();
    let (claim_token, secret) = api.control().create_claim_token(&caller, &at, &value, &once).await?;
    let path = at.location(&["claim-tokens", &claim_token.id.to_string()]);
    Ok((StatusCode::CREATED, path, Json(MadeClaimToken { claim_token, secret })))
}

/// A claim token.
#[utoipa::path(get, path = "/organisations/{organisation}/brokers/{broker}/claim-tokens/{claim_token}", tag = "access",
    params(AtClaimToken), responses((status = 200, description = "The claim token", body = ClaimToken)))]
async fn get_claim_token(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtClaimToken>,
) -> ApiResult<Json<ClaimToken>> {
    let (at, id) = at.split();
    Ok(Json(api.control().claim_token(&caller, &at, id).await?))
}

/// Deletes a claim token. The credentials that devices have made by it stay.
#[utoipa::path(delete, path = "/organisations/{organisation}/brokers/{broker}/claim-tokens/{claim_token}", tag = "access",
    params(AtClaimToken), responses((status = 204, description = "It is deleted")))]
async fn delete_claim_token(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtClaimToken>,
    once: Once,
) -> ApiResult<StatusCode> {
    let (at, id) = at.split();
    api.control().delete_claim_token(&caller, &at, id, &once).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Exchanges a claim token for a credential. A device sends it once, without any other sign-in, and stores the password.
#[utoipa::path(post, path = "/claim", tag = "access", security(()), params(ClaimKey), request_body = Claim,
    responses((status = 201, description = "The credential", body = ClaimedCredential)))]
async fn claim(
    State(api): State<Api>,
    Claiming(source): Claiming,
    headers: HeaderMap,
    Input { value, once }: Input<Claim, CLAIM_BYTES_MAX>,
) -> ApiResult<impl IntoResponse> {
    if headers.get("idempotency-key").is_none_or(|key| key.len() < CLAIM_KEY_BYTES_MIN) {
        let detail = format!(
            "a claim needs the header Idempotency-Key: at least {CLAIM_KEY_BYTES_MIN} random characters, with which the device repeats the claim if it gets no answer"
        );
        return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
    }
    // Before the look-up, so that the refusal does not show which tokens are stored.
    let hash = api.control().claim_hash(&value.token)?;
    api.rates().claim_by(hash)?;
    let shown = api.control().shown_claim_token(hash).await?;
    match api.control().claim(&shown, &value, &source, &once).await {
        Ok((claimed, password, is_repeated)) => {
            // The credential is the device's already, so a repetition needs no entry each time.
            if is_repeated && api.rates().audit_entry(shown.id()) {
                api.control().note_repeated_claim(&shown, &value, &source).await?;
            }
            Ok((StatusCode::CREATED, Json(ClaimedCredential { claimed, password })))
        }
        Err(error) => {
            note_refused(&api, &shown, &value, &source, &error).await;
            Err(error.into())
        }
    }
}

/// The source of a claim, counted before the body is read.
struct Claiming(RequestSource);

impl FromRequestParts<Api> for Claiming {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> ApiResult<Self> {
        let CallerSource(source) = CallerSource::from_request_parts(parts, api).await?;
        api.rates().claim(source.address)?;
        Ok(Self(source))
    }
}

async fn note_refused(
    api: &Api,
    shown: &ShownClaimToken,
    value: &Claim,
    source: &RequestSource,
    error: &Error,
) {
    if matches!(error, Error::Layer(_) | Error::Internal(_)) || !api.rates().audit_entry(shown.id()) {
        return;
    }
    let why = match error {
        Error::Invalid(found) => {
            found.iter().map(|one| format!("{} {}", one.field, one.what)).collect::<Vec<_>>().join("; ")
        }
        other => other.to_string(),
    };
    if let Err(error) = api.control().note_refused_claim(shown, value, source, &why).await {
        tracing::warn!(%error, "a claim was refused, and the audit log lacks its entry: see whether the store answers");
    }
}
