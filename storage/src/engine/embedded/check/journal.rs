//! Checks that the journals are complete, except for the last write of a process that was killed.
//!
//! A group of commits is synced before the next is written, so a crash can damage only the last
//! batch of the last journal. Anything else is corruption: an incomplete batch with a complete one
//! after it, or an incomplete batch that was acknowledged.

use std::{
    fs::{self, File as OpenFile},
    io::{self, BufReader, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use super::{
    Fault,
    batch::{self, JournalBatch},
    damaged,
};
use crate::version::StoreVersion;

/// A journal: higher numbers are newer, and only the newest is written to.
pub(super) struct JournalFile {
    number: u64,
    path: PathBuf,
}

#[derive(Default)]
pub(in super::super) struct JournalContents {
    /// Sequence number and version of the first batch.
    pub(in super::super) first: Option<(u64, StoreVersion)>,
    sequence: u64,
    pub(in super::super) cut_bytes: u64,
    /// 0 if there is no batch.
    pub(in super::super) version: StoreVersion,
}

impl JournalContents {
    pub(in super::super) fn commits(&self) -> u64 {
        self.first.map_or(0, |(_, first)| (self.version + 1).saturating_sub(first.max(1)))
    }

    /// False if the batch cannot be the next one.
    fn take(&mut self, batch: &JournalBatch) -> bool {
        let version = batch.version.unwrap_or(self.version);
        // A batch that only makes a table repeats the version of the batch before it.
        let follows =
            batch.sequence > self.sequence && (version == self.version || version == self.version + 1);
        if self.first.is_some() && !follows {
            return false;
        }
        (self.sequence, self.version) = (batch.sequence, version);
        self.first.get_or_insert((batch.sequence, version));
        true
    }
}

pub(super) fn list(tables: &Path) -> Result<Vec<JournalFile>, Fault> {
    let failed = |error| Fault::Io(tables.into(), error);
    let mut journals = Vec::new();
    let Some(entries) = super::found(tables, fs::read_dir(tables))? else { return Ok(journals) };
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "jnl") {
            let number = path.file_stem().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
            let Some(number) = number else { return Err(damaged(&path, "is no journal of this store")) };
            journals.push(JournalFile { number, path });
        }
    }
    journals.sort_unstable_by_key(|journal| journal.number);
    Ok(journals)
}

/// True when the journals have no byte but zeros, as after a start that was killed.
pub(super) fn are_blank(journals: &[JournalFile]) -> Result<bool, Fault> {
    for journal in journals {
        let failed = |error| Fault::Io(journal.path.clone(), error);
        let file = OpenFile::open(&journal.path).map_err(failed)?;
        if !rest_of(BufReader::new(file), 0, &journal.path)?.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Reads all journals in order, and cuts off an incomplete last write. `noted` is the last version
/// known to be acknowledged (0: none is); damage up to it is an error, also in the first batch of all,
/// whose own version then decides.
pub(super) fn check(journals: &[JournalFile], noted: StoreVersion) -> Result<JournalContents, Fault> {
    let mut read = JournalContents::default();
    for (index, journal) in journals.iter().enumerate() {
        if let Some(next) = journals.get(index + 1)
            && next.number != journal.number + 1
        {
            let missing = journal.path.with_file_name(format!("{}.jnl", journal.number + 1));
            return Err(damaged(&missing, "is missing"));
        }
        let Some((at, rest)) = check_one(journal, &mut read)? else { continue };
        let path = &journal.path;
        if index + 1 < journals.len() || batch::find(&rest, read.sequence) {
            return Err(damaged(
                path,
                format!("is damaged at byte {at}, in the middle of what was committed"),
            ));
        }
        let was_acknowledged = if read.first.is_some() {
            read.version < noted
        } else {
            batch::version_in(&rest).is_some_and(|version| version <= noted)
        };
        if was_acknowledged {
            let missing = super::missing(noted, read.version);
            return Err(damaged(path, format!("is damaged at byte {at}: {missing}")));
        }
        tracing::info!(bytes = rest.len(), "the last write was cut short before it was acknowledged");
        cut(path, at).map_err(|error| Fault::Io(path.clone(), error))?;
        read.cut_bytes = rest.len() as u64;
    }
    Ok(read)
}

fn cut(journal: &Path, at: u64) -> io::Result<()> {
    let file = OpenFile::options().write(true).open(journal)?;
    file.set_len(at)?;
    file.sync_all()
}

/// Reads a journal up to the first incomplete batch; returns the bytes after it, unless they are
/// space that was reserved and never written.
fn check_one(journal: &JournalFile, read: &mut JournalContents) -> Result<Option<(u64, Vec<u8>)>, Fault> {
    let path = &journal.path;
    let failed = |error| Fault::Io(path.clone(), error);
    let mut file = BufReader::with_capacity(1 << 18, OpenFile::open(path).map_err(failed)?);
    let (mut at, mut scratch) = (0, Vec::new());
    while let Some(batch) = batch::read(&mut file, &mut scratch).map_err(failed)? {
        if !read.take(&batch) {
            let how =
                format!("is damaged at byte {at}, or a journal before it is not whole: commits are missing");
            return Err(damaged(path, how));
        }
        at += batch.length;
    }
    let rest = rest_of(file, at, path)?;
    Ok((!rest.is_empty()).then_some((at, rest)))
}

fn rest_of(mut file: BufReader<OpenFile>, at: u64, path: &Path) -> Result<Vec<u8>, Fault> {
    let failed = |error| Fault::Io(path.into(), error);
    file.seek(SeekFrom::Start(at)).map_err(failed)?;
    let (mut rest, mut length, mut chunk) = (Vec::new(), 0, vec![0; 1 << 16]);
    loop {
        let read = file.read(&mut chunk).map_err(failed)?;
        if read == 0 {
            return Ok(rest);
        }
        if let Some(last) = chunk[..read].iter().rposition(|byte| *byte != 0) {
            rest.resize(length, 0);
            rest.extend_from_slice(&chunk[..=last]);
        }
        length += read;
    }
}
