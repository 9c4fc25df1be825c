//! The broker under test: a process that this run starts and ends, or a running process that it
//! only observes.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::clock;
use crate::failure::{Failure, Outcome, While};
use crate::preset::{BrokerSpec, CONFIG_FILE, Fsync, Places};
use crate::procfs::{self, Memory};

const START_SECONDS: f64 = 30.0;
const STOP_SECONDS: f64 = 5.0;
const LOOK_EVERY_MS: u64 = 20;
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// Equal measurements after which memory counts as settled.
const SETTLED_LOOKS: u32 = 5;
const SETTLE_LOOK_MS: u64 = 200;
const SETTLE_LOOKS_MAX: u32 = 75;
/// CPU seconds below which a broker counts as at rest, in each of several measurements; some
/// brokers wake up without cause.
const REST_CPU_SECONDS: f64 = 0.002;
const REST_LOOKS: u32 = 5;
const REST_LOOK_MS: u64 = 100;
const REST_LOOKS_MAX: u32 = 100;

pub(crate) struct Broker {
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    /// Where publishers connect: another pod of the same broker with `--publish-port`.
    pub(crate) publish_address: SocketAddr,
    pub(crate) http: Option<SocketAddr>,
    pub(crate) fsync: Fsync,
    pid: u32,
    others: Others,
    owned: Option<Owned>,
}

#[derive(Default)]
pub(crate) struct Others {
    /// Other pods, whose CPU counts as the broker's.
    pub(crate) pods: Vec<u32>,
    /// Processes whose CPU is reported separately, by name.
    pub(crate) beside: Vec<(String, u32)>,
}

struct Owned {
    child: Child,
    folder: PathBuf,
    saves_on_signal: bool,
}

impl Broker {
    /// Starts the broker on a free port of 127.0.0.1; returns once it accepts connections.
    pub(crate) fn start(spec: &BrokerSpec) -> Outcome<Self> {
        let program = spec.program()?;
        let places = Places {
            port: free_port().during("looking for a free port")?,
            http_port: free_port().during("looking for a free port")?,
            folder: new_folder()?,
        };
        let folder = places.folder.clone();
        if let Some(config) = spec.config(&places)? {
            fs::write(folder.join(CONFIG_FILE), config).during("writing the broker's configuration")?;
        }
        let errors = File::create(folder.join("stderr")).during("creating a file for the broker's errors")?;
        let child = Command::new(&program)
            .args(spec.arguments(&places))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors)
            .spawn()
            .during(&format!("starting {}", program.display()))?;
        let on_loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut broker = Self {
            name: spec.name.clone(),
            address: on_loopback(places.port),
            publish_address: on_loopback(places.port),
            http: spec.has_http().then(|| on_loopback(places.http_port)),
            fsync: spec.fsync(),
            pid: child.id(),
            others: Others::default(),
            owned: Some(Owned { child, folder, saves_on_signal: spec.saves_on_signal() }),
        };
        broker.wait_for_port()?;
        Ok(broker)
    }

    /// Observes a running broker, which is left running.
    pub(crate) fn attach(
        pid: u32,
        address: SocketAddr,
        publish_address: SocketAddr,
        others: Others,
    ) -> Outcome<Self> {
        let name = format!("pid {pid}");
        let fsync = Fsync::Unknown;
        let broker = Self { name, address, publish_address, http: None, fsync, pid, others, owned: None };
        broker.cpu_seconds()?;
        Ok(broker)
    }

    pub(crate) fn beside_cpu_seconds(&self) -> Outcome<Vec<(String, f64)>> {
        let of = |(name, pid): &(String, u32)| Ok((name.clone(), procfs::cpu_seconds(*pid)?));
        self.others.beside.iter().map(of).collect()
    }

    /// True for a broker that continues running after the run, so that its sessions must be ended.
    pub(crate) fn stays(&self) -> bool {
        self.owned.is_none()
    }

    pub(crate) fn cpu_seconds(&self) -> Outcome<f64> {
        let pids = [self.pid].into_iter().chain(self.others.pods.iter().copied());
        pids.map(procfs::cpu_seconds).sum()
    }

    pub(crate) fn memory(&self) -> Memory {
        procfs::memory(self.pid)
    }

    pub(crate) fn written_bytes(&self) -> u64 {
        procfs::written_bytes(self.pid)
    }

    pub(crate) fn reset_peak(&self) {
        procfs::reset_peak(self.pid);
    }

    /// Bytes of the broker's saved state, which it is asked to save first; `None` if its folder is
    /// not known.
    pub(crate) fn saved_bytes(&self) -> Outcome<Option<u64>> {
        let Some(owned) = &self.owned else { return Ok(None) };
        if owned.saves_on_signal {
            let asked = Command::new("kill").args(["-USR1", &self.pid.to_string()]).status();
            asked.during("asking the broker to save its database")?;
            self.wait_for_rest()?;
        }
        Ok(Some(procfs::folder_bytes(&owned.folder)))
    }

    pub(crate) fn wait_for_rest(&self) -> Outcome<()> {
        self.rested_cpu_seconds()?;
        Ok(())
    }

    /// CPU seconds of the broker once it is at rest, because work may still be under way.
    pub(crate) fn rested_cpu_seconds(&self) -> Outcome<f64> {
        let mut last = self.cpu_seconds()?;
        let mut same = 0;
        for _ in 0..REST_LOOKS_MAX {
            clock::pause_ms(REST_LOOK_MS);
            let now = self.cpu_seconds()?;
            same = if now - last > REST_CPU_SECONDS { 0 } else { same + 1 };
            last = now;
            if same >= REST_LOOKS {
                break;
            }
        }
        Ok(last)
    }

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
            // A leftover folder must not fail a finished run.
            let _ = fs::remove_dir_all(&owned.folder);
        }
    }
}

/// The pid is certainly the child's, because the child is not reaped before.
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
    // Both calls fail only after the process has ended.
    let _ = child.kill();
    let _ = child.wait();
}

fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

fn new_folder() -> Outcome<PathBuf> {
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
