//! UNSUBSCRIBE, and subscriptions that the server ends: removed from session and router, then from the store, then UNSUBACK.

use std::sync::Arc;

use millrace_layers::limits::{NAME_BYTES_MAX, SUBSCRIPTIONS_MAX};
use millrace_mqtt::{PacketId, ReasonCode, Unsubscribe, Version};

use super::read_filters::FiltersToEnd;
use super::{Reasons, UnsubscribeInProgress};
use crate::broker::Broker;
use crate::core::work::{self, PacketTask};
use crate::core::{ConnectionEnd, Core, parts};
use crate::jobs::{self, Write};

impl Core {
    /// Messages that were on their way to the session still arrive.
    pub(in crate::core) fn unsubscribe(&mut self, slot: u32, unsubscribe: &Unsubscribe<'_>) {
        let filters = FiltersToEnd::new(unsubscribe.filters.clone());
        self.end_filters(slot, filters, Some(unsubscribe.packet_id));
    }

    /// Ends subscriptions for the server, at once: other filter changes wait for the end of the turn.
    pub(in crate::core) fn end_subscriptions(&mut self, slot: u32, filters: Vec<Box<str>>) {
        self.end_filters(slot, filters.into(), None);
        self.change_filters_now(slot);
    }

    fn end_filters(&mut self, slot: u32, read: FiltersToEnd, packet_id: Option<PacketId>) {
        let unsubscribe = UnsubscribeInProgress { packet_id, read, next: 0..0, reasons: Reasons::new() };
        self.change_filters(slot, PacketTask::Unsubscribe(Box::new(unsubscribe)));
    }

    /// Some filters of an UNSUBSCRIBE were carried out; gives it back when there are more.
    pub(super) fn edited_for_unsubscribe(
        &mut self,
        slot: u32,
        broker: &Arc<Broker>,
        unsubscribe: Box<UnsubscribeInProgress>,
    ) -> Option<PacketTask> {
        let UnsubscribeInProgress { read: FiltersToEnd { filters, .. }, next, .. } = &*unsubscribe;
        let ended = &filters[next.clone()];
        self.announce_members(broker, ended.iter().map(|filter| &**filter));
        self.work.spend(work::LOOKUP * ended.len() as u64);
        let session = self.connections[slot as usize].session;
        ended.iter().for_each(|filter| self.unfinished.replays.end(session, filter));
        // With each part: the store may refuse an earlier SUBSCRIBE before the last one.
        if let Some(unanswered) = self.sessions[session as usize].unanswered_by_store() {
            ended.iter().for_each(|filter| unanswered.end(filter));
        }
        if next.end < filters.len() {
            return Some(PacketTask::Unsubscribe(unsubscribe));
        }
        self.finish_unsubscribe(slot, *unsubscribe);
        None
    }

    fn finish_unsubscribe(&mut self, slot: u32, unsubscribe: UnsubscribeInProgress) {
        let UnsubscribeInProgress { packet_id, read: FiltersToEnd { filters, .. }, reasons, .. } =
            unsubscribe;
        let session = self.connections[slot as usize].session;
        let target = self.target_of(session);
        self.work.spend((filters.len() / work::FREED_FILTERS) as u64);
        let local = &mut self.sessions[session as usize];
        if let Some(persistent) = &mut local.persistent {
            // The store may have subscriptions that an UNSUBSCRIBE removed only here, because the store refused it. A
            // session has `SUBSCRIPTIONS_MAX` of them at most.
            let mut unknown = 0;
            let filters = filters.into_iter().zip(&reasons).filter(|(filter, reason)| {
                let is_known = **reason == ReasonCode::SUCCESS;
                unknown += usize::from(!is_known);
                is_known || unknown <= SUBSCRIPTIONS_MAX && filter.len() <= NAME_BYTES_MAX
            });
            let filters: Vec<Box<str>> = filters.map(|(filter, _)| filter).collect();
            self.work.spend(persistent.end_sources(&filters, local.session.entries()));
            let session = local.key();
            let unsubscribe = jobs::UnsubscribeWrite::new(session, target, filters, packet_id, reasons);
            self.queue_job(Write::Unsubscribe(Box::new(unsubscribe)));
            return self.pause_for_store(slot);
        }
        let Some(packet_id) = packet_id else { return };
        let (protocol, mut out, _) = parts!(self, slot);
        let before = out.len();
        protocol.unsubscribed(packet_id, &reasons, &mut out);
        out.note_answers(before);
    }

    pub(in crate::core) fn unsubscribed(&mut self, unsubscribe: jobs::UnsubscribeWrite, stored: bool) {
        let jobs::UnsubscribeWrite { target, packet_id, mut reasons, .. } = unsubscribe;
        // Subscriptions that the server ends are checked again when the client reconnects.
        let Some(packet_id) = packet_id else { return };
        let Some(local) = self.sessions.get_mut(target.slot as usize) else { return };
        if local.generation != target.generation {
            return;
        }
        // A persistent session leaves this loop when its connection ends, so it has one.
        let slot = local.connection;
        if !stored {
            let reason = ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR;
            // A 3.x client gets no reason code. Without an UNSUBACK it does not believe that the subscription has ended.
            if self.connections[slot as usize].protocol.version() != Version::V5 {
                return self.end(slot, ConnectionEnd::Error(reason), true);
            }
            reasons.iter_mut().for_each(|each| *each = reason);
        }
        let (protocol, mut out, _) = parts!(self, slot);
        let before = out.len();
        protocol.unsubscribed(packet_id, &reasons, &mut out);
        out.note_answers(before);
    }
}
