//! The command line of `millrace clients`.

use clap::Subcommand;

use super::{BrokerArgs, ListLimit};
use crate::limits::whole_number;

#[derive(Debug, Subcommand)]
pub(in crate::remote) enum ClientsCommand {
    /// List connected clients of the whole region, in order of client ids.
    List {
        /// Only clients whose client id or user name begins with this.
        #[arg(long, value_name = "TEXT")]
        search: Option<String>,
        #[command(flatten)]
        limit: ListLimit,
        #[command(flatten)]
        of: BrokerArgs,
    },
    /// Show a connected client.
    Show {
        /// The client id.
        client: String,
        #[command(flatten)]
        of: BrokerArgs,
    },
    /// Show the packets of a client in both directions, with refusals, drops and their reasons, but
    /// no payloads. At most 500 a second, until you interrupt the command. The client need not be
    /// connected.
    Trace {
        /// The client id.
        client: String,
        #[command(flatten)]
        of: BrokerArgs,
    },
    /// Close a client's connection. It may reconnect.
    #[command(visible_alias = "kick")]
    Disconnect {
        /// The client id.
        client: String,
        #[command(flatten)]
        of: BrokerArgs,
    },
    /// Refuse a client, a user or addresses, and close their connections.
    #[command(group(clap::ArgGroup::new("who").required(true).args(["client", "user", "address"])))]
    Ban {
        /// Name of the ban.
        name: String,
        /// The client with this client id.
        #[arg(long, value_name = "ID")]
        client: Option<String>,
        /// All clients of this user.
        #[arg(long, value_name = "NAME")]
        user: Option<String>,
        /// All clients at this address or in this network, such as 192.0.2.0/24.
        #[arg(long, value_name = "ADDRESS")]
        address: Option<String>,
        /// Seconds after which the ban ends.
        #[arg(long, value_name = "SECONDS", value_parser = whole_number::<u64>(1, 3_155_760_000))]
        for_s: Option<u64>,
        /// Reason, which people see.
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        #[command(flatten)]
        of: BrokerArgs,
    },
    /// List bans.
    Bans {
        #[command(flatten)]
        limit: ListLimit,
        #[command(flatten)]
        of: BrokerArgs,
    },
    /// End a ban.
    Unban {
        /// Name of the ban.
        name: String,
        #[command(flatten)]
        of: BrokerArgs,
    },
}
