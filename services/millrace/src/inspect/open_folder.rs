//! Answers requests about a data folder that this process has open.

use std::future::Future;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use millrace_layers::{BrokerId, Store, catalog};
use millrace_storage::{Embedded, Read, Transaction, block_on};

use super::request::{InspectRequest, SocketCall};
use super::rows::InspectRow;
use super::{audit, backup, retained, sessions, streams};
use crate::running::LiveChanges;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AnswerError {
    /// Says what happened and what to do.
    Failed(String),
    /// The reader of the answer is gone.
    NobodyReads,
}

/// Receives rows; an error ends the answer.
pub(super) type RowSink<'a> = &'a mut dyn FnMut(InspectRow) -> Result<(), AnswerError>;

pub(super) struct OpenFolder {
    pub(super) folder: PathBuf,
    pub(super) embedded: Embedded,
    pub(super) layers: Store,
    /// Set in the process of a running server.
    pub(super) live: Option<Arc<dyn LiveChanges>>,
    /// Held while a backup is made.
    pub(super) one_backup: Mutex<()>,
}

impl OpenFolder {
    pub(super) fn new(folder: PathBuf, embedded: Embedded, live: Option<Arc<dyn LiveChanges>>) -> Self {
        let layers = Store::new(embedded.database());
        Self { folder, embedded, layers, live, one_backup: Mutex::default() }
    }

    /// Returns the key after which a list continues, if it reached its limit.
    pub(super) fn answer(&self, call: &SocketCall, out: RowSink<'_>) -> Result<Option<String>, AnswerError> {
        let mut count = 0;
        let answered = self.perform(&call.request, &mut |row| {
            count += audit::count(&row);
            out(row)
        });
        // A request that has failed may have changed something before, and its rows say what.
        if count > 0 {
            audit::note(self, call, count)?;
        }
        answered
    }

    fn perform(&self, request: &InspectRequest, out: RowSink<'_>) -> Result<Option<String>, AnswerError> {
        match request {
            InspectRequest::ListSessions { broker, after, limit } => {
                return sessions::list(self, self.broker(broker)?, after.as_deref(), *limit, out);
            }
            InspectRequest::ShowSession { broker, client_id } => {
                sessions::show(self, self.broker(broker)?, client_id, out)?;
            }
            InspectRequest::PurgeSession { broker, client_id } => {
                sessions::purge(self, broker, self.broker(broker)?, client_id, out)?;
            }
            InspectRequest::PurgeExpired { broker } => {
                sessions::purge_expired(self, broker, self.broker(broker)?, out)?;
            }
            InspectRequest::ListStreams { broker, after, limit } => {
                return streams::list(self, self.broker(broker)?, *after, *limit, out);
            }
            InspectRequest::ShowStream { broker, filter, messages } => {
                streams::show(self, self.broker(broker)?, filter, *messages, out)?;
            }
            InspectRequest::PurgeStream { broker, filter } => {
                streams::purge(self, self.broker(broker)?, filter, out)?;
            }
            InspectRequest::ListRetained { broker, filter, after, limit } => {
                let broker = self.broker(broker)?;
                return retained::list(self, broker, filter.as_deref(), after.as_deref(), *limit, out);
            }
            InspectRequest::ShowRetained { broker, topic } => {
                retained::show(self, self.broker(broker)?, topic, out)?;
            }
            InspectRequest::PurgeRetained { broker, filter } => {
                retained::purge(self, broker, self.broker(broker)?, filter, out)?;
            }
            InspectRequest::Backup { target } => backup::backup(self, target, out)?,
        }
        Ok(None)
    }

    pub(super) fn run<T, F, Body>(&self, body: F) -> Result<T, AnswerError>
    where
        F: FnMut(Transaction) -> Body,
        Body: Future<Output = millrace_layers::LayerResult<T>>,
    {
        block_on(self.layers.run(body))
            .map_err(|error| AnswerError::Failed(format!("the store says: {error}")))
    }

    fn broker(&self, name: &str) -> Result<BrokerId, AnswerError> {
        let found = self.run(|tx| async move { catalog::get(&tx, name.as_bytes(), Read::Snapshot).await })?;
        found.map(|broker| broker.id).ok_or_else(|| {
            AnswerError::Failed(format!(
                "there is no broker \"{name}\" in {}: name another with --broker",
                self.folder.display()
            ))
        })
    }
}
