//! A control plane for a test, and people who use it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Method, Request, Response, StatusCode, header};
use millrace_control::{ApiOptions, Control, Live, NothingLive, SignUpBy, UnixClock, router};
use millrace_layers::Store;
use millrace_storage::Database;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tower::ServiceExt as _;

use crate::described;

/// All scopes that a token can have.
pub(crate) const SCOPES: [&str; 11] = [
    "organisation:read",
    "organisation:write",
    "brokers:read",
    "brokers:write",
    "access:read",
    "access:write",
    "clients:read",
    "clients:write",
    "audit:read",
    "messages:read",
    "messages:write",
];

/// A clock that stands still until a test moves it.
#[derive(Clone, Default)]
pub(crate) struct TestClock(Arc<AtomicU64>);

impl TestClock {
    pub(crate) fn move_on(&self, ms: u64) {
        self.0.fetch_add(ms, Ordering::Relaxed);
    }
}

tokio::task_local! {
    /// Where the task stops when it looks at the clock.
    static STOP: Stop;
}

struct Stop {
    looks_left: AtomicUsize,
    reached: Mutex<Option<oneshot::Sender<()>>>,
    go_on: Mutex<mpsc::Receiver<()>>,
}

impl Stop {
    fn look(&self) {
        if self.looks_left.fetch_sub(1, Ordering::Relaxed) == 0 {
            self.reached.lock().unwrap().take().unwrap().send(()).unwrap();
            tokio::task::block_in_place(|| self.go_on.lock().unwrap().recv().unwrap());
        }
    }
}

/// Stops `first` where it looks at the clock for the time number `at`, runs `second` to its end, and then the rest of `first`.
/// `None`: it does not look so often. Every change looks at the clock before its transaction.
pub(crate) async fn interleaved<A, B>(
    at: usize,
    first: impl Future<Output = A> + Send + 'static,
    second: impl Future<Output = B>,
) -> Option<(A, B)>
where
    A: Send + 'static,
{
    let ((reached, is_there), (go, go_on)) = (oneshot::channel(), mpsc::sync_channel(1));
    let (reached, go_on) = (Mutex::new(Some(reached)), Mutex::new(go_on));
    let first = tokio::spawn(STOP.scope(Stop { looks_left: AtomicUsize::new(at), reached, go_on }, first));
    if is_there.await.is_err() {
        first.await.unwrap();
        return None;
    }
    let second = second.await;
    go.send(()).unwrap();
    Some((first.await.unwrap(), second))
}

/// Calls `look` until it finds something, for 20 seconds at most.
pub(crate) async fn eventually<T>(mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let found = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), found).await.expect("it comes")
}

impl UnixClock for TestClock {
    fn now_ms(&self) -> u64 {
        let _ = STOP.try_with(Stop::look);
        self.0.load(Ordering::Relaxed)
    }
}

/// A control plane over a store, which is in memory unless a test brings one.
#[derive(Clone)]
pub(crate) struct Region {
    pub(crate) control: Control,
    pub(crate) store: Store,
    pub(crate) clock: TestClock,
    router: Router,
    /// Whether each request meets a server of its own, whose rate limits have counted nothing.
    is_unlimited: bool,
}

/// Somebody who asks.
#[derive(Clone)]
pub(crate) struct Client {
    region: Region,
    headers: HeaderMap,
    /// The organisation that they signed up with.
    pub(crate) organisation: String,
}

/// The response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
    /// The body of an answer that is no JSON.
    pub(crate) table: String,
}

pub(crate) const PASSWORD: &str = "correct horse battery staple";

/// An authority that issued itself, until 2126.
pub(crate) const AUTHORITY: &str = "\
-----BEGIN CERTIFICATE-----\n\
MIIBjDCCATGgAwIBAgIUfPzucp6B65mTE88AHn+K8l57jE4wCgYIKoZIzj0EAwIw\n\
EjEQMA4GA1UEAwwHZmFjdG9yeTAgFw0yNjExMjIwMzI0MjZaGA8yMTI2MTAyOTAz\n\
MjQyNlowEjEQMA4GA1UEAwwHZmFjdG9yeTBZMBMGByqGSM49AgEGCCqGSM49AwEH\n\
A0IABLcdB/bjlCCx79pjRcUKcZxa5bJHgRLO02Ikgv7+abgvIMWVXNwWq8IFSmUy\n\
dnbcQnUgDI6Ep89GMvVonBSZnD2jYzBhMB0GA1UdDgQWBBS5NzMnAoeYby/tnMYK\n\
FeRRoiMUBjAfBgNVHSMEGDAWgBS5NzMnAoeYby/tnMYKFeRRoiMUBjAPBgNVHRMB\n\
Af8EBTADAQH/MA4GA1UdDwEB/wQEAwIBBjAKBggqhkjOPQQDAgNJADBGAiEAsytP\n\
XVqTuYvLKszJnux4p1FZ+Gm9zNQFu5bRF/JFzoECIQD8WNdxDobjbH9kEToW36f7\n\
+SeLg23GCT5d04YoHb3aHQ==\n\
-----END CERTIFICATE-----\n\
";

impl Region {
    pub(crate) async fn new() -> Self {
        Self::by(SignUpBy::Anybody).await
    }

    pub(crate) async fn by(sign_up_by: SignUpBy) -> Self {
        Self::with(sign_up_by, ApiOptions::default()).await
    }

    pub(crate) async fn with(sign_up_by: SignUpBy, options: ApiOptions) -> Self {
        Self::over(Database::memory(), sign_up_by, options).await
    }

    pub(crate) async fn over(database: Database, sign_up_by: SignUpBy, options: ApiOptions) -> Self {
        let clock = TestClock::default();
        clock.move_on(1_000_000_000_000);
        let control = Control::open(database.clone(), Arc::new(clock.clone()), sign_up_by).await.unwrap();
        let router = router(control.clone(), Arc::new(NothingLive), options);
        Self { control, store: Store::new(database), clock, router, is_unlimited: false }
    }

    /// The same region with a server that answers about clients and messages.
    pub(crate) fn live(self, live: Arc<impl Live>) -> Self {
        Self { router: router(self.control.clone(), live, ApiOptions::default()), ..self }
    }

    /// The same region without rate limits, for tests with more sign-ins than an address has in a minute.
    pub(crate) fn unlimited(self) -> Self {
        Self { is_unlimited: true, ..self }
    }

    pub(crate) fn router(&self) -> Router {
        self.router.clone()
    }

    /// Somebody who is nobody yet.
    pub(crate) fn stranger(&self) -> Client {
        Client { region: self.clone(), headers: HeaderMap::new(), organisation: String::new() }
    }

    /// Somebody with an organisation of their own.
    pub(crate) async fn person(&self) -> Client {
        let mut client = self.stranger();
        let answer = client.sign_up(json!({})).await;
        answer.is(StatusCode::CREATED);
        client
    }
}

impl Client {
    /// Signs up, with what is said beside the necessary.
    pub(crate) async fn sign_up(&mut self, more: Value) -> Answer {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mut body =
            json!({ "email": format!("p{number}@example.org"), "password": PASSWORD, "name": "Ann" });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = self.post("/sign-up", body).await;
        if answer.status.is_success() {
            self.welcome(&answer);
        }
        answer
    }

    /// Keeps what a browser keeps.
    pub(crate) fn welcome(&mut self, answer: &Answer) {
        let cookie = answer.headers[header::SET_COOKIE].to_str().unwrap().split(';').next().unwrap();
        self.headers.insert(header::COOKIE, cookie.parse().unwrap());
        self.headers.insert("x-csrf-token", answer.text("/csrf_token").parse().unwrap());
        if let Some(organisation) = answer.body.pointer("/organisations/0/id") {
            self.organisation = organisation.as_str().unwrap().into();
        }
    }

    /// Keeps the cookie of a response, as a browser does, and the CSRF token, as the page does.
    pub(crate) async fn keep(&mut self, answer: &Answer) {
        let set = answer.headers.get_all(header::SET_COOKIE).iter().map(|set| set.to_str().unwrap());
        let signed_in =
            set.filter_map(|set| set.split(';').next()).find(|pair| pair.starts_with("millrace="));
        self.headers.insert(header::COOKIE, signed_in.unwrap().parse().unwrap());
        let me = self.get("/me").await;
        self.headers.insert("x-csrf-token", me.text("/csrf_token").parse().unwrap());
        self.organisation = me.text("/organisations/0/id").to_owned();
    }

    pub(crate) fn cookie(&self) -> Option<&str> {
        self.headers.get(header::COOKIE).map(|cookie| cookie.to_str().unwrap())
    }

    /// The same with another header.
    pub(crate) fn with(&self, name: &'static str, value: &str) -> Self {
        let mut client = self.clone();
        client.headers.insert(name, value.parse().unwrap());
        client
    }

    /// Sends the header unless the client sends another one of this name.
    pub(crate) fn or_with(&self, name: &'static str, value: &str) -> Self {
        if self.headers.contains_key(name) { self.clone() } else { self.with(name, value) }
    }

    /// Sends the header twice.
    pub(crate) fn with_both(&self, name: &'static str, values: [&str; 2]) -> Self {
        let mut client = self.clone();
        client.headers.remove(name);
        for value in values {
            client.headers.append(name, value.parse().unwrap());
        }
        client
    }

    pub(crate) fn without(&self, name: &'static str) -> Self {
        let mut client = self.clone();
        client.headers.remove(name);
        client
    }

    /// Somebody with this API token.
    pub(crate) fn with_token(&self, token: &str) -> Self {
        let client = self.without("cookie").without("x-csrf-token");
        client.with("authorization", &format!("Bearer {token}"))
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.send(Method::POST, path, Some(body)).await
    }

    pub(crate) async fn put(&self, path: &str, seen: &str, body: Value) -> Answer {
        let (name, value) = if seen.is_empty() { ("if-none-match", "*") } else { ("if-match", seen) };
        self.with(name, value).send(Method::PUT, path, Some(body)).await
    }

    pub(crate) async fn patch(&self, path: &str, seen: &str, body: Value) -> Answer {
        self.with("if-match", seen).send(Method::PATCH, path, Some(body)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.with("if-match", "*").send(Method::DELETE, path, None).await
    }

    pub(crate) async fn send(&self, method: Method, path: &str, body: Option<Value>) -> Answer {
        let has_type = self.headers.contains_key(header::CONTENT_TYPE);
        let mut request = Request::builder().method(method).uri(path);
        if body.is_some() && !has_type {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        self.raw(request.body(body).unwrap()).await
    }

    pub(crate) async fn raw(&self, mut request: Request<Body>) -> Answer {
        request.headers_mut().extend(self.headers.clone());
        let server = match self.region.is_unlimited {
            true => router(self.region.control.clone(), Arc::new(NothingLive), ApiOptions::default()),
            false => self.region.router.clone(),
        };
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let (parts, body) = server.oneshot(request).await.unwrap().into_parts();
        let bytes = to_bytes(body, usize::MAX).await.unwrap();
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        let table = String::from_utf8(bytes.to_vec()).unwrap_or_default();
        let answer = Answer { status: parts.status, headers: parts.headers, body, table };
        described::check(&method, &path, &answer);
        answer
    }

    /// The answer to a GET, whose body is read by the test.
    pub(crate) async fn begin(&self, path: &str) -> Response<Body> {
        let mut request = Request::builder().uri(path).body(Body::empty()).unwrap();
        request.headers_mut().extend(self.headers.clone());
        self.region.router.clone().oneshot(request).await.unwrap()
    }

    /// The path of something of the client's organisation.
    pub(crate) fn own(&self, path: &str) -> String {
        format!("/organisations/{}{path}", self.organisation)
    }

    /// Makes a broker. Returns its path.
    pub(crate) async fn broker(&self) -> String {
        let made = self.post(&self.own("/brokers"), json!({ "display_name": "Plant" })).await;
        made.is(StatusCode::CREATED);
        self.own(&format!("/brokers/{}", made.text("/name")))
    }
}

impl Answer {
    #[track_caller]
    pub(crate) fn is(&self, status: StatusCode) -> &Self {
        assert_eq!(self.status, status, "{self:#?}");
        if status.as_u16() >= 400 {
            assert_eq!(self.headers[header::CONTENT_TYPE], "application/problem+json");
            assert_eq!(self.body["status"], status.as_u16());
            assert!(self.body["detail"].as_str().is_some_and(|detail| !detail.is_empty()));
        }
        self
    }

    #[track_caller]
    pub(crate) fn text(&self, pointer: &str) -> &str {
        self.body
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_else(|| panic!("no {pointer}: {self:#?}"))
    }

    pub(crate) fn etag(&self) -> String {
        self.headers[header::ETAG].to_str().unwrap().to_owned()
    }

    /// The values of one field in the rows of a list.
    pub(crate) fn column(&self, field: &str) -> Vec<&str> {
        let rows = self.body["items"].as_array().unwrap_or_else(|| panic!("no list: {self:#?}"));
        rows.iter().map(|row| row[field].as_str().unwrap_or_default()).collect()
    }
}
