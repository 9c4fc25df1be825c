//! Backup and restore of a FoundationDB cluster: `millrace backup URL` and `millrace restore URL`.
//!
//! FoundationDB's own programs, fdbbackup and fdbrestore, submit the work, and the `backup_agent`
//! processes of the cluster do it. This module starts the programs and follows their status until
//! the copy is complete. A copy that no agent begins, or whose agents report an error and copy
//! nothing for a minute, is aborted. Agents that die in silence are waited for.

mod tools;

use std::path::Path;
use std::time::Duration;

use millrace_storage::{Host as _, System, block_on};
use serde::Deserialize;

use crate::failure::Failure;
use crate::store::Cluster;
use tools::Tool;

/// Backups and restores of these commands have a tag of their own, beside the region's continuous
/// backup.
const TAG: &str = "millrace-once";

const ASKED_EVERY: Duration = Duration::from_secs(1);

/// Polls without a new byte after which a copy that waits for an agent, or reports errors, is
/// aborted.
const IDLE_POLLS_MAX: u32 = 60;

/// A complete copy.
pub(crate) struct Copied {
    pub(crate) url: String,
    pub(crate) bytes: u64,
    /// The version at which all keys are consistent.
    pub(crate) version: u64,
}

/// Whether a target or source is a URL of fdbbackup instead of a folder.
pub(crate) fn is_url(text: &str) -> bool {
    text.contains("://")
}

/// Refuses a URL that fdbbackup does not read.
pub(crate) fn check_url(url: &str) -> Result<(), Failure> {
    let account =
        url.strip_prefix("blobstore://").and_then(|rest| rest.split_once('@')).map(|(account, _)| account);
    if account.is_some_and(|account| account.contains(':')) {
        return Err(Failure::Settings(
            "the URL has a secret, which every user of this machine can read in its list of processes: leave it out, and name a file with --blob-credentials".into(),
        ));
    }
    if url.starts_with("file:///") || url.starts_with("blobstore://") {
        return Ok(());
    }
    Err(Failure::Settings(format!(
        "\"{url}\" is not allowed: file:///FOLDER or blobstore://HOST/NAME?bucket=BUCKET is allowed"
    )))
}

/// The cluster, and the keys of the object storage.
pub(crate) struct Copier {
    backup: Tool,
    restore: Tool,
}

impl Copier {
    pub(crate) fn new(cluster: &Cluster, credentials: Option<&Path>) -> Self {
        let with = |program, file_flag: &str| Tool::new(program, file_flag, cluster, credentials);
        Self { backup: with("fdbbackup", "-C"), restore: with("fdbrestore", "--dest-cluster-file") }
    }

    /// Copies the whole cluster at one version to `url`, while it is written to; `progress` gets the
    /// copied bytes.
    pub(crate) fn backup(&self, url: &str, progress: &mut dyn FnMut(u64)) -> Result<Copied, Failure> {
        let said = self.backup.run("start", &["-t", TAG, "-d", url]).map_err(backup_advice)?;
        if said.contains("no backup agents are responding") {
            self.backup.run("abort", &["-t", TAG])?;
            return Err(no_agent());
        }
        let last = follow(&self.backup, &|| self.backup_status(), progress)?;
        let url = last.url.unwrap_or_else(|| url.to_owned());
        let described = self.backup.run_unconnected("describe", &["-d", &url, "--json"]);
        let described = described.map_err(|failed| {
            because(&format!("the backup at {url} is complete, and cannot be read"), failed)
        })?;
        match parse::<Description>(&described)?.max_restorable_point {
            Some(point) => Ok(Copied { url, bytes: last.bytes, version: point.version }),
            None => Err(Failure::Run(format!(
                "the backup at {url} is not restorable: delete it, and run this again"
            ))),
        }
    }

    /// Fills the empty cluster from the backup at `url`.
    pub(crate) fn restore(&self, url: &str, progress: &mut dyn FnMut(u64)) -> Result<Copied, Failure> {
        let described = self.backup.run_unconnected("describe", &["-d", url, "--json"])?;
        let Some(point) = parse::<Description>(&described)?.max_restorable_point else {
            return Err(self.not_restorable(url));
        };
        let version = point.version;
        self.restore
            .run("start", &["-t", TAG, "-r", url, "-v", &version.to_string()])
            .map_err(restore_advice)?;
        let last = follow(&self.restore, &|| self.restore_status(), progress)?;
        Ok(Copied { url: url.to_owned(), bytes: last.bytes, version })
    }

    fn backup_status(&self) -> Result<CopyReport, Failure> {
        parse::<BackupStatus>(&self.backup.run("status", &["-t", TAG, "--json"])?).map(BackupStatus::seen)
    }

    fn restore_status(&self) -> Result<CopyReport, Failure> {
        self.restore.run("status", &["-t", TAG]).map(|line| restore_seen(&line))
    }

    /// A folder has one folder for each backup in it.
    fn not_restorable(&self, url: &str) -> Failure {
        let listed = self.backup.run_unconnected("list", &["-b", url]).unwrap_or_default();
        let within: Vec<&str> = listed.split_whitespace().filter(|name| name.starts_with(url)).collect();
        Failure::Run(match within[..] {
            [] => format!(
                "there is no backup at {url} that can be restored: see the line \"Made\" of `millrace backup`"
            ),
            _ => format!("{url} is a folder of backups: name one of them: {}", within.join(", ")),
        })
    }
}

fn parse<'a, T: Deserialize<'a>>(said: &'a str) -> Result<T, Failure> {
    serde_json::from_str(said).map_err(|error| {
        Failure::Run(format!(
            "fdbbackup printed something else than JSON ({error}): it must be of version 7.4"
        ))
    })
}

fn because(what: &str, failed: Failure) -> Failure {
    match failed {
        Failure::Run(why) => Failure::Run(format!("{what}: {why}")),
        other => other,
    }
}

fn no_agent() -> Failure {
    Failure::Run(
        "no backup_agent runs on the cluster: start `backup_agent -C FILE` on one of its machines, which does the copying, and run \
         this again"
            .into(),
    )
}

fn backup_advice(failed: Failure) -> Failure {
    match failed {
        Failure::Run(said) if said.contains("already running") => Failure::Run(format!(
            "a backup of an earlier `millrace backup` is running: `fdbbackup status -t {TAG}` shows it, `fdbbackup abort -t {TAG}` ends it"
        )),
        other => other,
    }
}

fn restore_advice(failed: Failure) -> Failure {
    match failed {
        Failure::Run(said) if said.contains("non-empty") => Failure::Run(
            "the cluster is not empty: a restore fills a cluster without keys, so name another with --fdb-cluster-file".into(),
        ),
        other => other,
    }
}

/// A copy, as a status reports it.
#[derive(Debug, Default, PartialEq)]
struct CopyReport {
    state: State,
    bytes: u64,
    error: Option<String>,
    url: Option<String>,
}

#[derive(Debug, Default, PartialEq)]
enum State {
    /// No agent has begun.
    #[default]
    Waiting,
    Running,
    Paused,
    Complete,
    /// Somebody ended it.
    Aborted,
}

/// Asks until the copy is complete.
fn follow(
    tool: &Tool,
    ask: &dyn Fn() -> Result<CopyReport, Failure>,
    progress: &mut dyn FnMut(u64),
) -> Result<CopyReport, Failure> {
    let (mut bytes, mut idle) = (0, 0);
    loop {
        let trouble = match ask() {
            Ok(seen) => {
                if seen.bytes > bytes {
                    (bytes, idle) = (seen.bytes, 0);
                    progress(bytes);
                }
                match (&seen.state, &seen.error) {
                    (State::Complete, _) => return Ok(seen),
                    (State::Aborted, _) => {
                        return Err(Failure::Run(
                            "the copy was aborted: run this again, a restore on an empty cluster".into(),
                        ));
                    }
                    (State::Paused, _) => {
                        let why = "backups are paused: `fdbbackup resume` lets all of them continue";
                        return Err(give_up(tool, why));
                    }
                    (_, Some(error)) => Some(format!("the backup agents report: {error}")),
                    (State::Waiting, None) => {
                        Some("no backup_agent of the cluster has begun the copy".into())
                    }
                    // Agents are busy with large files.
                    (State::Running, None) => None,
                }
            }
            // The cluster may be recovering.
            Err(Failure::Run(why)) => Some(format!("the status of the copy cannot be read: {why}")),
            Err(failed) => return Err(failed),
        };
        idle += 1;
        if idle > IDLE_POLLS_MAX
            && let Some(why) = trouble
        {
            return Err(give_up(tool, &why));
        }
        block_on(System::new().pause(ASKED_EVERY));
    }
}

/// Ends the copy, so that nothing of it continues.
fn give_up(tool: &Tool, why: &str) -> Failure {
    match tool.run("abort", &["-t", TAG]) {
        Ok(_) => Failure::Run(format!("{why}; the copy was aborted")),
        Err(_) => Failure::Run(format!(
            "{why}; the copy cannot be aborted now: `{} abort -t {TAG}` does",
            tool.program()
        )),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Description {
    max_restorable_point: Option<RestorePoint>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RestorePoint {
    version: u64,
}

/// Output of `fdbbackup status --json`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct BackupStatus {
    backup_agents_paused: bool,
    status: Option<CopyStatus>,
    #[serde(rename = "DestinationURL")]
    url: Option<String>,
    #[serde(default)]
    range_bytes_written: u64,
    #[serde(default)]
    log_bytes_written: u64,
    #[serde(default)]
    errors: Vec<AgentError>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct CopyStatus {
    name: String,
    completed: bool,
    running: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AgentError {
    message: String,
}

impl BackupStatus {
    fn seen(self) -> CopyReport {
        let state = match self.status {
            Some(status) if status.completed => State::Complete,
            Some(status) if !status.running => State::Aborted,
            Some(_) if self.backup_agents_paused => State::Paused,
            Some(status) if status.name == "Submitted" => State::Waiting,
            Some(_) => State::Running,
            None => State::Aborted,
        };
        let error = self.errors.into_iter().next().map(|error| error.message);
        CopyReport { state, bytes: self.range_bytes_written + self.log_bytes_written, error, url: self.url }
    }
}

/// Reads a line of `fdbrestore status`: "Tag: a  UID: b  State: running  Blocks: 1/4 ...
/// BytesWritten: 170  ApplyVersionLag: 0  LastError: None  URL: ...".
fn restore_seen(line: &str) -> CopyReport {
    let after = |name: &str| {
        line.split_once(&format!("{name}: ")).map(|(_, rest)| rest.split("  ").next().unwrap_or(rest).trim())
    };
    let state = match after("State") {
        Some("completed") => State::Complete,
        Some("running") => State::Running,
        Some("aborted") => State::Aborted,
        _ => State::Waiting,
    };
    let error = after("LastError").filter(|error| *error != "None").map(str::to_owned);
    CopyReport {
        state,
        bytes: after("BytesWritten").and_then(|bytes| bytes.parse().ok()).unwrap_or(0),
        error,
        url: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_of_a_backup_says_how_far_it_is() {
        let seen = |text: &str| parse::<BackupStatus>(text).unwrap().seen();
        let none = seen(r#"{"SchemaVersion":"1.0.0","BackupAgentsPaused":false,"Tag":"other"}"#);
        assert_eq!(none.state, State::Aborted);
        let said = |paused: bool, name: &str, completed: bool, running: bool| {
            format!(
                r#"{{"BackupAgentsPaused":{paused},"Tag":"a","Status":{{"Name":"{name}","Completed":{completed},"Running":{running}}},
                "DestinationURL":"file:///b/c","LogBytesWritten":1,"RangeBytesWritten":170,"Errors":[{{"Message":"disk","RelativeSeconds":-2}}]}}"#
            )
        };
        let error = Some("disk".to_owned());
        let running =
            CopyReport { state: State::Running, bytes: 171, error, url: Some("file:///b/c".into()) };
        assert_eq!(seen(&said(false, "Running", false, true)), running);
        assert_eq!(seen(&said(true, "Running", false, true)).state, State::Paused);
        assert_eq!(seen(&said(false, "Submitted", false, true)).state, State::Waiting);
        assert_eq!(seen(&said(false, "Completed", true, false)).state, State::Complete);
        assert_eq!(seen(&said(false, "Aborted", false, false)).state, State::Aborted);
    }

    #[test]
    fn a_status_of_a_restore_says_how_far_it_is() {
        let line = "Tag: r  UID: b3  State: running  Blocks: 0/4  BlocksInProgress: 0  Files: 5  BytesWritten: 12  ApplyVersionLag: 0  \
                    LastError: None  URL: file:///b/c  Range: ''-'\\xff'";
        assert_eq!(
            restore_seen(line),
            CopyReport { state: State::Running, bytes: 12, error: None, url: None }
        );
        assert_eq!(restore_seen("").state, State::Waiting);
        let failed = restore_seen("State: queued  BytesWritten: 0  LastError: 'no file' 2s ago");
        assert_eq!(
            failed,
            CopyReport { state: State::Waiting, bytes: 0, error: Some("'no file' 2s ago".into()), url: None }
        );
    }

    #[test]
    fn a_url_is_of_a_folder_or_of_object_storage() {
        assert!(is_url("file:///a") && !is_url("/var/lib/copy") && !is_url("copy"));
        assert!(check_url("file:///a").is_ok() && check_url("blobstore://@s3/b?bucket=c").is_ok());
        assert!(check_url("file://a").is_err() && check_url("s3://bucket").is_err());
    }
}
