//! Credentials of many devices: in batches, and by claim tokens.

use std::io::Read as _;
use std::path::Path;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::args::{Limit, OfBroker, Sure};
use super::client::{Ask, Client, LOG_IN_HINT};
use super::input;
use super::login::checked;
use super::print::{Fields, Printer};
use super::site::{List, Site, part};
use crate::failure::Failure;
use crate::inspect::confirm::{confirm, may_ask};
use crate::inspect::now_ms;
use crate::limits::{API_ANSWER_BYTES_MAX, whole_number};

/// The API's maximum.
const BATCH: usize = 1_000;
const DAY_MS: u64 = 86_400_000;

const MADE: Fields = &[("USER", "user"), ("CLIENT", "client_id"), ("SECRET", "secret")];
const CLAIM_TOKENS: Fields = &[
    ("ID", "id"),
    ("NAME", "name"),
    ("PREFIX", "user_prefix"),
    ("GROUP", "group"),
    ("USED", "uses"),
    ("OF", "uses_max"),
    ("EXPIRES", "expires_at_ms"),
];

/// `millrace claim-tokens`.
#[derive(Debug, Args)]
pub(crate) struct ClaimTokensArgs {
    #[command(subcommand)]
    what: ClaimTokensCommand,
}

#[derive(Debug, Subcommand)]
enum ClaimTokensCommand {
    /// List the claim tokens of a broker.
    List {
        #[command(flatten)]
        limit: Limit,
        #[command(flatten)]
        of: OfBroker,
    },
    /// Make a claim token. Its text is shown once.
    Create {
        /// Its name, for people.
        name: String,
        /// What the user name of each device begins with.
        #[arg(long, value_name = "TEXT")]
        prefix: String,
        /// Number of devices that can use it.
        #[arg(long, value_name = "COUNT", value_parser = whole_number::<u64>(1, 100_000))]
        uses: u64,
        /// Days after which it ends.
        #[arg(long, value_name = "DAYS", default_value_t = 30, value_parser = whole_number::<u16>(1, 366))]
        days: u16,
        /// Name of the group whose rules apply to the devices.
        #[arg(long, value_name = "NAME")]
        group: Option<String>,
        /// Let the devices connect with any client id, not only with their user name.
        #[arg(long)]
        any_client_id: bool,
        #[command(flatten)]
        of: OfBroker,
    },
    /// Delete a claim token. The credentials that devices have made by it stay.
    Delete {
        /// Its id.
        id: String,
        #[command(flatten)]
        sure: Sure,
        #[command(flatten)]
        of: OfBroker,
    },
}

/// `millrace claim`.
///
/// Exchanges a claim token for the credential of a device, and prints how to connect. Asks for the token, or reads its
/// one line from standard input when that is no terminal. It needs no login.
#[derive(Debug, Args)]
pub(crate) struct ClaimArgs {
    /// The user name of the device; it begins with the prefix of the claim token.
    user: String,
    /// URL of the service, such as `https://console.example.org`.
    #[arg(long, value_name = "URL")]
    url: String,
    /// Allow HTTP without TLS to another machine; anybody on the way can then read the password.
    #[arg(long)]
    insecure: bool,
    /// Write the answer as one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn claim_tokens(args: ClaimTokensArgs) -> Result<(), Failure> {
    let path = |broker: &str| format!("{broker}/claim-tokens");
    match args.what {
        ClaimTokensCommand::List { limit, of } => {
            let (site, broker) = Site::at_broker(&of)?;
            let list = site.list(&path(&broker), "", limit.limit)?;
            site.printer.list(CLAIM_TOKENS, &list, "There are no claim tokens.")
        }
        ClaimTokensCommand::Create { name, prefix, uses, days, group, any_client_id, of } => {
            let (site, broker) = Site::at_broker(&of)?;
            let body = json!({
                "name": name, "user_prefix": prefix, "uses_max": uses, "group": group,
                "expires_at_ms": now_ms() + u64::from(days) * DAY_MS, "bind_client_id": !any_client_id,
            });
            site.printer.details(&site.make(&path(&broker), body)?)?;
            site.printer.did(
                "The secret is shown only now. Devices exchange it with `millrace claim`, until it ends, or you log out or delete the API token.",
            );
            Ok(())
        }
        ClaimTokensCommand::Delete { id, sure, of } => {
            may_ask(sure.yes)?;
            let (site, broker) = Site::at_broker(&of)?;
            confirm(&format!("Delete the claim token \"{id}\"?"), sure.yes)?;
            site.act(http::Method::DELETE, &format!("{}/{}", path(&broker), part(&id)))?;
            site.printer.did("Deleted.");
            Ok(())
        }
    }
}

pub(crate) fn claim(args: &ClaimArgs) -> Result<(), Failure> {
    let client = Client::new(&checked(&args.url, args.insecure)?)?;
    let token = input::secret("Claim token")?;
    let ask = Ask::once("/claim", json!({ "token": token, "user": args.user }))?;
    let claimed = client.ask(&ask).map_err(|failure| match failure {
        // A device has no login.
        Failure::Run(why) => Failure::Run(why.trim_end_matches(LOG_IN_HINT).to_owned()),
        other => other,
    })?;
    let printer = Printer { json: args.json };
    printer.details(&claimed.body)?;
    printer.did("The password is shown only now: keep it.");
    Ok(())
}

/// Makes credentials, in requests of up to 1,000. If one is refused, the credentials of the earlier ones are printed.
pub(super) fn create_many(
    site: &Site,
    broker: &str,
    devices: &[Value],
    group: Option<&str>,
) -> Result<(), Failure> {
    let mut list = List { rows: Vec::new(), more: false, unanswered: Vec::new() };
    let mut made = Ok(());
    for batch in devices.chunks(BATCH) {
        let body = json!({ "devices": batch, "group": group });
        match site.make(&format!("{broker}/credential-batches"), body) {
            Ok(mut answer) => {
                if let Some(items) = answer["items"].as_array_mut() {
                    list.rows.append(items);
                }
            }
            Err(failure) => {
                made = Err(failure);
                break;
            }
        }
    }
    if !list.rows.is_empty() {
        site.printer.list(MADE, &list, "")?;
        site.printer.did("The secrets are shown only now: keep them.");
    }
    made
}

/// Devices with numbered user names.
pub(super) fn numbered(prefix: &str, from: u64, count: u64) -> Vec<Value> {
    (from..from.saturating_add(count)).map(|number| json!({ "user": format!("{prefix}{number}") })).collect()
}

/// Devices of a file, `-` for standard input: each line has a user name and, after a comma, a client id if the device
/// is bound to one.
pub(super) fn of_file(file: &Path) -> Result<Vec<Value>, Failure> {
    let failed =
        |error: std::io::Error| Failure::Settings(format!("{} cannot be read: {error}", file.display()));
    let mut text = String::new();
    if file == Path::new("-") {
        std::io::stdin().take(API_ANSWER_BYTES_MAX as u64).read_to_string(&mut text).map_err(failed)?;
    } else {
        text = std::fs::read_to_string(file).map_err(failed)?;
    }
    let devices = devices(&text);
    match devices.is_empty() {
        true => Err(Failure::Settings(format!("{} has no user names, one a line", file.display()))),
        false => Ok(devices),
    }
}

fn devices(text: &str) -> Vec<Value> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines
        .map(|line| match line.split_once(',') {
            Some((user, client)) => json!({ "user": user.trim(), "client_id": client.trim() }),
            None => json!({ "user": line }),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_numbered_or_stand_in_a_file() {
        assert_eq!(
            numbered("p-", 8, 3),
            [json!({ "user": "p-8" }), json!({ "user": "p-9" }), json!({ "user": "p-10" })]
        );
        let file = "pump-1\n\n  pump-2 , c-2 \r\npump-3\n";
        let two = json!({ "user": "pump-2", "client_id": "c-2" });
        assert_eq!(devices(file), [json!({ "user": "pump-1" }), two, json!({ "user": "pump-3" })]);
    }
}
