//! The command line of `millrace webhooks`.

use clap::Subcommand;

use super::{BrokerArgs, ListLimit, Sure};
use crate::limits::whole_number;

#[derive(Debug, Subcommand)]
pub(in crate::remote) enum WebhooksCommand {
    /// List webhooks.
    List {
        #[command(flatten)]
        limit: ListLimit,
        #[command(flatten)]
        of: BrokerArgs,
    },
    /// Show a webhook.
    Show {
        /// Name of the webhook.
        name: String,
        #[command(flatten)]
        of: BrokerArgs,
    },
    /// Show the state of a webhook: its queue, its last failure, the next attempt.
    Status {
        /// Name of the webhook.
        name: String,
        #[command(flatten)]
        of: BrokerArgs,
    },
    /// List the last 100 attempts to deliver, the latest first.
    Deliveries {
        /// Name of the webhook.
        name: String,
        #[command(flatten)]
        of: BrokerArgs,
    },
    /// Send an event of type millrace.webhook.test, and try the queue at once.
    Test {
        /// Name of the webhook.
        name: String,
        #[command(flatten)]
        of: BrokerArgs,
    },
    /// Make a new key that signs events, and show it once.
    RotateKey {
        /// Name of the webhook.
        name: String,
        /// Seconds for which the former key also signs.
        #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = whole_number::<u32>(0, 2_592_000))]
        overlap_s: u32,
        #[command(flatten)]
        of: BrokerArgs,
    },
    /// List the events that could not be delivered.
    DeadLetters {
        /// Name of the webhook.
        name: String,
        #[command(flatten)]
        limit: ListLimit,
        #[command(flatten)]
        of: BrokerArgs,
    },
    /// Send all dead letters of a webhook again.
    Retry {
        /// Name of the webhook.
        name: String,
        #[command(flatten)]
        of: BrokerArgs,
    },
    /// Create or replace a webhook; standard input has its settings in JSON, as in the API.
    Put {
        /// Name of the webhook.
        name: String,
        #[command(flatten)]
        of: BrokerArgs,
    },
    /// Delete a webhook.
    Delete {
        /// Name of the webhook.
        name: String,
        #[command(flatten)]
        sure: Sure,
        #[command(flatten)]
        of: BrokerArgs,
    },
}
