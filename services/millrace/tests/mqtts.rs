//! The built program with TLS and no gateway: client certificates, and the client rumqttc over
//! mqtts.
#![allow(clippy::unwrap_used, reason = "helpers of tests, where a panic is the failure")]

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rumqttc::{Event, MqttOptions, Packet, QoS};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// How long anything may take that a test waits for.
const WAIT: Duration = Duration::from_secs(60);
/// Between two looks at something that a test waits for.
const LOOK: Duration = Duration::from_millis(2);

type Stream = StreamOwned<ClientConnection, TcpStream>;

fn millrace(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
    command.args(args).stdin(Stdio::null());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("MILLRACE_")) {
        command.env_remove(name);
    }
    command
}

/// Makes certificates: a server's, a client's, and the authorities of both.
fn certificates(folder: &Path) {
    let made = millrace(&["dev-certs", "--out", folder.to_str().unwrap()]).stderr(Stdio::null()).status();
    assert!(made.unwrap().success());
}

/// A server that takes clients over mqtts alone, ended with the test.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn start(folder: &Path, args: &[&str]) -> Self {
        let tls_dir = format!("--tls-dir={}", folder.display());
        let all = [
            "serve",
            "--data-dir=off",
            "--mqtt-listen=off",
            "--ws-listen=off",
            "--wss-listen=off",
            "--http-listen=off",
            "--mqtts-listen=127.0.0.1:0",
            "--allow-anonymous",
            &tls_dir,
        ];
        let mut child = millrace(&[&all, args].concat()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let port = lines.find_map(|line| Some(line.split_once("mqtts://127.0.0.1:")?.1.to_owned())).unwrap();
        let port = port.chars().take_while(char::is_ascii_digit).collect::<String>();
        // The pipe must not fill up.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, port: port.parse().unwrap() }
    }

    fn open(&self, client: &Arc<ClientConfig>) -> Stream {
        let tcp = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        tcp.set_read_timeout(Some(WAIT)).unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        StreamOwned::new(ClientConnection::new(client.clone(), name).unwrap(), tcp)
    }

    /// A connected client, or the reason why the server refused it.
    fn connect(&self, client: &Arc<ClientConfig>) -> std::io::Result<Stream> {
        let mut stream = self.open(client);
        stream.write_all(b"\x10\x0c\0\x04MQTT\x04\x02\0\0\0\0")?;
        let mut connack = [0; 4];
        stream.read_exact(&mut connack)?;
        assert_eq!(connack, [0x20, 2, 0, 0]);
        Ok(stream)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client that trusts the server of `folder`, with the certificate of another folder if any.
fn client(folder: &Path, certificate: Option<&Path>) -> Arc<ClientConfig> {
    let read = |folder: &Path, name: &str| fs::read(folder.join(name)).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&read(folder, "ca.crt")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.unwrap().with_root_certificates(roots);
    Arc::new(match certificate {
        Some(own) => {
            let chain = vec![CertificateDer::from_pem_slice(&read(own, "client.crt")).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(&read(own, "client.key")).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
        None => builder.with_no_client_auth(),
    })
}

#[allow(clippy::disallowed_methods, reason = "a test waits for another process")]
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < WAIT, "not in time: {what}");
        std::thread::sleep(LOOK);
    }
}

#[test]
fn only_clients_with_a_certificate_of_the_authority_that_is_there_now_are_let_in() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, other) = (folder.path().join("ours"), folder.path().join("other"));
    certificates(&ours);
    certificates(&other);
    let authority = ours.join("client-ca.crt");
    let server = Server::start(&ours, &[&format!("--tls-client-ca={}", authority.display())]);
    let (known, unknown, nobody) =
        (client(&ours, Some(&ours)), client(&ours, Some(&other)), client(&ours, None));
    let mut stays = server.connect(&known).unwrap();
    // With the ticket of the first connection.
    server.connect(&known).unwrap();
    assert!(server.connect(&unknown).is_err(), "a certificate of another authority");
    assert!(server.connect(&nobody).is_err(), "no certificate");

    // A file without any authority changes nothing.
    fs::write(&authority, "nobody").unwrap();
    assert!(Command::new("kill").args(["-HUP", &server.child.id().to_string()]).status().unwrap().success());
    server.connect(&known).unwrap();

    fs::copy(other.join("client-ca.crt"), &authority).unwrap();
    eventually("a certificate of the new authority", || server.connect(&unknown).is_ok());
    assert!(
        server.connect(&known).is_err(),
        "the authority was removed, and tickets of its clients are worth nothing"
    );
    // Connected clients notice nothing.
    stays.write_all(&[0xC0, 0]).unwrap();
    let mut pong = [0; 2];
    stays.read_exact(&mut pong).unwrap();
    assert_eq!(pong, [0xD0, 0]);
}

/// Listens for one connection without TLS, and passes its bytes on over TLS: rumqttc's own TLS
/// needs a crate that nobody maintains. Returns the port.
fn tunnel(mut tls: Stream) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // While the handshake continues, a write reads too, and would fail when nothing comes within
    // `LOOK`.
    tls.conn.complete_io(&mut tls.sock).unwrap();
    std::thread::spawn(move || {
        let (mut plain, _) = listener.accept().unwrap();
        plain.set_read_timeout(Some(LOOK)).unwrap();
        tls.sock.set_read_timeout(Some(LOOK)).unwrap();
        let mut buffer = [0; 16 * 1024];
        let mut pass_on = |from: &mut dyn Read, to: &mut dyn Write| match from.read(&mut buffer) {
            Ok(0) => false,
            Ok(count) => to.write_all(&buffer[..count]).and_then(|()| to.flush()).is_ok(),
            Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        };
        while pass_on(&mut plain, &mut tls) && pass_on(&mut tls, &mut plain) {}
    });
    port
}

#[test]
fn rumqttc_over_mqtts_gets_every_payload_with_every_qos() {
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path());
    let server = Server::start(folder.path(), &[]);
    let port = tunnel(server.open(&client(folder.path(), None)));
    let mut options = MqttOptions::new("rumqttc", "127.0.0.1", port);
    options.set_max_packet_size(1 << 20, 1 << 20);
    let (client, mut connection) = rumqttc::Client::new(options, 100);
    client.subscribe("a", QoS::ExactlyOnce).unwrap();
    let large: Vec<u8> = (0..200 * 1024_u32).map(|n| (n * 7 % 251) as u8).collect();
    let mut next = || connection.recv_timeout(WAIT).expect("something happens in time").unwrap();
    while !matches!(next(), Event::Incoming(Packet::SubAck(_))) {}
    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
        for payload in [&b""[..], b"hello", &large] {
            client.publish("a", qos, false, payload).unwrap();
            let got = loop {
                if let Event::Incoming(Packet::Publish(publish)) = next() {
                    break publish;
                }
            };
            assert!(got.payload == payload && got.qos == qos, "{} bytes with {qos:?}", payload.len());
        }
    }
}
