//! Snapshot reads for operators' tools and the API.

use bytes::Buf;
use millrace_storage::{Read, Transaction};

use crate::{
    SessionId,
    error::LayerResult,
    name::GroupedFilter,
    rows::Blob,
    session_record::{self, SessionRecord},
    streams::{self, StreamSource, WaitingMessages},
    subscriptions::{self, NO_STREAM, StoredSubscription},
    tags,
    tuple::Key,
};

pub struct StoredSession {
    pub record: SessionRecord,
    pub subscriptions: Vec<StoredSubscription>,
    pub waiting: WaitingMessages,
}

/// Snapshot reads; at most `waiting_max` messages are counted.
pub async fn session(
    tx: &Transaction,
    id: SessionId<'_>,
    waiting_max: usize,
) -> LayerResult<Option<StoredSession>> {
    let Some(record) = session_record::get(tx, id, Read::Snapshot).await? else { return Ok(None) };
    let subscriptions = subscriptions::list(tx, id).await?;
    // Messages of shared subscriptions wait in their group, which has a cursor of its own.
    let own = |of: &&StoredSubscription| {
        of.stream != NO_STREAM && GroupedFilter::parse(&of.filter).group.is_empty()
    };
    let sources: Vec<StreamSource> = subscriptions
        .iter()
        .filter(own)
        .map(|of| StreamSource { stream: of.stream, since: of.since })
        .collect();
    let (cursor, acknowledged) = (record.cursor, &record.acknowledged);
    let waiting = streams::waiting(tx, id.broker, &sources, cursor, acknowledged, waiting_max).await?;
    Ok(Some(StoredSession { record, subscriptions, waiting }))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredWill {
    /// Seconds from the end of the connection.
    pub delay_s: u32,
    pub bytes: usize,
}

pub async fn will(tx: &Transaction, id: SessionId<'_>) -> LayerResult<Option<StoredWill>> {
    let key = |tag| Key::new(id.broker, tag).bytes(id.client);
    let blob = Blob { row: key(tags::WILL), chunks: key(tags::WILL_CHUNK) };
    let Some(mut body) = blob.get(tx, Read::Snapshot).await? else { return Ok(None) };
    Ok(Some(StoredWill { delay_s: body.try_get_u32()?, bytes: body.len() }))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{
        sessions::{Attach, PendingWill, purge},
        testing::{attached, database, id, request, run},
    };

    #[test]
    fn a_will_is_seen_while_it_waits() {
        let database = database();
        let will = Some(PendingWill { delay_s: 9, body: Bytes::from_static(b"gone") });
        attached(&database, "c", &Attach { will, ..request("pod", 1) });
        attached(&database, "d", &request("pod", 1));
        let seen = |client| run(&database, async |tx| super::will(tx, id(client)).await);
        assert_eq!(seen("c"), Some(StoredWill { delay_s: 9, bytes: 4 }));
        assert_eq!((seen("d"), seen("e")), (None, None));
        run(&database, async |tx| purge(tx, id("c")).await);
        assert_eq!(seen("c"), None);
    }
}
