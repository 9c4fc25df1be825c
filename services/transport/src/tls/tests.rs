//! A real rustls client against a [`TlsSession`], over a pair of sockets, in pieces of every size.

use std::fs;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::path::Path;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::files::{Files, LoadError, Servers};
use super::session::{Peer, TlsSession};

/// Two directions of bytes; the server's side takes and gives so many at once.
#[derive(Default)]
struct Wire {
    to_server: Vec<u8>,
    to_client: Vec<u8>,
    piece: usize,
    /// Bytes that the server's socket takes before it is busy.
    room: usize,
}

impl Read for Wire {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.to_server.len().min(into.len()).min(self.piece);
        if count == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        into[..count].copy_from_slice(&self.to_server[..count]);
        self.to_server.drain(..count);
        Ok(count)
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(self.room).min(self.piece);
        if count == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.room -= count;
        self.to_client.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Certificates in a folder, as an operator has them.
struct Made {
    folder: tempfile::TempDir,
    device: (Vec<u8>, Vec<u8>),
}

impl Made {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: String| fs::write(folder.path().join(name), text).unwrap();
        let authority = |file: &str| {
            let mut params = CertificateParams::new(vec![]).unwrap();
            params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
            let key = KeyPair::generate().unwrap();
            write(file, params.self_signed(&key).unwrap().pem());
            Issuer::new(params, key)
        };
        let (servers, devices) = (authority("ca.crt"), authority("client-ca.crt"));
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["acme.test".into()]).unwrap();
        write("tls.crt", params.signed_by(&key, &servers).unwrap().pem());
        write("tls.key", key.serialize_pem());
        let key = KeyPair::generate().unwrap();
        let device =
            CertificateParams::new(vec!["device".into()]).unwrap().signed_by(&key, &devices).unwrap();
        Self { device: (device.der().to_vec(), key.serialize_der()), folder }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn files(&self) -> Files {
        Files {
            certificate: self.path().join("tls.crt"),
            key: self.path().join("tls.key"),
            client_authorities: None,
            asks_browsers: false,
        }
    }

    /// A client that trusts the server, with its certificate or without.
    fn client(&self, with_certificate: bool) -> Arc<ClientConfig> {
        self.client_with(usize::from(with_certificate))
    }

    /// The same; the client sends its certificate so many times.
    fn client_with(&self, certificates: usize) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        let ca = fs::read(self.path().join("ca.crt")).unwrap();
        roots.add(CertificateDer::from_pem_slice(&ca).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.unwrap().with_root_certificates(roots);
        let (der, key) = &self.device;
        Arc::new(match certificates {
            0 => builder.with_no_client_auth(),
            count => builder
                .with_client_auth_cert(
                    vec![CertificateDer::from(der.clone()); count],
                    PrivateKeyDer::try_from(key.clone()).unwrap(),
                )
                .unwrap(),
        })
    }
}

/// A client and a session with a wire between them.
struct Both {
    client: ClientConnection,
    session: TlsSession,
    wire: Wire,
    read: Vec<u8>,
    received: Vec<u8>,
    into: usize,
}

impl Both {
    fn new(config: &Arc<ClientConfig>, servers: &Servers, piece: usize) -> Self {
        Self::named("acme.test", config, servers, piece)
    }

    fn named(name: &'static str, config: &Arc<ClientConfig>, servers: &Servers, piece: usize) -> Self {
        Self::with(name, config, &servers.devices, piece)
    }

    fn with(
        name: &'static str,
        config: &Arc<ClientConfig>,
        server: &Arc<rustls::ServerConfig>,
        piece: usize,
    ) -> Self {
        let name = ServerName::try_from(name).unwrap();
        Self {
            client: ClientConnection::new(config.clone(), name).unwrap(),
            session: TlsSession::new(server.clone()).unwrap(),
            wire: Wire { piece, room: usize::MAX, ..Wire::default() },
            read: Vec::new(),
            received: Vec::new(),
            into: 4096,
        }
    }

    /// Moves bytes until nothing moves.
    fn settle(&mut self) -> io::Result<()> {
        loop {
            while self.client.wants_write() {
                self.client.write_tls(&mut self.wire.to_server)?;
            }
            let mut buffer = vec![0; self.into];
            let read = match self.session.read(&mut self.wire, &mut buffer) {
                Ok(count) => {
                    self.read.extend_from_slice(&buffer[..count]);
                    count
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
                Err(error) => return Err(error),
            };
            let came = std::mem::take(&mut self.wire.to_client);
            let mut rest = &came[..];
            while !rest.is_empty() {
                self.client.read_tls(&mut rest)?;
                self.client.process_new_packets().map_err(io::Error::other)?;
                let mut chunk = [0; 16_384];
                while let Ok(count @ 1..) = self.client.reader().read(&mut chunk) {
                    self.received.extend_from_slice(&chunk[..count]);
                }
            }
            if read == 0 && came.is_empty() && self.wire.to_server.is_empty() && !self.client.wants_write() {
                return Ok(());
            }
        }
    }
}

#[test]
fn bytes_go_both_ways_in_pieces_of_every_size() {
    let made = Made::new();
    let servers = Servers::load(&made.files(), None).unwrap();
    let config = made.client(false);
    for (piece, into) in [(7, 100), (100, 1), (1000, 64), (16_384, 4096), (usize::MAX, 128 * 1024)] {
        let mut both = Both { into, ..Both::new(&config, &servers, piece) };
        both.settle().unwrap();
        assert!(!both.session.is_handshaking());
        let sent: Vec<u8> = (0..200_000_u32).map(|number| number as u8).collect();
        let mut left = &sent[..];
        while !left.is_empty() {
            let count = both.client.writer().write(left).unwrap();
            left = &left[count..];
            both.settle().unwrap();
        }
        assert!(both.read == sent, "{piece} {into}");
        let mut back = 0;
        while back < sent.len() {
            let (first, second) = sent[back..].split_at((sent.len() - back) / 2);
            let offered = [IoSlice::new(first), IoSlice::new(&[]), IoSlice::new(second)];
            let count = both.session.write(&mut both.wire, &offered).unwrap();
            // Fewer than all say that the socket is busy.
            assert!(count == sent.len() - back || both.session.unsent_bytes() > 0);
            back += count;
            both.settle().unwrap();
        }
        assert!(both.received == sent, "{piece} {into}");
        assert!(!both.session.has_unread() && both.session.unsent_bytes() == 0);
    }
}

#[test]
fn unsent_bytes_of_a_busy_socket_are_sent_first() {
    let made = Made::new();
    let servers = Servers::load(&made.files(), None).unwrap();
    let mut both = Both::new(&made.client(false), &servers, usize::MAX);
    both.settle().unwrap();
    both.wire.room = 10;
    assert_eq!(both.session.write(&mut both.wire, &[IoSlice::new(b"hello")]).unwrap(), 5);
    assert!(both.session.unsent_bytes() > 0);
    let busy = both.session.write(&mut both.wire, &[IoSlice::new(b"world")]).unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::WouldBlock);
    assert_eq!(both.session.flush(&mut both.wire).unwrap_err().kind(), ErrorKind::WouldBlock);
    both.wire.room = usize::MAX;
    both.session.flush(&mut both.wire).unwrap();
    both.session.write(&mut both.wire, &[IoSlice::new(b"world")]).unwrap();
    both.settle().unwrap();
    assert_eq!(both.received, b"helloworld");
}

#[test]
fn the_peer_is_returned_once_with_name_and_certificate_even_when_resumed() {
    let made = Made::new();
    let servers = Servers::load(&made.files(), None).unwrap();
    for with_certificate in [false, true] {
        let config = made.client(with_certificate);
        for is_resumed in [false, true] {
            let mut both = Both::new(&config, &servers, usize::MAX);
            assert_eq!(both.session.take_peer(), None);
            both.settle().unwrap();
            let peer = Peer {
                server_name: Some("acme.test".into()),
                certificate: with_certificate.then(|| made.device.0.clone().into()),
                is_resumed,
            };
            assert_eq!(both.session.take_peer(), Some(peer));
            assert_eq!(both.session.take_peer(), None);
        }
    }
}

#[test]
fn the_name_in_a_handshake_that_fails_is_not_taken_for_that_of_another_client() {
    // Record, handshake message, version, random and session id stand before the cipher suites.
    const SUITES: usize = 5 + 4 + 2 + 32 + 1 + 32;
    let made = Made::new();
    let servers = Servers::load(&made.files(), None).unwrap();
    let config = made.client(false);
    let mut victim = Both::new(&config, &servers, usize::MAX);
    let mut into = [0; 100];
    while victim.client.is_handshaking() {
        victim.client.write_tls(&mut victim.wire.to_server).unwrap();
        assert!(victim.session.read(&mut victim.wire, &mut into).is_err(), "{:?}", victim.session);
        victim.client.read_tls(&mut &*std::mem::take(&mut victim.wire.to_client)).unwrap();
        victim.client.process_new_packets().unwrap();
    }
    let mut other = Both::named("evil.test", &config, &servers, usize::MAX);
    other.client.write_tls(&mut other.wire.to_server).unwrap();
    let hello = &mut other.wire.to_server;
    let suites = usize::from(u16::from_be_bytes([hello[SUITES], hello[SUITES + 1]]));
    hello[SUITES + 2..][..suites].fill(0);
    let error = other.session.read(&mut other.wire, &mut into).unwrap_err();
    assert!(error.to_string().contains("NoCipherSuitesInCommon"), "{error}");
    assert!(victim.session.is_handshaking());
    victim.settle().unwrap();
    let peer = victim.session.take_peer().unwrap();
    assert_eq!(peer.server_name.as_deref(), Some("acme.test"));
}

#[test]
fn a_certificate_that_others_issued_is_refused_where_authorities_are_set() {
    let made = Made::new();
    let with = |file: &str| Files { client_authorities: Some(made.path().join(file)), ..made.files() };
    let handshake = |servers: &Servers, with_certificate| {
        Both::new(&made.client(with_certificate), servers, usize::MAX).settle()
    };
    let own = Servers::load(&with("client-ca.crt"), None).unwrap();
    handshake(&own, true).unwrap();
    handshake(&own, false).unwrap_err();
    let others = Servers::load(&with("ca.crt"), Some(&own)).unwrap();
    handshake(&others, true).unwrap_err();
}

#[test]
fn a_client_that_sends_many_certificates_is_refused_before_chains_of_them_are_tried() {
    let made = Made::new();
    let servers = Servers::load(&made.files(), None).unwrap();
    let handshake = |count| Both::new(&made.client_with(count), &servers, usize::MAX).settle();
    handshake(5).unwrap();
    handshake(6).unwrap_err();
}

#[test]
fn tickets_outlive_a_reload_unless_the_client_authorities_change() {
    let made = Made::new();
    let first = Servers::load(&made.files(), None).unwrap();
    let with_authorities =
        Files { client_authorities: Some(made.path().join("client-ca.crt")), ..made.files() };
    let config = made.client(true);
    let resumes = |servers: &Servers| {
        let mut both = Both::new(&config, servers, usize::MAX);
        both.settle().unwrap();
        both.session.take_peer().unwrap().is_resumed
    };
    assert!(!resumes(&first));
    let second = Servers::load(&made.files(), Some(&first)).unwrap();
    assert!(resumes(&second));
    let third = Servers::load(&with_authorities, Some(&second)).unwrap();
    assert!(!resumes(&third));
}

#[test]
fn a_ticket_replaces_no_certificate_that_is_required() {
    let made = Made::new();
    let files = Files { client_authorities: Some(made.path().join("client-ca.crt")), ..made.files() };
    let servers = Servers::load(&files, None).unwrap();
    let without = made.client(false);
    for is_resumed in [false, true] {
        let mut at_wss = Both::with("acme.test", &without, &servers.browsers, usize::MAX);
        at_wss.settle().unwrap();
        assert_eq!(at_wss.session.take_peer().unwrap().is_resumed, is_resumed);
    }
    Both::new(&without, &servers, usize::MAX).settle().unwrap_err();
    // A certificate may expire between two connections.
    let with = made.client(true);
    for _ in 0..2 {
        let mut at_mqtts = Both::new(&with, &servers, usize::MAX);
        at_mqtts.settle().unwrap();
        assert!(!at_mqtts.session.take_peer().unwrap().is_resumed);
    }
}

#[test]
fn files_that_cannot_be_used_are_refused_with_their_names() {
    let made = Made::new();
    let other_key = KeyPair::generate().unwrap().serialize_pem();
    fs::write(made.path().join("other.key"), other_key).unwrap();
    fs::write(made.path().join("empty"), "").unwrap();
    let at = |name: &str| made.path().join(name);
    let cases = [
        (Files { certificate: at("absent"), ..made.files() }, "cannot read"),
        (Files { certificate: at("empty"), ..made.files() }, "has no certificate"),
        (Files { key: at("tls.crt"), ..made.files() }, "has no private key"),
        (Files { key: at("other.key"), ..made.files() }, "other.key"),
        (Files { client_authorities: Some(at("empty")), ..made.files() }, "has no certificate"),
    ];
    for (files, expected) in cases {
        let error: LoadError = Servers::load(&files, None).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn bytes_that_are_no_tls_are_refused_with_an_alert() {
    let made = Made::new();
    let servers = Servers::load(&made.files(), None).unwrap();
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0x10, 0x0C, 0, 4, b'M', b'Q', b'T', b'T', 5, 2, 0, 0]] {
        let mut session = TlsSession::new(servers.devices.clone()).unwrap();
        let mut wire =
            Wire { to_server: bytes.to_vec(), piece: usize::MAX, room: usize::MAX, ..Wire::default() };
        let error = session.read(&mut wire, &mut [0; 100]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        assert_eq!(wire.to_client.first(), Some(&21), "an alert: {:?}", wire.to_client);
    }
}

#[test]
fn an_idle_session_keeps_no_buffer() {
    let made = Made::new();
    let servers = Servers::load(&made.files(), None).unwrap();
    let mut both = Both::new(&made.client(false), &servers, 1000);
    both.settle().unwrap();
    both.client.writer().write_all(&[0; 10_000]).unwrap();
    both.settle().unwrap();
    both.session.write(&mut both.wire, &[IoSlice::new(&[0; 10_000])]).unwrap();
    assert_eq!(both.session.buffered_bytes(), 0);
}

fn part_of_a_handshake_of_60000_bytes(first: bool) -> Vec<u8> {
    let mut record = vec![22, 3, 1, 0x40, 0];
    record.extend_from_slice(if first { &[1, 0, 0xEA, 0x60] } else { &[0; 4] });
    record.resize(5 + 0x4000, 0);
    record
}

#[test]
fn a_stranger_makes_the_session_hold_no_more_than_a_certificate_chain_needs() {
    let made = Made::new();
    let servers = Servers::load(&made.files(), None).unwrap();
    let mut session = TlsSession::new(servers.devices.clone()).unwrap();
    let mut wire = Wire { piece: usize::MAX, room: usize::MAX, ..Wire::default() };
    let mut kinds = Vec::new();
    for number in 0..3 {
        wire.to_server = part_of_a_handshake_of_60000_bytes(number == 0);
        kinds.push(session.read(&mut wire, &mut [0; 100]).unwrap_err().kind());
        assert!(session.buffered_bytes() <= 37 * 1024, "{} bytes", session.buffered_bytes());
        assert_eq!(session.incomplete_bytes(), session.buffered_bytes(), "the server charges all of them");
    }
    assert_eq!(kinds, [ErrorKind::WouldBlock, ErrorKind::WouldBlock, ErrorKind::InvalidData]);
}

#[test]
fn the_end_that_the_peer_announces_is_the_end_also_when_nothing_else_wakes_the_reader() {
    let made = Made::new();
    let servers = Servers::load(&made.files(), None).unwrap();
    for data in [&b""[..], b"last words"] {
        let mut both = Both::new(&made.client(false), &servers, usize::MAX);
        both.settle().unwrap();
        both.client.writer().write_all(data).unwrap();
        both.client.send_close_notify();
        while both.client.wants_write() {
            both.client.write_tls(&mut both.wire.to_server).unwrap();
        }
        let mut buffer = [0; 100];
        if !data.is_empty() {
            assert_eq!(both.session.read(&mut both.wire, &mut buffer).unwrap(), data.len());
            assert!(both.session.has_unread(), "the caller reads again");
        }
        assert_eq!(both.session.read(&mut both.wire, &mut buffer).unwrap(), 0);
    }
}

#[test]
fn many_short_records_are_read_a_few_at_a_time() {
    const RECORDS: usize = 20_000;
    let made = Made::new();
    let servers = Servers::load(&made.files(), None).unwrap();
    let mut both = Both::new(&made.client(false), &servers, usize::MAX);
    both.settle().unwrap();
    both.client.set_buffer_limit(None);
    for _ in 0..RECORDS {
        both.client.writer().write_all(b"x").unwrap();
        both.client.write_tls(&mut both.wire.to_server).unwrap();
    }
    let sent = both.wire.to_server.len();
    both.session.take_record_overhead();
    let mut buffer = vec![0; 16 * 1024];
    let mut read = both.session.read(&mut both.wire, &mut buffer).unwrap();
    let took = sent - both.wire.to_server.len();
    assert!(took <= 80 * 1024, "{took} bytes of ciphertext in one read");
    assert!(both.session.has_unread(), "the caller reads again");
    assert_eq!(both.session.take_record_overhead() / read, 22);
    let mut buffer = vec![0; 128 * 1024];
    read += both.session.read(&mut both.wire, &mut buffer).unwrap();
    let records = both.session.take_record_overhead() / 22;
    assert!(records <= 2_500, "{records} records in one read");
    while read < RECORDS {
        read += both.session.read(&mut both.wire, &mut buffer).unwrap();
    }
    assert!(!both.session.has_unread());
}

#[test]
fn data_of_a_peer_that_breaks_the_protocol_comes_after_its_introduction_and_before_the_error() {
    let made = Made::new();
    let servers = Servers::load(&made.files(), None).unwrap();
    let mut both = Both::new(&made.client(false), &servers, usize::MAX);
    let mut into = [0; 100];
    while both.client.is_handshaking() {
        both.client.write_tls(&mut both.wire.to_server).unwrap();
        assert!(
            both.session
                .read(&mut both.wire, &mut into)
                .is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
        );
        both.client.read_tls(&mut &*std::mem::take(&mut both.wire.to_client)).unwrap();
        both.client.process_new_packets().unwrap();
    }
    both.client.writer().write_all(b"data").unwrap();
    while both.client.wants_write() {
        both.client.write_tls(&mut both.wire.to_server).unwrap();
    }
    both.wire.to_server.extend_from_slice(&[23, 3, 3, 0, 20]);
    both.wire.to_server.extend_from_slice(&[7; 20]);
    assert_eq!(both.session.read(&mut both.wire, &mut into).unwrap(), 4);
    assert!(
        !both.session.is_handshaking() && both.session.has_unread() && both.session.take_peer().is_some()
    );
    let error = both.session.read(&mut both.wire, &mut into).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
}
