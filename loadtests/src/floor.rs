//! The least that a broker can do: an epoll loop that copies bytes from publishers to subscribers,
//! and checks and stores nothing. No broker is faster, so its figures show the kernel's part, and
//! whether the driver is fast enough. It understands MQTT 3.1.1 with QoS 0 and 1, exact topics and
//! a last level of `+`.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token};

use crate::failure::{Outcome, While};
use crate::link::{Filled, Link};
use crate::packet::{self, Frame};

const READ_BYTES: usize = 256 * 1024;
const EVENTS_PER_TURN: usize = 1024;
/// Bytes waiting for slow subscribers above which publishers are not read.
const WAITING_BYTES_MAX: usize = 64 * 1024 * 1024;
const HELD_WAIT: Duration = Duration::from_millis(1);
const LISTENER: Token = Token(usize::MAX);

struct Floor {
    poll: Poll,
    listener: TcpListener,
    links: Vec<Option<Link>>,
    free: Vec<usize>,
    /// Bytes that are written at the end of the turn.
    out: Vec<Vec<u8>>,
    dirty: Vec<usize>,
    /// Links to read again, because the socket has more or the link was paused.
    again: Vec<usize>,
    subscribers: HashMap<Vec<u8>, Vec<usize>>,
}

pub(crate) fn serve(port: u16) -> Outcome<()> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut listener = TcpListener::bind(address).during(&format!("listening on {address}"))?;
    let poll = Poll::new().during("creating an epoll instance")?;
    let registry = poll.registry();
    registry.register(&mut listener, LISTENER, Interest::READABLE).during("registering the listener")?;
    let mut floor = Floor {
        poll,
        listener,
        links: Vec::new(),
        free: Vec::new(),
        out: Vec::new(),
        dirty: Vec::new(),
        again: Vec::new(),
        subscribers: HashMap::new(),
    };
    floor.turns()
}

impl Floor {
    fn turns(&mut self) -> Outcome<()> {
        let mut events = Events::with_capacity(EVENTS_PER_TURN);
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let held = self.waiting_bytes() > WAITING_BYTES_MAX;
            let wait = match (self.again.is_empty(), held) {
                (true, _) => None,
                (false, true) => Some(HELD_WAIT),
                (false, false) => Some(Duration::ZERO),
            };
            match self.poll.poll(&mut events, wait) {
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                polled => polled.during("waiting for events")?,
            }
            for at in std::mem::take(&mut self.again) {
                self.read(at, &mut buffer, held);
            }
            for event in &events {
                let Token(at) = event.token();
                if event.token() == LISTENER {
                    self.accept()?;
                    continue;
                }
                if event.is_writable()
                    && let Some(link) = &mut self.links[at]
                {
                    link.writable = true;
                    link.flush();
                }
                if event.is_readable() {
                    self.read(at, &mut buffer, held);
                }
            }
            self.write();
        }
    }

    fn waiting_bytes(&self) -> usize {
        // Added up only when links are pending, so that other runs pay nothing.
        if self.again.is_empty() { 0 } else { self.links.iter().flatten().map(Link::waiting_bytes).sum() }
    }

    fn accept(&mut self) -> Outcome<()> {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {
                    continue;
                }
                Err(e) => return Err(e).during("accepting a connection"),
            };
            stream.set_nodelay(true).during("setting TCP_NODELAY")?;
            let at = self.free.pop().unwrap_or(self.links.len());
            if at == self.links.len() {
                self.links.push(None);
                self.out.push(Vec::new());
            }
            let mut link = Link::accepted(stream);
            let both = Interest::READABLE | Interest::WRITABLE;
            self.poll
                .registry()
                .register(&mut link.stream, Token(at), both)
                .during("registering a socket")?;
            self.links[at] = Some(link);
        }
    }

    fn read(&mut self, at: usize, buffer: &mut [u8], held: bool) {
        let Some(mut link) = self.links[at].take() else { return };
        if held && !self.subscribers.values().any(|s| s.contains(&at)) {
            self.links[at] = Some(link);
            self.again.push(at);
            return;
        }
        let (mut bytes, filled) = link.fill(buffer);
        let mut open = filled != Filled::Closed;
        while let Ok(Some(frame)) = packet::next_frame(bytes) {
            open &= self.handle(at, frame, &bytes[..frame.length]);
            bytes = &bytes[frame.length..];
        }
        link.keep(bytes);
        if !open {
            self.subscribers.values_mut().for_each(|s| s.retain(|to| *to != at));
            self.out[at].clear();
            self.free.push(at);
            return;
        }
        if filled == Filled::More {
            self.again.push(at);
        }
        self.links[at] = Some(link);
    }

    /// Returns false on DISCONNECT.
    fn handle(&mut self, at: usize, frame: Frame<'_>, whole: &[u8]) -> bool {
        match frame.kind() {
            packet::PUBLISH => self.publish(at, frame, whole),
            1 => self.reply(at, &[0x20, 2, 0, 0]),
            8 => self.subscribe(at, frame.body),
            14 => return false,
            _ => {}
        }
        true
    }

    fn reply(&mut self, at: usize, bytes: &[u8]) {
        if self.out[at].is_empty() {
            self.dirty.push(at);
        }
        self.out[at].extend_from_slice(bytes);
    }

    fn subscribe(&mut self, at: usize, body: &[u8]) {
        let [id_high, id_low, _, _, filter @ .., qos] = body else { return };
        self.subscribers.entry(filter.to_vec()).or_default().push(at);
        self.reply(at, &[0x90, 3, *id_high, *id_low, *qos]);
    }

    fn publish(&mut self, at: usize, frame: Frame<'_>, whole: &[u8]) {
        let Some((id, payload)) = frame.publish() else { return };
        let id_bytes = if id == 0 { 0 } else { 2 };
        let topic = &frame.body[2..frame.body.len() - payload.len() - id_bytes];
        if id != 0 {
            self.reply(at, &packet::puback(id));
        }
        let found = self.subscribers.get(topic).or_else(|| {
            let parent = topic.iter().rposition(|b| *b == b'/').map_or(0, |slash| slash + 1);
            self.subscribers.get([&topic[..parent], b"+"].concat().as_slice())
        });
        // Receivers get the publisher's packet id, which is unique enough for pairs.
        for to in found.into_iter().flatten() {
            let out = &mut self.out[*to];
            if out.is_empty() {
                self.dirty.push(*to);
            }
            out.extend_from_slice(whole);
        }
    }

    fn write(&mut self) {
        for at in std::mem::take(&mut self.dirty) {
            if let Some(link) = &mut self.links[at] {
                link.write_or_hold(&self.out[at]);
            }
            self.out[at].clear();
        }
    }
}
