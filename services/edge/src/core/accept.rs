//! New connections.

use std::io;
use std::net::IpAddr;

use millrace_session::Seconds;
use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Token};

use super::connection::{Adopted, Connected, Partial, Transport};
use super::timers::Due;
use super::{Core, FIRST_LISTENER, LINGER_S};

/// One listening socket of this core.
pub(crate) struct Listener {
    pub(crate) socket: TcpListener,
    pub(crate) speaks: Speaks,
}

/// What the clients of a listener begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaks {
    Mqtt,
    WebSocket,
    /// A PROXY header of the gateway.
    Proxy,
}

impl Core {
    /// Registers the listeners; to be called once, before the first turn.
    pub(crate) fn listen(&mut self) -> io::Result<()> {
        for (index, listener) in self.listeners.iter_mut().enumerate() {
            let token = Token(FIRST_LISTENER + index);
            self.poll.registry().register(&mut listener.socket, token, Interest::READABLE)?;
        }
        if self.index == 0 && self.process.limits.sys_interval_s > 0 {
            self.calendar.add(self.now, Due::Sys);
        }
        if self.process.is_shared() {
            self.calendar.add(self.now, Due::LookAround);
        }
        Ok(())
    }

    pub(super) fn stop_listening(&mut self) {
        self.listeners.clear();
    }

    pub(super) fn accept_all(&mut self) {
        for listener in 0..self.listeners.len() {
            self.accept(listener);
        }
    }

    /// Accepts everything that waits on one listener.
    pub(super) fn accept(&mut self, listener: usize) {
        loop {
            let Some(at) = self.listeners.get(listener) else { return };
            match at.socket.accept() {
                Ok((stream, peer)) => {
                    let speaks = at.speaks;
                    self.accepted(stream, speaks, peer.ip());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_about_one_connection(&error) => {}
                Err(error) => {
                    // Out of files or memory: what is connected goes on; the backlog waits.
                    tracing::warn!(%error, "cannot accept connections for a moment: raise the open-files limit");
                    self.counters().refused_files.add(1);
                    return self.calendar.add(self.now + 1, Due::Accept);
                }
            }
        }
    }

    fn accepted(&mut self, stream: TcpStream, speaks: Speaks, peer: IpAddr) {
        self.counters().accepted.add(1);
        if self.process.open_connections() >= u64::from(self.process.limits.connections_max) {
            self.counters().refused_limit.add(1);
            return;
        }
        let transport = match speaks {
            Speaks::Mqtt => Transport::Tcp,
            Speaks::WebSocket => Transport::Handshake,
            Speaks::Proxy if self.process.config.is_gateway(peer) => Transport::Proxy,
            Speaks::Proxy => {
                tracing::info!(%peer, "refused at the gateway's listener: not of gateway_from");
                self.counters().refused_proxy.add(1);
                return;
            }
        };
        let Some(slot) = self.add_connection(stream, transport) else { return };
        let generation = self.connections[slot as usize].generation;
        self.calendar.add(self.connect_deadline(), Due::Connection { slot, generation });
    }

    /// When a connection that was accepted now must have sent its CONNECT. The second `now` has partly passed.
    pub(super) fn connect_deadline(&self) -> Seconds {
        self.now + Seconds::from(self.process.limits.connect_timeout_s).max(1) + 1
    }

    fn add_connection(&mut self, stream: TcpStream, transport: Transport) -> Option<u32> {
        let generation = self.next_generation();
        let entry = self.connections.vacant_entry();
        let token = entry.key();
        let connection = entry.insert(Connected::new(stream, transport, generation, self.now));
        let interest = Interest::READABLE | Interest::WRITABLE;
        if let Err(error) = self.poll.registry().register(&mut connection.stream, Token(token), interest) {
            tracing::warn!(%error, "cannot watch a new connection");
            self.connections.remove(token);
            return None;
        }
        self.counters().open.add(1);
        u32::try_from(token).ok()
    }

    /// Takes over a connection whose CONNECT another core has read.
    pub(super) fn adopt(&mut self, adopted: Adopted) {
        if self.stopping {
            return;
        }
        let Some(slot) = self.add_connection(adopted.stream, adopted.transport) else { return };
        let connection = &mut self.connections[slot as usize];
        connection.read_closed = adopted.read_closed;
        connection.outbound = adopted.outbound;
        connection.origin = adopted.origin;
        if connection.outbound.is_some() {
            self.dirty.push(slot);
        }
        connection.partial = Some(Box::new(Partial { bytes: adopted.bytes, raw: adopted.raw, needed: 0 }));
        let due = Due::Connection { slot, generation: connection.generation };
        self.calendar.add(self.connect_deadline(), due);
        self.digest_held(slot);
    }

    /// Hands a connection to the core that owns its client id, with the bytes from its CONNECT on.
    pub(super) fn hand_over(&mut self, slot: u32, owner: u16, bytes: Vec<u8>, raw: usize) {
        let Some(mut connection) = self.connections.try_remove(slot as usize) else { return };
        self.counters().open.sub(1);
        if let Err(error) = self.poll.registry().deregister(&mut connection.stream) {
            tracing::debug!(%error, "deregistering a connection that moves");
        }
        let adopted = Adopted {
            stream: connection.stream,
            transport: connection.transport,
            bytes,
            raw,
            outbound: connection.outbound,
            origin: connection.origin,
            read_closed: connection.read_closed,
        };
        self.post(owner, crate::mailbox::Mail::Adopt(Box::new(adopted)));
    }

    /// Closes our side of a socket and gives the peer a moment to close its own.
    pub(super) fn linger(&mut self, slot: u32) {
        let connection = &mut self.connections[slot as usize];
        if connection.read_closed || connection.stream.shutdown(std::net::Shutdown::Write).is_err() {
            return self.remove_connection(slot);
        }
        connection.state = super::State::Lingering;
        connection.last_input = self.now;
        connection.partial = None;
        let due = Due::Connection { slot, generation: connection.generation };
        self.calendar.add(self.now + LINGER_S, due);
        self.make_readable(slot);
    }

    /// Closes a socket and forgets the connection.
    pub(super) fn remove_connection(&mut self, slot: u32) {
        let Some(mut connection) = self.connections.try_remove(slot as usize) else { return };
        self.counters().open.sub(1);
        if connection.is_limited {
            self.paces.forget(slot);
        }
        if let Some(outbound) = connection.outbound.take() {
            self.pool.give(outbound);
        }
        // Closing the file ends its registration.
        drop(connection);
    }
}

/// Errors of `accept` that say something of the connection, not of the listener (accept(2)).
fn is_about_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::PermissionDenied
    )
}
