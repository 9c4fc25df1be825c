//! Keeps refusals that a publisher may not know yet. Until it does, its later messages with QoS 1 and 2 are refused, too
//! (P4).

use std::collections::HashMap;

use smallvec::SmallVec;

use crate::connection_id::ConnectionId;
use crate::jobs::{PublishAck, PublisherKey};

#[derive(Default)]
pub(super) struct Unconfirmed(HashMap<PublisherKey, SmallVec<[ConnectionRefusals; 1]>>);

struct ConnectionRefusals {
    /// As [`PublishAck::ends_with`] has it.
    connection: Option<ConnectionId>,
    count: u32,
}

impl Unconfirmed {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn holds_back(&self, publisher: PublisherKey) -> bool {
        self.0.contains_key(&publisher)
    }

    pub(super) fn add(&mut self, ack: &PublishAck) {
        let (of_publisher, connection) = (self.0.entry(ack.publisher()).or_default(), ack.ends_with());
        match of_publisher.iter_mut().find(|refusals| refusals.connection == connection) {
            Some(refusals) => refusals.count += 1,
            None => of_publisher.push(ConnectionRefusals { connection, count: 1 }),
        }
    }

    /// The publisher knows of so many refusals of the connection; `count` is `None` once the connection has ended.
    pub(super) fn confirm(
        &mut self,
        publisher: PublisherKey,
        connection: Option<ConnectionId>,
        count: Option<u32>,
    ) {
        let Some(of_publisher) = self.0.get_mut(&publisher) else { return };
        for refusals in of_publisher.iter_mut().filter(|refusals| refusals.connection == connection) {
            refusals.count = count.map_or(0, |count| refusals.count.saturating_sub(count));
        }
        of_publisher.retain(|refusals| refusals.count > 0);
        if of_publisher.is_empty() {
            self.0.remove(&publisher);
        }
    }
}

#[cfg(test)]
mod tests {
    use millrace_mqtt::{PacketId, QoS};
    use millrace_router::Target;

    use super::*;

    const PUBLISHER: PublisherKey = PublisherKey { broker: 1, publisher: 7 };

    fn connection(generation: u32) -> ConnectionId {
        ConnectionId { core: 0, slot: 0, generation }
    }

    fn refused(generation: u32, keeps_id: bool) -> PublishAck {
        PublishAck {
            broker: PUBLISHER.broker,
            connection: connection(generation),
            session: Target { core: 0, slot: 0, generation: 0 },
            qos: if keeps_id { QoS::ExactlyOnce } else { QoS::AtLeastOnce },
            packet_id: PacketId::MIN,
            keeps_id,
            waits_for_commit: false,
            publisher: PUBLISHER.publisher,
            holds_back: true,
        }
    }

    #[test]
    fn the_end_of_a_connection_confirms_all_its_refusals_also_those_that_have_not_reached_it() {
        let mut unconfirmed = Unconfirmed::default();
        (0..3).for_each(|_| unconfirmed.add(&refused(1, false)));
        unconfirmed.confirm(PUBLISHER, Some(connection(1)), Some(1));
        assert!(unconfirmed.holds_back(PUBLISHER));
        unconfirmed.confirm(PUBLISHER, Some(connection(1)), None);
        // The next connection sends again what was refused, and must not be refused because of the last one.
        assert!(!unconfirmed.holds_back(PUBLISHER) && unconfirmed.is_empty());
        // Confirmations of the old connection that come late say nothing of the next one.
        unconfirmed.add(&refused(2, false));
        unconfirmed.confirm(PUBLISHER, Some(connection(1)), None);
        assert!(unconfirmed.holds_back(PUBLISHER));
        unconfirmed.confirm(PUBLISHER, Some(connection(2)), Some(1));
        assert!(unconfirmed.is_empty());
    }

    #[test]
    fn a_refusal_that_the_next_connection_of_the_session_gets_outlives_the_connection() {
        let mut unconfirmed = Unconfirmed::default();
        unconfirmed.add(&refused(1, true));
        unconfirmed.add(&refused(1, false));
        unconfirmed.confirm(PUBLISHER, Some(connection(1)), None);
        assert!(unconfirmed.holds_back(PUBLISHER));
        unconfirmed.confirm(PUBLISHER, None, Some(1));
        assert!(unconfirmed.is_empty());
    }
}
