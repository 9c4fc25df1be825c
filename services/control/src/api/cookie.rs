//! The cookie of a web session. Scripts cannot read it, and other sites' pages do not make the browser send it.

use axum::http::{HeaderMap, HeaderValue, header};

use crate::limits::SIGN_IN_MS;
use crate::secret::Secret;

/// Over TLS the browser itself makes sure that no other host has set it.
fn name(is_secure: bool) -> &'static str {
    if is_secure { "__Host-millrace" } else { "millrace" }
}

/// The secret in a request's cookie.
pub(crate) fn read(headers: &HeaderMap, is_secure: bool) -> Option<Secret> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs =
        cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(of, _)| *of == name(is_secure)).map(|(_, secret)| secret.into())
}

/// What sets the cookie; without a secret, what takes it away.
pub(crate) fn set(secret: Option<&Secret>, is_secure: bool) -> Option<HeaderValue> {
    let (secret, age_s) = secret.map_or(("", 0), |secret| (secret.expose(), SIGN_IN_MS / 1_000));
    let secure = if is_secure { "; Secure" } else { "" };
    let cookie =
        format!("{}={secret}; Path=/; Max-Age={age_s}; HttpOnly; SameSite=Lax{secure}", name(is_secure));
    let mut value = HeaderValue::from_str(&cookie).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_that_was_set_is_read_again_among_others() {
        for is_secure in [true, false] {
            let set = set(Some(&"abc".into()), is_secure).unwrap();
            let text = set.to_str().unwrap();
            assert!(text.contains("HttpOnly") && text.contains("SameSite=Lax"), "{text}");
            assert_eq!(text.contains("Secure"), is_secure);
            assert!(!format!("{set:?}").contains("abc"));
            let pair = text.split(';').next().unwrap();
            let mut headers = HeaderMap::new();
            headers.insert(header::COOKIE, format!("a=b; {pair}; c=d").parse().unwrap());
            assert_eq!(read(&headers, is_secure), Some("abc".into()));
            assert_eq!(read(&headers, !is_secure), None);
        }
    }
}
