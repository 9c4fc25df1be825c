//! Runs the API on threads of its own, so that pages and `/healthz` never wait for it. The thread
//! of the HTTP port still reads the requests and writes the answers.
//!
//! Requests that read much run on threads of low priority. They are synchronous for milliseconds, and on a machine without an
//! idle core other requests would wait for them.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use futures_util::StreamExt as _;
use futures_util::stream;
use millrace_control::{CHANGES_MAX, is_expensive};
use tokio::runtime::{Builder, Handle};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::changes::{ArrivingBody, HttpChanges};
use super::connections::Closer;
use crate::limits::{API_THREADS, LOW_PRIORITY_NICE, LOW_PRIORITY_THREADS, STREAM_STALL_MAX};
use crate::panics;

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The threads of requests. They run until the process ends.
#[derive(Clone)]
pub(super) struct Pools {
    pub(super) normal: Handle,
    /// For requests that read much.
    low_priority: Handle,
}

impl Pools {
    pub(super) fn start() -> std::io::Result<Self> {
        let start = |name: &str, threads: usize, start: fn()| -> std::io::Result<Handle> {
            let runtime = Builder::new_multi_thread()
                .worker_threads(threads)
                .thread_name(name)
                .on_thread_start(start)
                .enable_all()
                .build()?;
            let handle = runtime.handle().clone();
            std::mem::forget(runtime);
            Ok(handle)
        };
        Ok(Self {
            normal: start(panics::API, API_THREADS, || {})?,
            low_priority: start(panics::API_LOW_PRIORITY, LOW_PRIORITY_THREADS, lower_priority)?,
        })
    }

    pub(super) fn of_one(threads: &Handle) -> Self {
        Self { normal: threads.clone(), low_priority: threads.clone() }
    }

    fn of(&self, request: &Request) -> &Handle {
        let route = request.extensions().get::<MatchedPath>();
        let is_expensive = |route: &MatchedPath| is_expensive(request.method(), route.as_str());
        if route.is_some_and(is_expensive) { &self.low_priority } else { &self.normal }
    }
}

/// On Linux a nice value belongs to the thread alone.
fn lower_priority() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::nice(LOW_PRIORITY_NICE) {
        tracing::debug!(%error, "the priority of expensive requests cannot be lowered: on a busy machine they slow down others");
    }
}

#[derive(Clone)]
struct Threads {
    pools: Pools,
    changes: Arc<HttpChanges>,
}

pub(super) fn run_on(pools: Pools, router: Router) -> Router {
    run_with(pools, router, HttpChanges::new(CHANGES_MAX))
}

fn run_with(pools: Pools, router: Router, changes: Arc<HttpChanges>) -> Router {
    router.layer(from_fn_with_state(Threads { pools, changes }, run))
}

async fn run(State(Threads { pools, changes }): State<Threads>, request: Request, next: Next) -> Response {
    let threads = pools.of(&request).clone();
    let closer = request.extensions().get::<Closer>().cloned();
    let outcome = if request.method().is_safe() {
        let task = threads.spawn(next.run(request));
        let _ends_with_its_client = AbortOnDrop(task.abort_handle());
        task.await
    } else {
        // A change continues when its client leaves. It may have several steps, and its audit entry
        // and its mails must not depend on whether somebody waits.
        let has_arrived = request.body().is_end_stream();
        // While the body arrives, a later change may take this one's permit and close the connection.
        let close_if_evicted = closer.clone().filter(|_| !has_arrived);
        let Some(permit) = changes.take(close_if_evicted) else {
            return millrace_control::unanswered().await;
        };
        let permit = Arc::new(permit);
        let change = Arc::clone(&permit);
        let request = request.map(|body| Body::new(ArrivingBody { body, change }));
        let task = threads.spawn(async move {
            let _until_it_ends = permit;
            next.run(request).await
        });
        task.await
    };
    match outcome {
        Ok(response) if response.body().size_hint().exact().is_none() => {
            streamed(&threads, response, STREAM_STALL_MAX, closer)
        }
        Ok(response) => response,
        Err(_) => millrace_control::unanswered().await,
    }
}

/// Makes the parts of an endless response on the API's threads. At most one part waits for the client, for `stall_max` at
/// most. Then `closer` closes the connection, because the end of the response would also wait until the client reads.
fn streamed(threads: &Handle, response: Response, stall_max: Duration, closer: Option<Closer>) -> Response {
    let (head, body) = response.into_parts();
    let (send, receive) = mpsc::channel::<Result<Bytes, axum::Error>>(1);
    threads.spawn(async move {
        let mut parts = body.into_data_stream();
        loop {
            let part = tokio::select! {
                part = parts.next() => part,
                () = send.closed() => return,
            };
            let Some(part) = part else { return };
            // Between its parts the body checks whether the client is still authorized. So a client
            // that does not read must not keep the answer open.
            match timeout(stall_max, send.send(part)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return,
                Err(_) => {
                    closer.inspect(Closer::close);
                    return;
                }
            }
        }
    });
    let parts = stream::unfold(receive, async |mut receive| Some((receive.recv().await?, receive)));
    Response::from_parts(head, Body::from_stream(parts))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::net::SocketAddr;

    use axum::body::to_bytes;
    use axum::http::{Method, StatusCode};
    use axum::routing::{any, get, post};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::{Notify, Semaphore};
    use tower::ServiceExt as _;
    use tower_service::Service as _;

    use super::super::connections::Connections;
    use super::*;
    use crate::limits::ConnectionLimits;

    fn pools() -> Pools {
        Pools::of_one(&Handle::current())
    }

    #[test]
    fn an_expensive_request_runs_on_a_thread_of_low_priority() {
        let here = async || {
            let thread = std::thread::current();
            let nice = rustix::process::nice(0).unwrap();
            format!("{} {nice}", thread.name().unwrap_or_default())
        };
        let paths = ["/api/v1/me", "/api/v1/organisations/{organisation}/usage"];
        let router = paths.iter().fold(Router::new(), |router, path| router.route(path, get(here)));
        let router = run_on(Pools::start().unwrap(), router);
        let own = rustix::process::nice(0).unwrap();
        let ask = |path: &str| {
            let request = Request::get(path).body(Body::empty()).unwrap();
            let asked = async {
                let answer = router.clone().oneshot(request).await.unwrap();
                to_bytes(answer.into_body(), 100).await.unwrap()
            };
            let runtime = Builder::new_current_thread().build().unwrap();
            String::from_utf8(runtime.block_on(asked).to_vec()).unwrap()
        };
        assert_eq!(ask("/api/v1/me"), format!("{} {own}", panics::API));
        let low = format!("{} {}", panics::API_LOW_PRIORITY, (own + LOW_PRIORITY_NICE).min(19));
        assert_eq!(ask("/api/v1/organisations/1/usage"), low);
    }

    #[tokio::test]
    async fn a_request_whose_handler_panics_has_an_answer_with_an_id() {
        let router = Router::new().route("/", get(async || -> &'static str { panic!("a bug") }));
        let request = Request::get("/").body(Body::empty()).unwrap();
        let response = run_on(pools(), router).oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        let id = response.headers()["x-request-id"].clone();
        let body = to_bytes(response.into_body(), 10_000).await.unwrap();
        let problem: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(problem["request_id"], id.to_str().unwrap());
    }

    #[tokio::test]
    async fn the_connection_of_a_stream_that_nobody_reads_is_closed() {
        let app = Router::new().route(
            "/",
            get(async |request: Request| {
                let closer = request.extensions().get::<Closer>().cloned();
                let part = || Ok::<_, std::convert::Infallible>(Bytes::from(vec![0; 65_536]));
                let endless = Response::new(Body::from_stream(stream::repeat_with(part)));
                streamed(&Handle::current(), endless, Duration::from_millis(50), closer)
            }),
        );
        let limits =
            ConnectionLimits { all: 10, per_address: 10, proxies: Vec::new(), head: Duration::from_secs(60) };
        let connections = Connections::new(limits);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let server = tokio::spawn(Arc::clone(&connections).serve(listener, app));
        client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        client.read_exact(&mut [0]).await.unwrap();
        let closed = async {
            loop {
                let mut metrics = String::new();
                connections.write_metrics(&mut metrics);
                if metrics.contains("millrace_http_connections_open 0\n") {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_secs(10), closed).await.expect("the connection is closed");
        server.abort();
    }

    /// A server with `changes`. Its handler reads the body `wait`, adds a permit to `begun`, and waits for one of `ends`.
    async fn server(changes: &Arc<HttpChanges>, begun: Arc<Semaphore>, ends: Arc<Semaphore>) -> SocketAddr {
        let handler = async move |body: Bytes| {
            if body == "wait" {
                begun.add_permits(1);
                ends.acquire().await.unwrap().forget();
            }
        };
        let app = run_with(pools(), Router::new().route("/", post(handler)), Arc::clone(changes));
        let limits =
            ConnectionLimits { all: 20, per_address: 20, proxies: Vec::new(), head: Duration::from_secs(60) };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(Connections::new(limits).serve(listener, app));
        address
    }

    /// Sends a change whose head announces 4 bytes.
    async fn send(address: SocketAddr, body: &str) -> TcpStream {
        let mut client = TcpStream::connect(address).await.unwrap();
        let request = format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\n{body}");
        client.write_all(request.as_bytes()).await.unwrap();
        client
    }

    async fn status(client: &mut TcpStream) -> String {
        let mut head = [0; 12];
        let read = timeout(Duration::from_secs(10), client.read_exact(&mut head)).await.expect("an answer");
        read.map_or_else(|_| "closed".into(), |_| String::from_utf8_lossy(&head[9..]).into_owned())
    }

    #[tokio::test]
    async fn requests_that_strangers_do_not_finish_keep_no_change_out() {
        let (changes, none) = (HttpChanges::new(2), || Arc::new(Semaphore::new(0)));
        let address = server(&changes, none(), none()).await;
        let mut unfinished = VecDeque::new();
        for _ in 0..4 {
            while unfinished.len() < 2 {
                unfinished.push_back(send(address, "ab").await);
            }
            let wait = async {
                while changes.arriving() < 2 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            timeout(Duration::from_secs(10), wait).await.expect("both permits are taken");
            assert_eq!(status(&mut send(address, "abcd").await).await, "200");
            let mut oldest = unfinished.pop_front().unwrap();
            assert_eq!(status(&mut oldest).await, "closed", "the oldest one gives way");
        }
    }

    #[tokio::test]
    async fn changes_whose_body_has_arrived_do_not_give_way() {
        let (begun, ends) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let address = server(&HttpChanges::new(2), Arc::clone(&begun), Arc::clone(&ends)).await;
        let mut running = [send(address, "wait").await, send(address, "wait").await];
        begun.acquire_many(2).await.unwrap().forget();
        assert_eq!(status(&mut send(address, "abcd").await).await, "503");
        ends.add_permits(2);
        for client in &mut running {
            assert_eq!(status(client).await, "200");
        }
        assert_eq!(status(&mut send(address, "abcd").await).await, "200");
    }

    #[tokio::test]
    async fn an_answer_that_is_not_read_ends() {
        let (held, mut ended) = mpsc::channel::<()>(1);
        let parts = stream::repeat_with(move || {
            let _held_by_the_answer = &held;
            Ok::<_, std::convert::Infallible>("part")
        });
        let response = Response::new(Body::from_stream(parts));
        let stalled = streamed(&Handle::current(), response, Duration::from_millis(10), None);
        assert_eq!(ended.recv().await, None);
        drop(stalled);
    }

    #[tokio::test]
    async fn a_change_goes_on_without_its_client_and_a_read_ends() {
        for (method, goes_on) in [(Method::POST, true), (Method::GET, false)] {
            let (done, mut ended) = mpsc::channel(1);
            let (begun, opened) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
            let (has_begun, open) = (Arc::clone(&begun), Arc::clone(&opened));
            let handler = async move || {
                has_begun.notify_one();
                open.notified().await;
                let _the_test_may_be_over = done.send(()).await;
            };
            let mut router = run_on(pools(), Router::new().route("/", any(handler)));
            let request = Request::builder().method(method).uri("/").body(Body::empty()).unwrap();
            let asked = tokio::spawn(router.call(request));
            begun.notified().await;
            asked.abort();
            assert!(asked.await.is_err());
            drop(router);
            opened.notify_one();
            assert_eq!(ended.recv().await.is_some(), goes_on);
        }
    }
}
