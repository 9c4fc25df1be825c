//! `millrace sessions` and `millrace retained` with `--api`: they show a service's data instead of
//! a data folder's.

use http::Method;

use super::args::ApiArgs;
use super::print::TableColumns;
use super::site::{Site, client_part, part};
use crate::failure::Failure;

const SESSIONS: TableColumns = &[
    ("CLIENT", "client_id"),
    ("STATE", "state"),
    ("EXPIRY", "expiry_s"),
    ("SUBSCRIPTIONS", "subscriptions"),
    ("WAITING", "waiting_messages"),
    ("OLDEST", "oldest_waiting_at_ms"),
];
const RETAINED: TableColumns =
    &[("TOPIC", "topic"), ("QOS", "qos"), ("BYTES", "payload_bytes"), ("EXPIRES", "expires_at_ms")];

#[derive(Clone, Copy)]
pub(crate) enum StoredCommand<'a> {
    Sessions(usize),
    Session(&'a str),
    EndSession(&'a str),
    Retained(Option<&'a str>, usize),
    Message(&'a str),
    Clear(&'a str),
}

pub(crate) fn stored(broker: &str, json: bool, what: StoredCommand<'_>) -> Result<(), Failure> {
    let site = Site::open(&ApiArgs { profile: None, url: None, organisation: None, json })?;
    let broker = site.broker(Some(broker))?;
    let session = |client: &str| format!("{broker}/sessions/{}", client_part(client));
    let message = |topic: &str| format!("{broker}/retained/message?topic={}", part(topic));
    match what {
        StoredCommand::Sessions(limit) => {
            let list = site.list(&format!("{broker}/sessions"), "", limit)?;
            site.printer.list(SESSIONS, &list, "There are no sessions.")
        }
        StoredCommand::Session(client) => site.printer.details(&site.get(&session(client))?.body),
        StoredCommand::EndSession(client) => ended(&site, &session(client)),
        StoredCommand::Retained(filter, limit) => {
            let query = filter.map(|filter| format!("filter={}", part(filter))).unwrap_or_default();
            let list = site.list(&format!("{broker}/retained"), &query, limit)?;
            site.printer.list(RETAINED, &list, "There are no retained messages.")
        }
        StoredCommand::Message(topic) => site.printer.details(&site.get(&message(topic))?.body),
        StoredCommand::Clear(topic) => ended(&site, &message(topic)),
    }
}

fn ended(site: &Site, path: &str) -> Result<(), Failure> {
    site.act(Method::DELETE, path)?;
    site.printer.did("Removed.");
    Ok(())
}
