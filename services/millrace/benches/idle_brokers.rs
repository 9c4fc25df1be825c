//! Measures idle brokers: memory of the server compared with a store of [`CONNECTED`] brokers, and
//! the duration of the first connection to an idle broker.
//! `cargo bench -p millrace --bench idle_brokers`, with `BROKERS=1000000` (the default).
//!
//! Each broker has the rows that the control plane makes: its name and details, its access
//! settings, and a credential.

#![allow(clippy::print_stdout, clippy::disallowed_methods, clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use millrace_access::model::{Access, Credential};
use millrace_access::secrets::generated::HashKeys;
use millrace_layers::accounts::{self, ACCESS, keys};
use millrace_layers::catalog::{self, Details};
use millrace_layers::{Store, documents::Document};
use millrace_storage::{Embedded, Options, block_on};

/// Brokers that one transaction makes.
const AT_ONCE: usize = 500;
/// Clients that connect, spread over all brokers.
const CONNECTED: usize = 500;
/// The server's memory settles in this time.
const REST: Duration = Duration::from_secs(3);
const KEY: [u8; 32] = [7; 32];
const PASSWORD: &str = "a password of full entropy";

fn name(number: usize) -> String {
    format!("b{number}")
}

fn fill(folder: &Path, count: usize) {
    let engine = Embedded::open(folder, Options::default()).unwrap();
    let store = Store::new(engine.database());
    let secret = HashKeys::new([(1, KEY)]).unwrap().hash(PASSWORD.as_bytes());
    let credential = Credential { user: "pump".into(), secret: Some(secret), ..Credential::default() };
    let details =
        Details { display_name: "Plant".into(), organisation: Some("o".into()), ..Details::default() };
    let details = Document { value: details, version: 1 }.encode().unwrap();
    block_on(store.run(async |tx| keys::ensure(&tx, KEY).await)).unwrap();
    for first in (0..count).step_by(AT_ONCE) {
        let made = store.run(async |tx| {
            for number in first..(first + AT_ONCE).min(count) {
                let (broker, _) = catalog::ensure(&tx, name(number).as_bytes(), details.clone()).await?;
                accounts::access(broker.id).put(&tx, ACCESS, &Access::default()).await?;
                accounts::credentials(broker.id).put(&tx, b"pump", &credential).await?;
            }
            Ok(())
        });
        block_on(made).unwrap();
    }
}

struct Server {
    child: Child,
    log: BufReader<ChildStderr>,
    mqtt: String,
}

impl Server {
    fn start(folder: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_millrace"))
            .args(["serve", "--mqtt-listen=127.0.0.1:0", "--ws-listen=off", "--http-listen=127.0.0.1:0"])
            .arg("--data-dir")
            .arg(folder)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let mut server = Self { child, log, mqtt: String::new() };
        let mut line = String::new();
        while !line.contains("mqtt://") {
            line.clear();
            assert!(server.log.read_line(&mut line).unwrap() > 0, "the server ended");
        }
        server.mqtt = line.split_once("mqtt://").unwrap().1.trim().to_owned();
        server
    }

    /// Resident memory, KiB.
    fn memory_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Returns the time from the TCP connection to the CONNACK.
    fn connect(&self, broker: &str) -> Duration {
        let began = Instant::now();
        let mut stream = TcpStream::connect(&self.mqtt).unwrap();
        stream.set_nodelay(true).unwrap();
        let sized =
            |text: &str| [&u16::try_from(text.len()).unwrap().to_be_bytes(), text.as_bytes()].concat();
        let user = format!("{broker}/pump");
        let body =
            [b"\0\x04MQTT\x04\xc2\0\0".to_vec(), sized("idle"), sized(&user), sized(PASSWORD)].concat();
        stream.write_all(&[&[0x10, u8::try_from(body.len()).unwrap()], &body[..]].concat()).unwrap();
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, [0x20, 2, 0, 0], "{broker} refused");
        began.elapsed()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn main() {
    let count = std::env::var("BROKERS").map_or(1_000_000, |text| text.parse().expect("BROKERS is a number"));
    println!(
        "{:>10} {:>14} {:>16} {:>12} {:>12} {:>12}",
        "brokers", "memory, KiB", "after, KiB", "p50, ms", "p99, ms", "max, ms"
    );
    for brokers in [CONNECTED, count] {
        let folder = tempfile::tempdir().unwrap();
        fill(folder.path(), brokers);
        let server = Server::start(folder.path());
        std::thread::sleep(REST);
        let memory = server.memory_kib();
        let mut times: Vec<_> =
            (0..CONNECTED).map(|number| server.connect(&name(number * (brokers / CONNECTED)))).collect();
        times.sort();
        let ms = |at: usize| times[at].as_secs_f64() * 1_000.0;
        println!(
            "{brokers:>10} {memory:>14} {:>16} {:>12.2} {:>12.2} {:>12.2}",
            server.memory_kib(),
            ms(CONNECTED / 2),
            ms(CONNECTED * 99 / 100),
            ms(CONNECTED - 1)
        );
    }
}
