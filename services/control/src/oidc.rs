//! How people sign in with a provider that their operator has named: OpenID Connect Core 1.0, the authorization code flow (section 3.1)
//! with PKCE (RFC 7636).
//!
//! Nothing is kept between the two requests of a browser: what they share is made of a secret in its cookie ([`Flow`]).

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
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::domain::Visitor;
use crate::limits::{PROVIDER_ANSWER_BYTES_MAX, PROVIDER_SUBJECT_BYTES_MAX, PROVIDER_TIMEOUT};
use crate::secret::Secret;

/// A provider of identities that people may sign in with.
#[derive(Clone, Debug)]
pub struct OidcSettings {
    /// What it is called on the page.
    pub name: String,
    /// Its issuer identifier: below it is `/.well-known/openid-configuration`.
    pub issuer: String,
    /// What we are to it.
    pub client_id: String,
    /// What we show it; without one we are a public client, with PKCE alone.
    pub client_secret: Option<Secret>,
    /// Where it sends browsers back to.
    pub redirect_url: String,
}

/// What the two requests of a browser share.
pub(crate) struct Flow {
    /// Comes back with the browser: it began here.
    pub(crate) state: Secret,
    /// Comes back in the token: it was made for this sign-in.
    pub(crate) nonce: Secret,
    /// Shows the provider that who asks for the token is who began.
    pub(crate) verifier: Secret,
}

/// Why somebody could not sign in.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OidcError {
    #[error("your provider does not answer for its {what}: {error}; try again, or tell who runs this server")]
    Call { what: &'static str, error: millrace_outgoing::CallError },
    #[error("your provider has refused to give its {what}, with status {status}: {said}")]
    Status { what: &'static str, status: StatusCode, said: String },
    #[error("what your provider says as its {what} is not right: {why}; tell who runs this server")]
    Answer { what: &'static str, why: String },
    #[error("the token of your provider is not right: {0}; tell who runs this server")]
    Token(#[from] TokenRefusal),
}

/// The provider, ready to be asked.
pub(crate) struct Provider {
    settings: OidcSettings,
    client: HttpClient,
}

/// What a provider says of itself (OpenID Connect Discovery 1.0, section 3).
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

/// What it gives for a code (Core section 3.1.3.3).
#[derive(Deserialize)]
struct Tokens {
    id_token: String,
    access_token: String,
}

/// What it says of somebody (Core section 5.1).
#[derive(Deserialize)]
struct Claims {
    sub: String,
    email: Option<String>,
    email_verified: Option<bool>,
    name: Option<String>,
}

impl Provider {
    /// Reads the system's authorities.
    pub(crate) fn new(settings: OidcSettings) -> Self {
        // The operator has named it, so it may stand in a private network.
        let allow = ["0.0.0.0/0", "::/0"].into_iter().filter_map(|network| network.parse().ok()).collect();
        let client = HttpClient::new(CallSettings { allow, plain_http: false, roots: Vec::new() });
        Self { settings, client }
    }

    pub(crate) fn settings(&self) -> &OidcSettings {
        &self.settings
    }

    /// Where to send a browser (Core section 3.1.2.1).
    /// `asks`: the person chooses an account there, also when they are signed in with one.
    pub(crate) async fn begin(&self, flow: &Flow, asks: bool) -> Result<String, OidcError> {
        let at = self.discover().await?.authorization_endpoint;
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

    /// Who has come back with a code.
    pub(crate) async fn finish(&self, flow: &Flow, code: &str, now_s: u64) -> Result<Visitor, OidcError> {
        let discovered = self.discover().await?;
        let tokens = self.redeem(&discovered, flow, code).await?;
        let mut claims = self.verify(&discovered, flow, &tokens.id_token, now_s).await?;
        if let (None, Some(url)) = (&claims.email, &discovered.userinfo_endpoint) {
            claims = self.ask_more(url, &tokens.access_token, claims).await?;
        }
        Ok(Visitor {
            issuer: self.settings.issuer.clone(),
            subject: claims.sub,
            email: claims.email.filter(|_| claims.email_verified != Some(false)),
            name: claims.name,
        })
    }

    async fn discover(&self) -> Result<Discovered, OidcError> {
        const WHAT: &str = "configuration";
        let wrong = |why: &str| OidcError::Answer { what: WHAT, why: why.into() };
        let issuer = &self.settings.issuer;
        let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
        let found: Discovered = read(WHAT, &self.get(WHAT, &url, None).await?)?;
        // Discovery section 4.3: else another one could speak for it.
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

    /// Gets the tokens for a code (Core section 3.1.3.1).
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
            // Without a word of methods it is this one (Discovery section 3), written as RFC 6749 section 2.3.1 says.
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

    /// Checks the token as Core section 3.1.3.7 says.
    async fn verify(
        &self,
        at: &Discovered,
        flow: &Flow,
        token: &str,
        now_s: u64,
    ) -> Result<Claims, OidcError> {
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
        let issuer = issuer.map_err(|_| wrong("the place of its keys is none".into()))?;
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
        let claims: Claims = serde_json::from_value(Value::Object(claims.clone()))
            .map_err(|error| wrong(error.to_string()))?;
        // Core section 2: at most 255 characters of ASCII.
        if claims.sub.len() > PROVIDER_SUBJECT_BYTES_MAX {
            return Err(wrong("its sub is too long".into()));
        }
        Ok(claims)
    }

    /// Asks what stands in no token (Core section 5.3).
    async fn ask_more(&self, url: &str, token: &str, known: Claims) -> Result<Claims, OidcError> {
        const WHAT: &str = "user information";
        let more: Claims = read(WHAT, &self.get(WHAT, url, Some(token)).await?)?;
        if more.sub != known.sub {
            return Err(OidcError::Answer { what: WHAT, why: "it is of somebody else".into() });
        }
        Ok(Claims { name: more.name.or(known.name), ..more })
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
        headers: HeaderMap::new(),
        body: Bytes::new(),
        timeout: PROVIDER_TIMEOUT,
        answer_bytes_max: PROVIDER_ANSWER_BYTES_MAX,
    }
}

fn read<T: DeserializeOwned>(what: &'static str, answer: &Response) -> Result<T, OidcError> {
    serde_json::from_slice(&answer.body).map_err(|error| OidcError::Answer { what, why: error.to_string() })
}

/// A header's value that no log shows.
fn hidden(value: &str) -> Result<HeaderValue, OidcError> {
    let value = HeaderValue::from_str(value);
    let mut value = value
        .map_err(|_| OidcError::Answer { what: "tokens", why: "they have control characters".into() })?;
    value.set_sensitive(true);
    Ok(value)
}

/// `application/x-www-form-urlencoded`, also in a query.
fn form(fields: &[(&str, &str)]) -> String {
    let pairs = fields.iter().map(|(name, value)| format!("{name}={}", encoded(value)));
    pairs.collect::<Vec<_>>().join("&")
}

fn encoded(value: &str) -> String {
    utf8_percent_encode(value, NON_ALPHANUMERIC).to_string()
}

/// A setting's issuer: where the provider itself says that it is.
///
/// # Errors
/// What is wrong with it.
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
