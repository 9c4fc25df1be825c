//! Receivers that lag, and the publishers that wait for them.
//!
//! QoS 0 has no queue. When more than the soft limit waits for a receiver's socket, its publishers are not read until
//! half of it is written, for as long as the receiver keeps taking bytes (`outbound::GRACE_MS`). A receiver that
//! hardly moves pauses nobody: it loses messages instead (P9). A receiver that lags while most other receivers of
//! the publisher keep up, those of its other topics included, loses messages, too.

mod pauses;
mod watched;

pub(super) use self::pauses::Pauses;
use super::connection::{Connected, Paused};
use super::turns::PAUSE_MS;
use super::{Core, READ_BYTES, work};
use crate::broker::Broker;
use crate::clock::Millis;
use crate::connection_id::ConnectionId;
use crate::mailbox::Mail;
use crate::memory::Pressure;
use crate::outbound::GRACE_MS;
use crate::routes::{RouteProgress, Routes};

/// How long a publisher is not read after each read while the process has hardly any memory left. With
/// `LIMITED_READ_BYTES` for each read, a thousand publishers then send 64 MB/s together.
const MEMORY_PAUSE_MS: Millis = 250;
/// A publisher that still cannot be read waits one millisecond longer for each so many paused ones, so that looking at
/// all of them costs little.
const PAUSED_PER_MS: u64 = 64;
/// Publishers that are listed for one receiver, also those whose connections have ended meanwhile. Beyond that, the first is resumed
/// only when it has waited long enough.
const WAITING_MAX: usize = 10_000;

impl Core {
    pub(super) fn pause_until_drained(
        &mut self,
        receiver: u32,
        publisher: ConnectionId,
        progress: RouteProgress,
    ) {
        // The publisher may be listed already: it resumes without a drained receiver when it has waited long enough.
        let waiting = self.pauses.for_receiver.entry(receiver).or_default();
        waiting.push(publisher);
        if waiting.len() > WAITING_MAX {
            waiting.forget_first();
        }
        if publisher.core == self.index {
            return self.pause(publisher, Paused::ForReceiver);
        }
        // A receiver that lags pauses the publisher at each message, but one notice is enough for messages in a row.
        let last = self.mail.outgoing[usize::from(publisher.core)].last();
        if !matches!(last, Some(Mail::Congested { publisher: notified, .. }) if *notified == publisher) {
            self.post(publisher.core, Mail::Congested { publisher, progress });
        }
    }

    /// Handles the notice of another loop, which knows fewer of the publisher's topics: pauses it only if most of its receivers
    /// lag.
    pub(super) fn pause_if_most_lag(&mut self, publisher: ConnectionId, progress: RouteProgress) {
        if self.pauses.watched.are_most_behind(publisher, progress, self.now_ms) {
            self.pause(publisher, Paused::ForReceiver);
        }
    }

    #[inline]
    pub(super) fn note_mailed(&mut self, routes: &Routes, core: u16, publisher: ConnectionId) {
        if !self.pauses.watched.is_empty()
            && let Some(progress) = routes.progress(core, self.now_ms)
        {
            self.pauses.watched.note(Some(publisher), progress, self.now_ms);
        }
    }

    pub(super) fn pause_for_mailbox(&mut self, core: u16, publisher: ConnectionId) {
        let core = usize::from(core);
        let waiting = self.process.mailboxes[core].bytes() + self.mail.outgoing_bytes[core];
        if waiting > self.process.limits.mailbox_bytes_max as usize {
            self.pause(publisher, Paused::ForRoom);
        }
    }

    #[inline]
    pub(super) fn pause_for_memory(&mut self, publisher: ConnectionId) {
        if self.process.memory.pressure() == Pressure::Publishers {
            self.pause(publisher, Paused::ForRoom);
            self.pauses.paused.put_off(publisher, self.now_ms + MEMORY_PAUSE_MS);
        }
    }

    /// Whether a broker's messages in the writer's queue take more than its share, so that the caller must pause the publisher.
    pub(super) fn is_store_full_for(&self, broker: &Broker) -> bool {
        self.is_store_over(broker, self.process.limits.store_bytes_max as usize)
    }

    fn is_store_over(&self, broker: &Broker, bytes_max: usize) -> bool {
        self.process.store.as_ref().is_some_and(|store| store.is_over_share(broker, bytes_max))
    }

    /// Pauses a client whose SUBSCRIBE or UNSUBSCRIBE was queued while the store is full for its broker: the queue itself has no bound.
    pub(super) fn pause_for_store(&mut self, slot: u32) {
        let connection = &self.connections[slot as usize];
        if connection.paused == Paused::ForWork {
            self.work.asks_for_room.insert(slot);
            return;
        }
        let session = connection.session;
        let local = self.sessions.get(session as usize);
        if local.is_some_and(|local| self.is_store_full_for(&local.broker)) && self.is_open(slot) {
            self.pause(self.id_of(slot), Paused::ForRoom);
        }
    }

    /// Reads again from a client whose waiting work is done, unless it has changed filters and the store is full for its broker.
    pub(super) fn resume_after_work(&mut self, id: ConnectionId, has_changed_filters: bool) {
        let is_waiting = |connection: &&mut Connected| connection.paused == Paused::ForWork;
        let asks_for_room = self.work.asks_for_room.remove(&id.slot) || has_changed_filters;
        let Some(connection) = self.connection_of(id).filter(is_waiting) else { return };
        if asks_for_room {
            connection.paused = Paused::No;
            self.pause_for_store(id.slot);
        }
        if self.connections[id.slot as usize].paused != Paused::ForRoom && !self.pause_for_answers(id.slot) {
            self.read_again(id);
        }
    }

    /// True when publishers wait for a receiver that has caught up: nothing else would wake them.
    pub(super) fn has_relief(&self) -> bool {
        !self.pauses.drained.is_empty()
    }

    fn waits_for_socket(&self, receiver: u32) -> usize {
        self.connections
            .get(receiver as usize)
            .and_then(|connection| connection.outbound.as_ref())
            .map_or(0, |outbound| outbound.held())
    }

    /// Resumes publishers whose receivers have caught up: as many as there is room for what each may send at once, and as the turn
    /// has work left for. Receivers that have written nothing are not looked at, because there may be tens of thousands.
    pub(super) fn relieve(&mut self) {
        let (soft_bytes, end) = (self.output.soft_bytes, self.end_of_resuming());
        for _ in 0..self.pauses.drained.len() {
            if self.work.spent() >= end {
                return;
            }
            self.spend(work::SEEN);
            let Some(receiver) = self.pauses.drained.pop_front() else { return };
            let len = self.waits_for_socket(receiver);
            let Some(waiting) = self.pauses.for_receiver.get_mut(&receiver) else { continue };
            waiting.is_listed = false;
            if len >= soft_bytes / 2 {
                continue;
            }
            let room = ((soft_bytes - len) / READ_BYTES).max(1);
            for _ in 0..room.min(waiting.len()) {
                if self.work.spent() >= end {
                    break;
                }
                let Some(publisher) = self.pauses.pop_for(receiver) else { break };
                if publisher.core == self.index {
                    self.relieved(publisher);
                } else {
                    self.post(publisher.core, Mail::Relieved(publisher));
                }
            }
            self.pauses.note_drained(receiver);
        }
    }

    pub(super) fn end_of_resuming(&self) -> u64 {
        self.work.spent().max(work::TURN / 2) + work::TURN / 2
    }

    pub(super) fn pause(&mut self, id: ConnectionId, why: Paused) {
        let at_most_ms = if why == Paused::ForReceiver { GRACE_MS } else { PAUSE_MS };
        let until = self.now_ms + at_most_ms;
        let Some(connection) = self.connection_of(id) else { return };
        match (connection.paused, why) {
            (Paused::No, _) => {
                connection.paused = why;
                let session = connection.session;
                self.pauses.paused.set(id, until);
                if let Some(local) = self.sessions.get(session as usize) {
                    local.broker.counters[usize::from(self.index)].pauses.add(1);
                }
            }
            (Paused::ForRoom, Paused::ForReceiver) => {
                connection.paused = why;
                if self.pauses.paused.contains(id) {
                    self.pauses.paused.set(id, until);
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
            self.pauses.paused.remove(id);
            self.read_again(id);
        }
    }

    /// The receiver that a publisher waits for has caught up, or its CONNECT may be carried out; one that waits for something
    /// else by now continues waiting.
    pub(super) fn relieved(&mut self, id: ConnectionId) {
        let waits =
            |connection: &&mut Connected| matches!(connection.paused, Paused::ForReceiver | Paused::ForMail);
        if self.connection_of(id).filter(waits).is_some() {
            self.resume(id);
        }
    }

    /// Reads a connection again, beginning with the input that was held back.
    pub(super) fn read_again(&mut self, id: ConnectionId) {
        let (now, has_fanout) = (self.tick(), self.pauses.fanouts.contains_key(&id));
        let Some(connection) = self.connection_of(id) else { return };
        if has_fanout {
            connection.paused = Paused::ForFanout;
            return;
        }
        connection.paused = Paused::No;
        // The server did not read it meanwhile, so its keep alive begins anew.
        connection.last_input = now;
        self.digest_held(id.slot);
        if self.connection_of(id).is_some_and(|connection| connection.readable) {
            self.make_readable(id.slot);
        }
    }

    /// Resumes publishers that have waited long enough, as many as the turn has work left for.
    pub(super) fn resume_paused(&mut self) {
        let (now_ms, mailbox_max) = (self.now_ms, self.process.limits.mailbox_bytes_max as usize);
        if self.pauses.paused.due(self.index, now_ms).is_none()
            || self.process.mailboxes.iter().any(|mailbox| mailbox.bytes() > mailbox_max / 2)
        {
            return;
        }
        let later = now_ms + PAUSE_MS + self.pauses.paused.len() as u64 / PAUSED_PER_MS;
        let end = self.end_of_resuming();
        while self.work.spent() < end
            && let Some(id) = self.pauses.paused.due(self.index, now_ms)
        {
            if self.connection_of(id).is_none() {
                self.pauses.paused.remove(id);
            } else if self.is_store_half_full_for(id) {
                self.pauses.paused.set(id, later);
            } else {
                self.pauses.paused.remove(id);
                self.resume(id);
            }
        }
    }

    fn is_store_half_full_for(&self, id: ConnectionId) -> bool {
        let session = self.connections.get(id.slot as usize).map(|connection| connection.session);
        let local = session.and_then(|session| self.sessions.get(session as usize));
        let store_max = self.process.limits.store_bytes_max as usize;
        local.is_some_and(|local| self.is_store_over(&local.broker, store_max / 2))
    }
}

#[cfg(test)]
mod tests;
