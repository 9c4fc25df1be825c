//! Settings of the connection to NATS, checked when the fabric starts. A [`SettingsError`] says
//! what to set instead.

use std::fmt;
use std::path::PathBuf;

use crate::address::PodId;
use crate::limits::FabricLimits;

#[derive(Clone, Debug)]
pub struct FabricSettings {
    /// `nats://host:port` or `tls://host:port`; servers that these announce are ignored.
    pub servers: Vec<String>,
    /// Letters, digits, `-` and `_`, 64 at most. Pods of other regions on the same servers are
    /// ignored.
    pub region: String,
    pub pod: PodId,
    /// A name for people, which NATS and other pods show; 128 bytes at most.
    pub pod_name: String,
    pub credentials: Credentials,
    /// `None` uses TLS only when the server requires it, with the system's authorities.
    pub tls: Option<NatsTls>,
    pub limits: FabricLimits,
}

impl FabricSettings {
    /// A random pod on one server, without TLS and credentials.
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
            limits: FabricLimits::default(),
        }
    }
}

#[derive(Clone, Default, PartialEq, Eq)]
pub enum Credentials {
    #[default]
    None,
    Password {
        user: String,
        password: String,
    },
    Token(String),
    /// A file with the seed of an NKey.
    NkeyFile(PathBuf),
    /// A `.creds` file: a JWT and the seed of its key.
    CredsFile(PathBuf),
}

impl fmt::Debug for Credentials {
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

/// Files for TLS, which are read again at each connect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NatsTls {
    /// Certificates of NATS' authorities (PEM); `None` means the system's.
    pub ca: Option<PathBuf>,
    /// Certificate chain and key of this pod (PEM).
    pub identity: Option<(PathBuf, PathBuf)>,
}

#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("no NATS server is named: name at least one, such as nats://nats:4222")]
    NoServer,
    #[error("{server:?} is not an address of a NATS server: write nats://host:port or tls://host:port")]
    Server {
        /// Without parts that may be a password.
        server: String,
    },
    #[error("the address of the NATS server {host:?} has a user or password in it: set them as credentials")]
    Secret { host: String },
    #[error("{0:?} is no name for a region: use letters, digits, - and _, 64 at most")]
    Region(String),
    #[error("{0:?} is no name for a pod: use 128 bytes at most, without control characters")]
    PodName(String),
    #[error("a pod cannot have the id 0")]
    PodId,
    #[error("{what} {}: {reason}", path.display())]
    File { what: &'static str, path: PathBuf, reason: String },
    #[error("{0}")]
    Limits(&'static str),
    #[error("could not start the fabric's thread")]
    Thread(#[source] std::io::Error),
}
