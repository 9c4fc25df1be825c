//! Backup and restore of a cluster, with stand-ins for the programs of FoundationDB.
//! `services/millrace/tests/cluster_backup.sh` does the same on a real cluster.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::tools::{Said, program};

const MADE: &str = "file:///b/backup-1";

/// A folder with a cluster file and the stand-ins, and nothing else is on PATH.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new(programs: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("fdb.cluster"), "a:b@127.0.0.1:1").unwrap();
        for (name, script) in programs {
            let path = folder.path().join(name);
            fs::write(&path, format!("#!/bin/sh\necho \"{name} $*\" >>calls\necho \"$1 has $FDB_BLOB_CREDENTIALS\" >>keys\n{script}")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self(folder)
    }

    fn millrace(&self, command: &str) -> Said {
        let args: Vec<&str> = command.split(' ').collect();
        let output = program(&args).env("PATH", self.0.path()).current_dir(self.0.path()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    fn calls(&self) -> String {
        self.log("calls")
    }

    fn log(&self, name: &str) -> String {
        fs::read_to_string(self.0.path().join(name)).unwrap_or_default()
    }
}

/// A shell case: each action prints the text beside it.
fn prints(cases: &[(&str, &str)]) -> String {
    let cases: Vec<_> = cases.iter().map(|(action, text)| format!("{action}) echo '{text}' ;;\n")).collect();
    format!("case $1 in\n{}esac\n", cases.concat())
}

fn status(name: &str, is_paused: bool) -> String {
    let bytes = if name == "Completed" { 2048 } else { 0 };
    let (is_over, goes_on) = (name == "Completed", matches!(name, "Running" | "Submitted"));
    format!(
        r#"{{"BackupAgentsPaused":{is_paused},"Status":{{"Name":"{name}","Completed":{is_over},"Running":{goes_on}}},
        "DestinationURL":"{MADE}","RangeBytesWritten":{bytes},"LogBytesWritten":0,"Errors":[]}}"#
    )
}

const SUBMITTED: &str = "The backup on tag `millrace-once\" was successfully submitted.";
const DESCRIBED: &str = r#"{"Restorable":true,"MaxRestorablePoint":{"Version":77,"RelativeDays":0}}"#;

#[test]
fn a_cluster_is_copied_to_a_url_at_one_version() {
    let machine = Machine::new(&[(
        "fdbbackup",
        &prints(&[("start", SUBMITTED), ("status", &status("Completed", false)), ("describe", DESCRIBED)]),
    )]);
    let made =
        machine.millrace("backup file:///b --fdb-cluster-file fdb.cluster --blob-credentials secret --json");
    let rows = made.succeeded().json();
    assert_eq!(rows[0]["kind"], "backup_progress");
    assert_eq!(rows[1]["target"], MADE);
    assert_eq!((&rows[1]["bytes"], &rows[1]["version"]), (&2048.into(), &77.into()));
    let calls = machine.calls();
    assert!(calls.contains("fdbbackup start -t millrace-once -d file:///b -C fdb.cluster"), "{calls}");
    // fdbbackup refuses the flag --blob-credentials for status and abort.
    assert_eq!(machine.log("keys"), "start has secret\nstatus has secret\ndescribe has secret\n");
    assert!(calls.contains(&format!("fdbbackup describe -d {MADE} --json")), "{calls}");
}

#[test]
fn the_cluster_may_be_that_of_a_settings_file() {
    let machine = Machine::new(&[(
        "fdbbackup",
        &prints(&[("start", SUBMITTED), ("status", &status("Completed", false)), ("describe", DESCRIBED)]),
    )]);
    let settings = "store = \"foundationdb\"\nfdb_cluster_file = \"fdb.cluster\"\nfdb_tls_ca = \"ca.pem\"\n";
    fs::write(machine.0.path().join("millrace.toml"), settings).unwrap();
    let made = machine.millrace("backup file:///b --config millrace.toml").succeeded();
    assert_eq!(made.out, format!("Made {MADE} (2.0 KiB, version 77).\n"));
    assert!(machine.calls().contains("--tls-ca-file ca.pem -C fdb.cluster"), "{}", machine.calls());
}

#[test]
fn a_backup_that_nobody_copies_ends_with_advice() {
    let backup = |cases: &[(&str, &str)]| {
        let machine = Machine::new(&[("fdbbackup", &prints(cases))]);
        (machine.millrace("backup file:///b --fdb-cluster-file fdb.cluster"), machine.calls())
    };
    let (said, calls) = backup(&[("start", "submitted but no backup agents are responding.")]);
    said.failed_with("no backup_agent runs on the cluster");
    assert!(calls.contains("fdbbackup abort -t millrace-once"), "{calls}");
    let (said, calls) = backup(&[("start", SUBMITTED), ("status", &status("Running", true))]);
    said.failed_with("fdbbackup resume");
    assert!(calls.contains("fdbbackup abort -t millrace-once"), "{calls}");
    let (said, _) = backup(&[("start", SUBMITTED), ("status", &status("Aborted", false))]);
    said.failed_with("was aborted");
    let running =
        Machine::new(&[("fdbbackup", "echo 'ERROR: A backup is already running on tag x' >&2\nexit 1\n")]);
    running
        .millrace("backup file:///b --fdb-cluster-file fdb.cluster")
        .failed_with("fdbbackup abort -t millrace-once");
}

#[test]
fn a_status_that_fails_once_does_not_end_the_command() {
    let recovers = "status) if [ -e asked ]; then echo \"$STATUS\"; else : >asked; exit 1; fi ;;";
    let script = format!(
        "STATUS='{}'\ncase $1 in\nstart) echo '{SUBMITTED}' ;;\n{recovers}\ndescribe) echo '{DESCRIBED}' ;;\nesac\n",
        status("Completed", false)
    );
    let machine = Machine::new(&[("fdbbackup", &script)]);
    machine.millrace("backup file:///b --fdb-cluster-file fdb.cluster").succeeded();
}

#[test]
fn missing_programs_and_wrong_places_are_named() {
    let machine = Machine::new(&[]);
    let file = "--fdb-cluster-file fdb.cluster";
    for command in ["backup file:///b", "restore file:///b"] {
        machine.millrace(&format!("{command} {file}")).failed_with("fdbbackup is not installed");
        machine
            .millrace(&format!("{command} --fdb-cluster-file none"))
            .failed_with("no cluster file at none");
    }
    for (command, words) in [
        (format!("backup copy {file}"), "file:///FOLDER"),
        ("restore copy --blob-credentials keys".to_owned(), "file:///FOLDER"),
        ("backup s3://bucket".to_owned(), "blobstore://"),
        ("backup blobstore://key:secret@host/b?bucket=c".to_owned(), "--blob-credentials"),
        ("backup file:///b --data-dir data".to_owned(), "--data-dir"),
        ("restore file:///b --fdb-prefix one".to_owned(), "--fdb-prefix"),
    ] {
        let said = machine.millrace(&command);
        assert!(said.code == Some(2) && said.err.contains(words), "{command}: {}", said.err);
    }
    fs::write(machine.0.path().join("millrace.toml"), "store = \"foundationdb\"\n").unwrap();
    let said = machine.millrace("backup copy --config millrace.toml");
    assert!(said.code == Some(2) && said.err.contains("millrace backup file:///FOLDER"), "{}", said.err);
    assert_eq!(machine.calls(), "");
}

#[test]
fn a_restore_fills_an_empty_cluster() {
    let backup = prints(&[("describe", DESCRIBED)]);
    let line = "Tag: millrace-once  State: completed  BytesWritten: 12  LastError: None  URL: x";
    let machine = Machine::new(&[("fdbbackup", &backup), ("fdbrestore", &prints(&[("status", line)]))]);
    let said = machine.millrace(&format!("restore {MADE} --fdb-cluster-file fdb.cluster")).succeeded();
    assert_eq!(said.out, "Restored the cluster of fdb.cluster to version 77.\n");
    let started =
        format!("fdbrestore start -t millrace-once -r {MADE} -v 77 --dest-cluster-file fdb.cluster");
    assert!(machine.calls().contains(&started), "{}", machine.calls());

    let refuses = "echo 'ERROR: Attempted to restore into a non-empty destination database' >&2\nexit 1\n";
    let machine = Machine::new(&[("fdbbackup", &backup), ("fdbrestore", refuses)]);
    machine
        .millrace(&format!("restore {MADE} --fdb-cluster-file fdb.cluster"))
        .failed_with("the cluster is not empty");

    let folder = prints(&[("describe", r#"{"Restorable":false}"#), ("list", MADE)]);
    let machine = Machine::new(&[("fdbbackup", &folder)]);
    machine.millrace("restore file:///b --fdb-cluster-file fdb.cluster").failed_with(MADE);
}
