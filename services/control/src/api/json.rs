//! Parses JSON bodies; an error names its field. An unknown field is an error too, because it may be a misspelt one
//! whose default would silently apply.

mod by_name;
pub(super) mod ranges;
mod repeated;

use axum::http::StatusCode;
use serde::de::DeserializeOwned;
use serde_ignored::Path;
use serde_json::Value;
use serde_json::error::Category;
use utoipa::ToSchema;

use self::by_name::{Brief, ByName};
use super::problem::{ApiResult, Problem};
use crate::limits::BODY_VALUES_MAX;

/// Unknown fields of a request that one answer names.
const UNKNOWN_MAX: usize = 8;

const TWICE: &str = "is there more than once";

pub(crate) fn parse<T: DeserializeOwned + ToSchema>(body: &[u8]) -> ApiResult<T> {
    if values(body) > BODY_VALUES_MAX {
        let detail = format!("the body has more than {BODY_VALUES_MAX} values: send less at once");
        return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail));
    }
    read(body).map_err(|refused| match *refused {
        RefusedBody { problem, unknown: Some(name) } => with_others::<T>(problem, name, body),
        RefusedBody { problem, unknown: None } => problem,
    })
}

/// An upper bound of the number of values, without a copy of any.
fn values(body: &[u8]) -> usize {
    let (mut count, mut is_text, mut is_escaped) = (1, false, false);
    for byte in body {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_text,
            b'"' => is_text = !is_text,
            b',' | b'[' | b'{' if !is_text => count += 1,
            _ => {}
        }
    }
    count
}

/// Adds the problems that remain without the unknown fields: a misspelt name is often the reason why another field is missing.
fn with_others<T: DeserializeOwned + ToSchema>(mut problem: Problem, first: String, body: &[u8]) -> Problem {
    let Ok(Value::Object(mut rest)) = serde_json::from_slice(body) else { return problem };
    let mut unknown = Some(first);
    for _ in 0..UNKNOWN_MAX {
        if unknown.take().is_none_or(|name| rest.remove(&name).is_none()) {
            break;
        }
        let text = serde_json::to_vec(&rest).unwrap_or_default();
        if let Err(refused) = read::<T>(&text) {
            problem = problem.and(refused.problem);
            unknown = refused.unknown;
        }
    }
    problem
}

struct RefusedBody {
    problem: Problem,
    unknown: Option<String>,
}

impl From<Problem> for RefusedBody {
    fn from(problem: Problem) -> Self {
        Self { problem, unknown: None }
    }
}

impl RefusedBody {
    fn unknown(path: String) -> Self {
        Self { problem: Problem::field(&*path, "is not known here: is it misspelt?"), unknown: Some(path) }
    }
}

fn read<T: DeserializeOwned + ToSchema>(body: &[u8]) -> Result<T, Box<RefusedBody>> {
    let mut text = serde_json::Deserializer::from_slice(body);
    let mut track = serde_path_to_error::Track::new();
    let mut unknown = None;
    let tracked = serde_path_to_error::Deserializer::new(&mut text, &mut track);
    let mut note = |path: Path<'_>| unknown = unknown.take().or_else(|| Some(field(&path)));
    let read = T::deserialize(ByName(serde_ignored::Deserializer::new(tracked, &mut note)));
    let read = read.map_err(|Brief(error)| error);
    let value = match read.and_then(|value| text.end().map(|()| value)) {
        Ok(value) => value,
        Err(wrong) if wrong.classify() == Category::Data => {
            let path = track.path().to_string();
            let path = if path == "." { "" } else { &path };
            return Err(Box::new(wrong_field(path, &wrong, ranges::of_body::<T>)));
        }
        Err(wrong) => return Err(Box::new(no_json(&wrong).into())),
    };
    if let Some(field) = unknown {
        return Err(Box::new(RefusedBody::unknown(field)));
    }
    match repeated::find(body) {
        Some(field) => Err(Box::new(Problem::field(field, TWICE).into())),
        None => Ok(value),
    }
}

fn no_json(wrong: &serde_json::Error) -> Problem {
    let detail = match wrong.classify() {
        Category::Eof => "the body is no JSON: it ends too early".into(),
        _ => format!("the body is no JSON: see line {}, column {}", wrong.line(), wrong.column()),
    };
    Problem::new(StatusCode::BAD_REQUEST, detail)
}

fn field(path: &Path<'_>) -> String {
    match path {
        Path::Root => String::new(),
        Path::Seq { parent, index } => format!("{}[{index}]", field(parent)),
        Path::Map { parent, key } => below(&field(parent), key),
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => {
            field(parent)
        }
    }
}

fn below(parent: &str, key: &str) -> String {
    let dot = if parent.is_empty() { "" } else { "." };
    format!("{parent}{dot}{key}")
}

/// Rewrites serde's error without the names of Rust types.
fn wrong_field(path: &str, wrong: &serde_json::Error, range: fn(&str) -> Option<String>) -> RefusedBody {
    let said = wrong.to_string();
    let said = said.rsplit_once(" at line ").map_or(&*said, |(said, _)| said);
    if let Some(name) = said.strip_prefix("missing field ") {
        return Problem::field(below(path, name.trim_matches('`')), "is missing").into();
    }
    if let Some(name) = said.strip_prefix("duplicate field ") {
        return Problem::field(below(path, name.trim_matches('`')), TWICE).into();
    }
    if let Some((name, _)) = said.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`')) {
        let parent = path.strip_suffix(name).unwrap_or(path).trim_end_matches('.');
        return RefusedBody::unknown(below(parent, name));
    }
    let kinds = ["invalid type: ", "invalid value: ", "unknown variant "];
    let rest = kinds.into_iter().find_map(|kind| said.strip_prefix(kind));
    let detail = rest.map_or_else(|| said.to_owned(), |rest| found_and_wanted(rest, || range(path)));
    if path.is_empty() {
        return Problem::new(StatusCode::UNPROCESSABLE_ENTITY, format!("the body {detail}")).into();
    }
    Problem::field(path, detail).into()
}

/// Splits serde's "FOUND, expected WANTED".
pub(crate) fn found_and_wanted(said: &str, range: impl FnOnce() -> Option<String>) -> String {
    let (found, expected) = said.split_once(", expected ").unwrap_or((said, ""));
    let value = |prefix: &str| found.strip_prefix(prefix).map(|rest| rest.trim_matches('`'));
    let found = if let Some(number) = value("integer ").or_else(|| value("floating point ")) {
        format!("the number {number}")
    } else if let Some(is_so) = value("boolean ") {
        is_so.to_owned()
    } else if let Some(text) = found.strip_prefix("string ") {
        format!("the text {text}")
    } else {
        match found {
            "map" => "an object".into(),
            "sequence" => "a list".into(),
            other => other.into(),
        }
    };
    format!("is {found}, and must be {}", named(expected, range))
}

fn named(expected: &str, range: impl FnOnce() -> Option<String>) -> String {
    let most = match expected {
        "u8" => Some(u8::MAX.into()),
        "u16" => Some(u16::MAX.into()),
        "u32" => Some(u32::MAX.into()),
        "u64" | "usize" => Some(u64::MAX),
        _ => None,
    };
    if let Some(most) = most {
        return format!("a whole number from {}", range().unwrap_or_else(|| format!("0 to {most}")));
    }
    match expected {
        "a sequence" => "a list".into(),
        "a string" | "a borrowed string" => "a text".into(),
        "a boolean" => "true or false".into(),
        _ if expected.starts_with("struct ")
            || expected.starts_with("a map")
            || expected.starts_with("internally tagged") =>
        {
            "an object".into()
        }
        _ => expected.into(),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Deserialize, ToSchema)]
    struct Outer {
        #[serde(default)]
        rules: Vec<Inner>,
        #[allow(dead_code, reason = "only read")]
        key: Option<Key>,
    }

    #[derive(Debug, Deserialize, ToSchema)]
    #[serde(tag = "kind", rename_all = "snake_case")]
    enum Key {
        Pem {
            #[allow(dead_code, reason = "only read")]
            pem: String,
        },
    }

    #[derive(Debug, Deserialize, ToSchema)]
    struct Inner {
        #[serde(default)]
        #[schema(maximum = 2)]
        #[allow(dead_code, reason = "only read")]
        qos: u8,
        #[serde(default)]
        #[allow(dead_code, reason = "only read")]
        port: u16,
        #[allow(dead_code, reason = "only read")]
        effect: Effect,
    }

    #[derive(Debug, Deserialize, ToSchema)]
    #[serde(rename_all = "snake_case")]
    enum Effect {
        Allow,
    }

    fn wrong(body: &Value) -> (String, String) {
        let problem = serde_json::to_value(parse::<Outer>(body.to_string().as_bytes()).unwrap_err()).unwrap();
        let text = |of: &str| problem["fields"][0][of].as_str().unwrap().to_owned();
        (text("field"), text("detail"))
    }

    #[test]
    fn what_is_wrong_is_said_with_its_field_and_without_names_of_this_program() {
        let rule = |more: &str, value: Value| {
            let mut rule = json!({ "effect": "allow" });
            rule[more] = value;
            json!({ "rules": [{ "effect": "allow" }, rule] })
        };
        for (body, field, words) in [
            (rule("qso", json!(1)), "rules[1].qso", "not known"),
            (
                rule("qos", json!("1")),
                "rules[1].qos",
                "the text \"1\", and must be a whole number from 0 to 2",
            ),
            (rule("qos", json!(-1)), "rules[1].qos", "the number -1, and must be a whole number from 0 to 2"),
            (
                rule("qos", json!(300)),
                "rules[1].qos",
                "the number 300, and must be a whole number from 0 to 2",
            ),
            (rule("port", json!(70_000)), "rules[1].port", "must be a whole number from 0 to 65535"),
            (rule("effect", json!("maybe")), "rules[1].effect", "`maybe`, and must be `allow`"),
            (json!({ "rules": [{}] }), "rules[0].effect", "is missing"),
            (json!({ "rules": {} }), "rules", "an object, and must be a list"),
            (json!({ "rules": [[0, "allow"]] }), "rules[0]", "a list, and must be an object"),
            (json!({ "key": ["pem", "x"] }), "key", "a list, and must be an object"),
            (json!({ "rule": [] }), "rule", "not known"),
        ] {
            let (found, detail) = wrong(&body);
            assert!(found == field && detail.contains(words), "{body}: {found}: {detail}");
        }
        assert!(parse::<Outer>(b"{} {}").is_err());
        assert!(parse::<Outer>(b"{}").unwrap().rules.is_empty());
    }
    #[derive(Debug, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only read")]
    struct Strict {
        display_name: String,
    }

    #[test]
    fn a_misspelt_field_and_the_missing_one_are_both_named() {
        for (body, fields) in [
            (json!({ "name": "x", "other": 1 }), vec!["name", "other", "display_name"]),
            (json!({ "name": "x", "display_name": "y" }), vec!["name"]),
            (json!({}), vec!["display_name"]),
        ] {
            let problem = parse::<Strict>(body.to_string().as_bytes()).unwrap_err();
            let problem = serde_json::to_value(problem).unwrap();
            let named =
                problem["fields"].as_array().unwrap().iter().map(|one| one["field"].as_str().unwrap());
            assert_eq!(named.collect::<Vec<_>>(), fields, "{body}");
        }
    }

    #[test]
    fn a_body_of_many_small_values_is_refused_before_it_takes_memory() {
        let many = format!(r#"{{"display_name":"x","more":[{}0]}}"#, "0,".repeat(BODY_VALUES_MAX));
        let problem = serde_json::to_value(parse::<Strict>(many.as_bytes()).unwrap_err()).unwrap();
        assert_eq!(problem["detail"], "the body has more than 10000 values: send less at once");
        let text = format!(r#"{{"display_name":"\"{}"}}"#, ",[{".repeat(BODY_VALUES_MAX));
        assert!(parse::<Strict>(text.as_bytes()).is_ok());
    }

    #[test]
    fn a_long_text_that_is_wrong_comes_back_short() {
        let long = "\u{7f}".repeat(100_000);
        for body in [
            json!({ "rules": [{ "effect": "allow", "qos": long }] }),
            json!({ "rules": [{ "effect": long }] }),
            json!({ "key": { "kind": long } }),
            json!({ "key": long }),
            json!({ long.as_str(): 1 }),
            json!(long),
        ] {
            let problem = parse::<Outer>(body.to_string().as_bytes()).unwrap_err();
            let answer = serde_json::to_string(&problem).unwrap();
            assert!(answer.len() < 4_096 && answer.contains("..."), "{answer:.4096}");
        }
        let (_, detail) = wrong(&json!({ "rules": [{ "effect": "allow", "qos": long }] }));
        assert!(detail.ends_with("...\", and must be a whole number from 0 to 2"), "{detail}");
    }

    #[test]
    fn a_field_that_comes_twice_is_named() {
        let problem = parse::<Strict>(br#"{"display_name":"a","display_name":"b"}"#).unwrap_err();
        let problem = serde_json::to_value(problem).unwrap();
        assert_eq!(problem["fields"][0]["field"], "display_name");
        assert_eq!(problem["fields"][0]["detail"], "is there more than once");
    }

    #[test]
    fn a_body_that_is_no_object_is_called_what_it_is() {
        for (body, status, detail) in [
            ("[1]", 422, "the body is a list, and must be an object"),
            ("{\"display_name\":", 400, "the body is no JSON: it ends too early"),
            ("7", 422, "the body is the number 7, and must be an object"),
            ("{x", 400, "the body is no JSON: see line 1, column 2"),
        ] {
            let problem = serde_json::to_value(parse::<Strict>(body.as_bytes()).unwrap_err()).unwrap();
            assert_eq!((&problem["status"], &problem["detail"]), (&status.into(), &detail.into()), "{body}");
        }
    }
}
