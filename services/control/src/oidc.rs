//! Client of an OpenID Connect provider that the operator names: the authorization code flow (Core 1.0, section 3.1)
//! with PKCE (RFC 7636).
//!
//! [`Provider::begin`] returns the URL to send a browser to; [`Provider::finish`] turns the code that it brings back
//! into a [`Visitor`]. The server stores nothing in between: both requests derive `state`, `nonce` and the PKCE
//! verifier from a secret in the browser's cookie ([`Flow`]).

mod shared_answer;

use std::sync::Arc;

use axum::http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use axum::http::{Method, StatusCode};
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use bytes::Bytes;
use millrace_access::jwt::{Issuer, JsonWebToken, KeySet, TokenRefusal};
use millrace_access::model::{JwtAlgorithm, JwtIssuer, JwtKey};
use millrace_outgoing::{Call, CallSettings, HttpClient, Response};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use ring::digest::{SHA256, digest};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::shared_answer::SharedAnswer;
use crate::limits::{PROVIDER_ANSWER_BYTES_MAX, PROVIDER_SUBJECT_BYTES_MAX, PROVIDER_TIMEOUT};
use crate::secret::Secret;

#[derive(Clone, Debug)]
pub struct OidcSettings {
    pub name: String,
    /// Issuer identifier; `/.well-known/openid-configuration` is appended to it.
    pub issuer: String,
    pub client_id: String,
    /// Without one this server is a public client, which has PKCE alone.
    pub client_secret: Option<Secret>,
    /// URL of this server to which the provider sends browsers back.
    pub redirect_url: String,
}

/// A person as the provider describes them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Visitor {
    pub issuer: String,
    /// Unique and permanent id of the person at the provider.
    pub subject: String,
    /// E-mail address, unless the provider says that it is not verified.
    pub email: Option<String>,
    pub name: Option<String>,
}

/// The values that tie both requests of one sign-in together.
pub(crate) struct Flow {
    /// Proves that the returning browser began the sign-in here.
    pub(crate) state: Secret,
    /// Proves that the ID token was issued for this sign-in.
    pub(crate) nonce: Secret,
    /// The PKCE verifier: proves that the code is redeemed by the server that began the sign-in.
    pub(crate) verifier: Secret,
}

#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum OidcError {
    #[error(
        "your provider does not answer for its {what}: {error}; try again, or ask the operator of this server"
    )]
    Call { what: &'static str, error: millrace_outgoing::CallError },
    #[error("your provider refused the request for its {what} with status {status}: {said}")]
    Status { what: &'static str, status: StatusCode, said: String },
    #[error("the {what} of your provider is not valid: {why}; ask the operator of this server")]
    Answer { what: &'static str, why: String },
    #[error("the token of your provider is not valid: {0}; ask the operator of this server")]
    Token(#[from] TokenRefusal),
}

pub(crate) struct Provider {
    settings: OidcSettings,
    client: HttpClient,
    discovered: SharedAnswer<Discovered>,
}

/// The provider's metadata (OpenID Connect Discovery 1.0, section 3).
#[derive(Deserialize)]
struct Discovered {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
    userinfo_endpoint: Option<String>,
    #[serde(default)]
    token_endpoint_auth_methods_supported: Vec<String>,
}

/// Response of the token endpoint (Core section 3.1.3.3).
#[derive(Deserialize)]
struct Tokens {
    id_token: String,
    access_token: String,
}

/// Standard claims (Core section 5.1).
#[derive(Deserialize)]
struct StandardClaims {
    sub: String,
    email: Option<String>,
    email_verified: Option<Value>,
    name: Option<String>,
}

impl StandardClaims {
    /// Some providers write the claim as text; section 5.1 lets a provider leave it out.
    fn is_unverified(&self) -> bool {
        !matches!(&self.email_verified, None | Some(Value::Null | Value::Bool(true)))
            && self.email_verified.as_ref().and_then(Value::as_str) != Some("true")
    }
}

impl Provider {
    /// Reads the system's root certificates.
    pub(crate) fn new(settings: OidcSettings) -> Self {
        // Private addresses are allowed, because the operator has chosen the provider.
        let allow = ["0.0.0.0/0", "::/0"].into_iter().filter_map(|network| network.parse().ok()).collect();
        let client = HttpClient::new(CallSettings { allow, plain_http: false, roots: Vec::new() });
        Self { settings, client, discovered: SharedAnswer::new() }
    }

    pub(crate) fn settings(&self) -> &OidcSettings {
        &self.settings
    }

    /// Returns the URL to send a browser to (Core section 3.1.2.1). With `asks` the provider lets the person choose an
    /// account, even if they are signed in there.
    pub(crate) async fn begin(&self, flow: &Flow, asks: bool, now_s: u64) -> Result<String, OidcError> {
        let discovered = self.discovered(now_s).await?;
        let at = &discovered.authorization_endpoint;
        let challenge = BASE64_URL_SAFE_NO_PAD.encode(digest(&SHA256, flow.verifier.expose().as_bytes()));
        let mut fields = vec![
            ("response_type", "code"),
            ("scope", "openid email profile"),
            ("client_id", &self.settings.client_id),
            ("redirect_uri", &self.settings.redirect_url),
            ("state", flow.state.expose()),
            ("nonce", flow.nonce.expose()),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ];
        if asks {
            fields.push(("prompt", "select_account"));
        }
        let query = form(&fields);
        let separator = if at.contains('?') { '&' } else { '?' };
        Ok(format!("{at}{separator}{query}"))
    }

    pub(crate) async fn finish(&self, flow: &Flow, code: &str, now_s: u64) -> Result<Visitor, OidcError> {
        let discovered = self.discovered(now_s).await?;
        let tokens = self.redeem(&discovered, flow, code).await?;
        let mut claims = self.verify(&discovered, flow, &tokens.id_token, now_s).await?;
        if let (None, Some(url)) = (&claims.email, &discovered.userinfo_endpoint) {
            claims = self.ask_more(url, &tokens.access_token, claims).await?;
        }
        let is_unverified = claims.is_unverified();
        Ok(Visitor {
            issuer: self.settings.issuer.clone(),
            subject: claims.sub,
            email: claims.email.filter(|_| !is_unverified),
            name: claims.name,
        })
    }

    async fn discovered(&self, now_s: u64) -> Result<Arc<Discovered>, OidcError> {
        self.discovered.get(now_s, self.discover()).await
    }

    async fn discover(&self) -> Result<Discovered, OidcError> {
        const WHAT: &str = "configuration";
        let wrong = |why: &str| OidcError::Answer { what: WHAT, why: why.into() };
        let issuer = &self.settings.issuer;
        let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
        let found: Discovered = read(WHAT, &self.get(WHAT, &url, None).await?)?;
        // Discovery section 4.3 requires this check: otherwise any provider could issue tokens in the name of another.
        if found.issuer != *issuer {
            return Err(wrong(&format!("its issuer is {:?}, and not the one of the settings", found.issuer)));
        }
        let is_tls = |url: &String| url.starts_with("https://");
        let endpoints = [&found.authorization_endpoint, &found.token_endpoint, &found.jwks_uri];
        let are_all_tls = endpoints.into_iter().chain(&found.userinfo_endpoint).all(is_tls);
        if is_tls(issuer) && !are_all_tls {
            return Err(wrong("an endpoint is without TLS"));
        }
        Ok(found)
    }

    /// Exchanges the code for tokens (Core section 3.1.3.1).
    async fn redeem(&self, at: &Discovered, flow: &Flow, code: &str) -> Result<Tokens, OidcError> {
        const WHAT: &str = "tokens";
        let OidcSettings { client_id, client_secret, redirect_url, .. } = &self.settings;
        let mut fields = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", redirect_url.as_str()),
            ("code_verifier", flow.verifier.expose()),
        ];
        let mut headers = HeaderMap::new();
        let methods = &at.token_endpoint_auth_methods_supported;
        let has = |method: &str| methods.iter().any(|one| one == method);
        match client_secret {
            // `client_secret_basic` is the default (Discovery section 3); RFC 6749 section 2.3.1 defines its encoding.
            Some(secret) if methods.is_empty() || has("client_secret_basic") => {
                let pair = format!("{}:{}", encoded(client_id), encoded(secret.expose()));
                headers.insert(AUTHORIZATION, hidden(&format!("Basic {}", BASE64_STANDARD.encode(pair)))?);
            }
            Some(secret) => {
                fields.extend([("client_id", client_id.as_str()), ("client_secret", secret.expose())]);
            }
            None => fields.push(("client_id", client_id)),
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        let body = Bytes::from(form(&fields));
        let call = Call { method: Method::POST, body, headers, ..call(&at.token_endpoint) };
        read(WHAT, &self.ask(WHAT, call).await?)
    }

    /// Validates the ID token (Core section 3.1.3.7).
    async fn verify(
        &self,
        at: &Discovered,
        flow: &Flow,
        token: &str,
        now_s: u64,
    ) -> Result<StandardClaims, OidcError> {
        const WHAT: &str = "keys";
        let wrong = |why: String| OidcError::Answer { what: "token", why };
        let keys = self.get(WHAT, &at.jwks_uri, None).await?;
        let keys = KeySet::parse(&keys.body)
            .map_err(|error| OidcError::Answer { what: WHAT, why: error.to_string() })?;
        let issuer = Issuer::new(JwtIssuer {
            name: "oidc".into(),
            algorithms: vec![JwtAlgorithm::Rs256, JwtAlgorithm::Es256],
            key: JwtKey::Jwks { url: at.jwks_uri.clone() },
            issuer: Some(self.settings.issuer.clone()),
            audience: vec![self.settings.client_id.clone()],
            ..JwtIssuer::default()
        });
        let issuer = issuer.map_err(|_| wrong("the URL of its keys is not valid".into()))?;
        let token = JsonWebToken::parse(token.as_bytes())?;
        issuer.verify(&token, &keys, now_s)?;
        let claims = token.claims();
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        if text("nonce") != Some(flow.nonce.expose()) {
            return Err(wrong("it was made for another sign-in (nonce)".into()));
        }
        let is_shared = claims.get("aud").and_then(Value::as_array).is_some_and(|all| all.len() > 1);
        if text("azp").map_or(is_shared, |party| party != self.settings.client_id) {
            return Err(wrong("it was made for somebody else (azp)".into()));
        }
        let claims: StandardClaims = serde_json::from_value(Value::Object(claims.clone()))
            .map_err(|error| wrong(error.to_string()))?;
        // Core section 2 allows at most 255 ASCII characters.
        if claims.sub.len() > PROVIDER_SUBJECT_BYTES_MAX {
            return Err(wrong(format!("its sub has more than {PROVIDER_SUBJECT_BYTES_MAX} bytes")));
        }
        Ok(claims)
    }

    /// Asks the UserInfo endpoint for claims that the ID token lacks (Core section 5.3).
    async fn ask_more(
        &self,
        url: &str,
        token: &str,
        known: StandardClaims,
    ) -> Result<StandardClaims, OidcError> {
        const WHAT: &str = "user information";
        let more: StandardClaims = read(WHAT, &self.get(WHAT, url, Some(token)).await?)?;
        if more.sub != known.sub {
            return Err(OidcError::Answer { what: WHAT, why: "it is of somebody else".into() });
        }
        Ok(StandardClaims { name: more.name.or(known.name), ..more })
    }

    async fn get(&self, what: &'static str, url: &str, token: Option<&str>) -> Result<Response, OidcError> {
        let mut headers = HeaderMap::new();
        if let Some(token) = token {
            headers.insert(AUTHORIZATION, hidden(&format!("Bearer {token}"))?);
        }
        self.ask(what, Call { headers, ..call(url) }).await
    }

    async fn ask(&self, what: &'static str, mut call: Call<'_>) -> Result<Response, OidcError> {
        call.headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let answer = self.client.call(call).await.map_err(|error| OidcError::Call { what, error })?;
        if answer.status == StatusCode::OK {
            return Ok(answer);
        }
        let said = serde_json::from_slice::<Value>(&answer.body).unwrap_or_default();
        let said = ["error", "error_description"].into_iter().filter_map(|name| said.get(name)?.as_str());
        let said = said.collect::<Vec<_>>().join(", ");
        let said = if said.is_empty() { "it does not say why".into() } else { said };
        Err(OidcError::Status { what, status: answer.status, said })
    }
}

fn call(url: &str) -> Call<'_> {
    Call {
        method: Method::GET,
        url,
        share: "",
        headers: HeaderMap::new(),
        body: Bytes::new(),
        timeout: PROVIDER_TIMEOUT,
        answer_bytes_max: PROVIDER_ANSWER_BYTES_MAX,
    }
}

fn read<T: DeserializeOwned>(what: &'static str, answer: &Response) -> Result<T, OidcError> {
    serde_json::from_slice(&answer.body).map_err(|error| OidcError::Answer { what, why: error.to_string() })
}

fn hidden(value: &str) -> Result<HeaderValue, OidcError> {
    let value = HeaderValue::from_str(value);
    let mut value = value
        .map_err(|_| OidcError::Answer { what: "tokens", why: "they have control characters".into() })?;
    value.set_sensitive(true);
    Ok(value)
}

fn form(fields: &[(&str, &str)]) -> String {
    let pairs = fields.iter().map(|(name, value)| format!("{name}={}", encoded(value)));
    pairs.collect::<Vec<_>>().join("&")
}

fn encoded(value: &str) -> String {
    utf8_percent_encode(value, NON_ALPHANUMERIC).to_string()
}

/// Plain HTTP is allowed on the loopback address only.
pub fn oidc_issuer(text: &str) -> Result<String, String> {
    let here = ["http://127.0.0.1:", "http://localhost:", "http://[::1]:"];
    let is_one = text.starts_with("https://") || here.iter().any(|start| text.starts_with(start));
    if is_one && !text.contains(['?', '#', ' ']) {
        return Ok(text.to_owned());
    }
    Err("an https:// URL is allowed, as the provider writes its issuer, such as https://login.example.org/realms/plant"
        .into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issuer_is_one_with_tls_or_on_this_machine() {
        for right in ["https://login.example.org/realms/plant", "https://a.example/", "http://127.0.0.1:9000"]
        {
            assert_eq!(oidc_issuer(right).as_deref(), Ok(right));
        }
        for wrong in [
            "",
            "login.example.org",
            "http://login.example.org",
            "https://a/?b",
            "http://127.0.0.1.evil.example",
        ] {
            assert!(oidc_issuer(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_form_says_what_it_was_given() {
        assert_eq!(form(&[("a", "b c&d=é"), ("e", "f_g")]), "a=b%20c%26d%3D%C3%A9&e=f%5Fg");
    }
}
