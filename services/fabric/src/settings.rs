//! Settings of a fabric.

use std::fmt;
use std::path::PathBuf;

use crate::address::PodId;
use crate::limits::Limits;

/// Settings of a fabric.
#[derive(Clone, Debug)]
pub struct Settings {
    /// NATS servers, `nats://host:port` or `tls://host:port`: any of them, and no others.
    pub servers: Vec<String>,
    /// Letters, digits, `-` and `_`, 64 at most. Pods of other regions on the same servers are ignored.
    pub region: String,
    /// This process.
    pub pod: PodId,
    /// Its name for people, 128 bytes at most, shown by NATS and by other pods.
    pub pod_name: String,
    /// Authentication at NATS.
    pub credentials: Credentials,
    /// TLS to NATS. With `None` only when the server requires it, with the authorities of the system.
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

/// Authentication at NATS.
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
    /// Omits secrets.
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
    /// Certificates of NATS' authorities (PEM); `None` means those of the system.
    pub ca: Option<PathBuf>,
    /// Certificate chain and key of this pod (PEM).
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// Invalid settings. The text says what to change.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// No server is named.
    #[error("no NATS server is named: name at least one, such as nats://nats:4222")]
    NoServer,
    /// A server's address is invalid.
    #[error("{server:?} is no address of a NATS server: it is to be nats://host:port or tls://host:port")]
    Server {
        /// The address, without parts that may be a password.
        server: String,
    },
    /// A server's address contains a user or password.
    #[error("the address of the NATS server {host:?} has a user or password in it: set them as credentials")]
    Secret {
        /// The server.
        host: String,
    },
    /// The region cannot be part of a NATS subject.
    #[error("{0:?} is no name for a region: use letters, digits, - and _, 64 at most")]
    Region(String),
    /// A name that is too long or has control characters.
    #[error("{0:?} is no name for a pod: use 128 bytes at most, without control characters")]
    PodName(String),
    /// The id 0 is reserved.
    #[error("a pod cannot have the id 0")]
    PodId,
    /// A file cannot be used.
    #[error("{what} {}: {reason}", path.display())]
    File {
        /// The kind of file.
        what: &'static str,
        /// Its path.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// Limits that contradict each other.
    #[error("{0}")]
    Limits(&'static str),
    /// The thread or its event queue cannot be made.
    #[error("could not start the fabric's thread")]
    Thread(#[source] std::io::Error),
}
