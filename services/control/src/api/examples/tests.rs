use serde_json::Value;

use crate::api::{openapi, operator_openapi};

/// Finds what a value has against its schema, by JSON Schema 2020-12 as far as the description uses it.
struct Check<'a> {
    description: &'a Value,
    findings: Vec<String>,
}

impl Check<'_> {
    fn value(&mut self, at: &str, schema: &Value, value: &Value) {
        if let Some(named) = schema["$ref"].as_str() {
            let named = self.description.pointer(named.trim_start_matches('#')).expect(named).clone();
            return self.value(at, &named, value);
        }
        for part in schema["allOf"].as_array().into_iter().flatten() {
            self.value(at, part, value);
        }
        if let Some(kinds) = schema["oneOf"].as_array() {
            let fits = |kind: &&Value| {
                let mut check = Check { description: self.description, findings: Vec::new() };
                check.value(at, kind, value);
                check.findings.is_empty()
            };
            let fitting = kinds.iter().filter(fits).count();
            self.hold(fitting == 1, at, &format!("fits {fitting} of oneOf"));
        }
        let kinds = match &schema["type"] {
            Value::Array(kinds) => kinds.clone(),
            Value::Null => return,
            kind => vec![kind.clone()],
        };
        let fits = kinds.iter().any(|kind| is_of(kind.as_str().unwrap(), value));
        self.hold(fits, at, &format!("{value} is no {kinds:?}"));
        if let Some(known) = schema["enum"].as_array() {
            self.hold(known.contains(value), at, &format!("{value} is not in {known:?}"));
        }
        self.bounds(at, schema, value);
        self.parts(at, schema, value);
    }

    fn bounds(&mut self, at: &str, schema: &Value, value: &Value) {
        let (size, least, most) = match value {
            Value::String(text) => (text.chars().count() as f64, "minLength", "maxLength"),
            Value::Array(items) => (items.len() as f64, "minItems", "maxItems"),
            Value::Number(number) => (number.as_f64().unwrap(), "minimum", "maximum"),
            _ => return,
        };
        let bound = |name: &str| schema[name].as_f64();
        self.hold(bound(least).is_none_or(|least| size >= least), at, "is too small");
        self.hold(bound(most).is_none_or(|most| size <= most), at, "is too large");
        if let (Some("uuid"), Value::String(text)) = (schema["format"].as_str(), value) {
            self.hold(text.parse::<uuid::Uuid>().is_ok(), at, "is no UUID");
        }
    }

    fn parts(&mut self, at: &str, schema: &Value, value: &Value) {
        for item in value.as_array().into_iter().flatten() {
            self.value(&format!("{at}[]"), &schema["items"], item);
        }
        let Some(fields) = value.as_object() else { return };
        for needed in schema["required"].as_array().into_iter().flatten() {
            let needed = needed.as_str().unwrap();
            self.hold(fields.contains_key(needed), at, &format!("lacks {needed}"));
        }
        for (name, field) in fields {
            let at = format!("{at}.{name}");
            match (&schema["properties"][name], &schema["additionalProperties"]) {
                (Value::Null, Value::Bool(false)) => self.hold(false, &at, "is unknown"),
                (Value::Null, more) => self.value(&at, more, field),
                (known, _) => self.value(&at, known, field),
            }
        }
    }

    /// No text spells the name of its field, and each endpoint has the URL of its transport and port.
    fn says_something(&mut self, at: &str, value: &Value) {
        for item in value.as_array().into_iter().flatten() {
            self.says_something(&format!("{at}[]"), item);
        }
        for (name, field) in value.as_object().into_iter().flatten() {
            let at = format!("{at}.{name}");
            let is_spelt = field.as_str() == Some(&name.replace('_', " "));
            self.hold(!is_spelt, &at, "has no example, and spells its name");
            if let (Some(url), Some(port)) = (field["url"].as_str(), field["port"].as_u64()) {
                let fits = url.starts_with(&format!("{name}://")) && url.contains(&format!(":{port}"));
                self.hold(fits, &at, &format!("{url} is another endpoint"));
            }
            self.says_something(&at, field);
        }
    }

    fn body(&mut self, at: &str, body: &Value) {
        for (kind, content) in body["content"].as_object().into_iter().flatten() {
            let at = format!("{at} ({kind})");
            self.hold(!content["example"].is_null(), &at, "has no example");
            self.value(&at, &content["schema"], &content["example"]);
            self.says_something(&at, &content["example"]);
        }
    }

    /// The example of a problem has the status of its answer.
    fn status(&mut self, at: &str, status: &str, answer: &Value) {
        let named = answer["$ref"].as_str().map(|named| named.trim_start_matches('#'));
        let answer = named.map_or(answer, |named| self.description.pointer(named).expect(named));
        if let Some(shown) = answer["content"]["application/problem+json"]["example"].as_object() {
            self.hold(
                shown["status"].as_u64() == status.parse::<u64>().ok(),
                at,
                "has the example of another status",
            );
        }
    }

    fn hold(&mut self, is_right: bool, at: &str, what: &str) {
        if !is_right {
            self.findings.push(format!("{at} {what}"));
        }
    }
}

fn is_of(kind: &str, value: &Value) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        _ => value.is_object(),
    }
}

#[test]
fn each_request_and_each_answer_has_an_example_that_its_schema_allows() {
    for description in [openapi(), operator_openapi()] {
        let description = serde_json::to_value(description).unwrap();
        let mut check = Check { description: &description, findings: Vec::new() };
        let items = description["paths"].as_object().unwrap().values();
        let operations = items.flat_map(|item| item.as_object().unwrap().values());
        for operation in operations.filter(|operation| operation["operationId"].is_string()) {
            let id = operation["operationId"].as_str().unwrap();
            check.body(id, &operation["requestBody"]);
            for (status, answer) in operation["responses"].as_object().unwrap() {
                check.body(&format!("{id} {status}"), answer);
                check.status(&format!("{id} {status}"), status, answer);
            }
        }
        for (name, answer) in description["components"]["responses"].as_object().unwrap() {
            check.body(name, answer);
            let kind = &answer["content"]["application/problem+json"]["example"]["type"];
            check.hold(
                kind == &format!("urn:millrace:problem:{name}"),
                name,
                "has the example of another problem",
            );
        }
        assert!(check.findings.is_empty(), "{:#?}", check.findings);
    }
}

#[test]
fn each_parameter_has_a_description() {
    for description in [openapi(), operator_openapi()] {
        let description = serde_json::to_value(description).unwrap();
        let items = description["paths"].as_object().unwrap().values();
        for operation in items.flat_map(|item| item.as_object().unwrap().values()) {
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                let is_described = parameter["description"].as_str().is_some_and(|text| !text.is_empty());
                assert!(is_described, "{} of {}", parameter["name"], operation["operationId"]);
            }
        }
    }
}

#[test]
fn the_example_of_a_ban_names_one_of_client_user_and_address() {
    let description = serde_json::to_value(openapi()).unwrap();
    let path = "/organisations/{organisation}/brokers/{broker}/bans/{name}";
    let content = &description["paths"][path]["get"]["responses"]["200"]["content"];
    let shown = &content["application/json"]["example"];
    let named = ["client_id", "user", "address"].iter().filter(|field| !shown[**field].is_null());
    assert_eq!(named.count(), 1, "{shown}");
}
