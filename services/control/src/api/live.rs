//! Routes of a broker's clients, sessions, retained messages and metrics. Handlers authorise the caller and ask
//! [`Live`](crate::Live), which acts outside of transactions. The audit entry of a change comes first, so that nothing happens
//! without one. A request takes a turn if it reads many rows (`turn`) or waits for pods (`own_turn`).

use std::convert::Infallible;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::stream::{self, Stream, StreamExt as _};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::extract::{AuthenticatedCaller, PageQuery, Paging, Path, Query, checked_search};
use super::problem::ApiResult;
use super::{Api, AtBroker, List, streams};
use crate::domain::{BrokerRef, Caller, HistorySpan, HistoryStep, LiveBroker, MetricsHistory, Permission};
use crate::limits::METRICS_EVERY;
use crate::live::{
    Client, ClientDetails, Clients, Metrics, Retained, RetainedMessage, SessionDetails, SessionInfo,
    TopicBranch, TraceEvent,
};

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(list_clients))
        .routes(routes!(get_client, kick_client))
        .routes(routes!(trace_client))
        .routes(routes!(list_sessions))
        .routes(routes!(get_session, purge_session))
        .routes(routes!(list_retained))
        .routes(routes!(list_topics))
        .routes(routes!(get_retained, clear_retained))
        .routes(routes!(get_metrics))
        .routes(routes!(get_metrics_history))
        .routes(routes!(stream_metrics))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct AtClient {
    organisation: Uuid,
    broker: String,
    /// Client id, or `base64:` and the id in base64url, because a URL cannot contain the ids `.` and `..`.
    client_id: String,
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct SearchQuery {
    /// Prefix of the client id or user name.
    search: Option<String>,
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct FilterQuery {
    /// Topic filter; left out: all topics.
    #[param(min_length = 1)]
    filter: Option<String>,
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct TopicQuery {
    #[param(min_length = 1)]
    topic: String,
}

async fn open(api: &Api, caller: &Caller, at: BrokerRef, permission: Permission) -> ApiResult<LiveBroker> {
    let id = api.control().open_broker(caller, &at, permission).await?;
    Ok(LiveBroker { id, name: at.name })
}

impl AtClient {
    fn split(self) -> (BrokerRef, String) {
        (BrokerRef { organisation: self.organisation, name: self.broker }, client_id_of(self.client_id))
    }
}

fn client_id_of(part: String) -> String {
    let encoded = part.strip_prefix("base64:");
    let decoded = encoded.and_then(|text| String::from_utf8(URL_SAFE_NO_PAD.decode(text).ok()?).ok());
    decoded.unwrap_or(part)
}

#[derive(Serialize, ToSchema)]
struct ClientList {
    items: Vec<Client>,
    /// Send it as `cursor` to get the next page; null: this is the last page.
    next_cursor: Option<String>,
    /// Whether clients may be missing, because servers did not answer in time.
    incomplete: bool,
    /// The servers that did not answer.
    unanswered: Vec<String>,
}

impl From<Clients> for ClientList {
    fn from(Clients { page, unanswered }: Clients) -> Self {
        let Json(List { items, next_cursor }) = List::of(page);
        Self { items, next_cursor, incomplete: !unanswered.is_empty(), unanswered }
    }
}

/// Connected clients of all servers in the region.
#[utoipa::path(get, path = "/organisations/{organisation}/brokers/{broker}/clients", tag = "clients",
    params(AtBroker, SearchQuery, PageQuery), responses((status = 200, description = "Clients", body = ClientList)))]
async fn list_clients(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtBroker>,
    Query(SearchQuery { search }): Query<SearchQuery>,
    Paging(page): Paging,
) -> ApiResult<Json<ClientList>> {
    let organisation = at.organisation;
    let broker = open(&api, &caller, at.at(), Permission::ClientsRead).await?;
    let _turn = api.budget().own_turn(organisation, caller.account()).await?;
    Ok(Json(api.live().clients(&broker, search.as_deref(), &page).await?.into()))
}

/// A connected client.
#[utoipa::path(get, path = "/organisations/{organisation}/brokers/{broker}/clients/{client_id}", tag = "clients",
    params(AtClient), responses((status = 200, description = "The client", body = ClientDetails)))]
async fn get_client(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtClient>,
) -> ApiResult<Json<ClientDetails>> {
    let (at, client_id) = at.split();
    let organisation = at.organisation;
    let broker = open(&api, &caller, at, Permission::ClientsRead).await?;
    let _turn = api.budget().own_turn(organisation, caller.account()).await?;
    Ok(Json(api.live().client(&broker, &client_id).await?))
}

/// Closes a client's connection.
#[utoipa::path(delete, path = "/organisations/{organisation}/brokers/{broker}/clients/{client_id}", tag = "clients",
    params(AtClient), responses((status = 204, description = "It is closed")))]
async fn kick_client(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtClient>,
) -> ApiResult<StatusCode> {
    let (at, client_id) = at.split();
    let broker = open(&api, &caller, at.clone(), Permission::ClientsWrite).await?;
    let _turn = api.budget().own_turn_of_change(at.organisation, caller.account()).await?;
    api.control().note(&caller, &at, "client.kick", &client_id).await?;
    api.live().kick(&broker, &client_id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The packets of a client id, as server-sent events, without payloads. The trace may begin before the client connects.
/// `begun` comes first and has the client, if it is connected. `trace` has a packet or a decision of the server.
/// `left_out` has the number of events that were left out, because the reader was slow or they exceeded 500 a second.
/// `end` has the reason. The stream ends with the caller's membership, token or web session, and with the broker.
#[utoipa::path(get, path = "/organisations/{organisation}/brokers/{broker}/clients/{client_id}/trace", tag = "clients",
    params(AtClient), responses((status = 200, description = "Events", content_type = "text/event-stream", body = String)))]
async fn trace_client(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtClient>,
) -> ApiResult<Sse<impl Stream<Item = Result<Event, Infallible>>>> {
    let (at, client_id) = at.split();
    open(&api, &caller, at.clone(), Permission::ClientsRead).await?;
    // A trace shows topics, so its reader must also be allowed to read messages.
    let broker = open(&api, &caller, at.clone(), Permission::MessagesRead).await?;
    let share = api.streams().take(at.organisation, caller.person())?;
    let turn = api.budget().own_turn(at.organisation, caller.account()).await?;
    let events = api.live().trace(&broker, &client_id).await?.map(|event| traced(&event));
    drop(turn);
    let events = streams::while_allowed(&api, caller, at, Permission::MessagesRead, events, share);
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}

fn traced(event: &TraceEvent) -> Event {
    let made = match event {
        TraceEvent::Begun(begun) => Event::default().event("begun").json_data(begun),
        TraceEvent::Traced(packet) => Event::default().event("trace").json_data(packet),
        TraceEvent::LeftOut(left_out) => Event::default().event("left_out").json_data(left_out),
        TraceEvent::End(end) => Event::default().event("end").json_data(end),
    };
    made.unwrap_or_else(|_| Event::default().comment("an event that cannot be written"))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct SessionSearch {
    #[param(max_length = 1024)]
    search: Option<String>,
}

/// Sessions that outlive their connection.
#[utoipa::path(get, path = "/organisations/{organisation}/brokers/{broker}/sessions", tag = "clients",
    params(AtBroker, SessionSearch, PageQuery), responses((status = 200, description = "Sessions", body = List<SessionInfo>)))]
async fn list_sessions(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtBroker>,
    Query(SessionSearch { search }): Query<SessionSearch>,
    Paging(page): Paging,
) -> ApiResult<Json<List<SessionInfo>>> {
    let search = checked_search(search.as_deref())?;
    let organisation = at.organisation;
    let broker = open(&api, &caller, at.at(), Permission::ClientsRead).await?;
    let _turn = api.budget().turn(organisation, caller.account()).await?;
    Ok(List::of(api.live().sessions(&broker, search, &page).await?))
}

/// A session.
#[utoipa::path(get, path = "/organisations/{organisation}/brokers/{broker}/sessions/{client_id}", tag = "clients",
    params(AtClient), responses((status = 200, description = "The session", body = SessionDetails)))]
async fn get_session(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtClient>,
) -> ApiResult<Json<SessionDetails>> {
    let organisation = at.organisation;
    let (at, client_id) = at.split();
    let broker = open(&api, &caller, at, Permission::ClientsRead).await?;
    let _turn = api.budget().turn(organisation, caller.account()).await?;
    Ok(Json(api.live().session(&broker, &client_id).await?))
}

/// Ends a session with its queued messages, and closes its connection.
#[utoipa::path(delete, path = "/organisations/{organisation}/brokers/{broker}/sessions/{client_id}", tag = "clients",
    params(AtClient), responses((status = 204, description = "It has ended")))]
async fn purge_session(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtClient>,
) -> ApiResult<StatusCode> {
    let (at, client_id) = at.split();
    let broker = open(&api, &caller, at.clone(), Permission::ClientsWrite).await?;
    let _turn = api.budget().turn_of_change(at.organisation, caller.account()).await?;
    api.control().note(&caller, &at, "session.purge", &client_id).await?;
    api.live().purge_session(&broker, &client_id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Retained messages. A request compares some 10,000 topics with the filter, and reads some 16 MiB: its page may be shorter
/// than `limit`, or empty, and still have a `next_cursor`.
#[utoipa::path(get, path = "/organisations/{organisation}/brokers/{broker}/retained", tag = "clients",
    params(AtBroker, FilterQuery, PageQuery), responses((status = 200, description = "Messages", body = List<Retained>)))]
async fn list_retained(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtBroker>,
    Query(FilterQuery { filter }): Query<FilterQuery>,
    Paging(page): Paging,
) -> ApiResult<Json<List<Retained>>> {
    let organisation = at.organisation;
    let broker = open(&api, &caller, at.at(), Permission::ClientsRead).await?;
    let _turn = api.budget().turn(organisation, caller.account()).await?;
    Ok(List::of(api.live().retained(&broker, filter.as_deref(), &page).await?))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Below {
    /// List the levels below this topic; left out: the first level.
    #[param(example = "plant/7")]
    below: Option<String>,
}

/// The tree of topics with retained messages, one level at a time. The server counts up to 200 messages below a level.
#[utoipa::path(get, path = "/organisations/{organisation}/brokers/{broker}/topics", tag = "clients",
    params(AtBroker, Below, PageQuery), responses((status = 200, description = "Levels", body = List<TopicBranch>)))]
async fn list_topics(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtBroker>,
    Query(Below { below }): Query<Below>,
    Paging(page): Paging,
) -> ApiResult<Json<List<TopicBranch>>> {
    let organisation = at.organisation;
    let broker = open(&api, &caller, at.at(), Permission::ClientsRead).await?;
    let _turn = api.budget().turn(organisation, caller.account()).await?;
    Ok(List::of(api.live().topics(&broker, below.as_deref(), &page).await?))
}

/// The retained message of a topic.
#[utoipa::path(get, path = "/organisations/{organisation}/brokers/{broker}/retained/message", tag = "clients",
    params(AtBroker, TopicQuery), responses((status = 200, description = "The message", body = RetainedMessage)))]
async fn get_retained(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtBroker>,
    Query(TopicQuery { topic }): Query<TopicQuery>,
) -> ApiResult<Json<RetainedMessage>> {
    let broker = open(&api, &caller, at.at(), Permission::ClientsRead).await?;
    Ok(Json(api.live().retained_message(&broker, &topic).await?))
}

/// Removes the retained message of a topic.
#[utoipa::path(delete, path = "/organisations/{organisation}/brokers/{broker}/retained/message", tag = "clients",
    params(AtBroker, TopicQuery), responses((status = 204, description = "It is removed")))]
async fn clear_retained(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtBroker>,
    Query(TopicQuery { topic }): Query<TopicQuery>,
) -> ApiResult<StatusCode> {
    let at = at.at();
    let broker = open(&api, &caller, at.clone(), Permission::ClientsWrite).await?;
    api.control().note(&caller, &at, "retained.clear", &topic).await?;
    api.live().clear_retained(&broker, &topic).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The current load of a broker.
#[utoipa::path(get, path = "/organisations/{organisation}/brokers/{broker}/metrics", tag = "clients", params(AtBroker),
    responses((status = 200, description = "Now", body = Metrics)))]
async fn get_metrics(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtBroker>,
) -> ApiResult<Json<Metrics>> {
    let broker = open(&api, &caller, at.at(), Permission::ClientsRead).await?;
    Ok(Json(api.live().metrics(&broker).await?))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct HistoryQuery {
    /// Start in unix milliseconds, rounded down to a whole step. Left out: an hour before `to` with `step=minute`, a day
    /// with `ten_minutes`, a week with `hour`, 30 days with `day`.
    #[param(maximum = 253_402_300_799_999_u64)]
    from: Option<u64>,
    /// End (exclusive) in unix milliseconds. Left out: now.
    #[param(maximum = 253_402_300_799_999_u64)]
    to: Option<u64>,
    /// Length of a step: minutes are stored for a day, hours for 30 days.
    #[serde(default)]
    #[param(inline)]
    step: HistoryStep,
}

/// The load of a broker over time: at most 25 hours of minutes, or 31 days of hours.
#[utoipa::path(get, path = "/organisations/{organisation}/brokers/{broker}/metrics/history", tag = "clients",
    params(AtBroker, HistoryQuery), responses((status = 200, description = "One point for each step", body = MetricsHistory)))]
async fn get_metrics_history(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtBroker>,
    Query(HistoryQuery { from, to, step }): Query<HistoryQuery>,
) -> ApiResult<Json<MetricsHistory>> {
    let _turn = api.turn(&caller, at.organisation, Permission::ClientsRead).await?;
    let span = HistorySpan { from_ms: from, to_ms: to, step };
    Ok(Json(api.control().history(&caller, &at.at(), span).await?))
}

/// The load of a broker each second, as server-sent events. The data of each is the answer of `metrics`.
#[utoipa::path(get, path = "/organisations/{organisation}/brokers/{broker}/metrics/stream", tag = "clients", params(AtBroker),
    responses((status = 200, description = "Events", content_type = "text/event-stream", body = String)))]
async fn stream_metrics(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtBroker>,
) -> ApiResult<Sse<impl Stream<Item = Result<Event, Infallible>>>> {
    let at = at.at();
    let broker = open(&api, &caller, at.clone(), Permission::ClientsRead).await?;
    let share = api.streams().take(at.organisation, caller.person())?;
    // Read before the stream begins, so that a server without metrics answers with an error instead of an empty stream.
    let first = api.live().metrics(&broker).await?;
    let events = events(api.clone(), broker, first);
    let events = streams::while_allowed(&api, caller, at, Permission::ClientsRead, events, share);
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}

fn events(api: Api, broker: LiveBroker, first: Metrics) -> impl Stream<Item = Event> {
    let rounds = tokio::time::interval(METRICS_EVERY);
    stream::unfold((api, broker, Some(first), rounds), |(api, broker, first, mut rounds)| async {
        rounds.tick().await;
        let now = match first {
            Some(first) => first,
            None => api.live().metrics(&broker).await.ok()?,
        };
        let event = Event::default().json_data(&now).ok()?;
        Some((event, (api, broker, None, rounds)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_id_that_no_url_can_carry_has_another_name() {
        for (part, id) in [
            ("pump-7", "pump-7"),
            ("base64:Li4", ".."),
            ("base64:Lg", "."),
            ("base64:YmFzZTY0Okxn", "base64:Lg"),
            ("base64:%", "base64:%"),
            ("base64:_w", "base64:_w"),
        ] {
            assert_eq!(client_id_of(part.into()), id);
        }
    }
}
