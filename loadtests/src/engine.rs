//! The event loop of one driver thread: publishers, receivers, windows, and the end of a run.

use std::time::Duration;

use mio::{Events, Interest, Poll, Token};

use crate::clock;
use crate::failure::{Outcome, While};
use crate::latency::Histogram;
use crate::link::Filled;
use crate::publisher::Publisher;
use crate::receipts::Faults;
use crate::receiver::{Ledger, Receiver};
use crate::tally::Tally;

const READ_BYTES: usize = 256 * 1024;
const EVENTS_PER_TURN: usize = 1024;
/// The longest wait for an event; deadlines are checked this often.
const WAIT_MS_MAX: u64 = 20;

/// Bounds a publisher's messages in flight by what its receivers got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendWindow {
    Free,
    /// At most this many messages more than the publisher's own receiver has.
    OwnReceiver(u32),
    /// At most this many messages more than the slowest receiver has.
    SlowestReceiver(u32),
}

#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    /// Time since the start in which publishers send.
    pub(crate) send_ns: u64,
    pub(crate) messages_max: u32,
    /// Time without progress after which missing messages count as lost.
    pub(crate) quiet_ns: u64,
    /// Time since the start after which the run ends in any case.
    pub(crate) hard_ns: u64,
}

pub(crate) struct Engine {
    pub(crate) publishers: Vec<Publisher>,
    pub(crate) receivers: Vec<Receiver>,
    pub(crate) send_window: SendWindow,
    pub(crate) bounds: Bounds,
    /// For each publisher, messages sent before this run that have not arrived.
    pub(crate) sent_before: Vec<u32>,
    pub(crate) payload_bytes: usize,
    pub(crate) measure_latency: bool,
}

struct Run {
    engine: Engine,
    poll: Poll,
    ledger: Ledger,
    ack_latency: Option<Histogram>,
    /// The first ledger row of each receiver.
    rows: Vec<usize>,
    /// Publishers that may be able to send.
    ready: Vec<usize>,
    /// Receivers whose sockets held more than one read.
    unread: Vec<usize>,
    buffer: Vec<u8>,
    batch: Vec<u8>,
    acks: Vec<u8>,
    acked: u64,
    progress_ns: u64,
    now_ns: u64,
}

impl Engine {
    pub(crate) fn run(self) -> Outcome<Tally> {
        let mut run = Run::new(self)?;
        let timed_out = run.turns()?;
        Ok(run.tally(timed_out))
    }
}

impl Run {
    fn new(mut engine: Engine) -> Outcome<Self> {
        let poll = Poll::new().during("creating an epoll instance")?;
        let publishers = engine.publishers.iter_mut().map(|p| &mut p.link);
        let links = publishers.chain(engine.receivers.iter_mut().map(|r| &mut r.link));
        for (token, link) in links.enumerate() {
            let both = Interest::READABLE | Interest::WRITABLE;
            poll.registry().register(&mut link.stream, Token(token), both).during("registering a socket")?;
        }
        let mut rows = Vec::with_capacity(engine.receivers.len());
        let mut row_count = 0;
        for receiver in &engine.receivers {
            rows.push(row_count);
            row_count += receiver.publishers as usize;
        }
        let now_ns = clock::now_ns();
        let mut run = Self {
            poll,
            ledger: Ledger::new(row_count, engine.payload_bytes, engine.measure_latency),
            ack_latency: engine.measure_latency.then(Histogram::new),
            rows,
            ready: Vec::new(),
            unread: Vec::new(),
            buffer: vec![0; READ_BYTES],
            batch: Vec::new(),
            acks: Vec::new(),
            acked: 0,
            progress_ns: now_ns,
            now_ns,
            engine,
        };
        (0..run.engine.publishers.len()).for_each(|at| run.queue(at));
        Ok(run)
    }

    /// Returns true if the hard time limit ended it.
    fn turns(&mut self) -> Outcome<bool> {
        let mut events = Events::with_capacity(EVENTS_PER_TURN);
        let start_ns = self.now_ns;
        let bounds = self.engine.bounds;
        loop {
            self.now_ns = clock::now_ns();
            let passed_ns = self.now_ns - start_ns;
            if passed_ns >= bounds.hard_ns {
                return Ok(true);
            }
            let sending = passed_ns < bounds.send_ns
                && self.engine.publishers.iter().any(|p| p.link.open && p.sent() < bounds.messages_max);
            let quiet = self.now_ns - self.progress_ns >= bounds.quiet_ns;
            if !sending && (quiet || self.complete()) {
                return Ok(false);
            }
            self.send(sending);
            let busy = !self.ready.is_empty() && sending || !self.unread.is_empty();
            let wait = Duration::from_millis(if busy { 0 } else { WAIT_MS_MAX });
            match self.poll.poll(&mut events, Some(wait)) {
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                polled => polled.during("waiting for events")?,
            }
            self.receive(&events);
        }
    }

    fn receive(&mut self, events: &Events) {
        for at in std::mem::take(&mut self.unread) {
            self.pump(at);
        }
        for event in events {
            let at = event.token().0;
            if event.is_writable() {
                self.writable(at);
            }
            if event.is_readable() {
                self.pump(at);
            }
        }
    }

    fn writable(&mut self, at: usize) {
        if let Some(publisher) = self.engine.publishers.get_mut(at) {
            publisher.link.writable = true;
            self.queue(at);
        } else {
            let link = &mut self.engine.receivers[at - self.engine.publishers.len()].link;
            link.writable = true;
            link.flush();
        }
    }

    /// Reads once from a link: the acknowledgements of a publisher, or the messages of a receiver,
    /// which may open its publishers' windows.
    fn pump(&mut self, at: usize) {
        let publishers = self.engine.publishers.len();
        let now_ns = clock::now_ns();
        let filled = if let Some(publisher) = self.engine.publishers.get_mut(at) {
            if !publisher.link.open {
                return;
            }
            let (acked, filled) = publisher.pump(&mut self.buffer, now_ns, self.ack_latency.as_mut());
            self.acked += u64::from(acked);
            if acked > 0 {
                self.progress_ns = now_ns;
                self.queue(at);
            }
            filled
        } else {
            let (receiver, row) = (&mut self.engine.receivers[at - publishers], self.rows[at - publishers]);
            if !receiver.link.open {
                return;
            }
            let before = self.ledger.delivered;
            let filled = receiver.pump(row, &mut self.ledger, &mut self.buffer, &mut self.acks, now_ns);
            if self.ledger.delivered > before {
                self.progress_ns = now_ns;
                self.wake_senders_to(at - publishers);
            }
            filled
        };
        if filled == Filled::More {
            self.unread.push(at);
        }
    }

    /// A delivery may open the window of the receiver's publishers.
    fn wake_senders_to(&mut self, receiver: usize) {
        match self.engine.send_window {
            SendWindow::Free => {}
            SendWindow::OwnReceiver(_) if self.engine.receivers.len() > 1 => self.queue(receiver),
            SendWindow::OwnReceiver(_) | SendWindow::SlowestReceiver(_) => {
                (0..self.engine.publishers.len()).for_each(|at| self.queue(at));
            }
        }
    }

    /// Lets a publisher send in the next round.
    fn queue(&mut self, at: usize) {
        let publisher = &mut self.engine.publishers[at];
        if !publisher.queued && publisher.link.open {
            publisher.queued = true;
            self.ready.push(at);
        }
    }

    /// Each ready publisher gets one write. Without `sending`, it only writes the rest of packets that it has begun.
    fn send(&mut self, sending: bool) {
        let slowest = match self.engine.send_window {
            SendWindow::SlowestReceiver(_) => self.ledger.slowest(),
            _ => u32::MAX,
        };
        for at in std::mem::take(&mut self.ready) {
            let publisher = &mut self.engine.publishers[at];
            publisher.queued = false;
            let sent = publisher.sent();
            let in_window = match self.engine.send_window {
                SendWindow::Free => u32::MAX,
                SendWindow::OwnReceiver(window) => {
                    window.saturating_sub(sent.saturating_sub(self.ledger.reach(at)))
                }
                SendWindow::SlowestReceiver(window) => window.saturating_sub(sent.saturating_sub(slowest)),
            };
            let left = if sending { self.engine.bounds.messages_max - sent } else { 0 };
            let again = publisher.push(in_window.min(left), &mut self.batch, clock::now_ns());
            if publisher.sent() > sent {
                self.progress_ns = self.now_ns;
            }
            if again {
                self.queue(at);
            }
        }
    }

    fn complete(&self) -> bool {
        let sent: u64 = self.engine.publishers.iter().map(|p| u64::from(p.sent())).sum();
        let acked: u64 = self.engine.publishers.iter().map(|p| u64::from(p.acked())).sum();
        sent == acked && self.ledger.delivered >= self.due(&self.sent())
    }

    fn sent(&self) -> Vec<u32> {
        let mut sent = self.engine.sent_before.clone();
        for publisher in &self.engine.publishers {
            sent[publisher.index as usize] += publisher.sent();
        }
        sent
    }

    fn due(&self, sent: &[u32]) -> u64 {
        self.engine.receivers.iter().flat_map(publishers_of).map(|publisher| u64::from(sent[publisher])).sum()
    }

    fn tally(self, timed_out: bool) -> Tally {
        let sent = self.sent();
        let links = self.engine.publishers.iter().map(|p| &p.link);
        let links = links.chain(self.engine.receivers.iter().map(|r| &r.link));
        let closed = links.filter(|link| !link.open).count() as u64;
        let mut faults = Faults { stray: self.ledger.stray, closed, ..Faults::default() };
        for (receiver, row) in self.engine.receivers.iter().zip(&self.rows) {
            for (place, publisher) in publishers_of(receiver).enumerate() {
                faults.add(self.ledger.faults(row + place, sent[publisher]));
            }
        }
        for publisher in &self.engine.publishers {
            faults.unacked += u64::from(publisher.sent() - publisher.acked());
            faults.acks_disordered += publisher.acks_disordered();
        }
        Tally {
            sent,
            acked: self.acked,
            delivered: self.ledger.delivered,
            faults,
            latency: self.ledger.latency,
            ack_latency: self.ack_latency,
            timed_out,
        }
    }
}

fn publishers_of(receiver: &Receiver) -> std::ops::Range<usize> {
    let first = receiver.first_publisher as usize;
    first..first + receiver.publishers as usize
}
