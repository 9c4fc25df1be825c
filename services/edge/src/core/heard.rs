//! Delays answers and reads until the other pods know this session's filters, so that messages published there reach
//! it.

use std::sync::Arc;

use millrace_layers::subscriptions::Subscribed;
use millrace_router::Target;

use super::Core;
use super::connection::NONE;
use super::persistent::PersistentSession;
use crate::broker::Broker;
use crate::connection_id::ConnectionId;
use crate::jobs::{PendingSubscribe, Subscribe};
use crate::mailbox::Mail;

impl Core {
    /// Announces new filters to other pods, and returns the number to wait for; 0 when there are no other pods.
    pub(super) fn tell_filters<'f>(&self, broker: &Broker, filters: impl Iterator<Item = &'f str>) -> u64 {
        self.process.region.as_ref().map_or(0, |region| region.subscribed(broker, filters))
    }

    pub(super) fn suback_when_heard(&mut self, slot: u32, broker: &Broker, mut pending: PendingSubscribe) {
        let told = std::mem::take(&mut pending.told);
        let mail = Mail::Suback(self.id_of(slot), Box::new(pending));
        if let Some(Mail::Suback(_, pending)) = self.when_heard(broker, told, mail) {
            self.answer_subscribe(slot, &pending);
        }
    }

    pub(super) fn heard(&mut self, connection: ConnectionId, pending: &PendingSubscribe) {
        if self.connection_of(connection).is_some_and(|connection| connection.session != NONE) {
            self.answer_subscribe(connection.slot, pending);
        }
    }

    pub(super) fn subscribed_when_heard(
        &mut self,
        mut subscribe: Box<Subscribe>,
        subscribed: Vec<Option<Subscribed>>,
    ) {
        let told = std::mem::take(&mut subscribe.pending.told);
        let (broker, target): (Arc<Broker>, _) = (subscribe.session.broker.clone(), subscribe.target);
        if subscribe.is_stored() {
            // These sessions find later messages in the store themselves, and those come right after the answer.
            self.subscribed(*subscribe, &subscribed);
            return self.reread_when_heard(target, &broker, told);
        }
        let mail = Mail::Subscribed(subscribe, subscribed);
        if let Some(Mail::Subscribed(subscribe, subscribed)) = self.when_heard(&broker, told, mail) {
            self.subscribed(*subscribe, &subscribed);
        }
    }

    /// Makes a session read once more after the other pods know its filters.
    pub(super) fn reread_when_heard(&mut self, target: Target, broker: &Broker, told: u64) {
        let local = self.sessions.get_mut(target.slot as usize);
        if let Some(persistent) = local.and_then(|local| local.persistent.as_deref_mut()) {
            persistent.ahead.told = persistent.ahead.told.max(told);
        }
        self.when_heard(broker, told, Mail::Reread(target));
    }

    pub(super) fn reread(&mut self, target: Target) {
        let local = self.sessions.get_mut(target.slot as usize);
        let Some(local) = local.filter(|local| local.generation == target.generation) else { return };
        let broker = local.broker.clone();
        let filters = local.session.subscriptions().map(|(filter, _)| filter);
        let shared: Vec<Box<str>> =
            filters.filter(|filter| filter.starts_with("$share/")).map(Into::into).collect();
        let reads = local.persistent.as_deref_mut().is_some_and(PersistentSession::grow);
        shared.iter().for_each(|filter| self.join(&broker, filter));
        if reads {
            self.read_on(target.slot);
        }
    }

    fn when_heard(&self, broker: &Broker, told: u64, mail: Mail) -> Option<Mail> {
        match &self.process.region {
            Some(region) if told > 0 => region.when_heard(broker, told, self.index, mail),
            _ => Some(mail),
        }
    }
}
