//! A filled data folder, the program, a server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use millrace_layers::{
    Position, Store,
    sessions::{Attach, Detach, EXPIRY_NEVER, PendingWill, SessionId},
    streams::{NewEntry, ReadLimit, StreamRef, StreamSource},
    subscriptions::{StoredOptions, Subscribed},
};
use millrace_storage::{Embedded, Options as StoreOptions, block_on};

pub(crate) const HOUR_MS: u64 = 3_600_000;

#[allow(clippy::disallowed_methods, reason = "the clock of these tests")]
pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

/// The output of a command.
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    /// The objects of a `--json` answer.
    pub(crate) fn json(&self) -> Vec<serde_json::Value> {
        self.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Expects one sentence with `words`, and exit code 1.
    pub(crate) fn failed_with(&self, words: &str) {
        assert_eq!(self.code, Some(1), "{}", self.err);
        assert!(self.err.starts_with("millrace: ") && self.err.contains(words), "{}", self.err);
        assert_eq!(self.err.lines().count(), 1, "{}", self.err);
    }

    pub(crate) fn succeeded(self) -> Self {
        assert_eq!(self.code, Some(0), "{}{}", self.out, self.err);
        self
    }
}

pub(crate) fn program(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("MILLRACE_")) {
        command.env_remove(name);
    }
    command
}

/// Runs a command on a data folder, from the folder beside it; spaces separate the arguments in
/// `command`.
pub(crate) fn millrace(folder: &Path, command: &str) -> Said {
    let args: Vec<&str> = command.split(' ').collect();
    let beside = folder.parent().filter(|parent| parent.exists()).unwrap_or(Path::new("."));
    let output = program(&args).env("MILLRACE_DATA_DIR", folder).current_dir(beside).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// A data folder that is open in this process.
pub(crate) struct Data {
    pub(crate) layers: Store,
    pub(crate) broker: u64,
    _embedded: Embedded,
}

impl Data {
    pub(crate) fn open(folder: &Path) -> Self {
        let embedded = Embedded::open(folder, StoreOptions::default()).unwrap();
        let layers = Store::new(embedded.database());
        let broker = block_on(layers.ensure_broker(b"default")).unwrap().id;
        Self { layers, broker, _embedded: embedded }
    }

    fn id<'a>(&self, client: &'a str) -> SessionId<'a> {
        SessionId { broker: self.broker, client: client.as_bytes() }
    }

    /// Connects a client; returns its epoch.
    pub(crate) fn attach(&self, client: &str, expiry_s: u32, will: Option<PendingWill>) -> u64 {
        let owner = Bytes::from_static(b"test");
        let request = Attach { owner, clean: false, expiry_s, now_ms: now_ms(), will, details: None };
        block_on(self.layers.attach(self.id(client), &request)).unwrap().epoch
    }

    pub(crate) fn subscribe(
        &self,
        client: &str,
        epoch: u64,
        filter: &str,
        options: StoredOptions,
    ) -> Subscribed {
        block_on(self.layers.subscribe(self.id(client), epoch, filter.as_bytes(), options)).unwrap()
    }

    /// Ends a connection at `now_ms`.
    pub(crate) fn detach(&self, client: &str, epoch: u64, now_ms: u64) {
        let how = Detach { now_ms, expiry_s: None, keep_will: true.into() };
        assert_eq!(block_on(self.layers.detach(self.id(client), epoch, how)).unwrap(), None);
    }

    pub(crate) fn append(&self, stream: u64, at_ms: u64, body: &'static [u8]) {
        let (to, body) = ([StreamRef { stream, partition: 0 }], Bytes::from_static(body));
        let publish = NewEntry { number: 0, now_ms: at_ms, body: &body };
        block_on(self.layers.append(self.broker, &to, publish)).unwrap();
    }

    /// Acknowledges the first message of a stream.
    pub(crate) fn acknowledge_first(&self, client: &str, epoch: u64, of: &Subscribed) {
        let source = [StreamSource { stream: of.stream, since: of.since }];
        let limit = ReadLimit { entries: 1, bytes: 1 };
        let read = self.layers.read(self.broker, &source, Position::MIN, limit);
        let first = block_on(read).unwrap().entries[0].position;
        block_on(self.layers.checkpoint(self.id(client), epoch, first)).unwrap();
    }

    /// An offline client, with a stream of three messages of which it has acknowledged one.
    pub(crate) fn away(&self, client: &str, will: Option<PendingWill>) {
        let epoch = self.attach(client, 604_800, will);
        let own = self.subscribe(client, epoch, "a/+", StoredOptions { bits: 0b0101, identifier: 9 });
        self.subscribe(client, epoch, "live", StoredOptions { bits: 0, identifier: 0 });
        for body in [&b"one"[..], b"two\n", b"three"] {
            self.append(own.stream, now_ms() - 2 * HOUR_MS, body);
        }
        self.acknowledge_first(client, epoch, &own);
        self.detach(client, epoch, now_ms() - 3 * HOUR_MS);
    }
}

/// A will with a delay of a day.
pub(crate) fn will() -> Option<PendingWill> {
    Some(PendingWill { delay_s: 86_400, body: Bytes::from_static(b"gone") })
}

/// Sessions of all kinds.
pub(crate) fn fill(folder: &Path) {
    let data = Data::open(folder);
    data.away("sensor-1", will());
    let epoch = data.attach("cut\n\x1b[2J", EXPIRY_NEVER, None);
    let shared = data.subscribe("cut\n\x1b[2J", epoch, "$share/g/jobs", StoredOptions::default());
    data.append(shared.stream, now_ms(), b"work");
    let epoch = data.attach("old", 60, will());
    data.detach("old", epoch, now_ms() - HOUR_MS);
}

/// A server on a data folder, killed with the test.
pub(crate) struct Server {
    child: Child,
    log: BufReader<ChildStderr>,
    mqtt: String,
}

impl Server {
    pub(crate) fn start(folder: &Path) -> Self {
        let args = ["serve", "--mqtt-listen=127.0.0.1:0", "--ws-listen=off", "--http-listen=off"];
        let mut child = program(&args).env("MILLRACE_DATA_DIR", folder).spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let mut server = Self { child, log, mqtt: String::new() };
        server.mqtt = server.behind("mqtt://");
        server
    }

    /// Reads the log up to the line with the text `words`, and returns the text behind it up to a space.
    pub(crate) fn behind(&mut self, words: &str) -> String {
        let mut line = String::new();
        while self.log.read_line(&mut line).unwrap() > 0 {
            if let Some((_, rest)) = line.split_once(words) {
                return rest.split_whitespace().next().unwrap_or_default().to_owned();
            }
            line.clear();
        }
        panic!("the server ended before it said \"{words}\"");
    }

    pub(crate) fn end(&mut self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        self.child.wait().unwrap();
    }

    /// A client whose session ends with its connection.
    pub(crate) fn client(&self) -> Client {
        self.connect(2, b'p')
    }

    /// A client with a persistent session, and this character as its id.
    pub(crate) fn keeper(&self, id: u8) -> Client {
        self.connect(0, id)
    }

    fn connect(&self, flags: u8, id: u8) -> Client {
        let mut stream = TcpStream::connect(&self.mqtt).unwrap();
        stream.write_all(&[0x10, 13, 0, 4, b'M', b'Q', b'T', b'T', 4, flags, 0, 60, 0, 1, id]).unwrap();
        stream.read_exact(&mut [0; 4]).unwrap();
        Client(stream)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An MQTT 3.1.1 client.
pub(crate) struct Client(TcpStream);

impl Client {
    /// Publishes with QoS 1 and RETAIN, and waits until it is stored.
    pub(crate) fn retain(&mut self, topic: &str, payload: &[u8]) {
        self.send(0x33, topic, payload);
    }

    /// Publishes with QoS 1, and waits until it is stored.
    pub(crate) fn publish(&mut self, topic: &str, payload: &[u8]) {
        self.send(0x32, topic, payload);
    }

    fn send(&mut self, first: u8, topic: &str, payload: &[u8]) {
        let length = u8::try_from(2 + topic.len() + 2 + payload.len()).unwrap();
        assert!(length < 128);
        let mut packet = vec![first, length, 0, topic.len() as u8];
        packet.extend_from_slice(topic.as_bytes());
        packet.extend_from_slice(&[0, 7]);
        packet.extend_from_slice(payload);
        self.0.write_all(&packet).unwrap();
        let mut answer = [0; 4];
        self.0.read_exact(&mut answer).unwrap();
        assert_eq!(answer, [0x40, 2, 0, 7]);
    }

    /// Subscribes with QoS 1, and disconnects.
    pub(crate) fn subscribe_and_leave(mut self, filter: &str) {
        let mut packet = vec![0x82, 5 + filter.len() as u8, 0, 1, 0, filter.len() as u8];
        packet.extend_from_slice(filter.as_bytes());
        packet.push(1);
        self.0.write_all(&packet).unwrap();
        self.0.read_exact(&mut [0; 5]).unwrap();
        self.0.write_all(&[0xe0, 0]).unwrap();
        // The server closes after it has handled everything.
        assert_eq!(self.0.read(&mut [0; 1]).unwrap(), 0);
    }

    /// Subscribes to a topic, and reads its retained message if there is one; PINGRESP marks the
    /// end.
    pub(crate) fn retained(&mut self, topic: &str) -> Option<Vec<u8>> {
        let mut packet = vec![0x82, 5 + topic.len() as u8, 0, 1, 0, topic.len() as u8];
        packet.extend_from_slice(topic.as_bytes());
        packet.extend_from_slice(&[0, 0xc0, 0]);
        self.0.write_all(&packet).unwrap();
        let mut found = None;
        loop {
            let mut head = [0; 2];
            self.0.read_exact(&mut head).unwrap();
            let mut body = vec![0; head[1].into()];
            self.0.read_exact(&mut body).unwrap();
            match head[0] {
                0xd0 => return found,
                0x31 => found = Some(body.split_off(2 + topic.len())),
                _ => {}
            }
        }
    }
}
