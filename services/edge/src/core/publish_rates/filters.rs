//! The rate of the filters that SUBSCRIBE and UNSUBSCRIBE name: a packet waits until the rate has paid for those of its broker's
//! packets before it. It is charged while it waits, so that connections take turns.

use millrace_mqtt::Packet;

use crate::connection_id::ConnectionId;
use crate::core::Core;
use crate::core::connection::{NONE, Paused};
use crate::quota::Limit;
use crate::quota::limiter::{millis, nanos};

/// Filters that are counted for one unit of work.
const PER_UNIT: usize = 16;

impl Core {
    /// Whether this SUBSCRIBE or UNSUBSCRIBE passes now. If not, its connection is paused until its turn, or its client has left it and
    /// the packet is dropped.
    pub(in crate::core) fn may_change_filters(&mut self, slot: u32, packet: &Packet<'_>) -> bool {
        let (id, now_ms) = (self.id_of(slot), self.now_ms);
        let session = self.connections[slot as usize].session;
        let Some(local) = self.sessions.get(session as usize) else { return true };
        let quota = &local.broker.quota;
        if !quota.limits_filters() {
            return true;
        }
        let until = if let Some((_, until)) = self.pauses.rates.of(id).filters {
            until
        } else {
            let filters = match packet {
                Packet::Subscribe(subscribe) => subscribe.filters.clone().count(),
                Packet::Unsubscribe(unsubscribe) => unsubscribe.filters.clone().count(),
                _ => 0,
            };
            self.work.spend((filters / PER_UNIT) as u64);
            let until = millis(quota.subscribe(filters as u64, nanos(now_ms)));
            if until > now_ms {
                self.pauses.rates.of(id).filters = Some((filters as u64, until));
                // [`Self::waits_on_for_filters`] is called then, or earlier.
                self.pauses.rates.look(id, until, now_ms);
                self.reached(slot, Limit::BrokerFilterRate);
            }
            until
        };
        if until > now_ms {
            if self.pauses.rates.of(id).is_replaced || self.connections[slot as usize].read_closed {
                self.give_back_filters(slot, session);
            } else {
                self.connections[slot as usize].paused = Paused::ForRate;
            }
        } else {
            self.pauses.rates.of(id).filters = None;
        }
        until <= now_ms
    }

    /// Whether a packet of filters must wait on; `None`: none waits on this connection.
    pub(super) fn waits_on_for_filters(&mut self, id: ConnectionId) -> Option<bool> {
        let now_ms = self.now_ms;
        let (_, until) = self.pauses.rates.of(id).filters?;
        let session = self.connection_of(id).map_or(NONE, |connection| connection.session);
        let local = self.sessions.get(session as usize)?;
        let until = until.min(millis(local.broker.quota.filters_paid_at(nanos(now_ms))));
        if let Some((_, waits_until)) = &mut self.pauses.rates.of(id).filters {
            *waits_until = until;
        }
        if until > now_ms {
            self.pauses.rates.look(id, until, now_ms);
        }
        Some(until > now_ms)
    }

    pub(super) fn give_back_filters(&mut self, slot: u32, session: u32) {
        let generation = self.connections[slot as usize].generation;
        let limited =
            self.pauses.rates.by_slot.get_mut(&slot).filter(|limited| limited.generation == generation);
        if let Some((filters, _)) = limited.and_then(|limited| limited.filters.take()) {
            self.sessions[session as usize].broker.quota.give_back_filters(filters, nanos(self.now_ms));
        }
    }
}
