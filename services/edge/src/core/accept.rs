//! Accepts new connections, or closes them when a limit is reached.

use std::io;
use std::net::{IpAddr, SocketAddr};

use millrace_session::Seconds;
use millrace_transport::addresses::{Address, AddressRefusal};
use millrace_transport::listeners::{AcceptResult, Speaks};
use millrace_transport::socket::Socket;
use mio::Token;
use mio::net::TcpStream;

use super::connection::{Connected, ConnectionState, NONE, Partial, Paused};
use super::timers::DueTimer;
use super::{ConnectionEnd, Core, FIRST_LISTENER, work};
use crate::clock::{TICKS_PER_S, Ticks, ticks};
use crate::handover::{Adopted, Arrival, Transport};
use crate::tls::Tls;

/// Weight of a connection in the rate limit of its address.
pub(super) const COST: u32 = 1;
/// With TLS the handshake takes several times the CPU time.
const TLS_COST: u32 = 4;
const SILENT: Ticks = 2 * TICKS_PER_S;
/// Connections accepted in a turn take half of its budget, so that clients are read in each turn.
const ACCEPTS_MAX: usize = (work::TURN / 2 / work::ACCEPT) as usize;

impl Core {
    /// Must be called once, before the first turn.
    pub(crate) fn listen(&mut self) -> io::Result<()> {
        self.listeners.register(self.poll.registry(), FIRST_LISTENER)?;
        if self.index == 0 && self.process.limits.sys_interval_s > 0 {
            self.calendar.add(self.now, DueTimer::Sys);
        }
        if self.process.is_shared() {
            self.calendar.add(self.now, DueTimer::LookAround);
        }
        Ok(())
    }

    pub(super) fn stop_listening(&mut self) {
        self.listeners.close();
    }

    /// A listener that fails pauses until the timer.
    pub(super) fn accept(&mut self) {
        if !self.listeners.has_more() {
            return;
        }
        let mut listeners = std::mem::take(&mut self.listeners);
        listeners.accept(ACCEPTS_MAX, |accepted| match accepted {
            AcceptResult::Connection(stream, peer, speaks) => self.accepted(stream, speaks, peer),
            AcceptResult::Nothing => {}
            AcceptResult::Failed(error) => self.accept_failed(&error),
        });
        if listeners.wants_timer() {
            self.calendar.add(self.now + 1, DueTimer::Accept);
        }
        self.listeners = listeners;
    }

    /// Before a drain closes the listeners: takes all connections that the kernel has accepted.
    pub(super) fn accept_all(&mut self) {
        self.listeners.all_readable();
        while self.listeners.has_more() {
            self.accept();
        }
    }

    fn accept_failed(&self, error: &io::Error) {
        self.counters().accepts_failed.add(1);
        if let Some(unlogged) = self.process.log_throttles.accept_failed.occurred(self.now_ms) {
            tracing::warn!(
                %error,
                unlogged,
                "new connections have to wait, connected clients continue: raise the limit of open files (ulimit -n), or \
                 lower connections_max"
            );
        }
    }

    fn refuse_over_limit(&self) {
        let connections_max = self.process.limits.connections_max;
        if connections_max == self.process.config.limits.connections_max {
            return self.counters().refused_limit.add(1);
        }
        self.counters().refused_files.add(1);
        if let Some(unlogged) = self.process.log_throttles.accept_failed.occurred(self.now_ms) {
            tracing::warn!(
                connections_max,
                unlogged,
                "new connections are closed, connected clients continue: the store and the HTTP ports need the files that \
                 are left, so raise the limit of open files (ulimit -n)"
            );
        }
    }

    fn accepted(&mut self, stream: TcpStream, speaks: Speaks, peer: SocketAddr) {
        self.counters().accepted.add(1);
        self.spend(work::ACCEPT);
        let (transport, cost) = match speaks {
            Speaks::Mqtt => (Transport::Tcp, COST),
            Speaks::WebSocket => (Transport::Handshake, COST),
            Speaks::Mqtts | Speaks::Wss => (Transport::Either, TLS_COST),
            Speaks::Proxy if self.process.config.is_gateway(peer.ip()) => {
                self.note_gateway(peer, true);
                (Transport::Proxy, 0)
            }
            Speaks::Proxy => return self.refuse_stranger_at_gateway(peer),
        };
        // The gateway's own address is not counted; the PROXY header has the client's.
        let counted_for = match cost {
            0 => Some(Address::NONE),
            cost => self.admit_address(peer.ip(), cost),
        };
        let Some(counted_for) = counted_for else { return };
        if self.process.open_connections() >= u64::from(self.process.limits.connections_max) {
            self.refuse_over_limit();
            if !self.close_silent_stranger() {
                return self.process.addresses.release(counted_for);
            }
        }
        let Some(socket) = self.socket(stream, speaks) else {
            return self.process.addresses.release(counted_for);
        };
        let Some(slot) = self.add_connection(socket, transport, counted_for) else { return };
        let generation = self.connections[slot as usize].generation;
        self.measure_connect(slot, peer.ip());
        self.note_stranger(slot);
        self.calendar.add(self.connect_deadline(), DueTimer::Connection { slot, generation });
    }

    fn note_stranger(&mut self, slot: u32) {
        while let Some(first) = self.connects.strangers.front().copied()
            && self.connection_of(first).is_none_or(|connection| connection.session != NONE)
        {
            self.connects.strangers.pop_front();
        }
        let id = self.id_of(slot);
        self.connects.strangers.push_back(id);
    }

    /// Closes the connection that has been silent longest. False if none has been silent for [`SILENT`]: another one may be
    /// that of a client whose CONNECT is on its way.
    fn close_silent_stranger(&mut self) -> bool {
        let old = self.tick().saturating_sub(SILENT);
        while let Some(id) = self.connects.strangers.front().copied() {
            let waiting = self.connection_of(id).filter(|connection| {
                let is_awaited = connection.pending.is_some() || connection.paused != Paused::No;
                connection.session == NONE && connection.state == ConnectionState::Open && !is_awaited
            });
            let (is_young, is_silent) = waiting
                .map_or((false, false), |connection| (connection.last_input > old, !connection.readable));
            if is_young {
                return false;
            }
            self.connects.strangers.pop_front();
            if is_silent {
                self.remove_connection(id.slot);
                return true;
            }
        }
        false
    }

    fn socket(&self, stream: TcpStream, speaks: Speaks) -> Option<Socket> {
        let servers = self.process.tls.as_ref().map(Tls::servers);
        let config = match speaks {
            Speaks::Mqtt | Speaks::WebSocket | Speaks::Proxy => return Some(Socket::plain(stream)),
            Speaks::Mqtts => servers?.devices.clone(),
            Speaks::Wss => servers?.browsers.clone(),
        };
        let socket = Socket::tls(stream, config);
        socket.inspect_err(|error| tracing::warn!(%error, "a TLS handshake cannot begin, so the connection is closed: check the files of tls_dir")).ok()
    }

    fn note_gateway(&self, peer: SocketAddr, is_accepted: bool) {
        self.process.gateways.note(peer.ip(), is_accepted, self.process.clock.unix_now_ms());
    }

    fn refuse_stranger_at_gateway(&self, peer: SocketAddr) {
        self.note_gateway(peer, false);
        self.counters().refused_proxy.add(1);
        if let Some(unlogged) = self.process.log_throttles.not_the_gateway.occurred(self.now_ms) {
            tracing::info!(
                %peer,
                unlogged,
                "a connection to gateway_listen was closed, because its address is not in gateway_from"
            );
        }
    }

    /// `None`: the address is over a limit, and the connection must be closed.
    pub(super) fn admit_address(&self, address: IpAddr, cost: u32) -> Option<Address> {
        let refused = match self.process.addresses.admit(address, cost, self.now_ms) {
            Ok(admitted) => return Some(admitted),
            Err(refused) => refused,
        };
        let (counter, limit) = match refused {
            AddressRefusal::Connections => (&self.counters().refused_address, "connections_per_address_max"),
            AddressRefusal::Rate => {
                (&self.counters().refused_address_rate, "connects_per_address_per_second_max")
            }
        };
        counter.add(1);
        if let Some(unlogged) = self.process.log_throttles.address.occurred(self.now_ms) {
            tracing::warn!(%address, limit, unlogged, "connections of an address over its limit are closed");
        }
        None
    }

    /// When a connection accepted now must have sent its CONNECT. One second is added, because the current one has
    /// partly passed.
    pub(super) fn connect_deadline(&self) -> Seconds {
        self.now + Seconds::from(self.process.limits.connect_timeout_s).max(1) + 1
    }

    fn add_connection(&mut self, stream: Socket, transport: Transport, counted_for: Address) -> Option<u32> {
        let generation = self.next_generation();
        let entry = self.connections.vacant_entry();
        let token = entry.key();
        let connection = entry.insert(Connected::new(stream, transport, generation, ticks(self.now_ms)));
        if let Err(error) = connection.stream.register(self.poll.registry(), Token(token)) {
            tracing::warn!(%error, "a new connection is closed, because the system cannot watch it: check the limits of open files and memory");
            self.connections.remove(token);
            self.process.addresses.release(counted_for);
            return None;
        }
        connection.counted_for = counted_for;
        self.counters().open.add(1);
        u32::try_from(token).ok()
    }

    pub(super) fn adopt(&mut self, adopted: Adopted) {
        if self.stopping {
            return self.process.addresses.release(adopted.counted_for);
        }
        let added = self.add_connection(adopted.stream, adopted.transport, adopted.counted_for);
        let Some(slot) = added else { return };
        let connection = &mut self.connections[slot as usize];
        connection.read_closed = adopted.read_closed;
        connection.readable |= connection.stream.has_unread();
        connection.outbound = adopted.outbound;
        connection.origin = adopted.origin;
        if connection.outbound.is_some() {
            self.output.dirty.push(slot);
        }
        let (bytes, raw) = (adopted.bytes, adopted.raw);
        connection.partial = Some(Box::new(Partial { bytes, raw, ..Partial::default() }));
        let due = DueTimer::Connection { slot, generation: connection.generation };
        self.calendar.add(self.connect_deadline(), due);
        self.connects.times.extend(adopted.times.map(|times| (slot, times)));
        self.note_arrival(slot, adopted.arrival);
        self.digest_held(slot);
    }

    /// Hands a connection to the core that owns its client id, with the bytes from its CONNECT on.
    pub(super) fn hand_over(
        &mut self,
        slot: u32,
        owner: u16,
        arrival: Option<Box<Arrival>>,
        bytes: Vec<u8>,
        raw: usize,
    ) {
        let Some(mut connection) = self.connections.try_remove(slot as usize) else { return };
        self.unfinished.records.remove(&slot);
        if connection.is_traced() {
            self.tracing.tapped.remove(&slot);
        }
        self.counters().open.sub(1);
        if let Err(error) = connection.stream.deregister(self.poll.registry()) {
            tracing::debug!(%error, "deregistering a connection that moves");
        }
        let adopted = Adopted {
            stream: connection.stream,
            transport: connection.transport,
            bytes,
            raw,
            outbound: connection.outbound,
            origin: connection.origin,
            counted_for: connection.counted_for,
            read_closed: connection.read_closed,
            arrival,
            times: self.connects.times.remove(&slot),
        };
        self.post(owner, crate::mailbox::Mail::Adopt(Box::new(adopted)));
    }

    pub(super) fn linger(&mut self, slot: u32) {
        let connection = &mut self.connections[slot as usize];
        if connection.read_closed || connection.stream.shutdown().is_err() {
            return self.remove_connection(slot);
        }
        connection.partial = None;
        self.close_later(slot, ConnectionState::Lingering);
        self.make_readable(slot);
    }

    pub(super) fn remove_connection(&mut self, slot: u32) {
        let Some(connection) = self.connections.get(slot as usize) else { return };
        if connection.session != NONE {
            // A session that kept this slot's number would belong to the next connection in the slot.
            return self.end(slot, ConnectionEnd::Lost, true);
        }
        self.forget_arrival(slot);
        self.connects.times.remove(&slot);
        let mut connection = self.connections.remove(slot as usize);
        self.unfinished.records.remove(&slot);
        if connection.is_traced() {
            self.tracing.tapped.remove(&slot);
        }
        self.counters().open.sub(1);
        self.process.addresses.release(connection.counted_for);
        self.pauses.rates.forget(slot);
        self.pauses.note_drained(slot);
        if let Some(outbound) = connection.outbound.take() {
            self.output.pool.give(outbound);
        }
        connection.stream.close_tls();
        // Closing the file ends its registration.
        drop(connection);
    }
}
