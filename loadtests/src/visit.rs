//! One short connection of a session, driven by socket events: CONNECT, a SUBSCRIBE if planned, and
//! the messages that the broker has queued for the session; then DISCONNECT, or the connection
//! stays open.

use mio::event::Event;

use crate::link::{Filled, Link};
use crate::packet::{self, Frame, Stamp};
use crate::receipts::{Faults, Receipts};

const CONNACK_ACCEPTED: u8 = 0;
const GRANTED_QOS: u8 = 1;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct VisitPlan {
    pub(crate) clean_session: bool,
    /// Whether SUBSCRIBE follows CONNECT, without waiting for CONNACK.
    pub(crate) subscribe: bool,
    /// The broker must still have the session; otherwise the visit counts as [`Faults::forgotten`].
    pub(crate) resumes: bool,
    /// How many messages, each of `payload_bytes`, the broker has queued for the session.
    pub(crate) backlog: u32,
    pub(crate) payload_bytes: usize,
    /// The connection stays open after the last message, instead of a DISCONNECT.
    pub(crate) stays: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Connecting,
    /// CONNECT is sent, and answers or messages are still due.
    Waiting,
    Disconnecting,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Continues,
    /// Everything has arrived, and the broker has closed the connection unless it stays.
    Done,
    Failed,
}

pub(crate) struct Visit {
    pub(crate) link: Link,
    pub(crate) session: u32,
    /// Index of the publisher whose messages the session gets.
    publisher: u32,
    stage: Stage,
    connected: bool,
    subscribed: bool,
    receipts: Receipts,
    faults: Faults,
    connect_sent_ns: u64,
    /// When the last message that was due arrived, on the clock of `connect_sent_ns`.
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
            connect_sent_ns: 0,
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
        self.complete_ns.map(|ns| ns.saturating_sub(self.connect_sent_ns))
    }

    pub(crate) fn faults(&self, plan: &VisitPlan) -> Faults {
        let mut faults = self.faults;
        faults.add(self.receipts.faults(plan.backlog));
        faults
    }

    /// Handles one event of the socket; the first writable event sends `first_packets`, CONNECT and
    /// SUBSCRIBE.
    pub(crate) fn advance(
        &mut self,
        event: &Event,
        plan: &VisitPlan,
        first_packets: impl FnOnce() -> Vec<u8>,
        buffer: &mut [u8],
        now_ns: u64,
    ) -> Step {
        if event.is_writable() {
            self.link.writable = true;
            if self.stage == Stage::Connecting {
                self.link.write_or_hold(&first_packets());
                self.connect_sent_ns = now_ns;
                self.stage = Stage::Waiting;
            } else if self.link.flush() && self.stage == Stage::Disconnecting {
                self.link.end_of_sending();
            }
        }
        if self.stage != Stage::Connecting && event.is_readable() {
            // The end of the stream is the last event, so all bytes before it are read now.
            let to_the_end = event.is_read_closed();
            return self.read(plan, buffer, now_ns, to_the_end);
        }
        self.step_after(Filled::Drained)
    }

    fn read(&mut self, plan: &VisitPlan, buffer: &mut [u8], now_ns: u64, to_the_end: bool) -> Step {
        let mut answer = Vec::new();
        let mut carried = 0;
        loop {
            let (mut bytes, filled) = self.link.fill(buffer);
            let received_more = bytes.len() > carried;
            loop {
                match packet::next_frame(bytes) {
                    Ok(Some(frame)) => {
                        bytes = &bytes[frame.length..];
                        if !self.handle(frame, plan, &mut answer) {
                            return Step::Failed;
                        }
                    }
                    Ok(None) => break,
                    Err(packet::Malformed) => return Step::Failed,
                }
            }
            carried = bytes.len();
            self.link.keep(bytes);
            match filled {
                Filled::Closed => return self.step_after(filled),
                Filled::Drained if !(to_the_end && received_more) => return self.reply(plan, answer, now_ns),
                Filled::Drained | Filled::More => {}
            }
        }
    }

    /// Returns false if the broker has refused CONNECT or SUBSCRIBE, or the packet is malformed:
    /// the visit has failed.
    fn handle(&mut self, frame: Frame<'_>, plan: &VisitPlan, answer: &mut Vec<u8>) -> bool {
        match frame.kind() {
            packet::CONNACK => {
                let [present, code] = *frame.body else { return false };
                self.connected = true;
                self.faults.forgotten += u64::from(plan.resumes && present & 1 == 0);
                code == CONNACK_ACCEPTED
            }
            packet::SUBACK => {
                self.subscribed = true;
                frame.body.last() == Some(&GRANTED_QOS)
            }
            packet::PUBLISH => {
                let Some((id, payload)) = frame.publish() else { return false };
                let is_due = |s: &Stamp| {
                    s.publisher == self.publisher
                        && s.sequence < plan.backlog
                        && payload.len() == plan.payload_bytes
                };
                match Stamp::read(payload).filter(is_due) {
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

    /// Sends the PUBACKs in `answer`, and after the last message DISCONNECT unless the connection
    /// stays.
    fn reply(&mut self, plan: &VisitPlan, mut answer: Vec<u8>, now_ns: u64) -> Step {
        let complete = self.stage == Stage::Waiting && self.is_complete(plan);
        if complete {
            self.complete_ns = Some(now_ns);
        }
        if complete && !plan.stays {
            answer.extend_from_slice(&packet::DISCONNECT);
            self.stage = Stage::Disconnecting;
        }
        if !answer.is_empty() {
            self.link.write_or_hold(&answer);
            if self.stage == Stage::Disconnecting && self.link.waiting_bytes() == 0 {
                // Some brokers close the connection only after the client has closed its side.
                self.link.end_of_sending();
            }
        }
        if complete && plan.stays { Step::Done } else { self.step_after(Filled::Drained) }
    }

    /// A session that the broker has lost is complete without messages, because none will come.
    fn is_complete(&self, plan: &VisitPlan) -> bool {
        let answered = self.connected && (self.subscribed || !plan.subscribe);
        answered && (self.receipts.distinct() >= plan.backlog || self.faults.forgotten > 0)
    }

    fn step_after(&self, filled: Filled) -> Step {
        match (self.stage, filled == Filled::Closed || !self.link.open) {
            (_, false) => Step::Continues,
            (Stage::Disconnecting, true) => Step::Done,
            (_, true) => Step::Failed,
        }
    }
}
