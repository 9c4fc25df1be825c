//! The cost of a publish does not depend on the number of sessions; futures of the layers may move between threads.

mod common;

use bytes::Bytes;
use common::{BROKER, attach, database, id, publish_all, rows, run};
use millrace_layers::{
    Position, Store, retained,
    sessions::{self, Detach, fence},
    streams::{LossReason, NewEntry, ReadLimit, StreamLimits, StreamRef, StreamSource, Totals},
    subscriptions::{self, StoredOptions},
};
use millrace_storage::Database;

/// Offline sessions on one filter.
fn with_sessions(count: usize) -> Database {
    let database = database();
    let how = Detach { now_ms: 5, expiry_s: None, keep_will: false.into() };
    for number in 0..count {
        let client = format!("client{number}");
        let epoch = attach(&database, &client, false).epoch;
        run(&database, async |tx| {
            let owned = fence(tx, id(&client), epoch).await?;
            subscriptions::subscribe(&owned, b"fleet/+/commands", StoredOptions::default()).await?;
            sessions::detach(owned, how).await
        });
    }
    database
}

#[test]
fn a_publish_to_any_number_of_sessions_on_one_filter_is_one_write() {
    let message = [("fleet/7/commands", Bytes::from(vec![1; 5_000]))];
    for count in [1, 10, 300] {
        let database = with_sessions(count);
        publish_all(&database, &message);
        let before = rows(&database);
        publish_all(&database, &message);
        let after = rows(&database);
        let changed = after.iter().filter(|row| !before.contains(row)).count();
        assert_eq!(after.len() - before.len(), 1, "{count} sessions: one key more");
        assert_eq!(changed, 2, "{count} sessions: the message, and the counter of its stream");
    }
}

#[test]
fn a_publish_that_nobody_stores_writes_nothing() {
    let database = with_sessions(3);
    let before = rows(&database);
    publish_all(&database, &[("fleet/7/state", Bytes::from_static(b"x"))]);
    assert_eq!(rows(&database), before);
}

fn is_send<T: Send>(_: T) {}

#[test]
fn futures_can_be_sent_to_another_thread() {
    let store = Store::new(database());
    let limit = ReadLimit { entries: 1, bytes: 1 };
    let body = Bytes::new();
    let to = [StreamRef { stream: 1, partition: 0 }];
    let source = [StreamSource { stream: 1, since: 0 }];
    is_send(store.ensure_broker(b"default"));
    is_send(store.subscribe(id("c"), 1, b"a", StoredOptions::default()));
    is_send(store.unsubscribe(id("c"), 1, b"a"));
    is_send(store.checkpoint(id("c"), 1, Position::MIN));
    is_send(store.append(BROKER, &to, NewEntry { number: 0, now_ms: 1, body: &body }));
    is_send(store.read(BROKER, &source, Position::MIN, limit));
    let (keep, over_keep) = (Totals::default(), LossReason::Size);
    let limits = StreamLimits { now_ms: 1, before_ms: 1, keep, over_keep };
    is_send(store.limit_stream(BROKER, 1, limits, 10));
    is_send(store.retained(BROKER, b"#", None, 1));
    is_send(store.sweep(BROKER, 10));
    is_send(store.sweep_due(0, 1, 10, |tx, due, will| async move {
        retained::set(&tx, due.broker, b"gone", &will).await
    }));
}
