//! Removes subscriptions that a client's rules no longer allow, and lowers the QoS of others to what they allow.

use millrace_access::rules::ClientIdentity;
use millrace_mqtt::SubscribeOptions;
use millrace_mqtt::topic::Filter;
use millrace_session::ClientSubscription;

use super::connection::{NONE, Paused};
use super::entry::rules_work;
use super::{Core, work};

/// A check of all subscriptions of a session, which continues in later turns.
#[derive(Default)]
pub(super) struct Revocation {
    checked: usize,
    forbidden: Vec<Box<str>>,
    lowered: Vec<(Box<str>, ClientSubscription)>,
}

impl Core {
    /// MQTT has no packet to notify the client of the removal, and messages that are in its queue are still delivered. Its
    /// connection is not read until all subscriptions are checked.
    pub(super) fn revoke(&mut self, slot: u32) {
        if self.connections.get(slot as usize).is_none_or(|connection| connection.session == NONE) {
            return;
        }
        // All filters of a session that comes back are checked once they are in the router.
        if let Some(resumption) = self.work.resumptions.get_mut(&slot) {
            return resumption.check_anew();
        }
        if self.work.stored_answers.contains_key(&slot) || self.work.coming_online.contains_key(&slot) {
            // The check begins when the session has carried out the store's answer, or is online in all its groups.
            self.work.revocations.insert(slot, Revocation::default());
            return;
        }
        if let Some(rest) = self.check_subscriptions(slot, Revocation::default()) {
            self.work.revocations.insert(slot, rest);
            if self.connections[slot as usize].paused != Paused::ForWork {
                self.resume_in_turn(slot);
            }
        }
    }

    /// Returns true when nothing is left to check.
    pub(super) fn revoke_more(&mut self, slot: u32) -> bool {
        let Some(revocation) = self.work.revocations.remove(&slot) else { return true };
        if self.connections[slot as usize].session == NONE {
            return true;
        }
        let rest = self.check_subscriptions(slot, revocation);
        let is_over = rest.is_none();
        self.work.revocations.extend(rest.map(|rest| (slot, rest)));
        is_over
    }

    /// Begins the check again, because a change of the subscriptions may have changed their order.
    pub(super) fn revoke_anew(&mut self, slot: u32) {
        if let Some(revocation) = self.work.revocations.get_mut(&slot) {
            *revocation = Revocation::default();
        }
    }

    /// Returns the rest of the check, if a later turn must continue.
    pub(super) fn check_subscriptions(
        &mut self,
        slot: u32,
        mut revocation: Revocation,
    ) -> Option<Revocation> {
        let connection = &self.connections[slot as usize];
        let local = &self.sessions[connection.session as usize];
        let mut work = work::PACKET + (revocation.checked / work::PASSED_FILTERS) as u64;
        let left = local.session.subscriptions_len().saturating_sub(revocation.checked);
        let mut slice = 0;
        for (text, subscription) in local.session.subscriptions().skip(revocation.checked) {
            if work >= work::SLICE {
                break;
            }
            work += work::RULES + rules_work(&connection.who, text);
            slice += 1;
            let client_id = local.session.client_id();
            match self.lowered(slot, client_id, text, subscription) {
                None => revocation.forbidden.push(text.into()),
                Some(lowered) if lowered != *subscription => {
                    revocation.lowered.push((text.into(), lowered));
                }
                Some(_) => {}
            }
        }
        self.work.spend(work);
        revocation.checked += slice;
        if slice < left {
            return Some(revocation);
        }
        if !revocation.lowered.is_empty() {
            self.lower_subscriptions(slot, revocation.lowered);
        }
        self.end_forbidden(slot, revocation.forbidden);
        None
    }

    /// A subscription with the QoS that the client's rules grant now; `None`: they do not allow it.
    pub(super) fn lowered(
        &self,
        slot: u32,
        client_id: &str,
        text: &str,
        subscription: &ClientSubscription,
    ) -> Option<ClientSubscription> {
        let who = &self.connections[slot as usize].who;
        let client = ClientIdentity { user: who.user(), id: client_id };
        let filter = Filter::parse(text).map_or(text, |parsed| parsed.filter);
        let asked = subscription.options.qos;
        let qos = match who.granted() {
            Some(granted) => granted.grant.permissions.subscribe(client, filter, asked).ok(),
            None => self.process.authenticator.may_subscribe(client, filter, asked),
        };
        let options = SubscribeOptions { qos: qos?.min(asked), ..subscription.options };
        Some(ClientSubscription { options, ..*subscription })
    }

    fn end_forbidden(&mut self, slot: u32, forbidden: Vec<Box<str>>) {
        if forbidden.is_empty() {
            return;
        }
        let local = &self.sessions[self.connections[slot as usize].session as usize];
        let (broker, client_id) = (&*local.broker.name, local.session.client_id());
        tracing::debug!(
            broker,
            client_id = &**client_id,
            filters = forbidden.len(),
            "subscriptions end: not allowed any more"
        );
        self.broker_counters(&local.broker).revoked.add(forbidden.len());
        self.end_subscriptions(slot, forbidden);
    }
}
