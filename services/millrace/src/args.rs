//! The settings of `millrace serve`, with unit, default and description; groups of settings, such as the limits, have modules of
//! their own. The TOML file and the environment use the same names (see [`crate::settings`]).

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, FromArgMatches as _};
use ipnet::IpNet;
use millrace_control::OperatorTokens;

use crate::control::ControlArgs;
use crate::limits::{LimitArgs, whole_number};
use crate::logs::LogFormat;
use crate::nats::NatsArgs;
use crate::outgoing::OutgoingArgs;
use crate::store::StoreArgs;
use crate::telemetry::TelemetryArgs;
use crate::tls::TlsArgs;
use crate::values::{Listen, listen, network, yes_or_no};

/// Longest server reference, bytes: the server sends it to each client that it drains.
const SERVER_REFERENCE_BYTES_MAX: usize = 1024;

pub(crate) const SERVE_HELP: &str = "\
Every setting is also a key of the TOML file and an environment variable: --packet-size-max is
packet_size_max in the file and MILLRACE_PACKET_SIZE_MAX in the environment. A flag beats the
environment, the environment beats the file, the file beats the default. Lists are written with
commas (in the file: as an array).

Example:
  millrace serve --mqtt-listen 0.0.0.0:1883 --ws-listen off --password-file users.txt";

/// Settings of `millrace serve`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ServeArgs {
    /// TOML file with settings; also MILLRACE_CONFIG.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) store: StoreArgs,

    #[command(flatten)]
    pub(crate) nats: NatsArgs,

    /// Addresses for MQTT over TCP, or "off".
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:1883", value_delimiter = ',')]
    #[arg(value_parser = listen)]
    pub(crate) mqtt_listen: Vec<Listen>,

    /// Addresses for MQTT over WebSocket (path /mqtt), or "off".
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:8083", value_delimiter = ',')]
    #[arg(value_parser = listen)]
    pub(crate) ws_listen: Vec<Listen>,

    #[command(flatten)]
    pub(crate) tls: TlsArgs,

    /// Addresses for the gateway, or "off": MQTT or WebSocket behind a PROXY protocol v2 header
    /// with the client's address, server name and certificate.
    #[arg(long, value_name = "IP:PORT", default_value = "off", value_delimiter = ',')]
    #[arg(value_parser = listen)]
    pub(crate) gateway_listen: Vec<Listen>,

    /// Networks that the gateway connects from; its listener refuses all others.
    #[arg(long, value_name = "NETWORK", default_value = "127.0.0.0/8,::1/128", value_delimiter = ',')]
    #[arg(value_parser = network)]
    pub(crate) gateway_from: Vec<IpNet>,

    /// Address for HTTP: the start page, /healthz, which asks for no password, and with a store the
    /// API; or "off".
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:8080", value_parser = listen)]
    pub(crate) http_listen: Listen,

    /// Address for operators: /healthz, /livez and /metrics, which ask for no password, and with a store
    /// the operator API, which asks for operator_token; or "off" [default: 127.0.0.1 and a port 10
    /// above that of http_listen].
    #[arg(long, value_name = "IP:PORT", value_parser = listen)]
    pub(crate) admin_listen: Option<Listen>,

    /// File with the token of the operator API, at least 32 characters; or with a line for each
    /// operator, a name and a token, so that audit logs name the operator. Without it the API
    /// serves only programs on this machine, and does not exist where admin_listen is not on
    /// loopback.
    #[arg(long, value_name = "FILE", value_parser = operator_token)]
    pub(crate) operator_token_file: Option<OperatorTokenFile>,

    /// Connections of http_listen. Beyond it a new connection replaces the one that has waited
    /// longest for a request, or is closed at once if there is none. Both are counted.
    #[arg(long, value_name = "COUNT", default_value_t = 2048)]
    #[arg(value_parser = whole_number::<usize>(1, 1_000_000))]
    pub(crate) http_connections_max: usize,

    /// Connections of http_listen from one address, or from one IPv6 network of 64 bits; not for
    /// http_proxies. Beyond it a new connection replaces the one of the address that has waited
    /// longest for a request, or is closed at once if there is none. Both are counted.
    #[arg(long, value_name = "COUNT", default_value_t = 256)]
    #[arg(value_parser = whole_number::<usize>(1, 1_000_000))]
    pub(crate) http_connections_per_address: usize,

    #[command(flatten)]
    pub(crate) control: ControlArgs,

    #[command(flatten)]
    pub(crate) outgoing: OutgoingArgs,

    /// Brokers that the server makes at the start if they are missing, beside "default". The first
    /// part of the server name that the gateway passes on selects a client's broker; without a
    /// gateway the user name "NAME/USER" does.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = broker_name)]
    pub(crate) brokers: Vec<String>,

    /// Event loops; 0 is one for each core.
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    #[arg(value_parser = whole_number::<usize>(0, 1024))]
    pub(crate) threads: usize,

    /// Accept clients without user name and password [default: true on loopback without a password
    /// file, else false].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(value_parser = yes_or_no)]
    pub(crate) allow_anonymous: Option<bool>,

    /// Users and their hashed passwords, as `millrace passwd` writes them.
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,

    /// Rules that allow or deny topics [default: everything is allowed].
    #[arg(long, value_name = "FILE")]
    pub(crate) rules_file: Option<PathBuf>,

    /// Lowest level that is logged: error, warn, info, debug, trace or off; or per part, such as
    /// "warn,millrace_edge=debug". "info,millrace::connections=debug" adds a line for each client
    /// that connects or disconnects.
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = crate::logs::filter)]
    pub(crate) log_level: String,

    /// Format of the log lines on standard error: text for people, or one JSON object a line.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormat,

    #[command(flatten)]
    pub(crate) telemetry: TelemetryArgs,

    /// Clients a second that the server disconnects on SIGTERM, before it stops; 0 disconnects all
    /// at once, as SIGINT does.
    #[arg(long, value_name = "COUNT", default_value_t = 1000)]
    #[arg(value_parser = whole_number::<u32>(0, u32::MAX))]
    pub(crate) drain_rate: u32,

    /// Longest drain, seconds. The server raises drain_rate to end in time.
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    #[arg(value_parser = whole_number::<u64>(0, 86_400))]
    pub(crate) drain_max_s: u64,

    /// Server Reference that 5.0 clients get when the server stops, such as "mqtt.example:8883"
    /// [default: none, and the reason is Server shutting down].
    #[arg(long, value_name = "HOST:PORT", value_parser = server_reference)]
    pub(crate) server_reference: Option<String>,

    /// Seconds that a stopping server waits for its clients to receive the bytes that are
    /// already queued for them.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    #[arg(value_parser = whole_number::<u64>(0, 3600))]
    pub(crate) shutdown_grace_s: u64,

    #[command(flatten)]
    pub(crate) limits: LimitArgs,
}

fn broker_name(text: &str) -> Result<String, String> {
    if millrace_edge::is_broker_name(text) {
        return Ok(text.to_owned());
    }
    Err("a name of 1 to 63 small letters, digits and inner hyphens is allowed".to_owned())
}

#[derive(Clone, Debug)]
pub(crate) struct OperatorTokenFile(pub(crate) OperatorTokens);

fn operator_token(file: &str) -> Result<OperatorTokenFile, String> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| format!("a file that can be read is allowed ({error})"))?;
    OperatorTokens::parse(&text).map(OperatorTokenFile).map_err(|why| {
        format!("a file with one token, or with lines of a name and a token, is allowed: {why}")
    })
}

/// A server reference as section 4.11 of MQTT 5.0 recommends: several servers with spaces between
/// them; the names are not checked.
fn server_reference(text: &str) -> Result<String, String> {
    let fits = (1..=SERVER_REFERENCE_BYTES_MAX).contains(&text.len());
    if fits && text.split(' ').all(|one| !one.is_empty() && one.chars().all(|char| !char.is_control())) {
        return Ok(text.to_owned());
    }
    Err(format!(
        "names of servers with a space between them are allowed, such as mqtt.example:8883, {SERVER_REFERENCE_BYTES_MAX} bytes at most"
    ))
}

pub(crate) fn serve_command() -> clap::Command {
    ServeArgs::augment_args(clap::Command::new("serve").bin_name("millrace serve").max_term_width(100))
}

pub(crate) fn serve_args(args: &[OsString]) -> Result<(ServeArgs, clap::ArgMatches), clap::Error> {
    let matches = serve_command().try_get_matches_from(args.iter().skip(1))?;
    Ok((ServeArgs::from_arg_matches(&matches)?, matches))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_names_each_setting_with_its_default() {
        let help = serve_command().render_long_help().to_string();
        for argument in serve_command().get_arguments().filter_map(|argument| argument.get_long()) {
            assert!(help.contains(&format!("--{argument}")), "{argument} is missing in the help");
        }
        assert!(help.contains("[default: 127.0.0.1:1883]"), "{help}");
    }
}
