//! Answers "where is my message?": reads from the store which receivers the messages of a topic
//! still wait for.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use millrace_control::{
    LiveError, MessageReceiver, ReceiverState, RemovalReason, RemovedMessages, StoredMessage, StoredMessages,
    StoringFilter,
};
use millrace_edge::stored;
use millrace_layers::index::{self, IndexPart};
use millrace_layers::limits::TOPIC_BYTES_MAX;
use millrace_layers::sessions::{self, SessionId};
use millrace_layers::streams::{
    self, GroupProgress, LossReason, ReadLimit, StreamEntry, StreamId, StreamLoss,
};
use millrace_layers::{BrokerId, Position, subscriptions};
use millrace_storage::{Read, StoreVersion};

use super::live::LiveEdge;
use crate::clock::now_ms;
use crate::text::name;

/// Messages that one request examines over all topics of its filters, and the bytes of their
/// bodies.
const EXAMINED_MAX: ReadLimit = ReadLimit { entries: 500, bytes: 8 << 20 };
/// Filters with wildcards that one request examines, [`WILDCARDS_AT_ONCE`] in a transaction.
const WILDCARDS_MAX: usize = 5_000;
const WILDCARDS_AT_ONCE: usize = 1_000;
/// Streams of one topic that one request reads.
const STREAMS_MAX: usize = 50;
/// Sessions that one request examines, [`SESSIONS_AT_ONCE`] in a transaction.
const SESSIONS_MAX: usize = 1_000;
const SESSIONS_AT_ONCE: usize = 50;
/// Receivers of a message that the answer names.
const RECEIVERS_MAX: usize = 100;

struct TopicStream {
    id: StreamId,
    filter: String,
    is_shared: bool,
}

/// A session, or the group of a shared subscription, with how far it has read.
struct StreamReader {
    client_id: Option<String>,
    progress: GroupProgress,
    is_connected: bool,
    /// When its connection ended; `None` if it is connected, and for a group.
    detached_at_ms: Option<u64>,
}

impl StreamReader {
    fn of_session(
        client_id: String,
        record: sessions::SessionRecord,
        positions: &HashSet<Position>,
    ) -> Arc<Self> {
        let detached_at_ms = record.is_detached().then_some(record.detached_at_ms);
        let progress = GroupProgress { cursor: record.cursor, acknowledged: record.acknowledged };
        Self::new(Some(client_id), progress, positions, detached_at_ms.is_none(), detached_at_ms)
    }

    /// Keeps only acknowledgements of the messages at `positions`, because a session may have
    /// thousands of others.
    fn new(
        client_id: Option<String>,
        mut progress: GroupProgress,
        positions: &HashSet<Position>,
        is_connected: bool,
        detached_at_ms: Option<u64>,
    ) -> Arc<Self> {
        let acknowledged = |position: &Position| progress.acknowledged.contains(*position);
        progress.acknowledged = positions.iter().copied().filter(acknowledged).collect();
        Arc::new(Self { client_id, progress, is_connected, detached_at_ms })
    }
}

struct Subscriber {
    reader: Arc<StreamReader>,
    since: StoreVersion,
}

type SubscribersByStream = HashMap<StreamId, Vec<Subscriber>>;

pub(super) async fn list(
    edge: &LiveEdge,
    broker: BrokerId,
    topic: &str,
    limit: usize,
) -> Result<StoredMessages, LiveError> {
    if !stored::is_topic(topic) || topic.len() > TOPIC_BYTES_MAX {
        let what = "is not a topic: give one without + and #, such as plant/1/state".into();
        return Err(LiveError::Invalid { field: "topic", what });
    }
    let (mut streams, mut incomplete) = streams_of_topic(edge, broker, topic).await?;
    incomplete |= streams.len() > STREAMS_MAX;
    streams.truncate(STREAMS_MAX);
    if streams.is_empty() {
        return Ok(StoredMessages { incomplete, ..StoredMessages::default() });
    }
    let ids: Vec<StreamId> = streams.iter().map(|stream| stream.id).collect();
    let newest = edge.run(|tx| {
        let ids = &ids;
        async move { streams::newest(&tx, broker, ids, EXAMINED_MAX).await }
    });
    let newest = newest.await?;
    let mut found: Vec<(StreamEntry, stored::DecodedMessage)> = Vec::new();
    for entry in newest.entries {
        match stored::entry(&entry.body) {
            Some((of, message)) if of == topic => found.push((entry, message)),
            _ => {}
        }
    }
    incomplete |= newest.more || found.len() > limit;
    found.truncate(limit);
    let positions: HashSet<Position> = found.iter().map(|(entry, _)| entry.position).collect();
    let (subscribers, is_cut) = subscribers(edge, broker, &streams, &positions).await?;
    let filters = filters(edge, broker, &streams).await?;
    let now_ms = now_ms();
    let mut items = Vec::with_capacity(found.len());
    for (entry, message) in &found {
        items.push(shown(entry, message, &streams, &subscribers, now_ms));
        // A message with many subscribers takes milliseconds of a thread that must answer other
        // requests, too.
        tokio::task::yield_now().await;
    }
    Ok(StoredMessages { items, filters, incomplete: incomplete || is_cut })
}

/// The flag is true when there are more filters than one request examines.
async fn streams_of_topic(
    edge: &LiveEdge,
    broker: BrokerId,
    topic: &str,
) -> Result<(Vec<TopicStream>, bool), LiveError> {
    let mut rows = Vec::new();
    let exact = edge.run(|tx| async move { index::streams(&tx, broker, topic.as_bytes()).await }).await?;
    rows.push((topic.to_owned(), exact));
    let (mut after, mut looked_at) = (None, 0);
    let is_cut = loop {
        let from: Option<&[u8]> = after.as_deref();
        let page = edge.run(|tx| async move {
            index::list(&tx, broker, IndexPart::Wildcard, from, WILDCARDS_AT_ONCE).await
        });
        let page = page.await?;
        let Some(last) = page.last() else { break false };
        looked_at += page.len();
        after = Some(last.filter.to_vec());
        for row in page {
            let filter = name(&row.filter);
            if stored::is_for(&filter, topic) {
                rows.push((filter, row.streams));
            }
        }
        if looked_at >= WILDCARDS_MAX {
            break true;
        }
    };
    let all = rows.into_iter().flat_map(|(filter, streams)| {
        streams.into_iter().map(move |of| match of.group.is_empty() {
            true => TopicStream { id: of.stream, filter: filter.clone(), is_shared: false },
            false => {
                let filter = format!("$share/{}/{filter}", name(&of.group));
                TopicStream { id: of.stream, filter, is_shared: true }
            }
        })
    });
    Ok((all.collect(), is_cut))
}

/// The flag is true when there are more sessions than one request examines.
async fn subscribers(
    edge: &LiveEdge,
    broker: BrokerId,
    streams: &[TopicStream],
    positions: &HashSet<Position>,
) -> Result<(SubscribersByStream, bool), LiveError> {
    let shared: HashSet<StreamId> =
        streams.iter().filter(|stream| stream.is_shared).map(|stream| stream.id).collect();
    let own: HashSet<StreamId> =
        streams.iter().filter(|stream| !stream.is_shared).map(|stream| stream.id).collect();
    let mut connected_groups: HashSet<StreamId> = HashSet::new();
    let mut subscribers = SubscribersByStream::new();
    let (mut after, mut looked_at) = (None, 0);
    let is_cut = loop {
        let (from, own): (Option<&[u8]>, _) = (after.as_deref(), &own);
        let page = edge.run(|tx| async move {
            let mut found = Vec::new();
            for (client, record) in sessions::list(&tx, broker, from, SESSIONS_AT_ONCE).await? {
                let id = SessionId { broker, client: &client };
                let of = subscriptions::list(&tx, id).await?;
                let reads_one = of.iter().any(|one| own.contains(&one.stream));
                // The list has no cursors, so read the rows of the sessions that need theirs.
                let record = match reads_one {
                    true => sessions::get(&tx, id, Read::Snapshot).await?.unwrap_or(record),
                    false => record,
                };
                found.push((client, record, of));
            }
            Ok(found)
        });
        let page = page.await?;
        let Some((last, ..)) = page.last() else { break false };
        looked_at += page.len();
        after = Some(last.to_vec());
        for (client, record, subscriptions) in page {
            let (is_connected, is_expired) = (!record.is_detached(), record.is_expired(now_ms()));
            let reader = StreamReader::of_session(name(&client), record, positions);
            for of in subscriptions {
                if own.contains(&of.stream) && !is_expired {
                    let subscriber = Subscriber { reader: reader.clone(), since: of.since };
                    subscribers.entry(of.stream).or_default().push(subscriber);
                }
                // A group counts as connected while one of its members is.
                if is_connected && shared.contains(&of.stream) {
                    connected_groups.insert(of.stream);
                }
            }
        }
        if looked_at >= SESSIONS_MAX {
            break true;
        }
    };
    for id in shared {
        let progress = edge.run(|tx| async move { streams::progress(&tx, broker, id).await }).await?;
        let reader = StreamReader::new(None, progress, positions, connected_groups.contains(&id), None);
        subscribers.insert(id, vec![Subscriber { reader, since: 0 }]);
    }
    Ok((subscribers, is_cut))
}

async fn filters(
    edge: &LiveEdge,
    broker: BrokerId,
    streams: &[TopicStream],
) -> Result<Vec<StoringFilter>, LiveError> {
    let mut filters = Vec::with_capacity(streams.len());
    for TopicStream { id, filter, .. } in streams {
        let id = *id;
        let counted = edge.run(|tx| async move {
            let row = streams::stream(&tx, broker, id, Read::Snapshot).await?;
            let trimmed = row.map_or(0, |row| row.missed_since(Position::MIN).at_most);
            let subscriptions = subscriptions::subscribers(&tx, broker, id).await?;
            Ok((subscriptions, trimmed, streams::losses(&tx, broker, id).await?))
        });
        let (subscriptions, trimmed, losses) = counted.await?;
        let removed = losses.into_iter().rev().map(removed).collect();
        filters.push(StoringFilter { filter: filter.clone(), subscriptions, trimmed, removed });
    }
    Ok(filters)
}

fn removed(loss: StreamLoss) -> RemovedMessages {
    let StreamLoss { reason, first_at_ms, last_at_ms, published_from_ms, published_to_ms, entries } = loss;
    let reason = match reason {
        LossReason::Age => RemovalReason::QueueAge,
        LossReason::Size => RemovalReason::QueueSize,
        LossReason::AllStreams => RemovalReason::BrokerQueueBytes,
        LossReason::Purged => RemovalReason::Purged,
    };
    RemovedMessages { reason, first_at_ms, last_at_ms, published_from_ms, published_to_ms, messages: entries }
}

fn shown(
    entry: &StreamEntry,
    message: &stored::DecodedMessage,
    streams: &[TopicStream],
    subscribers: &SubscribersByStream,
    now_ms: u64,
) -> StoredMessage {
    let is_expired = message.expires_at_ms.is_some_and(|at_ms| at_ms <= now_ms);
    let of_entry: Vec<&TopicStream> = entry.sources.iter().filter_map(|at| streams.get(*at)).collect();
    let receivers = Receivers::of(entry.position, is_expired, &of_entry, subscribers);
    StoredMessage {
        position: entry.position.to_string(),
        at_ms: entry.at_ms,
        qos: message.qos,
        payload_bytes: message.payload.len() as u64,
        expires_at_ms: message.expires_at_ms,
        filters: of_entry.iter().map(|stream| stream.filter.clone()).collect(),
        acknowledged: receivers.count(ReceiverState::Acknowledged),
        in_flight: receivers.count(ReceiverState::InFlight),
        waiting: receivers.count(ReceiverState::Waiting),
        receivers: receivers.named(),
    }
}

/// Refers to the receivers, because there may be tens of thousands and only [`RECEIVERS_MAX`] are
/// copied.
struct Receivers<'a>(Vec<TopicReceiver<'a>>);

struct TopicReceiver<'a> {
    state: ReceiverState,
    client_id: Option<&'a str>,
    filter: &'a str,
    acknowledged_by_ms: Option<u64>,
}

impl<'a> Receivers<'a> {
    fn of(
        position: Position,
        is_expired: bool,
        streams: &[&'a TopicStream],
        subscribers: &'a SubscribersByStream,
    ) -> Self {
        let mut receivers = Vec::new();
        for stream in streams {
            for Subscriber { reader, since } in subscribers.get(&stream.id).into_iter().flatten() {
                let client_id = reader.client_id.as_deref();
                let subscribed_before = client_id.is_none() || Position::end_of(*since) < position;
                if subscribed_before {
                    let state = state(reader, position, is_expired);
                    let is_acknowledged = state == ReceiverState::Acknowledged;
                    let acknowledged_by_ms = reader.detached_at_ms.filter(|_| is_acknowledged);
                    let filter = &stream.filter;
                    receivers.push(TopicReceiver { state, client_id, filter, acknowledged_by_ms });
                }
            }
        }
        Self(receivers)
    }

    fn count(&self, state: ReceiverState) -> u64 {
        self.0.iter().filter(|receiver| receiver.state == state).count() as u64
    }

    fn named(self) -> Vec<MessageReceiver> {
        let Self(mut receivers) = self;
        if receivers.len() > RECEIVERS_MAX {
            receivers.select_nth_unstable_by(RECEIVERS_MAX, TopicReceiver::order);
            receivers.truncate(RECEIVERS_MAX);
        }
        receivers.sort_unstable_by(TopicReceiver::order);
        let named = |receiver: TopicReceiver<'_>| MessageReceiver {
            client_id: receiver.client_id.map(Into::into),
            filter: receiver.filter.into(),
            state: receiver.state,
            acknowledged_by_ms: receiver.acknowledged_by_ms,
        };
        receivers.into_iter().map(named).collect()
    }
}

impl TopicReceiver<'_> {
    fn order(&self, other: &Self) -> Ordering {
        (self.state, self.client_id, self.filter).cmp(&(other.state, other.client_id, other.filter))
    }
}

fn state(reader: &StreamReader, position: Position, is_expired: bool) -> ReceiverState {
    let GroupProgress { cursor, acknowledged } = &reader.progress;
    match () {
        () if position <= *cursor || acknowledged.contains(position) => ReceiverState::Acknowledged,
        () if is_expired => ReceiverState::Expired,
        () if reader.is_connected => ReceiverState::InFlight,
        () => ReceiverState::Waiting,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_receivers_are_counted_and_the_first_ones_are_named() {
        let at = Position::end_of;
        let all = [1, 2].map(|id| TopicStream { id, filter: format!("filter/{id}"), is_shared: false });
        let positions = HashSet::from([at(5)]);
        let mut subscribers = SubscribersByStream::new();
        for number in 0..150_u32 {
            // Odd ones acknowledged out of order, and are offline; the last ten subscribed after
            // the message.
            let odd = if number % 2 == 1 { vec![at(9), at(5), at(7)] } else { Vec::new() };
            let acknowledged = odd.into_iter().collect();
            let progress = GroupProgress { cursor: at(1), acknowledged };
            let name = Some(format!("c{number:03}"));
            let reader = StreamReader::new(name, progress, &positions, number % 2 == 0, None);
            for id in [1, 2] {
                let since = if number < 140 { 2 } else { 6 };
                let subscriber = Subscriber { reader: reader.clone(), since };
                subscribers.entry(id).or_default().push(subscriber);
            }
        }
        let streams: Vec<&TopicStream> = all.iter().collect();
        let receivers = Receivers::of(at(5), false, &streams, &subscribers);
        assert_eq!(receivers.count(ReceiverState::Acknowledged), 140);
        assert_eq!(receivers.count(ReceiverState::InFlight), 140);
        assert_eq!(receivers.count(ReceiverState::Waiting), 0);
        let mut expected: Vec<_> =
            receivers.0.iter().map(|of| (of.state, of.client_id.unwrap().to_owned())).collect();
        expected.sort();
        expected.truncate(RECEIVERS_MAX);
        let named = receivers.named().into_iter().map(|of| (of.state, of.client_id.unwrap()));
        assert_eq!(named.collect::<Vec<_>>(), expected);
        let expired = Receivers::of(at(5), true, &streams, &subscribers);
        assert_eq!(expired.count(ReceiverState::Expired), 140);
    }
}
