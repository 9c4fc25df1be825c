//! Usage of a broker, of an organisation, or for operators of a tenant.

use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

use super::args::BrokerArgs;
use super::nouns::query_of;
use super::print::{Printer, TableColumns};
use super::site::{ListAnswer, Site};
use crate::failure::Failure;
use crate::text::rfc3339;

const USED: TableColumns = &[
    ("OF", "of"),
    ("CONNECTED", "connected_session_minutes"),
    ("STORED SESSIONS", "stored_session_minutes"),
    ("IN", "messages_in"),
    ("DELIVERED", "messages_delivered"),
    ("BYTES IN", "bytes_in"),
    ("BYTES OUT", "bytes_out"),
    ("QUEUED", "stored_byte_hours"),
    ("RETAINED", "retained_byte_hours"),
    ("COST", "cost_micros"),
];

#[derive(Debug, Args)]
pub(crate) struct UsageArgs {
    /// The usage of all brokers together.
    #[arg(long, conflicts_with = "broker")]
    all: bool,

    #[command(flatten)]
    span: UsageSpan,

    #[command(flatten)]
    of: BrokerArgs,
}

#[derive(Debug, Args)]
pub(super) struct UsageSpan {
    /// From this time on, in milliseconds since 1970 [default: the month's beginning].
    #[arg(long, value_name = "MS")]
    from: Option<u64>,

    /// Before this time, in milliseconds since 1970 [default: now].
    #[arg(long, value_name = "MS")]
    to: Option<u64>,

    /// By hour or by day (UTC), with the sum at the end.
    #[arg(long, value_name = "STEP")]
    step: Option<UsageStepArg>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum UsageStepArg {
    Hour,
    Day,
    Total,
}

impl UsageSpan {
    pub(super) fn query(&self) -> String {
        let step = self.step.and_then(|step| Some(step.to_possible_value()?.get_name().to_owned()));
        let time = |time: Option<u64>| time.map(|time| time.to_string());
        query_of(&[("from", time(self.from)), ("to", time(self.to)), ("step", step)])
    }
}

pub(crate) fn usage(args: &UsageArgs) -> Result<(), Failure> {
    let (site, of) = match args.all {
        true => (Site::open(&args.of.api)?, String::new()),
        false => Site::at_broker(&args.of)?,
    };
    show(site.printer, &site.get(&format!("{of}/usage?{}", args.span.query()))?.body)
}

/// People get a table with a line for each step, or else for each broker.
pub(super) fn show(printer: Printer, answer: &Value) -> Result<(), Failure> {
    if printer.json {
        return printer.details(answer);
    }
    let rows = rows(answer);
    if rows.is_empty() {
        return printer.details(answer);
    }
    printer.list(USED, &ListAnswer::whole(rows), "")?;
    if let Some(currency) = answer["currency"].as_str() {
        printer.did(&format!("Costs are in {currency}."));
    }
    Ok(())
}

fn rows(answer: &Value) -> Vec<Value> {
    let all = |name: &str| answer[name].as_array().map(Vec::as_slice).unwrap_or_default();
    let windows = all("windows").iter().map(|window| row(&since(window), window));
    let mut rows: Vec<Value> = windows.collect();
    if rows.is_empty() {
        let brokers = all("brokers").iter();
        rows = brokers.map(|broker| row(broker["name"].as_str().unwrap_or_default(), broker)).collect();
        let (deleted, cost) = (&answer["deleted"], &answer["deleted_cost_micros"]);
        if deleted.as_object().is_some_and(is_any) {
            rows.push(row("deleted brokers", &json!({ "used": deleted, "cost_micros": cost })));
        }
    }
    if !rows.is_empty() {
        rows.push(row("total", &answer["total"]));
    }
    rows
}

fn row(of: &str, window: &Value) -> Value {
    let mut row = window["used"].clone();
    row["of"] = of.into();
    row["cost_micros"] = window["cost_micros"].clone();
    row
}

/// The beginning of an hour, or of a day.
fn since(window: &Value) -> String {
    let ms = |name: &str| window[name].as_u64().unwrap_or_default();
    let (from_ms, to_ms) = (ms("from_ms"), ms("to_ms"));
    let text = rfc3339(from_ms);
    let is_day = to_ms - from_ms > 3_600_000;
    if is_day { text[..10].into() } else { text }
}

fn is_any(used: &Map<String, Value>) -> bool {
    used.values().any(|value| value.as_f64().is_some_and(|value| value > 0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(answer: &Value) -> Vec<(String, u64)> {
        let line =
            |row: &Value| (row["of"].as_str().unwrap().to_owned(), row["cost_micros"].as_u64().unwrap());
        rows(answer).iter().map(line).collect()
    }

    #[test]
    fn each_step_or_else_each_broker_has_a_line_above_the_total() {
        let used = |messages: u64| json!({ "messages_in": messages });
        let day = json!({ "from_ms": 1_764_374_400_000_u64, "to_ms": 1_764_460_800_000_u64, "used": used(2), "cost_micros": 3 });
        let hour = json!({ "from_ms": 1_764_374_400_000_u64, "to_ms": 1_764_378_000_000_u64, "used": used(2), "cost_micros": 4 });
        let total = json!({ "used": used(2), "cost_micros": 9 });
        let broker = json!({ "name": "b", "used": used(1), "cost_micros": 5 });
        let of = |windows: Value, brokers: Value| {
            lines(&json!({
                "total": total, "windows": windows, "brokers": brokers, "deleted": used(1), "deleted_cost_micros": 6,
            }))
        };
        let said = |lines: &[(&str, u64)]| {
            lines.iter().map(|(of, cost)| ((*of).to_owned(), *cost)).collect::<Vec<_>>()
        };
        assert_eq!(of(json!([day]), json!([broker])), said(&[("2025-11-29", 3), ("total", 9)]));
        assert_eq!(of(json!([hour]), json!([])), said(&[("2025-11-29T00:00:00Z", 4), ("total", 9)]));
        assert_eq!(of(json!([]), json!([broker])), said(&[("b", 5), ("deleted brokers", 6), ("total", 9)]));
        assert_eq!(lines(&json!({ "total": total, "windows": [] })), said(&[]), "of one broker");
    }
}
