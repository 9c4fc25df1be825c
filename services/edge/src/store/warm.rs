//! Prefetch: reads at once what the jobs of a transaction will read. A store across a network takes a fraction of a
//! millisecond per answer, so a thousand reads in sequence would take most of a second. The transaction caches each
//! answer.

use futures_util::future::join_all;
use millrace_layers::LayerError;
use millrace_layers::sessions::{self, SessionId};
use millrace_storage::Read;

use super::apply::Applier;
use super::{Job, SessionKey, Write};
use crate::broker::Broker;

impl Applier<'_> {
    /// Reads changed filters into the brokers' memory; other answers are dropped here, because the transaction has cached them.
    pub(super) async fn warm(&self, batch: &[Job]) -> Result<(), LayerError> {
        if !self.shared.is_shared {
            return Ok(());
        }
        // Another attempt notes whose filters have changed meanwhile.
        let is_wanted = |job: &&Job| self.is_retry || needs_filters(job);
        let brokers: Vec<&Broker> =
            batch.iter().filter(is_wanted).filter_map(|job| job.broker().map(|of| &**of)).collect();
        self.catch_up(&brokers).await?;
        if batch.len() < 2 {
            return Ok(());
        }
        join_all(batch.iter().map(|job| self.ask(&job.write))).await.into_iter().collect()
    }

    async fn ask(&self, write: &Write) -> Result<(), LayerError> {
        match write {
            Write::Publish(publish) => {
                if let Some(fence) = publish.fence.as_ref().filter(|fence| self.is_read(fence)) {
                    self.session(fence.session.id()).await?;
                }
                Ok(())
            }
            Write::Subscribe(subscribe) => self.owned(&subscribe.session).await,
            Write::Unsubscribe(unsubscribe) => self.owned(&unsubscribe.session).await,
            Write::Ids(ids) => self.owned(&ids.session).await,
            Write::Checkpoint(checkpoint) => self.owned(&checkpoint.session).await,
            Write::Detach(detach) => self.owned(&detach.session).await,
            // The rest reads concurrently in [`Applier::all`], or nothing.
            Write::Attach(_)
            | Write::Purge(_)
            | Write::Webhooks(_)
            | Write::Grown(..)
            | Write::Shared(_)
            | Write::Barrier { .. }
            | Write::Notices
            | Write::Confirmed { .. } => Ok(()),
        }
    }

    async fn owned(&self, session: &SessionKey) -> Result<(), LayerError> {
        self.session(session.id()).await
    }

    async fn session(&self, id: SessionId<'_>) -> Result<(), LayerError> {
        // A snapshot read adds no conflict; the job that uses the value decides about that.
        sessions::get(self.tx, id, Read::Snapshot).await.map(drop)
    }
}

fn needs_filters(job: &Job) -> bool {
    matches!(
        job.write,
        Write::Publish(_)
            | Write::Grown(..)
            | Write::Webhooks(_)
            | Write::Attach(_)
            | Write::Detach(_)
            | Write::Purge(_)
    )
}
