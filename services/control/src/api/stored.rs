//! Route of the stored messages of a topic, and of the sessions that have yet to receive them.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{Auth, Path, Query};
use super::problem::Answer;
use super::{Api, AtBroker, query};
use crate::domain::{LiveBroker, Permission};
use crate::limits::{STORED_MESSAGES, STORED_MESSAGES_MAX};
use crate::live::StoredMessages;

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(list_stored_messages))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Wanted {
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
#[utoipa::path(get, path = "/organisations/{organisation}/brokers/{broker}/messages", tag = "messages", params(AtBroker, Wanted),
    responses((status = 200, description = "Messages", body = StoredMessages)))]
async fn list_stored_messages(
    State(api): State<Api>,
    Auth(caller): Auth,
    Path(at): Path<AtBroker>,
    Query(Wanted { topic, limit }): Query<Wanted>,
) -> Answer<Json<StoredMessages>> {
    let limit = limit.unwrap_or(STORED_MESSAGES);
    if !(1..=STORED_MESSAGES_MAX).contains(&limit) {
        return Err(query::wrong("limit", &format!("must be between 1 and {STORED_MESSAGES_MAX}")));
    }
    let (organisation, at) = (at.organisation, at.at());
    let id = api.control().open_broker(&caller, &at, Permission::MessagesRead).await?;
    let _turn = api.budget().turn(organisation).await?;
    Ok(Json(api.live().messages(&LiveBroker { id, name: at.name }, &topic, limit).await?))
}
