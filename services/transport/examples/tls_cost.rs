//! CPU time of the server's side of a TLS 1.3 handshake, full and resumed, and memory of an idle
//! session. In one thread, without sockets:
//!
//!     cargo run --release -p millrace-transport --example tls_cost
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program that measures"
)]

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_transport::tls::files::{Files, Servers};
use millrace_transport::tls::session::TlsSession;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

const SESSIONS: u32 = 5_000;

#[derive(Default)]
struct Wire {
    to_server: Vec<u8>,
    to_client: Vec<u8>,
}

impl Read for Wire {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.to_server.len().min(into.len());
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
        self.to_client.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A session after its handshake, and the time that its side took.
fn handshake(config: &Arc<ClientConfig>, servers: &Servers) -> (TlsSession, Duration) {
    let name = ServerName::try_from("localhost").unwrap();
    let mut client = ClientConnection::new(config.clone(), name).unwrap();
    let start = Instant::now();
    let mut session = TlsSession::new(servers.devices.clone()).unwrap();
    let mut took = start.elapsed();
    let (mut wire, mut buffer) = (Wire::default(), [0; 1024]);
    while client.is_handshaking() || session.is_handshaking() || client.wants_write() {
        client.write_tls(&mut wire.to_server).unwrap();
        let start = Instant::now();
        while session.read(&mut wire, &mut buffer).is_ok() {}
        took += start.elapsed();
        let came = std::mem::take(&mut wire.to_client);
        client.read_tls(&mut &came[..]).unwrap();
        client.process_new_packets().unwrap();
    }
    session.take_peer();
    (session, took)
}

fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_ascii_whitespace().next().unwrap().parse::<usize>().unwrap() * 1024
}

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let files = Files {
        certificate: folder.path().join("tls.crt"),
        key: folder.path().join("tls.key"),
        client_authorities: None,
        asks_browsers: false,
    };
    std::fs::write(&files.certificate, cert.pem()).unwrap();
    std::fs::write(&files.key, signing_key.serialize_pem()).unwrap();
    let servers = Servers::load(&files, None).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(cert.pem().as_bytes()).unwrap()).unwrap();
    let client = || {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        Arc::new(builder.unwrap().with_root_certificates(roots.clone()).with_no_client_auth())
    };
    for is_resumed in [false, true] {
        let known = client();
        handshake(&known, &servers);
        let (mut sessions, mut times) = (Vec::with_capacity(SESSIONS as usize), Vec::new());
        let before = resident();
        for _ in 0..SESSIONS {
            // A client that was never here has no ticket.
            let config = if is_resumed { known.clone() } else { client() };
            let (session, took) = handshake(&config, &servers);
            sessions.push(session);
            times.push(took);
        }
        let bytes = (resident() - before) / sessions.len();
        times.sort_unstable();
        let what = if is_resumed { "resumed" } else { "full" };
        println!("{what:<8} median {:?} of CPU time, {bytes} bytes while idle", times[times.len() / 2]);
    }
}
