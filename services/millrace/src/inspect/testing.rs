//! Helpers of several tests: a filled store, and a fake server.

use std::path::Path;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use millrace_layers::{
    Store,
    sessions::{Attach, SessionId},
    streams::{NewEntry, StreamRef},
    subscriptions::StoredOptions,
};
use millrace_storage::{Embedded, Options as StoreOptions, block_on};

use super::open_folder::{AnswerError, OpenFolder};
use super::request::{InspectRequest, SocketCall};
use super::rows::InspectRow;
use crate::running::LiveChanges;

pub(super) const BROKER: u64 = 1;

pub(super) fn opened(folder: &Path, live: Option<Arc<dyn LiveChanges>>) -> OpenFolder {
    let embedded = Embedded::open(folder, StoreOptions::default()).unwrap();
    let opened = OpenFolder::new(folder.into(), embedded, live);
    let broker = block_on(opened.layers.ensure_broker(b"default")).unwrap();
    assert_eq!(broker.id, BROKER);
    opened
}

/// Subscribes a session that stays; returns the stream.
pub(super) fn subscribed(layers: &Store, client: &str, filter: &str) -> StreamRef {
    let id = SessionId { broker: BROKER, client: client.as_bytes() };
    let request = Attach {
        owner: Bytes::from_static(b"test"),
        clean: false,
        expiry_s: 3_600,
        now_ms: crate::clock::now_ms(),
        will: None,
        details: None,
    };
    let epoch = block_on(layers.attach(id, &request)).unwrap().epoch;
    let subscribed =
        block_on(layers.subscribe(id, epoch, filter.as_bytes(), StoredOptions::default())).unwrap();
    StreamRef { stream: subscribed.stream, partition: 0 }
}

pub(super) fn append(layers: &Store, to: &[StreamRef], body: &Bytes) {
    block_on(layers.append(BROKER, to, NewEntry { number: 0, now_ms: crate::clock::now_ms(), body }))
        .unwrap();
}

pub(super) fn call(request: &InspectRequest) -> SocketCall {
    SocketCall { by: "ann".into(), request: request.clone() }
}

pub(super) fn rows(opened: &OpenFolder, request: &InspectRequest) -> Result<Vec<InspectRow>, AnswerError> {
    let mut rows = Vec::new();
    opened.answer(&call(request), &mut |row| {
        rows.push(row);
        Ok(())
    })?;
    Ok(rows)
}

/// A server that records requests, and has every session and message.
#[derive(Default)]
pub(super) struct Asked(pub(super) Mutex<Vec<String>>);

impl LiveChanges for Asked {
    fn purge_session(&self, broker: &str, client_id: &str) -> Result<bool, String> {
        self.0.lock().unwrap().push(format!("session {broker} {client_id}"));
        Ok(true)
    }

    fn clear_retained(&self, broker: &str, topic: &str) -> Result<bool, String> {
        self.0.lock().unwrap().push(format!("retained {broker} {topic}"));
        Ok(true)
    }
}
