//! Examples of answers, made from the schemas: a field is shown by the example or default of its declaration, or else by
//! the sample of its name.

use serde_json::{Map, Value, json};
use utoipa::ToSchema;
use utoipa::openapi::path::Operation;
use utoipa::openapi::{Components, Content, RefOr};

use super::problems;
use super::samples::sample;
use crate::Metrics;
use crate::domain::{Member, UsageWindow};
use crate::live::{TailMessage, TracedPacket};

/// Deeper values are left out.
const DEPTH_MAX: usize = 12;

pub(super) struct Answers {
    schemas: Map<String, Value>,
}

impl Answers {
    pub(super) fn new(components: Option<&Components>) -> Self {
        let schemas = components.and_then(|all| serde_json::to_value(&all.schemas).ok());
        Self { schemas: schemas.and_then(|all| all.as_object().cloned()).unwrap_or_default() }
    }

    pub(super) fn add(&self, operation: &mut Operation) {
        let id = operation.operation_id.clone().unwrap_or_default();
        for (status, response) in &mut operation.responses.responses {
            let RefOr::T(response) = response else { continue };
            problems::show_default(status, response);
            for (kind, content) in &mut response.content {
                let RefOr::T(content) = content else { continue };
                if status.starts_with('2') && content.example.is_none() {
                    content.example = Some(self.example(&id, kind, content));
                }
            }
        }
    }

    fn example(&self, operation: &str, kind: &str, content: &Content) -> Value {
        match (kind, operation) {
            ("application/json", "get_openapi" | "get_operator_openapi") => json!({ "openapi": "3.1.0" }),
            ("application/json", _) => {
                let schema = serde_json::to_value(&content.schema).unwrap_or_default();
                self.value("", &schema, 0)
            }
            ("text/csv", _) => {
                let window = serde_json::from_value(self.of::<UsageWindow>()).unwrap_or_default();
                Value::from(format!("{}\n{}\n", UsageWindow::COLUMNS, UsageWindow::row(&window)))
            }
            ("application/x-ndjson", _) => {
                let member = json!({ "kind": "member", "data": self.of::<Member>() });
                Value::from(format!("{member}\n{}\n", json!({ "kind": "end", "data": {} })))
            }
            (_, "tail") => event("event: message\n", &self.of::<TailMessage>()),
            (_, "trace_client") => event("event: trace\n", &self.of::<TracedPacket>()),
            (_, "stream_metrics") => event("", &self.of::<Metrics>()),
            _ => Value::Null,
        }
    }

    fn of<T: ToSchema>(&self) -> Value {
        let mut parts = Vec::new();
        T::schemas(&mut parts);
        let mut schemas = self.schemas.clone();
        for (name, part) in parts {
            schemas.insert(name, serde_json::to_value(part).unwrap_or_default());
        }
        let schema = serde_json::to_value(T::schema()).unwrap_or_default();
        Self { schemas }.value("", &schema, 0)
    }

    /// `name`: that of the field, or of the field that has the list.
    fn value(&self, name: &str, schema: &Value, depth: usize) -> Value {
        if depth > DEPTH_MAX {
            return Value::Null;
        }
        if let Some(named) = schema["$ref"].as_str().and_then(|named| named.rsplit('/').next()) {
            return self.schemas.get(named).map_or(Value::Null, |of| self.value(name, of, depth + 1));
        }
        if let Some(fixed) = [&schema["example"], &schema["enum"][0]].into_iter().find(|of| !of.is_null()) {
            return fixed.clone();
        }
        if let Some(parts) = schema["allOf"].as_array() {
            let parts = parts.iter().map(|part| self.value(name, part, depth + 1));
            let fields = parts.filter_map(|part| part.as_object().cloned()).flatten();
            return Value::Object(fields.collect());
        }
        if let Some(kinds) = schema["oneOf"].as_array() {
            let kind = kinds.iter().find(|kind| kind["type"] != "null");
            return kind.map_or(Value::Null, |kind| self.value(name, kind, depth + 1));
        }
        self.plain(name, schema, depth)
    }

    fn plain(&self, name: &str, schema: &Value, depth: usize) -> Value {
        let (kind, may_be_null) = match &schema["type"] {
            Value::Array(kinds) => (kinds.iter().find(|kind| *kind != "null"), true),
            kind => (Some(kind), false),
        };
        let kind = kind.and_then(Value::as_str).unwrap_or_default();
        if kind == "object" {
            return self.object(schema, depth);
        }
        if kind == "array" {
            return self.list(name, schema, depth);
        }
        if let Some(sample) = sample(name, schema, kind) {
            return sample;
        }
        match kind {
            _ if may_be_null => Value::Null,
            "string" => spelt(name),
            "boolean" => Value::Bool(false),
            _ => Value::from(schema["minimum"].as_u64().unwrap_or(0).max(1)),
        }
    }

    /// One item, or none if it is a text without a sample.
    fn list(&self, name: &str, schema: &Value, depth: usize) -> Value {
        let item = self.value(name.trim_end_matches('s'), &schema["items"], depth + 1);
        let is_shown = schema["items"]["type"] != "string" || item != spelt(name.trim_end_matches('s'));
        Value::Array(Vec::from_iter(is_shown.then_some(item)))
    }

    fn object(&self, schema: &Value, depth: usize) -> Value {
        let fields = schema["properties"].as_object().into_iter().flatten();
        let fields = fields.filter(|(_, of)| of["writeOnly"] != true);
        let mut fields: Map<_, _> =
            fields.map(|(name, of)| (name.clone(), self.value(name, of, depth + 1))).collect();
        let more = &schema["additionalProperties"];
        if more.is_object() {
            let names = self.value("name", &schema["propertyNames"], depth + 1);
            let name = names.as_str().unwrap_or("name").to_owned();
            let value = self.value(&name, more, depth + 1);
            fields.insert(name, value);
        }
        Value::Object(fields)
    }
}

/// A text without a sample.
fn spelt(name: &str) -> Value {
    Value::from(name.replace('_', " "))
}

fn event(name: &str, data: &Value) -> Value {
    Value::from(format!("{name}data: {data}\n\n"))
}
