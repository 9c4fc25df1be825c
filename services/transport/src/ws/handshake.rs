//! The HTTP request that opens a WebSocket (RFC 6455 section 4.2), and the response. No extension
//! is accepted, because compression needs a window of memory for each connection. `Origin` is
//! checked, because a web page must not reach a broker in its visitor's network without permission.

use std::net::IpAddr;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use httparse::{Error, Request, Status};
use sha1::{Digest, Sha1};

pub const PATH: &str = "/mqtt";

/// Headers of a request; one with more is refused as too large. Browsers send about 15.
const HEADERS_MAX: usize = 64;

/// The suffix of the key in RFC 6455 section 1.3.
const KEY_SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Accepts a key whose last character has bits beyond the 16 bytes, as RFC 6455 section 1.3 has one.
const KEY_BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

#[derive(Debug, PartialEq, Eq)]
pub struct Upgrade {
    /// Bytes of the request; WebSocket frames follow.
    pub head_len: usize,
    /// The whole response (101), which must be sent before any frame.
    pub response: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct HandshakeRefusal {
    /// A whole HTTP response whose text says what to do.
    pub response: Vec<u8>,
    pub reason: &'static str,
}

/// The web pages that may open a WebSocket. A browser names the origin of its page; other clients
/// need not name one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Origins {
    /// Pages of the WebSocket's own host, whatever their scheme and port. At a loopback address
    /// this host is `localhost` or the address.
    #[default]
    SameHost,
    /// These origins, such as `https://app.example`, and the same host.
    These(Vec<String>),
    Any,
}

impl Origins {
    fn allow(&self, origin: &[u8], host: &[u8], is_loopback: bool) -> bool {
        let is_same_host = || {
            // DNS rebinding: a foreign page's domain may resolve to 127.0.0.1, and so be the same host.
            if is_loopback && !is_loopback_name(without_port(host)) {
                return false;
            }
            let after = origin.windows(3).position(|window| window == b"://").map(|at| &origin[at + 3..]);
            after.is_some_and(|of_origin| without_port(of_origin).eq_ignore_ascii_case(without_port(host)))
        };
        match self {
            Self::Any => true,
            Self::SameHost => is_same_host(),
            Self::These(these) => {
                these.iter().any(|this| origin.eq_ignore_ascii_case(this.as_bytes())) || is_same_host()
            }
        }
    }
}

fn is_loopback_name(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else { return false };
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.eq_ignore_ascii_case("localhost")
        || address.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

fn without_port(authority: &[u8]) -> &[u8] {
    match authority.iter().rposition(|byte| matches!(byte, b':' | b']')) {
        Some(at) if authority[at] == b':' => &authority[..at],
        _ => authority,
    }
}

/// `Ok(None)` means that the request head is incomplete, which never happens once `buf` has
/// `head_bytes_max` bytes. `is_loopback` says that the connection was accepted at a loopback
/// address.
///
/// # Errors
/// The request does not open an MQTT WebSocket; the error has the response to send.
pub fn parse(
    buf: &[u8],
    head_bytes_max: usize,
    origins: &Origins,
    is_loopback: bool,
) -> Result<Option<Upgrade>, HandshakeRefusal> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = Request::new(&mut headers);
    let head_len = match request.parse(buf) {
        Ok(Status::Complete(len)) if len <= head_bytes_max => len,
        Ok(Status::Partial) if buf.len() < head_bytes_max => return Ok(None),
        Ok(_) | Err(Error::TooManyHeaders) => return Err(refuse(&TOO_LARGE)),
        Err(_) => return Err(refuse(&NOT_HTTP)),
    };
    let key = check(&request, origins, is_loopback)?;
    let protocol = choose_protocol(&request).ok_or_else(|| refuse(&NO_PROTOCOL))?;
    let accept = accept(key);
    let response = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: {protocol}\r\n\r\n"
    );
    Ok(Some(Upgrade { head_len, response: response.into_bytes() }))
}

fn check<'b>(
    request: &Request<'_, 'b>,
    origins: &Origins,
    is_loopback: bool,
) -> Result<&'b [u8], HandshakeRefusal> {
    if request.method != Some("GET") {
        return Err(refuse(&NOT_GET));
    }
    if request.version != Some(1) {
        return Err(refuse(&OLD_HTTP));
    }
    let host = only(request, "host").ok_or_else(|| refuse(&NO_HOST))?;
    if path(request.path.unwrap_or_default()) != PATH {
        return Err(refuse(&NOT_FOUND));
    }
    if !has_token(request, "upgrade", "websocket") || !has_token(request, "connection", "upgrade") {
        return Err(refuse(&NO_UPGRADE));
    }
    if !values(request, "origin").all(|origin| origins.allow(origin, host, is_loopback)) {
        return Err(refuse(&FOREIGN_ORIGIN));
    }
    if only(request, "sec-websocket-version") != Some(b"13") {
        return Err(refuse(&OTHER_VERSION));
    }
    let key = only(request, "sec-websocket-key").ok_or_else(|| refuse(&BAD_KEY))?;
    // One byte more than a key, because the decoder demands room for its own estimate.
    let mut decoded = [0; 18];
    match KEY_BASE64.decode_slice(key, &mut decoded) {
        Ok(16) => Ok(key),
        _ => Err(refuse(&BAD_KEY)),
    }
}

/// Prefers `mqtt`; a 3.1 client may know only the older name.
fn choose_protocol(request: &Request<'_, '_>) -> Option<&'static str> {
    //= [MQTT-6.0.0-3] v5 v3.1.1
    //= [MQTT-6.0.0-4] v5 v3.1.1
    ["mqtt", "mqttv3.1"].into_iter().find(|name| {
        values(request, "sec-websocket-protocol").flat_map(tokens).any(|offer| offer == name.as_bytes())
    })
}

fn accept(key: &[u8]) -> String {
    let mut hash = Sha1::new();
    hash.update(key);
    hash.update(KEY_SUFFIX);
    STANDARD.encode(hash.finalize())
}

/// The path of a request target, which may be an absolute URL (RFC 9112 section 3.2.2) with a
/// query.
fn path(target: &str) -> &str {
    let target = target.split('?').next().unwrap_or_default();
    match target.split_once("://") {
        Some((_, rest)) => rest.find('/').map_or("/", |at| &rest[at..]),
        None => target,
    }
}

fn values<'r, 'b>(
    request: &'r Request<'_, 'b>,
    name: &'static str,
) -> impl Iterator<Item = &'b [u8]> + use<'r, 'b> {
    let headers: &'r [httparse::Header<'b>] = request.headers;
    headers.iter().filter(move |h| h.name.eq_ignore_ascii_case(name)).map(|h| h.value.trim_ascii())
}

/// `None` unless the header occurs exactly once.
fn only<'b>(request: &Request<'_, 'b>, name: &'static str) -> Option<&'b [u8]> {
    let mut all = values(request, name);
    all.next().filter(|_| all.next().is_none())
}

fn tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|b| *b == b',').map(<[u8]>::trim_ascii)
}

fn has_token(request: &Request<'_, '_>, name: &'static str, token: &str) -> bool {
    values(request, name).flat_map(tokens).any(|t| t.eq_ignore_ascii_case(token.as_bytes()))
}

struct HandshakeAnswer {
    status: &'static str,
    /// Header lines beyond the common ones, each with its line end.
    headers: &'static str,
    reason: &'static str,
    text: &'static str,
}

fn refuse(answer: &HandshakeAnswer) -> HandshakeRefusal {
    let HandshakeAnswer { status, headers, reason, text } = answer;
    // A 426 must name `Upgrade` in `Connection` too (RFC 9110 section 7.8).
    let connection = if headers.contains("Upgrade:") { "close, upgrade" } else { "close" };
    let response = format!(
        "HTTP/1.1 {status}\r\nConnection: {connection}\r\n{headers}Content-Type: text/plain; charset=utf-8\r\n\
         Content-Length: {}\r\n\r\n{text}\n",
        text.len() + 1
    );
    HandshakeRefusal { response: response.into_bytes(), reason }
}

const NOT_HTTP: HandshakeAnswer = HandshakeAnswer {
    status: "400 Bad Request",
    headers: "",
    reason: "not an http request",
    text: "This is not an HTTP request. This port speaks MQTT over WebSocket: use a ws:// address with the path /mqtt \
           here, or the port for MQTT over TCP.",
};
const OLD_HTTP: HandshakeAnswer = HandshakeAnswer {
    status: "400 Bad Request",
    headers: "",
    reason: "http version below 1.1",
    text: "A WebSocket needs HTTP/1.1. If a proxy stands in between, let it speak HTTP/1.1 to this server.",
};
const NO_HOST: HandshakeAnswer = HandshakeAnswer {
    status: "400 Bad Request",
    headers: "",
    reason: "not exactly one host header",
    text: "The request must have exactly one Host header.",
};
const NOT_FOUND: HandshakeAnswer = HandshakeAnswer {
    status: "404 Not Found",
    headers: "",
    reason: "path is not /mqtt",
    text: "MQTT over WebSocket is at the path /mqtt of this server.",
};
const NOT_GET: HandshakeAnswer = HandshakeAnswer {
    status: "405 Method Not Allowed",
    headers: "Allow: GET\r\n",
    reason: "method is not get",
    text: "A WebSocket is opened with GET. Connect an MQTT client over WebSocket to the path /mqtt.",
};
const FOREIGN_ORIGIN: HandshakeAnswer = HandshakeAnswer {
    status: "403 Forbidden",
    headers: "",
    reason: "origin is not allowed",
    text: "Web pages of this origin may not connect to this broker. The operator of the server can allow the origin with \
           the setting ws_origins.",
};
const NO_UPGRADE: HandshakeAnswer = HandshakeAnswer {
    status: "426 Upgrade Required",
    headers: "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
    reason: "no websocket upgrade asked for",
    text: "This is an MQTT broker. Connect an MQTT client over WebSocket to the path /mqtt. If a proxy stands in \
           between, let it pass the headers Upgrade and Connection.",
};
const OTHER_VERSION: HandshakeAnswer = HandshakeAnswer {
    status: "426 Upgrade Required",
    headers: "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
    reason: "websocket version is not 13",
    text: "This server speaks WebSocket version 13 (RFC 6455): the request must have one Sec-WebSocket-Version: 13.",
};
const BAD_KEY: HandshakeAnswer = HandshakeAnswer {
    status: "400 Bad Request",
    headers: "",
    reason: "sec-websocket-key is not 16 bytes",
    text: "The request must have one Sec-WebSocket-Key header with 16 bytes in base64.",
};
const NO_PROTOCOL: HandshakeAnswer = HandshakeAnswer {
    status: "400 Bad Request",
    headers: "",
    reason: "subprotocol mqtt not offered",
    text: "The client must offer the WebSocket subprotocol \"mqtt\" (header Sec-WebSocket-Protocol: mqtt).",
};
const TOO_LARGE: HandshakeAnswer = HandshakeAnswer {
    status: "431 Request Header Fields Too Large",
    headers: "",
    reason: "request head too large",
    text: "The head of the HTTP request is too large. Send fewer or shorter headers (cookies, for example).",
};

#[cfg(test)]
#[path = "handshake_tests.rs"]
mod tests;
