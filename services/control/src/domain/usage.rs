//! What a broker has used.

use millrace_layers::usage::{self, Counter};
use millrace_storage::Read;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{BrokerRef, Caller, Control, Permission, Result, brokers};

/// What a broker has used since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Usage {
    /// Messages that were published with a promise to store them.
    pub published_messages: u64,
    /// Their bytes.
    pub published_bytes: u64,
    /// Messages that were delivered out of the store.
    pub delivered_messages: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// Stored messages that a limit removed.
    pub trimmed_messages: u64,
    /// Their bytes.
    pub trimmed_bytes: u64,
    /// Messages that sessions missed because they were removed before they were read.
    pub missed_messages: u64,
}

impl Control {
    /// What a broker has used.
    ///
    /// # Errors
    /// See [`super::Error`].
    pub(crate) async fn usage(&self, caller: &Caller, at: &BrokerRef) -> Result<Usage> {
        self.look(|tx| async move {
            let id = brokers::find(&tx, caller, at, Permission::BrokersRead, Read::Snapshot).await?.id;
            let count = async |counter| usage::get(&tx, id, counter).await;
            Ok(Usage {
                published_messages: count(Counter::PublishedMessages).await?,
                published_bytes: count(Counter::PublishedBytes).await?,
                delivered_messages: count(Counter::DeliveredMessages).await?,
                delivered_bytes: count(Counter::DeliveredBytes).await?,
                trimmed_messages: count(Counter::TrimmedEntries).await?,
                trimmed_bytes: count(Counter::TrimmedBytes).await?,
                missed_messages: count(Counter::MissedEntries).await?,
            })
        })
        .await
    }
}
