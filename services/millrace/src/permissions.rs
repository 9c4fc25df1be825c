//! File modes of what this process writes: backups and the data folder hold secrets.

/// Lets only the user of this process read the files that it makes from now on.
pub(crate) fn keep_private() {
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
}
