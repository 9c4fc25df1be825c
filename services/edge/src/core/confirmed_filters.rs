//! Delays answers and reads until the other pods know this session's filters, so that messages published there reach
//! it.

use std::sync::Arc;

use millrace_layers::subscriptions::Subscribed;
use millrace_router::Target;

use super::Core;
use super::connection::NONE;
use super::persistent::PersistentSession;
use super::subscribe::JOINED;
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
        // The session reads, or joins its groups, again after the confirmation.
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

    /// Makes a session read once more after the other pods know its filters, and join the groups of `shared` again.
    pub(super) fn reread_when_confirmed(
        &mut self,
        target: Target,
        broker: &Broker,
        announced: u64,
        shared: Vec<Box<str>>,
    ) {
        let local = self.sessions.get_mut(target.slot as usize);
        if let Some(persistent) = local.and_then(|local| local.persistent.as_deref_mut()) {
            persistent.live_copies.announced = persistent.live_copies.announced.max(announced);
        }
        self.when_confirmed(broker, announced, Mail::Reread(target, shared));
    }

    pub(super) fn reread(&mut self, target: Target, mut shared: Vec<Box<str>>) {
        let local = self.sessions.get_mut(target.slot as usize);
        let Some(local) = local.filter(|local| local.generation == target.generation) else { return };
        let broker = local.broker.clone();
        let joins = shared.split_off(shared.len().saturating_sub(JOINED));
        joins.iter().for_each(|filter| self.join(&broker, filter));
        if !shared.is_empty() {
            return self.put_off_mail(Mail::Reread(target, shared));
        }
        let persistent = self.sessions[target.slot as usize].persistent.as_deref_mut();
        if persistent.is_some_and(PersistentSession::grow) {
            self.read_on(target.slot);
        }
    }

    /// Returns the mail if all pods have confirmed the announcement; else this loop gets it when they have.
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
    use crate::core::work;

    #[test]
    fn a_session_joins_the_groups_of_new_shared_subscriptions_again_over_several_turns() {
        const SHARED: usize = 5_000;
        let mut loops = Loops::start(1, |_| {});
        let mut client = loops.connect_as("client", true);
        let filters: Vec<String> = (0..SHARED).map(|number| format!("$share/{number:04}/a")).collect();
        loops.send_to(0, &mut client, &subscribe(&filters, QoS::AtMostOnce));
        loops.answer(&mut client, SUBACK);
        let session = loops.connection(0, &client).session;
        let core = &mut loops.cores[0];
        let mut shared = filters.iter().map(|filter| filter.as_str().into()).collect();
        for turn in 1.. {
            let before = core.work.spent();
            core.reread(core.target_of(session), shared);
            assert!(core.work.spent() - before <= work::FILTERS_WORK_MAX);
            let Some(Mail::Reread(_, left)) = core.take_put_off() else {
                return assert_eq!(turn, SHARED / JOINED);
            };
            shared = left;
        }
    }
}
