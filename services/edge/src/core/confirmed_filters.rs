//! Delays answers and reads until the other pods know this session's filters, so that messages published there reach
//! it.

use std::sync::Arc;

use millrace_layers::subscriptions::Subscribed;
use millrace_router::Target;

use super::connection::NONE;
use super::persistent::PersistentSession;
use super::{Core, work};
use crate::broker::Broker;
use crate::connection_id::ConnectionId;
use crate::jobs::{PendingSubscribe, SubscribeWrite};
use crate::mailbox::Mail;

impl Core {
    /// Announces new filters to other pods, and returns the number to wait for; 0 when there are no other pods.
    pub(super) fn announce_filters<'f>(
        &self,
        broker: &Broker,
        filters: impl Iterator<Item = &'f str>,
    ) -> u64 {
        self.process.region.as_ref().map_or(0, |region| region.subscribed(broker, filters))
    }

    pub(super) fn suback_when_confirmed(
        &mut self,
        slot: u32,
        broker: &Broker,
        mut pending: PendingSubscribe,
    ) {
        let announced = std::mem::take(&mut pending.announced);
        let mail = Mail::Suback(self.id_of(slot), Box::new(pending));
        if let Some(Mail::Suback(_, pending)) = self.when_confirmed(broker, announced, mail) {
            self.answer_subscribe(slot, *pending);
        }
    }

    pub(super) fn filters_confirmed(&mut self, connection: ConnectionId, pending: PendingSubscribe) {
        if self.connection_of(connection).is_some_and(|connection| connection.session != NONE) {
            self.answer_subscribe(connection.slot, pending);
        }
    }

    pub(super) fn subscribed_when_confirmed(
        &mut self,
        mut subscribe: Box<SubscribeWrite>,
        subscribed: Vec<Option<Subscribed>>,
    ) {
        if subscribe.is_stored() {
            return self.subscribed(*subscribe, &subscribed);
        }
        let announced = std::mem::take(&mut subscribe.pending.announced);
        let broker: Arc<Broker> = subscribe.session.broker.clone();
        let mail = Mail::Subscribed(subscribe, subscribed);
        if let Some(Mail::Subscribed(subscribe, subscribed)) = self.when_confirmed(&broker, announced, mail) {
            self.subscribed(*subscribe, &subscribed);
        }
    }

    /// Makes a session read once more after the other pods know its filters.
    pub(super) fn reread_when_confirmed(&mut self, target: Target, broker: &Broker, announced: u64) {
        let local = self.sessions.get_mut(target.slot as usize);
        if let Some(persistent) = local.and_then(|local| local.persistent.as_deref_mut()) {
            persistent.live_copies.announced = persistent.live_copies.announced.max(announced);
        }
        self.when_confirmed(broker, announced, Mail::Reread(target));
    }

    pub(super) fn reread(&mut self, target: Target) {
        let local = self.sessions.get_mut(target.slot as usize);
        let Some(local) = local.filter(|local| local.generation == target.generation) else { return };
        let broker = local.broker.clone();
        self.work.spend((local.session.subscriptions_len() / work::PASSED_FILTERS) as u64);
        let filters = local.session.subscriptions().map(|(filter, _)| filter);
        let shared: Vec<Box<str>> =
            filters.filter(|filter| filter.starts_with("$share/")).map(Into::into).collect();
        let reads = local.persistent.as_deref_mut().is_some_and(PersistentSession::grow);
        shared.iter().for_each(|filter| self.join(&broker, filter));
        if reads {
            self.read_on(target.slot);
        }
    }

    fn when_confirmed(&self, broker: &Broker, announced: u64, mail: Mail) -> Option<Mail> {
        match &self.process.region {
            Some(region) if announced > 0 => region.when_confirmed(broker, announced, self.index, mail),
            _ => Some(mail),
        }
    }
}

#[cfg(test)]
mod tests {
    use millrace_mqtt::QoS;

    use super::*;
    use crate::core::testing::{Loops, SUBACK, subscribe};

    #[test]
    fn looking_for_shared_filters_among_all_of_a_session_counts() {
        const FILTERS: usize = 2_000;
        let mut loops = Loops::start(1, |_| {});
        let mut client = loops.connect_as("client", true);
        let filters: Vec<String> = (0..FILTERS).map(|number| format!("{number:04}")).collect();
        loops.send_to(0, &mut client, &subscribe(&filters, QoS::AtMostOnce));
        loops.answer(&mut client, SUBACK);
        let session = loops.connection(0, &client).session;
        let core = &mut loops.cores[0];
        let before = core.work.spent();
        core.reread(core.target_of(session));
        assert_eq!(core.work.spent() - before, (FILTERS / work::PASSED_FILTERS) as u64);
    }
}
