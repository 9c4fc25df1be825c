//! The command line of `millrace credentials`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;

use super::{BrokerArgs, ListLimit, Sure};
use crate::limits::whole_number;
use crate::remote::client::is_key;

#[derive(Debug, Subcommand)]
pub(in crate::remote) enum CredentialsCommand {
    /// List credentials.
    List {
        /// Only credentials whose user name begins with this.
        #[arg(long, value_name = "TEXT")]
        search: Option<String>,
        #[command(flatten)]
        limit: ListLimit,
        #[command(flatten)]
        of: BrokerArgs,
    },
    /// Show a credential.
    Show {
        /// User name of the credential.
        user: String,
        #[command(flatten)]
        of: BrokerArgs,
    },
    /// Create one or many credentials. The server makes their secrets, and shows them once.
    Create(NewCredentialsArgs),
    /// Enable or disable a credential, or change its group, client id or end.
    #[command(group(clap::ArgGroup::new("change").required(true).multiple(true)
        .args(["enabled", "group", "client_id", "expires"])))]
    Update {
        /// User name of the credential.
        user: String,
        /// Whether clients may connect with the credential; connected clients are disconnected.
        #[arg(long, value_name = "BOOL")]
        enabled: Option<bool>,
        /// Name of the group whose rules apply; empty for none.
        #[arg(long, value_name = "NAME")]
        group: Option<String>,
        /// The only client id that may use the credential; empty for any.
        #[arg(long, value_name = "ID")]
        client_id: Option<String>,
        /// Days from now after which the broker refuses the credential; 0 for never.
        #[arg(long, value_name = "DAYS", value_parser = whole_number::<u16>(0, 36_500))]
        expires: Option<u16>,
        #[command(flatten)]
        of: BrokerArgs,
    },
    /// Create another secret, and show it once.
    Rotate {
        /// User name of the credential.
        user: String,
        /// Seconds for which the former secret stays valid.
        #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = whole_number::<u32>(0, 2_592_000))]
        overlap_s: u32,
        /// The former secret that stays valid, while an earlier rotation left two. "previous" replaces a new secret that
        /// was lost: the previous one stays valid until its end, or for --overlap-s if that is longer. "current" ends the
        /// previous one now, and needs --overlap-s.
        #[arg(long, value_enum, value_name = "WHICH")]
        keep: Option<Kept>,
        /// Whether clients may prove the new secret by SCRAM-SHA-256 [default: as before].
        #[arg(long, value_name = "BOOL")]
        scram: Option<bool>,
        #[command(flatten)]
        of: BrokerArgs,
    },
    /// Delete a credential; its clients are disconnected.
    Delete {
        /// User name of the credential.
        user: String,
        #[command(flatten)]
        sure: Sure,
        #[command(flatten)]
        of: BrokerArgs,
    },
}

#[derive(Clone, Copy, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(in crate::remote) enum Kept {
    Current,
    Previous,
}

#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("which").required(true).args(["user", "count", "file"])))]
pub(in crate::remote) struct NewCredentialsArgs {
    /// User name of the credential.
    pub(in crate::remote) user: Option<String>,
    /// Number of credentials to create; their user names are --prefix and a number.
    #[arg(long, value_name = "COUNT", requires = "prefix", value_parser = whole_number::<u64>(1, 100_000))]
    pub(in crate::remote) count: Option<u64>,
    /// Prefix of the user names.
    #[arg(long, value_name = "TEXT", requires = "count")]
    pub(in crate::remote) prefix: Option<String>,
    /// The first number.
    #[arg(long, value_name = "NUMBER", requires = "count", default_value_t = 1, value_parser = whole_number::<u64>(0, 1_000_000_000))]
    pub(in crate::remote) from: u64,
    /// Let the devices connect with any client id, not only with their user name.
    #[arg(long, requires = "count")]
    pub(in crate::remote) unbound: bool,
    /// Create a credential for each line of this file, - for standard input: a user name and, after
    /// a comma, its only client id.
    #[arg(long, value_name = "FILE")]
    pub(in crate::remote) file: Option<PathBuf>,
    /// Name of this run. A run that is repeated with the same name, devices and options within a
    /// day shows the same secrets. Without this option the command makes a name, and prints it
    /// if it fails.
    #[arg(long, value_name = "KEY", conflicts_with = "user", value_parser = is_key(1))]
    pub(in crate::remote) idempotency_key: Option<String>,
    /// Read an existing password of devices from standard input, or ask for it.
    #[arg(long, conflicts_with_all = ["count", "file"])]
    pub(in crate::remote) password: bool,
    /// Name of the group whose rules apply.
    #[arg(long, value_name = "NAME")]
    pub(in crate::remote) group: Option<String>,
    /// Days after which the broker refuses the credential.
    #[arg(long, value_name = "DAYS", value_parser = whole_number::<u16>(1, 36_500), conflicts_with_all = ["count", "file"])]
    pub(in crate::remote) expires: Option<u16>,
    /// The only client id that may use the credential [default: any].
    #[arg(long, value_name = "ID", conflicts_with_all = ["count", "file"])]
    pub(in crate::remote) client_id: Option<String>,
    /// Let clients prove the secret by SCRAM-SHA-256.
    #[arg(long)]
    pub(in crate::remote) scram: bool,
    #[command(flatten)]
    pub(in crate::remote) of: BrokerArgs,
}
