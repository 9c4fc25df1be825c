//! Writes messages of publishers, and wills, in the writer's transaction: to the streams of the filters that match the topic, and to the
//! broker's retained messages.

use std::sync::Arc;

use bytes::Bytes;
use millrace_layers::limits::{BODY_BYTES_MAX, STREAMS_PER_PUBLISH_MAX, TOPIC_BYTES_MAX};
use millrace_layers::qos2::{self, Direction};
use millrace_layers::streams::{self, StreamRef};
use millrace_layers::{LayerError, pods, retained};
use millrace_mqtt::{PacketId, QoS};
use millrace_session::Message;

use super::{Applier, WriteOutcome, of_will};
use crate::broker::Broker;
use crate::jobs::Fence;
use crate::store::bugs::{WriterBug, has_bug};
use crate::store::writer::is_hopeless;
use crate::store::{PublishWrite, record};
use crate::streams::TopicStreams;

impl Applier<'_> {
    /// `id`: the client's packet id, which a QoS 2 message reserves in the same transaction.
    pub(super) async fn publish(
        &self,
        publish: &PublishWrite,
        id: Option<PacketId>,
    ) -> Result<WriteOutcome, LayerError> {
        let PublishWrite { message, routes, .. } = publish;
        let broker = &routes.broker;
        let is_settled = publish.is_settled();
        let changed = (broker.streams.generation() != routes.stored.generation)
            .then(|| broker.streams.matches(message.topic()));
        let matched = changed.as_ref().unwrap_or(&routes.stored);
        if let Err(error) = check(message, publish.retains, matched) {
            return Ok(WriteOutcome::Refused(error));
        }
        if let (Some(fence), Some(id)) = (&publish.fence, id) {
            if message.qos() == QoS::ExactlyOnce {
                let owned = self.fence(&fence.session).await?;
                qos2::set(&owned, Direction::Inbound, id.get(), &Bytes::new())?;
            } else if self.is_read(fence) {
                self.fence(&fence.session).await?;
            } else {
                self.watch_losses()?;
            }
        }
        // A will of this transaction is the topic's retained message now.
        if publish.retains && !self.applied().has_retained_will(publish) {
            let current = broker.retained.get(message.topic());
            let own = Some(&**message).filter(|message| !message.payload().is_empty());
            // With several pods, and after a refusal, the order is that of the commits (P6), otherwise that of memory.
            let is_own = self.shared.is_shared || self.state.memory_lags;
            let retained = if is_own { own } else { current.as_deref() };
            self.retain(broker, message.topic(), retained).await?;
        }
        if self.shared.is_shared {
            // A stream that another pod creates before the commit must have the message.
            self.watch(broker, message.topic())?;
        }
        if is_settled {
            self.applied().count(broker).unstored += 1;
        } else {
            self.append(broker, message, publish.publisher, matched)?;
        }
        if publish.retains {
            self.give_order(message);
        }
        if publish.from.is_some() {
            self.applied().count(broker).received.add(message.size());
        }
        Ok(WriteOutcome::Done)
    }

    /// Whether another pod may have taken the publisher's session by force since the message was read. Only that makes a message come
    /// behind a later one of the same publisher (P4): a pod that releases the session has stored the message before.
    pub(in crate::store) fn is_read(&self, fence: &Fence) -> bool {
        match fence.from_ms {
            _ if has_bug(WriterBug::FencesQos2Only) => false,
            0 => true,
            _ if has_bug(WriterBug::TrustsStalled) => false,
            from_ms => self.is_retry || self.state.has_stalled || self.shared.clock.now() >= from_ms,
        }
    }

    fn watch_losses(&self) -> Result<(), LayerError> {
        if self.watches_losses.replace(true) || has_bug(WriterBug::TrustsStalled) {
            return Ok(());
        }
        pods::watch_losses(self.tx, &self.shared.owner)
    }

    async fn retain(
        &self,
        broker: &Broker,
        topic: &str,
        message: Option<&Message>,
    ) -> Result<(), LayerError> {
        let topic = topic.as_bytes();
        match message {
            Some(message) => {
                let record = record::encode(message, &self.shared.clock).into();
                retained::set(self.tx, broker.id, topic, &record).await
            }
            None => retained::clear(self.tx, broker.id, topic).await,
        }
    }

    pub(in crate::store) fn append(
        &self,
        broker: &Arc<Broker>,
        message: &Arc<Message>,
        publisher: u64,
        matched: &TopicStreams,
    ) -> Result<(), LayerError> {
        if matched.is_over_limit {
            return Err(LayerError::TooManyStreams(crate::limits::MATCH.filters_max + 1));
        }
        let of_webhooks: Vec<StreamRef>;
        let streams = if message.qos() == QoS::AtMostOnce {
            of_webhooks = matched.webhooks.iter().map(|(stream, _)| *stream).collect();
            &of_webhooks[..]
        } else {
            &matched.streams
        };
        if streams.is_empty() {
            return Ok(());
        }
        let queued_webhooks = matched.webhooks.iter().map(|(_, name)| (broker.id, name.clone()));
        self.applied().queued_webhooks.extend(queued_webhooks);
        // A QoS 0 message is stored for webhooks only, so it has no position for other receivers.
        let number = match message.qos() {
            QoS::AtMostOnce => self.applied().next_number(),
            _ => self.applied().number(message),
        };
        let clock = &self.shared.clock;
        let body = record::encode_entry(message, publisher, clock).into();
        let publish = streams::NewEntry { number, now_ms: clock.unix_now_ms(), body: &body };
        streams::append_of_many(self.tx, broker.id, streams, publish, &mut self.applied().added)?;
        self.applied().count(broker).stored += 1;
        self.applied().touched.extend(streams.iter().map(|stream| (broker.id, stream.stream)));
        Ok(())
    }

    /// With several pods, a retained message has a position even if no stream stores it.
    fn give_order(&self, message: &Arc<Message>) {
        let is_numbered = self.applied().numbers.last().is_some_and(|(last, _)| Arc::ptr_eq(last, message));
        if self.shared.is_shared && !is_numbered {
            self.applied().number(message);
        }
    }

    /// Publishes a will, unless its client has lost the right to it.
    pub(in crate::store) async fn will_of(
        &self,
        broker: &Arc<Broker>,
        left_by: (&[u8], &[u8]),
        body: &[u8],
    ) -> Result<(), LayerError> {
        match of_will::refuse(self, broker, left_by, body).await? {
            Some(refused) => self.applied().wills_refused.push(refused),
            None => self.will(broker, body).await?,
        }
        Ok(())
    }

    /// A will that can never be written is dropped, because its session must be able to end, and later due work to
    /// run.
    pub(in crate::store) async fn will(&self, broker: &Arc<Broker>, body: &[u8]) -> Result<(), LayerError> {
        match self.publish_will(broker, body).await {
            Err(error) if is_hopeless(&error) => {
                self.applied().wills_dropped.push((broker.clone(), error));
                Ok(())
            }
            other => other,
        }
    }

    async fn publish_will(&self, broker: &Arc<Broker>, body: &[u8]) -> Result<(), LayerError> {
        let will = record::decode_will(body).ok_or(LayerError::Corrupt("will"))?;
        let will = Arc::new(will).issued(self.shared.clock.now());
        let matched = broker.streams.matches(will.topic());
        check(&will, will.retain(), &matched)?;
        // The writer does not know whether memory is short: the limits in bytes bound what wills take of it.
        let (brokers, limits) = (&self.shared.brokers, &self.shared.limits);
        let now = (false, self.shared.clock.now());
        let (reached, expired) = match will.retain() {
            true => brokers.limit_of_retaining(broker, &will, limits, now),
            false => (None, Vec::new()),
        };
        self.shared.clear_expired(broker.id, expired);
        let retains = will.retain() && reached.is_none();
        if let Some(limit) = reached {
            will.forbid_retaining();
            self.applied().wills_not_retained.push((broker.clone(), limit));
        }
        let mut reserved = None;
        if retains {
            reserved = broker.reserve_retained(&will);
            let retained = (!will.payload().is_empty()).then_some(&*will);
            self.retain(broker, will.topic(), retained).await?;
        }
        if retains && !self.shared.is_shared {
            self.applied().retained_wills.insert((broker.id, will.topic().clone()));
        }
        if self.shared.is_shared {
            self.watch(broker, will.topic())?;
        }
        self.append(broker, &will, will.publisher(), &matched)?;
        if retains {
            self.give_order(&will);
        }
        self.applied().wills.push((broker.clone(), will, reserved));
        Ok(())
    }
}

/// Fails for a message that can never be written, before any of it is.
fn check(message: &Message, retains: bool, matched: &TopicStreams) -> Result<(), LayerError> {
    let (topic, size) = (message.topic().len(), message.size());
    if retains && topic > TOPIC_BYTES_MAX {
        return Err(LayerError::NameTooLong { bytes: topic, bytes_max: TOPIC_BYTES_MAX });
    }
    if size > BODY_BYTES_MAX {
        return Err(LayerError::BodyTooLarge(size));
    }
    if matched.is_over_limit {
        return Err(LayerError::TooManyStreams(crate::limits::MATCH.filters_max + 1));
    }
    if message.qos() > QoS::AtMostOnce && matched.streams.len() > STREAMS_PER_PUBLISH_MAX {
        return Err(LayerError::TooManyStreams(matched.streams.len()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use millrace_mqtt::Properties;

    use super::*;
    use crate::broker::Broker;
    use crate::store::StoreContext;

    #[test]
    fn a_will_whose_transaction_conflicts_finds_the_room_that_its_first_attempt_found() {
        let (mut shared, id) = StoreContext::with_broker(true);
        let will = Message::new("t".into(), QoS::AtLeastOnce, true, Properties::EMPTY, &[b'x'; 1_000], 0);
        shared.limits.retained_bytes_max = 1_800;
        let broker = Arc::new(Broker::new(id, "default", 1));
        let body = record::encode_will(&will, false);
        let attempt = |is_retry| {
            shared.run(&async |tx| {
                let applier = Applier::new(tx, &shared, is_retry);
                applier.catch_up(&[&broker]).await?;
                applier.will(&broker, &body).await?;
                Ok(applier.into_applied())
            })
        };
        let attempts = [attempt(false), attempt(true)];
        assert_eq!(attempts.each_ref().map(|attempt| attempt.wills_not_retained.len()), [0, 0]);
        assert_eq!(attempts.each_ref().map(|attempt| attempt.wills[0].1.is_retained()), [true, true]);
    }
}
