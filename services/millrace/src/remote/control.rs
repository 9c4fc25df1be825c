//! Limits, spend caps, metrics and incidents of a broker.

use clap::{Args, Subcommand, ValueEnum};
use http::Method;
use serde_json::{Map, Value, json};

use super::args::{BrokerArgs, ListLimit, Sure};
use super::print::TableColumns;
use super::site::{ListAnswer, Site, part};
use crate::failure::Failure;
use crate::limits::whole_number;
use crate::terminal::confirm::{confirm, may_ask};

const HISTORY: TableColumns = &[
    ("FROM", "from_ms"),
    ("CONNECTIONS", "connections"),
    ("IN", "messages_in"),
    ("OUT", "messages_out"),
    ("DROPPED", "dropped"),
    ("STORED", "stored_messages"),
    ("PUBACK P99 MS", "puback_p99"),
    ("DELIVERY P99 MS", "delivery_p99"),
];
const INCIDENTS: TableColumns = &[
    ("LAST", "last_at_ms"),
    ("COUNT", "count"),
    ("KIND", "kind"),
    ("CLIENT", "client_id"),
    ("USER", "user"),
    ("WHAT", "what"),
    ("REASON", "reason"),
];

#[derive(Debug, Args)]
pub(crate) struct LimitsArgs {
    #[command(subcommand)]
    what: LimitsCommand,
}

#[derive(Debug, Subcommand)]
enum LimitsCommand {
    /// Show the limits of a broker; those without a value are the server's own.
    Show {
        #[command(flatten)]
        of: BrokerArgs,
    },
    /// Set limits of a broker; the others stay.
    Set {
        /// Limits such as broker.connections=500 or client.publishes_per_s=10; without a value the
        /// server's own limit applies.
        #[arg(value_name = "LIMIT=NUMBER", required = true)]
        limits: Vec<String>,
        #[command(flatten)]
        of: BrokerArgs,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum CapActionArg {
    /// Clients and publishes are refused.
    Stop,
    /// Clients continue, and the audit log records that the cap was reached.
    Continue,
}

#[derive(Debug, Args)]
pub(crate) struct CapsArgs {
    #[command(subcommand)]
    what: CapsCommand,
}

#[derive(Clone, Debug, Args)]
struct CapArgs {
    /// The cap of all brokers together.
    #[arg(long, conflicts_with = "broker")]
    all: bool,

    #[command(flatten)]
    of: BrokerArgs,
}

#[derive(Debug, Subcommand)]
enum CapsCommand {
    /// Show a spend cap.
    Show {
        #[command(flatten)]
        of: CapArgs,
    },
    /// Set a spend cap of a month.
    Set {
        /// Millionths of the region's currency.
        #[arg(value_parser = whole_number::<u64>(1, u64::MAX))]
        monthly_micros: u64,
        /// Action when it is reached.
        #[arg(long, value_name = "ACTION", default_value = "stop")]
        action: CapActionArg,
        #[command(flatten)]
        of: CapArgs,
    },
    /// Delete a spend cap.
    Delete {
        #[command(flatten)]
        sure: Sure,
        #[command(flatten)]
        of: CapArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct MetricsArgs {
    /// Show the history in steps of this length; minutes are stored for a day, hours for 30 days.
    #[arg(long, value_name = "STEP")]
    step: Option<HistoryStepArg>,

    /// Show the history from this time on, in milliseconds since 1970.
    #[arg(long, value_name = "MS")]
    from: Option<u64>,

    /// Show the history before this time, in milliseconds since 1970.
    #[arg(long, value_name = "MS")]
    to: Option<u64>,

    #[command(flatten)]
    of: BrokerArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum HistoryStepArg {
    Minute,
    TenMinutes,
    Hour,
    Day,
}

#[derive(Debug, Args)]
pub(crate) struct IncidentsArgs {
    #[command(subcommand)]
    what: IncidentsCommand,
}

#[derive(Debug, Subcommand)]
enum IncidentsCommand {
    /// List what a broker refused or dropped in the last week.
    List {
        /// Only those of this client id.
        #[arg(long, value_name = "ID")]
        client: Option<String>,
        /// Only those of this kind, such as connect_refused.
        #[arg(long, value_name = "KIND")]
        kind: Option<String>,
        #[command(flatten)]
        limit: ListLimit,
        #[command(flatten)]
        of: BrokerArgs,
    },
}

pub(crate) fn limits(args: LimitsArgs) -> Result<(), Failure> {
    let (site, limits) = match args.what {
        LimitsCommand::Show { of } => {
            let (site, broker) = Site::at_broker(&of)?;
            let found = site.get(&broker)?.body;
            (site, found)
        }
        LimitsCommand::Set { limits, of } => {
            let changed = changes(&limits)?;
            let (site, broker) = Site::at_broker(&of)?;
            let changed = site.edit(Method::PATCH, &broker, |_| Ok(json!({ "limits": changed })))?;
            (site, changed)
        }
    };
    let mut shown = flat(&limits["limits"]);
    if !site.printer.json {
        let unset =
            shown.as_object_mut().into_iter().flat_map(Map::values_mut).filter(|limit| limit.is_null());
        unset.for_each(|limit| *limit = json!("the server's own"));
    }
    site.printer.details(&shown)
}

pub(super) fn changes(said: &[String]) -> Result<Value, Failure> {
    let wrong =
        |text: &str| Failure::Settings(format!("\"{text}\" is not a limit: write broker.connections=500"));
    let mut all: Map<String, Value> = Map::new();
    for text in said {
        let (name, value) = text.split_once('=').ok_or_else(|| wrong(text))?;
        let (of, name) = name.split_once('.').ok_or_else(|| wrong(text))?;
        let value = match value {
            "" => Value::Null,
            number => json!(number.parse::<u64>().map_err(|_| wrong(text))?),
        };
        all.entry(of).or_insert_with(|| json!({}))[name] = value;
    }
    Ok(all.into())
}

pub(super) fn flat(limits: &Value) -> Value {
    let groups = limits.as_object().into_iter().flatten();
    let named = groups.flat_map(|(of, limits)| {
        let limits = limits.as_object().into_iter().flatten();
        limits.map(move |(name, value)| (format!("{of}.{name}"), value.clone()))
    });
    Value::Object(named.collect())
}

impl CapArgs {
    fn open(&self) -> Result<(Site, String), Failure> {
        if self.all {
            return Ok((Site::open(&self.of.api)?, "/spend-cap".into()));
        }
        let (site, broker) = Site::at_broker(&self.of)?;
        Ok((site, format!("{broker}/spend-cap")))
    }
}

pub(crate) fn caps(args: CapsArgs) -> Result<(), Failure> {
    match args.what {
        CapsCommand::Show { of } => {
            let (site, path) = of.open()?;
            site.printer.details(&site.get(&path)?.body)
        }
        CapsCommand::Set { monthly_micros, action, of } => {
            let action = match action {
                CapActionArg::Stop => "stop",
                CapActionArg::Continue => "continue",
            };
            let (site, path) = of.open()?;
            site.put(&path, &json!({ "monthly_micros": monthly_micros, "action": action }))?;
            site.printer.did("Set.");
            Ok(())
        }
        CapsCommand::Delete { sure, of } => {
            may_ask(sure.yes)?;
            let (site, path) = of.open()?;
            confirm("Delete the spend cap?", sure.yes)?;
            site.act(Method::DELETE, &path)?;
            site.printer.did("Deleted.");
            Ok(())
        }
    }
}

pub(crate) fn metrics(args: &MetricsArgs) -> Result<(), Failure> {
    let (site, broker) = Site::at_broker(&args.of)?;
    let MetricsArgs { step, from, to, of } = args;
    if step.is_none() && from.is_none() && to.is_none() {
        return site.printer.details(&site.get(&format!("{broker}/metrics"))?.body);
    }
    let step = step.map(|step| match step {
        HistoryStepArg::Minute => "minute",
        HistoryStepArg::TenMinutes => "ten_minutes",
        HistoryStepArg::Hour => "hour",
        HistoryStepArg::Day => "day",
    });
    let time = |time: &Option<u64>| time.map(|time| time.to_string());
    let asked = [("step", step.map(str::to_owned)), ("from", time(from)), ("to", time(to))];
    let asked = asked.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", value?)));
    let query = asked.collect::<Vec<_>>().join("&");
    let mut history = site.get(&format!("{broker}/metrics/history?{query}"))?.body;
    let points = history["points"].as_array_mut().map(std::mem::take).unwrap_or_default();
    let rows = if of.api.json { points } else { points.iter().map(row_of).collect() };
    let list = ListAnswer::whole(rows);
    site.printer.list(HISTORY, &list, "The time has no step that is over.")
}

/// A step without values was not measured.
fn row_of(point: &Value) -> Value {
    let values = &point["values"];
    let drops = values["drops"].as_object();
    let dropped: Option<u64> = drops.map(|all| all.values().filter_map(Value::as_u64).sum());
    let (puback, delivery) = (&values["puback"]["p99_ms"], &values["delivery"]["p99_ms"]);
    json!({
        "from_ms": point["from_ms"], "connections": values["connections"], "messages_in": values["messages_in"],
        "messages_out": values["messages_out"], "dropped": dropped, "stored_messages": values["stored_messages"],
        "puback_p99": puback, "delivery_p99": delivery,
    })
}

pub(crate) fn incidents(args: &IncidentsArgs) -> Result<(), Failure> {
    let IncidentsCommand::List { client, kind, limit, of } = &args.what;
    let (site, broker) = Site::at_broker(of)?;
    let asked = [("client_id", client), ("kind", kind)];
    let asked = asked.iter().filter_map(|(name, value)| Some(format!("{name}={}", part(value.as_ref()?))));
    let query = asked.collect::<Vec<_>>().join("&");
    let list = site.list(&format!("{broker}/incidents"), &query, limit.limit)?;
    site.printer.list(INCIDENTS, &list, "Nothing was refused or dropped in the last week.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_named_as_they_are_shown() {
        let said = ["broker.connections=500", "client.subscriptions=", "client.packet_bytes=4096"];
        let changed = changes(&said.map(str::to_owned)).ok().unwrap();
        let expected = json!({ "broker": { "connections": 500 }, "client": { "subscriptions": null, "packet_bytes": 4096 } });
        assert_eq!(changed, expected);
        assert_eq!(flat(&expected)["client.packet_bytes"], 4096);
        for wrong in ["connections=1", "broker.connections", "broker.connections=many"] {
            assert!(changes(&[wrong.to_owned()]).is_err(), "{wrong}");
        }
    }
}
