//! The range of a number in a request, as the description of the API has it: a refusal names it.

use serde_json::Value;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{IntoParams, ToSchema};

/// Finds the range of a field of a body by its path, such as `rules[1].qos_max`.
pub(in crate::api) fn of_body<T: ToSchema>(path: &str) -> Option<String> {
    let mut named = vec![(T::name().into_owned(), T::schema())];
    T::schemas(&mut named);
    let schema = serde_json::to_value(T::schema()).ok()?;
    let steps: Vec<&str> = path.split(['.', '[']).collect();
    find(&schema, &named, &steps)
}

pub(in crate::api) fn of_parameter<T: IntoParams>(name: &str) -> Option<String> {
    let found = T::into_params(|| None).into_iter().find(|one| one.name == name)?;
    find(&serde_json::to_value(found.schema?).ok()?, &[], &[])
}

fn find(schema: &Value, named: &[(String, RefOr<Schema>)], steps: &[&str]) -> Option<String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.rsplit('/').next()?;
        let (_, schema) = named.iter().find(|(other, _)| other == name)?;
        return find(&serde_json::to_value(schema).ok()?, named, steps);
    }
    let choices = ["allOf", "oneOf", "anyOf"].into_iter().filter_map(|of| schema[of].as_array()).flatten();
    let below = || match steps.split_first() {
        None => Some(format!("{} to {}", schema.get("minimum")?, schema.get("maximum")?)),
        Some((step, rest)) if step.ends_with(']') => find(schema.get("items")?, named, rest),
        Some((step, rest)) => find(schema.get("properties")?.get(step)?, named, rest),
    };
    below().or_else(|| choices.into_iter().find_map(|choice| find(choice, named, steps)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(dead_code, reason = "only described")]
    #[derive(ToSchema)]
    struct Outer {
        rules: Option<Vec<Inner>>,
        kind: Kind,
    }

    #[allow(dead_code, reason = "only described")]
    #[derive(ToSchema)]
    struct Inner {
        #[schema(minimum = 1, maximum = 7)]
        day: Option<u8>,
        free: u64,
    }

    #[allow(dead_code, reason = "only described")]
    #[derive(ToSchema)]
    #[serde(tag = "kind")]
    enum Kind {
        None,
        Some {
            #[schema(maximum = 9)]
            count: u32,
        },
    }

    #[test]
    fn a_range_is_found_below_lists_choices_and_references() {
        for (path, range) in [
            ("rules[1].day", Some("1 to 7")),
            ("kind.count", Some("0 to 9")),
            ("rules[1].free", None),
            ("rules[1]", None),
            ("rules", None),
            ("other.day", None),
            ("", None),
        ] {
            assert_eq!(of_body::<Outer>(path).as_deref(), range, "{path}");
        }
    }
}
