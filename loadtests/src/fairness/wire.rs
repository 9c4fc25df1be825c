//! Connections to the server as its gateway makes them, and the loops that send by the clock and
//! receive.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

use socket2::{Domain, SockRef, Socket, Type};

use crate::clock;
use crate::failure::{Failure, Outcome, While};
use crate::latency::Histogram;
use crate::link::is_pause;
use crate::packet::{self, Stamp, next_frame};

/// Timeout of a read, after which the reader looks whether the run is over.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(10);
const READ_BYTES: usize = 64 * 1024;
/// Most units of work in one write.
const BATCH: u64 = 64;

/// A broker behind the gateway listener of 127.0.0.1.
#[derive(Clone)]
pub(super) struct TenantBroker {
    pub(super) gateway_port: u16,
    pub(super) server_name: String,
}

/// The work of one connection, or of one worker with several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) sent: u64,
    /// Answers that say that the server has done a unit of work.
    pub(super) answered: u64,
}

impl TenantBroker {
    /// Sends PROXY header and CONNECT; does not wait for the CONNACK.
    pub(super) fn dial(&self, from: Ipv4Addr, client_id: &str) -> Outcome<TcpStream> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).during("making a socket")?;
        socket.bind(&SocketAddr::from((from, 0)).into()).during("binding a socket")?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.gateway_port));
        socket.connect_timeout(&address.into(), PATIENCE).during("connecting to the gateway's port")?;
        let mut stream = TcpStream::from(socket);
        stream.set_nodelay(true).during("setting TCP_NODELAY")?;
        let hello = [proxy_header(&self.server_name), packet::connect(client_id, true)].concat();
        stream.write_all(&hello).during("sending CONNECT")?;
        Ok(stream)
    }

    /// Connects and subscribes to the filters.
    pub(super) fn open(&self, client_id: &str, filters: &[String], qos: u8) -> Outcome<TcpStream> {
        let mut stream = self.dial(Ipv4Addr::LOCALHOST, client_id)?;
        stream.set_read_timeout(Some(PATIENCE)).during("setting a time-out")?;
        let mut connack = [0; packet::CONNACK_BYTES];
        stream.read_exact(&mut connack).during("waiting for CONNACK")?;
        if connack[3] != 0 {
            let name = &self.server_name;
            return Err(Failure::new(format!("{name} answered CONNECT with {connack:?}")));
        }
        for filter in filters {
            stream.write_all(&packet::subscribe(1, filter, qos)).during("sending SUBSCRIBE")?;
            // Messages of an earlier filter may come first.
            let suback = loop {
                let (first, body) = read_packet(&mut stream).during("waiting for SUBACK")?;
                if first >> 4 != packet::PUBLISH {
                    break (first, body);
                }
            };
            if suback.0 >> 4 != packet::SUBACK || suback.1.last().is_none_or(|code| *code > 2) {
                return Err(Failure::new(format!("the server answered SUBSCRIBE with {suback:?}")));
            }
        }
        stream.set_read_timeout(Some(LOOK_EVERY)).during("setting a time-out")?;
        stream.set_write_timeout(Some(LOOK_EVERY)).during("setting a time-out")?;
        Ok(stream)
    }
}

fn read_packet(stream: &mut impl Read) -> std::io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 2];
    stream.read_exact(&mut head)?;
    let (mut length, mut shift, mut last) = (usize::from(head[1] & 0x7F), 0, head[1]);
    while last & 0x80 != 0 && shift < 21 {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        shift += 7;
        last = byte[0];
        length |= usize::from(last & 0x7F) << shift;
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok((head[0], body))
}

/// Makes the close of the connection a reset, so that the server forgets what it has not read.
/// Otherwise the work of one phase continues in the next ones.
pub(super) fn resets_on_close(stream: &TcpStream) {
    // If it fails, later phases show higher figures.
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}

/// Calls `work` with the units that are due, `rate` a second by the clock, until `for_ns` have
/// passed, `done` is set, or `work` returns false. Returns the number of units.
pub(super) fn by_the_clock(
    rate: u64,
    for_ns: u64,
    done: &AtomicBool,
    mut work: impl FnMut(std::ops::Range<u64>) -> bool,
) -> u64 {
    let (start_ns, mut sent) = (clock::now_ns(), 0u64);
    loop {
        let passed_ns = clock::now_ns() - start_ns;
        if passed_ns >= for_ns || done.load(Ordering::Relaxed) {
            return sent;
        }
        let due = due(rate, passed_ns);
        if sent >= due {
            clock::pause_ms(1);
            continue;
        }
        let next = due.min(sent + BATCH);
        if !work(sent..next) {
            return sent;
        }
        sent = next;
    }
}

fn due(rate: u64, passed_ns: u64) -> u64 {
    u64::try_from(u128::from(passed_ns) * u128::from(rate) / 1_000_000_000).unwrap_or(u64::MAX)
}

/// Sends `rate` units a second, as far as the socket takes them, and counts the answers of one kind.
pub(super) fn send(
    stream: &TcpStream,
    rate: u64,
    for_ns: u64,
    done: &AtomicBool,
    answer: u8,
    mut unit: impl FnMut(u64, &mut Vec<u8>),
) -> Outcome<Work> {
    let answers = stream.try_clone().during("sharing a socket")?;
    let reader_done = Arc::new(AtomicBool::new(false));
    let reader = {
        let done = reader_done.clone();
        spawn(move || count_answers(&answers, answer, &done))
    };
    let mut batch = Vec::new();
    let sent = by_the_clock(rate, for_ns, done, |numbers| {
        batch.clear();
        numbers.for_each(|number| unit(number, &mut batch));
        write_all(stream, &batch, done)
    });
    reader_done.store(true, Ordering::Relaxed);
    Ok(Work { sent, answered: joined(reader)? })
}

fn count_answers(stream: &TcpStream, kind: u8, done: &AtomicBool) -> u64 {
    let mut found = 0;
    each_frame(stream, done, |frame| {
        found += u64::from(frame.kind() == kind);
        None
    });
    found
}

/// Returns false when `done` is set or the server has closed.
fn write_all(mut stream: &TcpStream, mut bytes: &[u8], done: &AtomicBool) -> bool {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(taken) => bytes = &bytes[taken..],
            Err(error) if is_pause(&error) => {}
            Err(_) => return false,
        }
        if !bytes.is_empty() && done.load(Ordering::Relaxed) {
            return false;
        }
    }
    true
}

/// Receives and acknowledges until `done` is set. Returns the latencies and the number of live
/// messages, that is without replayed retained messages.
pub(super) fn read(stream: &TcpStream, done: &AtomicBool) -> (Histogram, u64) {
    let (mut latency, mut delivered) = (Histogram::new(), 0);
    each_frame(stream, done, |frame| {
        let (id, payload) = frame.publish().filter(|_| frame.kind() == packet::PUBLISH)?;
        if frame.first & packet::RETAIN == 0 {
            delivered += 1;
            let now_ns = clock::now_ns();
            let stamp = Stamp::read(payload);
            stamp.into_iter().for_each(|stamp| latency.record(now_ns.saturating_sub(stamp.sent_ns)));
        }
        (id != 0).then(|| packet::puback(id))
    });
    (latency, delivered)
}

/// Gives each received packet to `take`, and sends back what it returns.
fn each_frame(
    mut stream: &TcpStream,
    done: &AtomicBool,
    mut take: impl FnMut(&packet::Frame<'_>) -> Option<[u8; 4]>,
) {
    let (mut buffer, mut end, mut acks) = (vec![0; READ_BYTES], 0, Vec::new());
    while !done.load(Ordering::Relaxed) {
        match stream.read(&mut buffer[end..]) {
            Ok(0) => break,
            Ok(read) => end += read,
            Err(error) if is_pause(&error) => continue,
            Err(_) => break,
        }
        let mut at = 0;
        while let Ok(Some(frame)) = next_frame(&buffer[at..end]) {
            acks.extend(take(&frame).into_iter().flatten());
            at += frame.length;
        }
        buffer.copy_within(at..end, 0);
        end -= at;
        // A failure is ignored: acknowledgements that the socket does not take are missing, and
        // then the run fails.
        let _ = stream.write_all(&acks);
        acks.clear();
    }
}

pub(super) fn joined<T>(thread: JoinHandle<T>) -> Outcome<T> {
    thread.join().map_err(|_| Failure::new("a thread of the driver panicked"))
}

/// A PROXY protocol header, version 2, of a client with this server name (`PP2_TYPE_AUTHORITY`).
fn proxy_header(server_name: &str) -> Vec<u8> {
    let name = server_name.as_bytes();
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11".to_vec();
    let length = 12 + 3 + name.len();
    header.extend_from_slice(&u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes());
    header.extend_from_slice(&[127, 0, 0, 1, 127, 0, 0, 1, 0xD4, 0x31, 0x22, 0xB3, 0x02]);
    header.extend_from_slice(&u16::try_from(name.len()).unwrap_or(u16::MAX).to_be_bytes());
    header.extend_from_slice(name);
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_says_its_length_and_the_server() {
        let header = proxy_header("a.mqtt.test");
        assert_eq!(usize::from(u16::from_be_bytes([header[14], header[15]])), header.len() - 16);
        assert!(header.ends_with(b"\x02\0\x0Ba.mqtt.test"));
    }

    #[test]
    fn a_packet_is_read_whole_and_no_further() {
        let bytes = [&[0x30, 0x80, 1][..], &[7; 128], &[0x90, 3, 0, 1, 0]].concat();
        let mut stream = &bytes[..];
        assert_eq!(read_packet(&mut stream).unwrap(), (0x30, vec![7; 128]));
        assert_eq!(read_packet(&mut stream).unwrap(), (0x90, vec![0, 1, 0]));
        assert!(read_packet(&mut stream).is_err());
    }

    #[test]
    fn units_are_due_by_the_clock_and_each_once() {
        assert_eq!((due(500, 1_000_000_000), due(500, 1_999_999), due(0, u64::MAX)), (500, 0, 0));
        let (mut next, done) = (0, AtomicBool::new(false));
        let sent = by_the_clock(1_000_000, u64::MAX, &done, |numbers| {
            assert_eq!(numbers.start, next);
            next = numbers.end;
            done.store(next > 1_000, Ordering::Relaxed);
            true
        });
        assert_eq!(sent, next);
    }
}
