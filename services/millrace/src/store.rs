//! The store of durable data: its settings, and opening it.

use std::fs::Permissions;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use millrace_storage::{
    Database, Embedded, FolderRecovery, OpenError, Options, block_on, copy_is_unfinished,
};
use tracing::{info, warn};

use crate::failure::Failure;
use crate::limits::whole_number;
use crate::permissions;

#[cfg(feature = "foundationdb")]
mod cluster;

#[derive(Clone, Debug, Args)]
pub(crate) struct StoreArgs {
    /// Store of durable data: embedded, a folder of this process (data_dir); or foundationdb, a
    /// cluster that several processes share, in a binary that is built with the cargo feature
    /// foundationdb.
    #[arg(long, value_name = "STORE", default_value = "embedded")]
    pub(crate) store: StoreKind,

    /// Folder for durable data (sessions, messages, wills), created when it is missing; or "off":
    /// all data is lost when the process ends.
    #[arg(long, value_name = "DIR", default_value = "./data")]
    pub(crate) data_dir: PathBuf,

    #[command(flatten)]
    cluster: ClusterArgs,

    /// Name of this process among the processes that share a store; no two running processes may
    /// have the same name. A process that keeps its name recovers its own sessions when it starts
    /// again [default: the host's name and a random part].
    #[arg(long, value_name = "NAME", value_parser = pod_name)]
    pod: Option<String>,

    /// Pods in this one process, to try several pods without FoundationDB: they share the data
    /// folder and are named pod-1, pod-2 and so on. The first pod has the ports of the settings;
    /// each further pod has the ports of the one before it plus one.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = whole_number::<u16>(1, 16))]
    pub(crate) pods: u16,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ClusterArgs {
    /// FoundationDB: the file that names the cluster's coordinators. It must be writable, because
    /// they may change [default: /etc/foundationdb/fdb.cluster].
    #[arg(long, value_name = "FILE")]
    fdb_cluster_file: Option<PathBuf>,

    /// FoundationDB: prefix of the keys of this store, for several stores in one cluster [default:
    /// millrace].
    #[arg(long, value_name = "NAME", value_parser = prefix)]
    fdb_prefix: Option<String>,

    /// FoundationDB: certificate that this server presents, PEM; for clusters whose addresses end with
    /// ":tls".
    #[arg(long, value_name = "FILE")]
    fdb_tls_cert: Option<PathBuf>,

    /// FoundationDB: key of that certificate, PEM. Its password comes from the variable
    /// FDB_TLS_PASSWORD.
    #[arg(long, value_name = "FILE")]
    fdb_tls_key: Option<PathBuf>,

    /// FoundationDB: authorities of the cluster's certificates, PEM.
    #[arg(long, value_name = "FILE")]
    fdb_tls_ca: Option<PathBuf>,

    /// FoundationDB: conditions that the cluster's certificates must meet, such as
    /// "Check.Valid=1,S.CN=fdb.example.org".
    #[arg(long, value_name = "RULES")]
    fdb_tls_verify: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StoreKind {
    Embedded,
    Foundationdb,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoreLocation {
    Memory,
    Folder(PathBuf),
    Cluster(Cluster),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cluster {
    pub(crate) file: PathBuf,
    /// Without the slash that keys have after it.
    pub(crate) prefix: String,
    pub(crate) tls_cert: Option<PathBuf>,
    pub(crate) tls_key: Option<PathBuf>,
    pub(crate) tls_ca: Option<PathBuf>,
    pub(crate) tls_verify: Option<String>,
}

const WITHOUT_FOUNDATIONDB: &str = "store is foundationdb, and this millrace was built without it: build one with `cargo build \
    --release -p millrace --features foundationdb`, see services/millrace/docs/operations.md";

impl StoreArgs {
    /// Also returns the name of this process, or of its first pod, among the processes that share
    /// the store; `says_data_dir`: a setting names the folder.
    pub(crate) fn place(self, says_data_dir: bool) -> Result<(StoreLocation, Option<String>), String> {
        let mut fdb_settings = self.cluster.given().chain([("pod", self.pod.is_some())]);
        if self.store == StoreKind::Embedded {
            if let Some((name, _)) = fdb_settings.find(|(_, is_set)| *is_set) {
                return Err(format!(
                    "{name} is for a store that several processes share: set store to foundationdb too, or leave {name} out"
                ));
            }
            let is_off = self.data_dir.as_os_str() == "off";
            let pod = (self.pods > 1).then(|| numbered_pod(0));
            return match (is_off, pod) {
                (true, Some(_)) => {
                    Err("pods share a store, and data_dir is off: name a folder, or leave pods out".into())
                }
                (true, None) => Ok((StoreLocation::Memory, None)),
                (false, pod) => Ok((StoreLocation::Folder(self.data_dir), pod)),
            };
        }
        if !cfg!(feature = "foundationdb") {
            return Err(WITHOUT_FOUNDATIONDB.into());
        }
        if self.pods > 1 {
            return Err("pods is for the embedded store: with foundationdb start a process for each pod, and leave pods out".into());
        }
        if says_data_dir {
            return Err("store is foundationdb, which keeps nothing in a folder: leave data_dir out, or set store to \
                        embedded"
                .into());
        }
        let pod = self.pod.unwrap_or_else(new_pod);
        Ok((StoreLocation::Cluster(self.cluster.cluster()?), Some(pod)))
    }
}

impl ClusterArgs {
    pub(crate) fn given(&self) -> impl Iterator<Item = (&'static str, bool)> + use<> {
        [
            ("fdb_cluster_file", self.fdb_cluster_file.is_some()),
            ("fdb_prefix", self.fdb_prefix.is_some()),
            ("fdb_tls_cert", self.fdb_tls_cert.is_some()),
            ("fdb_tls_key", self.fdb_tls_key.is_some()),
            ("fdb_tls_ca", self.fdb_tls_ca.is_some()),
            ("fdb_tls_verify", self.fdb_tls_verify.is_some()),
        ]
        .into_iter()
    }

    /// Takes the values of settings where there is no flag.
    pub(crate) fn or_settings(self, setting: impl Fn(&str) -> Option<String>) -> Self {
        let path = |flag: Option<PathBuf>, name| flag.or_else(|| setting(name).map(PathBuf::from));
        Self {
            fdb_cluster_file: path(self.fdb_cluster_file, "fdb_cluster_file"),
            fdb_prefix: self.fdb_prefix.or_else(|| setting("fdb_prefix")),
            fdb_tls_cert: path(self.fdb_tls_cert, "fdb_tls_cert"),
            fdb_tls_key: path(self.fdb_tls_key, "fdb_tls_key"),
            fdb_tls_ca: path(self.fdb_tls_ca, "fdb_tls_ca"),
            fdb_tls_verify: self.fdb_tls_verify.or_else(|| setting("fdb_tls_verify")),
        }
    }

    pub(crate) fn cluster(self) -> Result<Cluster, String> {
        if self.fdb_tls_cert.is_some() != self.fdb_tls_key.is_some() {
            return Err("fdb_tls_cert and fdb_tls_key belong together: set both, or none".into());
        }
        Ok(Cluster {
            file: self.fdb_cluster_file.unwrap_or_else(|| "/etc/foundationdb/fdb.cluster".into()),
            prefix: self.fdb_prefix.unwrap_or_else(|| "millrace".into()),
            tls_cert: self.fdb_tls_cert,
            tls_key: self.fdb_tls_key,
            tls_ca: self.fdb_tls_ca,
            tls_verify: self.fdb_tls_verify,
        })
    }
}

pub(crate) enum Opened {
    Folder(Embedded),
    #[cfg(feature = "foundationdb")]
    Cluster(cluster::OpenCluster),
}

impl Opened {
    pub(crate) fn recovery(&self) -> Option<FolderRecovery> {
        match self {
            Self::Folder(store) => Some(store.recovery()),
            #[cfg(feature = "foundationdb")]
            Self::Cluster(_) => None,
        }
    }

    pub(crate) fn database(&self) -> Database {
        match self {
            Self::Folder(store) => store.database(),
            #[cfg(feature = "foundationdb")]
            Self::Cluster(store) => store.database(),
        }
    }
}

impl StoreLocation {
    /// `None` for memory; refuses a store that a migration has filled only in part.
    pub(crate) fn open(&self) -> Result<Option<Opened>, Failure> {
        let opened = self.open_even_unfinished()?;
        match opened.as_ref().map(|store| block_on(copy_is_unfinished(&store.database()))) {
            Some(Ok(true)) => Err(Failure::Run(
                "a migration into this store was interrupted: run the same `millrace migrate` again, it continues where it was".into(),
            )),
            Some(Err(error)) => Err(Failure::Run(format!("the store cannot be read: {error}"))),
            None | Some(Ok(false)) => Ok(opened),
        }
    }

    pub(crate) fn open_even_unfinished(&self) -> Result<Option<Opened>, Failure> {
        match self {
            Self::Memory => Ok(None),
            Self::Folder(path) => open_folder(path).map(|store| Some(Opened::Folder(store))),
            #[cfg(feature = "foundationdb")]
            Self::Cluster(cluster) => cluster.open().map(|store| Some(Opened::Cluster(store))),
            #[cfg(not(feature = "foundationdb"))]
            Self::Cluster(_) => Err(Failure::Settings(WITHOUT_FOUNDATIONDB.into())),
        }
    }

    pub(crate) fn greet(&self, pod: Option<&str>) {
        match self {
            Self::Memory => info!("data_dir is off: all data is lost when this process ends"),
            Self::Folder(path) => info!(
                data_dir = %path.display(),
                "sessions, their messages and retained messages are durable"
            ),
            Self::Cluster(cluster) => info!(
                fdb_cluster_file = %cluster.file.display(),
                fdb_prefix = cluster.prefix,
                pod = pod.unwrap_or_default(),
                "sessions, their messages and retained messages are durable, and those of all processes on this store"
            ),
        }
    }
}

/// Closes a data folder that an earlier version made readable for other users of the machine.
fn close_to_others(path: &Path) {
    let Ok(metadata) = std::fs::metadata(path) else { return };
    if metadata.permissions().mode() & 0o077 == 0 {
        return;
    }
    if let Err(error) = std::fs::set_permissions(path, Permissions::from_mode(0o700)) {
        warn!(
            data_dir = %path.display(), %error,
            "other users of this machine may read the data folder, and its mode cannot be changed: run chmod 700 as its owner"
        );
    }
}

fn open_folder(path: &Path) -> Result<Embedded, Failure> {
    permissions::refuse_others_store(path).map_err(Failure::Run)?;
    permissions::keep_private();
    let opened = Embedded::open(path, Options::of_disk(path)).map_err(|error| {
        let advice = match &error {
            OpenError::Locked(_) => "stop that process, or set another folder with --data-dir",
            OpenError::NewerFormat { .. } => {
                "start the version that wrote it, or set another folder with --data-dir"
            }
            OpenError::NotAStore(_) | OpenError::Partial(_) => {
                "set an empty folder, or one that is not there yet, with --data-dir"
            }
            OpenError::ReadOnly(_) => "let this user write to it, or set another folder with --data-dir",
            OpenError::NoSpace(_) => "make room on the disk, or set a folder on another one with --data-dir",
            OpenError::Corrupt { .. } => {
                "restore a backup, or set another folder with --data-dir; nothing was changed"
            }
            _ => "set another folder with --data-dir, or \"off\" to keep everything in memory",
        };
        let cause = std::error::Error::source(&error).map_or_else(String::new, |cause| format!(" ({cause})"));
        Failure::Run(format!("{error}{cause}: {advice}"))
    })?;
    // A folder that is no store belongs to somebody else, so its mode stays.
    close_to_others(path);
    Ok(opened)
}

/// The name of a pod that shares its process with others; `number` begins at 0.
pub(crate) fn numbered_pod(number: u16) -> String {
    format!("pod-{}", number + 1)
}

fn new_pod() -> String {
    let system = rustix::system::uname();
    let host: String =
        system.nodename().to_string_lossy().chars().filter(char::is_ascii_graphic).take(64).collect();
    format!("{host}-{:08x}", RandomState::new().hash_one(0) & 0xffff_ffff)
}

fn prefix(text: &str) -> Result<String, String> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if (1..=15).contains(&text.len()) && text.bytes().all(is_allowed) {
        return Ok(text.to_owned());
    }
    Err("a name of 1 to 15 letters, digits, hyphens, dots and underscores is allowed".to_owned())
}

fn pod_name(text: &str) -> Result<String, String> {
    if (1..=100).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(text.to_owned());
    }
    Err("a name of 1 to 100 printable ASCII characters without spaces is allowed".to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn a_data_folder_is_for_its_user_alone_also_one_that_was_open_before() {
        let folder = tempfile::tempdir().unwrap();
        let (new, old) = (folder.path().join("new"), folder.path().join("old"));
        std::fs::create_dir(&old).unwrap();
        std::fs::set_permissions(&old, Permissions::from_mode(0o755)).unwrap();
        for path in [new, old] {
            drop(open_folder(&path).ok().unwrap());
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        }
    }

    #[test]
    fn root_leaves_the_folder_of_another_user_as_it_is() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: the data folder of another user, because only root can give files away");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        drop(open_folder(folder.path()).ok().unwrap());
        let files = || std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
        for file in files() {
            if let Err(error) = std::os::unix::fs::chown(&file, Some(65_533), Some(65_532)) {
                eprintln!(
                    "SKIPPED: the data folder of another user, because this root cannot give files away: {error}"
                );
                return;
            }
        }
        std::fs::create_dir(folder.path().join("lost+found")).unwrap();
        let before: Vec<_> = files().collect();
        let refused = StoreLocation::Folder(folder.path().into()).open_even_unfinished();
        let Err(Failure::Run(said)) = refused else { panic!("root opens it") };
        assert!(said.contains("sudo -u '#65533'"), "{said}");
        assert_eq!(files().collect::<Vec<_>>(), before);
        let owners =
            files().filter(|file| !file.ends_with("lost+found")).map(|file| file.metadata().unwrap().uid());
        assert!(owners.into_iter().all(|owner| owner == 65_533));
    }

    #[test]
    fn a_folder_that_is_no_store_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("of-somebody-else"), "").unwrap();
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o1777)).unwrap();
        assert!(open_folder(folder.path()).is_err());
        assert_eq!(std::fs::metadata(folder.path()).unwrap().permissions().mode() & 0o7777, 0o1777);
    }
}
