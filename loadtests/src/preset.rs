//! Command lines and configurations of the brokers that the driver can start.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Outcome, While};

/// A broker that the driver starts. In its command `{port}`, `{http_port}`, `{config}` and `{dir}`
/// stand for the port to listen on, the port of /metrics, a configuration file written by the
/// driver, and an empty folder of this run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BrokerSpec {
    pub(crate) name: String,
    command: Vec<String>,
}

/// When a broker syncs, by its documentation: it is not measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fsync {
    BeforePuback,
    No(&'static str),
    Unknown,
}

impl fmt::Display for Fsync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BeforePuback => f.write_str("yes"),
            Self::No(instead) => write!(f, "no ({instead})"),
            Self::Unknown => f.write_str("not known"),
        }
    }
}

pub(crate) struct Places {
    pub(crate) port: u16,
    pub(crate) http_port: u16,
    pub(crate) folder: PathBuf,
}

/// Searched for servers, because these folders are often missing in a user's PATH.
const SERVER_FOLDERS: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];

/// rumqttd knows the format by the ending; mosquitto accepts any name.
pub(crate) const CONFIG_FILE: &str = "broker.toml";

/// No limits, logs and delays, on loopback. The database is on, because the scenarios with
/// persistent sessions need it; mosquitto does not write it during a run.
const MOSQUITTO_CONFIG: &str = "\
listener {port} 127.0.0.1
allow_anonymous true
max_queued_messages 0
set_tcp_nodelay true
persistence true
persistence_location {dir}/
log_dest none
user root
";

/// Room for 20,000 clients; larger scenarios need a configuration of their own.
const RUMQTTD_CONFIG: &str = "\
id = 0
[router]
id = 0
max_connections = 20010
max_outgoing_packet_count = 200
max_segment_size = 104857600
max_segment_count = 10
[v4.1]
name = \"v4-1\"
listen = \"127.0.0.1:{port}\"
next_connection_delay_ms = 0
    [v4.1.connections]
    connection_timeout_ms = 60000
    max_payload_size = 20480
    max_inflight_count = 100
    dynamic_filters = true
";

impl BrokerSpec {
    /// `NAME` of a preset, or `NAME=COMMAND LINE`.
    pub(crate) fn parse(text: &str, millrace_bin: &Path, millrace_args: &str) -> Outcome<Self> {
        let (name, command) = match text.split_once('=') {
            Some((name, command)) => (name, words(command)?),
            None => (text, preset(text, millrace_bin, millrace_args)?),
        };
        if name.is_empty() || command.is_empty() {
            return Err(Failure::new(format!("--broker {text}: want NAME or NAME=COMMAND")));
        }
        Ok(Self { name: name.to_owned(), command })
    }

    pub(crate) fn program(&self) -> Outcome<PathBuf> {
        let name = &self.command[0];
        let missing = || Failure::new(format!("{}: there is no program {name}", self.name));
        if name.contains('/') {
            return Some(PathBuf::from(name)).filter(|p| p.is_file()).ok_or_else(missing);
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::env::split_paths(&path).chain(SERVER_FOLDERS.iter().map(PathBuf::from));
        folders.map(|f| f.join(name)).find(|p| p.is_file()).ok_or_else(missing)
    }

    pub(crate) fn arguments(&self, places: &Places) -> Vec<String> {
        self.command[1..].iter().map(|word| fill(word, places)).collect()
    }

    /// The contents of `{config}`; `None` if the command line does not use it.
    pub(crate) fn config(&self, places: &Places) -> Outcome<Option<String>> {
        if !self.has_config() {
            return Ok(None);
        }
        let template = match self.name.as_str() {
            name if name.starts_with("mosquitto") => MOSQUITTO_CONFIG,
            name if name.starts_with("rumqttd") => RUMQTTD_CONFIG,
            name => {
                let what = format!("{name}: {{config}} is only written for mosquitto and rumqttd");
                return Err(Failure::new(what));
            }
        };
        Ok(Some(fill(template, places)))
    }

    /// Unknown for another broker, and for a configuration that the driver did not write.
    pub(crate) fn fsync(&self) -> Fsync {
        match self.name.as_str() {
            "millrace" => Fsync::BeforePuback,
            "floor" => Fsync::No("it keeps nothing"),
            name if name.starts_with("mosquitto") && self.has_config() => {
                Fsync::No("it saves its database every 30 minutes and when it ends")
            }
            name if name.starts_with("rumqttd") && self.has_config() => Fsync::No("it keeps all in memory"),
            _ => Fsync::Unknown,
        }
    }

    /// Whether SIGUSR1 makes the broker save its database; the signal ends other programs.
    pub(crate) fn saves_on_signal(&self) -> bool {
        self.name.starts_with("mosquitto") && self.has_config()
    }

    pub(crate) fn has_http(&self) -> bool {
        self.command.iter().any(|word| word.contains("{http_port}"))
    }

    fn has_config(&self) -> bool {
        self.command.iter().any(|word| word.contains("{config}"))
    }
}

fn fill(text: &str, places: &Places) -> String {
    text.replace("{port}", &places.port.to_string())
        .replace("{http_port}", &places.http_port.to_string())
        .replace("{config}", &places.folder.join(CONFIG_FILE).to_string_lossy())
        .replace("{dir}", &places.folder.to_string_lossy())
}

fn preset(name: &str, millrace_bin: &Path, millrace_args: &str) -> Outcome<Vec<String>> {
    match name {
        "mosquitto" => words("mosquitto -c {config}"),
        "rumqttd" => words("rumqttd -c {config}"),
        "floor" => {
            let this = std::env::current_exe().during("finding this program")?;
            Ok(vec![this.to_string_lossy().into_owned(), "floor".into(), "--port".into(), "{port}".into()])
        }
        "millrace" => {
            let listen = "serve --data-dir {dir}/data --mqtt-listen 127.0.0.1:{port} --ws-listen off \
                          --http-listen 127.0.0.1:0 --admin-listen 127.0.0.1:{http_port}";
            let mut command = vec![millrace_bin.to_string_lossy().into_owned()];
            command.extend(words(listen)?);
            command.extend(words(millrace_args)?);
            Ok(command)
        }
        _ => Err(Failure::new(format!(
            "no preset {name} (there are millrace, mosquitto, rumqttd and floor); give NAME=COMMAND"
        ))),
    }
}

/// Splits a command line at spaces that are not in quotes.
fn words(command: &str) -> Outcome<Vec<String>> {
    let mut found = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in command.chars() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, _) if c.is_whitespace() => found.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err(Failure::new(format!("a quote is left open in: {command}")));
    }
    found.extend(word);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Outcome<BrokerSpec> {
        BrokerSpec::parse(text, Path::new("bin/millrace"), "--workers 1")
    }

    #[test]
    fn command_lines_are_split_at_spaces_outside_quotes() {
        assert_eq!(words("a  'b c' d\"e f\"g ''").unwrap(), ["a", "b c", "de fg", ""]);
        assert!(words("a 'b").is_err());
    }

    fn places() -> Places {
        Places { port: 1234, http_port: 5678, folder: "/x".into() }
    }

    #[test]
    fn placeholders_are_filled() {
        let spec = parse("mosquitto=mosquitto -p {port} -c {config} -h {http_port}").unwrap();
        assert_eq!(spec.arguments(&places()), ["-p", "1234", "-c", "/x/broker.toml", "-h", "5678"]);
        let config = spec.config(&places()).unwrap().unwrap();
        assert!(config.contains("listener 1234 127.0.0.1"));
        assert!(config.contains("persistence_location /x/\n"));
        assert!(spec.has_http());
    }

    #[test]
    fn the_millrace_preset_takes_its_program_and_extra_arguments() {
        let spec = parse("millrace").unwrap();
        assert_eq!(spec.command[0], "bin/millrace");
        let arguments = spec.arguments(&places());
        assert!(arguments.ends_with(&["--workers".to_owned(), "1".to_owned()]));
        assert!(arguments.contains(&"/x/data".to_owned()));
        assert_eq!(spec.config(&places()).unwrap(), None);
    }

    #[test]
    fn only_what_the_driver_set_up_itself_is_known_to_promise_something() {
        assert_eq!(parse("millrace").unwrap().fsync(), Fsync::BeforePuback);
        assert!(matches!(parse("mosquitto").unwrap().fsync(), Fsync::No(_)));
        let own = parse("mosquitto=mosquitto -p {port}").unwrap();
        assert_eq!((own.fsync(), own.saves_on_signal()), (Fsync::Unknown, false));
    }

    #[test]
    fn a_preset_that_cannot_start_is_refused() {
        for text in ["", "=x", "x=", "nosuchbroker"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse("other=prog -c {config}").unwrap().config(&places()).is_err());
        assert!(parse("x=/no/such/program").unwrap().program().is_err());
    }
}
