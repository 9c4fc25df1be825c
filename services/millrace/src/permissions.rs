//! File modes: of what this process writes, because backups and the data folder hold secrets, and of files with
//! secrets that it reads.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

/// For all files that the process makes from now on, a running server too.
pub(crate) fn keep_private() {
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
}

/// Whether other users of this machine can read a file with a secret, and this process does not need that. Where the
/// file belongs to somebody else, such as root, this process may read it by its group.
pub(crate) fn is_exposed(path: &str) -> bool {
    let own = rustix::process::geteuid().as_raw();
    fs::metadata(path).is_ok_and(|file| {
        let mode = file.mode();
        mode & 0o004 != 0 || (mode & 0o040 != 0 && file.uid() == own)
    })
}
