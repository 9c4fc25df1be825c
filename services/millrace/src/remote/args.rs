//! The command lines of the commands that use the API.

mod clients;
mod credentials;
mod webhooks;

use clap::{Args, Subcommand, ValueEnum};

pub(super) use self::clients::ClientsCommand;
pub(super) use self::credentials::{CredentialsCommand, NewCredentialsArgs};
pub(super) use self::webhooks::WebhooksCommand;
use crate::limits::whole_number;

#[derive(Clone, Debug, Args)]
pub(crate) struct ApiArgs {
    /// Login to use, with its service and organisation [default: MILLRACE_PROFILE, or that of
    /// `millrace profiles use`].
    #[arg(long, value_name = "NAME")]
    pub(super) profile: Option<String>,

    /// URL of the service [default: MILLRACE_URL, or that of the login].
    #[arg(long, value_name = "URL")]
    pub(super) url: Option<String>,

    /// Id of the organisation [default: MILLRACE_ORGANISATION, or that of the login].
    #[arg(long, value_name = "ID")]
    pub(super) organisation: Option<String>,

    /// Write one JSON object a line; times are milliseconds since 1970.
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Clone, Debug, Args)]
pub(super) struct BrokerArgs {
    /// Name or display name of the broker [default: the only broker].
    #[arg(long, value_name = "NAME")]
    pub(super) broker: Option<String>,

    #[command(flatten)]
    pub(super) api: ApiArgs,
}

#[derive(Clone, Debug, Args)]
pub(super) struct ListLimit {
    /// Rows to show at most.
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = whole_number::<usize>(1, 1_000_000))]
    pub(super) limit: usize,
}

#[derive(Clone, Debug, Args)]
pub(super) struct Sure {
    /// Do not ask for confirmation.
    #[arg(long)]
    pub(super) yes: bool,
}

/// `millrace login`.
///
/// Asks for the password, or reads one line from standard input when that is not a terminal. Makes
/// an API token and stores it in the folder for your settings, where only you can read it. Scripts
/// set MILLRACE_URL, MILLRACE_ORGANISATION and MILLRACE_TOKEN instead of logging in.
#[derive(Debug, Args)]
pub(crate) struct LoginArgs {
    /// URL of the service, such as `https://console.example.org`.
    #[arg(long, value_name = "URL")]
    pub(super) url: String,

    /// Name for this login, if you have several [default: MILLRACE_PROFILE, or the current one].
    #[arg(long, value_name = "NAME")]
    pub(super) profile: Option<String>,

    /// Your e-mail address [default: the command asks for it].
    #[arg(long, value_name = "ADDRESS", conflicts_with = "token")]
    pub(super) email: Option<String>,

    /// Id of the organisation; needed when you belong to several, and with --token.
    #[arg(long, value_name = "ID")]
    pub(super) organisation: Option<String>,

    /// Store an existing API token instead of making one: MILLRACE_TOKEN, or the command asks for it.
    #[arg(long, requires = "organisation")]
    pub(super) token: bool,

    /// Days after which the new token expires and you must log in again.
    #[arg(long, value_name = "DAYS", default_value_t = 90, value_parser = whole_number::<u16>(1, 365), conflicts_with = "token")]
    pub(super) days: u16,

    /// Allow HTTP without TLS to another machine; anybody on the network path can then read the token.
    #[arg(long)]
    pub(super) insecure: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LogoutArgs {
    /// The login to end [default: MILLRACE_PROFILE, or the current one].
    #[arg(long, value_name = "NAME")]
    pub(super) profile: Option<String>,
}

/// Declares a command group: its arguments and its commands.
macro_rules! nouns {
    ($($(#[$doc:meta])* $args:ident: $command:ident,)*) => {
        $($(#[$doc])*
        #[derive(Debug, Args)]
        pub(crate) struct $args {
            #[command(subcommand)]
            pub(super) what: $command,
        })*
    };
}

nouns! {
    BrokersArgs: BrokersCommand,
    CredentialsArgs: CredentialsCommand,
    RulesArgs: RulesCommand,
    ClientsArgs: ClientsCommand,
    WebhooksArgs: WebhooksCommand,
}

#[derive(Debug, Args)]
pub(super) struct OneBroker {
    /// Its name or display name.
    pub(super) broker: String,
    #[command(flatten)]
    pub(super) api: ApiArgs,
}

#[derive(Debug, Subcommand)]
pub(super) enum BrokersCommand {
    /// List the brokers of the organisation.
    List {
        #[command(flatten)]
        limit: ListLimit,
        #[command(flatten)]
        api: ApiArgs,
    },
    /// Show a broker.
    Show(OneBroker),
    /// Create a broker. The service makes its name.
    Create {
        /// Its display name.
        called: String,
        #[command(flatten)]
        api: ApiArgs,
    },
    /// Change the display name of a broker.
    Update {
        /// Its name or display name.
        broker: String,
        /// The new display name.
        #[arg(long, value_name = "TEXT")]
        called: String,
        #[command(flatten)]
        api: ApiArgs,
    },
    /// Suspend a broker: refuse new connections, and close all present ones.
    Suspend(OneBroker),
    /// Resume a suspended broker: clients can connect again.
    Resume(OneBroker),
    /// Let the broker use its own credentials and rules, instead of the settings and rules file of the server.
    Manage {
        #[command(flatten)]
        of: OneBroker,
        #[command(flatten)]
        sure: Sure,
    },
    /// Delete a broker with all its data.
    Delete {
        /// Its name or display name.
        broker: String,
        #[command(flatten)]
        sure: Sure,
        #[command(flatten)]
        api: ApiArgs,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum EffectArg {
    Allow,
    Deny,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum ActionArg {
    Publish,
    Subscribe,
    All,
}

/// The rules that a command is about.
#[derive(Debug, Args)]
pub(super) struct OfRules {
    /// Rules of the credential with this user name, which come before those of its group and of the broker.
    #[arg(long, value_name = "USER")]
    pub(super) credential: Option<String>,

    #[command(flatten)]
    pub(super) broker: BrokerArgs,
}

#[derive(Debug, Subcommand)]
pub(super) enum RulesCommand {
    /// List the rules of all clients of a broker, or of one credential; the first rule that matches decides.
    List {
        #[command(flatten)]
        of: OfRules,
    },
    /// Add a rule. Once there is a rule, everything that no rule allows is denied.
    Add {
        effect: EffectArg,
        action: ActionArg,
        /// Topic filter; %c is the client id, %u the user name.
        filter: String,
        /// Number of the rule before which it is inserted [default: at the end].
        #[arg(long, value_name = "NUMBER", value_parser = whole_number::<usize>(1, 1_000))]
        before: Option<usize>,
        /// Highest quality of service that it allows [default: 2].
        #[arg(long, value_name = "QOS", value_parser = whole_number::<u8>(0, 2))]
        qos_max: Option<u8>,
        /// Allow no retained messages.
        #[arg(long)]
        no_retain: bool,
        #[command(flatten)]
        of: OfRules,
    },
    /// Delete a rule.
    Delete {
        /// Number of the rule in the list.
        #[arg(value_parser = whole_number::<usize>(1, 1_000))]
        number: usize,
        #[command(flatten)]
        sure: Sure,
        #[command(flatten)]
        of: OfRules,
    },
}

/// The entries of an audit log to show.
#[derive(Debug, Args)]
pub(super) struct AuditFilterArgs {
    /// Only entries of this person or token: the beginning of an e-mail address or name, or an id.
    #[arg(long, value_name = "TEXT")]
    pub(super) actor: Option<String>,

    /// Only actions that begin with this, such as `credential.`.
    #[arg(long, value_name = "TEXT")]
    pub(super) action: Option<String>,

    /// Only entries from this time on, in milliseconds since 1970.
    #[arg(long, value_name = "MS")]
    pub(super) from: Option<u64>,

    /// Only entries before this time, in milliseconds since 1970.
    #[arg(long, value_name = "MS")]
    pub(super) to: Option<u64>,

    #[command(flatten)]
    pub(super) limit: ListLimit,
}

#[derive(Debug, Args)]
pub(crate) struct AuditArgs {
    #[command(flatten)]
    pub(super) filter: AuditFilterArgs,
    #[command(flatten)]
    pub(super) api: ApiArgs,
}
