//! Helpers of tests over several layers: they publish as a broker does, without its trie.

#![allow(dead_code)]

use bytes::Bytes;
use millrace_layers::{
    LayerResult, index,
    sessions::{self, Attach, Attached, SessionId},
    streams::{self, NewEntry, StreamRef},
};
use millrace_storage::{Database, KeyRange, KeyValue, RangeOptions, Transaction, block_on};

pub(crate) const BROKER: u64 = 1;

pub(crate) fn id(client: &str) -> SessionId<'_> {
    SessionId { broker: BROKER, client: client.as_bytes() }
}

/// A store for a test: in memory, or with the feature `foundationdb` one of its own in a cluster.
pub(crate) fn database() -> Database {
    #[cfg(not(feature = "foundationdb"))]
    return Database::memory();
    #[cfg(feature = "foundationdb")]
    {
        let host = std::sync::Arc::new(millrace_storage::System::new());
        millrace_storage::FoundationDb::scratch(host).expect("a cluster")
    }
}

#[allow(clippy::needless_pass_by_value, reason = "so that a closure can stand in the call")]
pub(crate) fn run<T>(database: &Database, body: impl AsyncFn(&Transaction) -> LayerResult<T>) -> T {
    let body = &body;
    block_on(database.run(|tx, _| async move { body(&tx).await })).expect("a transaction that is not refused")
}

pub(crate) fn rows(database: &Database) -> Vec<KeyValue> {
    #[allow(clippy::disallowed_methods)]
    let tx = database.begin_unretried();
    let page =
        block_on(tx.range(KeyRange::prefix([]), RangeOptions::first(usize::MAX).snapshot())).expect("a page");
    assert!(!page.more);
    // The number of usage rows of a broker does not depend on what it did.
    let is_usage = |key: &[u8]| key.windows(4).any(|part| part == b"\x01yw\0" || part == b"\x01yl\0");
    page.items.into_iter().filter(|row| !is_usage(&row.key)).collect()
}

pub(crate) fn attach(database: &Database, client: &str, clean: bool) -> Attached {
    let request = Attach {
        owner: Bytes::from_static(b"pod"),
        clean,
        expiry_s: sessions::EXPIRY_NEVER,
        now_ms: 1,
        will: None,
        details: None,
    };
    run(database, async |tx| sessions::attach(tx, id(client), request.clone()).await)
}

/// The rule of MQTT, level by level.
pub(crate) fn matches(filter: &str, topic: &str) -> bool {
    let (filter, topic): (Vec<_>, Vec<_>) = (filter.split('/').collect(), topic.split('/').collect());
    for (depth, level) in filter.iter().enumerate() {
        match *level {
            "#" => return true,
            "+" if depth < topic.len() => {}
            exact if topic.get(depth) == Some(&exact) => {}
            _ => return false,
        }
    }
    filter.len() == topic.len()
}

/// The streams of a topic, in the way of a publish: read so that it conflicts with what would change them.
pub(crate) async fn streams_of(tx: &Transaction, topic: &str) -> LayerResult<Vec<StreamRef>> {
    let mut streams = index::streams(tx, BROKER, topic.as_bytes()).await?;
    for row in index::list(tx, BROKER, index::IndexPart::Wildcard, None, 1_000).await? {
        if matches(std::str::from_utf8(&row.filter).expect("a filter of this test"), topic) {
            streams.extend(row.streams);
        }
    }
    index::watch(tx, BROKER, topic.as_bytes())?;
    Ok(streams.iter().map(|indexed| StreamRef { stream: indexed.stream, partition: 0 }).collect())
}

/// Publishes messages in one transaction.
pub(crate) fn publish_all(database: &Database, messages: &[(&str, Bytes)]) {
    run(database, async |tx| {
        for (place, (topic, body)) in messages.iter().enumerate() {
            let streams = streams_of(tx, topic).await?;
            let publish = NewEntry { number: place as u16, now_ms: 1, body };
            streams::append(tx, BROKER, &streams, publish)?;
        }
        Ok(())
    });
}
