use std::ffi::OsString;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::args::{self, ServeArgs};
use crate::failure::Failure;
use crate::{dev_certs, inspect, install, migrate, passwd, remote, serve, settings};

/// Millrace, an MQTT broker for MQTT 3.1, 3.1.1 and 5.0 over TCP and WebSocket.
#[derive(Debug, Parser)]
#[command(name = "millrace", version, long_version = install::LONG_VERSION)]
#[command(max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the broker.
    #[command(after_help = args::SERVE_HELP)]
    Serve(Box<ServeArgs>),
    /// Add, change or delete a user of a password file.
    Passwd(passwd::PasswdArgs),
    /// Make certificates for a gateway on this machine.
    DevCerts(dev_certs::DevCertsArgs),
    /// Look into sessions, or end them; of a data folder, or of a service with --api.
    Sessions(inspect::SessionsArgs),
    /// Look into streams, the stored messages of each filter that sessions subscribe to.
    Streams(inspect::StreamsArgs),
    /// Look into retained messages, or remove them; of a data folder, or of a service with --api.
    Retained(inspect::RetainedArgs),
    /// Log in to a service, for the commands that use its API.
    Login(remote::LoginArgs),
    /// Revoke the login's token.
    Logout(remote::LogoutArgs),
    /// Logins to several services or organisations: list, choose, remove.
    Profiles(remote::ProfilesArgs),
    /// Make, show, change and delete brokers of a service.
    Brokers(remote::BrokersArgs),
    /// Users that may connect to a broker of a service, with their secrets.
    Credentials(remote::CredentialsArgs),
    /// Claim tokens of a broker of a service, which devices exchange for a credential.
    ClaimTokens(remote::ClaimTokensArgs),
    /// Exchange a claim token for the credential of a device.
    Claim(remote::ClaimArgs),
    /// Short-lived passwords for a broker of a service, such as for a web page.
    ConnectTokens(remote::ConnectTokensArgs),
    /// Rules for publishing and subscribing at a broker of a service.
    Rules(remote::RulesArgs),
    /// Authentication methods of a broker of a service, and a test of what a client may do.
    Access(remote::AccessArgs),
    /// Connected clients of a broker of a service: list, show, disconnect, ban.
    Clients(remote::ClientsArgs),
    /// Usage of a broker of a service.
    Usage(remote::UsageArgs),
    /// Webhooks of a broker of a service, which receive its events.
    Webhooks(remote::WebhooksArgs),
    /// Changes in an organisation of a service, with their authors.
    Audit(remote::AuditArgs),
    /// Changes by operators of a service that concern no single tenant.
    RegionAudit(remote::RegionAuditArgs),
    /// Publish a message at a broker of a service.
    Pub(remote::PubArgs),
    /// Show messages of a broker of a service as they are published.
    Sub(remote::SubArgs),
    /// Groups of credentials of a broker of a service, with rules in common.
    Groups(remote::NamedArgs),
    /// Issuers of tokens (JWT) that a broker of a service accepts.
    Issuers(remote::NamedArgs),
    /// Authorities whose client certificates a broker of a service accepts.
    Cas(remote::NamedArgs),
    /// Limits of a broker of a service and of its clients.
    Limits(remote::LimitsArgs),
    /// Spend caps of a service.
    Caps(remote::CapsArgs),
    /// Counters and latency of a broker of a service, now or over time.
    Metrics(remote::MetricsArgs),
    /// Regions of a service.
    Regions(remote::RegionArgs),
    /// Plans of a service, the upper bounds of limits.
    Plans(remote::RegionArgs),
    /// Prices of a service.
    Prices(remote::RegionArgs),
    /// Refusals and drops at a broker of a service.
    Incidents(remote::IncidentsArgs),
    /// The organisation at a service: show, rename, delete.
    Organisations(remote::OrganisationsArgs),
    /// Members of the organisation at a service, with their roles.
    Members(remote::MembersArgs),
    /// Invitations to the organisation at a service.
    Invitations(remote::InvitationsArgs),
    /// API tokens of the organisation at a service.
    Tokens(remote::TokensArgs),
    /// Tenants of a service, for its operators: suspend and resume them, assign plans.
    Tenants(remote::TenantsArgs),
    /// Plans of a service, for its operators: create, change and delete them.
    RegionPlans(remote::RegionPlansArgs),
    /// Pods of a service, for its operators: list, show and drain them.
    Pods(remote::PodsArgs),
    /// Accounts of people, for operators of a service.
    Accounts(remote::AccountsArgs),
    /// Copy all stored data into a new folder, also while the server runs; or a cluster to a URL.
    #[command(after_help = inspect::BACKUP_HELP)]
    Backup(inspect::BackupArgs),
    /// Make a data folder, or fill a cluster, from a backup.
    #[command(after_help = inspect::RESTORE_HELP)]
    Restore(inspect::RestoreArgs),
    /// Copy all stored data from a data folder into a FoundationDB cluster, or back, while no
    /// server runs on either.
    #[command(after_help = migrate::HELP)]
    Migrate(migrate::MigrateArgs),
    /// Check a settings file, or print one to start from.
    Config(install::ConfigArgs),
    /// Print completions for a shell.
    Completions(install::CompletionsArgs),
    /// Write a man page for each command.
    Man(install::ManArgs),
}

/// Runs a command line; `args` begins with the program's name.
pub(crate) fn run(args: Vec<OsString>) -> Result<(), Failure> {
    let matches = Cli::command().try_get_matches_from(&args)?;
    match Cli::from_arg_matches(&matches)?.command {
        Command::Passwd(args) => passwd::run(&args),
        Command::DevCerts(args) => dev_certs::run(&args),
        Command::Sessions(args) => inspect::sessions(args),
        Command::Streams(args) => inspect::streams(args),
        Command::Retained(args) => inspect::retained(args),
        Command::Login(args) => remote::login(&args),
        Command::Logout(args) => remote::logout(&args),
        Command::Profiles(args) => remote::profiles(args),
        Command::Brokers(args) => remote::brokers(args),
        Command::Credentials(args) => remote::credentials(args),
        Command::ClaimTokens(args) => remote::claim_tokens(args),
        Command::Claim(args) => remote::claim(&args),
        Command::ConnectTokens(args) => remote::connect_tokens(&args),
        Command::Rules(args) => remote::rules(args),
        Command::Access(args) => remote::access(args),
        Command::Clients(args) => remote::clients(args),
        Command::Usage(args) => remote::usage(&args),
        Command::Webhooks(args) => remote::webhooks(args),
        Command::Audit(args) => remote::audit(&args),
        Command::RegionAudit(args) => remote::region_audit(&args),
        Command::Pub(args) => remote::publish(args),
        Command::Sub(args) => remote::subscribe(&args),
        Command::Groups(args) => remote::groups(args),
        Command::Issuers(args) => remote::issuers(args),
        Command::Cas(args) => remote::cas(args),
        Command::Limits(args) => remote::limits(args),
        Command::Caps(args) => remote::caps(args),
        Command::Metrics(args) => remote::metrics(&args),
        Command::Regions(args) => remote::regions(&args),
        Command::Plans(args) => remote::plans(&args),
        Command::Prices(args) => remote::prices(&args),
        Command::Incidents(args) => remote::incidents(&args),
        Command::Organisations(args) => remote::organisations(args),
        Command::Members(args) => remote::members(args),
        Command::Invitations(args) => remote::invitations(args),
        Command::Tokens(args) => remote::tokens(args),
        Command::Tenants(args) => remote::tenants(args),
        Command::RegionPlans(args) => remote::region_plans(args),
        Command::Pods(args) => remote::pods(args),
        Command::Accounts(args) => remote::accounts(&args),
        Command::Backup(args) => inspect::backup(args),
        Command::Restore(args) => inspect::restore(args),
        Command::Migrate(args) => migrate::run(args),
        Command::Config(args) => install::config(args),
        Command::Completions(args) => install::completions(&args, Cli::command()),
        Command::Man(args) => install::man(&args, Cli::command()),
        Command::Serve(_) => {
            let (settings, ignored) = settings::load(args, settings::environment())?;
            serve::run(&settings, &ignored)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }
}
