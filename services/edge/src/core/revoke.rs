//! Removes subscriptions that a client's rules no longer allow.

use millrace_access::rules::ClientIdentity;
use millrace_mqtt::topic::Filter;

use super::connection::NONE;
use super::entry::rules_work;
use super::{Core, work};

impl Core {
    /// MQTT has no packet to notify the client of the removal, and messages that are in its queue are still delivered.
    pub(super) fn revoke(&mut self, slot: u32) {
        let Some(connection) = self.connections.get(slot as usize) else { return };
        if connection.session == NONE {
            return;
        }
        let local = &self.sessions[connection.session as usize];
        let filters = local
            .session
            .subscriptions()
            .map(|(filter, _)| work::RULES + rules_work(&connection.who, filter));
        self.work.spend(work::PACKET + filters.sum::<u64>());
        let client = ClientIdentity { user: connection.who.user(), id: local.session.client_id() };
        let is_allowed = |filter: &str, qos| match connection.who.granted() {
            Some(granted) => granted.grant.permissions.subscribe(client, filter, qos).is_ok(),
            None => self.process.authenticator.may_subscribe(client, filter, qos).is_some(),
        };
        let forbidden: Vec<Box<str>> = (local.session.subscriptions())
            .filter(|(text, subscription)| {
                let filter = Filter::parse(text).map_or(*text, |parsed| parsed.filter);
                !is_allowed(filter, subscription.options.qos)
            })
            .map(|(text, _)| text.into())
            .collect();
        if forbidden.is_empty() {
            return;
        }
        let (broker, client_id) = (&*local.broker.name, local.session.client_id());
        tracing::info!(
            broker,
            client_id = &**client_id,
            filters = forbidden.len(),
            "subscriptions end: not allowed any more"
        );
        self.broker_counters(&local.broker).revoked.add(forbidden.len());
        self.end_subscriptions(slot, forbidden);
    }
}
