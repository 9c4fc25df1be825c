//! Sends clients to other servers before the process stops.

use std::hash::BuildHasher;

use millrace_mqtt::ReasonCode;

use super::connection::{ConnectionState, NONE};
use super::{ConnectionEnd, Core, parts};
use crate::broker::Broker;
use crate::connection_id::ConnectionId;

impl Core {
    pub(super) fn drain(&mut self) {
        let Some(drain) = self.process.drain.get().cloned() else { return };
        if self.leaving.is_none() {
            self.begin_drain();
        }
        let Some(leaving) = &mut self.leaving else { return };
        if leaving.is_empty() {
            return;
        }
        let mut leaving = std::mem::take(leaving);
        while let Some(id) = leaving.pop() {
            if self.connection_of(id).is_none_or(|connection| connection.state != ConnectionState::Open) {
                continue;
            }
            if !drain.take(self.now_ms) {
                leaving.push(id);
                break;
            }
            self.send_away(id.slot, ConnectionEnd::Drained);
        }
        if leaving.is_empty() {
            drain.finish();
        }
        self.leaving = Some(leaving);
    }

    /// Stops accepting, lets CONNECTs that wait for admission come to [`Core::refuse_draining`], and orders the clients so that
    /// those of a broker are far apart.
    fn begin_drain(&mut self) {
        // Connections that the kernel has accepted get the server reference, too.
        self.accept_all();
        self.stop_listening();
        self.leaving = Some(Vec::new());
        for id in self.connects.admission.take_all() {
            self.decide(id, None);
        }
        let mut leaving: Vec<ConnectionId> = (self.connections.iter())
            .filter(|(_, connection)| connection.session != NONE || connection.pending.is_some())
            .map(|(slot, connection)| ConnectionId {
                core: self.index,
                slot: u32::try_from(slot).unwrap_or(NONE),
                generation: connection.generation,
            })
            .collect();
        leaving.sort_unstable_by_key(|id| self.process.owners.hash_one((id.generation, id.slot)));
        if leaving.is_empty()
            && let Some(drain) = self.process.drain.get()
        {
            drain.finish();
        }
        self.leaving = Some(leaving);
    }

    pub(super) fn is_draining(&self) -> bool {
        self.leaving.as_ref().is_some_and(|leaving| !leaving.is_empty())
    }

    pub(super) fn begin_stop(&mut self) {
        // First the mail that the last turn left over, then the mailbox, which may have messages that other cores have acknowledged.
        self.take_mail(u64::MAX);
        self.take_mail(u64::MAX);
        self.stopping = true;
        self.stop_listening();
        // Connections that are being closed have already got their reason.
        let open: Vec<u32> = (self.connections.iter())
            .filter(|(_, connection)| connection.state == ConnectionState::Open)
            .filter_map(|(slot, _)| u32::try_from(slot).ok())
            .collect();
        for slot in open {
            self.send_away(slot, ConnectionEnd::Shutdown);
        }
        self.flush_dirty(u64::MAX);
    }

    /// Ends a connection because the server stops. The session stays, and so does the will, because only the client's
    /// own DISCONNECT removes it: a delayed will waits for the client to reconnect elsewhere.
    //= [MQTT-3.1.2-8] v5 v3.1.1
    pub(super) fn send_away(&mut self, slot: u32, ended: ConnectionEnd) {
        let reference = self.process.config.server_reference.as_deref();
        let (protocol, mut out, _) = parts!(self, slot);
        let what = "server shutting down";
        if protocol.is_open() {
            let reason = match reference {
                Some(_) => ReasonCode::USE_ANOTHER_SERVER,
                None => ReasonCode::SERVER_SHUTTING_DOWN,
            };
            protocol.disconnect_to(reason, what, reference, &mut out);
        } else if protocol.decoding_version().is_some() {
            let reason = match reference {
                Some(_) => ReasonCode::USE_ANOTHER_SERVER,
                None => ReasonCode::SERVER_UNAVAILABLE,
            };
            protocol.refuse_to(reason, what, reference, &mut out);
        }
        let broker = self.connections[slot as usize].pending.as_ref().map(|request| request.broker.clone());
        if let Some(broker) = broker {
            self.broker_counters(&broker).refused_draining.add(1);
        }
        self.end(slot, ended, true);
    }

    pub(super) fn refuse_draining(&mut self, slot: u32, broker: &Broker) -> bool {
        if self.process.drain.get().is_none() {
            return false;
        }
        self.broker_counters(broker).refused_draining.add(1);
        self.send_away(slot, ConnectionEnd::Drained);
        true
    }
}
