//! Copies files with holes: a store may reserve much more than it has written.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::FileExt,
    path::Path,
};

const PART_BYTES: usize = 64 * 1024;

pub(crate) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let (mut from, to) = (File::open(from)?, File::create(to)?);
    let (mut part, hole) = (vec![0; PART_BYTES], vec![0; PART_BYTES]);
    let mut at = 0;
    loop {
        let bytes = from.read(&mut part)?;
        if bytes == 0 {
            return to.set_len(at);
        }
        if part[..bytes] != hole[..bytes] {
            to.write_all_at(&part[..bytes], at)?;
        }
        at += bytes as u64;
    }
}

pub(crate) fn same(one: &Path, other: &Path) -> io::Result<bool> {
    let (mut one, other) = (File::open(one)?, File::open(other)?);
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    let (mut part, mut expected) = (vec![0; PART_BYTES], vec![0; PART_BYTES]);
    let mut at = 0;
    loop {
        let bytes = one.read(&mut part)?;
        if bytes == 0 {
            return Ok(true);
        }
        other.read_exact_at(&mut expected[..bytes], at)?;
        if part[..bytes] != expected[..bytes] {
            return Ok(false);
        }
        at += bytes as u64;
    }
}
