//! Routes of the stored messages of a topic or a filter, and of the sessions that have yet to receive them.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{AuthenticatedCaller, PageQuery, Paging, Path, Query};
use super::problem::ApiResult;
use super::{Api, AtBroker, List, query};
use crate::domain::{LiveBroker, Permission};
use crate::limits::{STORED_MESSAGES, STORED_MESSAGES_MAX};
use crate::live::{StoredMessages, StreamBacklog, StreamBacklogDetails};

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(list_stored_messages))
        .routes(routes!(list_streams))
        .routes(routes!(get_stream))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct MessageQuery {
    /// The topic, without wildcards.
    #[param(min_length = 1, example = "plant/7/pump")]
    topic: String,
    /// Maximum number of messages.
    #[serde(default)]
    #[param(minimum = 1, maximum = 50, default = 10)]
    limit: Option<usize>,
}

/// The latest stored messages of a topic, and the sessions that have acknowledged each message or have yet to. The
/// server reads the last 500 messages of the filters that match the topic, and 1,000 sessions.
#[utoipa::path(get, path = "/organisations/{organisation}/brokers/{broker}/messages", tag = "messages", params(AtBroker, MessageQuery),
    responses((status = 200, description = "Messages", body = StoredMessages)))]
async fn list_stored_messages(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtBroker>,
    Query(MessageQuery { topic, limit }): Query<MessageQuery>,
) -> ApiResult<Json<StoredMessages>> {
    let limit = limit.unwrap_or(STORED_MESSAGES);
    if !(1..=STORED_MESSAGES_MAX).contains(&limit) {
        return Err(query::wrong("limit", &format!("must be between 1 and {STORED_MESSAGES_MAX}")));
    }
    let (organisation, at) = (at.organisation, at.at());
    let id = api.control().open_broker(&caller, &at, Permission::MessagesRead).await?;
    let _turn = api.budget().turn(organisation, caller.account()).await?;
    Ok(Json(api.live().messages(&LiveBroker { id, name: at.name }, &topic, limit).await?))
}

/// The streams of a broker, also empty ones: one for each topic filter to which stored sessions subscribe with QoS 1 or 2, and
/// for each filter of a webhook.
#[utoipa::path(get, path = "/organisations/{organisation}/brokers/{broker}/streams", tag = "messages", params(AtBroker, PageQuery),
    responses((status = 200, description = "Streams", body = List<StreamBacklog>)))]
async fn list_streams(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtBroker>,
    Paging(page): Paging,
) -> ApiResult<Json<List<StreamBacklog>>> {
    let (organisation, at) = (at.organisation, at.at());
    let id = api.control().open_broker(&caller, &at, Permission::ClientsRead).await?;
    let _turn = api.budget().turn(organisation, caller.account()).await?;
    Ok(List::of(api.live().streams(&LiveBroker { id, name: at.name }, &page).await?))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct StoredFilterQuery {
    /// The topic filter, with `$share/GROUP/` for a shared subscription.
    #[param(min_length = 1, example = "plant/+/alarm")]
    filter: String,
}

/// The stream of a filter, with its sessions among the first 1,000 of the broker. The server counts about 5,000 messages for all
/// of them.
#[utoipa::path(get, path = "/organisations/{organisation}/brokers/{broker}/streams/stream", tag = "messages", params(AtBroker, StoredFilterQuery),
    responses((status = 200, description = "The stream", body = StreamBacklogDetails)))]
async fn get_stream(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtBroker>,
    Query(StoredFilterQuery { filter }): Query<StoredFilterQuery>,
) -> ApiResult<Json<StreamBacklogDetails>> {
    let (organisation, at) = (at.organisation, at.at());
    let id = api.control().open_broker(&caller, &at, Permission::ClientsRead).await?;
    let _turn = api.budget().turn(organisation, caller.account()).await?;
    Ok(Json(api.live().stream(&LiveBroker { id, name: at.name }, &filter).await?))
}
