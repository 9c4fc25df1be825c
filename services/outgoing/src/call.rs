//! A call and its response, and the checks of the URL.

use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderValue, USER_AGENT};
use http::uri::Scheme;
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use http_body_util::Full;

use crate::CallError;
use crate::limits::URL_BYTES_MAX;

const OURS: HeaderValue = HeaderValue::from_static(concat!("millrace/", env!("CARGO_PKG_VERSION")));

#[derive(Clone, Debug)]
pub struct Call<'a> {
    pub method: Method,
    pub url: &'a str,
    /// The share of calls and name lookups that the call takes: an opaque name, such as that of a tenant.
    pub share: &'a str,
    /// Without `host` and `content-length`.
    pub headers: HeaderMap,
    pub body: Bytes,
    /// Covers the queue, the connection and the whole response.
    pub timeout: Duration,
    /// A longer response is an error.
    pub answer_bytes_max: usize,
}

#[derive(Clone, Debug)]
pub struct Response {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Call<'_> {
    pub(crate) fn into_request(self) -> Result<Request<Full<Bytes>>, CallError> {
        let uri = parse(self.url)?;
        let mut request = Request::new(Full::new(self.body));
        (*request.method_mut(), *request.uri_mut(), *request.headers_mut()) =
            (self.method, uri, self.headers);
        request.headers_mut().entry(USER_AGENT).or_insert(OURS);
        Ok(request)
    }
}

fn parse(url: &str) -> Result<Uri, CallError> {
    if url.len() > URL_BYTES_MAX {
        return Err(CallError::Url("is too long"));
    }
    let uri: Uri = url.parse().map_err(|_| CallError::Url("is not one"))?;
    if uri.scheme() != Some(&Scheme::HTTP) && uri.scheme() != Some(&Scheme::HTTPS) {
        return Err(CallError::Url("does not start with https://"));
    }
    let authority = uri.authority().ok_or(CallError::Url("has no host"))?;
    if authority.as_str().contains('@') {
        return Err(CallError::Url("has a user name or password in it"));
    }
    // `Uri` takes a port that is too large for none, which would mean 443.
    let has_port = authority.as_str().rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
    if has_port && uri.port_u16().is_none_or(|port| port == 0) {
        return Err(CallError::Url("has a port that is not from 1 to 65535"));
    }
    if uri.host().is_none_or(str::is_empty) {
        return Err(CallError::Url("has no host"));
    }
    Ok(uri)
}
