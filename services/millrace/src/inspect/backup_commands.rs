//! The commands `millrace backup` and `millrace restore`, of a data folder or of a cluster.

use std::path::{Path, PathBuf};

use super::args::{BackupArgs, CopyArgs, RestoreArgs};
use super::backup as folders;
use super::command::{data_dir, ended, open, printer, style};
use super::request::InspectRequest;
use super::rows::InspectRow;
use crate::cluster_copy::{self, Copied, Copier};
use crate::failure::Failure;
use crate::settings;

pub(crate) fn backup(args: BackupArgs) -> Result<(), Failure> {
    if let Some(url) = url(&args.target, &args.copy)? {
        return cluster(
            args.copy,
            |copier, progress| copier.backup(&url, progress),
            |copied, _| InspectRow::BackupDone {
                target: copied.url,
                bytes: copied.bytes,
                version: Some(copied.version),
            },
        );
    }
    let target = absolute(&args.target)?;
    let request = InspectRequest::Backup { target: target.clone() };
    let source = open(&args.copy.folder)?;
    let mut printer = printer(style(args.copy.json));
    let copied = source.answer(&request, &mut |row| printer.row(&row));
    ended(copied.and_then(|_| printer.end("", None)))?;
    is_seen(&target)
}

pub(crate) fn restore(args: RestoreArgs) -> Result<(), Failure> {
    if let Some(url) = url(&args.source, &args.copy)? {
        return cluster(
            args.copy,
            |copier, progress| copier.restore(&url, progress),
            |copied, cluster_file| InspectRow::ClusterRestored { cluster_file, version: copied.version },
        );
    }
    let (source, target) = (absolute(&args.source)?, absolute(&data_dir(&args.copy.folder)?)?);
    let mut printer = printer(style(args.copy.json));
    let copied = folders::restore(&source, &target, &mut |row| printer.row(&row));
    ended(copied.and_then(|()| printer.end("", None)))
}

/// The URL of a cluster's backup, or `None` for a folder. Refuses flags of the other kind.
fn url(place: &Path, args: &CopyArgs) -> Result<Option<String>, Failure> {
    let given = args.cluster.given().chain([("blob_credentials", args.blob_credentials.is_some())]);
    let flag = |name: &str| format!("--{}", name.replace('_', "-"));
    let Some(url) = place.to_str().filter(|place| cluster_copy::is_url(place)) else {
        let Some((name, _)) = given.into_iter().find(|(_, is_set)| *is_set) else { return Ok(None) };
        return Err(Failure::Settings(format!(
            "{} is for a FoundationDB cluster, whose backups have a URL: name file:///FOLDER or blobstore://HOST/NAME?bucket=BUCKET, or \
             leave the flag out",
            flag(name)
        )));
    };
    cluster_copy::check_url(url)?;
    if args.folder.data_dir.is_some() {
        return Err(Failure::Settings(
            "--data-dir is for a data folder, and a URL for a cluster: leave one of them out".into(),
        ));
    }
    match args.cluster.given().find(|(name, is_set)| *is_set && *name == "fdb_prefix") {
        Some(_) => Err(Failure::Settings(
            "a backup has the keys of all prefixes of a cluster: leave --fdb-prefix out".into(),
        )),
        None => Ok(Some(url.to_owned())),
    }
}

/// Copies a cluster, and prints what `done` makes of the copy and of the cluster file.
fn cluster(
    args: CopyArgs,
    copy: impl FnOnce(&Copier, &mut dyn FnMut(u64)) -> Result<Copied, Failure>,
    done: impl FnOnce(Copied, String) -> InspectRow,
) -> Result<(), Failure> {
    let cluster = settings::cluster(args.cluster, args.folder.config, settings::environment())?;
    let cluster_file = cluster.file.display().to_string();
    if !cluster.file.exists() {
        return Err(Failure::Run(format!(
            "there is no cluster file at {cluster_file}: name the one of your cluster with --fdb-cluster-file"
        )));
    }
    let copier = Copier::new(&cluster, args.blob_credentials.as_deref());
    let mut printer = printer(style(args.json));
    // A closed output does not stop the copy.
    let copied = copy(&copier, &mut |bytes| drop(printer.row(&InspectRow::BackupProgress { bytes })))?;
    ended(printer.row(&done(copied, cluster_file)).and_then(|()| printer.end("", None)))
}

/// Fails if the server's backup is not visible here: a service with `PrivateTmp=yes` has a /tmp of its own.
fn is_seen(target: &Path) -> Result<(), Failure> {
    match target.try_exists() {
        Ok(false) => Err(Failure::Run(format!(
            "the server made {} in a folder that only its service sees, and that is deleted when the service stops: name a folder \
             outside of /tmp and /var/tmp",
            target.display()
        ))),
        _ => Ok(()),
    }
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path)
        .map_err(|error| Failure::Settings(format!("\"{}\" is not a path: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_that_nobody_else_sees_is_a_failure() {
        let folder = tempfile::tempdir().unwrap();
        assert!(is_seen(folder.path()).is_ok());
        assert!(matches!(is_seen(&folder.path().join("monday")), Err(Failure::Run(_))));
    }
}
