//! The command line of `millrace webhooks`.

use clap::Subcommand;

use super::{Limit, OfBroker, Sure};

#[derive(Debug, Subcommand)]
pub(in crate::remote) enum WebhooksCommand {
    /// List webhooks.
    List {
        #[command(flatten)]
        limit: Limit,
        #[command(flatten)]
        of: OfBroker,
    },
    /// Show a webhook.
    Show {
        /// Its name.
        name: String,
        #[command(flatten)]
        of: OfBroker,
    },
    /// List the last 100 attempts to deliver, the latest first.
    Deliveries {
        /// Name of the webhook.
        name: String,
        #[command(flatten)]
        of: OfBroker,
    },
    /// Make or replace a webhook; standard input has its settings in JSON, as in the API.
    Put {
        /// Its name.
        name: String,
        #[command(flatten)]
        of: OfBroker,
    },
    /// Delete a webhook.
    Delete {
        /// Its name.
        name: String,
        #[command(flatten)]
        sure: Sure,
        #[command(flatten)]
        of: OfBroker,
    },
}
