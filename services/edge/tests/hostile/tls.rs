//! TLS in the process: what strangers may do before they are clients, and certificates that are replaced while clients continue.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use millrace_edge::TlsFiles;
use millrace_mqtt::Version::V5;
use millrace_mqtt::{Packet, PacketType, Properties, ReasonCode, SubscribeOptions, encode};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use socket2::SockRef;

use crate::common::{Client, Server, connect, id, publish};
use crate::tools::{Pair, encoded, eventually, expect_count, metric, read_to_close, refused, send_anyway};

type Stream = StreamOwned<ClientConnection, TcpStream>;

/// A certificate for these names, written to where the server has it.
fn certificate(folder: &Path, names: &[&str]) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(names).unwrap();
    std::fs::write(folder.join("tls.crt"), cert.pem()).unwrap();
    std::fs::write(folder.join("tls.key"), signing_key.serialize_pem()).unwrap();
}

const NAMES: [&str; 3] = ["localhost", "acme.local.test", "absent.local.test"];

fn with_tls(folder: &Path, threads: usize) -> Server {
    with_tls_and(folder, |config| config.threads = threads)
}

fn with_tls_and(folder: &Path, change: impl FnOnce(&mut millrace_edge::Config)) -> Server {
    certificate(folder, &NAMES);
    Server::with(|config| {
        change(config);
        config.brokers = vec!["acme".into()];
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        (config.mqtts_listen, config.wss_listen) = (vec![loopback], vec![loopback]);
        config.tls = Some(TlsFiles {
            certificate: folder.join("tls.crt"),
            key: folder.join("tls.key"),
            client_authorities: None,
            asks_browsers: false,
        });
    })
}

/// A client that trusts the certificate that is there now.
fn client(folder: &Path) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let pem = std::fs::read(folder.join("tls.crt")).unwrap();
    roots.add(CertificateDer::from_pem_slice(&pem).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Arc::new(builder.unwrap().with_root_certificates(roots).with_no_client_auth())
}

fn open(config: &Arc<ClientConfig>, server: &Server, name: &'static str) -> Stream {
    let tcp = TcpStream::connect(server.edge.mqtts_addresses()[0]).unwrap();
    tcp.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let tls = ClientConnection::new(config.clone(), ServerName::try_from(name).unwrap()).unwrap();
    StreamOwned::new(tls, tcp)
}

/// The next packet's first byte and body.
fn packet(stream: &mut Stream) -> (u8, Vec<u8>) {
    let mut received = Vec::new();
    loop {
        if let Ok(frame) = millrace_mqtt::frame(&received, u32::MAX).unwrap() {
            return (frame.first, frame.body.to_vec());
        }
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        received.push(byte[0]);
    }
}

fn connack(stream: &mut Stream, id: &str) -> ReasonCode {
    stream.write_all(&encoded(&Packet::Connect(connect(V5, id)), V5)).unwrap();
    let (first, body) = packet(stream);
    assert_eq!(first >> 4, PacketType::ConnAck as u8);
    ReasonCode(body[1])
}

#[test]
fn the_server_name_selects_the_broker_and_a_second_connection_resumes() {
    let folder = tempfile::tempdir().unwrap();
    let server = with_tls(folder.path(), 2);
    let config = client(folder.path());
    let handshakes = |kind: &str| metric(&server, "millrace_tls_handshakes_total", kind);
    for (number, (name, expected)) in [
        ("localhost", ReasonCode::SUCCESS),
        ("acme.local.test", ReasonCode::SUCCESS),
        ("absent.local.test", ReasonCode::NOT_AUTHORIZED),
    ]
    .into_iter()
    .enumerate()
    {
        let mut first = open(&config, &server, name);
        assert_eq!(connack(&mut first, &format!("first-{number}")), expected, "{name}");
        let mut second = open(&config, &server, name);
        assert_eq!(connack(&mut second, &format!("second-{number}")), expected, "{name}");
        let count = number as u64 + 1;
        eventually(|| handshakes("full") == count && handshakes("resumed") == count, || name.to_owned());
        if !expected.is_error() {
            let clients = || metric(&server, "millrace_clients_connected", "broker=\"acme\"");
            eventually(|| clients() == if name == "localhost" { 0 } else { 2 }, || clients().to_string());
        }
    }
}

/// A record of 16 KiB without its last byte.
fn incomplete_record(kind: u8, version: u8) -> Vec<u8> {
    let mut record = vec![kind, 3, version, 0x40, 0];
    record.resize(5 + 0x4000 - 1, 0);
    record
}

#[test]
fn incomplete_records_count_as_incomplete_packets_do() {
    let folder = tempfile::tempdir().unwrap();
    let server = with_tls_and(folder.path(), |config| config.limits.input_memory_max = 1_000_000);
    let held = || metric(&server, "millrace_input_held_bytes", "");
    // A quarter of the memory is for strangers.
    let strangers: Vec<TcpStream> = (0..40)
        .map(|_| {
            let stranger = TcpStream::connect(server.edge.mqtts_addresses()[0]).unwrap();
            send_anyway(&stranger, &incomplete_record(22, 1));
            stranger
        })
        .collect();
    let closed = || refused(&server, "input_memory");
    eventually(|| closed() > 15, || format!("{} are refused", closed()));
    assert!((200_000..=250_000).contains(&held()), "{} bytes", held());
    drop(strangers);
    eventually(|| held() == 0, || format!("{} bytes are held by nobody", held()));
    // A client counts for its broker, which has half of the memory, as long as no other broker takes any.
    let config = client(folder.path());
    let mut clients: Vec<Stream> = (0..50)
        .map(|number| {
            let mut stream = open(&config, &server, "localhost");
            assert_eq!(connack(&mut stream, &format!("client-{number}")), ReasonCode::SUCCESS);
            send_anyway(&stream.sock, &incomplete_record(23, 3));
            stream
        })
        .collect();
    let is_full = || metric(&server, "millrace_limits_reached_total", "server.input_bytes") > 0;
    eventually(is_full, || format!("{} bytes are held", held()));
    assert!((450_000..=500_000).contains(&held()), "{} bytes", held());
    clients.clear();
    eventually(|| held() == 0, || format!("{} bytes are held by nobody", held()));
}

#[test]
fn a_large_message_goes_through_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let server = with_tls(folder.path(), 2);
    let mut stream = open(&client(folder.path()), &server, "localhost");
    assert_eq!(connack(&mut stream, "large"), ReasonCode::SUCCESS);
    let mut subscribe = Vec::new();
    let filters = [("t", Default::default())];
    encode::subscribe(id(1), Properties::EMPTY, filters, V5, &mut subscribe);
    stream.write_all(&subscribe).unwrap();
    assert_eq!(packet(&mut stream).0 >> 4, PacketType::SubAck as u8);
    let payload: Vec<u8> = (0..900_000_u32).map(|number| (number / 7) as u8).collect();
    let (mut writer, reader) = (encoded(&Packet::Publish(publish("t", &payload)), V5), &mut stream);
    reader.write_all(&std::mem::take(&mut writer)).unwrap();
    let (first, body) = packet(reader);
    assert_eq!(first >> 4, PacketType::Publish as u8);
    assert!(body.ends_with(&payload));
}

#[test]
fn strangers_at_the_tls_port_are_refused_and_others_notice_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let server = with_tls(folder.path(), 2);
    let pair = Pair::start(&server);
    let address = server.edge.mqtts_addresses()[0];
    let plain = encoded(&Packet::Connect(connect(V5, "plain")), V5);
    for bytes in [&plain[..], b"GET / HTTP/1.1\r\n\r\n", &[22, 3, 1, 0, 4, 1, 0, 0, 0], &[0xFF; 2000]] {
        let stranger = TcpStream::connect(address).unwrap();
        send_anyway(&stranger, bytes);
        // An alert, and the close.
        read_to_close(&stranger);
    }
    expect_count(refused, &server, "tls_handshake", 4);
    pair.finish();
}

#[test]
fn a_handshake_that_never_ends_is_closed_with_the_time_for_a_connect() {
    let folder = tempfile::tempdir().unwrap();
    certificate(folder.path(), &NAMES);
    let server = Server::with(|config| {
        config.limits.connect_timeout_s = 1;
        config.mqtts_listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
        config.tls = Some(TlsFiles {
            certificate: folder.path().join("tls.crt"),
            key: folder.path().join("tls.key"),
            client_authorities: None,
            asks_browsers: false,
        });
    });
    let silent = TcpStream::connect(server.edge.mqtts_addresses()[0]).unwrap();
    let slow = TcpStream::connect(server.edge.mqtts_addresses()[0]).unwrap();
    send_anyway(&slow, &[22, 3, 1, 2, 0, 1, 0]);
    read_to_close(&silent);
    read_to_close(&slow);
    expect_count(refused, &server, "connect_timeout", 2);
}

#[test]
fn a_new_certificate_is_used_for_new_clients_and_a_bad_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let server = with_tls(folder.path(), 2);
    let old = client(folder.path());
    let mut stays = open(&old, &server, "localhost");
    assert_eq!(connack(&mut stays, "stays"), ReasonCode::SUCCESS);

    // A certificate without its key.
    let good = std::fs::read(folder.path().join("tls.key")).unwrap();
    std::fs::write(folder.path().join("tls.key"), b"no key").unwrap();
    server.edge.reload();
    assert_eq!(connack(&mut open(&old, &server, "localhost"), "old"), ReasonCode::SUCCESS);
    std::fs::write(folder.path().join("tls.key"), good).unwrap();

    certificate(folder.path(), &NAMES);
    let new = client(folder.path());
    // Nobody says so: the files have changed.
    let is_new = || {
        let mut stream = open(&new, &server, "localhost");
        stream.write_all(&encoded(&Packet::Connect(connect(V5, "new")), V5)).is_ok()
    };
    eventually(is_new, || "the new certificate is not used".to_owned());
    stays.write_all(&encoded(&Packet::PingReq, V5)).unwrap();
    assert_eq!(packet(&mut stays).0 >> 4, PacketType::PingResp as u8);
}

#[test]
fn the_steps_of_a_connect_are_timed_to_its_connack() {
    let folder = tempfile::tempdir().unwrap();
    let server = with_tls(folder.path(), 2);
    let config = client(folder.path());
    let count = |step: &str| {
        let name = "millrace_connect_seconds_count";
        metric(&server, name, &format!("step=\"{step}\""))
    };
    let counts = || ["tls", "packet", "authentication", "session", "connack"].map(count);
    for number in 0..4 {
        let mut stream = open(&config, &server, "localhost");
        // With two event loops some of these connections move to the other one.
        assert_eq!(connack(&mut stream, &format!("client-{number}")), ReasonCode::SUCCESS);
    }
    assert_eq!(counts(), [4; 5]);
    assert!(!Client::connect(&server, V5, "without-tls").connack.unwrap().reason.is_error());
    assert_eq!(counts(), [4, 5, 5, 5, 5]);
    let mut refused = open(&config, &server, "absent.local.test");
    assert_eq!(connack(&mut refused, "refused"), ReasonCode::NOT_AUTHORIZED);
    assert_eq!(counts(), [5, 6, 5, 5, 5]);
}

/// The end of the handshake, packets and a record that nobody can decrypt, in one piece.
fn handshake_with(server: &Server, config: &Arc<ClientConfig>, packets: &[u8]) -> Stream {
    let mut stream = open(config, server, "localhost");
    let tls = &mut stream.conn;
    while tls.is_handshaking() {
        while tls.wants_write() {
            tls.write_tls(&mut stream.sock).unwrap();
        }
        tls.read_tls(&mut stream.sock).unwrap();
        tls.process_new_packets().unwrap();
    }
    let mut flight = Vec::new();
    tls.writer().write_all(packets).unwrap();
    while tls.wants_write() {
        tls.write_tls(&mut flight).unwrap();
    }
    flight.extend_from_slice(&[23, 3, 3, 0, 40]);
    flight.extend_from_slice(&[7; 40]);
    stream.sock.write_all(&flight).unwrap();
    stream
}

#[test]
fn a_session_ends_with_its_connection_when_tls_fails_right_after_the_handshake() {
    let folder = tempfile::tempdir().unwrap();
    let server = with_tls(folder.path(), 1);
    let config = client(folder.path());
    let mut publisher = Client::connect(&server, V5, "publisher");
    let mut packets = encoded(&Packet::Connect(connect(V5, "ann")), V5);
    let filter = [("t", SubscribeOptions::default())];
    encode::subscribe(id(1), Properties::EMPTY, filter, V5, &mut packets);
    for _ in 0..3 {
        let stream = handshake_with(&server, &config, &packets);
        let mut answer = [0; 1];
        // The alert, or also the CONNACK before it.
        let _ = (&stream.sock).read(&mut answer);
        SockRef::from(&stream.sock).set_linger(Some(Duration::ZERO)).unwrap();
        drop(stream);
        let clients = || metric(&server, "millrace_clients_connected", "broker=\"default\"");
        eventually(|| clients() == 1, || format!("{} clients", clients()));
        publisher.send(&Packet::Publish(publish("t", b"to nobody")));
        publisher.ping();
    }
    let mut ann = Client::connect(&server, V5, "ann");
    ann.ping();
}
