//! A connection's socket, plain or with TLS, behind one interface.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use rustls::ServerConfig;

use crate::tls::session::{Peer, TlsSession};

#[derive(Debug)]
pub struct Socket {
    tcp: TcpStream,
    tls: Option<Box<TlsSession>>,
}

impl Socket {
    pub fn plain(tcp: TcpStream) -> Self {
        Self { tcp, tls: None }
    }

    pub fn tls(tcp: TcpStream, config: Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        Ok(Self { tcp, tls: Some(Box::new(TlsSession::new(config)?)) })
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.peer_addr()
    }

    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// True during a TLS handshake, whose packets cost far more than others.
    pub fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    /// True when a read returns data that the kernel no longer has.
    pub fn has_unread(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.has_unread())
    }

    /// Bytes held of a TLS record whose rest has not arrived yet.
    pub fn incomplete_bytes(&self) -> usize {
        self.tls.as_ref().map_or(0, |tls| tls.incomplete_bytes())
    }

    /// Bytes besides plaintext of the TLS records read since the last call, 22 each: a caller can charge for many tiny records.
    pub fn take_record_overhead(&mut self) -> usize {
        self.tls.as_mut().map_or(0, |tls| tls.take_record_overhead())
    }

    /// True when a flush is needed, even if the caller has nothing to write.
    pub fn has_unsent(&self) -> bool {
        self.unsent_bytes() > 0
    }

    pub fn unsent_bytes(&self) -> usize {
        self.tls.as_ref().map_or(0, |tls| tls.unsent_bytes())
    }

    /// `Some` once, after the handshake.
    pub fn take_peer(&mut self) -> Option<Peer> {
        self.tls.as_mut()?.take_peer()
    }

    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut self.tcp, token, Interest::READABLE | Interest::WRITABLE)
    }

    pub fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        registry.deregister(&mut self.tcp)
    }

    pub fn close_tls(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.close(&mut self.tcp);
        }
    }

    pub fn shutdown(&mut self) -> io::Result<()> {
        self.close_tls();
        self.tcp.shutdown(Shutdown::Write)
    }
}

impl Read for Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.tcp.read(into),
            Some(tls) => tls.read(&mut self.tcp, into),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.tcp.write(bytes),
            Some(tls) => tls.write(&mut self.tcp, &[IoSlice::new(bytes)]),
        }
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.tcp.write_vectored(slices),
            Some(tls) => tls.write(&mut self.tcp, slices),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.tls {
            None => Ok(()),
            Some(tls) => tls.flush(&mut self.tcp),
        }
    }
}
