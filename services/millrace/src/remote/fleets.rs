//! Commands that make credentials for many devices: `millrace claim-tokens` and `millrace claim`, and
//! batches of `millrace credentials`. Each calls the API of a service.

use std::io::Read as _;
use std::path::Path;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::args::{BrokerArgs, ListLimit, Sure};
use super::client::{ApiClient, Ask, FailedRequest, LOG_IN_HINT, is_key, random_key};
use super::connect::BrokerEndpoints;
use super::input;
use super::login::checked;
use super::print::{Printer, TableColumns};
use super::site::{Site, part};
use crate::clock::now_ms;
use crate::failure::Failure;
use crate::limits::{API_ANSWER_BYTES_MAX, whole_number};
use crate::terminal::confirm::{confirm, may_ask};

/// Credentials in one request: the API's maximum.
const BATCH: usize = 1_000;
/// The same with SCRAM.
const BATCH_WITH_SCRAM: usize = 100;
/// Characters of the key of a claim: the API's minimum.
const CLAIM_KEY_MIN: usize = 32;
const DAY_MS: u64 = 86_400_000;

/// Columns of a new credential: heading, and the field of the API's answer.
const MADE: TableColumns =
    &[("USER", "user"), ("USERNAME", "username"), ("CLIENT", "client_id"), ("SECRET", "secret")];
const CLAIM_TOKENS: TableColumns = &[
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
        limit: ListLimit,
        #[command(flatten)]
        of: BrokerArgs,
    },
    /// Make a claim token. Its text is shown once.
    Create {
        /// Its name, for people.
        name: String,
        /// Prefix of the user name of each device.
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
        of: BrokerArgs,
    },
    /// Delete a claim token. The credentials that devices have made by it stay.
    Delete {
        /// Its id.
        id: String,
        #[command(flatten)]
        sure: Sure,
        #[command(flatten)]
        of: BrokerArgs,
    },
}

/// `millrace claim`.
///
/// Exchanges a claim token for the credential of a device, and prints how to connect. Asks for the
/// token, or reads its one line from standard input when that is not a terminal. It needs no login.
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
    /// Random name of this claim. A claim that is repeated with the same name within a day gives
    /// the same password. Without this option the command makes a name, and prints it if it fails.
    #[arg(long, value_name = "KEY", value_parser = is_key(CLAIM_KEY_MIN))]
    idempotency_key: Option<String>,
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
            site.printer.secret(&site.make(&path(&broker), body)?)?;
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
    let client = ApiClient::new(&checked(&args.url, args.insecure)?)?;
    let token = input::secret("Claim token")?;
    let key = args.idempotency_key.clone().map_or_else(random_key, Ok)?;
    let ask = Ask::named("/claim", json!({ "token": token, "user": args.user }), &key);
    let again = |failure| match failure {
        Failure::Run(why) => Failure::Run(format!(
            "{why}; the server may have made the credential: repeat the command within a day, with `--idempotency-key {key}`, for its password"
        )),
        other => other,
    };
    let claimed = client.ask_patiently(&ask).map_err(|refused| match refused.failure {
        failure if refused.is_for_now => again(failure),
        // The hint to log in is cut off, because a device has no login.
        Failure::Run(why) => Failure::Run(why.trim_end_matches(LOG_IN_HINT).to_owned()),
        other => other,
    })?;
    let printer = Printer { json: args.json };
    printer.secret(&claimed.body).map_err(again)?;
    printer.did("The password is shown only now: keep it.");
    Ok(())
}

/// Makes credentials in requests of up to 1,000, and prints those of each request as soon as it is
/// answered. After a failure, names the credentials that were not shown, and the key by which a
/// repeated command shows them.
pub(super) fn create_many(
    site: &Site,
    broker: &str,
    devices: &[Value],
    (group, scram): (Option<&str>, bool),
    key: Option<String>,
) -> Result<(), Failure> {
    let path = format!("{broker}/credential-batches");
    let key = key.map_or_else(random_key, Ok)?;
    let found = site.get(broker)?.body;
    let endpoints = BrokerEndpoints(&found["endpoints"]);
    let make = |number: usize, batch: &[Value]| {
        let mut body = json!({ "devices": batch, "group": group });
        if scram {
            body["scram"] = json!(true);
        }
        let mut answer = site.make_patiently(&path, body, &format!("{key}-{number}"))?;
        let made = answer["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
        Ok(made.into_iter().map(|one| endpoints.with_username(one)).collect())
    };
    let mut secrets = site.printer.secrets(MADE);
    let batches = devices.chunks(if scram { BATCH_WITH_SCRAM } else { BATCH });
    let (shown, ended) = in_batches(batches, make, |rows| secrets.show(&mut std::io::stdout().lock(), &rows));
    if shown > 0 {
        site.printer.did("The secrets are shown only now: keep them.");
    }
    ended.map_or(Ok(()), |ended| Err(said(ended, shown, devices.len(), &key)))
}

/// Why [`in_batches`] ended early.
struct BatchFailure<'a> {
    failure: Failure,
    /// Devices whose credentials may exist although their secrets were not shown.
    unseen: &'a [Value],
}

/// The failure as a sentence: how many credentials were made, and how to see the secrets of the
/// others.
fn said(BatchFailure { failure, unseen }: BatchFailure<'_>, shown: usize, all: usize, key: &str) -> Failure {
    let Failure::Run(why) = failure else { return failure };
    let user = |device: &Value| device["user"].as_str().unwrap_or_default().to_owned();
    Failure::Run(match unseen {
        [] if shown == 0 => why,
        [] => format!("{shown} of {all} credentials were made: {why}"),
        [first, ..] => format!(
            "{shown} of {all} credentials were shown: {why}; those from \"{}\" to \"{}\" may exist: repeat the command within a day, with `--idempotency-key {key}`, for all secrets",
            user(first),
            unseen.last().map(user).unwrap_or_default(),
        ),
    })
}

/// Makes and shows one batch after the other; `make` gets the batch's number, from 1. Returns how many
/// credentials were shown, and the first failure.
fn in_batches<'a>(
    batches: impl Iterator<Item = &'a [Value]>,
    mut make: impl FnMut(usize, &[Value]) -> Result<Vec<Value>, FailedRequest>,
    mut show: impl FnMut(Vec<Value>) -> Result<(), Failure>,
) -> (usize, Option<BatchFailure<'a>>) {
    let mut shown = 0;
    for (number, batch) in batches.enumerate() {
        let rows = match make(number + 1, batch) {
            Ok(rows) => rows,
            Err(refused) => {
                let unseen = if refused.is_for_now { batch } else { &[] };
                return (shown, Some(BatchFailure { failure: refused.failure, unseen }));
            }
        };
        let made = rows.len();
        if let Err(failure) = show(rows) {
            return (shown, Some(BatchFailure { failure, unseen: batch }));
        }
        shown += made;
    }
    (shown, None)
}

/// Devices with numbered user names. With `is_bound`, the user name is also the only client id.
pub(super) fn numbered(prefix: &str, from: u64, count: u64, is_bound: bool) -> Vec<Value> {
    let device = |number| {
        let user = format!("{prefix}{number}");
        if is_bound { json!({ "user": user, "client_id": user }) } else { json!({ "user": user }) }
    };
    (from..from.saturating_add(count)).map(device).collect()
}

/// Devices of a file, `-` for standard input: each line has a user name and, after a comma, a
/// client id if the device is bound to one.
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

    fn refused(is_for_now: bool) -> FailedRequest {
        FailedRequest { is_for_now, ..Failure::Run("no".into()).into() }
    }

    #[test]
    fn each_batch_is_shown_before_the_next_one_is_made() {
        let devices = numbered("p-", 0, 2_500, true);
        let steps = std::cell::RefCell::new(Vec::new());
        let make = |number, batch: &[Value]| {
            steps.borrow_mut().push(format!("make {number} of {}", batch.len()));
            if batch.len() < BATCH { Err(refused(false)) } else { Ok(batch.to_vec()) }
        };
        let show = |rows: Vec<Value>| {
            steps.borrow_mut().push(format!("show {}", rows.len()));
            Ok(())
        };
        let (shown, ended) = in_batches(devices.chunks(BATCH), make, show);
        assert!(shown == 2_000 && ended.is_some_and(|ended| ended.unseen.is_empty()));
        let expected = ["make 1 of 1000", "show 1000", "make 2 of 1000", "show 1000", "make 3 of 500"];
        assert_eq!(steps.into_inner(), expected);
    }

    #[test]
    fn a_failure_names_the_credentials_that_nobody_has_seen() {
        let devices = numbered("p-", 0, 2_500, true);
        let no = |_| Err(Failure::Run("no".into()));
        let lost = in_batches(devices.chunks(BATCH), |_, _| Err(refused(true)), |_| Ok(()));
        let unwritten = in_batches(devices.chunks(BATCH), |_, batch| Ok(batch.to_vec()), no);
        for (shown, ended) in [lost, unwritten] {
            let Failure::Run(why) = said(ended.unwrap(), shown, devices.len(), "k") else { panic!() };
            for words in ["0 of 2500", "\"p-0\" to \"p-999\"", "--idempotency-key k"] {
                assert!(why.contains(words), "{why}");
            }
        }
    }

    #[test]
    fn devices_are_numbered_or_stand_in_a_file() {
        assert_eq!(
            numbered("p-", 8, 3, false),
            [json!({ "user": "p-8" }), json!({ "user": "p-9" }), json!({ "user": "p-10" })]
        );
        assert_eq!(numbered("p-", 8, 1, true), [json!({ "user": "p-8", "client_id": "p-8" })]);
        let file = "pump-1\n\n  pump-2 , c-2 \r\npump-3\n";
        let two = json!({ "user": "pump-2", "client_id": "c-2" });
        assert_eq!(devices(file), [json!({ "user": "pump-1" }), two, json!({ "user": "pump-3" })]);
    }
}
