//! The collector's URL, and the URL of each signal below it.

use std::fmt;
use std::str::FromStr;

use http::Uri;

/// The base URL of an OTLP/HTTP receiver, without the path of a signal: `http://127.0.0.1:4318`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorEndpoint(String);

impl CollectorEndpoint {
    pub(crate) fn of(&self, signal: &str) -> Uri {
        // Parsing cannot fail, because the base was parsed before.
        format!("{}/v1/{signal}", self.0).parse().unwrap_or_default()
    }
}

impl FromStr for CollectorEndpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let sentence =
            || "a URL such as http://127.0.0.1:4318 or https://collector.example/otlp is allowed".to_owned();
        let base = text.trim_end_matches('/');
        let uri: Uri = base.parse().map_err(|_| sentence())?;
        let has_scheme = matches!(uri.scheme_str(), Some("http" | "https"));
        let has_user = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
        if !has_scheme || uri.host().is_none_or(str::is_empty) || uri.query().is_some() || has_user {
            return Err(sentence());
        }
        Ok(Self(base.to_owned()))
    }
}

impl fmt::Display for CollectorEndpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_signal_is_appended_to_the_base() {
        for (text, url) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("https://collector.example/otlp/", "https://collector.example/otlp/v1/traces"),
            ("http://[::1]:4318", "http://[::1]:4318/v1/traces"),
        ] {
            assert_eq!(text.parse::<CollectorEndpoint>().unwrap().of("traces").to_string(), url);
        }
    }

    #[test]
    fn other_text_than_a_base_url_is_refused() {
        for text in [
            "127.0.0.1:4318",
            "grpc://a:4317",
            "http://",
            "http://a?b=c",
            "http://user:secret@a",
            "http://a b",
        ] {
            assert!(text.parse::<CollectorEndpoint>().is_err(), "{text}");
        }
    }
}
