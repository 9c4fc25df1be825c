//! Attacks by connections that come and go, and by connections that do not speak MQTT. An attack that is
//! `short()` also belongs to the quick run of CI.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::Attack;
use crate::clock;
use crate::failure::{Outcome, While};
use crate::hostile::client::{Client, dial};
use crate::hostile::http;
use crate::hostile::packets::{CONNACK, Connect};
use crate::hostile::ring::Ring;
use crate::hostile::server::{FRIENDLY, Setup};
use crate::hostile::verdict::{AttackLimits, USUAL_LIMITS};

pub(super) const ATTACKS: &[Attack] = &[
    Attack::by_stranger(
        "open-files",
        "80 clients on two listeners of a server that may open 64 files",
        open_files,
    )
    .with(|| Setup { open_files: Some(64), second_listener: true, ..Setup::default() })
    // No limit for new clients, because the server cannot admit one without a free descriptor.
    .limits(AttackLimits { dial_ms: 0, log_lines_s: 2, ..USUAL_LIMITS })
    .in_short_run(),
    Attack::by_stranger(
        "one-address",
        "one address that opens 2,000 connections to a server that may open 1,024 files",
        |ring| hold(ring, ring.server.mqtt),
    )
    // By default addresses of this machine have no limit, because a proxy here would speak for many
    // clients.
    .with(|| Setup {
        open_files: Some(1_024),
        arguments: &["--unlimited-from=192.0.2.0/24"],
        ..Setup::default()
    })
    .in_short_run(),
    Attack::by_stranger(
        "one-address-http",
        "one address that opens 2,000 connections to the HTTP port of a server that may open 1,024 files",
        |ring| hold(ring, ring.server.http),
    )
    .with(|| Setup { open_files: Some(1_024), ..Setup::default() }),
    Attack::by_tenant(
        "keep-alive-drip",
        "50 clients that send a byte of a PUBLISH now and then, beyond their keep alive",
        drip,
    ),
    Attack::by_stranger(
        "connect-flood",
        "eight threads that connect with CONNECT and leave, as fast as they can",
        connect_flood,
    ),
    Attack::by_stranger("accept-flood", "eight threads that open connections and reset them", accept_flood),
    Attack::by_stranger(
        "unknown-brokers",
        "2,000 CONNECT packets for brokers that do not exist",
        unknown_brokers,
    )
    .in_short_run(),
    Attack::by_stranger(
        "garbage",
        "3,000 connections that send TLS, HTTP, SSH or nonsense to the MQTT ports",
        garbage,
    ),
    Attack::by_stranger(
        "gateway-strangers",
        "2,000 connections to the gateway's port from elsewhere",
        gateway_strangers,
    )
    .with(|| Setup { arguments: &["--gateway-from=127.0.0.1/32"], ..Setup::default() })
    .in_short_run(),
];

fn open_files(ring: &Ring<'_>) -> Outcome<()> {
    let mut clients = Vec::new();
    for number in 0..80 {
        let to = if number % 2 == 0 { ring.server.mqtt } else { ring.server.second };
        let Ok(stream) = dial(Ring::address(number), to) else { continue };
        let mut client = Client::new(stream);
        client.send(&ring.connect(&format!("client-{number}")).bytes());
        clients.push(client);
    }
    let cpu = ring.server.cpu_seconds();
    // Long enough to show a retry that schedules two more.
    let seconds = ring.full_or_short(12, 5);
    clock::pause_ms(1_000 * seconds as u64);
    let cpu = ring.server.cpu_seconds() - cpu;
    ring.note(format!("{} connections; the server took {cpu:.1} s of CPU in {seconds} s", clients.len()));
    Ok(())
}

/// Holds as many connections as the server has descriptors. Afterwards other clients must be able
/// to connect.
fn hold(ring: &Ring<'_>, to: SocketAddr) -> Outcome<()> {
    let streams: Vec<TcpStream> = (0..2_000).map_while(|_| dial(Ring::address(0), to).ok()).collect();
    clock::pause_ms(3_000);
    let mut friend =
        Client::new(dial(Ring::address(9_020), ring.server.mqtt).during("opening a friend's connection")?);
    friend.send(&Connect::new(FRIENDLY, "newcomer").bytes());
    let is_in = friend.wait_for(CONNACK, 2.0).is_some();
    ring.note(format!("{} connections were opened", streams.len()));
    ring.at_least("a newcomer from another address is let in", f64::from(u8::from(is_in)), 1.0, "");
    Ok(())
}

/// Sends single bytes, which must not hold a connection for ever: only whole packets renew the keep
/// alive.
fn drip(ring: &Ring<'_>) -> Outcome<()> {
    let connect = |number| Connect { keep_alive_s: 1, ..ring.connect(&format!("drip-{number}")) };
    let mut clients = ring.clients(50, connect);
    for byte in [0x30, 0x7F].into_iter().chain([0; 13]) {
        for client in &mut clients {
            client.send(&[byte]);
        }
        clock::pause_ms(400);
    }
    let open: usize = clients.iter_mut().map(|client| usize::from(!client.is_closed())).sum();
    ring.at_most("clients beyond their keep alive", open as f64, 0.0, "of 50 after 6 s");
    Ok(())
}

fn connect_flood(ring: &Ring<'_>) -> Outcome<()> {
    let until_ns = clock::now_ns() + clock::seconds_ns(4.0);
    let (taken, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    ring.crowd(8, |thread| {
        for number in (thread..).step_by(8).take_while(|_| clock::now_ns() < until_ns) {
            let connect = ring.connect(&format!("flood-{number}"));
            let Ok(stream) = dial(Ring::address(number), ring.server.mqtt) else { continue };
            let counter = if Client::over(stream, &connect).is_ok() { &taken } else { &refused };
            counter.fetch_add(1, Ordering::Relaxed);
        }
    });
    ring.note(format!("{} connects taken, {} refused", taken.into_inner(), refused.into_inner()));
    Ok(())
}

fn accept_flood(ring: &Ring<'_>) -> Outcome<()> {
    let until_ns = clock::now_ns() + clock::seconds_ns(3.0);
    let opened = AtomicUsize::new(0);
    ring.crowd(8, |thread| {
        for number in (thread..).step_by(8).take_while(|_| clock::now_ns() < until_ns) {
            let Ok(stream) = dial(Ring::address(number), ring.server.mqtt) else { continue };
            // With no linger time, closing sends a reset.
            let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
            opened.fetch_add(1, Ordering::Relaxed);
        }
    });
    ring.note(format!("{} connections", opened.into_inner()));
    Ok(())
}

fn unknown_brokers(ring: &Ring<'_>) -> Outcome<()> {
    let mut clients = Vec::new();
    for number in 0..2_000 {
        let mut client = Client::new(ring.stranger(number)?);
        client.send(&Connect::new(&format!("nobody{number}"), "stranger").bytes());
        clients.push(client);
    }
    let answered = clients.iter_mut().filter_map(|client| client.wait_for(CONNACK, 5.0)).count();
    ring.note(format!("{answered} were answered"));
    Ok(())
}

fn garbage(ring: &Ring<'_>) -> Outcome<()> {
    let hellos: [&[u8]; 5] = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xFC\x03\x03",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF",
        b"\0\0\0\0",
    ];
    let mut closed = 0;
    for number in 0..3_000 {
        let to = if number % 2 == 0 { ring.server.mqtt } else { ring.server.websocket };
        let Ok(mut stream) = dial(Ring::address(number), to) else { continue };
        let _ = stream.write_all(hellos[number % hellos.len()]);
        let _ = stream.set_read_timeout(Some(Duration::from_millis(2)));
        closed += usize::from(matches!(stream.read(&mut [0; 512]), Ok(0)));
    }
    ring.note(format!("{closed} were closed at once"));
    Ok(())
}

fn gateway_strangers(ring: &Ring<'_>) -> Outcome<()> {
    for number in 0..2_000 {
        drop(dial(Ring::address(number), ring.server.gateway));
    }
    clock::pause_ms(1_000);
    let healthy = http::get(ring.server.http, "/healthz").is_some_and(|answer| answer.status == 200);
    ring.at_least("answers of /healthz afterwards", f64::from(u8::from(healthy)), 1.0, "");
    Ok(())
}
