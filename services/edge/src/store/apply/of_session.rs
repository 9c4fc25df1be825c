//! Writes the jobs of sessions in the writer's transaction: attach, subscribe, packet ids, checkpoints.

use std::collections::BTreeMap;

use bytes::Bytes;
use millrace_layers::metering::{self};
use millrace_layers::qos2::{self, Direction};
use millrace_layers::sessions::{self, SessionId};
use millrace_layers::streams::{self, StreamId};
use millrace_layers::subscriptions;
use millrace_layers::{BrokerId, LayerError, Position, pods};
use millrace_mqtt::PacketId;
use millrace_session::InFlight;
use millrace_storage::Read;

use crate::encoding::owner;
use crate::quota::Limit;
use crate::store::bugs::{WriterBug, has_bug};
use crate::store::trims::{TRIMMED_MAX, room_for};
use crate::store::{
    AttachWrite, AttachedSession, Checkpoint, IdWrite, Ids, Purge, SessionKey, StreamKey, SubscribeWrite,
    UnsubscribeWrite, inflight, record,
};

use super::{Applier, HAND_OVER_MS, WriteOutcome};

impl Applier<'_> {
    /// The epoch that shows the ownership of a session.
    pub(super) async fn epoch(&self, session: &SessionKey) -> Result<u64, LayerError> {
        if has_bug(WriterBug::SkipsFence) {
            let record = sessions::get(self.tx, session.id(), Read::Snapshot).await?;
            return Ok(record.map_or(session.epoch, |record| record.epoch));
        }
        Ok(session.epoch)
    }

    pub(super) async fn attach(&self, attach: &AttachWrite) -> Result<WriteOutcome, LayerError> {
        let AttachWrite { broker, client, .. } = attach;
        let id = SessionId { broker: broker.id, client: client.as_bytes() };
        let old = sessions::get(self.tx, id, Read::Serializable).await?;
        let now_ms = self.shared.clock.unix_now_ms();
        // Checked before the session's owner is asked to release it.
        if is_of_another_user(attach, old.as_ref(), now_ms) {
            return Ok(WriteOutcome::OfAnotherUser);
        }
        if self.shared.is_shared
            && let Some((owner, epoch)) = self.elsewhere(attach, id, old.as_ref())?
        {
            return Ok(WriteOutcome::Elsewhere(owner, epoch));
        }
        let will_body =
            attach.will.as_ref().map(|(will, _)| Bytes::from(record::encode_will(will, attach.by_password)));
        let will_bytes = will_body.as_ref().map_or(0, Bytes::len) as u64;
        if let Some(limit) = self.reaches(attach, id, old.as_ref(), will_bytes).await? {
            return Ok(WriteOutcome::OverLimit(limit));
        }
        // An existing session continues, even if the client wants it for this connection only.
        let yields =
            |record: &sessions::SessionRecord| !attach.is_visitor && owner::is_visitor(&record.details);
        let ends =
            old.as_ref().is_some_and(|record| attach.clean || record.is_expired(now_ms) || yields(record));
        let goes_on = old.is_some() && !ends;
        let before = if ends { subscriptions::list(self.tx, id).await? } else { Vec::new() };
        // With several pods, a session that ends with its connection needs an owner, too (P5).
        let keeps = attach.expiry_s > 0 || attach.will.is_some() || goes_on || self.shared.is_shared;
        let left_by = old.as_ref().map(|record| record.details.clone()).unwrap_or_default();
        let (will, attached) = if keeps {
            self.take(attach, id, old, goes_on, will_body, now_ms).await?
        } else {
            let purged = sessions::purge(self.tx, id).await?;
            self.applied().count(broker).ended += usize::from(purged.is_some());
            (
                purged.and_then(|(_, will)| will),
                AttachedSession { client: client.clone(), ..AttachedSession::default() },
            )
        };
        if let Some(will) = will {
            self.will_of(broker, (client.as_bytes(), &left_by), &will).await?;
        }
        if !attached.present {
            self.note_changes(broker, before.iter().map(|subscription| &*subscription.filter)).await?;
        }
        Ok(WriteOutcome::Attached(Box::new(attached)))
    }

    /// Makes the session, or takes it over. Returns the will of the connection before, if it fires.
    async fn take(
        &self,
        attach: &AttachWrite,
        id: SessionId<'_>,
        old: Option<sessions::SessionRecord>,
        goes_on: bool,
        will_body: Option<Bytes>,
        now_ms: u64,
    ) -> Result<(Option<Bytes>, AttachedSession), LayerError> {
        let mut found = AttachedSession::default();
        // Before the writes of `take_over`, as its own reads.
        if goes_on {
            self.read_ids(id, &mut found).await?;
        }
        let delay_s = attach.will.as_ref().map_or(0, |(_, delay_s)| *delay_s);
        let will = will_body.map(|body| sessions::PendingWill { delay_s, body });
        let request = sessions::Attach {
            owner: Bytes::copy_from_slice(&self.shared.owner),
            clean: !goes_on,
            expiry_s: attach.expiry_s,
            now_ms,
            will,
            details: Some(owner::encode(attach.user.as_deref(), attach.is_visitor).into()),
        };
        let taken = sessions::take_over(self.tx, id, old, request).await?;
        if let Some((owner, epoch)) =
            taken.replaced.as_ref().filter(|(owner, _)| **owner != *self.shared.owner)
        {
            // The owner was asked under an earlier epoch, or did not release the session in time. Notified now, it
            // closes the connection even if that carries QoS 0 only and would never be fenced.
            pods::take_away(self.tx, owner, id, *epoch)?;
        }
        self.applied().count(&attach.broker).began += usize::from(!taken.existed);
        let attached = AttachedSession {
            client: attach.client.clone(),
            epoch: taken.epoch,
            expiry_s: attach.expiry_s,
            present: taken.present,
            subscriptions: taken.subscriptions,
            cursor: taken.record.cursor,
            acknowledged: taken.record.acknowledged,
            maybe_sent: taken.record.maybe_sent,
            ..found
        };
        Ok((taken.will, attached))
    }

    /// The limit that a session, or its will, would exceed. A session that is in the store already, `old`, has room.
    pub(super) async fn reaches(
        &self,
        attach: &AttachWrite,
        id: SessionId<'_>,
        old: Option<&sessions::SessionRecord>,
        will_bytes: u64,
    ) -> Result<Option<Limit>, LayerError> {
        let is_more = attach.expiry_s > 0 && old.is_none();
        if !is_more && will_bytes == 0 {
            return Ok(None);
        }
        let (limits, held) = (&self.shared.limits, metering::held(self.tx, id.broker).await?);
        if is_more && held.sessions >= limits.stored_sessions_per_broker_max.into() {
            return Ok(Some(Limit::BrokerSessions));
        }
        if will_bytes == 0 || held.will_bytes + will_bytes <= limits.will_bytes_per_broker_max {
            return Ok(None);
        }
        let former = match old {
            Some(old) => sessions::will_bytes(self.tx, id, old).await?,
            None => 0,
        };
        Ok((will_bytes > former).then_some(Limit::BrokerWills))
    }

    /// Returns the other pod that has the session, and its epoch: it should release the session first, so that messages in flight come
    /// with that. After a time limit the session is taken over; the epoch then keeps the old owner from writing.
    fn elsewhere(
        &self,
        attach: &AttachWrite,
        id: SessionId<'_>,
        old: Option<&sessions::SessionRecord>,
    ) -> Result<Option<(Bytes, u64)>, LayerError> {
        let Some(record) = old.filter(|record| !record.is_detached()) else { return Ok(None) };
        if *record.owner == *self.shared.owner {
            return Ok(None);
        }
        let (now_ms, asked_at) = (self.shared.clock.now(), attach.asked_at(&record.owner, record.epoch));
        let is_over = asked_at.is_some_and(|at_ms| now_ms.saturating_sub(at_ms) > HAND_OVER_MS);
        if !attach.is_gone() && (is_over || self.shared.leases.is_silent(&record.owner, now_ms)) {
            return Ok(None);
        }
        if asked_at.is_none() && (attach.asked.is_none() || !attach.is_gone()) {
            pods::notify_lost(self.tx, &record.owner, id, record.epoch)?;
        }
        Ok(Some((record.owner.clone(), record.epoch)))
    }

    /// Ends a session wherever it is: another pod that has it is notified, and closes its connection.
    pub(super) async fn purge(&self, purge: &Purge) -> Result<WriteOutcome, LayerError> {
        let id = SessionId { broker: purge.broker.id, client: purge.client.as_bytes() };
        let before = subscriptions::list(self.tx, id).await?;
        let Some((record, will)) = sessions::purge(self.tx, id).await? else {
            return Ok(WriteOutcome::Nothing);
        };
        self.applied().count(&purge.broker).ended += 1;
        let is_elsewhere = !record.is_detached() && *record.owner != *self.shared.owner;
        if is_elsewhere {
            pods::take_away(self.tx, &record.owner, id, record.epoch)?;
        }
        if let Some(will) = will {
            self.will_of(&purge.broker, (id.client, &record.details), &will).await?;
        }
        self.note_changes(&purge.broker, before.iter().map(|subscription| &*subscription.filter)).await?;
        Ok(if is_elsewhere {
            WriteOutcome::Elsewhere(record.owner, record.epoch)
        } else {
            WriteOutcome::Done
        })
    }

    pub(super) async fn read_ids(
        &self,
        id: SessionId<'_>,
        attached: &mut AttachedSession,
    ) -> Result<(), LayerError> {
        let mut rows = qos2::list(self.tx, id, Direction::Outbound, Read::Serializable).await?;
        inflight::in_order_of_sending(&mut rows);
        for (id, row) in rows {
            let id = PacketId::new(id).ok_or(LayerError::Corrupt("packet id"))?;
            let row =
                inflight::decode(&row, &self.shared.clock).ok_or(LayerError::Corrupt("message in flight"))?;
            attached.rows.push((id, row));
        }
        let received = qos2::list(self.tx, id, Direction::Inbound, Read::Serializable).await?;
        attached.received = received.into_iter().filter_map(|(id, _)| PacketId::new(id)).collect();
        Ok(())
    }

    pub(super) async fn subscribe(&self, subscribe: &SubscribeWrite) -> Result<WriteOutcome, LayerError> {
        let owned = self.fence_filters(&subscribe.session, subscribe.pending.goes_back).await?;
        let mut subscribed = Vec::with_capacity(subscribe.part().len());
        for (filter, options, _) in subscribe.part() {
            subscribed.push(match subscriptions::subscribe(&owned, filter.as_bytes(), *options).await {
                Ok(subscribed) => Some(subscribed),
                Err(LayerError::NameTooLong { .. } | LayerError::TooManyGroups) => None,
                Err(error) => return Err(error),
            });
        }
        drop(owned);
        let broker = &subscribe.session.broker;
        let filters = subscribe.part().iter().map(|(filter, ..)| filter.as_bytes());
        let shared = subscribe.shared.iter().map(|filter| filter.as_bytes());
        self.note_changes(broker, filters.chain(shared)).await?;
        Ok(WriteOutcome::Subscribed(subscribed))
    }

    pub(super) async fn unsubscribe(
        &self,
        unsubscribe: &UnsubscribeWrite,
    ) -> Result<WriteOutcome, LayerError> {
        let owned = self.fence_filters(&unsubscribe.session, unsubscribe.packet_id.is_none()).await?;
        for filter in unsubscribe.part() {
            subscriptions::unsubscribe(&owned, filter.as_bytes()).await?;
        }
        drop(owned);
        let filters = unsubscribe.part().iter().map(|filter| filter.as_bytes());
        self.note_changes(&unsubscribe.session.broker, filters).await?;
        Ok(WriteOutcome::Done)
    }

    pub(super) async fn ids(&self, ids: &Ids) -> Result<WriteOutcome, LayerError> {
        let owned = self.fence(&ids.session).await?;
        match &ids.write {
            IdWrite::Reserve(reserve) => {
                if !self.take_from_groups(&reserve.taken).await? {
                    return Ok(WriteOutcome::Fenced);
                }
                for (id, row) in &reserve.rows {
                    qos2::set(&owned, Direction::Outbound, id.get(), &row.clone().into())?;
                }
                sessions::checkpoint(&owned, reserve.cursor, &reserve.acknowledged)?;
            }
            IdWrite::Release(id, position) => {
                let row =
                    inflight::encode(&InFlight::Released(*position), ids.unordered_ids, &self.shared.clock);
                qos2::set(&owned, Direction::Outbound, id.get(), &row.into())?;
            }
            IdWrite::Forget(id) => {
                qos2::remove(&owned, Direction::Inbound, id.get())?;
            }
        }
        Ok(WriteOutcome::Done)
    }

    /// Marks messages as taken by a member; memory follows after the commit. Returns false, and marks none, if another
    /// pod has one of them by now: the job is then fenced, and its transaction commits nevertheless.
    pub(in crate::store) async fn take_from_groups(
        &self,
        taken: &[(StreamKey, Position)],
    ) -> Result<bool, LayerError> {
        let mut of_stream: BTreeMap<StreamKey, Vec<Position>> = BTreeMap::new();
        for (stream, position) in taken {
            of_stream.entry(*stream).or_default().push(*position);
        }
        if self.shared.is_shared {
            return streams::keep(self.tx, &self.shared.owner, &of_stream).await;
        }
        for ((broker, stream), positions) in of_stream {
            let mut progress = streams::progress(self.tx, broker, stream).await?;
            positions.into_iter().for_each(|position| progress.acknowledged.add(position));
            streams::set_progress(self.tx, broker, stream, &progress).await?;
        }
        Ok(true)
    }

    pub(super) async fn checkpoint(&self, checkpoint: &Checkpoint) -> Result<WriteOutcome, LayerError> {
        let owned = self.fence(&checkpoint.session).await?;
        sessions::checkpoint(&owned, checkpoint.cursor, &checkpoint.acknowledged)?;
        for id in &checkpoint.completed {
            qos2::remove(&owned, Direction::Outbound, id.get())?;
        }
        for filter in &checkpoint.replayed {
            subscriptions::replayed(&owned, filter.as_bytes()).await?;
        }
        let broker = checkpoint.session.broker.id;
        for stream in &checkpoint.streams {
            if has_bug(WriterBug::TrimsOthers) || subscriptions::is_sole(self.tx, broker, *stream).await? {
                self.trim(broker, *stream, checkpoint.cursor).await?;
            }
        }
        Ok(WriteOutcome::Done)
    }

    /// Trims a stream as far as the transaction has room for it. The rest is trimmed later, because it may be very much:
    /// when another session of the stream ends that was far behind, this one has a backlog to remove.
    async fn trim(&self, broker: BrokerId, stream: StreamId, through: Position) -> Result<(), LayerError> {
        let room = TRIMMED_MAX.saturating_sub(self.applied().trimmed);
        let trimmed = match room {
            0 => None,
            room => Some(streams::trim_some(self.tx, broker, stream, through, room).await?),
        };
        let mut applied = self.applied();
        if let Some(trimmed) = &trimmed {
            applied.trimmed += room_for(trimmed);
        }
        if trimmed.is_none_or(|trimmed| trimmed.more) {
            applied.trims.push(((broker, stream), through));
        }
        Ok(())
    }
}

/// Whether the session `old` is alive and belongs to another user. Any user may have a session without a user, except clients
/// with connect tokens, and end the session of a client with a connect token.
fn is_of_another_user(attach: &AttachWrite, old: Option<&sessions::SessionRecord>, now_ms: u64) -> bool {
    let Some(record) = old.filter(|record| !record.is_expired(now_ms)) else { return false };
    let is_owned = !record.details.is_empty() && !owner::is_visitor(&record.details);
    (attach.is_visitor || is_owned) && owner::user(&record.details) != attach.user.as_deref()
}
