//! Audit logs: of the organisation, and for operators of the region.

use clap::Args;
use serde_json::Value;

use super::args::{AuditArgs, AuditFilterArgs};
use super::nouns::query_of;
use super::operators::{OfRegion, RegionApi};
use super::print::{Printer, TableColumns};
use super::site::{ListAnswer, Site, pages};
use crate::failure::Failure;

const AUDIT: TableColumns = &[("AT", "at_ms"), ("ACTION", "action"), ("TARGET", "target"), ("BY", "actor")];

/// `millrace region-audit`.
///
/// For operators of a service: changes that concern no single tenant, such as those of plans.
#[derive(Debug, Args)]
pub(crate) struct RegionAuditArgs {
    #[command(flatten)]
    filter: AuditFilterArgs,
    #[command(flatten)]
    region: OfRegion,
}

pub(crate) fn audit(args: &AuditArgs) -> Result<(), Failure> {
    let site = Site::open(&args.api)?;
    let query = query(&args.filter);
    let list = site.list("/audit", &query, args.filter.limit.limit)?;
    show(site.printer, list, query.is_empty())
}

pub(crate) fn region_audit(args: &RegionAuditArgs) -> Result<(), Failure> {
    let region = args.region.open()?;
    of_operators(&region, "/audit", &args.filter)
}

/// A log of the operator API.
pub(super) fn of_operators(region: &RegionApi, path: &str, filter: &AuditFilterArgs) -> Result<(), Failure> {
    let query = query(filter);
    let list = pages(&region.client, path, &query, filter.limit.limit)?;
    show(region.printer, list, query.is_empty())
}

fn query(AuditFilterArgs { actor, action, from, to, .. }: &AuditFilterArgs) -> String {
    let time = |time: &Option<u64>| time.map(|time| time.to_string());
    query_of(&[("actor", actor.clone()), ("action", action.clone()), ("from", time(from)), ("to", time(to))])
}

fn show(printer: Printer, mut list: ListAnswer, is_all: bool) -> Result<(), Failure> {
    if !printer.json {
        list.rows.iter_mut().for_each(name_both);
    }
    let nothing = match is_all {
        true => "Nothing has been done.",
        false => "No entry matches: shorten --actor or --action, or widen --from and --to.",
    };
    printer.list(AUDIT, &list, nothing)
}

/// Names the actor, and the object if the entry has its name beside its id.
fn name_both(entry: &mut Value) {
    entry["actor"] = entry["actor"]["name"].take();
    if let (Some(name), Some(id)) = (entry["details"]["name"].as_str(), entry["target"].as_str())
        && name != id
    {
        entry["target"] = format!("{name} ({id})").into();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_with_a_name_is_not_shown_by_its_id_alone() {
        for (target, details, shown) in [
            ("1-2", json!({ "name": "Terraform", "scopes": [] }), "Terraform (1-2)"),
            ("pump-7", json!({}), "pump-7"),
            ("pumps", json!({ "name": "pumps" }), "pumps"),
        ] {
            let mut entry = json!({ "actor": { "name": "ann" }, "target": target, "details": details });
            name_both(&mut entry);
            assert_eq!((&entry["target"], &entry["actor"]), (&json!(shown), &json!("ann")));
        }
    }
}
