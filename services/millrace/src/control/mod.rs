//! The control plane in this process: its settings, the store that it has with the edge, and what it asks the running edge.

mod clients;
mod inside;
mod live;
mod messages;
mod oidc;
mod publish;
mod reach;
mod retained;
mod sessions;
mod tail;

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};

use axum::Router;
use clap::{Args, ValueEnum};
use ipnet::IpNet;
use millrace_control::{
    Clock, Control, Fabric, LocalDoor, OidcSettings, Operations, Options, OwnPod, Price, Secret, SignUpBy,
};
use millrace_edge::DrainPace;
use millrace_storage::{Database, block_on};
use millrace_telemetry::SECRET_TARGET;
use tracing::{info, warn};

use crate::args::network;
use crate::cli::Failure;
use crate::http::{Addresses, SIGN_UP_PATH, reachable};
use crate::serve::Running;

/// How the control plane is reached.
#[derive(Clone, Debug, Args)]
pub(crate) struct ControlArgs {
    /// URL of the HTTP port for people, a scheme and a host; with https their cookies are for TLS only
    /// [default: http:// and http_listen].
    #[arg(long, value_name = "URL", value_parser = public_url)]
    pub(crate) public_url: Option<String>,

    /// Proxies before the HTTP port. The server takes a request's address from their X-Forwarded-For.
    #[arg(long, value_name = "NETWORK", value_delimiter = ',', value_parser = network)]
    pub(crate) http_proxies: Vec<IpNet>,

    /// People who may make an account of the control plane: invited ones only, or anybody.
    #[arg(long, value_name = "WHO", default_value = "invited")]
    pub(crate) sign_up: WhoSignsUp,

    /// Price of a million units of usage, in millionths of your currency, for spend caps: such as messages_in=1000000. Units are
    /// those of the API, with bytes for both directions; units without a price cost nothing.
    #[arg(long, value_name = "UNIT=MICROS", value_delimiter = ',')]
    pub(crate) price: Vec<Price>,

    #[command(flatten)]
    pub(crate) reach: reach::ReachArgs,

    #[command(flatten)]
    oidc: oidc::OidcArgs,
}

impl ControlArgs {
    /// The provider that people may sign in with, when one is named.
    pub(crate) fn oidc(&self) -> Result<Option<OidcSettings>, String> {
        self.oidc.settings(self.public_url.as_deref())
    }
}

/// People who may make an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WhoSignsUp {
    Invited,
    Anybody,
}

/// The control plane of a store, for the HTTP ports of all pods of this process.
pub(crate) struct Plane {
    control: Control,
    options: Options,
    public_url: Option<String>,
    reach: reach::ReachArgs,
}

struct TimeOfDay;

impl Clock for TimeOfDay {
    fn now_ms(&self) -> u64 {
        crate::inspect::now_ms()
    }
}

impl Plane {
    /// Opens the control plane of a store.
    pub(crate) fn open(
        database: Database,
        args: &ControlArgs,
        oidc: Option<OidcSettings>,
        is_local: bool,
    ) -> Result<Self, Failure> {
        let by = match args.sign_up {
            WhoSignsUp::Invited => SignUpBy::Invitation,
            WhoSignsUp::Anybody => SignUpBy::Anybody,
        };
        let control = block_on(Control::open(database, Arc::new(TimeOfDay), by)).map_err(|error| {
            Failure::Run(format!("the control plane cannot be opened, so the server does not start: {error}"))
        })?;
        control.charge(args.price.iter().copied().collect());
        let is_secure = args.public_url.as_ref().is_some_and(|url| url.starts_with("https://"));
        let local = is_local.then(local_door).transpose()?;
        let options = Options { is_secure, proxies: args.http_proxies.clone(), oidc, local };
        Ok(Self { control, options, public_url: args.public_url.clone(), reach: args.reach.clone() })
    }

    /// Says where the clients of brokers connect. The first pod of the process counts.
    pub(crate) fn reached_at(&self, at: &Addresses) {
        let host = self.public_url.as_deref().and_then(|url| url.split_once("://")).map(|(_, host)| host);
        self.control.reached_at(self.reach.reach(at, host));
    }

    /// Where pages connect through a gateway, as a source of a Content-Security-Policy.
    pub(crate) fn gateway_socket(&self) -> Option<String> {
        self.reach.gateway_socket()
    }

    /// The API of a pod.
    pub(crate) fn api(&self, database: Database, running: &Running) -> Router {
        let live = live::Edge::new(database, Arc::clone(running));
        millrace_control::router(self.control.clone(), Arc::new(live), self.options.clone())
    }

    /// The operator API of a pod, for an admin port at `at`. Without a token there is none where others can reach the port.
    pub(crate) fn operator_api(
        &self,
        running: &Running,
        pod: Option<String>,
        at: SocketAddr,
        token: Option<Secret>,
        pace: &DrainPace,
    ) -> Option<Router> {
        if token.is_none() && !at.ip().to_canonical().is_loopback() {
            info!(
                "there is no operator API at {at}: it needs --operator-token-file where others can reach it"
            );
            return None;
        }
        let process = Process { running: Arc::clone(running), pod, pace: *pace };
        Some(millrace_control::operator_router(self.control.clone(), Arc::new(process), token))
    }

    /// What must be done for as long as the server runs.
    pub(crate) fn upkeep(&self) -> impl Future<Output = std::convert::Infallible> + use<> {
        let control = self.control.clone();
        async move { control.keep_swept().await }
    }

    /// Prints the link that opens the console, while only this machine can reach the server.
    pub(crate) fn print_link(&self, http: SocketAddr) {
        let Some(door) = &self.options.local else { return };
        let link = format!("{}/#local={}", self.base(http), door.token.expose());
        // On standard output, apart from the log. Nobody may read it.
        let _ = writeln!(std::io::stdout(), "Console: {link}");
    }

    fn base(&self, http: SocketAddr) -> String {
        let own = || format!("http://{}:{}", reachable(http, None), http.port());
        self.public_url.clone().unwrap_or_else(own)
    }

    /// Says where the API is, and how the first person makes an account.
    pub(crate) fn greet(&self, http: SocketAddr) {
        let base = self.base(http);
        info!("the API is at {base}{}, described by openapi.json there", millrace_control::PATH);
        match block_on(self.control.setup()) {
            Ok(Some(secret)) => info!(
                target: SECRET_TARGET,
                "nobody owns this server yet; whoever opens this link first, within a day, becomes its owner: {base}{SIGN_UP_PATH}#{}",
                secret.expose()
            ),
            Ok(None) => {}
            Err(error) => {
                warn!(%error, "it cannot be told whether somebody has an account; a restart tries again");
            }
        }
    }
}

/// The pod that an operator API is in.
struct Process {
    running: Running,
    pod: Option<String>,
    pace: DrainPace,
}

impl Process {
    fn name(&self) -> &str {
        self.pod.as_deref().unwrap_or("self")
    }
}

impl Operations for Process {
    fn pod(&self) -> Option<OwnPod> {
        let running = self.running.read().unwrap_or_else(PoisonError::into_inner);
        let edge = running.as_ref()?;
        let fabric = edge.fabric_health().map(|health| Fabric {
            is_connected: health.connected,
            state: health.to_string(),
            pods: health.pods,
        });
        Some(OwnPod {
            name: self.name().into(),
            version: env!("CARGO_PKG_VERSION").into(),
            problem: edge.health().err(),
            is_draining: edge.is_draining(),
            connections: edge.connections(),
            gateway: edge.gateway_addresses().iter().map(ToString::to_string).collect(),
            fabric,
            drain_per_second: self.pace.per_second,
            drain_s_max: self.pace.at_most.as_secs(),
        })
    }

    fn drain(&self, pod: &str) -> bool {
        if pod != self.name() {
            return false;
        }
        let running = self.running.read().unwrap_or_else(PoisonError::into_inner);
        // The loops go on with it by themselves.
        running.as_ref().map(|edge| edge.drain(&self.pace)).is_some()
    }
}

/// A secret for this start of the server, and the machine's name.
fn local_door() -> Result<LocalDoor, Failure> {
    let token = millrace_control::random_secret().map_err(|error| Failure::Run(error.to_string()))?;
    let system = rustix::system::uname();
    let machine: String =
        system.nodename().to_string_lossy().chars().filter(char::is_ascii_graphic).take(64).collect();
    let machine = Some(machine).filter(|name| !name.is_empty()).unwrap_or_else(|| "This machine".into());
    Ok(LocalDoor { token, machine })
}

pub(crate) fn public_url(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let host = rest.map(|rest| rest.trim_end_matches('/'));
    if host.is_some_and(|host| !host.is_empty() && !host.contains(['/', '?', '#', ' '])) {
        return Ok(text.trim_end_matches('/').to_owned());
    }
    Err("http:// or https:// and a host, without a path, is allowed, such as https://console.example.org"
        .into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_url_has_a_scheme_and_a_host_and_no_path() {
        assert_eq!(public_url("https://a.example/").as_deref(), Ok("https://a.example"));
        assert_eq!(public_url("http://127.0.0.1:8080").as_deref(), Ok("http://127.0.0.1:8080"));
        for wrong in ["", "a.example", "https://", "https://a.example/console", "ftp://a", "https://a b"] {
            assert!(public_url(wrong).is_err(), "{wrong}");
        }
    }
}
