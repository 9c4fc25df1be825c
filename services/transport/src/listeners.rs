//! The listening sockets of one event loop.
//!
//! When the process is out of files or memory, accepting fails, and only that listener pauses: its
//! connections wait in the kernel's backlog. [`Listeners::retry`] ends the pause; the caller calls
//! it on a timer.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

/// Length of the kernel's queue of connections to accept, per listener and event loop.
const BACKLOG: i32 = 4096;
/// Seconds of silence after which the kernel probes a peer. The probes end connections of clients
/// that vanished and have no MQTT keep alive.
const KEEPALIVE_S: u64 = 300;
/// Seconds between probes.
const PROBE_S: u64 = 30;
const PROBES: u32 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaks {
    Mqtt,
    WebSocket,
    Proxy,
    Mqtts,
    Wss,
}

#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    speaks: Speaks,
    paused: bool,
    more: bool,
}

impl Listener {
    pub fn new(socket: Socket, speaks: Speaks) -> Self {
        Self { socket: TcpListener::from_std(socket.into()), speaks, paused: false, more: false }
    }
}

#[derive(Debug)]
pub enum AcceptResult {
    Connection(TcpStream, SocketAddr, Speaks),
    Nothing,
    /// The process is out of files or memory, and the listener is now paused.
    Failed(io::Error),
}

#[derive(Debug, Default)]
pub struct Listeners {
    all: Vec<Listener>,
    has_timer: bool,
}

impl Listeners {
    /// The token of listener `n` is `first` of [`Listeners::register`] plus `n`.
    pub fn new(all: Vec<Listener>) -> Self {
        Self { all, has_timer: false }
    }

    pub fn register(&mut self, registry: &Registry, first: usize) -> io::Result<()> {
        for (index, listener) in self.all.iter_mut().enumerate() {
            registry.register(&mut listener.socket, Token(first + index), Interest::READABLE)?;
        }
        Ok(())
    }

    pub fn close(&mut self) {
        self.all.clear();
    }

    pub fn readable(&mut self, index: usize) {
        if let Some(listener) = self.all.get_mut(index) {
            listener.more = true;
        }
    }

    pub fn all_readable(&mut self) {
        self.all.iter_mut().for_each(|listener| listener.more = true);
    }

    pub fn has_more(&self) -> bool {
        self.all.iter().any(|listener| listener.more && !listener.paused)
    }

    /// Accepts at most `most` connections, an equal part of them from each listener that has some.
    pub fn accept(&mut self, most: usize, mut accepted: impl FnMut(AcceptResult)) {
        let has_more = |listener: &&mut Listener| listener.more && !listener.paused;
        let part = most / self.all.iter_mut().filter(has_more).count().max(1);
        for listener in self.all.iter_mut().filter(has_more) {
            for _ in 0..part.max(1) {
                let next = listener.accept();
                if !listener.more || listener.paused {
                    if listener.paused {
                        accepted(next);
                    }
                    break;
                }
                accepted(next);
            }
        }
    }

    /// True when the caller must start a timer for [`Listeners::retry`].
    pub fn wants_timer(&mut self) -> bool {
        let wanted = !self.has_timer && self.all.iter().any(|listener| listener.paused);
        self.has_timer |= wanted;
        wanted
    }

    pub fn retry(&mut self) {
        self.has_timer = false;
        for listener in &mut self.all {
            listener.more |= std::mem::take(&mut listener.paused);
        }
    }
}

impl Listener {
    fn accept(&mut self) -> AcceptResult {
        loop {
            match self.socket.accept() {
                Ok((stream, peer)) => return AcceptResult::Connection(stream, peer, self.speaks),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.more = false;
                    return AcceptResult::Nothing;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_about_one_connection(&error) => {}
                Err(error) => {
                    self.paused = true;
                    return AcceptResult::Failed(error);
                }
            }
        }
    }
}

/// True when `accept` failed because of the connection rather than the listener (accept(2)).
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

/// Opens the first socket of an address. It binds alone, so a port in use is an error, and port 0
/// gets a free port.
pub fn listen(address: SocketAddr) -> io::Result<Socket> {
    open(address, false)
}

/// Opens a further socket of an address that [`listen`] has bound, one for each further core.
pub fn join(address: SocketAddr) -> io::Result<Socket> {
    open(address, true)
}

fn open(address: SocketAddr, joins: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if joins {
        socket.set_reuse_port(true)?;
    }
    socket.set_nonblocking(true)?;
    // Accepted sockets inherit both (tcp(7)), which saves system calls for each.
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(
        &TcpKeepalive::new()
            .with_time(Duration::from_secs(KEEPALIVE_S))
            .with_interval(Duration::from_secs(PROBE_S))
            .with_retries(PROBES),
    )?;
    socket.bind(&address.into())?;
    // The kernel compares SO_REUSEPORT when a socket binds. Set after the bind, it lets other
    // sockets join this one, while this one could join none.
    socket.set_reuse_port(true)?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream as StdStream;

    use mio::{Events, Poll};
    use socket2::SockRef;

    use super::*;

    /// A listener with this many clients that wait.
    fn waiting(clients: usize) -> (Listeners, Poll, Vec<StdStream>) {
        let socket = listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = socket.local_addr().unwrap().as_socket().unwrap();
        let mut listeners = Listeners::new(vec![Listener::new(socket, Speaks::Mqtt)]);
        let mut poll = Poll::new().unwrap();
        listeners.register(poll.registry(), 0).unwrap();
        let clients = (0..clients).map(|_| StdStream::connect(address).unwrap()).collect();
        poll.poll(&mut Events::with_capacity(8), None).unwrap();
        listeners.readable(0);
        (listeners, poll, clients)
    }

    const MOST: usize = 20;

    fn accept(listeners: &mut Listeners) -> Vec<AcceptResult> {
        let mut all = Vec::new();
        listeners.accept(MOST, |accepted| all.push(accepted));
        all
    }

    #[test]
    fn a_turn_accepts_a_part_of_a_full_backlog_and_the_next_turn_the_rest() {
        let (mut listeners, _poll, _clients) = waiting(MOST + 10);
        assert_eq!(accept(&mut listeners).len(), MOST);
        assert!(listeners.has_more());
        assert_eq!(accept(&mut listeners).len(), 10);
        assert!(!listeners.has_more());
    }

    #[test]
    fn listeners_with_connections_have_equal_parts_of_a_turn() {
        let (mut listeners, _poll, _clients) = waiting(MOST);
        let (other, _other_poll, _others) = waiting(MOST);
        listeners.all.extend(other.all);
        assert_eq!(accept(&mut listeners).len(), MOST);
        assert!(listeners.all.iter().all(|listener| listener.more));
    }

    #[test]
    fn a_paused_listener_is_left_alone_until_its_one_timer_is_over() {
        let (mut listeners, _poll, _clients) = waiting(1);
        listeners.all[0].paused = true;
        assert!(!listeners.has_more() && accept(&mut listeners).is_empty());
        assert!(listeners.wants_timer());
        assert!(!listeners.wants_timer(), "one timer is enough");
        listeners.retry();
        assert!(listeners.has_more() && !listeners.wants_timer());
        assert_eq!(accept(&mut listeners).len(), 1);
    }

    #[test]
    fn an_accepted_socket_finds_a_vanished_peer_by_itself() {
        let (mut listeners, _poll, _clients) = waiting(1);
        let all = accept(&mut listeners);
        let [AcceptResult::Connection(stream, ..)] = &all[..] else { panic!("{all:?}") };
        let socket = SockRef::from(stream);
        assert!(socket.keepalive().unwrap() && socket.tcp_nodelay().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(KEEPALIVE_S));
    }
}
