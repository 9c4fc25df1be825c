//! The command lines of the commands that look into a store.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::limits::whole_number;
use crate::store::ClusterArgs;

#[derive(Clone, Debug, Args)]
pub(crate) struct FolderArgs {
    /// The data folder [default: the one of `millrace serve`: MILLRACE_DATA_DIR, the settings
    /// file, ./data].
    #[arg(long, value_name = "DIR")]
    pub(super) data_dir: Option<PathBuf>,

    /// TOML file with the server's settings; also MILLRACE_CONFIG.
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    pub(super) folder: FolderArgs,

    /// Name of the broker.
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub(super) broker: String,

    /// Write one JSON object a line; times are milliseconds since 1970.
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Remote {
    /// Ask the service that you are logged in to, instead of a data folder.
    #[arg(long, conflicts_with_all = ["data_dir", "config"])]
    pub(super) api: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct RowLimit {
    /// Rows to show at most.
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = whole_number::<usize>(1, 100_000_000))]
    pub(super) limit: usize,
}

#[derive(Debug, Args)]
pub(crate) struct SessionsArgs {
    #[command(subcommand)]
    pub(super) what: SessionsCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum SessionsCommand {
    /// List sessions in order of client ids.
    List {
        #[command(flatten)]
        look: InspectArgs,
        #[command(flatten)]
        remote: Remote,
        #[command(flatten)]
        limit: RowLimit,
        /// Start after this client id.
        #[arg(long, value_name = "CLIENT", conflicts_with = "api")]
        after: Option<String>,
    },
    /// Show a session, its subscriptions and its messages in flight.
    Show {
        /// The client id.
        client: String,
        #[command(flatten)]
        look: InspectArgs,
        #[command(flatten)]
        remote: Remote,
    },
    /// End a session: its subscriptions and queued messages are removed.
    ///
    /// Its will is published only if a server is running.
    #[command(group(clap::ArgGroup::new("which").required(true).args(["client", "all_expired"])))]
    #[command(visible_alias = "purge")]
    Clear {
        /// The client id.
        client: Option<String>,
        /// End all sessions that have expired, instead of one.
        #[arg(long, conflicts_with = "api")]
        all_expired: bool,
        /// Do not ask for confirmation.
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        look: InspectArgs,
        #[command(flatten)]
        remote: Remote,
    },
}

#[derive(Debug, Args)]
pub(crate) struct StreamsArgs {
    #[command(subcommand)]
    pub(super) what: StreamsCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum StreamsCommand {
    /// List streams: each filter that sessions subscribe to has one, and keeps its messages there.
    List {
        #[command(flatten)]
        look: InspectArgs,
        #[command(flatten)]
        limit: RowLimit,
        /// Start after this id: streams are in order of ids.
        #[arg(long, value_name = "ID")]
        after: Option<u64>,
    },
    /// Show a stream and its first messages, as they are stored.
    Show {
        /// The filter, with its $share/group/.
        filter: String,
        /// Messages to show.
        #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = whole_number::<usize>(0, 10_000))]
        messages: usize,
        #[command(flatten)]
        look: InspectArgs,
    },
    /// Remove all messages of a stream, also unread ones. Metrics count them as trimmed.
    Purge {
        /// The filter, with its $share/group/.
        filter: String,
        /// Do not ask for confirmation.
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        look: InspectArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RetainedArgs {
    #[command(subcommand)]
    pub(super) what: RetainedCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum RetainedCommand {
    /// List retained messages in order of the levels of their topics.
    List {
        /// Only retained messages whose topics match this filter.
        filter: Option<String>,
        #[command(flatten)]
        look: InspectArgs,
        #[command(flatten)]
        remote: Remote,
        #[command(flatten)]
        limit: RowLimit,
        /// Start after this topic.
        #[arg(long, value_name = "TOPIC", conflicts_with = "api")]
        after: Option<String>,
    },
    /// Show the retained message of a topic.
    Show {
        /// The topic.
        topic: String,
        /// Write the payload as it is, and nothing else.
        #[arg(long, conflicts_with_all = ["json", "api"])]
        raw: bool,
        #[command(flatten)]
        look: InspectArgs,
        #[command(flatten)]
        remote: Remote,
    },
    /// Remove the retained message of a topic, or all that match a filter. Subscribers are not
    /// notified.
    #[command(visible_alias = "purge")]
    Clear {
        /// The topic or filter.
        filter: String,
        /// Do not ask for confirmation.
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        look: InspectArgs,
        #[command(flatten)]
        remote: Remote,
    },
}

pub(crate) const BACKUP_HELP: &str = "\
Examples:
  millrace backup /var/lib/millrace-backups/monday
  millrace backup file:///mnt/backups --fdb-cluster-file /etc/foundationdb/fdb.cluster

A URL copies a FoundationDB cluster, with the keys of all prefixes, at one version: file:///FOLDER on a
disk that all backup agents have, or blobstore://HOST/NAME?bucket=BUCKET. It takes fdbbackup, and a
backup_agent that runs on the cluster. The fdb settings also come from MILLRACE_CONFIG and the other
variables of `millrace serve`. When this command is interrupted, the agents continue with the copy:
`fdbbackup abort -t millrace-once` ends it.";

pub(crate) const RESTORE_HELP: &str = "\
Examples:
  millrace restore /var/lib/millrace-backups/monday --data-dir ./restored
  millrace restore file:///mnt/backups/backup-2026-11-29-15-42-15.074928 --fdb-cluster-file fdb.cluster

A URL, as `millrace backup` printed it, fills a FoundationDB cluster that has no keys. It takes
fdbbackup, fdbrestore, and a backup_agent that runs on the cluster. When this command is interrupted,
the agents continue: `fdbrestore abort -t millrace-once` ends it.";

#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    /// The folder to create; it must not exist yet. A running server makes it, as its own user. Or the
    /// URL for the copy of a cluster.
    pub(super) target: PathBuf,
    #[command(flatten)]
    pub(super) copy: CopyArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// The folder that `millrace backup` made, or the URL that it printed.
    pub(super) source: PathBuf,
    #[command(flatten)]
    pub(super) copy: CopyArgs,
}

/// Flags of a backup and of a restore.
#[derive(Debug, Args)]
pub(super) struct CopyArgs {
    #[command(flatten)]
    pub(super) folder: FolderArgs,
    /// Write one JSON object a line.
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) cluster: ClusterArgs,
    /// FoundationDB: file with the keys of the object storage, as JSON; also FDB_BLOB_CREDENTIALS. The
    /// backup agents need the same file.
    #[arg(long, value_name = "FILE")]
    pub(super) blob_credentials: Option<PathBuf>,
}
