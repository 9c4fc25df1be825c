//! Collects what is wrong with a record, field by field, so that a tenant sees all mistakes at
//! once.

use std::fmt;

use crate::limits::{NAME_BYTES_MAX, PEM_BYTES_MAX, URL_BYTES_MAX, USER_BYTES_MAX};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {what}")]
pub struct Invalid {
    /// Path of the field in the JSON: `rules[2].filter`.
    pub field: String,
    pub what: String,
}

pub type Checked = Result<(), Vec<Invalid>>;

#[derive(Debug, Default)]
pub(crate) struct Findings {
    path: String,
    found: Vec<Invalid>,
}

impl Findings {
    pub(crate) fn add(&mut self, field: impl fmt::Display, what: impl Into<String>) {
        let field = field.to_string();
        let dot = if self.path.is_empty() || field.is_empty() { "" } else { "." };
        self.found.push(Invalid { field: format!("{}{dot}{field}", self.path), what: what.into() });
    }

    pub(crate) fn require(&mut self, is_right: bool, field: &str, what: &str) {
        if !is_right {
            self.add(field, what);
        }
    }

    pub(crate) fn within(&mut self, field: impl fmt::Display, check: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        let dot = if self.path.is_empty() { "" } else { "." };
        self.path += &format!("{dot}{field}");
        check(self);
        self.path.truncate(length);
    }

    pub(crate) fn each<T>(&mut self, field: &str, items: &[T], max: usize, check: impl Fn(&T, &mut Self)) {
        if items.len() > max {
            self.add(field, format!("has more than {max} entries: leave some out"));
        }
        for (n, item) in items.iter().enumerate().take(max) {
            self.within(format_args!("{field}[{n}]"), |findings| check(item, findings));
        }
    }

    pub(crate) fn user(&mut self, field: &str, user: &str) {
        self.text(field, user, USER_BYTES_MAX);
    }

    pub(crate) fn name(&mut self, field: &str, name: &str) {
        self.text(field, name, NAME_BYTES_MAX);
    }

    pub(crate) fn bytes(&mut self, field: &str, text: &str, bytes_max: usize) {
        if text.len() > bytes_max {
            self.add(field, format!("is longer than {bytes_max} bytes: shorten it"));
        }
    }

    /// Checks length and label; the parsers of `x509` and `jwt` check the content.
    pub(crate) fn pem(&mut self, field: &str, pem: &str, label: &str) {
        if pem.len() > PEM_BYTES_MAX {
            self.add(
                field,
                format!("is longer than {PEM_BYTES_MAX} bytes: leave out what devices do not need"),
            );
        } else if !pem.contains(&format!("-----BEGIN {label}-----")) {
            self.add(field, format!("has no PEM with -----BEGIN {label}-----"));
        }
    }

    pub(crate) fn url(&mut self, field: &str, url: &str) {
        let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
        let host = rest.and_then(|rest| rest.split(['/', '?', '#']).next());
        if url.is_empty() {
            self.add(field, "is empty: name a URL that starts with https:// or http://");
        } else if url.len() > URL_BYTES_MAX {
            self.add(field, format!("is longer than {URL_BYTES_MAX} bytes: shorten it"));
        } else if url.contains(|c: char| c.is_whitespace() || c.is_control()) {
            self.add(field, "has white space or control characters in it");
        } else {
            match host {
                None => self.add(field, "does not start with https:// or http://"),
                Some("") => self.add(field, "has no host"),
                Some(host) if host.contains('@') => self.add(field, "has a user name or password in it"),
                Some(host) if !has_possible_port(host) => {
                    self.add(field, "has a port that is not from 1 to 65535");
                }
                Some(host) => match url.parse::<http::Uri>() {
                    Ok(uri) if uri.host().is_none_or(str::is_empty) => self.add(field, "has no host"),
                    Ok(_) => {}
                    Err(_) if !host.is_ascii() => {
                        self.add(field, "has a host that is not ASCII: write it as xn--…");
                    }
                    Err(error) => self.add(field, format!("is no URL that can be called: {error}")),
                },
            }
        }
    }

    pub(crate) fn done(self) -> Checked {
        if self.found.is_empty() { Ok(()) } else { Err(self.found) }
    }

    pub(crate) fn visible(&mut self, field: &str, text: &str) {
        if let Some(hidden) = text.chars().find(|letter| letter.is_control() || is_invisible(*letter)) {
            self.add(field, format!("has a character that does not show (U+{:04X})", u32::from(hidden)));
        }
    }

    fn text(&mut self, field: &str, text: &str, bytes_max: usize) {
        if text.is_empty() {
            self.add(field, "is empty");
        } else if text.len() > bytes_max {
            self.add(field, format!("is longer than {bytes_max} bytes: shorten it"));
        } else if text.trim() != text {
            self.add(field, "starts or ends with a space");
        } else if text.contains(char::is_control) {
            self.add(field, "has a control character in it");
        } else if let Some(hidden) = text.chars().find(|letter| is_invisible(*letter)) {
            self.add(
                field,
                format!("has a character in it that does not show (U+{:04X})", u32::from(hidden)),
            );
        } else if matches!(text, "." | "..") {
            self.add(field, "is a name that no URL can carry");
        }
    }
}

/// True for characters without width, for letters and symbols that are blank, and for those that
/// turn the direction of text, because a name with one of them looks like another name.
#[must_use]
pub fn is_invisible(letter: char) -> bool {
    matches!(letter,
        '\u{AD}' | '\u{34F}' | '\u{61C}' | '\u{115F}' | '\u{1160}' | '\u{180E}' | '\u{200B}'..='\u{200F}'
        | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{2800}' | '\u{3164}' | '\u{FFA0}' | '\u{FEFF}' | '\u{FFF9}'..='\u{FFFB}' | '\u{E0000}'..='\u{E0FFF}')
}

fn has_possible_port(host: &str) -> bool {
    match host.rsplit_once(':') {
        Some((_, port)) if !port.ends_with(']') => port.parse::<u16>().is_ok_and(|port| port > 0),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_that_no_client_can_call_is_refused() {
        for (url, allowed) in [
            ("https://xn--mller-kva.example/%C3%BC", true),
            ("https://[2001:db8::1]:8443/a?b=c", true),
            ("https://müller.example/", false),
            ("http://127。0。0。1/", false),
            ("http://１２７.0.0.1/", false),
            ("https://a.example/ü", true),
            ("https://a.example\\b/", false),
            ("https://[::1/", false),
            ("https://:443/", false),
        ] {
            let mut findings = Findings::default();
            findings.url("url", url);
            assert_eq!(findings.done().is_ok(), allowed, "{url}");
        }
    }

    #[test]
    fn a_url_has_a_port_that_a_service_can_have() {
        let is_refused = |url: &str| {
            let mut findings = Findings::default();
            findings.url("url", url);
            findings.done().is_err()
        };
        for url in [
            "https://a.test/",
            "https://a.test:8443/b:c",
            "https://[2001:db8::1]/",
            "https://[2001:db8::1]:1",
        ] {
            assert!(!is_refused(url), "{url}");
        }
        for url in
            ["https://a.test:0/", "https://a.test:65536", "https://a.test:b/", "https://[2001:db8::1]:99999/"]
        {
            assert!(is_refused(url), "{url}");
        }
    }
}
