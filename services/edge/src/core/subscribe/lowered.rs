//! Subscriptions whose QoS a change of rules lowers: the server subscribes anew in place of the client, without a SUBACK.

use std::sync::Arc;

use millrace_mqtt::{PacketId, Property, RetainHandling, Subscribe, SubscribeOptions};
use millrace_session::ClientSubscription;
use smallvec::SmallVec;

use super::SubscribeInProgress;
use super::read_filters::FiltersToAdd;
use crate::core::Core;
use crate::core::work::{self, PacketTask};
use crate::jobs::PendingSubscribe;

pub(super) enum Identifiers {
    /// A SUBSCRIBE has one for all of its filters.
    All(u32),
    Each(Vec<u32>),
}

impl Identifiers {
    pub(super) fn of_packet(subscribe: &Subscribe<'_>) -> Self {
        let identifier = subscribe.properties.iter().find_map(|property| match property {
            Property::SubscriptionIdentifier(identifier) => Some(identifier),
            _ => None,
        });
        Self::All(identifier.unwrap_or(0))
    }

    pub(super) fn of(&self, place: usize) -> u32 {
        match self {
            Self::All(identifier) => *identifier,
            Self::Each(all) => all.get(place).copied().unwrap_or(0),
        }
    }
}

impl SubscribeInProgress {
    pub(super) fn of(identifiers: Identifiers, read: FiltersToAdd, packet_id: Option<PacketId>) -> Self {
        Self {
            identifiers,
            read,
            done: 0,
            until: 0,
            checked: SmallVec::new(),
            reached: None,
            granted: Vec::new(),
            stored: Vec::new(),
            shared: Vec::new(),
            holds: false,
            pending: PendingSubscribe::new(packet_id),
            no_pages: Arc::default(),
        }
    }

    fn lowered(subscriptions: Vec<(Box<str>, ClientSubscription)>) -> Self {
        let identifiers = subscriptions.iter().map(|(_, subscription)| subscription.identifier).collect();
        let quiet = |(filter, ClientSubscription { options, .. })| {
            (filter, SubscribeOptions { retain_handling: RetainHandling::DoNotSend, ..options })
        };
        let read = FiltersToAdd::of(subscriptions.into_iter().map(quiet).collect());
        Self::of(Identifiers::Each(identifiers), read, None)
    }
}

impl Core {
    /// Gives subscriptions of a session a lower QoS. The session has the new QoS at once, even if the store then refuses the
    /// change, so messages that it reads from the store have it, too.
    pub(in crate::core) fn lower_subscriptions(
        &mut self,
        slot: u32,
        lowered: Vec<(Box<str>, ClientSubscription)>,
    ) {
        self.spend(work::LOOKUP * lowered.len() as u64);
        let session = &mut self.sessions[self.connections[slot as usize].session as usize].session;
        for (filter, subscription) in &lowered {
            session.subscribe(filter, *subscription);
        }
        self.change_filters(slot, PacketTask::Subscribe(Box::new(SubscribeInProgress::lowered(lowered))));
        self.change_filters_now(slot);
    }
}
