//! Helpers for tests of several layers.

use bytes::Bytes;
use millrace_storage::{Database, KeyRange, KeyValue, Read, Transaction, block_on};

use crate::{
    error::LayerResult,
    rows::all,
    sessions::{Attach, Attached, SessionId, attach},
    tags,
    tuple::Key,
};

mod round_trips;

pub(crate) use self::round_trips::RoundTrips;

pub(crate) const BROKER: crate::BrokerId = 1;

pub(crate) fn id(client: &str) -> SessionId<'_> {
    SessionId { broker: BROKER, client: client.as_bytes() }
}

/// In memory, or with the feature `foundationdb` an empty store in a cluster.
pub(crate) fn database() -> Database {
    #[cfg(not(feature = "foundationdb"))]
    return Database::memory();
    #[cfg(feature = "foundationdb")]
    {
        let host = std::sync::Arc::new(millrace_storage::System::new());
        millrace_storage::FoundationDb::scratch(host).expect("a cluster")
    }
}

pub(crate) fn run<T>(database: &Database, body: impl AsyncFn(&Transaction) -> LayerResult<T>) -> T {
    try_run(database, body).unwrap()
}

#[allow(clippy::needless_pass_by_value, reason = "so that a closure can stand in the call")]
pub(crate) fn try_run<T>(
    database: &Database,
    body: impl AsyncFn(&Transaction) -> LayerResult<T>,
) -> LayerResult<T> {
    let body = &body;
    block_on(database.run(|tx, _| async move { body(&tx).await }))
}

/// All rows but those that only ever grow: changes of the index, and usage.
pub(crate) fn rows(database: &Database) -> Vec<KeyValue> {
    let mut rows = block_on(all(&database.begin_unretried(), KeyRange::prefix([]), Read::Snapshot)).unwrap();
    let logs =
        [tags::CHANGE, tags::CHANGES, tags::USAGE_WINDOW, tags::USAGE_LEVEL].map(|tag| Key::new(BROKER, tag));
    rows.retain(|row| logs.iter().all(|log| !row.key.starts_with(log.as_ref())));
    rows
}

/// The session stays for 100 s and has no will.
pub(crate) fn request(owner: &str, now_ms: u64) -> Attach {
    Attach {
        owner: Bytes::copy_from_slice(owner.as_bytes()),
        clean: false,
        expiry_s: 100,
        now_ms,
        will: None,
        details: None,
    }
}

pub(crate) fn attached(database: &Database, client: &str, request: &Attach) -> Attached {
    run(database, async |tx| attach(tx, id(client), request.clone()).await)
}
