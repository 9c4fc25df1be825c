//! The server under attack: one process with one event loop, a data folder and ports of its own.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::http;
use crate::clock;
use crate::failure::{Failure, Outcome, While};
use crate::machine::ThreadTimes;
use crate::procfs::{self, Memory};

const START_SECONDS: f64 = 30.0;
const LOOK_EVERY_MS: u64 = 20;
const TAIL_LINES: usize = 10;

/// The hostile clients belong to the first broker, the friendly clients to the second.
pub(super) const ATTACKED: &str = "attacked";
pub(super) const FRIENDLY: &str = "friendly";
/// User and password in the file when [`Setup::passwords`] is set.
pub(super) const USER: &str = "ann";
pub(super) const PASSWORD: &str = "a sentence for nobody";

/// How the server differs from one with defaults.
#[derive(Clone, Copy, Default)]
pub(super) struct Setup {
    /// Soft and hard limit of open files.
    pub(super) open_files: Option<u32>,
    /// Checks clients with a user name against a password file.
    pub(super) passwords: bool,
    pub(super) second_listener: bool,
    pub(super) arguments: &'static [&'static str],
}

pub(super) struct Server {
    child: Child,
    folder: PathBuf,
    pub(super) mqtt: SocketAddr,
    pub(super) second: SocketAddr,
    pub(super) websocket: SocketAddr,
    pub(super) gateway: SocketAddr,
    pub(super) http: SocketAddr,
    pub(super) admin: SocketAddr,
}

impl Server {
    pub(super) fn start(program: &Path, setup: &Setup, more: &[String]) -> Outcome<Self> {
        let folder = new_folder()?;
        let [mqtt, second, websocket, gateway, http, admin] =
            free_addresses().during("looking for free ports")?;
        let listen = if setup.second_listener { format!("{mqtt},{second}") } else { mqtt.to_string() };
        let log = File::create(folder.join("log")).during("creating the log")?;
        let mut command = match setup.open_files {
            Some(files) => {
                let mut command = Command::new("sh");
                command
                    .args(["-c", "ulimit -n \"$1\"; shift; exec \"$@\"", "sh", &files.to_string()])
                    .arg(program);
                command
            }
            None => Command::new(program),
        };
        command.args(["serve", "--allow-anonymous=true", "--sign-up=anybody", "--log-level=info"]);
        command.arg(format!("--brokers={ATTACKED},{FRIENDLY}")).arg(format!("--mqtt-listen={listen}"));
        command.arg(format!("--ws-listen={websocket}")).arg(format!("--gateway-listen={gateway}"));
        command
            .arg(format!("--http-listen={http}"))
            .arg(format!("--admin-listen={admin}"))
            .arg("--data-dir")
            .arg(folder.join("data"));
        if setup.passwords {
            let file = folder.join("passwords");
            write_password(program, &file)?;
            command.arg("--password-file").arg(file);
        }
        let mut own = setup.arguments.iter().copied().chain(more.iter().map(String::as_str));
        if !own.any(|argument| argument.starts_with("--threads=")) {
            command.arg("--threads=1");
        }
        command.args(setup.arguments).args(more);
        let names = std::env::vars_os().map(|(name, _)| name);
        names.filter(|name| name.to_string_lossy().starts_with("MILLRACE_")).for_each(|name| {
            command.env_remove(name);
        });
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0);
        let child = command.spawn().during(&format!("starting {}", program.display()))?;
        let mut server = Self { child, folder, mqtt, second, websocket, gateway, http, admin };
        server.wait_for_ports()?;
        Ok(server)
    }

    fn wait_for_ports(&mut self) -> Outcome<()> {
        let until_ns = clock::now_ns() + clock::seconds_ns(START_SECONDS);
        loop {
            if TcpStream::connect(self.mqtt).is_ok()
                && http::get(self.http, "/healthz").is_some_and(|answer| answer.status == 200)
            {
                return Ok(());
            }
            if self.has_ended() || clock::now_ns() > until_ns {
                return Err(Failure::new(format!("the server did not come up\n{}", self.log_tail())));
            }
            clock::pause_ms(LOOK_EVERY_MS);
        }
    }

    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    pub(super) fn memory(&self) -> Memory {
        procfs::memory_of(self.child.id())
    }

    pub(super) fn reset_peak(&self) {
        procfs::reset_peak(self.child.id());
    }

    pub(super) fn cpu_seconds(&self) -> f64 {
        procfs::cpu_seconds(self.child.id()).unwrap_or(0.0)
    }

    pub(super) fn threads(&self) -> Vec<ThreadTimes> {
        procfs::threads(self.child.id())
    }

    pub(super) fn open_files(&self) -> u64 {
        fs::read_dir(format!("/proc/{}/fd", self.child.id())).map_or(0, |folder| folder.count() as u64)
    }

    pub(super) fn log_lines(&self) -> u64 {
        let Ok(file) = File::open(self.folder.join("log")) else { return 0 };
        BufReader::new(file).split(b'\n').count() as u64
    }

    pub(super) fn log_lines_with(&self, text: &str) -> u64 {
        let Ok(file) = File::open(self.folder.join("log")) else { return 0 };
        BufReader::new(file).lines().map_while(Result::ok).filter(|line| line.contains(text)).count() as u64
    }

    pub(super) fn log_tail(&self) -> String {
        let log = fs::read(self.folder.join("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both calls fail only after the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn write_password(program: &Path, file: &Path) -> Outcome<()> {
    let mut child = Command::new(program)
        .args(["passwd", "--stdin"])
        .arg(file)
        .arg(USER)
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .during("starting millrace passwd")?;
    let mut input = child.stdin.take().ok_or_else(|| Failure::new("millrace passwd has no input"))?;
    writeln!(input, "{PASSWORD}").during("writing a password")?;
    drop(input);
    let status = child.wait().during("waiting for millrace passwd")?;
    status.success().then_some(()).ok_or_else(|| Failure::new(format!("millrace passwd: {status}")))
}

fn new_folder() -> Outcome<PathBuf> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("mqttload-hostile-{}-{number}", std::process::id()));
    fs::create_dir_all(&folder).during("making a folder for the server")?;
    Ok(folder)
}

/// No other test uses this process's loopback address, so free ports stay free.
fn free_addresses() -> std::io::Result<[SocketAddr; 6]> {
    let [_, second, third, fourth] = std::process::id().to_be_bytes();
    let address = Ipv4Addr::new(127, 192 | second & 31, third, fourth.clamp(2, 254));
    let listeners: Vec<TcpListener> =
        (0..6).map(|_| TcpListener::bind((address, 0))).collect::<std::io::Result<_>>()?;
    let mut addresses = [SocketAddr::from((address, 0)); 6];
    for (at, listener) in addresses.iter_mut().zip(&listeners) {
        *at = listener.local_addr()?;
    }
    Ok(addresses)
}
