//! Changes of a broker's limits: a request names the limits that change, the others stay.

use millrace_access::model::{Access, Limits};
use millrace_layers::catalog::Details;
use serde_json::{Value, json};

use super::{Error, Result};
use crate::limits::NUMBER_MAX;

/// The settings that an organisation can change, flattened to one entry per limit: the audit log shows each that
/// differs.
pub(super) fn limited(details: &Details, access: &Access) -> Result<Value> {
    let broken = |_| Error::Internal("limits cannot be written");
    let mut all = serde_json::to_value(&access.limits).map_err(broken)?;
    let limits = ["broker", "client"].map(|of| (of, all[of].take()));
    let named = limits.into_iter().flat_map(|(of, limits)| {
        let limits = limits.as_object().cloned().unwrap_or_default();
        limits.into_iter().map(move |(name, value)| (format!("limits.{of}.{name}"), value))
    });
    let own = [("display_name", json!(details.display_name)), ("suspended", json!(details.suspended))];
    Ok(Value::Object(own.map(|(name, value)| (name.to_owned(), value)).into_iter().chain(named).collect()))
}

pub(super) fn merged(limits: &Limits, change: &serde_json::Map<String, Value>) -> Result<Limits> {
    let broken = |_| Error::Internal("limits cannot be written");
    let mut all = serde_json::to_value(limits).map_err(broken)?;
    merge(&mut all, "limits", change)?;
    let limits: Limits = serde_json::from_value(all)
        .map_err(|_| Error::field("limits", "has a value that is not a whole number of 0 or more"))?;
    limits.validate()?;
    Ok(limits)
}

/// `all` has every known field, so a field that it lacks is unknown.
fn merge(all: &mut Value, path: &str, change: &serde_json::Map<String, Value>) -> Result<()> {
    for (name, new) in change {
        let path = format!("{path}.{name}");
        let Some(old) = all.get_mut(name) else {
            return Err(Error::field(&path, "is not known here: is it misspelt?"));
        };
        match (&mut *old, new) {
            (Value::Object(old), Value::Null) => old.values_mut().for_each(|value| *value = Value::Null),
            (Value::Object(_), Value::Object(new)) => merge(old, &path, new)?,
            (Value::Object(_), _) => return Err(Error::field(&path, "must be an object")),
            (_, Value::Null) => *old = Value::Null,
            (_, new) if new.as_u64().is_some_and(|new| new <= NUMBER_MAX) => *old = new.clone(),
            _ => {
                let what = format!(
                    "must be a whole number from 0 to {NUMBER_MAX}, or null for the server's own limit"
                );
                return Err(Error::field(&path, what));
            }
        }
    }
    Ok(())
}
