//! Settings of the network between the processes of a region.

use std::path::PathBuf;

use clap::Args;
use millrace_edge::fabric::{Credentials, FabricSettings, NatsTls};

#[derive(Clone, Debug, Args)]
pub(crate) struct NatsArgs {
    /// NATS servers that connect the processes that share a store, such as nats://nats-1:4222 or
    /// tls://nats-1:4222. Without them the processes exchange only stored messages, within a
    /// second.
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    nats: Vec<String>,

    /// NATS: region; only processes of the same region exchange messages [default: millrace].
    #[arg(long, value_name = "NAME")]
    nats_region: Option<String>,

    /// NATS: file with a JWT and its key, as nsc writes them.
    #[arg(long, value_name = "FILE")]
    nats_creds: Option<PathBuf>,

    /// NATS: file with the seed of an NKey.
    #[arg(long, value_name = "FILE")]
    nats_nkey: Option<PathBuf>,

    /// NATS: user; its password is in nats_password_file.
    #[arg(long, value_name = "NAME")]
    nats_user: Option<String>,

    /// NATS: file with the password of nats_user in its first line.
    #[arg(long, value_name = "FILE")]
    nats_password_file: Option<PathBuf>,

    /// NATS: authorities of the servers' certificates, PEM [default: those of the system].
    #[arg(long, value_name = "FILE")]
    nats_tls_ca: Option<PathBuf>,

    /// NATS: certificate that this process presents, PEM.
    #[arg(long, value_name = "FILE")]
    nats_tls_cert: Option<PathBuf>,

    /// NATS: key of that certificate, PEM.
    #[arg(long, value_name = "FILE")]
    nats_tls_key: Option<PathBuf>,
}

impl NatsArgs {
    /// `None` without a network; `pod` is the name of this process among the processes that share a
    /// store.
    pub(crate) fn fabric(self, pod: Option<&str>) -> Result<Option<FabricSettings>, String> {
        let [first, ..] = &self.nats[..] else {
            let set = self.set();
            return match set.into_iter().find(|(_, is_set)| *is_set) {
                Some((name, _)) => Err(format!(
                    "{name} says how NATS is reached, but not where: set nats too, or leave {name} out"
                )),
                None => Ok(None),
            };
        };
        let Some(pod) = pod else {
            return Err(
                "nats is for processes that share a store: set store to foundationdb too, or pods to more than one, or leave nats \
                 out"
                .into(),
            );
        };
        let tls = match (self.nats_tls_cert, self.nats_tls_key) {
            (None, None) if self.nats_tls_ca.is_none() => None,
            (None, None) => Some(NatsTls { ca: self.nats_tls_ca, identity: None }),
            (Some(certificate), Some(key)) => {
                Some(NatsTls { ca: self.nats_tls_ca, identity: Some((certificate, key)) })
            }
            _ => return Err("nats_tls_cert and nats_tls_key belong together: set both, or none".into()),
        };
        let credentials = match (self.nats_user, self.nats_password_file, self.nats_nkey, self.nats_creds) {
            (None, None, None, None) => Credentials::None,
            (Some(user), Some(file), None, None) => {
                let text = std::fs::read_to_string(&file).map_err(|error| {
                    format!("nats_password_file {} cannot be read: {error}", file.display())
                })?;
                let password = text.lines().next().unwrap_or_default().to_owned();
                Credentials::Password { user, password }
            }
            (None, None, Some(file), None) => Credentials::NkeyFile(file),
            (None, None, None, Some(file)) => Credentials::CredsFile(file),
            _ => {
                return Err(
                    "NATS authenticates a process in one way: set nats_user with nats_password_file, or \
                            nats_nkey, or nats_creds"
                        .into(),
                );
            }
        };
        let settings = FabricSettings::new(first, self.nats_region.as_deref().unwrap_or("millrace"));
        Ok(Some(FabricSettings { servers: self.nats, pod_name: pod.into(), credentials, tls, ..settings }))
    }

    /// All settings but `nats`, which are useless without it.
    fn set(&self) -> [(&'static str, bool); 8] {
        [
            ("nats_region", self.nats_region.is_some()),
            ("nats_creds", self.nats_creds.is_some()),
            ("nats_nkey", self.nats_nkey.is_some()),
            ("nats_user", self.nats_user.is_some()),
            ("nats_password_file", self.nats_password_file.is_some()),
            ("nats_tls_ca", self.nats_tls_ca.is_some()),
            ("nats_tls_cert", self.nats_tls_cert.is_some()),
            ("nats_tls_key", self.nats_tls_key.is_some()),
        ]
    }
}
