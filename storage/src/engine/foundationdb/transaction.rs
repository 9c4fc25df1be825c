//! A transaction on a cluster: maps the interface to the client library's calls.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use ::foundationdb as fdb;
use bytes::Bytes;
use fdb::{
    FdbResult, KeySelector, RangeOption,
    future::FdbValues,
    options::{ConflictRangeType, StreamingMode, TransactionOption as FdbOption},
};

use super::{
    ClusterHandle, error,
    space::Space,
    task,
    writes::{self, PendingWrite},
};
use crate::{
    completion::Completion,
    engine::{
        range_set::RangeSet,
        stamped::{Stamped, StampedKeys},
    },
    error::StoreError,
    interface::EngineTransaction,
    key::{KeyRange, after},
    limits::PAGE_BYTES_MAX,
    read::{RangeOptions, RangePage, Read},
    reply::Reply,
    version::{Committed, StoreVersion, Versionstamp},
};

/// The error code of a transaction without a commit version, because it wrote nothing.
const NO_COMMIT_VERSION: i32 = 2021;

type RowsFuture = Pin<Box<dyn Future<Output = FdbResult<FdbValues>> + Send>>;

pub(super) struct FdbTransaction {
    shared: Arc<ClusterHandle>,
    state: Mutex<State>,
}

struct State {
    /// `Err` once the transaction has committed or failed.
    transaction: Result<fdb::Transaction, StoreError>,
    version: Option<StoreVersion>,
    /// Writes since the last read.
    unread: Vec<PendingWrite>,
    /// Number of writes that the library has. By it, a range read notices writes that came before its answer.
    writes: u64,
    /// Read conflicts, while the library has no writes.
    conflicts: RangeSet,
    stamped: StampedKeys,
}

impl FdbTransaction {
    pub(super) fn begin(shared: Arc<ClusterHandle>) -> Self {
        let transaction = shared.database.create_trx().map_err(error::of_call);
        let state = State {
            transaction,
            version: None,
            unread: Vec::new(),
            writes: 0,
            conflicts: RangeSet::default(),
            stamped: StampedKeys::default(),
        };
        Self { shared, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, write: PendingWrite) {
        self.lock().unread.push(write);
    }

    async fn version(&self) -> Result<StoreVersion, StoreError> {
        let version = {
            let state = self.lock();
            match state.version {
                Some(version) => return Ok(version),
                None => state.open()?.get_read_version(),
            }
        };
        let version = version.await.map_err(|failure| self.failed(failure))?;
        let version = StoreVersion::try_from(version).expect("versions are not negative");
        self.lock().version = Some(version);
        Ok(version)
    }

    async fn check_readable(&self, range: &KeyRange) -> Result<(), StoreError> {
        if self.lock().stamped.is_empty() {
            return Ok(());
        }
        let version = self.version().await?;
        if self.lock().stamped.is_unreadable(range, version) { Err(StoreError::Unreadable) } else { Ok(()) }
    }

    fn failed(&self, failure: fdb::FdbError) -> StoreError {
        self.shared.counters.read_failures.add(1);
        error::of_call(failure)
    }

    /// Requests as many rows as one server sends at once; also returns the count of writes before
    /// it.
    fn rows(&self, range: &KeyRange, options: RangeOptions) -> Result<(RowsFuture, u64), StoreError> {
        let (begin, end) = self.shared.space.ends(range);
        let option = RangeOption {
            begin: KeySelector::first_greater_or_equal(begin),
            end: KeySelector::first_greater_or_equal(end),
            // No page has more rows than bytes, and the library takes a smaller integer.
            limit: Some(options.limit.min(PAGE_BYTES_MAX)),
            target_bytes: PAGE_BYTES_MAX,
            mode: StreamingMode::Exact,
            reverse: options.reverse,
            ..RangeOption::default()
        };
        let mut state = self.lock();
        state.show_writes();
        let rows = state.open()?.get_range(&option, 1, options.read == Read::Snapshot);
        Ok((Box::pin(rows), state.writes))
    }

    async fn page(
        &self,
        mut rows: RowsFuture,
        range: &KeyRange,
        options: RangeOptions,
    ) -> Result<RangePage, StoreError> {
        let (mut page, mut bytes) = (RangePage::default(), 0);
        let mut rest = range.clone();
        loop {
            let answer = rows.await.map_err(|failure| self.failed(failure))?;
            for row in &answer {
                page.more = page.items.len() >= options.limit || bytes >= PAGE_BYTES_MAX;
                if page.more {
                    return Ok(page);
                }
                bytes += row.key().len() + row.value().len();
                page.items.push(self.shared.space.row(row.key(), row.value()));
            }
            match page.items.last() {
                Some(last) if answer.more() && options.reverse => rest.end = last.key.clone(),
                Some(last) if answer.more() => rest.begin = after(&last.key),
                _ => return Ok(page),
            }
            let limit = if bytes < PAGE_BYTES_MAX { options.limit - page.items.len() } else { 0 };
            rows = self.rows(&rest, one_more(RangeOptions { limit, ..options }))?.0;
        }
    }

    /// Adds the read conflict of a page. Keys that the transaction wrote count as not read, so the
    /// conflict of keys read before the write would be lost. Therefore returns false if the library
    /// got writes since the request.
    fn add_conflict(&self, answered: KeyRange, writes: u64) -> bool {
        let mut state = self.lock();
        let unchanged = state.writes == writes;
        if unchanged {
            state.add_read_conflict(&self.shared.space, answered);
        }
        unchanged
    }
}

/// The additional row only shows whether there is more, so reading it must not conflict.
fn one_more(options: RangeOptions) -> RangeOptions {
    RangeOptions { limit: options.limit.saturating_add(1), ..options }.snapshot()
}

impl State {
    fn open(&self) -> Result<&fdb::Transaction, StoreError> {
        self.transaction.as_ref().map_err(Clone::clone)
    }

    fn show_writes(&mut self) {
        for write in std::mem::take(&mut self.unread) {
            self.writes += 1;
            self.conflicts = RangeSet::default();
            self.try_do(|open| write.apply(open));
        }
    }

    fn add_read_conflict(&mut self, space: &Space, range: KeyRange) {
        let (begin, end) = space.ends(&range);
        self.try_do(|open| open.add_conflict_range(&begin, &end, ConflictRangeType::Read));
        self.note_read(range);
    }

    fn note_read(&mut self, range: KeyRange) {
        if self.writes == 0 && !range.is_empty() {
            self.conflicts.insert(range);
        }
    }

    fn prepare_commit(&mut self, cluster: &ClusterHandle) -> Result<Option<ReadyTransaction>, StoreError> {
        if self.writes > 0 {
            self.show_writes();
        }
        let open = std::mem::replace(&mut self.transaction, Err(StoreError::Used))?;
        let stamped = std::mem::take(&mut self.stamped);
        if self.writes == 0 && self.unread.is_empty() && stamped.is_empty() {
            return Ok(None);
        }
        let ready = if self.writes > 0 {
            ReadyTransaction { open, reading: None }
        } else {
            let (reads, unread) = (std::mem::take(&mut self.conflicts), std::mem::take(&mut self.unread));
            let blind = writes::without_reads(cluster, reads, &unread);
            ReadyTransaction { open: blind.map_err(error::of_call)?, reading: Some(open) }
        };
        writes::stamp(&ready.open, &cluster.space, stamped);
        Ok(Some(ready))
    }

    /// A failed call makes the commit fail with its error.
    fn try_do(&mut self, what: impl FnOnce(&fdb::Transaction) -> FdbResult<()>) {
        if let Ok(transaction) = &self.transaction
            && let Err(failure) = what(transaction)
        {
            self.transaction = Err(error::of_call(failure));
        }
    }
}

// The library begins a read when it is called, before the read is awaited.
impl EngineTransaction for FdbTransaction {
    fn read_version(&self) -> Reply<'_, StoreVersion> {
        Reply::Later(Box::pin(self.version()))
    }

    fn set_read_version(&self, version: StoreVersion) {
        let Ok(number) = i64::try_from(version) else { return };
        let mut state = self.lock();
        if state.version.is_none()
            && let Ok(open) = state.open()
        {
            open.set_read_version(number);
            state.version = Some(version);
        }
    }

    fn get<'a>(&'a self, key: &[u8], read: Read) -> Reply<'a, Option<Bytes>> {
        let range = KeyRange::key(key);
        let value = {
            let mut state = self.lock();
            state.show_writes();
            if read != Read::Snapshot {
                state.note_read(range.clone());
            }
            state.open().map(|open| open.get(&self.shared.space.key(key), read == Read::Snapshot))
        };
        Reply::Later(Box::pin(async move {
            self.check_readable(&range).await?;
            let value = value?.await.map_err(|failure| self.failed(failure))?;
            Ok(value.map(|value| Bytes::copy_from_slice(&value)))
        }))
    }

    fn range<'a>(&'a self, range: KeyRange, options: RangeOptions) -> Reply<'a, RangePage> {
        let rows = self.rows(&range, one_more(options));
        Reply::Later(Box::pin(async move {
            self.check_readable(&range).await?;
            let (rows, writes) = rows?;
            let page = self.page(rows, &range, options).await?;
            if options.read == Read::Snapshot
                || self.add_conflict(page.answers(&range, options.reverse), writes)
            {
                return Ok(page);
            }
            let rows = self.rows(&range, options)?.0.await.map_err(|failure| self.failed(failure))?;
            let items = rows.iter().map(|row| self.shared.space.row(row.key(), row.value())).collect();
            Ok(RangePage { items, more: rows.more() })
        }))
    }

    fn set(&self, key: Bytes, value: Bytes) {
        self.write(PendingWrite::Set(self.shared.space.key(&key), value));
    }

    fn clear(&self, key: Bytes) {
        self.write(PendingWrite::Clear(self.shared.space.key(&key)));
    }

    fn clear_range(&self, range: KeyRange) {
        self.write(PendingWrite::ClearRange(self.shared.space.ends(&range)));
        self.lock().stamped.clear_range(&range);
    }

    fn atomic_add(&self, key: Bytes, addend: i64) {
        self.write(PendingWrite::Add(self.shared.space.key(&key), addend));
    }

    fn set_versionstamped_key(&self, template: Vec<u8>, offset: usize, value: Bytes) {
        self.lock().stamped.push(Stamped { template, offset, value });
    }

    fn add_read_conflict_range(&self, range: KeyRange) {
        self.lock().add_read_conflict(&self.shared.space, range);
    }

    fn add_write_conflict_range(&self, range: KeyRange) {
        self.write(PendingWrite::Conflict(self.shared.space.ends(&range)));
    }

    fn commit(&self, done: Completion) {
        let prepared = self.lock().prepare_commit(&self.shared);
        let ready = match prepared {
            Ok(Some(ready)) => ready,
            Ok(None) => return done.complete(Ok(Committed { versionstamp: None })),
            Err(error) => {
                self.shared.counters.refused(&error).add(1);
                return done.complete(Err(error));
            }
        };
        let shared = self.shared.clone();
        shared.counters.waiting.add(1);
        task::spawn(async move {
            let began = shared.host.now();
            let result = ready.commit().await;
            let took = shared.host.now().saturating_sub(began);
            shared.counters.ended(&result, took);
            // The task that waits for the result may close the store, so this handle goes first.
            drop(shared);
            done.complete(result);
        });
    }
}

struct ReadyTransaction {
    open: fdb::Transaction,
    /// The transaction that has read for `open`, if that is another one.
    reading: Option<fdb::Transaction>,
}

impl ReadyTransaction {
    async fn commit(self) -> Result<Committed, StoreError> {
        let Self { open, reading } = self;
        // A transaction that has read nothing gets its version now, while nothing else is under way
        // that could take too long.
        let version = reading.as_ref().unwrap_or(&open).get_read_version().await.map_err(error::of_call)?;
        if reading.is_some() {
            open.set_read_version(version);
        }
        // From here on the commit waits without a timeout; the module's documentation says why.
        open.set_option(FdbOption::Timeout(0)).map_err(error::of_call)?;
        let stamp = open.get_versionstamp();
        let _committed = open.commit().await.map_err(|failure| error::of_commit(failure.into()))?;
        match stamp.await {
            Ok(stamp) => {
                let stamp = stamp[..].try_into().expect("a versionstamp has ten bytes");
                Ok(Committed { versionstamp: Some(Versionstamp(stamp)) })
            }
            Err(failure) if failure.code() == NO_COMMIT_VERSION => Ok(Committed { versionstamp: None }),
            Err(failure) => Err(error::of_commit(failure)),
        }
    }
}
