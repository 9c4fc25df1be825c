//! The HTTP API of tenants. Handlers check and translate requests, and call operations of [`Control`]; they never touch
//! the store.
//!
//! The declarations of all handlers, here and in the files beside, generate `openapi.json`.

// The macro of the description writes full paths.
#![allow(unused_qualifications)]

mod access;
mod account_links;
mod accounts;
mod answers;
mod body;
mod brokers;
mod budget;
mod changes;
mod cookie;
mod credentials;
mod describe;
mod examples;
mod export;
mod extract;
mod fleets;
mod guard;
mod headers;
mod incidents;
mod json;
mod live;
mod local;
mod messages;
mod oidc;
mod operator;
mod organisations;
mod parameters;
mod parts;
mod passkeys;
mod problem;
mod query;
mod rates;
mod region;
mod request_id;
mod request_metrics;
mod second_factor;
mod shares;
mod spend;
mod stored;
mod streams;
mod tokens;
mod usage;
mod webhooks;

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::body::Bytes;
use axum::extract::Request;
use axum::http::{HeaderName, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use uuid::Uuid;

use crate::domain::{BrokerRef, Caller, Control, Page, Permission};
use crate::limits::DEVICE_HASHES_AT_ONCE;
use crate::live::Live;
use crate::oidc::{OidcSettings, Provider};
use answers::AnswerPermits;
pub use budget::is_expensive;
use budget::{RequestBudget, Turn};
use changes::ChangePermits;
pub use local::{LocalDoor, is_loopback_host};
pub use operator::{
    FabricState, GatewayPeer, HealthCheck, OPERATOR_PATH, Operations, OwnPod, operator_openapi,
    operator_router,
};
use problem::{ApiResult, Problem};
use rates::Rates;
pub use request_id::unanswered;
pub use request_metrics::RequestMetrics;
use streams::StreamPermits;

pub const PATH: &str = "/api/v1";

#[derive(Clone, Debug, Default)]
pub struct ApiOptions {
    /// Whether people reach this server over TLS: browsers then send its cookies over TLS only.
    pub is_secure: bool,
    /// Trusted proxies, all that stand one behind the other: the server believes their `X-Forwarded-For`.
    pub proxies: Vec<IpNet>,
    pub oidc: Option<OidcSettings>,
    /// Sign-in of this machine's owner; set only if no other machine can reach the server.
    pub local: Option<LocalDoor>,
}

#[derive(Clone)]
pub(crate) struct Api(Arc<Inner>);

struct Inner {
    control: Control,
    live: Arc<dyn Live>,
    options: ApiOptions,
    provider: Option<Provider>,
    rates: Rates,
    streams: StreamPermits,
    budget: RequestBudget,
    hashing: RequestBudget,
    answers: AnswerPermits,
    changes: ChangePermits,
    described: OnceLock<Bytes>,
}

impl Api {
    pub(crate) fn control(&self) -> &Control {
        &self.0.control
    }

    pub(crate) fn live(&self) -> &dyn Live {
        &*self.0.live
    }

    pub(crate) fn rates(&self) -> &Rates {
        &self.0.rates
    }

    pub(crate) fn is_secure(&self) -> bool {
        self.0.options.is_secure
    }

    pub(crate) fn is_proxy(&self, peer: IpAddr) -> bool {
        self.0.options.proxies.iter().any(|network| network.contains(&peer))
    }

    pub(crate) fn provider(&self) -> Option<&Provider> {
        self.0.provider.as_ref()
    }

    pub(crate) fn local_door(&self) -> Option<&LocalDoor> {
        self.0.options.local.as_ref()
    }

    pub(crate) fn budget(&self) -> &RequestBudget {
        &self.0.budget
    }

    /// A turn in the organisation's budget. The permission comes first, so that strangers cannot use up the turns.
    pub(crate) async fn turn(
        &self,
        caller: &Caller,
        organisation: Uuid,
        needed: Permission,
    ) -> ApiResult<Turn> {
        self.control().may(caller, organisation, needed).await?;
        match needed.is_write() {
            true => self.budget().turn_of_change(organisation, caller.account()).await,
            false => self.budget().turn(organisation, caller.account()).await,
        }
    }

    /// Turns for hashing passwords of devices. Sign-ins of people need none.
    pub(crate) fn hashing(&self) -> &RequestBudget {
        &self.0.hashing
    }

    /// The description of the API in JSON. It is written once, because it is long and everybody may read it.
    pub(crate) fn described(&self) -> Bytes {
        let describe = || examples::dated(openapi(), self.control().now_ms()).to_json().unwrap_or_default();
        self.0.described.get_or_init(|| describe().into()).clone()
    }

    pub(crate) fn answers(&self) -> &AnswerPermits {
        &self.0.answers
    }

    pub(crate) fn changes(&self) -> &ChangePermits {
        &self.0.changes
    }

    pub(crate) fn streams(&self) -> &StreamPermits {
        &self.0.streams
    }
}

/// The API, to be nested at [`PATH`].
pub fn router(control: Control, live: Arc<dyn Live>, options: ApiOptions) -> Router {
    let streams = StreamPermits::default();
    let provider = options.oidc.clone().map(Provider::new);
    let api = Api(Arc::new(Inner {
        control,
        live,
        options,
        provider,
        rates: Rates::new(),
        streams,
        budget: RequestBudget::default(),
        hashing: RequestBudget::of(DEVICE_HASHES_AT_ONCE),
        answers: AnswerPermits::default(),
        changes: ChangePermits::default(),
        described: OnceLock::new(),
    }));
    let (router, described) = routes().split_for_parts();
    let known = Arc::new(query::KnownParameters::of(&described, PATH));
    let check = move |request: Request, next: Next| {
        let known = Arc::clone(&known);
        async move { query::refuse_unknown(&known, request, next).await }
    };
    let router = router.layer(from_fn(check));
    let router = router.fallback(nothing_here).method_not_allowed_fallback(not_like_that);
    guard::around(router, &api).with_state(api)
}

#[must_use]
pub fn openapi() -> utoipa::openapi::OpenApi {
    let (_, described) = routes().split_for_parts();
    described
}

fn routes() -> OpenApiRouter<Api> {
    let all = OpenApiRouter::new()
        .merge(accounts::routes())
        .merge(second_factor::routes())
        .merge(passkeys::routes())
        .merge(account_links::routes())
        .merge(oidc::routes())
        .merge(local::routes())
        .merge(region::routes())
        .merge(organisations::routes())
        .merge(export::routes())
        .merge(tokens::routes())
        .merge(brokers::routes())
        .merge(access::routes())
        .merge(credentials::routes())
        .merge(fleets::routes())
        .merge(parts::routes())
        .merge(webhooks::routes())
        .merge(live::routes())
        .merge(messages::routes())
        .merge(stored::routes())
        .merge(incidents::routes())
        .merge(usage::routes())
        .merge(spend::routes())
        .merge(describe::routes());
    describe::complete(all)
}

/// The answer to a request beside [`PATH`], such as one for another version of the API.
pub async fn outside() -> Response {
    nothing_here().await.into_response()
}

async fn nothing_here() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "there is nothing at this path: openapi.json says what there is")
}

async fn not_like_that() -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "this path is there, and not for this method: see the header Allow",
    )
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct List<T> {
    items: Vec<T>,
    /// Send it as `cursor` to get the next page; null: this is the last page.
    next_cursor: Option<String>,
}

impl<T> List<T> {
    fn of<S: Into<T>>(page: Page<S>) -> axum::Json<Self> {
        let next_cursor = page.next.map(|next| URL_SAFE_NO_PAD.encode(next));
        axum::Json(Self { items: page.items.into_iter().map(Into::into).collect(), next_cursor })
    }
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct InOrganisation {
    pub(crate) organisation: Uuid,
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct AtBroker {
    organisation: Uuid,
    broker: String,
}

impl BrokerRef {
    fn location(&self, segments: &[&str]) -> [(HeaderName, String); 1] {
        let organisation = self.organisation.to_string();
        let broker = ["organisations", &organisation, "brokers", &self.name];
        headers::location(&[&broker[..], segments].concat())
    }
}

impl AtBroker {
    pub(crate) fn at(self) -> BrokerRef {
        BrokerRef { organisation: self.organisation, name: self.broker }
    }
}
