//! Stores the acknowledgements of persistent sessions from time to time, and the whole session when its connection ends.
//! Afterwards the session takes no memory.

use std::collections::HashSet;

use millrace_layers::Positions;
use millrace_mqtt::{PacketId, QoS, ReasonCode};
use millrace_session::{InFlight, Message, OutboxEntry, Seconds};

use super::connection::NONE;
use super::persistent::PersistentSession;
use super::timers::DueTimer;
use super::{ConnectionEnd, Core, work};
use crate::connection_id::ConnectionId;
use crate::home::HomeClaim;
use crate::jobs::{Checkpoint, DetachWrite, Purge, Write};

/// Acknowledgements after which a session's progress is stored.
const ACKNOWLEDGED_MAX: u32 = 500;
/// The progress is stored at the latest after this time, seconds.
const SAVE_AFTER_S: Seconds = 2;

impl Core {
    pub(super) fn note_acknowledged(&mut self, session: u32) {
        let target = self.target_of(session);
        let Some(persistent) = &mut self.sessions[session as usize].persistent else { return };
        persistent.acknowledged += 1;
        match persistent.acknowledged {
            1 => {
                if self.following.unsaved.is_empty() {
                    self.calendar.add(self.now + SAVE_AFTER_S, DueTimer::Checkpoints);
                }
                self.following.unsaved.push(target);
            }
            // It is still in `unsaved`, so it is not added again.
            count if count % ACKNOWLEDGED_MAX == 0 => self.save(session),
            _ => {}
        }
    }

    /// Stores the acknowledgements of all sessions in `unsaved`, slice by slice: `saving` has the rest.
    pub(super) fn save_all(&mut self) {
        if self.following.saving.is_empty() {
            self.following.saving = std::mem::take(&mut self.following.unsaved);
        }
        let end = self.work.spent() + work::SLICE;
        while self.work.spent() < end
            && let Some(target) = self.following.saving.pop()
        {
            let Some(local) = self.sessions.get_mut(target.slot as usize) else { continue };
            if local.generation != target.generation {
                continue;
            }
            self.save(target.slot);
            if let Some(persistent) = &mut self.sessions[target.slot as usize].persistent {
                persistent.acknowledged = 0;
            }
        }
        if !self.following.saving.is_empty() {
            self.unfinished.due.push_back(DueTimer::Checkpoints);
        }
    }

    /// Queues a checkpoint: the client has acknowledged everything up to `cursor`, and `acknowledged` beyond it.
    fn save(&mut self, session: u32) {
        let (target, replayed) = (self.target_of(session), self.take_replayed(session));
        let local = &mut self.sessions[session as usize];
        let Some(persistent) = &mut local.persistent else { return };
        let open = local.session.entries().count();
        self.work.spend(work::CHECKPOINT + open as u64);
        let (cursor, acknowledged) = persistent.progress(self.following.handed_over, local.session.entries());
        let mut completed = Vec::new();
        persistent.ids.retain(|(id, position)| {
            // The checkpoint says of the message that it is acknowledged, so no later owner delivers it again.
            let is_known =
                position.is_none_or(|position| position <= cursor || acknowledged.contains(position));
            let is_over = is_known && !local.session.is_sending(*id);
            if is_over {
                completed.push(*id);
            }
            !is_over
        });
        let streams = persistent.streams();
        let checkpoint =
            Checkpoint { session: local.key(), target, cursor, acknowledged, completed, streams, replayed };
        self.queue_job(Write::Checkpoint(Box::new(checkpoint)));
    }

    /// The store has refused a checkpoint, so a later one must have its progress, too.
    pub(super) fn unsaved(&mut self, checkpoint: Checkpoint) {
        let Checkpoint { target, completed, replayed, .. } = checkpoint;
        let Some(local) = self.sessions.get_mut(target.slot as usize) else { return };
        if local.generation != target.generation {
            return;
        }
        let Some(persistent) = &mut local.persistent else { return };
        persistent.take_back(completed, replayed);
        self.note_acknowledged(target.slot);
    }

    pub(super) fn purge(&mut self, mut purge: Box<Purge>, claim: Option<HomeClaim>) {
        if let Some(claim) = claim {
            self.end_claim(claim);
        }
        let found = self.session_of(&purge.broker, &purge.client);
        if let Some(session) = found {
            let slot = self.sessions[session as usize].connection;
            if slot != NONE {
                let reason = ReasonCode::ADMINISTRATIVE_ACTION;
                self.say_and_close(
                    slot,
                    reason,
                    "the session was ended by an operator",
                    ConnectionEnd::Error(reason),
                );
            }
        }
        // Closing the connection has removed a persistent session from this loop, so the session is in memory only.
        let in_memory = found.filter(|session| self.sessions.contains(*session as usize));
        if let Some(session) = in_memory {
            self.end_session(session);
        }
        purge.was_online = found.is_some();
        if self.process.store.is_some() {
            self.queue_job(Write::Purge(purge));
        } else {
            let _ = purge.done.try_send(Ok(found.is_some()));
        }
    }

    /// Detaches a session whose connection has ended: from here on the store keeps it, and `with_will` also its will. `leaves`: the
    /// connection that is closed once the store has removed the will.
    pub(super) fn leave_to_store(&mut self, session: u32, with_will: bool, leaves: Option<ConnectionId>) {
        if self.sessions[session as usize]
            .persistent
            .as_ref()
            .is_some_and(|persistent| persistent.acknowledged > 0)
        {
            self.save(session);
        }
        // After the checkpoint, which removes the rows of packet ids that the session does not use any more. `begun` are messages
        // of shared subscriptions whose packet ids are on their way to the store.
        let begun = self.give_back_begun(session);
        let now_ms = self.process.clock.unix_now_ms();
        let (retained, replayed) = self.leave_retained(session);
        let local = &mut self.sessions[session as usize];
        let (in_flight, unsent) = local.session.in_flight();
        let unsent = unsent.into_iter().filter(|entry| entry.shared == 0).cloned().collect();
        // In-flight messages of shared subscriptions go to other members, except QoS 2 messages, which only this
        // client may get.
        //= [MQTT-4.8.2-5] v5
        let stays = |in_flight: &InFlight| match in_flight {
            InFlight::Published(entry) => entry.shared == 0 || entry.qos == QoS::ExactlyOnce,
            InFlight::Released(_) | InFlight::Unsent(_) => true,
        };
        let mut in_flight: Vec<_> = in_flight.into_iter().filter(|(_, in_flight)| stays(in_flight)).collect();
        let work = work::SINGLE_COPY * in_flight.len() as u64
            + mark_whole(&mut in_flight, local.persistent.as_deref());
        self.work.spend(work);
        let mut standing = standing(&in_flight, local.persistent.as_deref());
        standing.extend(begun.iter().map(|(id, ..)| *id));
        standing.sort_unstable();
        in_flight.extend(retained);
        let mut detach = DetachWrite {
            session: local.key(),
            leaves,
            keep_will: with_will.into(),
            expiry_s: local.session.expiry_s,
            now_ms,
            base: self.following.handed_over,
            in_flight,
            standing,
            begun,
            unsent,
            recent: Vec::new(),
            had: Positions::default(),
            unordered_ids: local.session.has_unordered_ids(),
            received: local.session.received_unstored().collect(),
            replayed,
        };
        if let Some(persistent) = local.persistent.take() {
            detach.base = persistent.base(self.following.handed_over);
            (detach.recent, detach.had) = persistent.into_recent();
        }
        self.queue_job(Write::Detach(Box::new(detach)));
    }
}

/// Sets `replay` for messages that no stream of the session has any more: a row of a packet id then stores the whole message instead of
/// its position. Messages whose streams take too long to find get it too, as far as a session may store whole messages.
fn mark_whole(in_flight: &mut [(PacketId, InFlight)], persistent: Option<&PersistentSession>) -> u64 {
    let open = in_flight.iter().filter_map(|(_, in_flight)| match in_flight {
        InFlight::Published(entry) => Some(&entry.message),
        InFlight::Released(_) | InFlight::Unsent(_) => None,
    });
    let mut streams = persistent.and_then(|persistent| persistent.streams_left(open));
    let mut is_found = |message: &Message| match &mut streams {
        Some(streams) => streams
            .matches(message.topic())
            .unwrap_or_else(|| !streams.may_store_whole(message) && message.position().is_some()),
        None => persistent.is_some(),
    };
    for (_, in_flight) in in_flight {
        if let InFlight::Published(entry) = in_flight {
            let is_orphan = persistent.is_some_and(|persistent| persistent.is_orphan(&entry.message));
            entry.replay |= entry.shared != 0 || is_orphan || !is_found(&entry.message);
        }
    }
    streams.map_or(0, |streams| streams.work())
}

/// Packet ids whose rows the store has since before the message was sent, with the whole message; the detach leaves them as they are.
fn standing(in_flight: &[(PacketId, InFlight)], persistent: Option<&PersistentSession>) -> Vec<u16> {
    let known: HashSet<PacketId> =
        persistent.iter().flat_map(|persistent| &persistent.ids).map(|(id, _)| *id).collect();
    let is_known = |id: &PacketId| known.contains(id);
    let is_whole = |entry: &OutboxEntry| {
        let in_no_stream = entry.message.is_decided() && entry.message.position().is_none();
        entry.qos == QoS::ExactlyOnce && (entry.shared != 0 || in_no_stream)
    };
    let is_standing = |(id, in_flight): &&(PacketId, InFlight)| {
        matches!(in_flight, InFlight::Published(entry) if is_whole(entry)) && is_known(id)
    };
    in_flight.iter().filter(is_standing).map(|(id, _)| id.get()).collect()
}
