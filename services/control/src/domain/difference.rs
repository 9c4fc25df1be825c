//! Computes the difference between two versions of a record, for the audit log. It contains no secrets and has a bounded size.

use millrace_access::model::Invalid;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{Error, Result};
use crate::limits::{AUDIT_FIELD_BYTES_MAX, AUDIT_TEXT_BYTES_MAX};

const SECRETS: [&str; 6] = ["secret", "previous_secret", "scram", "signing_key", "password", "phc"];

/// Fields that differ; `None`: the record does not exist before or after.
pub(super) fn difference<T: Serialize>(before: Option<&T>, after: Option<&T>) -> Result<Value> {
    let (before, after) = (fields(before)?, fields(after)?);
    let changed = |one: &Map<String, Value>, other: &Map<String, Value>| -> Map<String, Value> {
        let differs = |(name, value): &(&String, &Value)| other.get(*name).unwrap_or(&Value::Null) != *value;
        one.iter().filter(differs).map(|(name, value)| (name.clone(), bounded(shown(name, value)))).collect()
    };
    Ok(json!({ "before": changed(&before, &after), "after": changed(&after, &before) }))
}

/// The details of an audit entry, with the fields `before` and `after` of a [`difference`].
pub(super) fn with(mut details: Value, difference: Value) -> Value {
    if let (Some(details), Value::Object(difference)) = (details.as_object_mut(), difference) {
        details.extend(difference);
    }
    details
}

/// A URL without its path and query, because many webhooks carry a secret there.
pub(super) fn without_secrets(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return HIDDEN.into() };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    match &rest[host.len()..] {
        "" | "/" => url.to_owned(),
        _ => format!("{scheme}://{host}/{HIDDEN}"),
    }
}

/// The URL that a change stores. A caller who reads `stored` without its secrets and sends that back keeps it. Any other URL
/// without its secrets is refused, because the server would call it.
pub(super) fn with_secrets(
    field: &str,
    given: &str,
    stored: Option<&str>,
) -> std::result::Result<String, Vec<Invalid>> {
    match stored {
        Some(stored) if given == stored || given == without_secrets(stored) => Ok(stored.to_owned()),
        _ if given.strip_suffix(HIDDEN).is_some_and(|rest| rest.ends_with('/')) => {
            let what =
                format!("ends in {HIDDEN}, which stands for a path that is not shown: send the whole URL");
            Err(vec![Invalid { field: field.into(), what }])
        }
        _ => Ok(given.to_owned()),
    }
}

const HIDDEN: &str = "(hidden)";

fn fields<T: Serialize>(record: Option<&T>) -> Result<Map<String, Value>> {
    let value = record.map(serde_json::to_value).transpose();
    match value.map_err(|_| Error::Internal("a record cannot be written"))? {
        Some(Value::Object(fields)) => Ok(fields),
        _ => Ok(Map::new()),
    }
}

fn shown(name: &str, value: &Value) -> Value {
    match value {
        Value::Null => Value::Null,
        // `scram` is a boolean in an access record and a secret verifier elsewhere; a boolean is no secret.
        Value::Bool(_) => value.clone(),
        _ if SECRETS.contains(&name) => json!(HIDDEN),
        Value::String(url) if name == "url" => json!(without_secrets(url)),
        Value::String(text) if text.len() > AUDIT_TEXT_BYTES_MAX => {
            let digest = &blake3::hash(text.as_bytes()).to_hex()[..16];
            json!(format!("({} bytes, BLAKE3 {digest})", text.len()))
        }
        Value::Array(items) => items.iter().map(|item| shown("", item)).collect(),
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(name, value)| (name.clone(), shown(name, value))).collect())
        }
        plain => plain.clone(),
    }
}

/// Cuts a list that is too long, and replaces another value that is too long by its size.
fn bounded(value: Value) -> Value {
    let Value::Array(items) = value else {
        let bytes = value.to_string().len();
        return if bytes > AUDIT_FIELD_BYTES_MAX { json!(format!("({bytes} bytes)")) } else { value };
    };
    let (mut kept, mut bytes) = (Vec::new(), 0);
    let all = items.len();
    for item in items {
        bytes += item.to_string().len();
        if bytes > AUDIT_FIELD_BYTES_MAX {
            kept.push(json!({ "left_out": all - kept.len() }));
            break;
        }
        kept.push(item);
    }
    Value::Array(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_shows_what_differs_without_secrets_and_bounded() {
        let text = "x".repeat(AUDIT_TEXT_BYTES_MAX + 1);
        let one = json!({ "a": 1, "same": true, "secret": { "kind": "x" }, "url": "https://h.test/hooks/token", "pem": text });
        let other =
            json!({ "a": 2, "same": true, "secret": { "kind": "y" }, "url": "https://h.test", "pem": null });
        let seen = difference(Some(&one), Some(&other)).unwrap();
        assert_eq!(seen["before"]["a"], 1);
        assert_eq!(
            seen["after"],
            json!({ "a": 2, "secret": "(hidden)", "url": "https://h.test", "pem": null })
        );
        assert_eq!(seen["before"]["url"], "https://h.test/(hidden)");
        assert!(seen["before"]["pem"].as_str().unwrap().starts_with("(1025 bytes, BLAKE3 "), "{seen}");
        let long = json!({ "rules": vec!["r".repeat(1_000); 100] });
        let seen = difference(None, Some(&long)).unwrap();
        let rules = seen["after"]["rules"].as_array().unwrap();
        assert_eq!(rules.last().unwrap()["left_out"], 100 - (rules.len() - 1));
        assert!(seen.to_string().len() < 2 * AUDIT_FIELD_BYTES_MAX);
    }

    #[test]
    fn a_switch_shows_and_a_verifier_of_the_same_name_does_not() {
        let switched = difference(Some(&json!({ "scram": false })), Some(&json!({ "scram": true }))).unwrap();
        assert_eq!(switched, json!({ "before": { "scram": false }, "after": { "scram": true } }));
        let verifier = difference(None, Some(&json!({ "scram": { "salt": "x" } }))).unwrap();
        assert_eq!(verifier["after"]["scram"], HIDDEN);
    }

    #[test]
    fn a_url_keeps_its_host_alone() {
        for (url, expected) in [
            ("https://h.test:8443/a?token=b", "https://h.test:8443/(hidden)"),
            ("https://h.test?token=b", "https://h.test/(hidden)"),
            ("https://h.test/#b", "https://h.test/(hidden)"),
            ("https://h.test/", "https://h.test/"),
            ("h.test/secret", "(hidden)"),
        ] {
            assert_eq!(without_secrets(url), expected);
        }
    }

    #[test]
    fn a_url_that_was_read_without_its_secrets_stays_and_never_replaces_another() {
        let whole = "https://h.test/a?token=b";
        for (given, stored, expected) in [
            ("https://h.test/(hidden)", Some(whole), Some(whole)),
            ("https://h.test/c", Some(whole), Some("https://h.test/c")),
            ("https://h.test/(hidden)", Some("https://h.test/"), None),
            ("https://other.test/(hidden)", Some(whole), None),
            ("https://h.test/(hidden)", None, None),
            ("https://h.test/c", None, Some("https://h.test/c")),
        ] {
            assert_eq!(with_secrets("url", given, stored).ok().as_deref(), expected, "{given} {stored:?}");
        }
    }
}
