//! Runs the commands: turns arguments into requests and prints the answers.

use http::Method;
use serde_json::{Value, json};

use super::args::{
    BrokersArgs, BrokersCommand, ClientsArgs, ClientsCommand, CredentialsArgs, CredentialsCommand,
    NewCredentialsArgs, OneBroker,
};
use super::connect::BrokerEndpoints;
use super::fleets;
use super::input;
use super::print::TableColumns;
use super::rules::{self, manage_first};
use super::site::{Site, client_part, part};
use super::trace;
use crate::clock::now_ms;
use crate::failure::Failure;
use crate::terminal::confirm::{confirm, may_ask};

const DAY_MS: u64 = 86_400_000;
const BROKERS: TableColumns =
    &[("NAME", "name"), ("CALLED", "display_name"), ("SUSPENDED", "suspended"), ("MADE", "created_at_ms")];
const CREDENTIALS: TableColumns = &[
    ("USER", "user"),
    ("GROUP", "group"),
    ("ENABLED", "enabled"),
    ("EXPIRES", "expires_at_ms"),
    ("MADE", "created_at_ms"),
];
const CLIENTS: TableColumns = &[
    ("CLIENT", "client_id"),
    ("USER", "user"),
    ("ADDRESS", "address"),
    ("PROTOCOL", "protocol"),
    ("METHOD", "method"),
    ("CONNECTED", "connected_at_ms"),
    ("SUBSCRIPTIONS", "subscriptions"),
];
const BANS: TableColumns = &[
    ("NAME", "name"),
    ("CLIENT", "client_id"),
    ("USER", "user"),
    ("ADDRESS", "address"),
    ("UNTIL", "until_ms"),
    ("REASON", "reason"),
];

pub(crate) fn brokers(args: BrokersArgs) -> Result<(), Failure> {
    match args.what {
        BrokersCommand::List { limit, api } => {
            let site = Site::open(&api)?;
            let list = site.list("/brokers", "", limit.limit)?;
            site.printer.list(
                BROKERS,
                &list,
                "There are no brokers. `millrace brokers create NAME` makes one.",
            )
        }
        BrokersCommand::Show(OneBroker { broker, api }) => {
            let site = Site::open(&api)?;
            let path = site.broker(Some(&broker))?;
            site.printer.details(&site.get(&path)?.body)
        }
        BrokersCommand::Create { called, api } => {
            let site = Site::open(&api)?;
            let made = site.make("/brokers", json!({ "display_name": called }))?;
            site.printer.details(&made)?;
            let name = made["name"].as_str().unwrap_or_default();
            site.printer.text(&BrokerEndpoints(&made["endpoints"]).of_new_broker(name))
        }
        BrokersCommand::Update { broker, called, api } => {
            let site = Site::open(&api)?;
            let path = site.broker(Some(&broker))?;
            let changed = site.edit(Method::PATCH, &path, |_| Ok(json!({ "display_name": called })))?;
            site.printer.details(&changed)
        }
        BrokersCommand::Suspend(of) => post(&of, "suspend"),
        BrokersCommand::Resume(of) => post(&of, "resume"),
        BrokersCommand::Manage { of: OneBroker { broker, api }, sure } => rules::manage(&broker, &sure, &api),
        BrokersCommand::Delete { broker, sure, api } => {
            may_ask(sure.yes)?;
            let site = Site::open(&api)?;
            let path = site.broker(Some(&broker))?;
            confirm(
                &format!("Delete the broker \"{broker}\" with its sessions, messages and credentials?"),
                sure.yes,
            )?;
            site.act(Method::DELETE, &path)?;
            site.printer.did("Deleted.");
            Ok(())
        }
    }
}

fn post(OneBroker { broker, api }: &OneBroker, action: &str) -> Result<(), Failure> {
    let site = Site::open(api)?;
    let path = format!("{}/{action}", site.broker(Some(broker))?);
    site.printer.details(&site.act(Method::POST, &path)?)
}

pub(crate) fn credentials(args: CredentialsArgs) -> Result<(), Failure> {
    match args.what {
        CredentialsCommand::List { search, limit, of } => {
            let (site, broker) = Site::at_broker(&of)?;
            let query = query_of(&[("search", search)]);
            let list = site.list(&format!("{broker}/credentials"), &query, limit.limit)?;
            site.printer.list(CREDENTIALS, &list, "There are no credentials.")
        }
        CredentialsCommand::Show { user, of } => {
            let (site, broker) = Site::at_broker(&of)?;
            site.printer.details(&site.get(&credential(&broker, &user))?.body)
        }
        CredentialsCommand::Create(new) => create_credentials(new),
        CredentialsCommand::Update { user, enabled, group, client_id, expires, of } => {
            let (site, broker) = Site::at_broker(&of)?;
            let changed = site.edit(Method::PUT, &credential(&broker, &user), |found| {
                let or_none = |new: Option<String>, name: &str| match new {
                    Some(new) => json!(Some(new).filter(|new| !new.is_empty())),
                    None => found[name].clone(),
                };
                Ok(json!({
                    "enabled": enabled.map_or_else(|| found["enabled"].clone(), Value::Bool),
                    "group": or_none(group, "group"),
                    "rules": found["rules"],
                    "client_id": or_none(client_id, "client_id"),
                    "expires_at_ms": match expires {
                        Some(days) => json!(Some(days).filter(|days| *days > 0).map(in_days)),
                        None => found["expires_at_ms"].clone(),
                    },
                }))
            })?;
            site.printer.details(&changed)
        }
        CredentialsCommand::Rotate { user, overlap_s, keep, scram, of } => {
            let (site, broker) = Site::at_broker(&of)?;
            let path = format!("{}/rotate", credential(&broker, &user));
            let mut body = json!({ "overlap_s": overlap_s, "scram": scram });
            // An older server refuses a field that it does not know.
            if let Some(keep) = keep {
                body["keep"] = json!(keep);
            }
            shown_once(&site, &site.make(&path, body)?)
        }
        CredentialsCommand::Delete { user, sure, of } => {
            may_ask(sure.yes)?;
            let (site, broker) = Site::at_broker(&of)?;
            confirm(&format!("Delete the credential of \"{user}\" and disconnect its clients?"), sure.yes)?;
            site.act(Method::DELETE, &credential(&broker, &user))?;
            site.printer.did("Deleted.");
            Ok(())
        }
    }
}

fn create_credentials(new: NewCredentialsArgs) -> Result<(), Failure> {
    let devices = match (new.count, &new.file) {
        (Some(count), _) => fleets::numbered(&new.prefix.unwrap_or_default(), new.from, count, !new.unbound),
        (None, Some(file)) => fleets::of_file(file)?,
        (None, None) => Vec::new(),
    };
    let (site, broker) = Site::at_broker(&new.of)?;
    if !devices.is_empty() {
        return fleets::create_many(
            &site,
            &broker,
            &devices,
            (new.group.as_deref(), new.scram),
            new.idempotency_key,
        );
    }
    let password = new.password.then(|| input::secret("Password of the credential")).transpose()?;
    let body = json!({
        "user": new.user, "password": password, "group": new.group, "client_id": new.client_id, "scram": new.scram,
        "expires_at_ms": new.expires.map(in_days),
    });
    // Read first, because a failure after the credential was made would hide its secret.
    let found = site.get(&broker)?.body;
    let endpoints = BrokerEndpoints(&found["endpoints"]);
    let made = endpoints.with_username(site.make(&format!("{broker}/credentials"), body)?);
    shown_once(&site, &made)?;
    how_to_use(&site, &found, &made)
}

fn in_days(days: u16) -> u64 {
    now_ms() + u64::from(days) * DAY_MS
}

/// Ends `credentials create` with a command that uses the credential, or with what it waits for.
fn how_to_use(site: &Site, broker: &Value, made: &Value) -> Result<(), Failure> {
    let name = broker["name"].as_str().unwrap_or_default();
    if broker["access_by_settings"] == true {
        site.printer.did(&format!("It is not in force yet: {}", manage_first(name)));
        return Ok(());
    }
    site.printer.text(&BrokerEndpoints(&broker["endpoints"]).of_credential(name, made))
}

fn credential(broker: &str, user: &str) -> String {
    format!("{broker}/credentials/{}", part(user))
}

fn shown_once(site: &Site, made: &Value) -> Result<(), Failure> {
    site.printer.secret(made)?;
    if made["secret"].is_string() {
        site.printer.did("The secret is shown only now: keep it.");
    }
    Ok(())
}

pub(crate) fn clients(args: ClientsArgs) -> Result<(), Failure> {
    match args.what {
        ClientsCommand::List { search, limit, of } => {
            let (site, broker) = Site::at_broker(&of)?;
            let query = query_of(&[("search", search)]);
            let list = site.list(&format!("{broker}/clients"), &query, limit.limit)?;
            site.printer.list(CLIENTS, &list, "There are no such clients.")
        }
        ClientsCommand::Show { client, of } => {
            let (site, broker) = Site::at_broker(&of)?;
            site.printer.details(&site.get(&format!("{broker}/clients/{}", client_part(&client)))?.body)
        }
        ClientsCommand::Trace { client, of } => trace::trace(&client, &of),
        ClientsCommand::Disconnect { client, of } => {
            let (site, broker) = Site::at_broker(&of)?;
            site.act(Method::DELETE, &format!("{broker}/clients/{}", client_part(&client)))?;
            site.printer.did("Disconnected. It may come again: `millrace clients ban` keeps it out.");
            Ok(())
        }
        ClientsCommand::Ban { name, client, user, address, for_s, reason, of } => {
            let (site, broker) = Site::at_broker(&of)?;
            let until_ms = for_s.map(|seconds| now_ms() + 1_000 * seconds);
            let body = json!({
                "client_id": client, "user": user, "address": address, "until_ms": until_ms, "reason": reason,
            });
            site.put(&ban(&broker, &name), &body)?;
            site.printer.did("Banned: connections are closed within two seconds.");
            Ok(())
        }
        ClientsCommand::Bans { limit, of } => {
            let (site, broker) = Site::at_broker(&of)?;
            let list = site.list(&format!("{broker}/bans"), "", limit.limit)?;
            site.printer.list(BANS, &list, "Nobody is banned.")
        }
        ClientsCommand::Unban { name, of } => {
            let (site, broker) = Site::at_broker(&of)?;
            site.act(Method::DELETE, &ban(&broker, &name))?;
            site.printer.did("The ban is over.");
            Ok(())
        }
    }
}

pub(super) fn query_of(parameters: &[(&str, Option<String>)]) -> String {
    let set = parameters.iter().filter_map(|(name, value)| Some(format!("{name}={}", part(value.as_ref()?))));
    set.collect::<Vec<_>>().join("&")
}

fn ban(broker: &str, name: &str) -> String {
    format!("{broker}/bans/{}", part(name))
}
