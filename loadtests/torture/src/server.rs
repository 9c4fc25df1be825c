//! The broker under test: one process, or several on one store, killed and restarted on the same
//! data.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::clock;
use crate::failure::{Failure, Outcome, While};
use crate::hazards::Hazards;

const START_MS_MAX: u64 = 60_000;
/// A server that recovers its store makes less syncs than this.
const SYNCS_TO_RECOVER: u64 = 100;
const SYNC_PROBE_BYTES: usize = 4_096;
const LOOK_EVERY_MS: u64 = 5;
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
const TAIL_LINES: usize = 20;
/// Searched for servers, because these folders are often missing in a user's PATH.
const SERVER_FOLDERS: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];

/// Mosquitto writes its persistent state only when it ends in order, or every half hour.
const MOSQUITTO_CONFIG: &str = "\
listener {port} {address}
allow_anonymous true
persistence true
persistence_location {dir}/
autosave_interval 1800
max_queued_messages 0
allow_duplicate_messages false
set_tcp_nodelay true
log_dest stderr
log_type error
log_type warning
log_type notice
user root
";

#[derive(Clone, Debug)]
pub(crate) enum Broker {
    Millrace { program: PathBuf, arguments: Vec<String>, cluster: Option<Cluster> },
    Mosquitto,
}

#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    file: PathBuf,
    prefix: String,
}

impl Cluster {
    pub(crate) fn new(file: PathBuf) -> Self {
        Self { file, prefix: format!("torture-{:07x}", fastrand::u32(..1 << 28)) }
    }
}

pub(crate) struct Home {
    broker: Broker,
    folder: PathBuf,
    pub(crate) hazards: Option<Hazards>,
    interrupted: Arc<AtomicBool>,
}

pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Home {
    pub(crate) fn new(
        broker: Broker,
        folder: &Path,
        hazards: Option<Hazards>,
        interrupted: Arc<AtomicBool>,
    ) -> Self {
        Self { broker, folder: folder.to_owned(), hazards, interrupted }
    }

    /// Listens on a free port; returns once the server, or the pod, accepts connections.
    pub(crate) fn start(&self, pod: &str) -> Outcome<Server> {
        let address = free_address().during("looking for a free port")?;
        let mut command = self.command(address, pod)?;
        if let Some(hazards) = &self.hazards {
            hazards.before_start()?;
            command.envs(hazards.environment());
        }
        let log = OpenOptions::new().create(true).append(true).open(self.log_path());
        let log = log.during("opening the server's log")?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        // In a process group of its own, so that Ctrl-C reaches only this program, which then ends
        // the server.
        command.process_group(0);
        let child = command.spawn().during(&format!("starting {}", command.get_program().display()))?;
        let mut server = Server { child, address };
        let patience_ms = self.patience_ms(START_MS_MAX)?;
        let deadline_ms = clock::now_ms() + patience_ms;
        while TcpStream::connect_timeout(&server.address, CONNECT_TIMEOUT).is_err() {
            self.check(&mut server)?;
            if clock::now_ms() > deadline_ms {
                let tail = self.log_tail();
                return Err(Failure::new(format!("the server did not come up in {patience_ms} ms\n{tail}")));
            }
            clock::pause_ms(LOOK_EVERY_MS);
        }
        Ok(server)
    }

    /// Fails after Ctrl-C, or when the server ended by itself.
    pub(crate) fn check(&self, server: &mut Server) -> Outcome<()> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(Failure::new("interrupted"));
        }
        match server.child.try_wait().during("looking at the server")? {
            Some(status) => {
                Err(Failure::new(format!("the server ended by itself, {status}\n{}", self.log_tail())))
            }
            None => Ok(()),
        }
    }

    /// How long the server may make no progress: `base_ms`, and the time of [`SYNCS_TO_RECOVER`] syncs as the disk takes them now.
    pub(crate) fn patience_ms(&self, base_ms: u64) -> Outcome<u64> {
        let planted_ms = self.hazards.as_ref().map_or(Ok(0), Hazards::sync_ms)?;
        Ok(base_ms + SYNCS_TO_RECOVER * (planted_ms + self.machine_sync_ms()?))
    }

    /// The time of a write and its sync on this machine's disk, ms.
    pub(crate) fn machine_sync_ms(&self) -> Outcome<u64> {
        let what = "measuring a sync";
        let mut file = File::create(self.folder.join("sync-probe")).during(what)?;
        let begin_ms = clock::now_ms();
        file.write_all(&[0; SYNC_PROBE_BYTES]).during(what)?;
        file.sync_data().during(what)?;
        Ok(clock::now_ms() - begin_ms)
    }

    pub(crate) fn log_path(&self) -> PathBuf {
        self.folder.join("server.log")
    }

    fn log_tail(&self) -> String {
        let log = fs::read(self.log_path()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }

    fn command(&self, address: SocketAddr, pod: &str) -> Outcome<Command> {
        let disk = self.hazards.as_ref().map_or(self.folder.as_path(), Hazards::root);
        let data = disk.join("data");
        match &self.broker {
            Broker::Millrace { program, arguments, cluster } => {
                let mut command = Command::new(program);
                command.args(["serve", "--ws-listen=off", "--http-listen=off"]);
                command.arg(format!("--mqtt-listen={address}"));
                match cluster {
                    // A pod under the same name recovers its own sessions, as a server does from
                    // its folder.
                    Some(Cluster { file, prefix }) => command
                        .args(["--store=foundationdb", "--pod", pod, "--fdb-prefix", prefix])
                        .arg("--fdb-cluster-file")
                        .arg(file),
                    None => command.arg("--data-dir").arg(data),
                };
                command.args(arguments);
                let names = std::env::vars_os().map(|(name, _)| name);
                for name in names.filter(|name| name.to_string_lossy().starts_with("MILLRACE_")) {
                    command.env_remove(name);
                }
                Ok(command)
            }
            Broker::Mosquitto => {
                fs::create_dir_all(&data).during("making the data folder")?;
                let config = self.folder.join("mosquitto.conf");
                let text = MOSQUITTO_CONFIG
                    .replace("{port}", &address.port().to_string())
                    .replace("{address}", &address.ip().to_string())
                    .replace("{dir}", &data.to_string_lossy());
                fs::write(&config, text).during("writing the configuration")?;
                let mut command = Command::new(find("mosquitto")?);
                command.arg("-c").arg(config);
                Ok(command)
            }
        }
    }
}

impl Server {
    pub(crate) fn kill(mut self) -> Outcome<()> {
        self.child.kill().during("killing the server")?;
        self.child.wait().during("waiting for the killed server")?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both calls fail only after the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn find(name: &str) -> Outcome<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&path).chain(SERVER_FOLDERS.iter().map(PathBuf::from));
    let found = folders.find_map(|folder| Some(folder.join(name)).filter(|path| path.is_file()));
    found.ok_or_else(|| Failure::new(format!("there is no program {name}")))
}

/// A loopback address of this process alone, so that reconnecting clients find no other server
/// while this one is down.
fn free_address() -> std::io::Result<SocketAddr> {
    let [_, second, third, fourth] = std::process::id().to_be_bytes();
    let address = Ipv4Addr::new(127, 224 | second & 31, third, fourth.clamp(2, 254));
    TcpListener::bind((address, 0))?.local_addr()
}
