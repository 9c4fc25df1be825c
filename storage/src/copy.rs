//! Copies all keys of one store into another, also between engines.
//!
//! A copy is a comparison that writes the differences: it goes through both stores in key order,
//! page by page. So an interrupted copy continues where it stopped, and a last comparison without a
//! difference proves that both stores are equal. The source must have no writers; the comparison
//! detects any. Until [`EqualCopy::finish`], the target has a key that [`copy_is_unfinished`] finds,
//! so that no server starts on half of a store.
//!
//! Keys that hold a versionstamp are copied unchanged. So the target's versions must come after all
//! of the source's; otherwise new messages would sort before stored ones. See
//! [`CopyError::VersionsBehind`] and [`crate::Embedded::create_after`].

use bytes::Bytes;

use crate::{
    Database, KeyRange, KeyValue, RangeOptions, RangePage, Read, StoreError, StoreVersion, Transaction,
    after, limits::KEY_SPACE_END,
};

/// The value of this key is the id of the running copy, then the key before which all is copied or
/// compared.
/// The layers' keys are tuples, whose first byte is smaller, so a copy does not overwrite this key.
const UNFINISHED_KEY: &[u8] = b"\xfecopy";
const ID_BYTES: usize = 8;

/// Rows of a page: with [`crate::limits::PAGE_BYTES_MAX`], the writes of a page fit one
/// transaction.
const PAGE_ROWS: usize = 1_000;

/// Comparisons after the copy that may find differences; one more shows that the source has
/// writers.
const COMPARISONS_MAX: u32 = 3;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyProgress {
    pub keys: u64,
    pub bytes: u64,
    pub changed: u64,
    /// True after the pass that copied all keys, while stores are compared.
    pub is_comparing: bool,
}

/// A copy that failed keeps the copied keys, and the same call continues after them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    #[error("the target has data, and a copy needs an empty one")]
    NotEmpty,
    #[error("the source is itself the target of a copy that has not ended")]
    SourceUnfinished,
    /// New versionstamps of the target would sort before copied ones.
    #[error("the target is at version {target}, and the source is already at {source_version}")]
    VersionsBehind { source_version: StoreVersion, target: StoreVersion },
    #[error("the source changed while it was copied")]
    SourceChanges,
    #[error("another copy into the target has begun")]
    AnotherCopy,
    #[error("the source cannot be read")]
    Source(#[source] StoreError),
    #[error("the target cannot be written")]
    Target(#[source] StoreError),
}

/// True when the store is the target of a copy that has not ended.
///
/// # Errors
/// The store's.
pub async fn copy_is_unfinished(database: &Database) -> Result<bool, StoreError> {
    Ok(unfinished_at(database).await?.is_some())
}

/// A target that is equal to its source, and on which no server starts before [`EqualCopy::finish`].
#[must_use]
pub struct EqualCopy<'a> {
    target: &'a Database,
    id: u64,
    seen: CopyProgress,
}

impl EqualCopy<'_> {
    /// # Errors
    /// [`CopyError::AnotherCopy`], or the target cannot be written.
    pub async fn finish(self) -> Result<CopyProgress, CopyError> {
        finish(self.target, self.id).await?;
        Ok(self.seen)
    }
}

/// Makes `target`, which is empty or the target of an interrupted copy, equal to `source`, and
/// calls `progress` after each page. The caller checks that the source had no writers, and finishes
/// the copy; otherwise the same call continues it.
///
/// # Errors
/// See [`CopyError`].
pub async fn copy<'a>(
    source: &Database,
    target: &'a Database,
    progress: &mut (dyn FnMut(CopyProgress) + Send),
) -> Result<EqualCopy<'a>, CopyError> {
    if copy_is_unfinished(source).await.map_err(CopyError::Source)? {
        return Err(CopyError::SourceUnfinished);
    }
    let source_version = version(source).await.map_err(CopyError::Source)?;
    let target_version = version(target).await.map_err(CopyError::Target)?;
    if target_version < source_version {
        return Err(CopyError::VersionsBehind { source_version, target: target_version });
    }
    let id = target.random();
    let begin = begin(target, id).await.map_err(CopyError::Target)?.ok_or(CopyError::NotEmpty)?;
    let mut pass = CopyPass { source, target, id, seen: CopyProgress::default(), progress };
    pass.run(begin).await?;
    for _ in 0..COMPARISONS_MAX {
        pass.seen = CopyProgress { is_comparing: true, ..CopyProgress::default() };
        pass.run(Bytes::new()).await?;
        if pass.seen.changed == 0 {
            return Ok(EqualCopy { target, id, seen: pass.seen });
        }
    }
    Err(CopyError::SourceChanges)
}

/// The row that marks a store as the target of a copy of which nothing is there yet.
pub(crate) fn unfinished() -> (Bytes, Bytes) {
    (Bytes::from_static(UNFINISHED_KEY), value_of(0, &Bytes::new()))
}

async fn version(database: &Database) -> Result<StoreVersion, StoreError> {
    database.run(async |tx, _| tx.read_version().await).await
}

async fn unfinished_at(database: &Database) -> Result<Option<Bytes>, StoreError> {
    database.run(async |tx, _| tx.get(UNFINISHED_KEY, Read::Snapshot).await).await
}

/// Returns the key to continue from; `None` when the target has data of its own. Another copy that
/// still runs into the target ends, because the stored id is no longer its own.
async fn begin(target: &Database, id: u64) -> Result<Option<Bytes>, StoreError> {
    target
        .run(async |tx, _| {
            if let Some(value) = tx.get(UNFINISHED_KEY, Read::Serializable).await? {
                let begin = value.get(ID_BYTES..).map_or(Bytes::new(), Bytes::copy_from_slice);
                tx.set(UNFINISHED_KEY, value_of(id, &begin))?;
                return Ok(Some(begin));
            }
            let all = KeyRange::new([], KEY_SPACE_END);
            if !tx.range(all, RangeOptions::first(1)).await?.items.is_empty() {
                return Ok(None);
            }
            tx.set(UNFINISHED_KEY, value_of(id, &Bytes::new()))?;
            Ok(Some(Bytes::new()))
        })
        .await
}

async fn finish(target: &Database, id: u64) -> Result<(), CopyError> {
    let finished = target
        .run(async |tx, _| {
            let is_own = is_own(&tx, id).await?;
            if is_own {
                tx.clear(UNFINISHED_KEY)?;
            }
            Ok::<_, StoreError>(is_own)
        })
        .await;
    if finished.map_err(CopyError::Target)? { Ok(()) } else { Err(CopyError::AnotherCopy) }
}

async fn is_own(tx: &Transaction, id: u64) -> Result<bool, StoreError> {
    let value = tx.get(UNFINISHED_KEY, Read::Serializable).await?;
    Ok(value.is_some_and(|value| value.starts_with(&id.to_be_bytes())))
}

fn value_of(id: u64, begin: &Bytes) -> Bytes {
    [&id.to_be_bytes()[..], begin].concat().into()
}

struct CopyPass<'a> {
    source: &'a Database,
    target: &'a Database,
    id: u64,
    seen: CopyProgress,
    progress: &'a mut (dyn FnMut(CopyProgress) + Send),
}

impl CopyPass<'_> {
    async fn run(&mut self, mut begin: Bytes) -> Result<(), CopyError> {
        loop {
            let range = KeyRange { begin: begin.clone(), end: Bytes::from_static(KEY_SPACE_END) };
            let page = read(self.source, range).await.map_err(CopyError::Source)?;
            let end = end_of(&page);
            self.seen.keys += page.items.len() as u64;
            self.seen.bytes +=
                page.items.iter().map(|row| (row.key.len() + row.value.len()) as u64).sum::<u64>();
            let range = KeyRange { begin, end: end.clone() };
            self.seen.changed += equalise(self.target, self.id, range, &page.items).await?;
            (self.progress)(self.seen);
            if !page.more {
                return Ok(());
            }
            begin = end;
        }
    }
}

async fn equalise(target: &Database, id: u64, range: KeyRange, rows: &[KeyValue]) -> Result<u64, CopyError> {
    let (mut begin, mut rows, mut changed) = (range.begin, rows, 0);
    loop {
        let part = KeyRange { begin, end: range.end.clone() };
        let page = read(target, part).await.map_err(CopyError::Target)?;
        let end = if page.more { end_of(&page) } else { range.end.clone() };
        let (now, later) = rows.split_at(rows.partition_point(|row| row.key < end));
        let differences = differences(now, &page.items);
        if !differences.is_empty() {
            changed += differences.len() as u64;
            let (differences, end) = (&differences, &end);
            let written = target.run(async |tx, _| write(&tx, id, differences, end).await).await;
            if !written.map_err(CopyError::Target)? {
                return Err(CopyError::AnotherCopy);
            }
        }
        if !page.more {
            return Ok(changed);
        }
        (begin, rows) = (end, later);
    }
}

async fn read(database: &Database, range: KeyRange) -> Result<RangePage, StoreError> {
    database
        .run(move |tx, _| {
            let range = range.clone();
            async move { tx.range(range, RangeOptions::first(PAGE_ROWS).snapshot()).await }
        })
        .await
}

fn end_of(page: &RangePage) -> Bytes {
    match page.items.last() {
        Some(last) if page.more => after(&last.key),
        _ => Bytes::from_static(KEY_SPACE_END),
    }
}

/// Returns the writes that make `there` equal to `wanted`; `None` deletes a key.
fn differences(wanted: &[KeyValue], there: &[KeyValue]) -> Vec<(Bytes, Option<Bytes>)> {
    let mut writes = Vec::new();
    let mut there = there.iter().filter(|row| row.key != UNFINISHED_KEY).peekable();
    for row in wanted {
        while let Some(extra) = there.next_if(|other| other.key < row.key) {
            writes.push((extra.key.clone(), None));
        }
        if there.next_if(|other| other.key == row.key).is_none_or(|other| other.value != row.value) {
            writes.push((row.key.clone(), Some(row.value.clone())));
        }
    }
    writes.extend(there.map(|extra| (extra.key.clone(), None)));
    writes
}

async fn write(
    tx: &Transaction,
    id: u64,
    differences: &[(Bytes, Option<Bytes>)],
    end: &Bytes,
) -> Result<bool, StoreError> {
    if !is_own(tx, id).await? {
        return Ok(false);
    }
    for (key, value) in differences {
        match value {
            Some(value) => tx.set(key, value.clone())?,
            None => tx.clear(key)?,
        }
    }
    tx.set(UNFINISHED_KEY, value_of(id, end))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::{Embedded, Options, block_on};

    fn fill(database: &Database, rows: impl Iterator<Item = (String, Vec<u8>)>) {
        let rows: Vec<_> = rows.collect();
        for part in rows.chunks(500) {
            let filled: Result<(), StoreError> = block_on(
                database
                    .run(async |tx, _| part.iter().try_for_each(|(key, value)| tx.set(key, value.clone()))),
            );
            filled.unwrap();
        }
    }

    fn numbered(count: usize) -> impl Iterator<Item = (String, Vec<u8>)> {
        (0..count).map(|number| (format!("key {number:06}"), number.to_be_bytes().repeat(number % 50)))
    }

    fn rows(database: &Database) -> Vec<KeyValue> {
        let (mut rows, mut begin) = (Vec::new(), Bytes::new());
        loop {
            let range = KeyRange { begin, end: Bytes::from_static(KEY_SPACE_END) };
            let page = block_on(read(database, range)).unwrap();
            begin = end_of(&page);
            rows.extend(page.items);
            if !page.more {
                return rows;
            }
        }
    }

    async fn whole(
        source: &Database,
        target: &Database,
        progress: &mut (dyn FnMut(CopyProgress) + Send),
    ) -> Result<CopyProgress, CopyError> {
        copy(source, target, progress).await?.finish().await
    }

    fn copied(source: &Database, target: &Database) -> Result<CopyProgress, CopyError> {
        block_on(whole(source, target, &mut |_| {}))
    }

    /// A store in memory whose version is not behind that of a source with a few commits.
    fn ahead() -> Database {
        let database = Database::memory();
        for _ in 0..100 {
            fill(&database, [("x".to_owned(), vec![])].into_iter());
        }
        block_on(database.run(async |tx, _| tx.clear("x"))).unwrap();
        database
    }

    #[test]
    fn all_keys_are_copied_and_the_copy_is_finished() {
        let (source, target) = (Database::memory(), ahead());
        fill(&source, numbered(5_000));
        let seen = copied(&source, &target).unwrap();
        assert_eq!((seen.keys, seen.changed, seen.is_comparing), (5_000, 0, true));
        assert_eq!(rows(&source), rows(&target));
        assert!(!block_on(copy_is_unfinished(&target)).unwrap());
    }

    #[test]
    fn an_empty_store_is_copied() {
        assert_eq!(copied(&Database::memory(), &ahead()).unwrap().keys, 0);
    }

    #[test]
    fn a_target_with_data_is_refused_and_unchanged() {
        let (source, target) = (Database::memory(), ahead());
        fill(&source, numbered(3));
        fill(&target, [("mine".to_owned(), vec![1])].into_iter());
        assert!(matches!(copied(&source, &target), Err(CopyError::NotEmpty)));
        assert_eq!(rows(&target).len(), 1);
    }

    #[test]
    fn an_interrupted_copy_goes_on_and_takes_up_later_changes_of_the_source() {
        let (source, target) = (Database::memory(), ahead());
        fill(&source, numbered(5_000));
        // Interrupts the copy: the third page's progress panics.
        let mut pages = 0;
        let interrupted = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            block_on(whole(&source, &target, &mut |_| {
                pages += 1;
                assert!(pages < 3, "the copy is interrupted here");
            }))
        }));
        assert!(interrupted.is_err());
        assert!(block_on(copy_is_unfinished(&target)).unwrap());
        assert!(matches!(copied(&target, &ahead()), Err(CopyError::SourceUnfinished)));

        let changed: Result<(), StoreError> = block_on(source.run(async |tx, _| {
            tx.set("key 000001", &b"changed"[..])?;
            tx.clear("key 000002")?;
            tx.set("a key before all", &b"new"[..])
        }));
        changed.unwrap();
        let mut first = None;
        block_on(whole(&source, &target, &mut |seen| {
            first.get_or_insert(seen);
        }))
        .unwrap();
        assert_eq!(rows(&source), rows(&target));
        assert!(first.unwrap().keys <= 1_000 && !first.unwrap().is_comparing);
    }

    #[test]
    fn keys_that_the_source_has_not_are_deleted_over_many_pages() {
        let target = ahead();
        fill(&target, numbered(4_000));
        let wanted: Vec<_> = rows(&target).into_iter().filter(|row| row.key.ends_with(b"7")).collect();
        let all = KeyRange::new([], KEY_SPACE_END);
        let id = 7;
        block_on(target.run(async |tx, _| tx.set(UNFINISHED_KEY, value_of(id, &Bytes::new())))).unwrap();
        assert_eq!(block_on(equalise(&target, id, all.clone(), &wanted)).unwrap(), 3_600);
        let left: Vec<_> = rows(&target).into_iter().filter(|row| row.key != UNFINISHED_KEY).collect();
        assert_eq!(left, wanted);
        assert_eq!(block_on(equalise(&target, id, all, &wanted)).unwrap(), 0);
    }

    #[test]
    fn of_two_copies_at_once_the_later_one_counts() {
        let (source, other, target) = (Database::memory(), Database::memory(), ahead());
        fill(&source, numbered(5_000));
        fill(&other, numbered(30));
        let mut later = None;
        let first = block_on(whole(&source, &target, &mut |_| {
            later.get_or_insert_with(|| copied(&other, &target).map(|seen| seen.keys));
        }));
        assert!(matches!(first, Err(CopyError::AnotherCopy)), "{first:?}");
        assert_eq!(later.unwrap().unwrap(), 30);
        assert_eq!(rows(&target), rows(&other));
    }

    #[test]
    fn a_source_with_a_writer_is_found_out() {
        let (source, target) = (Database::memory(), ahead());
        fill(&source, numbered(10));
        let writer = source.clone();
        let result = block_on(whole(&source, &target, &mut |seen| {
            let value = format!("{seen:?}").into_bytes();
            fill(&writer, [("key 000003".to_owned(), value)].into_iter());
        }));
        assert!(matches!(result, Err(CopyError::SourceChanges)), "{result:?}");
        assert!(block_on(copy_is_unfinished(&target)).unwrap());
    }

    #[test]
    fn versions_of_a_new_folder_come_after_those_of_the_source() {
        let folder = tempfile::tempdir().unwrap();
        let source = Database::memory();
        fill(&source, numbered(3_000));
        let (behind, new) = (folder.path().join("behind"), folder.path().join("new"));
        let open = |path| Embedded::open(path, Options::default()).unwrap();
        let refused = copied(&source, &open(&behind).database());
        assert!(matches!(refused, Err(CopyError::VersionsBehind { .. })), "{refused:?}");

        Embedded::create_after(&new, 1_000_000).unwrap();
        // A second call, as of a copy that continues, changes nothing.
        Embedded::create_after(&new, 7).unwrap();
        let stamped = |database: &Database| {
            let committed = database
                .run_committed(async |tx, _| tx.set_versionstamped_key("stamped", [0, 0], "", Bytes::new()));
            block_on(committed)
                .map(|(_, committed): (_, crate::Committed)| committed.versionstamp.unwrap().version())
        };
        {
            let store = open(&new);
            copied(&source, &store.database()).unwrap();
            assert_eq!(rows(&source), rows(&store.database()));
            assert!(stamped(&store.database()).unwrap() > 1_000_000);
        }
        // Opened again, the folder passes the checks for missing commits.
        let store = open(&new);
        assert!(stamped(&store.database()).unwrap() > 1_000_000);
    }

    #[test]
    fn progress_is_reported_for_each_page() {
        let (source, target) = (Database::memory(), ahead());
        fill(&source, numbered(2_500));
        let comparing = AtomicBool::new(false);
        let mut told = Vec::new();
        block_on(whole(&source, &target, &mut |seen| {
            comparing.fetch_or(seen.is_comparing, Ordering::Relaxed);
            told.push(seen.keys);
        }))
        .unwrap();
        assert_eq!(told, [1_000, 2_000, 2_500, 1_000, 2_000, 2_500]);
        assert!(comparing.load(Ordering::Relaxed));
    }
}
