//! Receivers that lag, and the publishers that wait for them.
//!
//! QoS 0 has no queue. When more than the soft limit waits for a receiver's socket, its publishers are not read until
//! half of it is written, for as long as the receiver keeps taking bytes (`outbound::GRACE_MS`). A receiver that
//! hardly moves pauses nobody: it loses messages instead (P9).

use std::collections::{HashMap, VecDeque};

use super::connection::{Connected, Paused};
use super::publish_rates::PublishRates;
use super::{Core, PAUSE_MS, READ_BYTES};
use crate::broker::Broker;
use crate::clock::Millis;
use crate::connection_id::ConnectionId;
use crate::mailbox::Mail;
use crate::memory::Pressure;
use crate::outbound::GRACE_MS;

/// Publishers that are not read for now.
#[derive(Default)]
pub(super) struct Pauses {
    /// Paused publishers, and until when at the latest.
    pub(super) paused: Vec<(ConnectionId, Millis)>,
    pub(super) rates: PublishRates,
    /// Publishers that wait for a receiver, by the receiver's connection.
    behind: HashMap<u32, VecDeque<ConnectionId>>,
}

impl Core {
    /// Pauses `publisher` until `receiver` has caught up.
    pub(super) fn hold_up(&mut self, receiver: u32, publisher: ConnectionId) {
        let waiting = self.pauses.behind.entry(receiver).or_default();
        // It may be in the list already, and have resumed because it had waited long enough.
        if !waiting.contains(&publisher) {
            waiting.push_back(publisher);
        }
        if publisher.core == self.index {
            return self.pause(publisher, Paused::ForReceiver);
        }
        // Each message that is delivered singly pauses the publisher again: one notice for them is enough.
        let last = self.mail.outgoing[usize::from(publisher.core)].last();
        if !matches!(last, Some(Mail::Congested(told)) if *told == publisher) {
            self.post(publisher.core, Mail::Congested(publisher));
        }
    }

    pub(super) fn hold_up_for_mailbox(&mut self, core: u16, publisher: ConnectionId) {
        let core = usize::from(core);
        let waiting = self.process.mailboxes[core].bytes() + self.mail.outgoing_bytes[core];
        if waiting > self.process.limits.mailbox_bytes_max as usize {
            self.pause(publisher, Paused::ForMailbox);
        }
    }

    /// Pauses a publisher shortly after each read while the process has hardly any memory left.
    #[inline]
    pub(super) fn hold_up_for_memory(&mut self, publisher: ConnectionId) {
        if self.process.memory.pressure() == Pressure::Publishers {
            self.pause(publisher, Paused::ForMailbox);
        }
    }

    /// Whether more of a broker's messages wait to be stored than its share. Its publishers are paused then.
    pub(super) fn is_store_full_for(&self, broker: &Broker) -> bool {
        self.is_store_over(broker, self.process.limits.store_bytes_max as usize)
    }

    fn is_store_over(&self, broker: &Broker, bytes_max: usize) -> bool {
        self.process.store.as_ref().is_some_and(|store| store.is_over_share(broker, bytes_max))
    }

    /// True when publishers wait for a receiver that has nothing left to write: nothing else would wake them.
    pub(super) fn has_relief(&self) -> bool {
        self.pauses.behind.keys().any(|receiver| self.waits_for_socket(*receiver) == 0)
    }

    fn waits_for_socket(&self, receiver: u32) -> usize {
        self.connections
            .get(receiver as usize)
            .and_then(|connection| connection.outbound.as_ref())
            .map_or(0, |outbound| outbound.len())
    }

    /// Resumes publishers whose receivers have caught up: as many as there is room for what each may send at once.
    pub(super) fn relieve(&mut self) {
        if self.pauses.behind.is_empty() {
            return;
        }
        let soft_bytes = self.output.soft_bytes;
        let mut behind = std::mem::take(&mut self.pauses.behind);
        behind.retain(|receiver, waiting| {
            let len = self.waits_for_socket(*receiver);
            if len < soft_bytes / 2 {
                let go_on = ((soft_bytes - len) / READ_BYTES).max(1).min(waiting.len());
                for publisher in waiting.drain(..go_on) {
                    if publisher.core == self.index {
                        self.resume(publisher);
                    } else {
                        self.post(publisher.core, Mail::Relieved(publisher));
                    }
                }
            }
            !waiting.is_empty()
        });
        // Resumed publishers may have been paused again.
        for (receiver, waiting) in behind {
            self.pauses.behind.entry(receiver).or_default().extend(waiting);
        }
    }

    pub(super) fn pause(&mut self, id: ConnectionId, why: Paused) {
        let at_most_ms = if why == Paused::ForReceiver { GRACE_MS } else { PAUSE_MS };
        let until = self.now_ms + at_most_ms;
        let Some(connection) = self.connection_of(id) else { return };
        match (connection.paused, why) {
            (Paused::No, _) => {
                connection.paused = why;
                let session = connection.session;
                self.pauses.paused.push((id, until));
                if let Some(local) = self.sessions.get(session as usize) {
                    local.broker.counters[usize::from(self.index)].pauses.add(1);
                }
            }
            // The receiver may need longer than the mailbox.
            (Paused::ForMailbox, Paused::ForReceiver) => {
                connection.paused = why;
                if let Some((_, at)) = self.pauses.paused.iter_mut().find(|(paused, _)| *paused == id) {
                    *at = until;
                }
            }
            _ => {}
        }
    }

    /// Resumes a publisher, unless it waits for its rate, its share of work, a fan-out or its own answers: each of
    /// these ends by itself.
    pub(super) fn resume(&mut self, id: ConnectionId) {
        let is_paused = |connection: &&mut Connected| {
            use Paused::{ForAnswers, ForFanout, ForRate, ForWork, No};
            !matches!(connection.paused, No | ForRate | ForWork | ForFanout | ForAnswers)
        };
        if self.connection_of(id).filter(is_paused).is_some() {
            self.pauses.paused.retain(|(paused, _)| *paused != id);
            self.go_on(id);
        }
    }

    /// Reads a connection again, beginning with the input that was held back.
    pub(super) fn go_on(&mut self, id: ConnectionId) {
        let now = self.now;
        let Some(connection) = self.connection_of(id) else { return };
        connection.paused = Paused::No;
        // The server did not read it meanwhile, so its keep alive begins anew.
        connection.last_input = now;
        self.digest_held(id.slot);
        if self.connection_of(id).is_some_and(|connection| connection.readable) {
            self.make_readable(id.slot);
        }
    }

    pub(super) fn resume_paused(&mut self) {
        if self.pauses.paused.iter().all(|(_, until)| *until > self.now_ms) {
            return;
        }
        let mailbox_max = self.process.limits.mailbox_bytes_max as usize;
        let overfull = self.process.mailboxes.iter().any(|mailbox| mailbox.bytes() > mailbox_max / 2);
        let store_max = self.process.limits.store_bytes_max as usize;
        let is_held = |id: &ConnectionId| {
            let session = self.connections.get(id.slot as usize).map(|connection| connection.session);
            let local = session.and_then(|session| self.sessions.get(session as usize));
            local.is_some_and(|local| self.is_store_over(&local.broker, store_max / 2))
        };
        let is_due = |id: &ConnectionId, until: u64| until <= self.now_ms && !overfull && !is_held(id);
        let due: Vec<ConnectionId> =
            self.pauses.paused.iter().filter(|(id, until)| is_due(id, *until)).map(|(id, _)| *id).collect();
        for id in due {
            self.resume(id);
        }
        // Connections that have ended cannot be resumed, so their entries go.
        let now_ms = self.now_ms;
        let mut paused = std::mem::take(&mut self.pauses.paused);
        paused.retain(|(id, until)| *until > now_ms || self.connection_of(*id).is_some());
        self.pauses.paused = paused;
    }
}
