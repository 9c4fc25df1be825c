//! The control plane in this process: its settings, its routes for the HTTP ports, and its
//! connection to the running edge.

mod clients;
mod inside;
mod live;
mod mail;
mod messages;
mod oidc;
mod printed;
mod properties;
mod publish;
mod reach;
mod retained;
mod secret_key;
mod sessions;
mod streams;
mod tail;
mod trace;

use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, PoisonError};

use axum::Router;
use clap::{Args, ValueEnum};
use ipnet::IpNet;
use millrace_control::{
    AccessBySettings, ApiOptions, Control, Currency, FabricState, GatewayPeer, HealthCheck, LocalDoor,
    OidcSettings, Operations, OperatorTokens, OwnPod, Price, ServerStart, SignUpBy, StoreRecovery, UnixClock,
};
use millrace_edge::{DrainRate, RecentPeer};
use millrace_layers::accounts::keys;
use millrace_storage::{Database, FolderRecovery, block_on};
use millrace_telemetry::SECRET_TARGET;
use tracing::{info, warn};

pub(crate) use mail::SmtpSettings;

use crate::failure::Failure;
use crate::http::SIGN_UP_PATH;
use crate::limits::whole_number;
use crate::listeners::{BoundAddresses, reachable};
use crate::running::Running;
use crate::store::Opened;
use crate::values::{network, public_url};

#[derive(Clone, Debug, Args)]
pub(crate) struct ControlArgs {
    /// URL of the HTTP port for people, a scheme and a host; with https their cookies are for TLS
    /// only [default: http:// and http_listen].
    #[arg(long, value_name = "URL", value_parser = public_url)]
    pub(crate) public_url: Option<String>,

    /// Proxies before the HTTP port, all that stand one behind the other. The server takes a
    /// request's address from their X-Forwarded-For: the last one that is in none of these networks.
    #[arg(long, value_name = "NETWORK", value_delimiter = ',', value_parser = network)]
    pub(crate) http_proxies: Vec<IpNet>,

    /// People who may make an account of the control plane: only invited people, or anybody.
    /// confirmed: anybody with the link that confirms the e-mail address, which the server mails
    /// with smtp_host, and otherwise writes to its log for you to pass on. With smtp_host, anybody
    /// means the same.
    #[arg(long, value_name = "WHO", default_value = "invited")]
    pub(crate) sign_up: SignUpPolicy,

    /// Price of a million units of usage, in millionths of your currency, for spend caps: such as
    /// messages_in=1000000. Units are those of the API, with bytes for both directions; units
    /// without a price cost nothing.
    #[arg(long, value_name = "UNIT=MICROS", value_delimiter = ',')]
    pub(crate) price: Vec<Price>,

    /// Currency of the prices, by its ISO 4217 code, such as EUR. The API and the console show it
    /// beside each cost.
    #[arg(long, value_name = "CODE")]
    pub(crate) currency: Option<Currency>,

    /// Days for which entries of audit logs are kept; 0 is for ever. Older entries are removed in the background. The audit log of a
    /// deleted organisation is removed after 400 days at the latest.
    #[arg(long, value_name = "DAYS", default_value_t = 400)]
    #[arg(value_parser = whole_number::<u32>(0, 36_500))]
    pub(crate) audit_days: u32,

    #[command(flatten)]
    pub(crate) reach: reach::ReachArgs,

    #[command(flatten)]
    secret_key: secret_key::SecretKeyArgs,

    #[command(flatten)]
    oidc: oidc::OidcArgs,

    #[command(flatten)]
    smtp: mail::SmtpArgs,
}

impl ControlArgs {
    pub(crate) fn oidc(&self) -> Result<Option<OidcSettings>, String> {
        self.oidc.settings(self.public_url.as_deref())
    }

    pub(crate) fn smtp(&self) -> Result<Option<SmtpSettings>, String> {
        self.smtp.settings(self.public_url.as_deref())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SignUpPolicy {
    Invited,
    Anybody,
    Confirmed,
}

/// The control plane, shared by the HTTP ports of all pods of this process.
pub(crate) struct Plane {
    control: Control,
    options: ApiOptions,
    public_url: Option<String>,
    reach: reach::ReachArgs,
    start: ServerStart,
}

struct TimeOfDay;

impl UnixClock for TimeOfDay {
    fn now_ms(&self) -> u64 {
        crate::clock::now_ms()
    }
}

impl Plane {
    pub(crate) fn open(
        store: &Opened,
        args: &ControlArgs,
        oidc: Option<OidcSettings>,
        smtp: Option<&SmtpSettings>,
        is_local: bool,
    ) -> Result<Self, Failure> {
        let by = match args.sign_up {
            SignUpPolicy::Invited => SignUpBy::Invitation,
            SignUpPolicy::Anybody => SignUpBy::Anybody,
            SignUpPolicy::Confirmed => SignUpBy::Confirmed,
        };
        // Before the first read of the keys, in `Control::open`.
        if let Some(key) = args.secret_key.key().map_err(Failure::Run)? {
            keys::set_outside_secret(key);
        }
        let control =
            block_on(Control::open(store.database(), Arc::new(TimeOfDay), by)).map_err(|error| {
                Failure::Run(format!(
                    "the control plane cannot be opened, so the server does not start: {error}"
                ))
            })?;
        let recovery = store.recovery().map(shown_recovery);
        let start = ServerStart { at_ms: crate::clock::now_ms(), recovery };
        control.started(start);
        control.charge(args.price.iter().copied().collect());
        if let Some(currency) = args.currency {
            control.charge_in(currency);
        }
        if args.audit_days > 0 {
            control.keep_audit_for(args.audit_days);
        }
        match smtp {
            Some(smtp) => {
                let mailer = mail::Smtp::start(smtp).map_err(|what| {
                    Failure::Run(format!("mail cannot be sent, so the server does not start: {what}"))
                })?;
                control.confirm_addresses(Arc::new(mailer), smtp.public_url.clone());
            }
            None if by == SignUpBy::Anybody => warn!(
                "anybody may sign up, and no smtp_host is set: e-mail addresses are not confirmed, and a sign-up shows whether an \
                 address has an account; set smtp_host, or sign_up = \"confirmed\""
            ),
            None => {}
        }
        let is_secure = args.public_url.as_ref().is_some_and(|url| url.starts_with("https://"));
        let local = is_local.then(local_door).transpose()?;
        let options = ApiOptions { is_secure, proxies: args.http_proxies.clone(), oidc, local };
        Ok(Self { control, options, public_url: args.public_url.clone(), reach: args.reach.clone(), start })
    }

    /// Gives the control plane what it must know of the first pod: its listeners, which are the addresses of brokers, its
    /// authentication, which decides at brokers without access settings, and the networks that tenants' URLs may reach.
    pub(crate) fn reached_at(&self, at: &BoundAddresses, edge: &millrace_edge::Config) {
        let settings = &edge.authentication;
        let host = self.public_url.as_deref().and_then(|url| url.split_once("://")).map(|(_, host)| host);
        self.control.reached_at(self.reach.reach(at, host, edge.tls.as_ref()));
        self.control.admits_by_settings(AccessBySettings {
            anonymous: settings.allow_anonymous,
            passwords: settings.password_file.is_some(),
        });
        self.control.calls_by(edge.outgoing.clone());
    }

    /// WebSocket origin of the gateway, for the Content-Security-Policy.
    pub(crate) fn gateway_socket(&self) -> Option<String> {
        self.reach.gateway_socket()
    }

    pub(crate) fn api(&self, database: Database, running: &Running) -> Router {
        let live = live::LiveEdge::new(database, Arc::clone(running));
        millrace_control::router(self.control.clone(), Arc::new(live), self.options.clone())
    }

    /// `None` when other machines can reach the port and there are no tokens.
    pub(crate) fn operator_api(
        &self,
        running: &Running,
        pod: Option<String>,
        at: SocketAddr,
        tokens: Option<OperatorTokens>,
        drain_rate: &DrainRate,
    ) -> Option<Router> {
        if tokens.is_none() && !at.ip().to_canonical().is_loopback() {
            info!(
                "there is no operator API at {at}: it needs --operator-token-file where others can reach it"
            );
            return None;
        }
        let process =
            ServerProcess { running: Arc::clone(running), pod, drain_rate: *drain_rate, start: self.start };
        Some(millrace_control::operator_router(self.control.clone(), Arc::new(process), tokens))
    }

    /// Work in the background; the future never ends.
    pub(crate) fn upkeep(&self) -> impl Future<Output = std::convert::Infallible> + use<> {
        let control = self.control.clone();
        async move { control.keep_swept().await }
    }

    /// Prints the link that signs in the owner of this machine, unless another machine can reach
    /// the server.
    pub(crate) fn print_link(&self, http: SocketAddr) {
        let Some(door) = &self.options.local else { return };
        let link = format!("{}/#local={}", self.base(http), door.token.expose());
        // On standard output, because the log may be collected and the link is a secret.
        let _ = writeln!(std::io::stdout(), "Console: {link}");
    }

    fn base(&self, http: SocketAddr) -> String {
        let own = || format!("http://{}:{}", reachable(http, None), http.port());
        self.public_url.clone().unwrap_or_else(own)
    }

    /// Logs the URL of the API, and how the first person makes an account.
    pub(crate) fn greet(&self, http: SocketAddr) {
        let base = self.base(http);
        self.control.console_at(base.clone());
        self.control.print_links(Arc::new(printed::Links), base.clone());
        info!("the API is at {base}{}, described by openapi.json there", millrace_control::PATH);
        match block_on(self.control.setup()) {
            Ok(Some(secret)) => info!(
                target: SECRET_TARGET,
                "nobody owns this server yet; whoever opens this link first, within a day, becomes its owner: {base}{SIGN_UP_PATH}#{}",
                secret.expose()
            ),
            Ok(None) => {}
            Err(error) => {
                warn!(%error, "the server could not find out whether an account exists; a restart tries again");
            }
        }
    }
}

struct ServerProcess {
    running: Running,
    pod: Option<String>,
    drain_rate: DrainRate,
    start: ServerStart,
}

impl ServerProcess {
    fn name(&self) -> &str {
        self.pod.as_deref().unwrap_or("self")
    }
}

impl Operations for ServerProcess {
    fn pod(&self) -> Option<OwnPod> {
        let running = self.running.read().unwrap_or_else(PoisonError::into_inner);
        let edge = running.as_ref()?;
        let fabric = edge.fabric_health().map(|health| FabricState {
            is_connected: health.connected,
            state: health.to_string(),
            pods: health.pods,
        });
        Some(OwnPod {
            name: self.name().into(),
            version: env!("CARGO_PKG_VERSION").into(),
            started_at_ms: self.start.at_ms,
            recovery: self.start.recovery,
            problem: edge.health().err(),
            is_draining: edge.is_draining(),
            connections: edge.connections(),
            gateway: edge.gateway_addresses().iter().map(ToString::to_string).collect(),
            gateway_peers: edge.gateway_peers().into_iter().map(gateway_peer).collect(),
            health_checks: edge.health_checks().into_iter().map(health_check).collect(),
            fabric,
            drain_per_second: self.drain_rate.per_second,
            drain_s_max: self.drain_rate.at_most.as_secs(),
        })
    }

    fn drain(&self, pod: &str) -> bool {
        if pod != self.name() {
            return false;
        }
        let running = self.running.read().unwrap_or_else(PoisonError::into_inner);
        // Starts the drain, which continues in the event loops.
        running.as_ref().map(|edge| edge.drain(&self.drain_rate)).is_some()
    }
}

fn shown_recovery(found: FolderRecovery) -> StoreRecovery {
    let FolderRecovery { acknowledged, recovered, journal_commits, cut_bytes } = found;
    StoreRecovery {
        acknowledged_commit: (acknowledged > 0).then_some(acknowledged),
        recovered_commit: recovered,
        acknowledged_commits_lost: found.lost(),
        journal_commits,
        cut_bytes,
    }
}

fn gateway_peer((address, peer): (IpAddr, RecentPeer)) -> GatewayPeer {
    let RecentPeer { accepted, refused, last_at_ms } = peer;
    GatewayPeer { address: address.to_string(), accepted, refused, last_at_ms }
}

fn health_check((address, peer): (IpAddr, RecentPeer)) -> HealthCheck {
    let RecentPeer { accepted: healthy, refused: unhealthy, last_at_ms } = peer;
    HealthCheck { address: address.to_string(), healthy, unhealthy, last_at_ms }
}

/// Grants access without an account to this machine alone, until the server ends.
fn local_door() -> Result<LocalDoor, Failure> {
    let token = millrace_control::random_secret().map_err(|error| Failure::Run(error.to_string()))?;
    let system = rustix::system::uname();
    let machine: String =
        system.nodename().to_string_lossy().chars().filter(char::is_ascii_graphic).take(64).collect();
    let machine = Some(machine).filter(|name| !name.is_empty()).unwrap_or_else(|| "This machine".into());
    Ok(LocalDoor { token, machine })
}
