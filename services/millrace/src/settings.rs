//! Merges flags, environment and settings file into one checked [`Settings`]. A value from the
//! environment or the file goes through the parser of its flag, so names, types and errors are the
//! same everywhere.

mod clients;

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;

use millrace_control::{OidcSettings, OperatorTokens};
use millrace_edge::EdgeLimits;
use millrace_layers::limits::BODY_BYTES_MAX;

use self::clients::{ClientListeners, accepts_anonymous};
use crate::args::{ServeArgs, serve_args, serve_command};
use crate::control::{ControlArgs, SmtpSettings};
use crate::failure::Failure;
use crate::limits::{ADMIN_PORT_ABOVE, ConnectionLimits, HTTP_HEAD_TIME};
use crate::logs::LogFormat;
use crate::permissions;
use crate::store::{Cluster, ClusterArgs, StoreLocation};
use crate::telemetry::TelemetryArgs;
use crate::values::{Listen, addresses};

const PREFIX: &str = "MILLRACE_";

#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) edge: millrace_edge::Config,
    pub(crate) store: StoreLocation,
    pub(crate) pods: u16,
    pub(crate) http_listen: Option<SocketAddr>,
    pub(crate) admin_listen: Option<AdminListen>,
    pub(crate) operator_tokens: Option<OperatorTokens>,
    pub(crate) http_limits: ConnectionLimits,
    pub(crate) control: ControlArgs,
    pub(crate) oidc: Option<OidcSettings>,
    /// `None` when the server sends no mail.
    pub(crate) smtp: Option<SmtpSettings>,
    /// A filter that [`crate::logs::filter`] accepted.
    pub(crate) log_level: String,
    pub(crate) log_format: LogFormat,
    pub(crate) telemetry: TelemetryArgs,
    /// Applies on SIGTERM.
    pub(crate) drain: millrace_edge::DrainRate,
    pub(crate) shutdown_grace: Duration,
    /// Any client on the network may connect, and the operator has confirmed that.
    pub(crate) open_to_everybody: bool,
    /// Warnings about files with secrets.
    pub(crate) exposed_files: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AdminListen {
    pub(crate) at: SocketAddr,
    /// No setting names the port, so another free port is taken when it is in use.
    pub(crate) is_default: bool,
}

impl AdminListen {
    /// The port above that of the HTTP port, unless a setting names one. Above the last port it is
    /// any free port.
    fn of(said: Option<Listen>, http: Option<SocketAddr>) -> Option<Self> {
        let beside = |port: u16| if port == 0 { 0 } else { port.checked_add(ADMIN_PORT_ABOVE).unwrap_or(0) };
        match (said, http) {
            (Some(Listen::Off), _) | (None, None) => None,
            (Some(Listen::At(at)), _) => Some(Self { at, is_default: false }),
            (None, Some(http)) => Some(Self {
                at: SocketAddr::from((Ipv4Addr::LOCALHOST, beside(http.port()))),
                is_default: true,
            }),
        }
    }
}

impl Settings {
    /// True when only programs on this machine can reach the server: every listener is on a
    /// loopback address, and no gateway or proxy stands in front.
    pub(crate) fn is_local(&self) -> bool {
        let is_loopback = |at: &SocketAddr| at.ip().to_canonical().is_loopback();
        let edge = &self.edge;
        edge.gateway_listen.is_empty()
            && edge.fabric.is_none()
            && edge.mqtt_listen.iter().chain(&edge.ws_listen).chain(&self.http_listen).all(is_loopback)
            && self.control.http_proxies.is_empty()
            && self.control.public_url.is_none()
            && matches!(self.store, StoreLocation::Folder(_))
    }
}

/// Completes the command line `args` from the environment and the file. Also returns `MILLRACE_`
/// variables that are no setting: container platforms set some of their own, so they are no error.
pub(crate) fn load(
    args: Vec<OsString>,
    environment: impl Iterator<Item = (String, String)>,
) -> Result<(Settings, Vec<String>), Failure> {
    let known = names();
    let (given, matches) = serve_args(&args)?;
    let mut environment = variables(environment);
    let config = given.config.or_else(|| environment.remove("config").map(PathBuf::from));
    environment.remove("config");
    let mut file = match &config {
        Some(path) => read(path, &known)?,
        None => BTreeMap::new(),
    };

    let mut completed = args;
    for name in &known {
        if matches.value_source(name) == Some(ValueSource::CommandLine) {
            continue;
        }
        let (value, source) = match (environment.get(name), file.remove(name)) {
            (Some(value), _) => (value.clone(), format!("environment variable {}", variable(name))),
            (None, Some(value)) => (value, shown(config.as_deref())),
            (None, None) => continue,
        };
        let flag = OsString::from(format!("--{}={value}", name.replace('_', "-")));
        check(name, &value, &flag, &source)?;
        // Inserted right after the command's name, because the last argument may follow a `--`.
        completed.insert(2, flag);
    }
    let ignored =
        environment.keys().filter(|name| !known.contains(*name)).map(|name| variable(name)).collect();
    let (args, matches) = serve_args(&completed)?;
    let says_data_dir = matches.value_source("data_dir") == Some(ValueSource::CommandLine);
    let settings = combine(args, says_data_dir).map_err(Failure::Settings)?;
    Ok((Settings { exposed_files: permissions::exposed_files(&matches), ..settings }, ignored))
}

/// For commands that use the data folder of a server with these settings.
pub(crate) fn data_dir(
    flag: Option<PathBuf>,
    config: Option<PathBuf>,
    environment: impl Iterator<Item = (String, String)>,
) -> Result<PathBuf, Failure> {
    let mut environment = variables(environment);
    let mut set = flag.or_else(|| environment.remove("data_dir").map(PathBuf::from));
    let mut store = environment.remove("store");
    if set.is_none()
        && let Some(config) = config.or_else(|| environment.remove("config").map(PathBuf::from))
    {
        let mut file = read(&config, &names())?;
        set = file.remove("data_dir").map(PathBuf::from);
        store = store.or_else(|| file.remove("store"));
    }
    if set.is_none() && store.is_some_and(|store| store == "foundationdb") {
        return Err(Failure::Settings(
            "store is foundationdb, and this works on data folders only: name one with --data-dir; a cluster is copied by \
             `millrace backup file:///FOLDER`, see runbooks/backup-restore.md"
                .into(),
        ));
    }
    let path = match set {
        Some(path) => path,
        None => serve_args(&["millrace".into(), "serve".into()])?.0.store.data_dir,
    };
    if path.as_os_str() == "off" {
        return Err(Failure::Settings(
            "data_dir is off, so nothing is stored that could be looked into: name a folder with --data-dir"
                .into(),
        ));
    }
    Ok(path)
}

/// For commands on the cluster of a server with these settings, which `flags` beat.
pub(crate) fn cluster(
    flags: ClusterArgs,
    config: Option<PathBuf>,
    environment: impl Iterator<Item = (String, String)>,
) -> Result<Cluster, Failure> {
    let mut environment = variables(environment);
    let file = match config.or_else(|| environment.remove("config").map(PathBuf::from)) {
        Some(path) => read(&path, &names())?,
        None => BTreeMap::new(),
    };
    let setting = |name: &str| environment.get(name).or_else(|| file.get(name)).cloned();
    flags.or_settings(setting).cluster().map_err(Failure::Settings)
}

pub(crate) fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.to_string_lossy().into_owned())))
}

/// Settings by name, with the values of their variables. An empty variable counts as unset, because
/// scripts and compose files leave such variables.
fn variables(environment: impl Iterator<Item = (String, String)>) -> BTreeMap<String, String> {
    environment
        .filter(|(_, value)| !value.is_empty())
        .filter_map(|(name, value)| Some((name.strip_prefix(PREFIX)?.to_lowercase(), value)))
        .collect()
}

fn names() -> BTreeSet<String> {
    serve_command()
        .get_arguments()
        .map(|argument| argument.get_id().to_string())
        .filter(|name| !matches!(name.as_str(), "config" | "help" | "version"))
        .collect()
}

fn variable(name: &str) -> String {
    format!("{PREFIX}{}", name.to_uppercase())
}

fn shown(path: Option<&Path>) -> String {
    path.map(|path| path.display().to_string()).unwrap_or_default()
}

/// Values are written as for a flag.
fn read(path: &Path, known: &BTreeSet<String>) -> Result<BTreeMap<String, String>, Failure> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::Settings(format!("the settings file {shown} cannot be read: {error}")))?;
    let table: toml::Table =
        text.parse().map_err(|error| Failure::Settings(format!("{shown} is not valid TOML: {error}")))?;
    let mut values = BTreeMap::new();
    for (key, value) in table {
        if !known.contains(&key) {
            return Err(Failure::Settings(format!(
                "{shown}: unknown key \"{key}\"; {}",
                instead(&key, known)
            )));
        }
        let value = plain(&value).ok_or_else(|| {
            Failure::Settings(format!(
                "{shown}: {key} = {value} is not allowed: a text, a number, true or false, or a list of texts is allowed"
            ))
        })?;
        values.insert(key, value);
    }
    Ok(values)
}

fn plain(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Float(number) => Some(number.to_string()),
        toml::Value::Boolean(yes) => Some(yes.to_string()),
        toml::Value::Array(items) => {
            let items: Option<Vec<_>> = items.iter().map(|item| item.as_str()).collect();
            items.map(|items| items.join(","))
        }
        toml::Value::Datetime(_) | toml::Value::Table(_) => None,
    }
}

/// Suggests the setting that the user may have meant by `key`.
fn instead(key: &str, known: &BTreeSet<String>) -> String {
    let flag = format!("--{}", key.replace('_', "-"));
    let suggested =
        serve_command().try_get_matches_from(["serve".to_owned(), flag]).err().and_then(|error| match error
            .get(ContextKind::SuggestedArg)?
        {
            ContextValue::String(flag) => Some(flag.trim_start_matches('-').replace('-', "_")),
            _ => None,
        });
    match suggested {
        Some(name) if known.contains(&name) => format!("did you mean \"{name}\"?"),
        _ => format!("allowed are {}", known.iter().cloned().collect::<Vec<_>>().join(", ")),
    }
}

/// The error names the source, the key, the value and the allowed values.
fn check(name: &str, value: &str, flag: &OsString, source: &str) -> Result<(), Failure> {
    let Err(error) = serve_command().try_get_matches_from([&OsString::from("serve"), flag]) else {
        return Ok(());
    };
    let allowed = match (error.source(), error.get(ContextKind::ValidValue)) {
        (Some(reason), _) => reason.to_string(),
        (None, Some(ContextValue::Strings(values))) => format!("{} is allowed", values.join(" or ")),
        _ => error.kind().to_string(),
    };
    Err(Failure::Settings(format!("{source}: {name} = \"{value}\" is not allowed: {allowed}")))
}

fn limits_fit(limits: &EdgeLimits, store: &StoreLocation) -> Result<(), String> {
    if !matches!(store, StoreLocation::Memory) && limits.packet_size_max as usize > BODY_BYTES_MAX {
        return Err(format!(
            "packet_size_max = {} is too large: the store holds messages of at most {BODY_BYTES_MAX} bytes, so larger ones with \
             QoS 1 or 2 would be refused for ever. Larger packets need --data-dir off, with which nothing is stored",
            limits.packet_size_max
        ));
    }
    let least = 2 * (u64::from(limits.outbound_soft_bytes) + u64::from(limits.mailbox_bytes_max));
    if u64::from(limits.outbound_hard_bytes) >= least {
        return Ok(());
    }
    Err(format!(
        "outbound_hard_bytes = {} is too small: it must be at least {least}, twice the sum of outbound_soft_bytes and \
         mailbox_bytes_max, or messages are dropped where their publishers should wait",
        limits.outbound_hard_bytes
    ))
}

/// Checks rules that need several settings.
fn combine(args: ServeArgs, says_data_dir: bool) -> Result<Settings, String> {
    let listeners = ClientListeners {
        mqtt: addresses("mqtt_listen", &args.mqtt_listen)?,
        ws: addresses("ws_listen", &args.ws_listen)?,
        gateway: addresses("gateway_listen", &args.gateway_listen)?,
        tls: args.tls.settings()?,
    };
    listeners.check()?;
    let exposed = listeners.exposed();
    let pods = args.store.pods;
    let (store, pod) = args.store.place(says_data_dir)?;
    let http_listen = match args.http_listen {
        Listen::Off => None,
        Listen::At(address) => Some(address),
    };
    let http_limits = ConnectionLimits {
        all: args.http_connections_max,
        per_address: args.http_connections_per_address,
        proxies: args.control.http_proxies.clone(),
        head: HTTP_HEAD_TIME,
    };
    // The API makes brokers that have access settings of their own.
    let has_api = http_listen.is_some() && !matches!(store, StoreLocation::Memory);
    let allow_anonymous =
        accepts_anonymous(args.allow_anonymous, args.password_file.is_some(), has_api, exposed)?;
    let limits = EdgeLimits::from(args.limits);
    limits_fit(&limits, &store)?;
    args.telemetry.check()?;
    let fabric = args.nats.fabric(pod.as_deref())?;
    let (oidc, smtp) = (args.control.oidc()?, args.control.smtp()?);
    Ok(Settings {
        open_to_everybody: allow_anonymous && exposed.is_some(),
        exposed_files: Vec::new(),
        store,
        pods,
        http_listen,
        admin_listen: AdminListen::of(args.admin_listen, http_listen),
        operator_tokens: args.operator_token_file.map(|file| file.0),
        http_limits,
        control: args.control,
        oidc,
        smtp,
        log_level: args.log_level,
        log_format: args.log_format,
        telemetry: args.telemetry,
        drain: millrace_edge::DrainRate {
            per_second: args.drain_rate,
            at_most: Duration::from_secs(args.drain_max_s),
        },
        shutdown_grace: Duration::from_secs(args.shutdown_grace_s),
        edge: millrace_edge::Config {
            clock_ahead_ms: 0,
            mqtt_listen: listeners.mqtt,
            ws_listen: listeners.ws,
            mqtts_listen: listeners.tls.mqtts_listen,
            wss_listen: listeners.tls.wss_listen,
            tls: listeners.tls.files,
            ws_origins: listeners.tls.ws_origins,
            unlimited_from: listeners.tls.unlimited_from,
            brokers: args.brokers,
            pod,
            fabric,
            outgoing: args.outgoing.settings(),
            gateway_listen: listeners.gateway,
            gateway_from: args.gateway_from,
            server_reference: args.server_reference,
            tracer: None,
            threads: args.threads,
            authentication: millrace_edge::Authentication {
                allow_anonymous,
                password_file: args.password_file,
                rules_file: args.rules_file,
            },
            limits,
        },
    })
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
