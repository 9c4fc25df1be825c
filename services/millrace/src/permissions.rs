//! Modes and owners of files: of what this process writes, because backups and the data folder hold secrets, and of files with
//! secrets that it reads.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

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

/// Another user to whom a file of the store belongs; `None`: all are of the user of this process.
pub(crate) fn other_owner(folder: &Path) -> Option<u32> {
    let own = rustix::process::geteuid().as_raw();
    let entries = fs::read_dir(folder).ok()?.flatten().filter(|entry| entry.file_name() != "lost+found");
    let mut owners = entries.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.uid());
    owners.find(|owner| *owner != own)
}

/// Refuses a store of another user if this process is root: the files that opening it makes would be root's, and its owner's server
/// could not open them.
pub(crate) fn refuse_others_store(folder: &Path) -> Result<(), String> {
    if !rustix::process::geteuid().is_root() || !folder.join("format").exists() {
        return Ok(());
    }
    let Some(owner) = other_owner(folder) else { return Ok(()) };
    Err(format!(
        "{} belongs to another user: run this as that user, such as with `sudo -u '#{owner}'`, so that its files stay that user's",
        folder.display()
    ))
}
