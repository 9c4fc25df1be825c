//! Checks files of fjall 3 before it opens them: its list of tables, and the end of each table, but no
//! data. These files end with a table of contents and its checksum. fjall uses the contents before it
//! verifies the checksum.

use std::{fs::File, io, os::unix::fs::FileExt, path::Path};

use xxhash_rust::xxh3::xxh3_128;

use super::{Fault, damaged, found};

const TRAILER_MAGIC: &[u8] = b"SFA!\x01\x00";
const CONTENTS_MAGIC: &[u8] = b"TOC!";

/// A trailer has its magic, and the checksum, offset and length of the contents.
const TRAILER_BYTES: usize = TRAILER_MAGIC.len() + 16 + 8 + 8;

/// Largest contents, bytes: a few parts with short names need less. A damaged length must not
/// allocate more.
const CONTENTS_MAX: u64 = 1 << 16;

/// An entry of the list has a table's number, the kind of its checksum, the checksum, and a
/// sequence number.
const ENTRY_BYTES: usize = 8 + 1 + 16 + 8;

/// Checks the list and every table that it names in the folder `tables`.
pub(super) fn check(list: &Path, tables: &Path) -> Result<(), Fault> {
    let numbers = numbers(list).map_err(|error| Fault::Io(list.into(), error))?;
    for number in numbers.ok_or_else(|| damaged(list, "is not a list of tables"))? {
        let table = tables.join(number.to_string());
        match found(&table, File::open(&table).and_then(|file| contents(&file)))? {
            Some(Some(_)) => {}
            Some(None) => return Err(damaged(&table, "is damaged at its end")),
            None => return Err(damaged(&table, "is missing")),
        }
    }
    Ok(())
}

/// `None` if the file is not a list.
fn numbers(list: &Path) -> io::Result<Option<Vec<u64>>> {
    let file = File::open(list)?;
    let Some(contents) = contents(&file)? else { return Ok(None) };
    let Some((at, length)) = part_of(&contents, b"tables") else { return Ok(None) };
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, at)?;
    Ok(parse(&mut &bytes[..]))
}

fn parse(bytes: &mut &[u8]) -> Option<Vec<u64>> {
    let mut numbers = Vec::new();
    for _level in 0..take::<1>(bytes)?[0] {
        for _run in 0..take::<1>(bytes)?[0] {
            for _table in 0..u32::from_le_bytes(take(bytes)?) {
                let entry: [u8; ENTRY_BYTES] = take(bytes)?;
                numbers.push(u64::from_le_bytes(*entry.first_chunk()?));
            }
        }
    }
    Some(numbers)
}

/// The table of contents at the end of a file, without its magic; `None` if it is damaged.
fn contents(file: &File) -> io::Result<Option<Vec<u8>>> {
    let Some(end) = file.metadata()?.len().checked_sub(TRAILER_BYTES as u64) else { return Ok(None) };
    let mut trailer = [0; TRAILER_BYTES];
    file.read_exact_at(&mut trailer, end)?;
    let Some(rest) = trailer.strip_prefix(TRAILER_MAGIC) else { return Ok(None) };
    let checksum = u128::from_le_bytes(part(rest, 0));
    let Some(length) = end.checked_sub(u64::from_le_bytes(part(rest, 16))) else { return Ok(None) };
    if length > CONTENTS_MAX {
        return Ok(None);
    }
    let mut contents = vec![0; usize::try_from(length).unwrap_or(0)];
    file.read_exact_at(&mut contents, end - length)?;
    let whole = contents.starts_with(CONTENTS_MAGIC) && xxh3_128(&contents) == checksum;
    Ok(whole.then(|| contents.split_off(CONTENTS_MAGIC.len())))
}

/// Offset and length of a named part of the file.
fn part_of(contents: &[u8], wanted: &[u8]) -> Option<(u64, usize)> {
    let mut rest = contents;
    for _ in 0..u32::from_le_bytes(take(&mut rest)?) {
        let (at, length) = (u64::from_le_bytes(take(&mut rest)?), u64::from_le_bytes(take(&mut rest)?));
        let name = u16::from_le_bytes(take(&mut rest)?);
        let (name, behind) = rest.split_at_checked(name.into())?;
        if name == wanted {
            return Some((at, usize::try_from(length).ok()?));
        }
        rest = behind;
    }
    None
}

fn take<const LENGTH: usize>(bytes: &mut &[u8]) -> Option<[u8; LENGTH]> {
    let (taken, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*taken)
}

/// Panics if `bytes` ends before the part does.
pub(super) fn part<const LENGTH: usize>(bytes: &[u8], at: usize) -> [u8; LENGTH] {
    let mut part = [0; LENGTH];
    part.copy_from_slice(&bytes[at..at + LENGTH]);
    part
}
