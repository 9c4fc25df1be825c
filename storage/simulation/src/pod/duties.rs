//! Background work of a pod: it renews its lease, recovers the sessions of dead pods, fires wills,
//! ends sessions, keeps streams short, and removes unreferenced rows. Transactions that may run twice use `read`, though
//! they write; those that publish use `transact`.

use bytes::Bytes;
use millrace_layers::{
    BrokerId, LayerError, LayerResult, Position, due,
    pods::{self, Pod as Lease},
    sessions::{self, OwnedSession, SessionId},
    streams::{self, LossReason, StreamLimits, Totals},
    subscriptions,
};
use millrace_storage::{Read, Transaction};

use super::{Done, Pod, sessions::will_id};
use crate::{
    history::MessageId,
    plan::{LEASE_MS, LIMITED, Plant},
};

/// Few, so that there are several pages.
const PAGE: usize = 4;
/// Limits of a limited stream.
const KEEP: Totals = Totals { entries: 30, bytes: 60_000 };
const KEEP_MS: u64 = 20_000;

impl Pod {
    /// Ends connections that an earlier run under this name left open.
    pub(super) async fn start(&self) {
        // After an error, other pods do this when the lease expires.
        if self.end_connections().await.is_err() {
            self.history.borrow_mut().count("failed operations");
        }
    }

    async fn end_connections(&self) -> Done {
        self.abandon_all(&self.name).await?;
        self.free_claims(&self.name).await
    }

    /// Renews the lease, and checks the others.
    pub(super) async fn look(&self, now_ms: u64) -> Done {
        let name = self.name.as_bytes();
        let leases = self
            .read(async |tx| {
                pods::renew(tx, name, now_ms + LEASE_MS)?;
                pods::list(tx).await
            })
            .await?;
        self.renewed_ms.set(now_ms);
        for lease in leases.iter().filter(|lease| lease.until_ms < now_ms && lease.name != name) {
            self.recover(lease).await?;
        }
        Ok(())
    }

    pub(crate) async fn recover(&self, lease: &Lease) -> Done {
        let name = String::from_utf8_lossy(&lease.name).into_owned();
        self.history.borrow_mut().count("pods recovered");
        self.abandon_all(&name).await?;
        self.free_claims(&name).await?;
        self.read(async |tx| pods::remove(tx, lease).await).await
    }

    async fn abandon_all(&self, dead: &str) -> Done {
        let mut last: Option<OwnedSession> = None;
        loop {
            let from = last.as_ref().map(OwnedSession::id);
            let page =
                self.read(async |tx| sessions::of_owner(tx, dead.as_bytes(), from, PAGE).await).await?;
            let Some(end) = page.last().cloned() else { return Ok(()) };
            let (wills, _) = self.transact(async |tx| self.abandon(tx, dead, &page).await).await?;
            self.publish_late(wills).await?;
            last = Some(end);
        }
    }

    /// Takes sessions from a dead pod, notifies that pod in case that it lives, and fires their
    /// wills.
    async fn abandon(
        &self,
        tx: &Transaction,
        dead: &str,
        page: &[OwnedSession],
    ) -> LayerResult<Vec<MessageId>> {
        let (mut late, mut number) = (Vec::new(), 0);
        for owned in page {
            if dead != self.name {
                let record = sessions::get(tx, owned.id(), Read::Snapshot).await?;
                pods::notify_lost(tx, dead.as_bytes(), owned.id(), record.map_or(0, |record| record.epoch))?;
            }
            let left = sessions::abandon(tx, owned.id(), dead.as_bytes(), self.world.now_ms()).await?;
            if let Some(will) = left.will {
                self.fire(tx, &will, &mut number, &mut late).await?;
            }
        }
        Ok(late)
    }

    /// Publishes a will in the transaction that took it. The planted fault uses another
    /// transaction.
    async fn fire(
        &self,
        tx: &Transaction,
        will: &Bytes,
        number: &mut u16,
        late: &mut Vec<MessageId>,
    ) -> Done {
        *number += 1;
        if self.plant == Some(Plant::Wills) {
            late.push(will_id(will)?);
            return Ok(());
        }
        self.write(tx, will_id(will)?, *number).await
    }

    async fn publish_late(&self, wills: Vec<MessageId>) -> Done {
        for will in wills {
            self.world.pause_ms(self.world.below(5_000)).await;
            self.transact(async |tx| self.write(tx, will, 1).await).await?;
        }
        Ok(())
    }

    pub(crate) async fn free_claims(&self, dead: &str) -> Done {
        loop {
            self.history.borrow_mut().recovers(dead);
            let freed = self.read(async |tx| streams::free_all(tx, dead.as_bytes(), 1).await).await?;
            if freed.is_empty() {
                return Ok(());
            }
        }
    }

    pub(super) async fn sweep_due(&self) -> Done {
        self.sweep_due_at(self.world.now_ms()).await
    }

    pub(crate) async fn sweep_due_at(&self, now_ms: u64) -> Done {
        for shard in 0..due::SHARDS {
            while self.is_due(shard, now_ms).await? {
                let (wills, _) = self.transact(async |tx| self.settle_due(tx, shard, now_ms).await).await?;
                self.publish_late(wills).await?;
            }
        }
        Ok(())
    }

    async fn is_due(&self, shard: u8, now_ms: u64) -> LayerResult<bool> {
        let due =
            self.read(async |tx| due::list_due(tx, due::DueRange::until(shard, now_ms), 1).await).await?;
        Ok(!due.is_empty())
    }

    async fn settle_due(&self, tx: &Transaction, shard: u8, now_ms: u64) -> LayerResult<Vec<MessageId>> {
        let (mut late, mut number) = (Vec::new(), 0);
        for due in due::take_due(tx, due::DueRange::until(shard, now_ms), PAGE).await? {
            if let Some(will) = sessions::settle(tx, &due, now_ms).await?.will {
                self.fire(tx, &will, &mut number, &mut late).await?;
            }
        }
        Ok(late)
    }

    /// Gives up the sessions that other pods have taken, as the notices in the store say.
    pub(super) async fn listen(&self) -> Done {
        let name = self.name.as_bytes();
        let told = self.read(async |tx| pods::lost_sessions(tx, name, 100).await).await?;
        self.sessions.borrow_mut().retain(|(broker, client), mine| {
            let is_lost = |id: SessionId<'_>, epoch| id == mine.id() && epoch >= mine.epoch;
            debug_assert_eq!((*broker, *client), (mine.broker, mine.client));
            !told.iter().any(|lost| is_lost(lost.session.id(), lost.epoch))
        });
        self.read(async |tx| pods::acknowledge_lost(tx, name, &told).await).await
    }

    /// Trims even before every session has read.
    pub(super) async fn limit_streams(&self) -> Done {
        let broker = self.broker();
        let streams = self.read(async |tx| streams::list(tx, broker, None, 1_000).await).await?;
        let now_ms = self.world.now_ms();
        let before_ms = now_ms.saturating_sub(KEEP_MS);
        let limits = StreamLimits { now_ms, before_ms, keep: KEEP, over_keep: LossReason::Size };
        let is_limited = |name: &Bytes| LIMITED.iter().any(|limited| limited.as_bytes() == name);
        for (stream, row) in streams {
            if !is_limited(&row.name) {
                continue;
            }
            let removed = self.store.limit_stream(broker, stream, limits, 7).await;
            let mut history = self.history.borrow_mut();
            if let Ok(removed) = removed {
                history.count("trims by limits");
                history.trimmed += removed.entries;
            }
        }
        Ok(())
    }

    pub(crate) async fn clean_up(&self) -> Done {
        let broker = self.broker();
        self.clean(broker).await
    }

    pub(crate) async fn clean(&self, broker: BrokerId) -> Done {
        let mut from = None;
        loop {
            let swept = self.read(async |tx| subscriptions::sweep(tx, broker, from, PAGE).await).await?;
            from = swept.next;
            if from.is_none() {
                break;
            }
        }
        let mut from = Some(streams::DroppedFrom::default());
        while let Some(begin) = from {
            from = self.read(async |tx| streams::sweep_dropped(tx, broker, &begin, 20).await).await?.next;
        }
        let mut from = Some(Position::MIN);
        while let Some(begin) = from {
            from = self.read(async |tx| streams::sweep_bodies(tx, broker, begin, 10).await).await?.next;
        }
        Ok::<_, LayerError>(())
    }
}
