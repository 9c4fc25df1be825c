//! File modes of what this process writes: backups and the data folder hold secrets.

pub(crate) fn keep_private() {
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
}
