//! Routes of the state and the dead letters of webhooks.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::extract::{AuthenticatedCaller, IdempotencyKey, Input, PageQuery, Paging, Path};
use super::parts::AtPart;
use super::problem::ApiResult;
use super::{Api, List};
use crate::domain::{
    BrokerRef, DeadLetter, DeadLetterCount, KeyRotation, Permission, RotatedKey, Settling, WebhookDelivery,
    WebhookStatus, Which,
};
use crate::secret::Secret;

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(webhook_status))
        .routes(routes!(list_webhook_deliveries))
        .routes(routes!(rotate_webhook_key))
        .routes(routes!(test_webhook))
        .routes(routes!(list_dead_letters, remove_dead_letters))
        .routes(routes!(retry_dead_letters))
        .routes(routes!(remove_dead_letter))
        .routes(routes!(retry_dead_letter))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct AtLetter {
    organisation: Uuid,
    broker: String,
    name: String,
    /// Id of the dead letter.
    letter: String,
}

impl AtPart {
    fn split(self) -> (BrokerRef, String) {
        (BrokerRef { organisation: self.organisation, name: self.broker }, self.name)
    }
}

/// The state of a webhook.
#[utoipa::path(get, path = "/organisations/{organisation}/brokers/{broker}/webhooks/{name}/status", tag = "webhooks",
    params(AtPart), responses((status = 200, description = "Its queue, deliveries and failures", body = WebhookStatus)))]
async fn webhook_status(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtPart>,
) -> ApiResult<Json<WebhookStatus>> {
    let (at, name) = at.split();
    Ok(Json(api.control().webhook_status(&caller, &at, &name).await?))
}

/// The last 100 attempts to deliver events to a webhook, the latest first.
#[utoipa::path(get, path = "/organisations/{organisation}/brokers/{broker}/webhooks/{name}/deliveries", tag = "webhooks",
    params(AtPart), responses((status = 200, description = "The attempts", body = List<WebhookDelivery>)))]
async fn list_webhook_deliveries(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtPart>,
) -> ApiResult<Json<List<WebhookDelivery>>> {
    let (at, name) = at.split();
    let items = api.control().webhook_deliveries(&caller, &at, &name).await?;
    Ok(Json(List { items, next_cursor: None }))
}

/// The signing keys of a webhook, with the generated one.
#[derive(Serialize, ToSchema)]
struct MadeKey {
    #[serde(flatten)]
    keys: RotatedKey,
    /// The generated key. Only this answer contains it. Null if you chose one.
    #[schema(value_type = Option<String>)]
    signing_key: Option<Secret>,
}

/// Replaces the signing key of a webhook. With an overlap, requests have the signatures of both keys until its end, so
/// that the receiver can change its key at any time in between.
#[utoipa::path(post, path = "/organisations/{organisation}/brokers/{broker}/webhooks/{name}/rotate-key", tag = "webhooks",
    params(AtPart, IdempotencyKey), request_body = KeyRotation,
    responses((status = 200, description = "The keys", body = MadeKey)))]
async fn rotate_webhook_key(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtPart>,
    Input { value, once }: Input<KeyRotation>,
) -> ApiResult<Json<MadeKey>> {
    let (at, name) = at.split();
    let (keys, signing_key) = api.control().rotate_webhook_key(&caller, &at, &name, &value, &once).await?;
    Ok(Json(MadeKey { keys, signing_key }))
}

/// Queues a test event, and makes the server try the webhook's queue at once.
#[utoipa::path(post, path = "/organisations/{organisation}/brokers/{broker}/webhooks/{name}/test", tag = "webhooks",
    params(AtPart), responses((status = 202, description = "It is queued; if the receiver refuses it, it becomes a dead letter")))]
async fn test_webhook(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtPart>,
) -> ApiResult<StatusCode> {
    let (at, name) = at.split();
    api.control().test_webhook(&caller, &at, &name).await?;
    Ok(StatusCode::ACCEPTED)
}

/// Events that the receiver refused, or that could not be delivered for a day.
#[utoipa::path(get, path = "/organisations/{organisation}/brokers/{broker}/webhooks/{name}/dead-letters", tag = "webhooks",
    params(AtPart, PageQuery), responses((status = 200, description = "A page of them, oldest first", body = List<DeadLetter>)))]
async fn list_dead_letters(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtPart>,
    Paging(page): Paging,
) -> ApiResult<Json<List<DeadLetter>>> {
    let (at, name) = at.split();
    let _turn = api.turn(&caller, at.organisation, Permission::AccessRead).await?;
    Ok(List::of(api.control().dead_letters(&caller, &at, &name, &page).await?))
}

/// Removes all dead letters of a webhook.
#[utoipa::path(delete, path = "/organisations/{organisation}/brokers/{broker}/webhooks/{name}/dead-letters", tag = "webhooks",
    params(AtPart), responses((status = 200, description = "They are removed", body = DeadLetterCount)))]
async fn remove_dead_letters(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtPart>,
) -> ApiResult<Json<DeadLetterCount>> {
    let (at, name) = at.split();
    Ok(Json(api.control().settle_dead_letters(&caller, &at, &name, Which::All, Settling::Remove).await?))
}

/// Sends each dead letter of a webhook once more.
#[utoipa::path(post, path = "/organisations/{organisation}/brokers/{broker}/webhooks/{name}/dead-letters/retry", tag = "webhooks",
    params(AtPart), responses((status = 202, description = "They are on their way", body = DeadLetterCount)))]
async fn retry_dead_letters(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtPart>,
) -> ApiResult<(StatusCode, Json<DeadLetterCount>)> {
    let (at, name) = at.split();
    let count = api.control().settle_dead_letters(&caller, &at, &name, Which::All, Settling::Retry).await?;
    Ok((StatusCode::ACCEPTED, Json(count)))
}

/// Removes a dead letter.
#[utoipa::path(delete, path = "/organisations/{organisation}/brokers/{broker}/webhooks/{name}/dead-letters/{letter}", tag = "webhooks",
    params(AtLetter), responses((status = 204, description = "It is removed")))]
async fn remove_dead_letter(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(AtLetter { organisation, broker, name, letter }): Path<AtLetter>,
) -> ApiResult<StatusCode> {
    let at = BrokerRef { organisation, name: broker };
    api.control().settle_dead_letters(&caller, &at, &name, Which::One(&letter), Settling::Remove).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Sends a dead letter once more.
#[utoipa::path(post, path = "/organisations/{organisation}/brokers/{broker}/webhooks/{name}/dead-letters/{letter}/retry", tag = "webhooks",
    params(AtLetter), responses((status = 202, description = "It is on its way")))]
async fn retry_dead_letter(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(AtLetter { organisation, broker, name, letter }): Path<AtLetter>,
) -> ApiResult<StatusCode> {
    let at = BrokerRef { organisation, name: broker };
    api.control().settle_dead_letters(&caller, &at, &name, Which::One(&letter), Settling::Retry).await?;
    Ok(StatusCode::ACCEPTED)
}
