//! One MQTT connection of the load generator. [`Hello`] opens it and blocks; a [`Link`] then reads and writes without blocking.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::failure::{Failure, Outcome, While};
use crate::packet;

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The kernel would let the send buffer grow to megabytes, and a flood would then measure how long a
/// slow broker takes to empty it.
const SEND_BUFFER_BYTES: usize = 128 * 1024;
/// Ports of one source address, all below the range from which the kernel chooses ports.
const CONNECTIONS_PER_SOURCE: u32 = 30_000;
const FIRST_PORT: u32 = 2048;
/// Ports to try, because a listener on all addresses may use one.
const TRIES_MAX: u32 = 100;

/// Whether a read or write of a blocking socket with a time-out may be tried again.
pub(crate) fn is_pause(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// Source address in 127.0.0.0/8 and source port of connection `number` of process `pid`. An
/// address has too few ports for the large scenarios, and blocks a port for a minute that it closed
/// first. So every process, and every few thousand connections, get an address of their own. The
/// port is chosen here, because the kernel would search tens of thousands of used ports for a free
/// one, which would be most of the measured cost of a reconnect.
fn source(pid: u32, number: u32) -> SocketAddr {
    let address = number / CONNECTIONS_PER_SOURCE;
    let bytes = [16 + pid % 200, pid / 200 % 250, 2 + address % 250];
    let [second, third, fourth] = bytes.map(|byte| byte as u8);
    let port = (FIRST_PORT + number % CONNECTIONS_PER_SOURCE) as u16;
    (Ipv4Addr::new(127, second, third, fourth), port).into()
}

pub(crate) fn socket() -> std::io::Result<Socket> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_tcp_nodelay(true)?;
    let mut tries = 0;
    loop {
        let source = source(std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        tries += 1;
        match socket.bind(&SockAddr::from(source)) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && tries < TRIES_MAX => {}
            bound => return bound.map(|()| socket),
        }
    }
}

pub(crate) struct Hello<'a> {
    pub(crate) client_id: &'a str,
    pub(crate) clean_session: bool,
    pub(crate) subscription: Option<(&'a str, u8)>,
}

impl Hello<'_> {
    /// Connects and waits for the broker's answers. Reads not a byte more, so that messages stay in
    /// the socket for the measured part of the run.
    pub(crate) fn open(&self, broker: SocketAddr) -> Outcome<TcpStream> {
        self.try_open(broker).during(&format!("client {} to {broker}", self.client_id))
    }

    fn try_open(&self, broker: SocketAddr) -> Result<TcpStream, Failure> {
        let socket = socket().during("opening a socket")?;
        socket.set_send_buffer_size(SEND_BUFFER_BYTES).during("sizing its send buffer")?;
        socket.connect_timeout(&broker.into(), HANDSHAKE_TIMEOUT).during("connecting")?;
        let mut stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(HANDSHAKE_TIMEOUT)).during("setting a time-out")?;

        let mut connack = [0; packet::CONNACK_BYTES];
        stream.write_all(&packet::connect(self.client_id, self.clean_session)).during("sending CONNECT")?;
        stream.read_exact(&mut connack).during("waiting for CONNACK")?;
        if connack[0] != 0x20 || connack[3] != 0 {
            return Err(Failure::new(format!("the broker answered CONNECT with {connack:?}")));
        }
        if let Some((filter, qos)) = self.subscription {
            let mut suback = [0; packet::SUBACK_BYTES];
            stream.write_all(&packet::subscribe(1, filter, qos)).during("sending SUBSCRIBE")?;
            stream.read_exact(&mut suback).during("waiting for SUBACK")?;
            if suback[0] != 0x90 || suback[4] != qos {
                return Err(Failure::new(format!("the broker answered SUBSCRIBE with {suback:?}")));
            }
        }
        Ok(stream)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    Drained,
    More,
    Closed,
}

pub(crate) struct Link {
    pub(crate) stream: mio::net::TcpStream,
    /// The incomplete packet at the end of the last read.
    carry: Vec<u8>,
    /// Bytes that the socket did not take yet, from `pending_at` on.
    pending: Vec<u8>,
    pending_at: usize,
    /// False from a short write until the socket is writable again.
    pub(crate) writable: bool,
    pub(crate) open: bool,
}

impl Link {
    pub(crate) fn new(stream: TcpStream) -> Outcome<Self> {
        stream.set_nonblocking(true).during("making a socket non-blocking")?;
        Ok(Self::accepted(mio::net::TcpStream::from_std(stream)))
    }

    pub(crate) fn accepted(stream: mio::net::TcpStream) -> Self {
        Self { stream, carry: Vec::new(), pending: Vec::new(), pending_at: 0, writable: true, open: true }
    }

    pub(crate) fn waiting_bytes(&self) -> usize {
        self.pending.len() - self.pending_at
    }

    /// Reads once into `buffer`, behind the rest of the last read, and returns the bytes to parse. The buffer must be longer
    /// than the longest packet.
    pub(crate) fn fill<'b>(&mut self, buffer: &'b mut [u8]) -> (&'b [u8], Filled) {
        let kept = self.carry.len();
        buffer[..kept].copy_from_slice(&self.carry);
        self.carry.clear();
        loop {
            match self.stream.read(&mut buffer[kept..]) {
                Ok(0) => {
                    self.open = false;
                    return (&buffer[..kept], Filled::Closed);
                }
                Ok(read) => {
                    let all = kept + read;
                    let filled = if all == buffer.len() { Filled::More } else { Filled::Drained };
                    return (&buffer[..all], filled);
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return (&buffer[..kept], Filled::Drained),
                Err(_) => {
                    self.open = false;
                    return (&buffer[..kept], Filled::Closed);
                }
            }
        }
    }

    /// Keeps the incomplete packet at the end of the bytes from [`Self::fill`].
    pub(crate) fn keep(&mut self, rest: &[u8]) {
        self.carry.extend_from_slice(rest);
    }

    /// Writes once, and returns the number of bytes taken. A closed socket closes the link.
    pub(crate) fn write_some(&mut self, bytes: &[u8]) -> usize {
        loop {
            match self.stream.write(bytes) {
                Ok(taken) => {
                    self.writable = taken == bytes.len();
                    return taken;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    self.writable = false;
                    return 0;
                }
                Err(_) => {
                    self.writable = false;
                    self.open = false;
                    return 0;
                }
            }
        }
    }

    /// Closes the sending side; the broker's bytes can still be read.
    pub(crate) fn end_of_sending(&self) {
        // Fails only when the broker has closed already, which the next read notices.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Keeps bytes that must be written before anything else.
    pub(crate) fn hold(&mut self, rest: &[u8]) {
        self.pending.extend_from_slice(rest);
    }

    pub(crate) fn write_or_hold(&mut self, bytes: &[u8]) {
        let taken = if self.flush() { self.write_some(bytes) } else { 0 };
        self.hold(&bytes[taken..]);
    }

    /// Returns true when no bytes are left.
    pub(crate) fn flush(&mut self) -> bool {
        if self.pending.is_empty() || !self.writable {
            return self.pending.is_empty();
        }
        let mut pending = std::mem::take(&mut self.pending);
        self.pending_at += self.write_some(&pending[self.pending_at..]);
        if self.pending_at == pending.len() {
            self.pending_at = 0;
            pending.clear();
        } else if self.pending_at > pending.len() / 2 {
            // Moved only once the rest is the smaller part, which keeps the cost of a byte
            // constant.
            pending.drain(..self.pending_at);
            self.pending_at = 0;
        }
        self.pending = pending;
        self.pending.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_loopback_and_no_two_connections_share_one() {
        for pid in [1, 4_194_304] {
            let sources = [0, 29_999, 30_000, 900_000].map(|number| source(pid, number));
            assert!(sources.iter().all(|source| source.ip().is_loopback()));
            assert_eq!((sources[0].ip(), sources[1].port()), (sources[1].ip(), 32_047));
            assert!(sources[1].ip() != sources[2].ip() && sources[2].port() == sources[0].port());
        }
        assert_ne!(source(7, 0), source(8, 0));
    }
}
