//! Sends requests to the API, one after the other.

use std::error::Error as _;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

use super::patience::patiently;
use super::print::say;
use crate::failure::Failure;
use crate::limits::{API_ANSWER_BYTES_MAX, API_ANSWER_S_MAX};

type RequestBody = Full<bytes::Bytes>;

pub(super) struct ApiClient {
    runtime: Runtime,
    http: legacy::Client<HttpsConnector<HttpConnector>, RequestBody>,
    base: String,
    /// Sent with every request.
    pub(super) who: Vec<(header::HeaderName, String)>,
    /// The end of the failure of a request without valid authentication.
    hint: &'static str,
}

#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) body: Option<Value>,
    pub(super) head: Vec<(header::HeaderName, String)>,
}

pub(super) struct ApiAnswer {
    pub(super) body: Value,
    pub(super) etag: Option<String>,
    pub(super) cookie: Option<String>,
}

impl Ask {
    pub(super) fn get(path: impl Into<String>) -> Self {
        Self { method: Method::GET, path: path.into(), body: None, head: Vec::new() }
    }

    pub(super) fn new(method: Method, path: impl Into<String>, body: Option<Value>) -> Self {
        Self { method, body, ..Self::get(path) }
    }

    /// A request that creates something, with a key under which the server performs it once however
    /// often it comes.
    pub(super) fn once(path: impl Into<String>, body: Value) -> Result<Self, Failure> {
        Ok(Self::named(path, body, random_key()?))
    }

    /// Like [`Self::once`], with the caller's key.
    pub(super) fn named(path: impl Into<String>, body: Value, key: impl Into<String>) -> Self {
        Self::new(Method::POST, path, Some(body)).with(IDEMPOTENCY_KEY, key)
    }

    pub(super) fn with(mut self, name: header::HeaderName, value: impl Into<String>) -> Self {
        self.head.push((name, value.into()));
        self
    }

    /// True if the request may be sent again although its first result is unknown.
    fn is_repeatable(&self) -> bool {
        self.method == Method::GET || self.head.iter().any(|(name, _)| *name == IDEMPOTENCY_KEY)
    }
}

pub(super) fn random_key() -> Result<String, Failure> {
    let mut random = [0; 16];
    getrandom::fill(&mut random)
        .map_err(|error| Failure::Run(format!("no random numbers from the system: {error}")))?;
    Ok(format!("{:032x}", u128::from_be_bytes(random)))
}

/// Checks an Idempotency-Key of the command line, which must need no quotes in a shell.
pub(super) fn is_key(least: usize) -> impl Fn(&str) -> Result<String, String> + Clone + Send + Sync {
    move |text| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
        match (least..=KEY_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_plain) {
            true => Ok(text.into()),
            false => {
                Err(format!("{least} to {KEY_BYTES_MAX} letters (a to z), digits, and ._:- are allowed"))
            }
        }
    }
}

pub(super) struct FailedRequest {
    /// Type of the problem (RFC 9457), without the part that all types share.
    pub(super) kind: Option<String>,
    /// `None`: the service has not answered.
    pub(super) status: Option<StatusCode>,
    /// A repeat may succeed. The request may have been performed, unless the server limits
    /// requests.
    pub(super) is_for_now: bool,
    /// Seconds after which the server asks for the request again (429 and 503).
    pub(super) retry_after_s: Option<u64>,
    pub(super) failure: Failure,
}

impl From<Failure> for FailedRequest {
    fn from(failure: Failure) -> Self {
        Self { kind: None, status: None, is_for_now: false, retry_after_s: None, failure }
    }
}

const USER_AGENT: &str = concat!("millrace/", env!("CARGO_PKG_VERSION"), " (command line)");
/// The end of the failure of a request without a valid login.
pub(super) const LOG_IN_HINT: &str = "; log in with `millrace login --url URL`";
const OPERATOR_HINT: &str = "; name a file that has it with --operator-token-file";
/// Bytes of a key: the API allows 255, and a batch adds its number.
const KEY_BYTES_MAX: usize = 240;
const IDEMPOTENCY_KEY: header::HeaderName = header::HeaderName::from_static("idempotency-key");
pub(super) const CSRF_TOKEN: header::HeaderName = header::HeaderName::from_static("x-csrf-token");

impl ApiClient {
    /// `url` is a scheme and a host.
    pub(super) fn new(url: &str) -> Result<Self, Failure> {
        Self::of(url, millrace_control::PATH, LOG_IN_HINT)
    }

    /// Like [`Self::new`], for the API of operators.
    pub(super) fn of_operators(url: &str) -> Result<Self, Failure> {
        Self::of(url, millrace_control::OPERATOR_PATH, OPERATOR_HINT)
    }

    fn of(url: &str, path: &str, hint: &'static str) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::Run(format!("HTTP cannot be used: {error}"));
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let tls = ClientConfig::builder();
        let tls = if url.starts_with("https://") {
            tls.with_native_roots().map_err(failed)?
        } else {
            tls.with_root_certificates(RootCertStore::empty())
        };
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(tls.with_no_client_auth()).https_or_http();
        let http = legacy::Client::builder(TokioExecutor::new()).build(connector.enable_http1().build());
        // The audit log shows which program sent a request.
        let who = vec![(header::USER_AGENT, USER_AGENT.to_owned())];
        Ok(Self { runtime, http, base: format!("{url}{path}"), who, hint })
    }

    /// Repeats a request whose answer is lost, unless a repeat could do harm.
    pub(super) fn ask(&self, ask: &Ask) -> Result<ApiAnswer, Failure> {
        self.try_ask(ask).map_err(|refused| refused.failure)
    }

    /// Like [`Self::ask`], with the kind of a problem.
    pub(super) fn try_ask(&self, ask: &Ask) -> Result<ApiAnswer, FailedRequest> {
        match self.try_once(ask) {
            Err(Lost(_)) if ask.is_repeatable() => self.try_once(ask),
            first => first,
        }
        .unwrap_or_else(|lost| Err(self.unreachable(&lost)))
    }

    /// Like [`Self::try_ask`], and repeats the request for some minutes while it is not answered.
    #[allow(clippy::disallowed_methods, reason = "a command has nothing else to do")]
    pub(super) fn ask_patiently(&self, ask: &Ask) -> Result<ApiAnswer, FailedRequest> {
        debug_assert!(ask.is_repeatable(), "{} {}", ask.method, ask.path);
        let wait = |refused: &FailedRequest, seconds| {
            match (&refused.failure, refused.retry_after_s) {
                (Failure::Run(why), None) => say(&format!("{why}. It is tried again in {seconds} s.")),
                _ => say(&format!("The server asks to wait for {seconds} s.")),
            }
            std::thread::sleep(Duration::from_secs(seconds));
        };
        let send = || self.try_once(ask).unwrap_or_else(|lost| Err(self.unreachable(&lost)));
        patiently(send, wait)
    }

    fn unreachable(&self, Lost(why): &Lost) -> FailedRequest {
        let hint = "see whether the address is right and the service runs";
        let failure = Failure::Run(format!("{} cannot be reached: {why}; {hint}", self.base));
        FailedRequest { is_for_now: true, ..failure.into() }
    }

    /// Reads a stream of server-sent events until `each` says false, or the stream ends.
    pub(super) fn events(
        &self,
        ask: &Ask,
        each: &mut dyn FnMut(&str, Value) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let mut events = Events::default();
        let is_wanted = self.parts(ask, &mut |piece| {
            for (name, data) in events.read(piece) {
                if !each(&name, data)? {
                    return Ok(false);
                }
            }
            Ok(true)
        })?;
        let ended = || Failure::Run("the server has ended the stream: run the command again".into());
        if is_wanted { Err(ended()) } else { Ok(()) }
    }

    /// Passes on an answer of any length until `each` says false; returns true if the answer ended
    /// before.
    pub(super) fn parts(
        &self,
        ask: &Ask,
        each: &mut dyn FnMut(&[u8]) -> Result<bool, Failure>,
    ) -> Result<bool, Failure> {
        let lost = |why: String| self.unreachable(&Lost(why)).failure;
        let request = self.request(ask)?;
        self.runtime.block_on(async {
            let answer = self.http.request(request).await.map_err(|error| lost(chain(&error)))?;
            let (head, mut body) = answer.into_parts();
            if !head.status.is_success() {
                let body = Limited::new(body, API_ANSWER_BYTES_MAX).collect().await;
                let body = body.map_err(|error| lost(error.to_string()))?.to_bytes();
                let refused = read(&Response::from_parts(head, body), self.hint);
                return refused.map(|_| true).map_err(|refused| refused.failure);
            }
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|error| lost(error.to_string()))?;
                if !each(frame.data_ref().map_or(&b""[..], |data| data))? {
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }

    fn request(&self, ask: &Ask) -> Result<Request<RequestBody>, Failure> {
        let mut request =
            Request::builder().method(ask.method.clone()).uri(format!("{}{}", self.base, ask.path));
        for (name, value) in self.who.iter().chain(&ask.head) {
            request = request.header(name, value);
        }
        let body = ask.body.as_ref().map(Value::to_string);
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let request = request.body(RequestBody::from(body.unwrap_or_default()));
        request.map_err(|error| {
            Failure::Settings(format!(
                "the request cannot be written: {error}. Its URL, organisation and token come from the options, the variables MILLRACE_* or the login: correct them, or log in again"
            ))
        })
    }

    fn try_once(&self, ask: &Ask) -> Result<Result<ApiAnswer, FailedRequest>, Lost> {
        let request = match self.request(ask) {
            Ok(request) => request,
            Err(failure) => return Ok(Err(failure.into())),
        };
        self.runtime.block_on(async {
            let answered = async {
                let answer = self.http.request(request).await.map_err(|error| Lost(chain(&error)))?;
                let (head, body) = answer.into_parts();
                let body = Limited::new(body, API_ANSWER_BYTES_MAX).collect().await;
                let body = body.map_err(|error| Lost(error.to_string()))?.to_bytes();
                Ok(read(&Response::from_parts(head, body), self.hint))
            };
            let patience = Duration::from_secs(API_ANSWER_S_MAX);
            let late = || Lost(format!("no answer within {API_ANSWER_S_MAX} s"));
            tokio::time::timeout(patience, answered).await.map_err(|_| late())?
        })
    }
}

/// Collects server-sent events that arrive in pieces.
#[derive(Default)]
struct Events {
    line: Vec<u8>,
    name: String,
    data: String,
}

impl Events {
    /// Returns the events that `piece` completes: name and data.
    fn read(&mut self, piece: &[u8]) -> Vec<(String, Value)> {
        let mut whole = Vec::new();
        for byte in piece {
            if *byte != b'\n' {
                self.line.push(*byte);
                continue;
            }
            let line = String::from_utf8_lossy(&self.line).trim_end_matches('\r').to_owned();
            self.line.clear();
            match line.split_once(':') {
                Some(("event", name)) => name.trim_start().clone_into(&mut self.name),
                Some(("data", data)) => self.data += data.trim_start(),
                None if line.is_empty() && !self.data.is_empty() => {
                    let data = serde_json::from_str(&self.data).unwrap_or(Value::Null);
                    self.data.clear();
                    whole.push((std::mem::take(&mut self.name), data));
                }
                _ => {}
            }
        }
        whole
    }
}

struct Lost(String);

fn chain(error: &legacy::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = error.to_string();
        cause = error.source();
    }
    text
}

fn read(answer: &Response<bytes::Bytes>, hint: &str) -> Result<ApiAnswer, FailedRequest> {
    let (status, head) = (answer.status(), answer.headers());
    let value = |name| head.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let body = serde_json::from_slice(answer.body()).unwrap_or(Value::Null);
    if status.is_success() {
        return Ok(ApiAnswer { body, etag: value(header::ETAG), cookie: value(header::SET_COOKIE) });
    }
    let kind = body["type"].as_str().and_then(|kind| kind.rsplit(':').next()).map(str::to_owned);
    let is_for_now = matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    );
    let retry_after_s = value(header::RETRY_AFTER).and_then(|text| text.parse().ok()).filter(|_| is_for_now);
    let failure = Failure::Run(problem(status.as_u16(), &body, hint));
    Err(FailedRequest { kind, status: Some(status), is_for_now, retry_after_s, failure })
}

/// One sentence from a problem (RFC 9457).
fn problem(status: u16, body: &Value, hint: &str) -> String {
    let Some(detail) = body["detail"].as_str().or(body["title"].as_str()) else {
        return format!(
            "the service answered with status {status} and no explanation: check that the URL is that of a Millrace server"
        );
    };
    let fields = body["fields"].as_array().into_iter().flatten();
    let fields: Vec<String> = fields
        .filter_map(|one| Some((one["field"].as_str()?, one["detail"].as_str()?)))
        // The detail of a wrong query parameter has this already.
        .filter(|(_, wrong)| !detail.ends_with(wrong))
        .map(|(field, wrong)| format!("{field}: {wrong}"))
        .collect();
    let mut said = detail.to_owned();
    if !fields.is_empty() {
        said += &format!(" ({})", fields.join("; "));
    }
    if status == 401 {
        said += hint;
    }
    said
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_problem_says_what_happened_which_fields_are_wrong_and_what_to_do() {
        let fields = json!([{ "field": "user", "detail": "is empty" }, { "field": "group", "detail": "is not there" }]);
        for (status, body, said) in [
            (
                422,
                json!({ "detail": "some fields are wrong", "fields": fields }),
                "some fields are wrong (user: is empty; group: is not there)",
            ),
            (404, json!({ "title": "Not found" }), "Not found"),
            (
                400,
                json!({ "detail": "the query parameter \"from\" is late", "fields": [{ "field": "from", "detail": "is late" }] }),
                "the query parameter \"from\" is late",
            ),
            (
                401,
                json!({ "detail": "who are you?" }),
                "who are you?; log in with `millrace login --url URL`",
            ),
        ] {
            assert_eq!(problem(status, &body, LOG_IN_HINT), said);
        }
        assert!(problem(502, &Value::Null, LOG_IN_HINT).contains("502"));
    }

    #[test]
    fn a_proxy_without_its_server_is_asked_again() {
        for (status, is_for_now) in
            [(429, true), (502, true), (503, true), (504, true), (500, false), (409, false), (401, false)]
        {
            let answer = Response::builder().status(status).header(header::RETRY_AFTER, "7");
            let refused = read(&answer.body(bytes::Bytes::new()).unwrap(), LOG_IN_HINT).err().unwrap();
            assert_eq!((refused.is_for_now, refused.retry_after_s), (is_for_now, is_for_now.then_some(7)));
        }
    }

    #[test]
    fn events_come_in_pieces() {
        let mut events = Events::default();
        let stream =
            b": comment\n\nevent: message\ndata: {\"topic\":\"a: b\"}\n\nevent: end\r\ndata: 1\r\n\r\n";
        let read: Vec<_> = stream.chunks(3).flat_map(|piece| events.read(piece)).collect();
        assert_eq!(read, [("message".to_owned(), json!({ "topic": "a: b" })), ("end".to_owned(), json!(1))]);
    }

    #[test]
    fn only_what_can_be_done_twice_is_sent_again() {
        assert!(Ask::get("/a").is_repeatable());
        assert!(Ask::once("/a", json!({})).is_ok_and(|ask| ask.is_repeatable()));
        assert!(!Ask::new(Method::DELETE, "/a", None).is_repeatable());
    }
}
