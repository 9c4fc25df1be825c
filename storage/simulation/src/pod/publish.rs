//! Publishing: the transaction that appends also brings the filters in memory up to date, as
//! `services/edge/src/store/apply.rs` does.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use millrace_layers::{
    BrokerId, LayerError, LayerResult,
    index::{self, IndexPart, IndexRow},
    qos2::{self, Direction},
    retained,
    streams::{self, StreamRef},
};
use millrace_storage::{StoreVersion, Transaction};

use super::{Done, Mine, Pod};
use crate::{
    history::{MessageId, Retain, Stage, body},
    plan::{Plant, TOPICS, matches},
};

#[derive(Default)]
pub(crate) struct Filters {
    streams: BTreeMap<(BrokerId, String), BTreeSet<u64>>,
    /// Changes of other pods up to here are applied.
    through: BTreeMap<BrokerId, StoreVersion>,
}

impl Pod {
    pub(super) async fn publish(&self) -> Done {
        let broker = self.broker();
        let mut batch = Vec::new();
        for _ in 0..=self.world.below(3) {
            let retain = match self.world.below(20) {
                0 => Retain::Clear,
                1..5 => Retain::Set,
                _ => Retain::No,
            };
            batch.push(self.new_message(broker, self.world.pick(&TOPICS), self.publisher, retain));
        }
        let ((), stamp) = self
            .transact(async |tx| {
                for (id, number) in batch.iter().zip(1..) {
                    self.write(tx, *id, number).await?;
                }
                Ok(())
            })
            .await?;
        let mut history = self.history.borrow_mut();
        for (id, number) in batch.into_iter().zip(1..) {
            history.count("messages stored");
            history.messages.acknowledge(id, stamp.map(|stamp| (stamp, number)));
        }
        Ok(())
    }

    fn new_message(&self, broker: BrokerId, topic: &str, publisher: u64, retain: Retain) -> MessageId {
        let mut history = self.history.borrow_mut();
        let id = history.next();
        history.messages.add(id, broker, topic, publisher, retain);
        id
    }

    /// A client publishes with QoS 2: the transaction that stores the message also stores its packet id.
    pub(super) async fn publish_once(&self) -> Done {
        let Some(mut mine) = self.any_session() else { return Ok(()) };
        let known = self.history.borrow_mut().client(mine.broker, mine.client).sending;
        let sending = match known {
            Some(sending) if sending.life == mine.life => sending,
            // The session has begun anew on another pod, which this pod does not know yet.
            Some(sending) if sending.life > mine.life => return Ok(()),
            _ => {
                let topic = self.world.pick(&TOPICS);
                // A publisher of its own for each connection: order holds only among messages of one connection.
                let publisher = u64::MAX - mine.epoch;
                let id = self.new_message(mine.broker, topic, publisher, Retain::No);
                self.history.borrow_mut().client(mine.broker, mine.client).send(id, mine.life)
            }
        };
        let (id, packet) = (sending.message, sending.packet);
        if sending.stage == Stage::Published && !mine.received.contains(&packet) {
            let stored = self
                .transact(async |tx| {
                    let owned = self.fence(tx, &mine).await?;
                    qos2::set(&owned, Direction::Inbound, packet, &Bytes::new())?;
                    self.write(tx, id, 1).await
                })
                .await;
            let ((), stamp) = stored.map_err(|error| self.lost(&mine, error))?;
            let mut history = self.history.borrow_mut();
            history.count("messages stored");
            history.messages.acknowledge(id, stamp.map(|stamp| (stamp, 1)));
        }
        if sending.stage == Stage::Published {
            mine.received.insert(packet);
            let mut history = self.history.borrow_mut();
            history.messages.acknowledge(id, None);
            history.client(mine.broker, mine.client).moved(id, Stage::Published, Stage::Received);
        }
        self.keep(mine.clone());
        if self.world.percent(60) { self.release(mine, id, packet).await } else { Ok(()) }
    }

    /// The client sends PUBREL, so the store forgets the packet id.
    async fn release(&self, mut mine: Mine, id: MessageId, packet: u16) -> Done {
        {
            let mut history = self.history.borrow_mut();
            history.client(mine.broker, mine.client).moved(id, Stage::Received, Stage::Released);
        }
        let released = self
            .transact(async |tx| {
                let owned = self.fence(tx, &mine).await?;
                qos2::remove(&owned, Direction::Inbound, packet)
            })
            .await;
        released.map_err(|error| self.lost(&mine, error))?;
        self.history.borrow_mut().client(mine.broker, mine.client).completed(id);
        mine.received.remove(&packet);
        self.keep(mine);
        Ok(())
    }

    /// Writes a message in a transaction, as number `number` of its messages.
    pub(super) async fn write(&self, tx: &Transaction, id: MessageId, number: u16) -> LayerResult<()> {
        let message =
            self.history.borrow().messages.get(id).cloned().ok_or(LayerError::Corrupt("message"))?;
        let (broker, topic) = (message.broker, message.topic.as_bytes());
        let body = body(id);
        match message.retain {
            Retain::Set => retained::set(tx, broker, topic, &body).await?,
            Retain::Clear => retained::clear(tx, broker, topic).await?,
            Retain::No => {}
        }
        let streams = self.look_up(tx, broker, &message.topic).await?;
        // Only the audit session's stream has two partitions, and odd publishers write to the second.
        let partition =
            |stream: &StreamRef| u8::from(message.publisher % 2 == 1 && self.is_wide(broker, stream.stream));
        let streams: Vec<_> =
            streams.iter().map(|stream| StreamRef { partition: partition(stream), ..*stream }).collect();
        let publish = streams::NewEntry { number, now_ms: self.world.now_ms(), body: &body };
        streams::append(tx, broker, &streams, publish)
    }

    fn is_wide(&self, broker: BrokerId, stream: u64) -> bool {
        self.history.borrow().wide.contains(&(broker, stream))
    }

    async fn look_up(&self, tx: &Transaction, broker: BrokerId, topic: &str) -> LayerResult<Vec<StreamRef>> {
        if self.plant != Some(Plant::Index) {
            index::watch(tx, broker, topic.as_bytes())?;
        }
        let filters = self.filters.borrow();
        let of_broker = filters.streams.range((broker, String::new())..(broker + 1, String::new()));
        let matching = of_broker.filter(|((_, filter), _)| matches(filter, topic));
        let streams = matching.flat_map(|(_, streams)| streams);
        Ok(streams.map(|stream| StreamRef { stream: *stream, partition: 0 }).collect())
    }

    /// With the planted fault, each broker's filters are read once and never again.
    pub(super) async fn catch_up_all(&self, tx: &Transaction) -> LayerResult<()> {
        for broker in &self.brokers {
            let is_known = self.filters.borrow().through.contains_key(broker);
            if !is_known || self.plant != Some(Plant::Index) {
                self.catch_up(tx, *broker).await?;
            }
        }
        Ok(())
    }

    async fn catch_up(&self, tx: &Transaction, broker: BrokerId) -> LayerResult<()> {
        let version = tx.read_version().await?;
        let since = self.filters.borrow().through.get(&broker).copied();
        let changed = match since {
            Some(since) => index::changes(tx, broker, since).await?,
            None => None,
        };
        let mut all = Vec::new();
        if changed.is_none() {
            for part in [IndexPart::Exact, IndexPart::Wildcard] {
                all.extend(index::list(tx, broker, part, None, 10_000).await?);
            }
        }
        let mut filters = self.filters.borrow_mut();
        if changed.is_none() {
            filters.streams.retain(|(of, _), _| *of != broker);
        }
        for IndexRow { filter, streams } in changed.unwrap_or(all) {
            let filter = String::from_utf8_lossy(&filter).into_owned();
            let streams = streams.iter().map(|indexed| indexed.stream).collect();
            filters.streams.insert((broker, filter), streams);
        }
        filters.through.insert(broker, version);
        Ok(())
    }
}
