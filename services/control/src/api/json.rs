//! Parses JSON bodies; an error names its field. An unknown field is an error too, because it may be a misspelt one
//! whose default would silently apply.

use axum::http::StatusCode;
use serde::de::DeserializeOwned;
use serde_ignored::Path;
use serde_json::error::Category;

use super::problem::{Answer, Problem};

pub(crate) fn parse<T: DeserializeOwned>(body: &[u8]) -> Answer<T> {
    let mut text = serde_json::Deserializer::from_slice(body);
    let mut track = serde_path_to_error::Track::new();
    let mut unknown = None;
    let tracked = serde_path_to_error::Deserializer::new(&mut text, &mut track);
    let read =
        serde_ignored::deserialize(tracked, |path| unknown = unknown.take().or_else(|| Some(field(&path))));
    let value = match read.and_then(|value| text.end().map(|()| value)) {
        Ok(value) => value,
        Err(wrong) if wrong.classify() == Category::Data => {
            let path = track.path().to_string();
            return Err(wrong_field(if path == "." { "" } else { &path }, &wrong));
        }
        Err(wrong) => {
            return Err(Problem::new(StatusCode::BAD_REQUEST, format!("this is no JSON: {wrong}")));
        }
    };
    match unknown {
        Some(field) => Err(Problem::field(field, "is not known here: is it misspelt?")),
        None => Ok(value),
    }
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
fn wrong_field(path: &str, wrong: &serde_json::Error) -> Problem {
    let said = wrong.to_string();
    let said = said.rsplit_once(" at line ").map_or(&*said, |(said, _)| said);
    if let Some(name) = said.strip_prefix("missing field ") {
        return Problem::field(below(path, name.trim_matches('`')), "is missing");
    }
    if let Some((name, _)) = said.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`')) {
        let parent = path.strip_suffix(name).unwrap_or(path).trim_end_matches('.');
        return Problem::field(below(parent, name), "is not known here: is it misspelt?");
    }
    let wanted = |kind: &str, rest: &str| {
        let (found, expected) = rest.split_once(", expected ").unwrap_or((rest, ""));
        let found = found.strip_prefix("map").map_or(found.to_owned(), |rest| format!("an object{rest}"));
        format!("is {}{found}, and must be {}", kind, named(expected))
    };
    let detail = if let Some(rest) = said.strip_prefix("invalid type: ") {
        wanted("", rest)
    } else if let Some(rest) = said.strip_prefix("invalid value: ") {
        wanted("", rest)
    } else if let Some(rest) = said.strip_prefix("unknown variant ") {
        wanted("", rest)
    } else {
        said.to_owned()
    };
    Problem::field(path, detail)
}

fn named(expected: &str) -> String {
    match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, not negative and not too large".into(),
        "i8" | "i16" | "i32" | "i64" => "a whole number that is not too large".into(),
        "a sequence" => "a list".into(),
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
    use serde_json::{Value, json};

    use super::*;

    #[derive(Debug, Deserialize)]
    struct Outer {
        #[serde(default)]
        rules: Vec<Inner>,
    }

    #[derive(Debug, Deserialize)]
    struct Inner {
        #[serde(default)]
        #[allow(dead_code, reason = "only read")]
        qos: u8,
        #[allow(dead_code, reason = "only read")]
        effect: Effect,
    }

    #[derive(Debug, Deserialize)]
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
            (rule("qos", json!("1")), "rules[1].qos", "string \"1\", and must be a whole number"),
            (rule("qos", json!(-1)), "rules[1].qos", "integer `-1`, and must be a whole number"),
            (rule("effect", json!("maybe")), "rules[1].effect", "`maybe`, and must be `allow`"),
            (json!({ "rules": [{}] }), "rules[0].effect", "is missing"),
            (json!({ "rules": {} }), "rules", "an object, and must be a list"),
            (json!({ "rule": [] }), "rule", "not known"),
        ] {
            let (found, detail) = wrong(&body);
            assert!(found == field && detail.contains(words), "{body}: {found}: {detail}");
        }
        assert!(parse::<Outer>(b"{} {}").is_err());
        assert!(parse::<Outer>(b"{}").unwrap().rules.is_empty());
    }
}
