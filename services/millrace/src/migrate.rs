//! `millrace migrate`: from one machine's data folder to a region's FoundationDB cluster, and back.
//!
//! The keys are the same on both engines, so a migration copies them unchanged and then compares
//! both stores: [`millrace_storage::copy`]. No server may run on either store meanwhile. The lock
//! of a data folder shows a running server; the leases that pods renew show the servers of a
//! cluster.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use millrace_layers::{
    Store,
    pods::{self, Pod},
};
use millrace_storage::{
    CopyError, CopyProgress, Database, Embedded, Host as _, RestoreError, System, block_on, copy,
};

use crate::failure::Failure;
use crate::permissions;
use crate::store::{ClusterArgs, Opened, StoreLocation};
use crate::text;

pub(crate) const HELP: &str = "\
Example:
  sudo -u millrace millrace migrate /var/lib/millrace foundationdb --fdb-cluster-file /etc/foundationdb/fdb.cluster

The source stays as it is. The target is empty at first; after an interruption, run the same command
again. When the command has ended, both stores are equal.";

/// Stands for the cluster of --fdb-cluster-file; a folder of this name is written ./foundationdb.
const CLUSTER: &str = "foundationdb";

/// Long enough for a running pod to renew its lease several times.
const LEASE_WATCHED: Duration = Duration::from_secs(6);

/// How far a new folder's versions begin after the source's. A cluster counts about a million a
/// second, also while a migration is interrupted, so this is good for 19 hours.
const VERSIONS_AHEAD: u64 = 1 << 36;

const PROGRESS_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(crate) struct MigrateArgs {
    /// A data folder, or "foundationdb" for the cluster.
    #[arg(value_name = "SOURCE")]
    source: OsString,

    /// A data folder, or "foundationdb" for the cluster.
    #[arg(value_name = "TARGET")]
    target: OsString,

    #[command(flatten)]
    cluster: ClusterArgs,
}

pub(crate) fn run(args: MigrateArgs) -> Result<(), Failure> {
    let is_cluster = |place: &OsString| place == CLUSTER;
    match (is_cluster(&args.source), is_cluster(&args.target)) {
        (true, true) => {
            return Err(Failure::Settings(
                "source and target are both a cluster: `millrace backup` and `millrace restore` with a URL copy between clusters".into(),
            ));
        }
        (false, false) => {
            if let Some((name, _)) = args.cluster.given().find(|(_, is_set)| *is_set) {
                return Err(Failure::Settings(format!(
                    "--{} is for a cluster: write foundationdb instead of one of the folders, or leave it out",
                    name.replace('_', "-")
                )));
            }
        }
        _ => {}
    }
    let cluster = args.cluster.cluster().map_err(Failure::Settings)?;
    let place = |name: OsString| match is_cluster(&name) {
        true => StoreLocation::Cluster(cluster.clone()),
        false => StoreLocation::Folder(PathBuf::from(name)),
    };
    migrate(&place(args.source), &place(args.target))
}

fn migrate(source: &StoreLocation, target: &StoreLocation) -> Result<(), Failure> {
    for place in [source, target] {
        if let StoreLocation::Folder(folder) = place {
            permissions::refuse_others_store(folder).map_err(Failure::Run)?;
        }
    }
    if let StoreLocation::Folder(folder) = source
        && crate::inspect::is_missing(folder)
    {
        let folder = folder.display();
        return Err(Failure::Run(format!("there is no data folder at {folder}: name the one of the server")));
    }
    let from = open(source)?;
    if let StoreLocation::Cluster(_) = source {
        refuse_running(&Store::new(from.database()), LEASE_WATCHED)?;
    }
    if let StoreLocation::Folder(folder) = target {
        permissions::keep_private();
        let version = block_on(from.database().run(async |tx, _| tx.read_version().await));
        let version = version.map_err(|error| Failure::Run(format!("the source cannot be read: {error}")))?;
        Embedded::create_after(folder, version.saturating_add(VERSIONS_AHEAD)).map_err(
            |error| match error {
                // Its text says what to do.
                RestoreError::Open(_) => {
                    open(target).err().unwrap_or_else(|| Failure::Run(error.to_string()))
                }
                _ => Failure::Run(format!("the target cannot be made: {error}")),
            },
        )?;
    }
    let to = open(target)?;
    let seen = copy_then(&from.database(), &to.database(), || match source {
        // Checked again, because a pod that was started during the copy may write after the
        // comparison.
        StoreLocation::Cluster(_) => refuse_running(&Store::new(from.database()), LEASE_WATCHED),
        _ => Ok(()),
    })?;
    say(&format!("Both stores are equal: {}, {}.", keys(seen.keys), text::bytes(seen.bytes)));
    say("Start servers on the target with the same secret_key_file as before, if one was set.");
    Ok(())
}

/// Copies, and finishes the copy if `check` allows it. Otherwise no server starts on the target, and the next migration continues the
/// copy.
fn copy_then(
    source: &Database,
    target: &Database,
    check: impl FnOnce() -> Result<(), Failure>,
) -> Result<CopyProgress, Failure> {
    let mut progress = ProgressLines::new();
    let failed = |error| failure(&error);
    let equal = block_on(copy(source, target, &mut |seen| progress.show(seen))).map_err(failed)?;
    check()?;
    block_on(equal.finish()).map_err(failed)
}

fn open(place: &StoreLocation) -> Result<Opened, Failure> {
    place.open_even_unfinished()?.ok_or_else(|| {
        Failure::Run("a store in memory cannot be copied: name a data folder or a cluster".into())
    })
}

/// Watches the leases of all pods, because a running pod renews its lease.
fn refuse_running(store: &Store, watched: Duration) -> Result<(), Failure> {
    let unread = |error| Failure::Run(format!("the pods of the store cannot be read: {error}"));
    let list = || block_on(store.run(async |tx| pods::list(&tx).await));
    let before = list().map_err(unread)?;
    if before.is_empty() {
        return Ok(());
    }
    say(&format!("Watching for {} s whether a pod runs on the source ...", watched.as_secs()));
    block_on(System::new().pause(watched));
    let after = list().map_err(unread)?;
    let running = renewed(&before, &after);
    if running.is_empty() {
        return Ok(());
    }
    Err(Failure::Run(format!(
        "pods run on the source ({}): stop all of them, and run this again",
        running.join(", ")
    )))
}

/// The names of the pods whose leases changed.
fn renewed(before: &[Pod], after: &[Pod]) -> Vec<String> {
    let is_same = |pod: &Pod, old: &Pod| old.name == pod.name && old.until_ms == pod.until_ms;
    let renewed = after.iter().filter(|pod| !before.iter().any(|old| is_same(pod, old)));
    renewed.map(|pod| text::escape(&pod.name)).collect()
}

fn failure(error: &CopyError) -> Failure {
    let advice = match error {
        CopyError::NotEmpty => {
            "name an empty folder, or another --fdb-prefix; nothing was changed".to_owned()
        }
        CopyError::SourceUnfinished => "run the migration that was interrupted to its end first".to_owned(),
        // A new folder begins after the source's version, so the target is a cluster, or a folder
        // of an earlier attempt.
        CopyError::VersionsBehind { source_version, .. } => format!(
            "run `fdbcli --exec \"advanceversion {}\"` for a cluster, or name a new folder; then run this again",
            source_version.saturating_add(1)
        ),
        CopyError::AnotherCopy => "let one migration into this target run to its end".to_owned(),
        CopyError::SourceChanges => "stop every server on it, and run this again".to_owned(),
        _ => "what was copied stays, and the same command continues where it was".to_owned(),
    };
    let cause = std::error::Error::source(error).map_or_else(String::new, |cause| format!(" ({cause})"));
    Failure::Run(format!("{error}{cause}: {advice}"))
}

/// Prints a line, and continues if stderr is closed.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn keys(number: u64) -> String {
    text::plural(number, "key", "keys")
}

/// Lines on stderr, at most one a second.
struct ProgressLines {
    shown_at: std::time::Instant,
}

impl ProgressLines {
    #[allow(clippy::disallowed_methods, reason = "paces the lines that a person reads")]
    fn new() -> Self {
        Self { shown_at: std::time::Instant::now() }
    }

    fn show(&mut self, seen: CopyProgress) {
        if self.shown_at.elapsed() < PROGRESS_EVERY {
            return;
        }
        *self = Self::new();
        let what = if seen.is_comparing { "Compared" } else { "Copied" };
        say(&format!("{what} {}, {} ...", keys(seen.keys), text::bytes(seen.bytes)));
    }
}

#[cfg(test)]
mod tests {
    use millrace_storage::{StoreError, copy_is_unfinished};

    use super::*;

    #[test]
    fn a_pod_that_runs_at_the_end_leaves_a_target_on_which_the_same_command_continues() {
        let (source, target) = (Database::memory(), Database::memory());
        let write = |database: &Database, value: Option<&'static [u8]>| -> Result<(), StoreError> {
            block_on(database.run(async |tx, _| match value {
                Some(value) => tx.set("key", value),
                None => tx.clear("key"),
            }))
        };
        write(&source, Some(b"value")).unwrap();
        // The target's versions must not be behind those of the source.
        write(&target, Some(b"")).unwrap();
        write(&target, None).unwrap();
        let runs = || Err(Failure::Run("pods run on the source".into()));
        let is_unfinished = || block_on(copy_is_unfinished(&target)).unwrap();
        assert!(copy_then(&source, &target, runs).is_err() && is_unfinished());
        assert_eq!(copy_then(&source, &target, || Ok(())).unwrap().keys, 1);
        assert!(!is_unfinished());
    }

    #[test]
    fn a_pod_that_renews_its_lease_is_named_and_a_dead_one_is_not() {
        let store = Store::new(Database::memory());
        let renew =
            |pod: &[u8], until_ms| block_on(store.run(async |tx| pods::renew(&tx, pod, until_ms))).unwrap();
        let list = || block_on(store.run(async |tx| pods::list(&tx).await)).unwrap();
        renew(b"dead", 1);
        renew(b"alive", 1);
        let before = list();
        assert!(renewed(&before, &list()).is_empty());
        assert!(refuse_running(&store, Duration::ZERO).is_ok());
        renew(b"alive", 2);
        renew(b"new", 3);
        assert_eq!(renewed(&before, &list()), ["alive", "new"]);
    }
}
