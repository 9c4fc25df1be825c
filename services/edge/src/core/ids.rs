//! QoS 2 packet ids of persistent sessions. In both directions, the store has an id before the packet that uses it is sent.
//!
//! Towards the client, the id is stored before its PUBLISH leaves, and the client's receipt before its PUBREL leaves.
//! So a crash in between repeats the packet with the same id, never the message with another one. From the client, an
//! id is stored with its message, and forgotten before PUBCOMP leaves, because then the client may use the id again.

use std::collections::HashSet;

use millrace_layers::Position;
use millrace_mqtt::{PacketId, ReasonCode};
use millrace_session::InFlight;

use super::connection::NONE;
use super::{ConnectionEnd, Core, LocalSession, parts, work};
use crate::encoding::inflight;
use crate::jobs::{IdWrite, Ids, Reserve, SessionKey, Write};
use crate::streams::StoredGroup;

/// Bytes of rows after which the next [`Reserve`] job begins, because a job is written in one transaction.
const RESERVE_BYTES: usize = 1_000_000;

impl LocalSession {
    pub(super) fn key(&self) -> SessionKey {
        let (broker, client) = (self.broker.clone(), self.session.client_id().clone());
        SessionKey { broker, client, epoch: self.epoch }
    }
}

impl Core {
    /// `unordered_ids`: the order of the ids is not that of sending, so whoever loads the rows sorts them by position.
    fn write_ids(&mut self, session: u32, write: IdWrite) {
        let (target, local) = (self.target_of(session), &self.sessions[session as usize]);
        let (session, unordered_ids) = (local.key(), local.session.has_unordered_ids());
        self.queue_job(Write::Ids(Box::new(Ids { session, target, write, unordered_ids })));
    }

    /// Stores the packet ids that the session has assigned to messages.
    pub(super) fn reserve(&mut self, session: u32) {
        let local = &mut self.sessions[session as usize];
        let broker = local.broker.id;
        let reserved = local.session.take_reserved();
        let Some(persistent) = &mut local.persistent else {
            // The store does not have this session, so its ids need not be stored.
            for (id, _) in reserved {
                local.session.confirm(id);
            }
            return;
        };
        let open = local.session.entries().count();
        self.work.spend(work::CHECKPOINT + (open / work::OPEN_MESSAGES) as u64);
        let (cursor, acknowledged) = persistent.progress(self.following.handed_over, local.session.entries());
        let unordered_ids = local.session.has_unordered_ids();
        let new: HashSet<PacketId> = reserved.iter().map(|(id, _)| *id).collect();
        persistent.ids.retain(|(known, _)| !new.contains(known));
        let job = || Reserve { cursor, acknowledged: acknowledged.clone(), ..Reserve::default() };
        let mut jobs = vec![job()];
        let mut bytes = 0;
        for (id, mut entry) in reserved {
            if bytes >= RESERVE_BYTES {
                bytes = 0;
                jobs.push(job());
            }
            let job = jobs.last_mut().expect("there is a first");
            let position = entry.message.position().map(Position);
            // A session does not read the streams of its shared subscriptions. So `replay` puts the whole message into the
            // row, and the group's stream drops the message in the same transaction.
            //= [MQTT-4.8.2-5] v5
            entry.replay |= entry.shared != 0;
            let stream = StoredGroup::stream_of(entry.shared).map(|stream| (broker, stream));
            job.taken.extend(stream.zip(position));
            persistent.ids.push((id, position));
            let row = inflight::encode(&InFlight::Published(entry), unordered_ids, &self.process.clock);
            bytes += row.len();
            job.rows.push((id, row));
        }
        for job in jobs {
            self.write_ids(session, IdWrite::Reserve(job));
        }
    }

    pub(super) fn pubrec_received(&mut self, slot: u32, id: PacketId) {
        let session = self.connections[slot as usize].session;
        let local = &mut self.sessions[session as usize];
        let position = local.session.position_of(id);
        let (broker, settled) = (local.broker.id, local.session.take_settled());
        self.note_settled(broker, settled);
        let local = &self.sessions[session as usize];
        if local.persistent.is_some() {
            self.write_ids(session, IdWrite::Release(id, position));
        } else {
            let (protocol, mut out, _) = parts!(self, slot);
            let before = out.len();
            protocol.release(id, &mut self.sessions[session as usize].session, &mut out);
            out.note_answers(before);
        }
    }

    /// Only persistent sessions cause this; others complete at once.
    pub(super) fn pubrel_received(&mut self, slot: u32, id: PacketId) {
        let session = self.connections[slot as usize].session;
        self.write_ids(session, IdWrite::Forget(id));
    }

    /// Sends the packet that waited until the writer had stored `ids`.
    pub(super) fn ids_written(&mut self, ids: Ids, stored: bool) {
        let Some(local) = self.sessions.get_mut(ids.target.slot as usize) else { return };
        if local.generation != ids.target.generation || local.connection == NONE {
            return;
        }
        let slot = local.connection;
        if !stored {
            let reason = ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR;
            return self.say_and_close(
                slot,
                reason,
                "packet ids could not be stored",
                ConnectionEnd::Error(reason),
            );
        }
        match ids.write {
            IdWrite::Reserve(reserve) => {
                for (id, _) in reserve.rows {
                    local.session.confirm(id);
                }
                self.pump(slot);
            }
            IdWrite::Release(id, _) => {
                let (protocol, mut out, session) = parts!(self, slot);
                let before = out.len();
                protocol.release(id, &mut self.sessions[session as usize].session, &mut out);
                out.note_answers(before);
            }
            IdWrite::Forget(id) => {
                let (protocol, mut out, session) = parts!(self, slot);
                let before = out.len();
                protocol.complete(id, &mut self.sessions[session as usize].session, &mut out);
                out.note_answers(before);
            }
        }
    }
}
