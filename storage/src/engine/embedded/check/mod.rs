//! Checks fjall's files before fjall opens them. It changes nothing but a final incomplete write,
//! which no acknowledged commit can contain.
//!
//! fjall takes the first invalid record for the end of a journal, as a crash leaves it, and
//! truncates the rest. It deletes tables that its list of tables does not name, without checking
//! the list, and it makes a new store where a small file is missing. So one damaged byte could cost
//! everything after it; this check reports it instead. Without this check, fjall would also refuse
//! a final write that lacks some sectors, as a loss of power leaves it.

pub(super) mod batch;
mod journal;
mod table;

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Read},
    path::{Path, PathBuf},
};

pub(super) use journal::JournalContents;
use xxhash_rust::xxh3::Xxh3Default;

use super::folder::{corrupt, refused};
use crate::{error::OpenError, version::StoreVersion};

const MARKER: &str = "version";
const MARKER_BYTES: &[u8] = b"FJL\x03";
const KEYSPACES: &str = "keyspaces";
const CURRENT: &str = "current";
const TABLES: &str = "tables";

/// fjall's own keyspace, and the one with the keys.
const OUR_KEYSPACES: [&str; 2] = ["0", "1"];

enum Fault {
    Damaged(PathBuf, String),
    Io(PathBuf, io::Error),
}

/// `noted` is the last version known to be acknowledged, or 0.
pub(super) fn check(tables: &Path, noted: StoreVersion) -> Result<JournalContents, OpenError> {
    let folder = tables.parent().unwrap_or(tables);
    look(tables, noted).map_err(|fault| match fault {
        Fault::Damaged(path, how) => {
            let name = path.strip_prefix(folder).unwrap_or(&path);
            corrupt(folder, format!("{} {how}", name.display()))
        }
        Fault::Io(path, error) => refused(&path, error),
    })
}

/// Checks everything; returns what the journals hold.
fn look(tables: &Path, noted: StoreVersion) -> Result<JournalContents, Fault> {
    let journals = journal::list(tables)?;
    let marker = tables.join(MARKER);
    match read(&marker)? {
        Some(bytes) if bytes == MARKER_BYTES => {}
        Some(_) => return Err(damaged(&marker, "is not what was written")),
        None if noted == 0 && is_unfinished(tables, &journals)? => {
            return forget(tables).map(|()| JournalContents::default());
        }
        None => return Err(damaged(&marker, "is missing")),
    }
    let keyspaces = tables.join(KEYSPACES);
    for name in OUR_KEYSPACES {
        let keyspace = keyspaces.join(name);
        let must_be = noted > 0 || !is_empty(&keyspace.join(TABLES))?;
        check_list(&keyspace, must_be)?;
    }
    journal::check(&journals, noted)
}

/// `current` names the keyspace's list of tables and has its checksum.
fn check_list(keyspace: &Path, must_be: bool) -> Result<(), Fault> {
    let current = keyspace.join(CURRENT);
    let Some(bytes) = read(&current)? else {
        // The process ended while it made this keyspace, and fjall makes it again.
        return if must_be { Err(damaged(&current, "is missing")) } else { Ok(()) };
    };
    let parts = bytes.split_at_checked(8).and_then(|(id, rest)| {
        let (checksum, kind) = rest.split_at_checked(16)?;
        let (id, checksum) = (id.try_into().ok()?, checksum.try_into().ok()?);
        (kind == [0]).then(|| (u64::from_le_bytes(id), u128::from_le_bytes(checksum)))
    });
    let Some((id, checksum)) = parts else { return Err(damaged(&current, "is not what was written")) };
    let list = keyspace.join(format!("v{id}"));
    match hash(&list)? {
        Some(found) if found == checksum => table::check(&list, &keyspace.join(TABLES)),
        Some(_) => Err(damaged(&list, "is not what was written, or current beside it is not")),
        None => Err(damaged(&list, "is missing, or current beside it is not what was written")),
    }
}

fn is_unfinished(tables: &Path, journals: &[journal::JournalFile]) -> Result<bool, Fault> {
    Ok(is_empty(&tables.join(KEYSPACES))? && journal::are_blank(journals)?)
}

fn forget(tables: &Path) -> Result<(), Fault> {
    match fs::remove_dir_all(tables) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Fault::Io(tables.into(), error)),
        _ => Ok(()),
    }
}

pub(super) fn missing(noted: StoreVersion, found: StoreVersion) -> String {
    format!(
        "commits up to {noted} were acknowledged and only those up to {found} are there; restore a backup, or delete \
         the file watermark to continue without them"
    )
}

fn damaged(path: &Path, reason: impl Into<String>) -> Fault {
    Fault::Damaged(path.into(), reason.into())
}

fn found<T>(path: &Path, result: io::Result<T>) -> Result<Option<T>, Fault> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Fault::Io(path.into(), error)),
    }
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, Fault> {
    found(path, fs::read(path))
}

fn is_empty(folder: &Path) -> Result<bool, Fault> {
    Ok(found(folder, fs::read_dir(folder))?.is_none_or(|mut entries| entries.next().is_none()))
}

fn hash(path: &Path) -> Result<Option<u128>, Fault> {
    let Some(mut file) = found(path, File::open(path))? else { return Ok(None) };
    let (mut hasher, mut buffer) = (Xxh3Default::new(), vec![0; 1 << 16]);
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(Some(hasher.digest128())),
            Ok(length) => hasher.update(&buffer[..length]),
            Err(error) => return Err(Fault::Io(path.into(), error)),
        }
    }
}
