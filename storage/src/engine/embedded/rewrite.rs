//! Rewrites the journals: after a failed write or sync, and at each start, because an
//! earlier process may have ended between the failure and its repair. No store may have the files
//! open meanwhile.
//!
//! Linux marks a page as clean even if writing it failed: the page can be read, and the next sync
//! succeeds without it. A later commit would then follow a hole, and after a loss of power the
//! journal would be damaged in its middle.

use std::{
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::FileExt,
    path::Path,
};

const PART_BYTES: usize = 1 << 16;

pub(super) fn rewrite_journals(tables: &Path) -> io::Result<()> {
    // A new folder has no tables yet.
    if !tables.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(tables)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "jnl") {
            rewrite(&path)?;
        }
    }
    Ok(())
}

/// Parts of zeros stay unwritten, because they are space that was reserved and never used.
fn rewrite(path: &Path) -> io::Result<()> {
    let mut file = File::options().read(true).write(true).open(path)?;
    let (mut part, hole) = (vec![0; PART_BYTES], vec![0; PART_BYTES]);
    let mut at = 0;
    loop {
        let bytes = file.read(&mut part)?;
        if bytes == 0 {
            return file.sync_data();
        }
        if part[..bytes] != hole[..bytes] {
            file.write_all_at(&part[..bytes], at)?;
        }
        at += bytes as u64;
    }
}
