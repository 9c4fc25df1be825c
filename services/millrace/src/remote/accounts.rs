//! Commands of operators for the accounts of people, over the operator API of the admin port.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use http::{HeaderName, Method, header};
use serde_json::json;

use super::client::{Ask, Client};
use super::login::checked;
use crate::failure::Failure;
use crate::user::own_name;

/// The audit log has this name, unless the operator's token has a name of its own.
const OPERATOR: HeaderName = HeaderName::from_static("millrace-operator");

#[derive(Debug, Args)]
pub(crate) struct AccountsArgs {
    #[command(subcommand)]
    what: AccountsCommand,
}

#[derive(Debug, Subcommand)]
enum AccountsCommand {
    /// Make a link with which a person chooses a new password, once and within an hour.
    ///
    /// Give it to nobody but the person: whoever opens it has the account, unless that has a second
    /// factor.
    ResetLink {
        /// E-mail address of the account.
        email: String,
        /// URL of the server's admin port (admin_listen).
        #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8090")]
        admin: String,
        /// File with the operators' token, where the server has operator_token_file.
        #[arg(long, value_name = "FILE")]
        operator_token_file: Option<PathBuf>,
        /// Allow HTTP without TLS to another machine; anybody on the way can then read the link and
        /// the token.
        #[arg(long)]
        insecure: bool,
    },
}

pub(crate) fn accounts(args: &AccountsArgs) -> Result<(), Failure> {
    let AccountsCommand::ResetLink { email, admin, operator_token_file, insecure } = &args.what;
    let mut client = Client::of_operators(&checked(admin, *insecure)?)?;
    let name = own_name();
    // A header carries ASCII.
    if name.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        client.who.push((OPERATOR, name));
    }
    if let Some(file) = operator_token_file {
        client.who.push((header::AUTHORIZATION, format!("Bearer {}", token(file)?)));
    }
    let made = client.ask(&Ask::new(Method::POST, "/reset-links", Some(json!({ "email": email }))))?;
    let url = made.body["url"].as_str().ok_or_else(|| {
        Failure::Run(
            "the answer of the server has no link: is this `millrace` older or newer than the server?".into(),
        )
    })?;
    let written = writeln!(std::io::stdout(), "{url}");
    written.map_err(|error| Failure::Run(format!("the link cannot be written: {error}")))
}

fn token(file: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(file);
    let text =
        text.map_err(|error| Failure::Settings(format!("{} cannot be read: {error}", file.display())))?;
    // A line has the operator's name before the token, where a server knows several.
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let token = lines.next().and_then(|line| line.split_whitespace().next_back());
    let missing = || Failure::Settings(format!("{} has no token", file.display()));
    token.map(str::to_owned).ok_or_else(missing)
}
