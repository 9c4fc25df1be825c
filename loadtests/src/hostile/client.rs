//! A blocking MQTT client for the attacks and for the clients that are measured beside them. Every
//! wait has a timeout, so a server that never answers cannot stop the run.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use super::packets::{self, CONNACK, Connect, DISCONNECT, SUBACK};
use crate::clock;
use crate::failure::{Failure, Outcome, While};
use crate::link::is_pause;
use crate::packet::next_frame;

/// Longest write; after it the server counts as not reading.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait for an answer, seconds. The longest wait that an attack has caused was 17 s.
pub(super) const ANSWER_S: f64 = 20.0;
const READ_BYTES: usize = 64 * 1024;

pub(super) struct Packet {
    /// The first byte: type and flags.
    pub(super) first: u8,
    pub(super) body: Vec<u8>,
}

impl Packet {
    pub(super) fn kind(&self) -> u8 {
        self.first >> 4
    }
}

pub(super) struct Client {
    pub(super) stream: TcpStream,
    /// Received bytes that are not read as packets yet.
    held: Vec<u8>,
    closed: bool,
    last_id: u16,
}

pub(super) fn dial(from: Ipv4Addr, to: SocketAddr) -> io::Result<TcpStream> {
    dial_with_buffer(from, to, None)
}

/// A small receive buffer (`receive_bytes`) lets the server notice soon that the client does not
/// read.
pub(super) fn dial_with_buffer(
    from: Ipv4Addr,
    to: SocketAddr,
    receive_bytes: Option<usize>,
) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((from, 0)).into())?;
    if let Some(bytes) = receive_bytes {
        socket.set_recv_buffer_size(bytes)?;
    }
    socket.connect_timeout(&to.into(), Duration::from_secs(10))?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
    Ok(stream)
}

impl Client {
    /// # Errors
    /// The server refused the client; the error has its reason code.
    pub(super) fn connect(from: Ipv4Addr, to: SocketAddr, connect: &Connect) -> Outcome<Self> {
        let stream = dial(from, to).during("opening a connection")?;
        Self::over(stream, connect)
    }

    /// As [`Self::connect`], over an open connection.
    pub(super) fn over(stream: TcpStream, connect: &Connect) -> Outcome<Self> {
        let mut client = Self::new(stream);
        client.stream.write_all(&connect.bytes()).during("sending CONNECT")?;
        match client.wait_for(CONNACK, ANSWER_S) {
            Some(packet) if packet.body.get(1) == Some(&0) => Ok(client),
            Some(packet) => Err(Failure::new(format!(
                "{} was refused: {:#04x}",
                connect.client_id,
                packet.body.get(1).unwrap_or(&0)
            ))),
            None => Err(Failure::new(format!("{} got no CONNACK", connect.client_id))),
        }
    }

    pub(super) fn new(stream: TcpStream) -> Self {
        Self { stream, held: Vec::new(), closed: false, last_id: 0 }
    }

    /// Returns false when the server has closed, or has not read for [`WRITE_TIMEOUT`].
    pub(super) fn send(&mut self, bytes: &[u8]) -> bool {
        !self.closed && self.stream.write_all(bytes).is_ok()
    }

    /// `None` when the time is over or the server has closed.
    pub(super) fn read(&mut self, until_ns: u64) -> Option<Packet> {
        loop {
            if let Ok(Some(frame)) = next_frame(&self.held) {
                let packet = Packet { first: frame.first, body: frame.body.to_vec() };
                let length = frame.length;
                self.held.drain(..length);
                return Some(packet);
            }
            let left_ns = until_ns.saturating_sub(clock::now_ns());
            if left_ns == 0 || self.closed {
                return None;
            }
            let timeout = Duration::from_nanos(left_ns).max(Duration::from_micros(100));
            let mut buffer = vec![0; READ_BYTES];
            let read =
                self.stream.set_read_timeout(Some(timeout)).and_then(|()| self.stream.read(&mut buffer));
            match read {
                Ok(0) => self.closed = true,
                Ok(count) => self.held.extend_from_slice(&buffer[..count]),
                Err(error) if is_pause(&error) => {}
                Err(_) => self.closed = true,
            }
        }
    }

    /// Waits for a packet of this kind and discards those before it; a DISCONNECT ends the wait.
    pub(super) fn wait_for(&mut self, kind: u8, seconds: f64) -> Option<Packet> {
        let until_ns = clock::now_ns() + clock::seconds_ns(seconds);
        loop {
            let packet = self.read(until_ns)?;
            if packet.kind() == kind {
                return Some(packet);
            }
            if packet.kind() == DISCONNECT {
                return None;
            }
        }
    }

    /// Sends all filters in one packet; returns the number of granted filters.
    pub(super) fn subscribe<F: AsRef<str>>(&mut self, filters: &[F], qos: u8) -> usize {
        let id = self.next_id();
        if !self.send(&packets::subscribe(id, filters, qos, 0)) {
            return 0;
        }
        let granted =
            |packet: Packet| packet.body.iter().rev().take(filters.len()).filter(|code| **code < 3).count();
        self.wait_for(SUBACK, ANSWER_S).map_or(0, granted)
    }

    pub(super) fn next_id(&mut self) -> u16 {
        // Packet id 0 is not allowed.
        self.last_id = self.last_id.checked_add(1).unwrap_or(1);
        self.last_id
    }

    pub(super) fn is_closed(&mut self) -> bool {
        // Reads to the end, because a DISCONNECT may come before it.
        while self.read(clock::now_ns() + 1_000_000).is_some() {}
        self.closed
    }
}
