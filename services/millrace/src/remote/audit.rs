//! Audit logs: of the organisation, and for operators of the region.

use clap::Args;

use super::args::{AuditArgs, AuditFilter};
use super::nouns::query_of;
use super::operators::OperatorArgs;
use super::print::{Fields, Printer};
use super::site::{List, Site, pages};
use crate::failure::Failure;

const AUDIT: Fields = &[("AT", "at_ms"), ("ACTION", "action"), ("TARGET", "target"), ("BY", "actor")];

/// `millrace region-audit`.
///
/// For operators of a service: changes that concern no single tenant, such as those of plans.
#[derive(Debug, Args)]
pub(crate) struct RegionAuditArgs {
    #[command(flatten)]
    filter: AuditFilter,
    #[command(flatten)]
    operator: OperatorArgs,
    /// Write one JSON object a line; times are milliseconds since 1970.
    #[arg(long)]
    json: bool,
}

pub(crate) fn audit(args: &AuditArgs) -> Result<(), Failure> {
    let site = Site::open(&args.api)?;
    let query = query(&args.filter);
    let list = site.list("/audit", &query, args.filter.limit.limit)?;
    show(site.printer, list, query.is_empty())
}

pub(crate) fn region_audit(args: &RegionAuditArgs) -> Result<(), Failure> {
    let client = args.operator.client()?;
    let query = query(&args.filter);
    let list = pages(&client, "/audit", &query, args.filter.limit.limit)?;
    show(Printer { json: args.json }, list, query.is_empty())
}

fn query(AuditFilter { actor, action, from, to, .. }: &AuditFilter) -> String {
    let time = |time: &Option<u64>| time.map(|time| time.to_string());
    query_of(&[("actor", actor.clone()), ("action", action.clone()), ("from", time(from)), ("to", time(to))])
}

fn show(printer: Printer, mut list: List, is_all: bool) -> Result<(), Failure> {
    if !printer.json {
        for row in &mut list.rows {
            row["actor"] = row["actor"]["name"].take();
        }
    }
    let nothing = match is_all {
        true => "Nothing has been done.",
        false => "No entry fits: shorten --actor or --action, or widen --from and --to.",
    };
    printer.list(AUDIT, &list, nothing)
}
