//! A NATS server, as a process of this test. Tests of other crates include this file by its path.
#![allow(clippy::unwrap_used, dead_code, reason = "it may fail a test, and not each uses all of it")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use tempfile::TempDir;

/// The version that is tested, `v1.2.3`.
const VERSION: &str = include_str!("../../../nats-server.version");

/// Whether nats-server can run. Installs it into the target folder if necessary; without it, a line
/// with SKIPPED goes to stderr past the test harness, which would hide it.
pub(crate) fn is_installed() -> bool {
    program().is_some()
}

fn program() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| match install() {
        Ok(program) => Some(program),
        Err(reason) => {
            let _ = writeln!(
                std::io::stderr(),
                "\nSKIPPED: everything that needs nats-server {}: {reason}\n",
                VERSION.trim()
            );
            None
        }
    });
    program.as_deref()
}

fn install() -> Result<PathBuf, String> {
    let version = VERSION.trim();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("tools");
    let program = folder.join("nats-server");
    let is_right = |program: &Path| {
        let output = Command::new(program).arg("--version").output().ok();
        output.is_some_and(|output| String::from_utf8_lossy(&output.stdout).trim().ends_with(version))
    };
    if is_right(&program) {
        return Ok(program);
    }
    let module = format!("github.com/nats-io/nats-server/v2@{version}");
    let output = Command::new("go").args(["install", &module]).env("GOBIN", &folder).output();
    let output = output.map_err(|error| format!("Go, which installs it, is not there ({error})"))?;
    match is_right(&program) {
        true => Ok(program),
        false => Err(format!("it could not be installed: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// A running server. Dropping it kills it.
pub(crate) struct Server {
    child: Child,
    folder: TempDir,
    config: String,
    /// For clients.
    pub(crate) port: u16,
    /// For other servers; 0 outside a cluster.
    cluster_port: u16,
}

impl Server {
    /// On a free port; `config` is added to its settings.
    pub(crate) fn start(config: &str) -> Self {
        let folder = tempfile::Builder::new().prefix("fabric-nats-").tempdir().unwrap();
        let (child, port, cluster_port) =
            spawn(folder.path(), -1, config).unwrap_or_else(|log| panic!("{log}"));
        Self { child, folder, config: config.into(), port, cluster_port }
    }

    /// A member of a cluster, and of that of `first` if there is one.
    pub(crate) fn start_in_cluster(name: &str, first: Option<&Self>) -> Self {
        let routes = first.map(|first| format!("routes: [\"nats://127.0.0.1:{}\"]", first.cluster_port));
        Self::start(&format!(
            "server_name: {name}\ncluster {{ name: test, host: 127.0.0.1, port: -1, {} }}\n",
            routes.unwrap_or_default()
        ))
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// At once, as by a power cut.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Again on the same port, with other settings if given.
    pub(crate) fn restart(&mut self, config: Option<&str>) {
        self.kill();
        let config = config.unwrap_or(&self.config);
        // Somebody else may have the port for a moment.
        for _ in 0..600 {
            match spawn(self.folder.path(), self.port.into(), config) {
                Ok(server) => {
                    (self.child, self.port, self.cluster_port) = server;
                    return;
                }
                Err(log) => assert!(log.contains("address already in use"), "{log}"),
            }
            std::thread::park_timeout(Duration::from_millis(100));
        }
        panic!("port {} is in use", self.port);
    }

    /// Asks it to send its clients away.
    pub(crate) fn lame_duck(&self) {
        let signal = format!("ldm={}", self.child.id());
        let status = Command::new(program().unwrap()).args(["--signal", &signal]).status().unwrap();
        assert!(status.success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Starts a server and waits until it says that it is ready. The ports are as it says. Fails with
/// its log.
fn spawn(folder: &Path, port: i32, config: &str) -> Result<(Child, u16, u16), String> {
    let path = folder.join("nats.conf");
    fs::write(&path, format!("host: 127.0.0.1\nport: {port}\n{config}\n")).unwrap();
    let mut command = Command::new(program().unwrap());
    command.arg("-c").arg(&path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let (mut client_port, mut cluster_port) = (0, 0);
    let mut is_ready = false;
    let mut log = String::new();
    while !is_ready || (cluster_port == 0 && config.contains("cluster")) {
        let Some(line) = lines.next() else {
            let _ = child.wait();
            return Err(format!("nats-server did not start:\n{log}"));
        };
        let port = || line.rsplit(':').next().and_then(|port| port.trim().parse().ok());
        if line.contains("Listening for client connections") {
            client_port = port().unwrap();
        }
        if line.contains("Listening for route connections") {
            cluster_port = port().unwrap();
        }
        is_ready |= line.contains("Server is ready");
        log += &line;
        log.push('\n');
    }
    // A pipe that nobody reads would stop the server one day.
    std::thread::spawn(move || lines.for_each(drop));
    Ok((child, client_port, cluster_port))
}
