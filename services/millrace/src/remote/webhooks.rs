//! Runs `millrace webhooks`.

use http::Method;
use serde_json::{Value, json};

use super::args::{BrokerArgs, WebhooksArgs, WebhooksCommand};
use super::input;
use super::print::{TableColumns, say};
use super::site::{ListAnswer, Site, part};
use crate::failure::Failure;
use crate::terminal::confirm::{confirm, may_ask};

const WEBHOOKS: TableColumns =
    &[("NAME", "name"), ("URL", "url"), ("EVENTS", "events"), ("ENABLED", "enabled")];
const DELIVERIES: TableColumns = &[
    ("AT", "at_ms"),
    ("EVENT", "event_type"),
    ("EVENTS", "events"),
    ("ATTEMPT", "attempt"),
    ("STATUS", "status"),
    ("MS", "duration_ms"),
    ("ERROR", "error"),
];
const DEAD_LETTERS: TableColumns =
    &[("ID", "id"), ("AT", "at_ms"), ("EVENT", "event"), ("ATTEMPTS", "attempts"), ("RETRIED", "is_retried")];

pub(crate) fn webhooks(args: WebhooksArgs) -> Result<(), Failure> {
    match args.what {
        WebhooksCommand::List { limit, of } => {
            let (site, broker) = Site::at_broker(&of)?;
            let list = site.list(&format!("{broker}/webhooks"), "", limit.limit)?;
            site.printer.list(WEBHOOKS, &list, "There are no webhooks.")
        }
        WebhooksCommand::Show { name, of } => {
            let (site, path) = at(&name, &of)?;
            site.printer.details(&site.get(&path)?.body)
        }
        WebhooksCommand::Status { name, of } => {
            let (site, path) = at(&name, &of)?;
            site.printer.details(&site.get(&format!("{path}/status"))?.body)
        }
        WebhooksCommand::Deliveries { name, of } => deliveries(&name, &of),
        WebhooksCommand::Test { name, of } => {
            let (site, path) = at(&name, &of)?;
            site.act(Method::POST, &format!("{path}/test"))?;
            site.printer.did("A test event is queued: `millrace webhooks deliveries` shows its delivery.");
            Ok(())
        }
        WebhooksCommand::RotateKey { name, overlap_s, of } => {
            let (site, path) = at(&name, &of)?;
            let made = site.make(&format!("{path}/rotate-key"), json!({ "overlap_s": overlap_s }))?;
            site.printer.secret(&made)?;
            site.printer.did("The key is shown only now: give it to the receiver.");
            Ok(())
        }
        WebhooksCommand::DeadLetters { name, limit, of } => dead_letters(&name, limit.limit, &of),
        WebhooksCommand::Retry { name, of } => {
            let (site, path) = at(&name, &of)?;
            site.act(Method::POST, &format!("{path}/dead-letters/retry"))?;
            site.printer.did("The dead letters are sent again.");
            Ok(())
        }
        WebhooksCommand::Put { name, of } => {
            let (site, path) = at(&name, &of)?;
            site.put(&path, &input::json()?)?;
            say("Set.");
            Ok(())
        }
        WebhooksCommand::Delete { name, sure, of } => {
            may_ask(sure.yes)?;
            let (site, path) = at(&name, &of)?;
            confirm(&format!("Delete the webhook \"{name}\"?"), sure.yes)?;
            site.act(Method::DELETE, &path)?;
            site.printer.did("Deleted.");
            Ok(())
        }
    }
}

fn at(name: &str, of: &BrokerArgs) -> Result<(Site, String), Failure> {
    let (site, broker) = Site::at_broker(of)?;
    Ok((site, format!("{broker}/webhooks/{}", part(name))))
}

fn deliveries(name: &str, of: &BrokerArgs) -> Result<(), Failure> {
    let (site, path) = at(name, of)?;
    let mut page = site.get(&format!("{path}/deliveries"))?.body;
    let rows = page["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
    let list = ListAnswer::whole(rows);
    site.printer.list(DELIVERIES, &list, "Nothing was delivered yet: the webhook has met no event.")
}

fn dead_letters(name: &str, limit: usize, of: &BrokerArgs) -> Result<(), Failure> {
    let (site, path) = at(name, of)?;
    let mut list = site.list(&format!("{path}/dead-letters"), "", limit)?;
    if !of.api.json {
        list.rows.iter_mut().for_each(name_event);
    }
    site.printer.list(DEAD_LETTERS, &list, "There are no dead letters.")
}

/// Leaves the type of the event, because its data is long.
fn name_event(row: &mut Value) {
    row["event"] = row["event"]["type"].take();
}
