//! Regions, plans and prices of a service.

use clap::Args;
use serde_json::Value;

use super::args::ApiArgs;
use super::print::TableColumns;
use super::site::{ListAnswer, Site};
use crate::failure::Failure;

const REGIONS: TableColumns = &[("NAME", "name"), ("DOMAIN", "domain")];
const PLANS: TableColumns = &[("NAME", "name"), ("YOURS", "yours")];
const PRICES: TableColumns = &[("UNIT", "unit"), ("PRICE OF A MILLION", "price")];

#[derive(Debug, Args)]
pub(crate) struct RegionArgs {
    #[command(flatten)]
    api: ApiArgs,
}

pub(crate) fn regions(args: &RegionArgs) -> Result<(), Failure> {
    let (site, answer) = ask(args, "/regions")?;
    site.printer.list(REGIONS, &ListAnswer::of_answer(&answer), "There is no region.")
}

pub(crate) fn plans(args: &RegionArgs) -> Result<(), Failure> {
    let (site, answer) = ask(args, "/plans")?;
    let mut list = ListAnswer::of_answer(&answer);
    if !args.api.json {
        for plan in &mut list.rows {
            plan["yours"] = (plan["organisations"].as_array().is_some_and(|all| !all.is_empty())).into();
        }
    }
    site.printer.list(PLANS, &list, "There is no plan: the limits of the server apply.")
}

pub(crate) fn prices(args: &RegionArgs) -> Result<(), Failure> {
    let (site, answer) = ask(args, "/prices")?;
    let mut list = ListAnswer::of_answer(&answer);
    if !args.api.json {
        let currency = answer["currency"].as_str().unwrap_or_default();
        let micros_of = |price: &Value| price["micros_per_million"].as_u64().unwrap_or_default();
        if list.rows.iter().all(|price| micros_of(price) == 0) {
            list.rows.clear();
        }
        for price in &mut list.rows {
            let micros = micros_of(price);
            let (whole, part) = (micros / 1_000_000, micros % 1_000_000);
            price["price"] = format!("{whole}.{part:06} {currency}").trim_end().into();
        }
    }
    site.printer.list(PRICES, &list, "Usage costs nothing here.")
}

fn ask(args: &RegionArgs, path: &str) -> Result<(Site, Value), Failure> {
    let site = Site::open(&args.api)?;
    let answer = site.get_of_region(path)?;
    Ok((site, answer))
}
