//! Reads that only operators' tools need.

use bytes::Buf;
use millrace_storage::{Read, Transaction};

use crate::{error::Result, rows::Blob, sessions::SessionId, tags, tuple::Key};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredWill {
    /// From the connection's end.
    pub delay_s: u32,
    /// Size of the will's message.
    pub bytes: usize,
}

/// A snapshot read.
pub async fn will(tx: &Transaction, id: SessionId<'_>) -> Result<Option<StoredWill>> {
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
        sessions::{Attach, Will, purge},
        testing::{attached, database, id, request, run},
    };

    #[test]
    fn a_will_is_seen_while_it_waits() {
        let database = database();
        let will = Some(Will { delay_s: 9, body: Bytes::from_static(b"gone") });
        attached(&database, "c", &Attach { will, ..request("pod", 1) });
        attached(&database, "d", &request("pod", 1));
        let seen = |client| run(&database, async |tx| super::will(tx, id(client)).await);
        assert_eq!(seen("c"), Some(StoredWill { delay_s: 9, bytes: 4 }));
        assert_eq!((seen("d"), seen("e")), (None, None));
        run(&database, async |tx| purge(tx, id("c")).await);
        assert_eq!(seen("c"), None);
    }
}
