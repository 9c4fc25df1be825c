//! Runs common transactions of one or two functions, and sweeps in pieces.

use std::future::Future;

use bytes::Bytes;
use millrace_storage::{Database, Read, Transaction, TransactionOption};

use crate::{
    BrokerId,
    catalog::{self, BrokerRecord},
    due::{self, Due, DueRange},
    error::{LayerError, LayerResult},
    position::Position,
    positions::Positions,
    retained,
    sessions::{self, Attach, Attached, Detach, SessionId},
    streams::{
        self, DroppedFrom, LossCause, LossReason, NewEntry, ReadLimit, StreamBatch, StreamId, StreamLimits,
        StreamRef, StreamSource, Totals, Trimmed,
    },
    subscriptions::{self, StoredOptions, Subscribed, SweptFilters},
};

#[derive(Clone)]
pub struct Store {
    database: Database,
}

impl Store {
    #[must_use]
    pub fn new(database: Database) -> Self {
        Self { database }
    }

    #[must_use]
    pub fn database(&self) -> &Database {
        &self.database
    }

    pub async fn run<T, F, Body>(&self, mut body: F) -> LayerResult<T>
    where
        F: FnMut(Transaction) -> Body,
        Body: Future<Output = LayerResult<T>>,
    {
        self.database.run(|tx, _| body(tx)).await
    }

    /// Runs a piece of a sweep, of `size` rows. A piece that can be halved is not repeated after a conflict, or when it
    /// became too old, because it would take as long again.
    ///
    /// # Errors
    /// [`LayerError::Contended`], the error of `body`, or the store's.
    pub async fn run_piece<T, F, Body>(&self, size: usize, mut body: F) -> LayerResult<T>
    where
        F: FnMut(Transaction) -> Body,
        Body: Future<Output = LayerResult<T>>,
    {
        let run = self.database.run(|tx, attempt| {
            let piece = (size <= 1 || attempt.conflicts == 0).then(|| body(tx));
            async move {
                match piece {
                    Some(piece) => piece.await,
                    None => Err(LayerError::Contended(attempt.conflicts)),
                }
            }
        });
        run.await
    }

    pub async fn ensure_broker(&self, name: &[u8]) -> LayerResult<BrokerRecord> {
        self.run(|tx| async move { Ok(catalog::ensure(&tx, name, Bytes::new()).await?.0) }).await
    }

    /// Runs [`sessions::attach`]; not for sessions with a will, which would have to be published in the same
    /// transaction.
    pub async fn attach(&self, id: SessionId<'_>, request: &Attach) -> LayerResult<Attached> {
        self.run(|tx| async move { sessions::attach(&tx, id, request.clone()).await }).await
    }

    pub async fn checkpoint(&self, id: SessionId<'_>, epoch: u64, cursor: Position) -> LayerResult<()> {
        self.run(|tx| async move {
            sessions::checkpoint(&sessions::fence(&tx, id, epoch).await?, cursor, &Positions::default())
        })
        .await
    }

    /// Runs [`sessions::detach`]; not for sessions with a will, which would have to be published in the same
    /// transaction.
    pub async fn detach(&self, id: SessionId<'_>, epoch: u64, how: Detach) -> LayerResult<Option<Bytes>> {
        self.run(|tx| async move { sessions::detach(sessions::fence(&tx, id, epoch).await?, how).await })
            .await
    }

    pub async fn subscribe(
        &self,
        id: SessionId<'_>,
        epoch: u64,
        filter: &[u8],
        options: StoredOptions,
    ) -> LayerResult<Subscribed> {
        self.run(|tx| async move {
            let owned = sessions::fence(&tx, id, epoch).await?;
            subscriptions::subscribe(&owned, filter, options).await
        })
        .await
    }

    pub async fn unsubscribe(&self, id: SessionId<'_>, epoch: u64, filter: &[u8]) -> LayerResult<bool> {
        self.run(|tx| async move {
            let owned = sessions::fence(&tx, id, epoch).await?;
            subscriptions::unsubscribe(&owned, filter).await
        })
        .await
    }

    /// [`streams::append`] to known streams.
    pub async fn append(&self, broker: BrokerId, to: &[StreamRef], publish: NewEntry<'_>) -> LayerResult<()> {
        self.run(|tx| async move { streams::append(&tx, broker, to, publish) }).await
    }

    pub async fn read(
        &self,
        broker: BrokerId,
        sources: &[StreamSource],
        cursor: Position,
        limit: ReadLimit,
    ) -> LayerResult<StreamBatch> {
        self.run(|tx| async move { streams::read(&tx, broker, sources, cursor, limit).await }).await
    }

    /// [`Self::limit_stream_some`] until the stream is within its limits.
    pub async fn limit_stream(
        &self,
        broker: BrokerId,
        stream: StreamId,
        limits: StreamLimits,
        entries_per_transaction: usize,
    ) -> LayerResult<Totals> {
        let mut removed = Totals::default();
        loop {
            let some = self.limit_stream_some(broker, stream, limits, entries_per_transaction).await?;
            removed.entries += some.removed.entries;
            removed.bytes += some.removed.bytes;
            if !some.more {
                return Ok(removed);
            }
        }
    }

    /// [`streams::trim_by_age`], then [`streams::trim_by_size`], each in one transaction of up to `entries` entries; after
    /// a failure the transaction is repeated with fewer.
    pub async fn limit_stream_some(
        &self,
        broker: BrokerId,
        stream: StreamId,
        limits: StreamLimits,
        entries: usize,
    ) -> LayerResult<Trimmed> {
        let StreamLimits { now_ms: at_ms, before_ms, keep, over_keep } = limits;
        let too_old = LossCause { reason: LossReason::Age, at_ms };
        let too_many = LossCause { reason: over_keep, at_ms };
        let most = entries.max(1);
        // A nearly full disk still accepts trims, because they free space.
        let mut limit = most;
        let by_age = loop {
            let piece = self.run_piece(limit, |tx: Transaction| async move {
                tx.set_option(TransactionOption::FreesSpace);
                streams::trim_by_age(&tx, broker, stream, before_ms, limit, too_old).await
            });
            if let Some(trimmed) = resized(piece.await, &mut limit, most)? {
                break trimmed;
            }
        };
        if by_age.more {
            return Ok(by_age);
        }
        let mut limit = most;
        let mut trimmed = loop {
            let piece = self.run_piece(limit, |tx: Transaction| async move {
                tx.set_option(TransactionOption::FreesSpace);
                streams::trim_by_size(&tx, broker, stream, keep, limit, too_many).await
            });
            if let Some(trimmed) = resized(piece.await, &mut limit, most)? {
                break trimmed;
            }
        };
        trimmed.removed.entries += by_age.removed.entries;
        trimmed.removed.bytes += by_age.removed.bytes;
        Ok(trimmed)
    }

    pub async fn retained(
        &self,
        broker: BrokerId,
        filter: &[u8],
        from: Option<&retained::Bookmark>,
        limit: usize,
    ) -> LayerResult<retained::RetainedPage> {
        self.run(
            |tx| async move { retained::matching(&tx, broker, filter, from, limit, Read::Snapshot).await },
        )
        .await
    }

    /// Settles up to `limit` due times of a shard and returns their number: at `limit` there may be more. `publish`
    /// publishes the wills that fire, in the same transaction.
    ///
    /// # Errors
    /// The store's, and those of `publish`.
    pub async fn sweep_due<F, Published>(
        &self,
        shard: u8,
        now_ms: u64,
        limit: usize,
        publish: F,
    ) -> LayerResult<usize>
    where
        F: Fn(Transaction, Due, Bytes) -> Published,
        Published: Future<Output = LayerResult<()>>,
    {
        let publish = &publish;
        self.run(|tx| async move {
            let taken = due::take_due(&tx, DueRange::until(shard, now_ms), limit).await?;
            let count = taken.len();
            for due in taken {
                if let Some(will) = sessions::settle(&tx, &due, now_ms).await?.will {
                    publish(tx.clone(), due, will).await?;
                }
            }
            Ok(count)
        })
        .await
    }

    /// [`subscriptions::sweep`], [`streams::sweep_dropped`] and [`streams::sweep_bodies`] over a whole broker, `limit`
    /// rows a transaction; returns the numbers of removed filters, entries and bodies.
    pub async fn sweep(&self, broker: BrokerId, limit: usize) -> LayerResult<(usize, usize, usize)> {
        let (mut filters, mut entries, mut bodies) = (0, 0, 0);
        let mut from = None;
        loop {
            let swept: SweptFilters =
                self.run(|tx| async move { subscriptions::sweep(&tx, broker, from, limit).await }).await?;
            filters += swept.removed;
            from = swept.next;
            if from.is_none() {
                break;
            }
        }
        let mut from = Some(DroppedFrom::default());
        while let Some(begin) = from {
            let begin = &begin;
            let swept =
                self.run(|tx| async move { streams::sweep_dropped(&tx, broker, begin, limit).await }).await?;
            entries += swept.removed;
            from = swept.next;
        }
        let mut from = Some(Position::MIN);
        while let Some(after) = from {
            let swept =
                self.run(|tx| async move { streams::sweep_bodies(&tx, broker, after, limit).await }).await?;
            bodies += swept.removed;
            from = swept.next;
        }
        Ok((filters, entries, bodies))
    }
}

/// Returns the result of a piece of a sweep, or `None` when the piece must be tried again. Sets the size of the next
/// piece: as [`halved`] after an error, and up to `most` again after that.
pub fn resized<T>(piece: LayerResult<T>, size: &mut usize, most: usize) -> LayerResult<Option<T>> {
    match piece {
        Ok(done) => {
            *size = size.saturating_mul(2).min(most);
            Ok(Some(done))
        }
        Err(error) => halved(error, size).map(|()| None),
    }
}

/// Sets the size of the next piece of a sweep after an error: half, because less work may succeed.
///
/// # Errors
/// The error of a piece of size 1, or of a store that is closed or unavailable.
pub fn halved(error: LayerError, size: &mut usize) -> LayerResult<()> {
    use millrace_storage::StoreError::{Closed, Unavailable};
    if *size <= 1 || matches!(error, LayerError::Store(Closed | Unavailable(_))) {
        return Err(error);
    }
    *size /= 2;
    Ok(())
}

#[cfg(test)]
mod tests {
    use millrace_storage::{StoreError, block_on};

    use super::*;

    #[test]
    fn a_piece_that_is_too_old_is_tried_again_only_when_it_cannot_be_smaller() {
        let store = Store::new(Database::memory());
        let attempts = |size| {
            let mut attempts = 0;
            let failed = block_on(store.run_piece(size, |_| {
                attempts += 1;
                async { Err::<(), _>(StoreError::TooOld.into()) }
            }));
            assert!(failed.is_err());
            attempts
        };
        assert_eq!((attempts(500), attempts(2)), (1, 1));
        assert!(attempts(1) > 1);
    }

    #[test]
    fn a_sweep_that_fails_goes_on_with_smaller_pieces() {
        let mut size = 500;
        let failed = |size: &mut usize, error: StoreError| resized::<()>(Err(error.into()), size, 500);
        for error in [StoreError::TransactionTooLarge, StoreError::TooOld, StoreError::Io("broken".into())] {
            assert_eq!(failed(&mut size, error).unwrap(), None);
        }
        assert_eq!(size, 62);
        assert!(failed(&mut size, StoreError::Unavailable("away".into())).is_err());
        assert_eq!(resized(Ok(7), &mut size, 500).unwrap(), Some(7));
        assert_eq!(size, 124);
        size = 1;
        assert!(failed(&mut size, StoreError::TransactionTooLarge).is_err());
    }
}
