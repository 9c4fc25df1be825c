//! A client's socket with its input and output buffers.

use std::io::{ErrorKind, Read, Result, Write};
use std::net::SocketAddr;
use std::time::Duration;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

use millrace_torture::history::ConnectionId;

const READ_BYTES: usize = 16 * 1024;
/// Reads in one turn, so that a busy socket does not delay the others.
const READS_MAX: usize = 16;
/// A listening server on loopback accepts a connection at once.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) struct Link {
    stream: TcpStream,
    pub(crate) pod: usize,
    pub(crate) connection: ConnectionId,
    pub(crate) inbox: Vec<u8>,
    outbox: Vec<u8>,
    /// The socket may have data: the poll has reported it, and no read since has found the socket empty.
    pub(crate) readable: bool,
    /// A client that plays a slow reader reads nothing before this time.
    pub(crate) paused_until_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    Open,
    Ended,
}

impl Link {
    pub(crate) fn open(
        (pod, address): (usize, SocketAddr),
        connection: ConnectionId,
        registry: &Registry,
    ) -> Result<Self> {
        let stream = std::net::TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)?;
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let mut stream = TcpStream::from_std(stream);
        let token = Token(connection.0 as usize);
        registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
        let (inbox, outbox) = (Vec::new(), Vec::new());
        Ok(Self { stream, pod, connection, inbox, outbox, readable: true, paused_until_ms: 0 })
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.outbox.extend_from_slice(bytes);
    }

    /// Writes as much as the socket takes. Ignores a broken socket, because the next read returns
    /// the answers that are still in it, and then the end.
    pub(crate) fn flush(&mut self) {
        while !self.outbox.is_empty() {
            match self.stream.write(&self.outbox) {
                Ok(written) => drop(self.outbox.drain(..written)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => return self.outbox.clear(),
            }
        }
    }

    pub(crate) fn read(&mut self) -> Reading {
        let mut chunk = [0; READ_BYTES];
        for _ in 0..READS_MAX {
            match self.stream.read(&mut chunk) {
                Ok(0) => return Reading::Ended,
                Ok(bytes) => self.inbox.extend_from_slice(&chunk[..bytes]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.readable = false;
                    return Reading::Open;
                }
                Err(_) => return Reading::Ended,
            }
        }
        Reading::Open
    }

    /// Writes what is left and throws away what arrives, for a connection whose client has gone on to another one.
    pub(crate) fn drain(&mut self) -> Reading {
        self.flush();
        let reading = self.read();
        self.inbox.clear();
        reading
    }
}
