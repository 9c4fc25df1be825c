//! Calls to real servers on this machine.

#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};
use millrace_outgoing::limits::CALLS_PER_HOST_MAX;
use millrace_outgoing::{Call, CallSettings, HttpClient};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

const LONG: Duration = Duration::from_secs(30);

fn client(roots: &[CertificateDer<'static>]) -> HttpClient {
    let allow = vec!["127.0.0.0/8".parse().unwrap()];
    HttpClient::new(CallSettings { allow, plain_http: false, roots: roots.to_vec() })
}

fn get(url: &str) -> Call<'_> {
    Call {
        method: Method::GET,
        url,
        share: "",
        headers: HeaderMap::new(),
        body: Bytes::new(),
        timeout: LONG,
        answer_bytes_max: 1_000,
    }
}

async fn reason(client: &HttpClient, call: Call<'_>) -> &'static str {
    client.call(call).await.map_or_else(|error| error.reason(), |_| "none")
}

/// Answers each request on a connection with the same bytes, and counts connections.
async fn server(answer: impl Into<Vec<u8>>) -> (SocketAddr, Arc<Semaphore>) {
    let (answer, connections) = (Arc::new(answer.into()), Arc::new(Semaphore::new(0)));
    let (listener, count) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), connections.clone());
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            count.add_permits(1);
            tokio::spawn(answer_all(stream, answer.clone()));
        }
    });
    (address, connections)
}

async fn answer_all(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: Arc<Vec<u8>>) {
    while head(&mut stream).await.is_some() {
        if stream.write_all(&answer).await.is_err() {
            return;
        }
    }
}

/// The head of a request without a body.
async fn head(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    String::from_utf8(head).ok()
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nx-a: b\r\n\r\n{body}", body.len())
}

#[tokio::test]
async fn a_call_brings_status_headers_and_body_over_one_connection() {
    let (address, connections) = server(ok("hello")).await;
    let (client, url) = (client(&[]), format!("http://{address}/a?b"));
    for _ in 0..3 {
        let answer = client.call(get(&url)).await.unwrap();
        assert_eq!((answer.status.as_u16(), &*answer.body), (200, &b"hello"[..]));
        assert_eq!(answer.headers["x-a"], "b");
    }
    assert_eq!(connections.available_permits(), 1);
}

#[tokio::test]
async fn a_request_is_sent_as_it_was_given() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let asked = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let head = head(&mut stream).await.unwrap();
        let mut body = [0; 2];
        stream.read_exact(&mut body).await.unwrap();
        stream.write_all(ok("").as_bytes()).await.unwrap();
        (head, body)
    });
    let (client, url) = (client(&[]), format!("http://{address}/a?b#c"));
    let headers = HeaderMap::from_iter([(http::header::AUTHORIZATION, HeaderValue::from_static("me"))]);
    let call = Call { method: Method::POST, headers, body: "{}".into(), ..get(&url) };
    client.call(call).await.unwrap();
    let (head, body) = asked.await.unwrap();
    assert!(head.starts_with("POST /a?b HTTP/1.1\r\n"), "{head}");
    for line in
        [&format!("host: {address}"), "authorization: me", "content-length: 2", "user-agent: millrace/"]
    {
        assert!(head.contains(&format!("\r\n{line}")), "{line} {head}");
    }
    assert_eq!(&body, b"{}");
}

#[tokio::test]
async fn no_redirect_is_followed() {
    let (private, connections) = server(ok("secret")).await;
    let (address, _) =
        server(format!("HTTP/1.1 302 Found\r\nlocation: http://{private}/\r\ncontent-length: 0\r\n\r\n"))
            .await;
    let answer = client(&[]).call(get(&format!("http://{address}/"))).await.unwrap();
    assert_eq!((answer.status.as_u16(), &*answer.body), (302, &b""[..]));
    assert_eq!(connections.available_permits(), 0);
}

#[tokio::test]
async fn no_form_of_a_private_address_is_connected_to() {
    let (address, connections) = server(ok("secret")).await;
    let port = address.port();
    let client = HttpClient::new(CallSettings { plain_http: true, ..CallSettings::default() });
    for host in [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "localhost",
        "LOCALHOST",
        "localhost.",
        "0.0.0.0",
        "0",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "169.254.169.254",
    ] {
        for scheme in ["http", "https"] {
            let reason = reason(&client, get(&format!("{scheme}://{host}:{port}/"))).await;
            // Some hosts are not valid names for TLS, and some resolvers do not know them.
            assert!(["forbidden", "resolve", "tls"].contains(&reason), "{host}: {reason}");
        }
    }
    assert_eq!(connections.available_permits(), 0);
}

#[tokio::test]
async fn unsupported_urls_are_not_called() {
    let client = client(&[]);
    let long = format!("https://a.test/{}", "x".repeat(2_048));
    for url in [
        "",
        "a.test",
        "/a",
        "ftp://a.test/",
        "file:///etc/passwd",
        "https://",
        "https://u:p@127.0.0.1/",
        "https://u@a.test/",
        "https://127.0.0.1:65536/",
        "https://[::1]:99999/",
        "https://a.test:0/",
        &long,
    ] {
        assert_eq!(reason(&client, get(url)).await, "url", "{url:.60}");
    }
    assert_eq!(reason(&client, get("https://nothing.invalid/")).await, "resolve");
}

#[tokio::test]
async fn an_answer_has_a_size() {
    let (address, _) = server(ok(&"x".repeat(1_001))).await;
    let url = format!("http://{address}/");
    assert_eq!(reason(&client(&[]), get(&url)).await, "too_long");
    assert_eq!(reason(&client(&[]), Call { answer_bytes_max: 1_001, ..get(&url) }).await, "none");
    let (address, _) = server("HTTP/1.1 200 OK\r\n\r\n".to_owned() + &"x".repeat(100_000)).await;
    assert_eq!(reason(&client(&[]), get(&format!("http://{address}/"))).await, "too_long");
    let (address, _) = server(format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "x".repeat(100_000))).await;
    assert_eq!(reason(&client(&[]), get(&format!("http://{address}/"))).await, "http");
}

#[tokio::test]
async fn garbage_is_an_error() {
    for garbage in ["220 mail ESMTP\r\n", "\0\0\0\0\r\n\r\n", "HTTP/1.1 abc\r\n\r\n"] {
        let (address, _) = server(garbage).await;
        assert_eq!(reason(&client(&[]), get(&format!("http://{address}/"))).await, "http", "{garbage}");
    }
}

#[tokio::test]
async fn a_call_has_a_time() {
    let (address, _) = server("").await;
    let short = Duration::from_millis(100);
    let (silent, dribbling) =
        (format!("http://{address}/"), server("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx").await.0);
    for url in [silent, format!("http://{dribbling}/"), format!("https://{address}/")] {
        let call = Call { timeout: short, ..get(&url) };
        assert_eq!(reason(&client(&[]), call).await, "timeout", "{url}");
    }
}

#[tokio::test]
async fn a_host_that_is_gone_is_an_error_of_connecting() {
    let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    assert_eq!(reason(&client(&[]), get(&format!("http://{address}/"))).await, "connect");
}

#[tokio::test]
async fn a_slow_host_takes_its_own_places_only() {
    let (slow, connections) = server("").await;
    let (quick, _) = server(ok("")).await;
    let (client, slow) = (client(&[]), format!("http://{slow}/"));
    let call = || {
        let (client, slow) = (client.clone(), slow.clone());
        tokio::spawn(async move { reason(&client, get(&slow)).await })
    };
    let calls: Vec<_> = (0..CALLS_PER_HOST_MAX).map(|_| call()).collect();
    let all = u32::try_from(CALLS_PER_HOST_MAX).unwrap();
    connections.acquire_many(all).await.unwrap().forget();
    let more = Call { timeout: Duration::from_millis(50), ..get(&slow) };
    assert_eq!(reason(&client, more.clone()).await, "busy");
    assert_eq!(reason(&client, get(&format!("http://{quick}/"))).await, "none");
    calls.iter().for_each(tokio::task::JoinHandle::abort);
    for call in calls {
        assert!(call.await.is_err());
    }
    assert_eq!(connections.available_permits(), 0, "no more connections");
    assert_eq!(reason(&client, more).await, "timeout", "there is a place again");
}

/// Starts a TLS server for `localhost` and 127.0.0.1, and returns its self-signed certificate.
async fn tls_server(answer: String) -> (SocketAddr, CertificateDer<'static>) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let certificate = made.cert.der().clone();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder().with_no_client_auth();
    let config = config.with_single_cert(vec![certificate.clone()], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, answer) = (listener.local_addr().unwrap(), Arc::new(answer.into_bytes()));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, answer) = (acceptor.clone(), answer.clone());
            tokio::spawn(async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    answer_all(stream, answer).await;
                }
            });
        }
    });
    (address, certificate)
}

#[tokio::test]
async fn with_https_the_server_must_be_who_it_says() {
    let (address, certificate) = tls_server(ok("hello")).await;
    let port = address.port();
    let known = client(&[certificate]);
    for host in ["localhost", "127.0.0.1"] {
        let answer = known.call(get(&format!("https://{host}:{port}/"))).await.unwrap();
        assert_eq!(&*answer.body, b"hello");
    }
    assert_eq!(
        reason(&known, get(&format!("https://127.0.0.2:{port}/"))).await,
        "connect",
        "nobody listens there"
    );
    assert_eq!(reason(&client(&[]), get(&format!("https://localhost:{port}/"))).await, "tls");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let plain = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.write_all(b"220 mail ESMTP\r\n").await;
        let _ = head(&mut stream).await;
    });
    assert_eq!(reason(&known, get(&format!("https://{plain}/"))).await, "tls");
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused() {
    let listener = TcpListener::bind("127.0.0.3:0").await.unwrap();
    let (address, certificate) = tls_server(ok("hello")).await;
    let other = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut near, _) = listener.accept().await.unwrap();
        let mut far = tokio::net::TcpStream::connect(address).await.unwrap();
        let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
    });
    assert_eq!(reason(&client(&[certificate]), get(&format!("https://{other}/"))).await, "tls");
}
