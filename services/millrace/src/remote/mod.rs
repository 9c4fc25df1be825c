//! Commands for a service over its HTTP API: `millrace login`, `brokers`, `credentials`, `rules`, `clients`, `usage`,
//! `webhooks`, `audit`; and `sessions` and `retained` with `--api`.
//!
//! [`login()`] stores an API token of the user. [`client`] sends requests; [`site`] adds the parts that most requests
//! need: organisation, pages, broker, versions. [`nouns`] has the commands, [`mod@print`] prints the answers. Secrets
//! are read from the terminal or standard input, because other users of the machine can see the command line.

mod args;
mod client;
mod input;
mod login;
mod nouns;
mod print;
mod site;
mod stored;

pub(crate) use args::{
    AuditArgs, BrokersArgs, ClientsArgs, CredentialsArgs, LoginArgs, LogoutArgs, RulesArgs, UsageArgs,
    WebhooksArgs,
};
pub(crate) use login::{login, logout};
pub(crate) use nouns::{audit, brokers, clients, credentials, rules, usage, webhooks};
pub(crate) use stored::{Stored, stored};
