//! Modes and owners of files: of what this process writes, because backups and the data folder hold secrets, and of files with
//! secrets that it reads.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use clap::ArgMatches;

/// For all files that the process makes from now on, a running server too.
pub(crate) fn keep_private() {
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
}

/// Settings that name a file with a secret, which its readers could use.
const SECRETS: [&str; 10] = [
    "fdb_tls_key",
    "nats_creds",
    "nats_nkey",
    "nats_password_file",
    "nats_tls_key",
    "oidc_client_secret_file",
    "operator_token_file",
    "secret_key_file",
    "smtp_password_file",
    "tls_key",
];

/// A warning for each file with a secret that other users of this machine can read.
pub(crate) fn exposed_files(serve: &ArgMatches) -> Vec<String> {
    let file = |setting: &str| serve.get_raw(setting)?.next().map(PathBuf::from);
    let in_folder = file("tls_dir").map(|folder| ("tls_dir", folder.join("tls.key")));
    let named = SECRETS.into_iter().filter_map(|setting| Some((setting, file(setting)?)));
    let exposed = named.chain(in_folder).filter(|(_, file)| is_exposed(file));
    let warning = |(setting, file): (&str, PathBuf)| {
        let file = file.display();
        format!("{setting} {file} can be read by other users of this machine: chmod 600 {file}")
    };
    exposed.map(warning).collect()
}

/// Whether other users of this machine can read a file with a secret, and this process does not need that. Where the
/// file belongs to somebody else, such as root, this process may read it by its group.
fn is_exposed(path: &Path) -> bool {
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
