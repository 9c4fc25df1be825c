//! Reads retained messages of a broker from the store, for the API.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use millrace_control::{LiveError, Page, PageRequest, Retained, RetainedMessage, TopicBranch};
use millrace_edge::stored::{self, DecodedMessage};
use millrace_layers::{
    BrokerId,
    limits::TOPIC_BYTES_MAX,
    retained::{self, Bookmark},
};
use millrace_mqtt::Properties;
use millrace_storage::Read;

use super::live::LiveEdge;
use super::properties;
use crate::text::name;

/// Messages counted below one level of the tree; the answer then says that there are more.
const COUNTED_MAX: usize = 200;
/// Levels that one transaction reads, each with up to [`COUNTED_MAX`] + 1 rows. A longer page takes several
/// transactions, because the store ends a transaction after 5 s.
const BRANCHES_AT_ONCE: usize = 50;
/// Topics that a request compares with its filter, before its last transaction. The request has one of the few turns of
/// all tenants, so a filter that matches little must not keep that turn.
const EXAMINED_MAX: usize = 10_000;
/// Bytes that a request reads, before its last transaction.
const READ_BYTES_MAX: usize = 16 << 20;
/// Fewest messages that later transactions of a request look for, because a transaction that looks for few compares few topics.
const SOUGHT_AT_ONCE: usize = 100;

pub(super) async fn topics(
    edge: &LiveEdge,
    broker: BrokerId,
    topic: Option<&str>,
    page: &PageRequest,
) -> Result<Page<TopicBranch>, LiveError> {
    if topic.is_some_and(|topic| topic.len() > TOPIC_BYTES_MAX) {
        return Err(LiveError::Invalid { field: "below", what: "is longer than the longest topic".into() });
    }
    let mut after = page.after.clone();
    let (mut items, mut more) = (Vec::new(), true);
    while more && items.len() < page.limit {
        let (from, wanted) = (after.as_deref(), (page.limit - items.len()).min(BRANCHES_AT_ONCE));
        let below = topic.map(str::as_bytes);
        let found = edge
            .run(|tx| async move { retained::branches(&tx, broker, below, from, wanted, COUNTED_MAX).await })
            .await?;
        more = found.more;
        after = found.items.last().map(|last| last.level.to_vec()).or(after);
        items.extend(found.items.iter().map(|branch| shown_branch(topic, branch)));
    }
    Ok(Page { items, next: after.filter(|_| more) })
}

fn shown_branch(below: Option<&str>, branch: &retained::Branch) -> TopicBranch {
    let level = name(&branch.level);
    let topic = below.map_or_else(|| level.clone(), |below| format!("{below}/{level}"));
    let retained_messages = branch.messages as u64;
    TopicBranch { level, topic, has_message: branch.has_message, retained_messages, is_more: branch.is_more }
}

pub(super) async fn list(
    edge: &LiveEdge,
    broker: BrokerId,
    filter: Option<&str>,
    page: &PageRequest,
) -> Result<Page<Retained>, LiveError> {
    filter.map_or(Ok(()), check)?;
    let mut from = page.after.as_deref().map(|topic| Bookmark::after(broker, topic));
    let mut items: Vec<Retained> = Vec::new();
    let (mut sought, mut examined, mut bytes) = (page.limit, 0, 0);
    loop {
        let begin = from.as_ref();
        let found = edge
            .run(|tx| async move {
                match filter {
                    Some(filter) => {
                        let filter = filter.as_bytes();
                        retained::matching(&tx, broker, filter, begin, sought, Read::Snapshot).await
                    }
                    None => retained::all(&tx, broker, begin, sought, Read::Snapshot).await,
                }
            })
            .await?;
        for item in found.items {
            if items.len() == page.limit {
                let next = items.last().map(|last| last.topic.clone().into_bytes());
                return Ok(Page { items, next });
            }
            let topic = name(&item.topic);
            let message = decode(&topic, &item.body)?;
            items.push(shown(topic, &message));
        }
        from = found.next;
        if from.is_none() {
            return Ok(Page { items, next: None });
        }
        examined += found.examined;
        bytes += found.bytes;
        if items.len() == page.limit || examined >= EXAMINED_MAX || bytes >= READ_BYTES_MAX {
            return Ok(Page { items, next: found.examined_to.map(Vec::from) });
        }
        sought = (page.limit - items.len()).max(SOUGHT_AT_ONCE);
    }
}

pub(super) async fn show(
    edge: &LiveEdge,
    broker: BrokerId,
    topic: &str,
) -> Result<RetainedMessage, LiveError> {
    let body = body(edge, broker, topic).await?.ok_or(LiveError::NotFound("retained message"))?;
    let message = decode(topic, &body)?;
    let retained = shown(topic.to_owned(), &message);
    let properties = properties::shown(Properties::from_validated(&message.encoded_properties));
    let (payload, payload_base64) = match String::from_utf8(message.payload) {
        Ok(text) => (Some(text), None),
        Err(error) => (None, Some(BASE64_STANDARD.encode(error.as_bytes()))),
    };
    Ok(RetainedMessage { retained, properties, payload, payload_base64 })
}

pub(super) async fn body(edge: &LiveEdge, broker: BrokerId, topic: &str) -> Result<Option<Bytes>, LiveError> {
    if !stored::is_topic(topic) {
        let what = "is not a topic: give one without + and #, such as plant/1/state".into();
        return Err(LiveError::Invalid { field: "topic", what });
    }
    if topic.len() > TOPIC_BYTES_MAX {
        return Ok(None);
    }
    edge.run(|tx| async move { retained::get(&tx, broker, topic.as_bytes(), Read::Snapshot).await }).await
}

fn shown(topic: String, message: &DecodedMessage) -> Retained {
    Retained {
        topic,
        qos: message.qos,
        expires_at_ms: message.expires_at_ms,
        payload_bytes: message.payload.len() as u64,
    }
}

fn decode(topic: &str, body: &[u8]) -> Result<DecodedMessage, LiveError> {
    stored::retained(topic, body).ok_or_else(|| {
        LiveError::Unavailable(format!(
            "the message of \"{topic}\" has a format of a newer version: update this server to read it"
        ))
    })
}

/// Refuses an invalid filter, which might match by chance.
fn check(filter: &str) -> Result<(), LiveError> {
    if stored::is_filter(filter) && !filter.starts_with("$share/") {
        return Ok(());
    }
    let what = "is not a topic filter: + stands for one level, # for all levels at the end".into();
    Err(LiveError::Invalid { field: "filter", what })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use millrace_layers::{Store, catalog};
    use millrace_storage::{Database, block_on};

    use super::*;

    /// A server whose broker retains a message on each of these topics.
    fn retaining(topics: &[String]) -> (LiveEdge, BrokerId) {
        // Format 1, RETAIN, no expiry, no properties, and a payload.
        let body = Bytes::from([&[1, 4][..], &[0; 12], b"on"].concat());
        let database = Database::memory();
        let store = Store::new(database.clone());
        let broker = block_on(store.ensure_broker(catalog::DEFAULT)).unwrap().id;
        for some in topics.chunks(1_000) {
            let set = store.run(async |tx| {
                for topic in some {
                    retained::set(&tx, broker, topic.as_bytes(), &body).await?;
                }
                Ok(())
            });
            block_on(set).unwrap();
        }
        (LiveEdge::new(database, Arc::default()), broker)
    }

    /// The topics and the number of each request's messages, until the list ends.
    async fn listed(
        edge: &LiveEdge,
        broker: BrokerId,
        filter: &str,
        limit: usize,
    ) -> (Vec<String>, Vec<usize>) {
        let (mut topics, mut counts, mut after) = (Vec::new(), Vec::new(), None);
        loop {
            let page = list(edge, broker, Some(filter), &PageRequest { after, limit }).await.unwrap();
            counts.push(page.items.len());
            topics.extend(page.items.into_iter().map(|item| item.topic));
            after = page.next;
            if after.is_none() {
                return (topics, counts);
            }
        }
    }

    #[tokio::test]
    async fn a_filter_that_matches_nothing_reads_a_bounded_part_with_each_request() {
        let topics: Vec<String> = (0..25_000).map(|number| format!("{number}/y")).collect();
        let (edge, broker) = retaining(&topics);
        for limit in [1, 200] {
            let (found, counts) = listed(&edge, broker, "+/x", limit).await;
            assert_eq!((found, counts), (Vec::new(), vec![0; 3]), "{limit}");
        }
    }

    #[tokio::test]
    async fn a_list_with_long_gaps_has_each_message_once() {
        let is_found = |number: &usize| number % 5_000 < 3;
        let topics: Vec<String> = (0..22_000)
            .map(|number| format!("{number:05}/{}", if is_found(&number) { "x" } else { "y" }))
            .collect();
        let (edge, broker) = retaining(&topics);
        let expected: Vec<String> =
            (0..22_000).filter(is_found).map(|number| format!("{number:05}/x")).collect();
        for limit in [1, 2, 4, 200] {
            let (found, counts) = listed(&edge, broker, "+/x", limit).await;
            assert_eq!(found, expected, "{limit}");
            assert!(counts.iter().all(|count| *count <= limit), "{counts:?}");
        }
    }

    #[tokio::test]
    async fn large_messages_make_a_page_shorter() {
        let (edge, broker) = retaining(&[]);
        let body = Bytes::from([&[1, 4][..], &[0; 12], &[0; 1_000_000]].concat());
        let body = &body;
        for number in 0..40 {
            let topic = format!("{number:02}/x");
            let topic = topic.as_bytes();
            edge.run(|tx| async move { retained::set(&tx, broker, topic, body).await }).await.unwrap();
        }
        let (found, counts) = listed(&edge, broker, "#", 200).await;
        assert_eq!(found.len(), 40);
        assert!(counts.len() > 1 && counts.iter().all(|count| *count < 20), "{counts:?}");
    }
}
