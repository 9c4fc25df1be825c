//! The broker under test: a process of ours that ends with the run, or one that is only looked at.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::clock;
use crate::failure::{Failure, Outcome, While};
use crate::preset::{BrokerSpec, CONFIG_FILE};
use crate::procfs::{self, Memory};

const START_SECONDS: f64 = 30.0;
const STOP_SECONDS: f64 = 5.0;
const LOOK_EVERY_MS: u64 = 20;
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// Memory counts as settled when it was the same for so many looks.
const SETTLED_LOOKS: u32 = 5;
const SETTLE_LOOK_MS: u64 = 200;
const SETTLE_LOOKS_MAX: u32 = 75;

/// A running broker.
pub(crate) struct Broker {
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    pid: u32,
    owned: Option<Owned>,
}

struct Owned {
    child: Child,
    folder: PathBuf,
}

impl Broker {
    /// Starts a broker on a free port of 127.0.0.1 and waits until it takes connections.
    pub(crate) fn start(spec: &BrokerSpec) -> Outcome<Self> {
        let program = spec.program()?;
        let port = free_port().during("looking for a free port")?;
        let folder = fresh_folder()?;
        if let Some(config) = spec.config(port)? {
            fs::write(folder.join(CONFIG_FILE), config).during("writing the broker's configuration")?;
        }
        let errors = File::create(folder.join("stderr")).during("creating a file for the broker's errors")?;
        let child = Command::new(&program)
            .args(spec.arguments(port, &folder))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors)
            .spawn()
            .during(&format!("starting {}", program.display()))?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let pid = child.id();
        let owned = Some(Owned { child, folder });
        let mut broker = Self { name: spec.name.clone(), address, pid, owned };
        broker.wait_for_port()?;
        Ok(broker)
    }

    /// A broker that runs already and is left running.
    pub(crate) fn attach(pid: u32, address: SocketAddr) -> Outcome<Self> {
        procfs::cpu_seconds(pid)?;
        Ok(Self { name: format!("pid {pid}"), address, pid, owned: None })
    }

    pub(crate) fn cpu_seconds(&self) -> Outcome<f64> {
        procfs::cpu_seconds(self.pid)
    }

    pub(crate) fn memory(&self) -> Memory {
        procfs::memory(self.pid)
    }

    /// Waits until the memory does not change any more, or long enough.
    pub(crate) fn settled_memory(&self) -> Memory {
        let mut last = self.memory();
        let mut same = 0;
        for _ in 0..SETTLE_LOOKS_MAX {
            clock::pause_ms(SETTLE_LOOK_MS);
            let now = self.memory();
            same = if now == last { same + 1 } else { 0 };
            last = now;
            if same >= SETTLED_LOOKS {
                break;
            }
        }
        last
    }

    fn wait_for_port(&mut self) -> Outcome<()> {
        let deadline_ns = clock::now_ns() + clock::seconds_ns(START_SECONDS);
        while clock::now_ns() < deadline_ns {
            if TcpStream::connect_timeout(&self.address, CONNECT_TIMEOUT).is_ok() {
                return Ok(());
            }
            if let Some(owned) = &mut self.owned
                && let Some(status) = owned.child.try_wait().during("waiting for the broker")?
            {
                let errors = fs::read_to_string(owned.folder.join("stderr")).unwrap_or_default();
                return Err(Failure::new(format!("{} ended at once, {status}\n{errors}", self.name)));
            }
            clock::pause_ms(LOOK_EVERY_MS);
        }
        Err(Failure::new(format!("{} does not listen on {}", self.name, self.address)))
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Some(mut owned) = self.owned.take() {
            stop(&mut owned.child);
            // A folder left behind is no reason to fail a run that is over.
            let _ = fs::remove_dir_all(&owned.folder);
        }
    }
}

/// SIGTERM, then SIGKILL. The child is not waited for before that, so its pid is still its own.
fn stop(child: &mut Child) {
    let pid = child.id().to_string();
    let asked = Command::new("kill").args(["-TERM", &pid]).stderr(Stdio::null()).status();
    let deadline_ns = clock::now_ns() + clock::seconds_ns(STOP_SECONDS);
    while asked.is_ok() && clock::now_ns() < deadline_ns {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        clock::pause_ms(LOOK_EVERY_MS);
    }
    // Both fail only for a process that has ended.
    let _ = child.kill();
    let _ = child.wait();
}

fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

fn fresh_folder() -> Outcome<PathBuf> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("mqttload-{}-{number}", std::process::id()));
    create(&folder).during("creating a folder for the broker")?;
    Ok(folder)
}

fn create(folder: &Path) -> std::io::Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)
}
