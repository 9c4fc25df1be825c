//! Samples of fields by their names, for answers whose declarations have no example.

use serde_json::Value;

/// In the order in which they are tried: an exact name, or the end of one with `*` before it.
const TEXTS: &[(&str, &str)] = &[
    ("address", "192.0.2.7"),
    ("*agent", "Mozilla/5.0"),
    ("ca_pem", "-----BEGIN CERTIFICATE-----\nMIIB...\n-----END CERTIFICATE-----\n"),
    ("pem", "-----BEGIN CERTIFICATE-----\nMIIB...\n-----END CERTIFICATE-----\n"),
    ("client_id", "pump-7"),
    ("detail", "the broker has no such client"),
    ("display_name", "Sensors of plant 7"),
    ("email", "ann@example.org"),
    ("filter", "plant/#"),
    ("group", "pumps"),
    ("id", "0197a3c0"),
    ("level", "plant"),
    ("location", "https://id.example.org/authorize"),
    ("name", "plant-7"),
    ("payload", "21.5"),
    ("subject", "248289761001"),
    ("target", "pump-7"),
    ("topic", "plant/7/pump"),
    ("url", "https://example.org/events"),
    ("user", "pump-7"),
    ("version", "0.1.0"),
];

pub(super) const UUID: &str = "0197a3c0-5d1e-7c3a-9b52-0c6f2d4e8a71";
const SECRET: &str = "kq8Zc0t7mX3p2yL5uV9wA1bD4eF6gH8iJ0kL2mN4oP6";
const SECRETS: &[&str] =
    &["challenge", "csrf_token", "secret", "signature", "signing_key", "token", "user_handle"];
/// 2026-09-21 14:13:20 UTC, in milliseconds.
const AT_MS: u64 = 1_790_000_000_000;
const INSTANTS: &[&str] = &["at_ms", "from_ms", "since_ms", "_at"];
const ENDS: &[&str] = &["expires_at_ms", "resets_at_ms", "to_ms", "until_ms"];
const HOUR_MS: u64 = 3_600_000;

pub(super) fn sample(name: &str, schema: &Value, kind: &str) -> Option<Value> {
    match (kind, schema["format"].as_str()) {
        ("string", Some("uuid")) => Some(UUID.into()),
        ("string", Some("password")) => Some(SECRET.into()),
        ("string", _) if SECRETS.contains(&name) => Some(SECRET.into()),
        ("string", _) => {
            let fits = |of: &str| of.strip_prefix('*').map_or(of == name, |end| name.ends_with(end));
            TEXTS.iter().find(|(of, _)| fits(of)).map(|(_, text)| (*text).into())
        }
        ("integer", _) if ENDS.iter().any(|end| name.ends_with(end)) => Some((AT_MS + HOUR_MS).into()),
        ("integer", _) if INSTANTS.iter().any(|end| name.ends_with(end)) => Some(AT_MS.into()),
        ("integer", _) if name == "status" => Some(200.into()),
        _ => None,
    }
}
