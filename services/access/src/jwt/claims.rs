//! Reads the claims of a token whose signature was checked (RFC 7519 section 4.1), and refuses a
//! token that is expired or for others.

use serde_json::{Map, Value};

use super::TokenRefusal;
use crate::limits::USER_BYTES_MAX;
use crate::model::{JwtIssuer, Rule};
use crate::rules::RuleList;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub user: Box<str>,
    pub client_id: Option<Box<str>>,
    /// Rules that precede all others.
    pub rules: Option<RuleList>,
    /// Without the leeway of the issuer.
    pub expires_at_s: u64,
}

impl Identity {
    pub fn check_client(&self, user: Option<&str>, client_id: &str) -> Result<(), TokenRefusal> {
        let is_user = user.is_none_or(|user| user.is_empty() || user == &*self.user);
        let is_client = self.client_id.as_deref().is_none_or(|id| id == client_id);
        if is_user && is_client { Ok(()) } else { Err(TokenRefusal::Client) }
    }
}

pub(super) fn check(
    issuer: &JwtIssuer,
    claims: &Map<String, Value>,
    now_s: u64,
) -> Result<Identity, TokenRefusal> {
    let leeway_s = u64::from(issuer.leeway_s);
    let expires_at_s = time(claims, "exp")?.ok_or_else(|| claim("exp"))?;
    if now_s >= expires_at_s.saturating_add(leeway_s) {
        return Err(TokenRefusal::Expired);
    }
    if time(claims, "nbf")?.is_some_and(|at| now_s.saturating_add(leeway_s) < at) {
        return Err(TokenRefusal::NotYet);
    }
    if issuer.issuer.is_some() && text(claims, "iss")? != issuer.issuer.as_deref() {
        return Err(TokenRefusal::Issuer);
    }
    if !issuer.audience.is_empty() && !is_for(claims.get("aud"), &issuer.audience) {
        return Err(TokenRefusal::Audience);
    }
    let mapping = &issuer.claims;
    let required =
        |name: &str| text(claims, name)?.filter(|text| !text.is_empty()).ok_or_else(|| claim(name));
    let rules = mapping.rules.as_deref().map_or(Ok(None), |name| rules(claims, name))?;
    let user = required(&mapping.user)?;
    if user.len() > USER_BYTES_MAX {
        return Err(TokenRefusal::LongUserName);
    }
    Ok(Identity {
        user: user.into(),
        client_id: mapping.client_id.as_deref().map(required).transpose()?.map(Into::into),
        rules,
        expires_at_s,
    })
}

fn is_for(aud: Option<&Value>, audience: &[String]) -> bool {
    let is_ours =
        |value: &Value| value.as_str().is_some_and(|value| audience.iter().any(|ours| ours == value));
    match aud {
        Some(Value::Array(all)) => all.iter().any(is_ours),
        Some(one) => is_ours(one),
        None => false,
    }
}

/// The last second of the year 9999; a later time counts as this one.
const TIME_S_MAX: u64 = 253_402_300_799;

fn time(claims: &Map<String, Value>, name: &str) -> Result<Option<u64>, TokenRefusal> {
    let Some(value) = claims.get(name) else { return Ok(None) };
    let seconds = value.as_u64().or_else(|| value.as_f64().map(|seconds| seconds as u64));
    seconds.map(|seconds| Some(seconds.min(TIME_S_MAX))).ok_or_else(|| claim(name))
}

fn text<'a>(claims: &'a Map<String, Value>, name: &str) -> Result<Option<&'a str>, TokenRefusal> {
    let Some(value) = claims.get(name) else { return Ok(None) };
    value.as_str().map(Some).ok_or_else(|| claim(name))
}

/// An invalid rule fails the token, because the other rules alone could allow too much.
fn rules(claims: &Map<String, Value>, name: &str) -> Result<Option<RuleList>, TokenRefusal> {
    let Some(value) = claims.get(name) else { return Ok(None) };
    let rules: Vec<Rule> = serde_json::from_value(value.clone()).map_err(|_| claim(name))?;
    RuleList::compile(&rules).map(Some).map_err(|_| claim(name))
}

fn claim(name: &str) -> TokenRefusal {
    TokenRefusal::Claim(name.into())
}
