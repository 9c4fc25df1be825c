//! Runs a program of FoundationDB.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::failure::Failure;
use crate::store::Cluster;

/// A program with the flags that each of its calls has.
pub(super) struct Tool {
    program: &'static str,
    /// The cluster file.
    cluster: [OsString; 2],
    certificates: Vec<OsString>,
    /// File with the keys of the object storage.
    credentials: Option<OsString>,
}

impl Tool {
    /// `file_flag` names the cluster file: -C for fdbbackup, --dest-cluster-file for fdbrestore.
    pub(super) fn new(
        program: &'static str,
        file_flag: &str,
        cluster: &Cluster,
        credentials: Option<&Path>,
    ) -> Self {
        let path = |path: &Option<PathBuf>| path.clone().map(OsString::from);
        let certificates = [
            ("--tls-certificate-file", path(&cluster.tls_cert)),
            ("--tls-key-file", path(&cluster.tls_key)),
            ("--tls-ca-file", path(&cluster.tls_ca)),
            ("--tls-verify-peers", cluster.tls_verify.clone().map(OsString::from)),
        ];
        let given = certificates.into_iter().filter_map(|(flag, value)| Some([OsString::from(flag), value?]));
        Self {
            program,
            cluster: [file_flag.into(), cluster.file.clone().into()],
            certificates: given.flatten().collect(),
            credentials: credentials.map(OsString::from),
        }
    }

    pub(super) fn program(&self) -> &'static str {
        self.program
    }

    /// Runs `action` on the cluster, and returns what the program printed.
    pub(super) fn run(&self, action: &str, args: &[&str]) -> Result<String, Failure> {
        self.output(self.command(action, args).args(&self.cluster))
    }

    /// Runs an action that reads a backup, and no cluster.
    pub(super) fn run_unconnected(&self, action: &str, args: &[&str]) -> Result<String, Failure> {
        self.output(&mut self.command(action, args))
    }

    fn command(&self, action: &str, args: &[&str]) -> Command {
        let mut command = Command::new(self.program);
        command.arg(action).args(args).args(&self.certificates).stdin(Stdio::null());
        // Some actions refuse the flag --blob-credentials.
        command.envs(self.credentials.iter().map(|file| ("FDB_BLOB_CREDENTIALS", file)));
        command
    }

    fn output(&self, command: &mut Command) -> Result<String, Failure> {
        let output = command.output().map_err(|error| {
            Failure::Run(match error.kind() {
                ErrorKind::NotFound => format!(
                    "{} is not installed: install foundationdb-clients of the cluster's version, which has it",
                    self.program
                ),
                _ => format!("{} does not start: {error}", self.program),
            })
        })?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(said);
        }
        let all = said + &String::from_utf8_lossy(&output.stderr);
        Err(Failure::Run(format!("{}: {}", self.program, cause(&all))))
    }
}

/// The program's first error, or its last line.
fn cause(said: &str) -> &str {
    let errors = said.lines().find_map(|line| line.strip_prefix("ERROR: "));
    errors
        .or_else(|| said.lines().rfind(|line| !line.trim().is_empty()))
        .unwrap_or("it failed and printed nothing")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_is_the_cause() {
        assert_eq!(cause("Waiting\nERROR: disk is full\nFatal Error: Backup error\n"), "disk is full");
        assert_eq!(cause("Waiting\nno cluster\n\n"), "no cluster");
        assert_eq!(cause(""), "it failed and printed nothing");
    }
}
