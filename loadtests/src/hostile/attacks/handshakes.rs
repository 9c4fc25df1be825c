//! Attacks by connections that send an incomplete packet or request: they measure what each
//! connection costs the server.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::Attack;
use crate::clock;
use crate::failure::{Outcome, While};
use crate::hostile::client::dial;
use crate::hostile::packets::{self, Connect, Publish};
use crate::hostile::ring::Ring;
use crate::hostile::server::Setup;
use crate::hostile::traffic::flood;
use crate::hostile::verdict::{AttackLimits, USUAL_LIMITS};

/// Most memory that a connection with an incomplete packet or request may take, bytes.
const CONNECTION_BYTES_MAX: f64 = 8192.0;

pub(super) const ATTACKS: &[Attack] = &[
    Attack::by_stranger(
        "connect-prefix",
        "6 bytes of a CONNECT in two writes, 2,000 connections",
        connect_prefix,
    )
    .in_short_run(),
    Attack::by_stranger(
        "connect-drip",
        "3,000 connections that send one byte of a CONNECT every 200 ms",
        connect_drip,
    ),
    Attack::by_stranger(
        "connect-bulk",
        "600 connections with 240 kB of a CONNECT that never ends, to a server with 256 MiB",
        connect_bulk,
    )
    .with(with_little_memory)
    .limits(AttackLimits { peak_mib: 48, ..USUAL_LIMITS })
    .in_short_run(),
    Attack::by_tenant(
        "publish-prefix",
        "500 clients with 6 bytes of a PUBLISH of a megabyte in two writes",
        publish_prefix,
    ),
    Attack::by_tenant(
        "publish-bulk",
        "300 clients that hold back the last byte of a PUBLISH of 900 kB, to a server with 256 MiB",
        publish_bulk,
    )
    .with(with_little_memory)
    .limits(AttackLimits { peak_mib: 64, ..USUAL_LIMITS })
    .in_short_run(),
    Attack::by_stranger(
        "websocket-head",
        "1,000 WebSocket requests with 8,000 bytes that never end",
        websocket_head,
    ),
    Attack::by_stranger(
        "websocket-pings",
        "eight WebSockets without CONNECT that flood pings and do not read",
        websocket_pings,
    )
    .limits(AttackLimits { peak_mib: 64, ..USUAL_LIMITS })
    .in_short_run(),
    Attack::by_stranger(
        "websocket-origin",
        "a page of another site that opens a WebSocket",
        websocket_origin,
    ),
    Attack::by_tenant(
        "websocket-bytes",
        "four WebSocket clients whose frames have one byte each",
        websocket_bytes,
    ),
];

fn strangers(ring: &Ring<'_>, count: usize) -> Outcome<Vec<TcpStream>> {
    (0..count).map(|number| ring.stranger(number)).collect()
}

fn connect_prefix(ring: &Ring<'_>) -> Outcome<()> {
    let before_kb = ring.server.memory().rss_kb;
    let mut strangers = strangers(ring, ring.full_or_short(2_000, 1_000))?;
    write_to_all(&mut strangers, &[0x10, 0xF0, 0xFF, 0x3F]);
    clock::pause_ms(200);
    write_to_all(&mut strangers, &[0, 4]);
    ring.check_bytes_each("memory of a stranger", before_kb, strangers.len(), CONNECTION_BYTES_MAX);
    Ok(())
}

fn write_to_all(streams: &mut [TcpStream], bytes: &[u8]) {
    streams.iter_mut().for_each(|stream| drop(stream.write_all(bytes)));
}

fn connect_drip(ring: &Ring<'_>) -> Outcome<()> {
    let before_kb = ring.server.memory().rss_kb;
    let mut strangers = strangers(ring, 3_000)?;
    let connect = ring.connect(&"x".repeat(60)).bytes();
    for byte in connect.chunks(1).take(25) {
        write_to_all(&mut strangers, byte);
        clock::pause_ms(200);
    }
    ring.check_bytes_each("memory of a stranger", before_kb, strangers.len(), CONNECTION_BYTES_MAX);
    Ok(())
}

/// Incomplete packets may use 32 MiB of it, a quarter of that before authentication.
fn with_little_memory() -> Setup {
    Setup { arguments: &["--memory-max=268435456"], ..Setup::default() }
}

/// A larger packet than the server accepts would be refused by its header.
fn connect_bulk(ring: &Ring<'_>) -> Outcome<()> {
    let mut strangers = strangers(ring, 600)?;
    let connect = Connect { properties: packets::user_properties(2_600, 90), ..ring.connect("bulk") }.bytes();
    write_to_all(&mut strangers, &connect[..connect.len() - 1]);
    clock::pause_ms(1_000);
    let open = strangers.iter().filter(|stream| is_open(stream)).count();
    ring.at_most("connections that stayed", open as f64, 100.0, "of 600");
    Ok(())
}

/// Whether the server has neither closed the connection nor sent anything.
fn is_open(stream: &TcpStream) -> bool {
    let _ = stream.set_nonblocking(true);
    matches!(stream.peek(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
}

fn publish_bulk(ring: &Ring<'_>) -> Outcome<()> {
    let mut clients = ring.clients(300, |number| ring.connect(&format!("bulk-{number}")));
    let publish = Publish { topic: "bulk", payload: &vec![b'x'; 900_000], ..Publish::default() }.bytes();
    for client in &mut clients {
        client.send(&publish[..publish.len() - 1]);
    }
    clock::pause_ms(1_000);
    let open = clients.iter_mut().map(|client| usize::from(!client.is_closed())).sum::<usize>();
    ring.at_most("clients that stayed", open as f64, 50.0, "of 300");
    Ok(())
}

fn publish_prefix(ring: &Ring<'_>) -> Outcome<()> {
    let mut clients = ring.clients(500, |number| ring.connect(&format!("half-{number}")));
    let before_kb = ring.server.memory().rss_kb;
    for half in [&[0x30, 0xF0, 0xFF, 0x3F][..], &[0, 4]] {
        for client in &mut clients {
            client.send(half);
        }
        clock::pause_ms(200);
    }
    ring.check_bytes_each("memory of a client", before_kb, clients.len(), CONNECTION_BYTES_MAX);
    Ok(())
}

const WEBSOCKET_REQUEST: &str = "GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: mqtt\r\n";

fn websocket(ring: &Ring<'_>, number: usize) -> Outcome<TcpStream> {
    let mut stream = dial(Ring::address(number), ring.server.websocket).during("opening a WebSocket")?;
    stream.write_all(format!("{WEBSOCKET_REQUEST}\r\n").as_bytes()).during("sending the request")?;
    clock::pause_ms(20);
    Ok(stream)
}

fn websocket_head(ring: &Ring<'_>) -> Outcome<()> {
    let before_kb = ring.server.memory().rss_kb;
    let head = format!("{WEBSOCKET_REQUEST}X: {}", "x".repeat(8_000 - WEBSOCKET_REQUEST.len()));
    let mut strangers = Vec::new();
    for number in 0..1_000 {
        let mut stream = dial(Ring::address(number), ring.server.websocket).during("opening a WebSocket")?;
        let _ = stream.write_all(head.as_bytes());
        strangers.push(stream);
    }
    // The head itself, and the connection's own memory.
    ring.check_bytes_each("memory of a stranger", before_kb, strangers.len(), 10_240.0);
    Ok(())
}

fn websocket_origin(ring: &Ring<'_>) -> Outcome<()> {
    let mut taken = 0;
    for origin in ["https://evil.example", "null", "http://localhost.evil.example"] {
        let mut stream = dial(Ring::address(0), ring.server.websocket).during("opening a WebSocket")?;
        let request = format!("{WEBSOCKET_REQUEST}Origin: {origin}\r\n\r\n");
        stream.write_all(request.as_bytes()).during("sending the request")?;
        let _ = stream.set_read_timeout(Some(Duration::from_secs(2)));
        let mut answer = [0; 64];
        let read = stream.read(&mut answer).unwrap_or(0);
        taken += u32::from(answer[..read].starts_with(b"HTTP/1.1 101"));
    }
    ring.at_most("foreign pages that were let in", f64::from(taken), 0.0, "of 3");
    Ok(())
}

fn websocket_pings(ring: &Ring<'_>) -> Outcome<()> {
    let ping = [&[0x89, 0x80 | 125, 0, 0, 0, 0][..], &[b'x'; 125]].concat().repeat(512);
    ring.crowd(8, |number| {
        let Ok(mut stream) = websocket(ring, number) else { return };
        flood(&mut stream, &ping, if ring.short { 1.5 } else { 4.0 });
    });
    Ok(())
}

fn websocket_bytes(ring: &Ring<'_>) -> Outcome<()> {
    let frames =
        |bytes: &[u8]| bytes.iter().flat_map(|byte| [0x82, 0x81, 0, 0, 0, 0, *byte]).collect::<Vec<u8>>();
    ring.crowd(4, |number| {
        let Ok(mut stream) = websocket(ring, number) else { return };
        let _ = stream.write_all(&frames(&ring.connect(&format!("bytes-{number}")).bytes()));
        clock::pause_ms(100);
        let publishes = crate::hostile::traffic::messages("w", 1_000, 2);
        flood(&mut stream, &frames(&publishes), 3.0);
    });
    Ok(())
}
