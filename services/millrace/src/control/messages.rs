//! Where the messages of a topic are, out of the store.

use std::collections::HashMap;

use millrace_control::{
    LiveError, MessageReceiver, ReceiverState, StoredMessage, StoredMessages, StoringFilter,
};
use millrace_edge::stored;
use millrace_layers::index::{self, Part};
use millrace_layers::limits::TOPIC_BYTES_MAX;
use millrace_layers::sessions::{self, Record, SessionId};
use millrace_layers::streams::{self, Entry, Progress, ReadLimit, StreamId};
use millrace_layers::{BrokerId, Position, subscriptions};
use millrace_storage::{Read, Version};

use super::live::Edge;
use crate::inspect::{name, now_ms};

/// Messages that are looked at, of all topics of the filters, and the bytes of their bodies.
const LOOK: ReadLimit = ReadLimit { entries: 500, bytes: 8 << 20 };
/// Filters with wildcards, in parts of one transaction.
const WILDCARDS_MAX: usize = 5_000;
const WILDCARDS_AT_ONCE: usize = 1_000;
/// Streams for a topic that are read.
const STREAMS_MAX: usize = 50;
/// Sessions that are looked at, in parts of one transaction.
const SESSIONS_MAX: usize = 1_000;
const SESSIONS_AT_ONCE: usize = 50;
/// Receivers of a message that are named.
const RECEIVERS_MAX: usize = 100;

/// A stream that keeps messages of the topic.
struct Kept {
    id: StreamId,
    filter: String,
    is_shared: bool,
}

/// How far somebody has come with a stream.
struct Reader {
    client_id: Option<String>,
    since: Version,
    progress: Progress,
    is_connected: bool,
}

pub(super) async fn list(
    edge: &Edge,
    broker: BrokerId,
    topic: &str,
    limit: usize,
) -> Result<StoredMessages, LiveError> {
    if !stored::is_topic(topic) || topic.len() > TOPIC_BYTES_MAX {
        let what = "is no topic: it has no wildcards, and is not empty".into();
        return Err(LiveError::Invalid { field: "topic", what });
    }
    let (mut kept, mut incomplete) = kept(edge, broker, topic).await?;
    incomplete |= kept.len() > STREAMS_MAX;
    kept.truncate(STREAMS_MAX);
    if kept.is_empty() {
        return Ok(StoredMessages { incomplete, ..StoredMessages::default() });
    }
    let ids: Vec<StreamId> = kept.iter().map(|kept| kept.id).collect();
    let newest = edge.run(|tx| {
        let ids = &ids;
        async move { streams::newest(&tx, broker, ids, LOOK).await }
    });
    let newest = newest.await?;
    let mut found: Vec<(Entry, stored::StoredMessage)> = Vec::new();
    for entry in newest.entries {
        match stored::entry(&entry.body) {
            Some((of, message)) if of == topic => found.push((entry, message)),
            _ => {}
        }
    }
    incomplete |= newest.more || found.len() > limit;
    found.truncate(limit);
    let (readers, is_cut) = readers(edge, broker, &kept).await?;
    let filters = filters(edge, broker, &kept).await?;
    let now_ms = now_ms();
    let items = found.iter().map(|(entry, message)| shown(entry, message, &kept, &readers, now_ms)).collect();
    Ok(StoredMessages { items, filters, incomplete: incomplete || is_cut })
}

/// The streams for a topic, and whether there are more filters than are looked at.
async fn kept(edge: &Edge, broker: BrokerId, topic: &str) -> Result<(Vec<Kept>, bool), LiveError> {
    let mut rows = Vec::new();
    let exact = edge.run(|tx| async move { index::streams(&tx, broker, topic.as_bytes()).await }).await?;
    rows.push((topic.to_owned(), exact));
    let (mut after, mut looked_at) = (None, 0);
    let is_cut = loop {
        let from: Option<&[u8]> = after.as_deref();
        let page = edge
            .run(|tx| async move { index::list(&tx, broker, Part::Wildcard, from, WILDCARDS_AT_ONCE).await });
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
            true => Kept { id: of.stream, filter: filter.clone(), is_shared: false },
            false => {
                let filter = format!("$share/{}/{filter}", name(&of.group));
                Kept { id: of.stream, filter, is_shared: true }
            }
        })
    });
    Ok((all.collect(), is_cut))
}

/// Who reads each of the streams, and whether there are more sessions than are looked at.
async fn readers(
    edge: &Edge,
    broker: BrokerId,
    kept: &[Kept],
) -> Result<(HashMap<StreamId, Vec<Reader>>, bool), LiveError> {
    let mut readers: HashMap<StreamId, Vec<Reader>> = HashMap::new();
    for of in kept.iter().filter(|kept| kept.is_shared) {
        let id = of.id;
        let progress = edge.run(|tx| async move { streams::progress(&tx, broker, id).await }).await?;
        readers.insert(id, vec![Reader { client_id: None, since: 0, progress, is_connected: false }]);
    }
    let (mut after, mut looked_at) = (None, 0);
    loop {
        let from: Option<&[u8]> = after.as_deref();
        let page = edge.run(|tx| async move {
            let mut found = Vec::new();
            for (client, record) in sessions::list(&tx, broker, from, SESSIONS_AT_ONCE).await? {
                let id = SessionId { broker, client: &client };
                let of = subscriptions::list(&tx, id).await?;
                found.push((client, record, of));
            }
            Ok(found)
        });
        let page = page.await?;
        let Some((last, ..)) = page.last() else { return Ok((readers, false)) };
        looked_at += page.len();
        after = Some(last.to_vec());
        for (client, record, subscriptions) in page {
            for of in subscriptions {
                let is_own = kept.iter().any(|kept| kept.id == of.stream && !kept.is_shared);
                if is_own && !record.is_expired(now_ms()) {
                    readers.entry(of.stream).or_default().push(reader(&client, &record, of.since));
                }
                if let Some(group) = readers.get_mut(&of.stream).filter(|_| !is_own) {
                    group[0].is_connected |= !record.is_detached();
                }
            }
        }
        if looked_at >= SESSIONS_MAX {
            return Ok((readers, true));
        }
    }
}

fn reader(client: &[u8], record: &Record, since: Version) -> Reader {
    let progress = Progress { cursor: record.cursor, acknowledged: record.acknowledged.clone() };
    Reader { client_id: Some(name(client)), since, progress, is_connected: !record.is_detached() }
}

async fn filters(edge: &Edge, broker: BrokerId, kept: &[Kept]) -> Result<Vec<StoringFilter>, LiveError> {
    let mut filters = Vec::with_capacity(kept.len());
    for Kept { id, filter, .. } in kept {
        let id = *id;
        let counted = edge.run(|tx| async move {
            let row = streams::stream(&tx, broker, id, Read::Snapshot).await?;
            let trimmed = row.map_or(0, |row| row.missed_since(Position::MIN).at_most);
            Ok((subscriptions::subscribers(&tx, broker, id).await?, trimmed))
        });
        let (subscriptions, trimmed) = counted.await?;
        filters.push(StoringFilter { filter: filter.clone(), subscriptions, trimmed });
    }
    Ok(filters)
}

fn shown(
    entry: &Entry,
    message: &stored::StoredMessage,
    kept: &[Kept],
    readers: &HashMap<StreamId, Vec<Reader>>,
    now_ms: u64,
) -> StoredMessage {
    let is_expired = message.expires_at_ms.is_some_and(|at_ms| at_ms <= now_ms);
    let of_entry: Vec<&Kept> = entry.sources.iter().filter_map(|at| kept.get(*at)).collect();
    let mut receivers: Vec<MessageReceiver> = Vec::new();
    for kept in &of_entry {
        let subscribed_before =
            |reader: &&Reader| Position::end_of(reader.since) < entry.position || reader.client_id.is_none();
        for reader in readers.get(&kept.id).into_iter().flatten().filter(subscribed_before) {
            receivers.push(MessageReceiver {
                client_id: reader.client_id.clone(),
                filter: kept.filter.clone(),
                state: state(reader, entry.position, is_expired),
            });
        }
    }
    let count = |state| receivers.iter().filter(|receiver| receiver.state == state).count() as u64;
    let (acknowledged, in_flight, waiting) =
        (count(ReceiverState::Acknowledged), count(ReceiverState::InFlight), count(ReceiverState::Waiting));
    receivers.sort_by(|one, other| (one.state, &one.client_id).cmp(&(other.state, &other.client_id)));
    receivers.truncate(RECEIVERS_MAX);
    StoredMessage {
        position: entry.position.to_string(),
        at_ms: entry.at_ms,
        qos: message.qos,
        payload_bytes: message.payload.len() as u64,
        expires_at_ms: message.expires_at_ms,
        filters: of_entry.iter().map(|kept| kept.filter.clone()).collect(),
        acknowledged,
        in_flight,
        waiting,
        receivers,
    }
}

fn state(reader: &Reader, position: Position, is_expired: bool) -> ReceiverState {
    let Progress { cursor, acknowledged } = &reader.progress;
    match () {
        () if position <= *cursor || acknowledged.contains(&position) => ReceiverState::Acknowledged,
        () if is_expired => ReceiverState::Expired,
        () if reader.is_connected => ReceiverState::InFlight,
        () => ReceiverState::Waiting,
    }
}
