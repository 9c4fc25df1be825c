//! A transaction as its users see it: checks limits and key space, and counts bytes, before it
//! calls the engine.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;

use crate::{
    completion::{Commit, Completion},
    error::StoreError,
    host::Host,
    interface::{EngineTransaction, TransactionOption},
    key::KeyRange,
    limits,
    read::{RangeOptions, RangePage, Read},
    reply::Reply,
    version::{Committed, StoreVersion, Versionstamp},
};

/// A transaction reads at one version, sees its own writes, and commits all or nothing. Its writes
/// are buffered, and invisible to others before the commit. A write fails when it exceeds a limit
/// of [`crate::limits`].
///
/// Dropping a transaction discards it. Clones are the same transaction, and several of its reads
/// may be awaited together.
#[derive(Clone)]
pub struct Transaction(Arc<Inner>);

struct Inner {
    engine: Box<dyn EngineTransaction>,
    host: Arc<dyn Host>,
    began: Duration,
    bytes: AtomicUsize,
    used: AtomicBool,
}

impl Transaction {
    pub(crate) fn new(engine: Box<dyn EngineTransaction>, host: Arc<dyn Host>) -> Self {
        let (began, bytes, used) = (host.now(), AtomicUsize::new(0), AtomicBool::new(false));
        Self(Arc::new(Inner { engine, host, began, bytes, used }))
    }

    /// Fixes the version at which the transaction reads, unless an earlier read did so.
    ///
    /// # Errors
    /// [`StoreError::TooOld`], or a failure of the engine.
    pub fn read_version(&self) -> Reply<'_, StoreVersion> {
        match self.0.check_open() {
            Ok(()) => self.0.engine.read_version(),
            Err(error) => Reply::ready(Err(error)),
        }
    }

    /// Reads at the version of an earlier commit, or at a newer one, without asking the store for it; call it first.
    pub fn set_read_version(&self, version: StoreVersion) {
        self.0.engine.set_read_version(version);
    }

    /// # Errors
    /// [`StoreError::Unreadable`] for keys that this transaction sets with a versionstamp,
    /// [`StoreError::TooOld`], a limit, or a failure of the engine.
    pub fn get(&self, key: impl AsRef<[u8]>, read: Read) -> Reply<'_, Option<Bytes>> {
        let key = key.as_ref();
        let bytes = if read == Read::Serializable { limits::cost(key.len(), 0) } else { 0 };
        match check_key(key).and_then(|()| self.0.check_open()).and_then(|()| self.0.add_bytes(bytes)) {
            Ok(()) => self.0.engine.get(key, read),
            Err(error) => Reply::ready(Err(error)),
        }
    }

    /// Reads a page of `range`. To continue, read again from after the last key (with `reverse`: up to
    /// before it).
    ///
    /// # Errors
    /// As [`Transaction::get`], and [`StoreError::Unreadable`] when the range touches keys that
    /// this transaction sets with a versionstamp.
    pub fn range(&self, range: KeyRange, options: RangeOptions) -> Reply<'_, RangePage> {
        let bytes = if options.read == Read::Serializable { range_cost(&range) } else { 0 };
        match check_range(&range).and_then(|()| self.0.check_open()).and_then(|()| self.0.add_bytes(bytes)) {
            Ok(()) if range.is_empty() || options.limit == 0 => Reply::ready(Ok(RangePage::default())),
            Ok(()) => self.0.engine.range(range, options),
            Err(error) => Reply::ready(Err(error)),
        }
    }

    pub fn set(&self, key: impl AsRef<[u8]>, value: impl Into<Bytes>) -> Result<(), StoreError> {
        let (key, value) = (key.as_ref(), value.into());
        check_key(key)?;
        check_value(&value)?;
        self.0.add_bytes(limits::cost(key.len(), value.len()))?;
        self.0.engine.set(Bytes::copy_from_slice(key), value);
        Ok(())
    }

    pub fn clear(&self, key: impl AsRef<[u8]>) -> Result<(), StoreError> {
        let key = key.as_ref();
        check_key(key)?;
        self.0.add_bytes(limits::range_cost(key.len(), key.len()))?;
        self.0.engine.clear(Bytes::copy_from_slice(key));
        Ok(())
    }

    pub fn clear_range(&self, range: KeyRange) -> Result<(), StoreError> {
        self.write_range(range, EngineTransaction::clear_range)
    }

    /// Adds `addend` to the integer at `key` (eight bytes, little-endian, wrapping; a missing one
    /// is 0). The transaction does not read the integer, so two transactions that add do not
    /// conflict.
    pub fn atomic_add(&self, key: impl AsRef<[u8]>, addend: i64) -> Result<(), StoreError> {
        let key = key.as_ref();
        check_key(key)?;
        self.0.add_bytes(limits::cost(key.len(), size_of::<i64>()))?;
        self.0.engine.atomic_add(Bytes::copy_from_slice(key), addend);
        Ok(())
    }

    /// Sets the key that consists of `prefix`, the commit's versionstamp, `user_bytes` and
    /// `suffix`. Later commits have later keys, and `user_bytes` order the keys of one transaction.
    /// These writes do not conflict with each other.
    pub fn set_versionstamped_key(
        &self,
        prefix: impl AsRef<[u8]>,
        user_bytes: [u8; 2],
        suffix: impl AsRef<[u8]>,
        value: impl Into<Bytes>,
    ) -> Result<(), StoreError> {
        let (prefix, suffix, value) = (prefix.as_ref(), suffix.as_ref(), value.into());
        let length = prefix.len() + Versionstamp::LEN + user_bytes.len() + suffix.len();
        if prefix.is_empty() || length > limits::KEY_BYTES_MAX || prefix >= limits::KEY_SPACE_END {
            return Err(StoreError::KeyNotAllowed(length));
        }
        check_value(&value)?;
        self.0.add_bytes(limits::cost(length, value.len()))?;
        let mut template = Vec::with_capacity(length);
        template.extend_from_slice(prefix);
        template.extend_from_slice(&[0; Versionstamp::LEN]);
        template.extend_from_slice(&user_bytes);
        template.extend_from_slice(suffix);
        self.0.engine.set_versionstamped_key(template, prefix.len(), value);
        Ok(())
    }

    /// Makes later commits into `range` conflict with this transaction, as if it had read the
    /// range. A transaction that reads nothing may get its version only at the commit;
    /// [`Transaction::read_version`] fixes it earlier.
    pub fn add_read_conflict_range(&self, range: KeyRange) -> Result<(), StoreError> {
        self.write_range(range, EngineTransaction::add_read_conflict_range)
    }

    /// Makes transactions that read `range` conflict, as if this transaction had written it.
    pub fn add_write_conflict_range(&self, range: KeyRange) -> Result<(), StoreError> {
        self.write_range(range, EngineTransaction::add_write_conflict_range)
    }

    #[must_use]
    pub fn unix_ms(&self) -> u64 {
        self.0.host.unix_ms()
    }

    /// Sets an option; none changes the result of a read or a write.
    pub fn set_option(&self, option: TransactionOption) {
        self.0.engine.set_option(option);
    }

    /// Submits the commit at once; the future only returns the result, when awaited, polled by an
    /// event loop, or waited for with [`crate::block_on`].
    pub fn commit(self) -> Commit {
        let (done, commit) = Completion::future();
        self.commit_to(done);
        commit
    }

    /// Commits, and calls `done` with the result on the engine's thread, so `done` must be short
    /// and must not block.
    pub fn commit_then(self, done: impl FnOnce(Result<Committed, StoreError>) + Send + 'static) {
        self.commit_to(Completion::call(done));
    }

    fn commit_to(self, done: Completion) {
        let checked = self.0.check_open().and_then(|()| self.0.add_bytes(0));
        match checked.and_then(|()| self.0.set_used()) {
            Ok(()) => self.0.engine.commit(done),
            Err(error) => done.complete(Err(error)),
        }
    }

    fn write_range(
        &self,
        range: KeyRange,
        write: fn(&(dyn EngineTransaction + 'static), KeyRange),
    ) -> Result<(), StoreError> {
        check_range(&range)?;
        self.0.add_bytes(range_cost(&range))?;
        if !range.is_empty() {
            write(&*self.0.engine, range);
        }
        Ok(())
    }
}

impl Inner {
    fn check_open(&self) -> Result<(), StoreError> {
        let age = self.host.now().saturating_sub(self.began);
        if self.used.load(Ordering::Acquire) {
            Err(StoreError::Used)
        } else if age > limits::TRANSACTION_AGE_MAX {
            Err(StoreError::TooOld)
        } else {
            Ok(())
        }
    }

    fn set_used(&self) -> Result<(), StoreError> {
        if self.used.swap(true, Ordering::AcqRel) { Err(StoreError::Used) } else { Ok(()) }
    }

    /// A commit without a refused write would be wrong, so after a refusal every further write
    /// fails, and so does the commit.
    fn add_bytes(&self, bytes: usize) -> Result<(), StoreError> {
        if self.used.load(Ordering::Acquire) {
            return Err(StoreError::Used);
        }
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if before + bytes > limits::TRANSACTION_BYTES_MAX {
            Err(StoreError::TransactionTooLarge)
        } else {
            Ok(())
        }
    }
}

fn range_cost(range: &KeyRange) -> usize {
    limits::range_cost(range.begin.len(), range.end.len())
}

fn check_key(key: &[u8]) -> Result<(), StoreError> {
    let allowed = !key.is_empty() && key.len() <= limits::KEY_BYTES_MAX && key < limits::KEY_SPACE_END;
    if allowed { Ok(()) } else { Err(StoreError::KeyNotAllowed(key.len())) }
}

fn check_value(value: &[u8]) -> Result<(), StoreError> {
    if value.len() <= limits::VALUE_BYTES_MAX { Ok(()) } else { Err(StoreError::ValueTooLarge(value.len())) }
}

/// The ends of a range need not be keys: the beginning may be empty, the end may be that of the key
/// space, and both may be one byte longer than the longest key.
fn check_range(range: &KeyRange) -> Result<(), StoreError> {
    for end in [&range.begin, &range.end] {
        if end.len() > limits::KEY_BYTES_MAX + 1 || **end > *limits::KEY_SPACE_END {
            return Err(StoreError::KeyNotAllowed(end.len()));
        }
    }
    if range.begin > range.end { Err(StoreError::InvertedRange) } else { Ok(()) }
}
