//! What a fabric is started with.

use std::fmt;
use std::path::PathBuf;

use crate::address::PodId;
use crate::limits::Limits;

/// What a fabric is started with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// NATS servers, `nats://host:port` or `tls://host:port`: any of them, and no others.
    pub servers: Vec<String>,
    /// Pods of other regions on the same servers are not seen: letters, digits, `-` and `_`, 64 at most.
    pub region: String,
    /// This process.
    pub pod: PodId,
    /// What people call it, 128 bytes at most: shown by NATS and by other pods.
    pub pod_name: String,
    /// How NATS knows this pod.
    pub credentials: Credentials,
    /// TLS towards NATS; `None`: only when the server asks for it, with the authorities of the system.
    pub tls: Option<Tls>,
    /// Limits, all with defaults.
    pub limits: Limits,
}

impl Settings {
    /// A pod of its own on one server, without TLS and credentials.
    #[must_use]
    pub fn new(server: &str, region: &str) -> Self {
        let pod = PodId::random();
        Self {
            servers: vec![server.into()],
            region: region.into(),
            pod,
            pod_name: pod.to_string(),
            credentials: Credentials::None,
            tls: None,
            limits: Limits::default(),
        }
    }
}

/// How NATS knows a pod.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Credentials {
    /// Not at all.
    #[default]
    None,
    /// User and password.
    Password {
        /// The user.
        user: String,
        /// The password.
        password: String,
    },
    /// A token.
    Token(String),
    /// A file with the seed of an NKey.
    NkeyFile(PathBuf),
    /// A `.creds` file: a JWT and the seed of its key.
    CredsFile(PathBuf),
}

impl fmt::Debug for Credentials {
    /// Without secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Password { user, .. } => write!(f, "Password({user:?})"),
            Self::Token(_) => f.write_str("Token"),
            Self::NkeyFile(path) => write!(f, "NkeyFile({})", path.display()),
            Self::CredsFile(path) => write!(f, "CredsFile({})", path.display()),
        }
    }
}

/// TLS towards NATS. The files are read again at each connect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Certificates of the authorities that NATS is believed by (PEM); `None`: those of the system.
    pub ca: Option<PathBuf>,
    /// Certificate chain and key of this pod (PEM).
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// Settings that cannot work. Says what to change.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// No server is named.
    #[error("no NATS server is named: name at least one, such as nats://nats:4222")]
    NoServer,
    /// A server's address cannot be one.
    #[error("{server:?} is no address of a NATS server: it is to be nats://host:port or tls://host:port")]
    Server {
        /// The address, without what may be a password.
        server: String,
    },
    /// A server's address has a user or password in it.
    #[error("the address of the NATS server {host:?} has a user or password in it: set them as credentials")]
    Secret {
        /// The server.
        host: String,
    },
    /// A region that is no part of a NATS subject.
    #[error("{0:?} is no name for a region: use letters, digits, - and _, 64 at most")]
    Region(String),
    /// A name that is too long or has control characters.
    #[error("{0:?} is no name for a pod: use 128 bytes at most, without control characters")]
    PodName(String),
    /// The id 0 is nobody's.
    #[error("a pod cannot have the id 0")]
    PodId,
    /// A file cannot be used.
    #[error("{what} {}: {reason}", path.display())]
    File {
        /// What it is to be.
        what: &'static str,
        /// Where it is to be.
        path: PathBuf,
        /// Why it cannot be used.
        reason: String,
    },
    /// Limits that contradict each other.
    #[error("{0}")]
    Limits(&'static str),
    /// The thread or its event queue cannot be had.
    #[error("could not start the fabric's thread")]
    Thread(#[source] std::io::Error),
}
