//! The service from the command line, over its HTTP API: `millrace login` and a command for each
//! kind of object; `pub` and `sub`; and `sessions` and `retained` with `--api`.
//!
//! [`login()`] stores an API token of the user, in one of the [`mod@profiles`]. [`client`] sends
//! requests; [`site`] adds the organisation, pages, the broker and versions. The other modules have
//! the commands; [`mod@accounts`] and [`mod@tenants`]
//! are for operators. Secrets are read from the terminal or standard
//! input, never from the command line, which others on the machine can see.

mod access;
mod accounts;
mod admission;
mod args;
mod audit;
mod client;
mod connect;
mod connect_tokens;
mod control;
mod fleets;
mod input;
mod login;
mod messages;
mod nouns;
mod operators;
mod patience;
mod people;
mod print;
mod profiles;
mod region;
mod rules;
mod site;
mod stored;
mod tenants;
mod trace;
mod usage;
mod webhooks;

pub(crate) use access::{NamedArgs, cas, groups, issuers};
pub(crate) use accounts::{AccountsArgs, accounts};
pub(crate) use admission::{AccessArgs, access};
pub(crate) use args::{
    AuditArgs, BrokersArgs, ClientsArgs, CredentialsArgs, LoginArgs, LogoutArgs, RulesArgs, WebhooksArgs,
};
pub(crate) use audit::{RegionAuditArgs, audit, region_audit};
pub(crate) use connect_tokens::{ConnectTokensArgs, connect_tokens};
pub(crate) use control::{
    CapsArgs, IncidentsArgs, LimitsArgs, MetricsArgs, caps, incidents, limits, metrics,
};
pub(crate) use fleets::{ClaimArgs, ClaimTokensArgs, claim, claim_tokens};
pub(crate) use login::{login, logout};
pub(crate) use messages::{PubArgs, SubArgs, publish, subscribe};
pub(crate) use nouns::{brokers, clients, credentials};
pub(crate) use people::{
    InvitationsArgs, MembersArgs, OrganisationsArgs, TokensArgs, invitations, members, organisations, tokens,
};
pub(crate) use profiles::{ProfilesArgs, profiles};
pub(crate) use region::{RegionArgs, plans, prices, regions};
pub(crate) use rules::rules;
pub(crate) use stored::{StoredCommand, stored};
pub(crate) use tenants::{PodsArgs, RegionPlansArgs, TenantsArgs, pods, region_plans, tenants};
pub(crate) use usage::{UsageArgs, usage};
pub(crate) use webhooks::webhooks;
