//! The service from the command line, over its HTTP API: `millrace login`, `brokers`, `credentials`, `rules`, `clients`, `usage`,
//! `webhooks`, `audit`; and `sessions` and `retained` with `--api`.
//!
//! [`login()`] keeps an API token of the user. [`client`] asks; [`site`] adds what most requests need: the organisation, pages, the broker
//! that is meant, versions. [`nouns`] are the commands, [`mod@print`] writes what comes. Secrets are read from the terminal or standard
//! input, never from the command line, which others on the machine can see.

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
