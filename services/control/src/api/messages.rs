//! Routes that act as an MQTT client: connect tokens for a page, publishing, and the live tail.

use std::convert::Infallible;
use std::fmt;
use std::marker::PhantomData;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures_util::stream::{Stream, StreamExt as _};
use millrace_access::model::{Action, Effect, Rule};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{AuthenticatedCaller, IdempotencyKey, Input, Path, Query};
use super::problem::{ApiResult, Problem};
use super::{Api, AtBroker, streams};
use crate::domain::{ConnectToken, LiveBroker, NewConnectToken, Permission};
use crate::limits::{REQUEST_TIME_MAX, STREAM_MAX};
use crate::live::{MessageProperties, PublishRequest, Published, TailEvent};
use crate::secret::Secret;

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(create_connect_token)).routes(routes!(publish)).routes(routes!(tail))
}

/// A connect token with its password.
#[derive(Serialize, ToSchema)]
struct MadeConnectToken {
    #[serde(flatten)]
    token: ConnectToken,
    /// Password to connect with. Only this answer contains it.
    #[schema(value_type = String, example = "mct_1...")]
    password: Secret,
}

/// Creates a connect token: a short-lived password for MQTT, such as for a web page. The broker disconnects its client
/// when the token ends.
#[utoipa::path(post, path = "/organisations/{organisation}/brokers/{broker}/connect-tokens", tag = "messages",
    params(AtBroker, IdempotencyKey), request_body = NewConnectToken,
    responses((status = 201, description = "The token", body = MadeConnectToken)))]
async fn create_connect_token(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtBroker>,
    Input { value, once }: Input<NewConnectToken>,
) -> ApiResult<(StatusCode, Json<MadeConnectToken>)> {
    let (token, password) = api.control().create_connect_token(&caller, &at.at(), &value, &once).await?;
    Ok((StatusCode::CREATED, Json(MadeConnectToken { token, password })))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewMessage {
    #[schema(example = "plant/7/pump", min_length = 1)]
    topic: String,
    payload: Option<String>,
    /// Payload in base64, for binary data; it excludes `payload`.
    payload_base64: Option<String>,
    /// Quality of service: 0, 1 or 2. With 1 and 2, the answer means that the message is stored.
    #[serde(default = "one")]
    #[schema(minimum = 0, maximum = 2, default = 1)]
    qos: u8,
    /// Whether the message becomes the retained message of its topic.
    #[serde(default)]
    retain: bool,
    /// Properties of MQTT 5.0.
    #[serde(default, deserialize_with = "object")]
    properties: MessageProperties,
}

fn one() -> u8 {
    1
}

/// Reads a struct from an object alone: serde would also take a list of its fields in order.
fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    struct Object<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map))
        }
    }

    deserializer.deserialize_map(Object(PhantomData))
}

/// Publishes a message. With QoS 1 and 2, the answer comes when the message is stored, like a PUBACK. A repeated
/// request publishes again. A message of more bytes than a minute of the broker's `client.publish_bytes_per_s` is
/// refused with 413.
#[utoipa::path(post, path = "/organisations/{organisation}/brokers/{broker}/publish", tag = "messages", params(AtBroker),
    request_body = NewMessage, responses((status = 200, description = "It is published", body = Published)))]
async fn publish(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtBroker>,
    Input { value, .. }: Input<NewMessage>,
) -> ApiResult<Json<Published>> {
    let publication = value.check()?;
    let at = at.at();
    let (id, limits) = api.control().open_to_publish(&caller, &at).await?;
    let rules = vec![Rule::new(Effect::Allow, Action::Publish, "#")];
    let visit =
        api.control().visit(&caller, LiveBroker { id, name: at.name }, rules, REQUEST_TIME_MAX * 2)?;
    let charge = api.rates().publish(id, caller.id(), &limits, publication.bytes())?;
    let published = api.live().publish(&visit, &publication).await;
    if published.as_ref().is_err_and(|error| !error.may_be_done()) {
        api.rates().not_published(&charge);
    }
    Ok(Json(published?))
}

impl NewMessage {
    fn check(self) -> ApiResult<PublishRequest> {
        let payload = match (self.payload, self.payload_base64) {
            (Some(_), Some(_)) => {
                return Err(Problem::field("payload_base64", "stands beside payload: send one"));
            }
            (text, None) => text.unwrap_or_default().into_bytes(),
            (None, Some(encoded)) => decoded("payload_base64", &encoded)?,
        };
        if self.qos > 2 {
            return Err(Problem::field("qos", "must be 0, 1 or 2"));
        }
        let properties = self.properties;
        let correlation = properties.correlation_data_base64.as_deref();
        Ok(PublishRequest {
            topic: self.topic,
            payload,
            qos: self.qos,
            retain: self.retain,
            content_type: properties.content_type,
            response_topic: properties.response_topic,
            correlation_data: correlation
                .map(|text| decoded("properties.correlation_data_base64", text))
                .transpose()?,
            message_expiry_s: properties.message_expiry_s,
            user_properties: properties.user_properties,
        })
    }
}

fn decoded(field: &str, text: &str) -> ApiResult<Vec<u8>> {
    BASE64_STANDARD
        .decode(text)
        .map_err(|_| Problem::field(field, "is not base64 with padding (RFC 4648 section 4)"))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct TailFilter {
    /// Topic filter; left out: all topics.
    #[serde(default = "everything")]
    #[param(min_length = 1, default = "#")]
    filter: String,
    /// Whether the stream begins with the retained messages of these topics.
    #[serde(default)]
    retained: bool,
}

fn everything() -> String {
    "#".into()
}

/// Published messages, as server-sent events. `message` has a message. `dropped` has the number of messages that were
/// left out, because the reader was slow or they exceeded 500 a second. `end` has the reason. The stream ends with the
/// caller's membership, token or web session, and with the broker.
#[utoipa::path(get, path = "/organisations/{organisation}/brokers/{broker}/tail", tag = "messages", params(AtBroker, TailFilter),
    responses((status = 200, description = "Events", content_type = "text/event-stream", body = String)))]
async fn tail(
    State(api): State<Api>,
    AuthenticatedCaller(caller): AuthenticatedCaller,
    Path(at): Path<AtBroker>,
    Query(TailFilter { filter, retained }): Query<TailFilter>,
) -> ApiResult<Sse<impl Stream<Item = Result<Event, Infallible>>>> {
    let at = at.at();
    let id = api.control().open_broker(&caller, &at, Permission::MessagesRead).await?;
    let share = api.streams().take(at.organisation, caller.person())?;
    let rules = vec![Rule::new(Effect::Allow, Action::Subscribe, "#")];
    let visit = api.control().visit(&caller, LiveBroker { id, name: at.name.clone() }, rules, STREAM_MAX)?;
    let events = api.live().tail(&visit, &filter, retained).await?.map(|event| shown(&event));
    let events = streams::while_allowed(&api, caller, at, Permission::MessagesRead, events, share);
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}

fn shown(event: &TailEvent) -> Event {
    let made = match event {
        TailEvent::Message(message) => Event::default().event("message").json_data(message),
        TailEvent::Dropped(dropped) => Event::default().event("dropped").json_data(dropped),
        TailEvent::End(end) => Event::default().event("end").json_data(end),
    };
    made.unwrap_or_else(|_| Event::default().comment("an event that cannot be written"))
}
