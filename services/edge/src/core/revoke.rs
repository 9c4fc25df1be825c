//! Subscriptions that a client may not have any more.

use millrace_access::rules::Client;
use millrace_mqtt::topic::Filter;

use super::Core;
use super::connection::NONE;

impl Core {
    /// Ends the subscriptions of a client of a managed broker that its rules do not allow (any more). It is not told, for MQTT has no
    /// word for it; what was sent for them before still arrives.
    pub(super) fn revoke(&mut self, slot: u32) {
        let Some(connection) = self.connections.get(slot as usize) else { return };
        let Some(granted) = connection.who.granted().filter(|_| connection.session != NONE) else { return };
        let homed = &self.sessions[connection.session as usize];
        let client = Client { user: connection.who.user(), id: homed.session.client_id() };
        let permissions = &granted.grant.permissions;
        let forbidden: Vec<Box<str>> = (homed.session.subscriptions())
            .filter(|(text, subscription)| {
                let filter = Filter::parse(text).map_or(*text, |parsed| parsed.filter);
                permissions.subscribe(client, filter, subscription.options.qos).is_err()
            })
            .map(|(text, _)| text.into())
            .collect();
        if forbidden.is_empty() {
            return;
        }
        let (broker, client_id) = (&*homed.broker.name, homed.session.client_id());
        tracing::info!(
            broker,
            ?client_id,
            filters = forbidden.len(),
            "subscriptions end: not allowed any more"
        );
        self.broker_counters(&homed.broker).revoked.add(forbidden.len());
        self.end_subscriptions(slot, forbidden.iter().map(|filter| &**filter), None);
    }
}
