//! Documents: JSON records with a version. The control plane stores accounts and brokers' settings as documents. An
//! older reader ignores unknown fields; a long document takes several values of the store.

use bytes::{Buf, BufMut, Bytes};
use millrace_storage::{KeyRange, KeyValue, RangeOptions, Read, Transaction, after};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    BrokerId,
    error::{LayerError, LayerResult},
    rows::Blob,
    tags,
    tuple::{Elements, Key},
};

/// The stored form is the version in 8 bytes, then JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document<T> {
    pub value: T,
    /// Grows with each write, also when the document was removed and made again in between.
    pub version: u64,
}

impl<T: Serialize> Document<T> {
    /// # Errors
    /// [`LayerError::Corrupt`]: the value cannot be written as JSON.
    pub fn encode(&self) -> LayerResult<Bytes> {
        let mut bytes = Vec::with_capacity(256);
        bytes.put_u64(self.version);
        serde_json::to_writer(&mut bytes, &self.value).map_err(|_| CORRUPT)?;
        Ok(bytes.into())
    }
}

impl<T: DeserializeOwned> Document<T> {
    pub fn decode(mut bytes: &[u8]) -> LayerResult<Self> {
        let version = bytes.try_get_u64()?;
        Ok(Self { value: serde_json::from_slice(bytes).map_err(|_| CORRUPT)?, version })
    }
}

const CORRUPT: LayerError = LayerError::Corrupt("document");

/// A version for a document whose stored version is `old`.
pub async fn next_version(tx: &Transaction, old: Option<u64>) -> LayerResult<u64> {
    // Every earlier write is older than the read version, so no version is used twice.
    Ok(tx.read_version().await?.max(old.map_or(1, |old| old + 1)))
}

/// Documents of one kind by id; [`crate::accounts`] lists all collections.
#[derive(Clone, Debug)]
pub struct Collection {
    rows: Key,
    chunks: Key,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentPage<T> {
    /// Ids and documents, in order of ids.
    pub items: Vec<(Bytes, Document<T>)>,
    pub more: bool,
}

impl Collection {
    pub(crate) fn new(broker: BrokerId, tag: &[u8]) -> Self {
        Self { rows: Key::new(broker, tag), chunks: Key::new(broker, tags::DOCUMENT_CHUNK).bytes(tag) }
    }

    pub(crate) fn of(self, owner: &[u8]) -> Self {
        Self { rows: self.rows.bytes(owner), chunks: self.chunks.bytes(owner) }
    }

    pub async fn get<T: DeserializeOwned>(
        &self,
        tx: &Transaction,
        id: &[u8],
        read: Read,
    ) -> LayerResult<Option<Document<T>>> {
        self.blob(id).get(tx, read).await?.map(|value| Document::decode(&value)).transpose()
    }

    /// Creates or replaces a document, and returns its version.
    ///
    /// # Errors
    /// [`LayerError::BodyTooLarge`], or the store's.
    pub async fn put<T: Serialize>(&self, tx: &Transaction, id: &[u8], value: &T) -> LayerResult<u64> {
        let blob = self.blob(id);
        // The serializable read makes concurrent writers conflict.
        let old = blob.get(tx, Read::Serializable).await?;
        let old = old.map(|mut old| old.try_get_u64()).transpose()?;
        let document = Document { value, version: next_version(tx, old).await? };
        blob.set(tx, &document.encode()?).await?;
        Ok(document.version)
    }

    pub async fn clear(&self, tx: &Transaction, id: &[u8]) -> LayerResult<()> {
        self.blob(id).clear(tx).await
    }

    /// Removes all documents of a collection that is small enough for one transaction.
    pub fn clear_all(&self, tx: &Transaction) -> LayerResult<()> {
        tx.clear_range(self.chunks.children())?;
        Ok(tx.clear_range(self.rows.children())?)
    }

    pub async fn page<T: DeserializeOwned>(
        &self,
        tx: &Transaction,
        from: Option<&[u8]>,
        limit: usize,
        read: Read,
    ) -> LayerResult<DocumentPage<T>> {
        self.page_beginning_with(tx, b"", from, limit, read).await
    }

    /// Reads only the documents whose id begins with `start`, after the id `from`.
    pub async fn page_beginning_with<T: DeserializeOwned>(
        &self,
        tx: &Transaction,
        start: &[u8],
        from: Option<&[u8]>,
        limit: usize,
        read: Read,
    ) -> LayerResult<DocumentPage<T>> {
        self.bounded_page(tx, start, from, (limit, usize::MAX), read).await
    }

    /// Like [`Self::page_beginning_with`], but the page ends with the document that brings it to `bytes_max` stored bytes.
    pub async fn bounded_page<T: DeserializeOwned>(
        &self,
        tx: &Transaction,
        start: &[u8],
        from: Option<&[u8]>,
        (limit, bytes_max): (usize, usize),
        read: Read,
    ) -> LayerResult<DocumentPage<T>> {
        let KeyRange { begin, end } = self.rows.beginning_with(start);
        let begin =
            from.map_or(begin.clone(), |from| after(self.rows.clone().bytes(from).as_ref()).max(begin));
        if begin >= end {
            return Ok(DocumentPage { items: Vec::new(), more: false });
        }
        let (mut items, mut bytes, mut rest) = (Vec::new(), 0, Some(KeyRange::new(begin, end)));
        while let Some(range) = rest.take() {
            let (rows, more) = next_rows(tx, range, limit - items.len(), read).await?;
            rest = more;
            for (number, row) in rows.iter().enumerate() {
                let id = Elements::after(&self.rows, &row.key)?.bytes()?;
                let body = self.blob(&id).rest(tx, row.value.clone()).await?;
                bytes += body.len();
                items.push((id.into(), Document::decode(&body)?));
                if bytes >= bytes_max || items.len() >= limit {
                    let more = rest.is_some() || number + 1 < rows.len();
                    return Ok(DocumentPage { items, more });
                }
            }
        }
        Ok(DocumentPage { items, more: false })
    }

    /// The ids of the first `limit` documents, with the lengths of their JSON, which is not parsed.
    pub async fn lengths(
        &self,
        tx: &Transaction,
        limit: usize,
        read: Read,
    ) -> LayerResult<Vec<(Bytes, usize)>> {
        let (mut lengths, mut rest) = (Vec::new(), Some(self.range()));
        while let Some(range) = rest.take().filter(|_| lengths.len() < limit) {
            let (rows, more) = next_rows(tx, range, limit - lengths.len(), read).await?;
            rest = more;
            for row in rows {
                let id = Elements::after(&self.rows, &row.key)?.bytes()?;
                let body = self.blob(&id).rest(tx, row.value).await?;
                lengths.push((id.into(), body.len().saturating_sub(size_of::<u64>())));
            }
        }
        Ok(lengths)
    }

    pub(crate) fn range(&self) -> KeyRange {
        self.rows.children()
    }

    fn blob(&self, id: &[u8]) -> Blob {
        Blob { row: self.rows.clone().bytes(id), chunks: self.chunks.clone().bytes(id) }
    }
}

/// The first rows of a range, and what is left of it. A range read ends after a megabyte, whatever its limit.
async fn next_rows(
    tx: &Transaction,
    range: KeyRange,
    limit: usize,
    read: Read,
) -> LayerResult<(Vec<KeyValue>, Option<KeyRange>)> {
    let page = tx.range(range.clone(), RangeOptions { limit, reverse: false, read }).await?;
    let last = page.items.last().filter(|_| page.more);
    let rest = last.map(|last| KeyRange::new(after(&last.key), range.end));
    Ok((page.items, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{database, run};

    fn collection() -> Collection {
        Collection::new(tags::REGION, b"test")
    }

    #[test]
    fn a_version_is_never_given_twice_to_one_id() {
        let (database, all) = (database(), collection());
        let mut versions = Vec::new();
        for _ in 0..3 {
            versions.push(run(&database, async |tx| all.put(tx, b"a", &"x").await));
            versions.push(run(&database, async |tx| all.put(tx, b"a", &"y").await));
            let found = run(&database, async |tx| all.get::<String>(tx, b"a", Read::Snapshot).await);
            assert_eq!(found, Some(Document { value: "y".into(), version: versions[versions.len() - 1] }));
            run(&database, async |tx| all.clear(tx, b"a").await);
            assert_eq!(run(&database, async |tx| all.get::<String>(tx, b"a", Read::Snapshot).await), None);
        }
        assert!(versions.is_sorted_by(|a, b| a < b), "{versions:?}");
    }

    #[test]
    fn a_length_is_that_of_the_json_also_in_several_values() {
        let (database, all) = (database(), collection());
        let texts = ["", "\"x\"", &"y".repeat(300_000)].map(str::to_owned);
        run(&database, async |tx| {
            for (id, text) in (b'a'..).zip(&texts) {
                all.put(tx, &[id], text).await?;
            }
            Ok(())
        });
        let lengths = |limit| run(&database, async |tx| all.lengths(tx, limit, Read::Snapshot).await);
        let length = |text: &String| serde_json::to_vec(text).unwrap().len();
        let expected: Vec<_> =
            (b'a'..).zip(&texts).map(|(id, text)| (Bytes::from(vec![id]), length(text))).collect();
        assert_eq!(lengths(9), expected);
        assert_eq!(lengths(2), expected[..2]);
    }

    #[test]
    fn a_page_and_the_lengths_have_as_many_documents_as_the_limit_however_long_they_are() {
        let (database, all) = (database(), collection());
        let long = "x".repeat(90_000);
        for part in 0..4_u8 {
            run(&database, async |tx| {
                for number in 0..10 {
                    all.put(tx, &[part, number], &long).await?;
                }
                Ok(())
            });
        }
        for (limit, count) in [(1, 1), (11, 11), (12, 12), (30, 30), (40, 40), (50, 40)] {
            let page = run(&database, async |tx| all.page::<String>(tx, None, limit, Read::Snapshot).await);
            assert_eq!((page.items.len(), page.more), (count, limit < 40), "{limit}");
            let lengths = run(&database, async |tx| all.lengths(tx, limit, Read::Snapshot).await);
            assert_eq!(lengths.len(), count, "{limit}");
        }
    }

    #[test]
    fn pages_go_on_where_they_ended() {
        let (database, all) = (database(), collection());
        run(&database, async |tx| {
            for id in [b"a", b"b", b"c"] {
                all.put(tx, id, &id[0]).await?;
            }
            Ok(())
        });
        let page = |from: Option<&'static [u8]>| {
            let page = run(&database, async |tx| all.page::<u8>(tx, from, 2, Read::Snapshot).await);
            (page.items.iter().map(|(_, document)| document.value).collect::<Vec<_>>(), page.more)
        };
        assert_eq!(page(None), (vec![b'a', b'b'], true));
        assert_eq!(page(Some(b"b")), (vec![b'c'], false));
        let found = |start: &'static [u8], from: Option<&'static [u8]>| {
            let page = run(&database, async |tx| {
                all.page_beginning_with::<u8>(tx, start, from, 9, Read::Snapshot).await
            });
            page.items.iter().map(|(_, document)| document.value).collect::<Vec<_>>()
        };
        assert_eq!((found(b"b", None), found(b"", Some(b"a"))), (vec![b'b'], vec![b'b', b'c']));
        // A cursor of another search leads neither before the range nor behind it.
        assert_eq!((found(b"b", Some(b"a")), found(b"b", Some(b"c"))), (vec![b'b'], vec![]));
        run(&database, async |tx| all.clear_all(tx));
        assert_eq!(page(None), (vec![], false));
    }

    #[test]
    fn a_bounded_page_ends_with_the_document_that_reaches_the_bound() {
        let (database, all) = (database(), collection());
        let long = "x".repeat(1_000);
        run(&database, async |tx| {
            for id in [b"a", b"b", b"c"] {
                all.put(tx, id, &long).await?;
            }
            Ok(())
        });
        let page = |from: Option<&'static [u8]>, bytes_max| {
            let page = run(&database, async |tx| {
                all.bounded_page::<String>(tx, b"", from, (9, bytes_max), Read::Snapshot).await
            });
            (page.items.len(), page.more)
        };
        assert_eq!(page(None, 1), (1, true), "a page has a document, however long it is");
        assert_eq!(page(None, 1_500), (2, true));
        assert_eq!(page(Some(b"b"), 1), (1, false));
        assert_eq!(page(None, 1_000_000), (3, false));
    }

    #[test]
    fn a_document_may_be_longer_than_a_value_and_leaves_nothing_behind() {
        let (database, all) = (database(), collection().of(b"owner"));
        let long = "x".repeat(250_000);
        for value in [&long[..], "short", &long] {
            run(&database, async |tx| all.put(tx, b"a", &value).await);
            let page = run(&database, async |tx| all.page::<String>(tx, None, 9, Read::Snapshot).await);
            assert_eq!(page.items[0].1.value, value);
        }
        run(&database, async |tx| all.clear(tx, b"a").await);
        assert!(crate::testing::rows(&database).is_empty());
        run(&database, async |tx| all.put(tx, b"a", &long).await);
        run(&database, async |tx| all.clear_all(tx));
        assert!(crate::testing::rows(&database).is_empty());
    }

    #[test]
    fn two_that_change_a_document_at_once_conflict() {
        let (database, all) = (database(), collection());
        let [one, other] = [database.begin_unretried(), database.begin_unretried()];
        let put = |tx| millrace_storage::block_on(async { all.put(tx, b"a", &1).await });
        assert!(put(&one).is_ok() && put(&other).is_ok());
        assert!(millrace_storage::block_on(one.commit()).is_ok());
        assert!(millrace_storage::block_on(other.commit()).is_err());
    }
}
