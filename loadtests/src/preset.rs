//! Brokers the driver knows how to start, and how to start any other.

use std::path::{Path, PathBuf};

use crate::failure::{Failure, Outcome, While};

/// A broker by name and command line. `{port}`, `{config}` and `{dir}` stand for the port to listen on, a
/// configuration file written by the driver, and an empty folder of this run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BrokerSpec {
    pub(crate) name: String,
    command: Vec<String>,
}

/// Folders that hold servers and are often missing in a user's PATH.
const SERVER_FOLDERS: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];

/// rumqttd knows the format by the ending; mosquitto takes any.
pub(crate) const CONFIG_FILE: &str = "broker.toml";

/// As the scenarios want it: no limit, no log, no delay, on loopback alone.
const MOSQUITTO_CONFIG: &str = "\
listener {port} 127.0.0.1
allow_anonymous true
max_queued_messages 0
set_tcp_nodelay true
log_dest none
user root
";

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

    /// The program's file; the error says that it is not there.
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

    /// The arguments with their placeholders filled in.
    pub(crate) fn arguments(&self, port: u16, folder: &Path) -> Vec<String> {
        let config = folder.join(CONFIG_FILE);
        let fill = |word: &String| {
            word.replace("{port}", &port.to_string())
                .replace("{config}", &config.to_string_lossy())
                .replace("{dir}", &folder.to_string_lossy())
        };
        self.command[1..].iter().map(fill).collect()
    }

    /// What `{config}` is to contain; `None` if the command line does not ask for it.
    pub(crate) fn config(&self, port: u16) -> Outcome<Option<String>> {
        if !self.command.iter().any(|w| w.contains("{config}")) {
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
        Ok(Some(template.replace("{port}", &port.to_string())))
    }
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
            let listen = "serve --data-dir {dir}/data --mqtt-listen 127.0.0.1:{port} --ws-listen off --http-listen off";
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

/// Splits a command line at spaces that are not within quotes.
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

    #[test]
    fn placeholders_are_filled() {
        let spec = parse("mosquitto=mosquitto -p {port} -c {config}").unwrap();
        let arguments = spec.arguments(1234, Path::new("/x"));
        assert_eq!(arguments, ["-p", "1234", "-c", "/x/broker.toml"]);
        assert!(spec.config(1234).unwrap().unwrap().contains("listener 1234 127.0.0.1"));
    }

    #[test]
    fn the_millrace_preset_takes_its_program_and_extra_arguments() {
        let spec = parse("millrace").unwrap();
        assert_eq!(spec.command[0], "bin/millrace");
        assert!(spec.arguments(1, Path::new("/x")).ends_with(&["--workers".to_owned(), "1".to_owned()]));
        assert_eq!(spec.config(1).unwrap(), None);
    }

    #[test]
    fn what_cannot_be_started_is_refused() {
        for text in ["", "=x", "x=", "nosuchbroker"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse("other=prog -c {config}").unwrap().config(1).is_err());
        assert!(parse("x=/no/such/program").unwrap().program().is_err());
    }
}
