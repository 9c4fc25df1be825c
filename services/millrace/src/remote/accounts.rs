//! Commands of operators for the accounts of people, over the operator API of the admin port.

use std::io::Write as _;

use clap::{Args, Subcommand};
use http::Method;
use serde_json::json;

use super::client::Ask;
use super::operators::OperatorArgs;
use crate::failure::Failure;

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
        #[command(flatten)]
        operator: OperatorArgs,
    },
}

pub(crate) fn accounts(args: &AccountsArgs) -> Result<(), Failure> {
    let AccountsCommand::ResetLink { email, operator } = &args.what;
    let client = operator.client()?;
    let made = client.ask(&Ask::new(Method::POST, "/reset-links", Some(json!({ "email": email }))))?;
    let url = made.body["url"].as_str().ok_or_else(|| {
        Failure::Run(
            "the answer of the server has no link: is this `millrace` older or newer than the server?".into(),
        )
    })?;
    let written = writeln!(std::io::stdout(), "{url}");
    written.map_err(|error| Failure::Run(format!("the link cannot be written: {error}")))
}
