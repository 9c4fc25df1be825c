//! Reads certificates, passwords and rules again when their files change or when an operator asks for it. A file that cannot be
//! used is refused with a log line, and the loaded one stays in force.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use crate::StartError;
use crate::config::Config;
use crate::mailbox::Mail;
use crate::process::Process;

const CHECK_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Reloader {
    /// `None` once it is stopped.
    running: Option<(SyncSender<()>, JoinHandle<()>)>,
}

/// Time of the last change, length and inode. The inode differs when a mounted secret is replaced by a link to another file.
type Stamp = Option<(SystemTime, u64, u64)>;

struct ReloadedFiles {
    what: &'static str,
    files: Vec<PathBuf>,
    loaded: Vec<Stamp>,
    seen: Vec<Stamp>,
    load: fn(&Process) -> Result<(), String>,
}

impl Reloader {
    pub(crate) fn start(config: &Config, process: &Arc<Process>) -> Result<Self, StartError> {
        let parts = parts(config);
        // Room for one order: a second one, before the thread takes the first, asks for the same.
        let (orders, received) = sync_channel(1);
        let process = Arc::downgrade(process);
        let thread = std::thread::Builder::new()
            .name("reload".into())
            .spawn(move || run(parts, &received, &process))
            .map_err(|error| StartError(format!("cannot start a thread: {error}")))?;
        Ok(Self { running: Some((orders, thread)) })
    }

    /// Ends the thread, which then holds no reference to the process.
    pub(crate) fn stop(&mut self) {
        let Some((orders, thread)) = self.running.take() else { return };
        drop(orders);
        if thread.join().is_err() {
            tracing::error!(
                "the thread that reads files again ended with a panic: report it with the log before it"
            );
        }
    }

    pub(crate) fn order(&self) {
        match self.running.as_ref().map(|(orders, _)| orders.try_send(())) {
            Some(Ok(()) | Err(TrySendError::Full(()))) | None => {}
            Some(Err(TrySendError::Disconnected(()))) => {
                tracing::error!("files are not read any more: restart the server");
            }
        }
    }
}

fn parts(config: &Config) -> Vec<ReloadedFiles> {
    let tls = config.tls.iter().flat_map(|files| {
        [&files.certificate, &files.key].into_iter().chain(&files.client_authorities).cloned()
    });
    let part = |what, files: Vec<PathBuf>, load| {
        let now = stamps(&files);
        ReloadedFiles { what, files, loaded: now.clone(), seen: now, load }
    };
    let all = [
        part("certificate and key", tls.collect(), load_tls as fn(&Process) -> Result<(), String>),
        part(
            "password file",
            config.authentication.password_file.clone().into_iter().collect(),
            load_passwords,
        ),
        part("rules file", config.authentication.rules_file.clone().into_iter().collect(), load_rules),
    ];
    all.into_iter().filter(|part| !part.files.is_empty()).collect()
}

fn run(mut parts: Vec<ReloadedFiles>, orders: &Receiver<()>, process: &Weak<Process>) {
    loop {
        let is_ordered = match orders.recv_timeout(CHECK_INTERVAL) {
            Ok(()) => true,
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let Some(process) = process.upgrade() else { return };
        for part in &mut parts {
            if part.is_due(is_ordered) {
                part.reload(&process);
            }
        }
    }
}

impl ReloadedFiles {
    /// True when the files changed, and did not change again since the last check. So files that are replaced one after the
    /// other, or written slowly, are read once they are complete.
    fn is_due(&mut self, is_ordered: bool) -> bool {
        let now = stamps(&self.files);
        let is_steady = now == self.seen;
        self.seen = now;
        is_ordered || (is_steady && self.seen != self.loaded)
    }

    fn reload(&mut self, process: &Process) {
        self.loaded.clone_from(&self.seen);
        let files: Vec<_> = self.files.iter().map(|file| file.display().to_string()).collect();
        let (what, files) = (self.what, files.join(", "));
        match (self.load)(process) {
            Ok(()) => tracing::info!(files, "the {what} is read again and in force from now on"),
            Err(error) => {
                tracing::warn!(files, "the new {what} is refused, and the old one stays in force: {error}");
            }
        }
    }
}

fn stamps(files: &[PathBuf]) -> Vec<Stamp> {
    use std::os::unix::fs::MetadataExt;
    let stamp = |file: &PathBuf| {
        let metadata = std::fs::metadata(file).ok()?;
        Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
    };
    files.iter().map(stamp).collect()
}

fn load_tls(process: &Process) -> Result<(), String> {
    process.tls.as_ref().map_or(Ok(()), |tls| tls.reload().map_err(|error| error.to_string()))
}

fn load_passwords(process: &Process) -> Result<(), String> {
    let changed = process.authenticator.reload_passwords(&process.config.authentication)?;
    notify_loops(process, changed);
    Ok(())
}

fn load_rules(process: &Process) -> Result<(), String> {
    process.authenticator.reload_rules(&process.config.authentication)?;
    notify_loops(process, Vec::new());
    Ok(())
}

fn notify_loops(process: &Process, users: Vec<Box<str>>) {
    let users: Arc<[Box<str>]> = users.into();
    for mailbox in &*process.mailboxes {
        mailbox.post(Mail::FilesChanged(users.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_once_they_are_steady_and_only_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rules");
        std::fs::write(&file, "one").unwrap();
        let mut config = Config::default();
        config.authentication.rules_file = Some(file.clone());
        let mut parts = parts(&config);
        let [part] = &mut parts[..] else { panic!("one part") };
        assert!(!part.is_due(false), "nothing has changed");
        std::fs::write(&file, "three").unwrap();
        assert!(!part.is_due(false), "perhaps it is still being written");
        assert!(part.is_due(false));
        part.loaded.clone_from(&part.seen);
        assert!(!part.is_due(false), "it is loaded");
        assert!(part.is_due(true), "an operator says so");
        std::fs::remove_file(&file).unwrap();
        std::fs::write(folder.path().join("other"), "three").unwrap();
        std::fs::rename(folder.path().join("other"), &file).unwrap();
        assert!(!part.is_due(false) && part.is_due(false), "another file of the same length");
    }
}
