//! Cookies of the server. Scripts cannot read them, and browsers do not send them with a changing request of another
//! site's page.

use axum::http::{HeaderMap, HeaderValue, header};

use crate::limits::{OIDC_S, SIGN_IN_MS};
use crate::secret::Secret;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Cookie {
    SignIn,
    /// A sign-in at the provider that is under way.
    Oidc,
    /// An account of the provider that the person has yet to confirm.
    Link,
}

impl Cookie {
    /// With TLS, the prefix `__Host-` makes the browser refuse such a cookie from any other host.
    fn name(self, is_secure: bool) -> &'static str {
        match (self, is_secure) {
            (Self::SignIn, true) => "__Host-millrace",
            (Self::SignIn, false) => "millrace",
            (Self::Oidc, true) => "__Host-millrace-oidc",
            (Self::Oidc, false) => "millrace-oidc",
            (Self::Link, true) => "__Host-millrace-link",
            (Self::Link, false) => "millrace-link",
        }
    }

    fn age_s(self) -> u64 {
        match self {
            Self::SignIn => SIGN_IN_MS / 1_000,
            Self::Oidc | Self::Link => OIDC_S,
        }
    }
}

pub(crate) fn read(headers: &HeaderMap, cookie: Cookie, is_secure: bool) -> Option<Secret> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs =
        cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(of, _)| *of == cookie.name(is_secure)).map(|(_, secret)| secret.into())
}

/// The header value that sets the cookie; without a secret it deletes the cookie.
pub(crate) fn set(cookie: Cookie, secret: Option<&Secret>, is_secure: bool) -> Option<HeaderValue> {
    let (secret, age_s) = secret.map_or(("", 0), |secret| (secret.expose(), cookie.age_s()));
    let secure = if is_secure { "; Secure" } else { "" };
    let name = cookie.name(is_secure);
    let text = format!("{name}={secret}; Path=/; Max-Age={age_s}; HttpOnly; SameSite=Lax{secure}");
    let mut value = HeaderValue::from_str(&text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_that_was_set_is_read_again_among_others() {
        for is_secure in [true, false] {
            let set = set(Cookie::SignIn, Some(&"abc".into()), is_secure).unwrap();
            let text = set.to_str().unwrap();
            assert!(text.contains("HttpOnly") && text.contains("SameSite=Lax"), "{text}");
            assert_eq!(text.contains("Secure"), is_secure);
            assert!(!format!("{set:?}").contains("abc"));
            let pair = text.split(';').next().unwrap();
            let mut headers = HeaderMap::new();
            headers.insert(header::COOKIE, format!("a=b; {pair}; c=d").parse().unwrap());
            assert_eq!(read(&headers, Cookie::SignIn, is_secure), Some("abc".into()));
            assert_eq!(read(&headers, Cookie::SignIn, !is_secure), None);
            assert_eq!(read(&headers, Cookie::Oidc, is_secure), None);
        }
    }
}
