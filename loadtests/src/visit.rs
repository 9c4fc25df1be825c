//! One short connection: it connects, waits for its messages, and disconnects or stays.

use mio::event::Event;

use crate::link::{Filled, Link};
use crate::packet::{self, Frame, Stamp};
use crate::receipts::{Faults, Receipts};

const ACCEPTED: u8 = 0;
const QOS: u8 = 1;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Errand {
    pub(crate) clean_session: bool,
    /// Immediately after CONNECT.
    pub(crate) subscribe: bool,
    /// The broker must still have the session.
    pub(crate) resumes: bool,
    pub(crate) backlog: u32,
    pub(crate) payload_bytes: usize,
    /// Connected at the end.
    pub(crate) stays: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Connecting,
    /// Answers or messages are due.
    Waiting,
    Going,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    GoesOn,
    /// Everything has arrived. With `stays` the connection is open.
    Done,
    Failed,
}

pub(crate) struct Visit {
    pub(crate) link: Link,
    pub(crate) session: u32,
    publisher: u32,
    stage: Stage,
    connected: bool,
    subscribed: bool,
    receipts: Receipts,
    faults: Faults,
    /// Time of CONNECT, and time of the last arrival.
    greeted_ns: u64,
    pub(crate) complete_ns: Option<u64>,
}

impl Visit {
    pub(crate) fn new(link: Link, session: u32, publisher: u32) -> Self {
        Self {
            link,
            session,
            publisher,
            stage: Stage::Connecting,
            connected: false,
            subscribed: false,
            receipts: Receipts::default(),
            faults: Faults::default(),
            greeted_ns: 0,
            complete_ns: None,
        }
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.connected
    }

    pub(crate) fn delivered(&self) -> u32 {
        self.receipts.distinct()
    }

    pub(crate) fn latency_ns(&self) -> Option<u64> {
        self.complete_ns.map(|ns| ns.saturating_sub(self.greeted_ns))
    }

    pub(crate) fn faults(&self, errand: &Errand) -> Faults {
        let mut faults = self.faults;
        faults.add(self.receipts.faults(errand.backlog));
        faults
    }

    /// `hello` makes the first packets.
    pub(crate) fn advance(
        &mut self,
        event: &Event,
        errand: &Errand,
        hello: impl FnOnce() -> Vec<u8>,
        buffer: &mut [u8],
        now_ns: u64,
    ) -> Step {
        if event.is_writable() {
            self.link.writable = true;
            if self.stage == Stage::Connecting {
                self.link.write_or_hold(&hello());
                self.greeted_ns = now_ns;
                self.stage = Stage::Waiting;
            } else if self.link.flush() && self.stage == Stage::Going {
                self.link.end_of_sending();
            }
        }
        if self.stage != Stage::Connecting && event.is_readable() {
            // After the event for the end of the stream, no event announces the bytes before the end.
            let to_the_end = event.is_read_closed();
            return self.read(errand, buffer, now_ns, to_the_end);
        }
        self.after(Filled::Drained)
    }

    fn read(&mut self, errand: &Errand, buffer: &mut [u8], now_ns: u64, to_the_end: bool) -> Step {
        let mut answer = Vec::new();
        let mut kept = 0;
        loop {
            let (mut bytes, filled) = self.link.fill(buffer);
            let more_came = bytes.len() > kept;
            loop {
                match packet::next_frame(bytes) {
                    Ok(Some(frame)) => {
                        bytes = &bytes[frame.length..];
                        if !self.take(frame, errand, &mut answer) {
                            return Step::Failed;
                        }
                    }
                    Ok(None) => break,
                    Err(packet::Malformed) => return Step::Failed,
                }
            }
            kept = bytes.len();
            self.link.keep(bytes);
            match filled {
                Filled::Closed => return self.after(filled),
                Filled::Drained if !(to_the_end && more_came) => return self.reply(errand, answer, now_ns),
                Filled::Drained | Filled::More => {}
            }
        }
    }

    /// Returns false if the visit cannot continue.
    fn take(&mut self, frame: Frame<'_>, errand: &Errand, answer: &mut Vec<u8>) -> bool {
        match frame.kind() {
            packet::CONNACK => {
                let [present, code] = *frame.body else { return false };
                self.connected = true;
                self.faults.forgotten += u64::from(errand.resumes && present & 1 == 0);
                code == ACCEPTED
            }
            packet::SUBACK => {
                self.subscribed = true;
                frame.body.last() == Some(&QOS)
            }
            packet::PUBLISH => {
                let Some((id, payload)) = frame.publish() else { return false };
                let known = |s: &Stamp| {
                    s.publisher == self.publisher
                        && s.sequence < errand.backlog
                        && payload.len() == errand.payload_bytes
                };
                match Stamp::read(payload).filter(known) {
                    Some(stamp) => {
                        self.receipts.record(stamp.sequence);
                    }
                    None => self.faults.stray += 1,
                }
                if id != 0 {
                    answer.extend_from_slice(&packet::puback(id));
                }
                true
            }
            _ => {
                self.faults.stray += 1;
                true
            }
        }
    }

    /// Sends DISCONNECT after the last arrival.
    fn reply(&mut self, errand: &Errand, mut answer: Vec<u8>, now_ns: u64) -> Step {
        let complete = self.stage == Stage::Waiting && self.is_complete(errand);
        if complete {
            self.complete_ns = Some(now_ns);
        }
        if complete && !errand.stays {
            answer.extend_from_slice(&packet::DISCONNECT);
            self.stage = Stage::Going;
        }
        if !answer.is_empty() {
            self.link.write_or_hold(&answer);
            if self.stage == Stage::Going && self.link.waiting_bytes() == 0 {
                // A broker that waits for the client to close first sees the end of the stream.
                self.link.end_of_sending();
            }
        }
        if complete && errand.stays { Step::Done } else { self.after(Filled::Drained) }
    }

    /// A lost session has no messages to wait for.
    fn is_complete(&self, errand: &Errand) -> bool {
        let answered = self.connected && (self.subscribed || !errand.subscribe);
        answered && (self.receipts.distinct() >= errand.backlog || self.faults.forgotten > 0)
    }

    fn after(&self, filled: Filled) -> Step {
        match (self.stage, filled == Filled::Closed || !self.link.open) {
            (_, false) => Step::GoesOn,
            (Stage::Going, true) => Step::Done,
            (_, true) => Step::Failed,
        }
    }
}
