//! Calls the tenants' authentication webhooks. Clients with the same question share one call, and its answer is cached for as long
//! as the webhook's record says.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use millrace_access::limits::WEBHOOK_ANSWER_BYTES_MAX;
use millrace_access::model::WebhookAuth;
use millrace_access::webhook::{AnswerCache, SIGNATURE_HEADER, WebhookAnswer, WebhookQuestion, sign};
use millrace_outgoing::Call;

use super::AuthenticationRequest;
use super::job_queue::AccessJob;
use super::limits::{
    ANSWERS_BYTES_MAX, ANSWERS_MAX, QUESTIONS_MAX, QUESTIONS_PART, QUESTIONS_PER_TENANT_MAX,
    WAITING_PER_QUESTION_MAX,
};
use super::result_counters::{ResultCounters, Results, gauge, results};
use super::service::{AccessContext, PendingConnect};
use crate::metrics::Metric;
use crate::shares::TenantShares;
use crate::{StartError, random};

const RESULTS: Results = results!("allowed" "refused" "remembered" "shared" "answer" "url" "forbidden" "insecure" "resolve"
    "connect" "tls" "timeout" "too_long" "busy" "http");

/// Interval of warnings about one broker's failing service, seconds.
const WARN_EVERY_S: u64 = 60;

type Tag = [u8; 16];

pub(super) struct AccessWebhooks {
    state: Mutex<State>,
    questions: ResultCounters,
}

struct State {
    answers: AnswerCache,
    asked: HashMap<Tag, PendingCall>,
    tenants: TenantShares,
    brokers: HashMap<u64, Service>,
}

struct PendingCall {
    tenant: Arc<str>,
    /// The clients that wait for the response besides the first.
    waiting: Vec<PendingConnect>,
}

#[derive(Default)]
struct Service {
    /// Calls without an answer yet. The last answer removes the entry, unless a warning is recent.
    under_way: usize,
    warned_s: Option<u64>,
}

enum NextStep {
    Answered(PendingConnect, WebhookAnswer),
    /// Another client's request in progress brings the response.
    Waits,
    Asks(PendingConnect, Tag),
}

impl AccessWebhooks {
    pub(super) fn new() -> Result<Self, StartError> {
        let key = random::bytes()
            .map_err(|error| StartError(format!("no random numbers from the system: {error}")))?;
        let answers = AnswerCache::new(key, ANSWERS_MAX, ANSWERS_BYTES_MAX);
        let help = "Requests to tenants' services about clients, by result.";
        Ok(Self {
            state: Mutex::new(State {
                answers,
                asked: HashMap::new(),
                tenants: TenantShares::new(QUESTIONS_MAX, QUESTIONS_PART),
                brokers: HashMap::new(),
            }),
            questions: ResultCounters::new("millrace_webhook_questions_total", help, RESULTS),
        })
    }

    pub(super) fn metrics(&self) -> Vec<(Metric, u64)> {
        let under_way = self.state().asked.len();
        let help = "Requests to tenants' services that wait for an answer.";
        self.questions.metrics().chain([gauge("millrace_webhook_questions", help, under_way)]).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `None` while the webhook is called: its answer is queued as [`AccessJob::Answered`].
pub(super) fn ask(
    shared: &Arc<AccessContext>,
    pending: PendingConnect,
    certificate_user: Option<&str>,
) -> Option<(PendingConnect, WebhookAnswer)> {
    let Some(webhook) = pending.loaded.access.access().webhook.clone() else {
        return Some((pending, WebhookAnswer::Failed("the broker has no webhook any more")));
    };
    let next = shared.webhooks.state().next_step(&webhook, pending, certificate_user, shared.now_s());
    match next {
        NextStep::Answered(pending, answer) => {
            shared.webhooks.questions.add(if matches!(answer, WebhookAnswer::Failed(_)) {
                "busy"
            } else {
                "remembered"
            });
            return Some((pending, answer));
        }
        NextStep::Waits => shared.webhooks.questions.add("shared"),
        NextStep::Asks(first, tag) => {
            let (to, certificate_user) = (shared.clone(), certificate_user.map(Box::<str>::from));
            shared
                .calls
                .spawn(async move { run(&to, &webhook, first, certificate_user.as_deref(), tag).await });
        }
    }
    None
}

async fn run(
    shared: &Arc<AccessContext>,
    webhook: &WebhookAuth,
    first: PendingConnect,
    certificate_user: Option<&str>,
    tag: Tag,
) {
    let broker = first.request.broker.clone();
    let question = question(&first.request, certificate_user);
    let (answer, result) = post(shared, webhook, &question, &broker.tenant()).await;
    shared.webhooks.questions.add(result);
    let mut state = shared.webhooks.state();
    state.answers.insert(webhook, &question, &answer, (shared.now_s(), shared.clock.unix_now_ms()));
    let waited = state.done(tag);
    let warns = state.answered(broker.id, matches!(answer, WebhookAnswer::Failed(_)), shared.now_s());
    drop(state);
    if warns {
        tracing::warn!(
            broker = &*broker.name,
            reason = result,
            "a webhook that authenticates clients fails: its clients are asked to try again later, check its URL and its service"
        );
    }
    for pending in std::iter::once(first).chain(waited) {
        shared.queue_again(AccessJob::Answered(Box::new((pending, answer.clone()))));
    }
}

async fn post(
    shared: &AccessContext,
    webhook: &WebhookAuth,
    question: &WebhookQuestion<'_>,
    tenant: &str,
) -> (WebhookAnswer, &'static str) {
    let Ok(body) = serde_json::to_vec(question) else {
        return (WebhookAnswer::Failed("the question cannot be written"), "answer");
    };
    let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
    if let Some(key) = &webhook.signing_key {
        let signature = HeaderValue::try_from(sign(key, shared.clock.unix_now_ms() / 1_000, &body));
        headers.extend(signature.map(|signature| (HeaderName::from_static(SIGNATURE_HEADER), signature)));
    }
    let call = Call {
        method: Method::POST,
        url: &webhook.url,
        share: tenant,
        headers,
        body: Bytes::from(body),
        timeout: Duration::from_millis(webhook.timeout_ms.into()),
        answer_bytes_max: WEBHOOK_ANSWER_BYTES_MAX,
    };
    match shared.calls.call(call).await {
        Ok(said) => {
            let answer = WebhookAnswer::of(said.status.as_u16(), &said.body);
            let result = match answer {
                WebhookAnswer::Allowed(_) => "allowed",
                WebhookAnswer::Refused => "refused",
                WebhookAnswer::Failed(_) => "answer",
            };
            (answer, result)
        }
        Err(error) => {
            (WebhookAnswer::Failed("it cannot be asked, or does not answer in time"), error.reason())
        }
    }
}

fn question<'a>(
    request: &'a AuthenticationRequest,
    certificate_user: Option<&'a str>,
) -> WebhookQuestion<'a> {
    WebhookQuestion {
        broker: &request.broker.name,
        client_id: if request.assigned { "" } else { &request.client_id },
        user: request.user.as_deref(),
        password: request.password.as_deref().map(Into::into),
        certificate_user,
        address: request.address.map(|address| address.to_string().into()),
    }
}

impl State {
    fn next_step(
        &mut self,
        webhook: &WebhookAuth,
        pending: PendingConnect,
        certificate_user: Option<&str>,
        now_s: u64,
    ) -> NextStep {
        let question = question(&pending.request, certificate_user);
        if let Some(answer) = self.answers.get(webhook, &question, now_s).cloned() {
            return NextStep::Answered(pending, answer);
        }
        let busy =
            |pending| NextStep::Answered(pending, WebhookAnswer::Failed("too many questions are under way"));
        let Some(tag) = self.answers.tag(webhook, &question) else { return busy(pending) };
        if let Some(PendingCall { waiting, .. }) = self.asked.get_mut(&tag) {
            if waiting.len() >= WAITING_PER_QUESTION_MAX {
                return busy(pending);
            }
            waiting.push(pending);
            return NextStep::Waits;
        }
        let (id, tenant) = (pending.request.broker.id, pending.request.broker.tenant());
        if self.tenants.of(&tenant) >= QUESTIONS_PER_TENANT_MAX || !self.tenants.take(&tenant) {
            return busy(pending);
        }
        self.brokers.entry(id).or_default().under_way += 1;
        self.asked.insert(tag, PendingCall { tenant, waiting: Vec::new() });
        NextStep::Asks(pending, tag)
    }

    fn done(&mut self, tag: Tag) -> Vec<PendingConnect> {
        let Some(PendingCall { tenant, waiting }) = self.asked.remove(&tag) else { return Vec::new() };
        self.tenants.give_back(&tenant);
        waiting
    }

    /// Returns true when the caller must log that the service fails.
    fn answered(&mut self, broker: u64, fails: bool, now_s: u64) -> bool {
        let service = self.brokers.entry(broker).or_default();
        service.under_way = service.under_way.saturating_sub(1);
        let is_said = service.warned_s.is_some_and(|at| now_s < at + WARN_EVERY_S);
        if fails && !is_said {
            service.warned_s = Some(now_s);
        } else if service.under_way == 0 && !is_said {
            self.brokers.remove(&broker);
        }
        fails && !is_said
    }
}
