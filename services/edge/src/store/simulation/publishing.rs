//! Messages of clients: jobs for the writer, and its answers, as `services/edge/src/core/publish` has them.

use std::sync::Arc;

use millrace_mqtt::{Properties, QoS};
use millrace_session::Message;

use super::core::{Asked, Core, Turn, connection, packet_id, publisher_of, target};
use super::model::Key;
use super::network::ToClient;
use crate::connection_id::ConnectionId;
use crate::jobs::{Fence, Job, PublishAck, PublishWrite, PublisherKey, Write};
use crate::routes::Routes;

/// Refusals that a connection has got and may not know, as `core::unconfirmed` counts them.
pub(super) struct Refusals {
    publisher: PublisherKey,
    of_connection: u32,
    of_session: u32,
    last: u16,
}

impl Refusals {
    pub(super) fn none(publisher: PublisherKey) -> Self {
        Self { publisher, of_connection: 0, of_session: 0, last: 0 }
    }
}

impl Core {
    pub(super) fn publish(&mut self, turn: &Turn<'_>, from: u32, key: Key, qos: u8, id: u16) {
        let Some(local) = self.locals.get_mut(&from) else { return };
        if qos == 2 && local.received.contains(&id) {
            return turn.world.send_down(from, ToClient::PubRec { id, stored: true });
        }
        let routes = Arc::new(Routes::new(turn.broker.clone(), key.topic().into()));
        if !turn.world.plan.is_shared && routes.stored.streams.is_empty() {
            let answer = match qos {
                2 => ToClient::PubRec { id, stored: true },
                _ => ToClient::PubAck { id, stored: true },
            };
            return turn.world.send_down(from, answer);
        }
        let level = if qos == 2 { QoS::ExactlyOnce } else { QoS::AtLeastOnce };
        let message = Message::new(key.topic().into(), level, false, Properties::EMPTY, &key.payload(), 0);
        let keeps_id = qos == 2;
        let publisher = publisher_of(turn, &local.client_id(turn.world));
        let is_behind = local.uncommitted > 0 || self.unconfirmed.contains_key(&from);
        let waits_for_commit = keeps_id || is_behind;
        local.uncommitted += u32::from(waits_for_commit);
        let ack = PublishAck {
            broker: turn.broker.id,
            connection: connection(from),
            session: target(from),
            qos: level,
            packet_id: packet_id(id),
            keeps_id,
            waits_for_commit,
            publisher: publisher.publisher,
            holds_back: false,
        };
        let fenced_from = ack.fenced_from_ms(turn.world.plan.is_shared, turn.pod.shared().clock.now());
        let fence = fenced_from.map(|from_ms| Fence { session: local.key(turn), from_ms });
        let publish = PublishWrite {
            message: Arc::new(message),
            routes,
            from: Some(connection(from)),
            publisher: publisher.publisher,
            retains: false,
            reserved: None,
            waits_for_commit,
            fence,
            skip_if: None,
            queued_us: 0,
        };
        self.note_reuse(from, id);
        self.ask(turn, Asked::Publish(from, id));
        self.jobs.push(Job { write: Write::Publish(publish), ack: Some(ack) });
    }

    /// As `Core::stored`, with clients of both versions.
    pub(super) fn stored(&mut self, turn: &Turn<'_>, ack: &PublishAck, stored: bool) {
        let (number, id) = (ack.connection.slot, ack.packet_id.get());
        let local = self.locals.get_mut(&number).filter(|local| local.is_open());
        let Some(local) = local else {
            if !stored && ack.holds_back {
                let count = ack.ends_with().is_none().then_some(1);
                self.confirm(ack.publisher(), ack.ends_with(), count);
            }
            return;
        };
        local.uncommitted -= u32::from(ack.waits_for_commit);
        let answers = stored || turn.world.clients_is_v5(local.client);
        if ack.qos == QoS::ExactlyOnce && stored {
            local.received.insert(id);
        }
        if answers {
            turn.world.send_down(
                number,
                match ack.qos {
                    QoS::ExactlyOnce => ToClient::PubRec { id, stored },
                    _ => ToClient::PubAck { id, stored },
                },
            );
        }
        if stored {
            return;
        }
        if !answers {
            self.close(turn, number, false);
            if ack.holds_back {
                let count = ack.ends_with().is_none().then_some(1);
                self.confirm(ack.publisher(), ack.ends_with(), count);
            }
        } else if ack.holds_back {
            let refusals = self.unconfirmed.entry(number).or_insert_with(|| Refusals::none(ack.publisher()));
            refusals.last = id;
            match ack.ends_with() {
                Some(_) => refusals.of_connection += 1,
                None => refusals.of_session += 1,
            }
        }
    }

    /// A client that uses the id of a refused message again knows of the refusal.
    fn note_reuse(&mut self, number: u32, id: u16) {
        if self.unconfirmed.get(&number).is_some_and(|refusals| refusals.last == id)
            && let Some(refusals) = self.unconfirmed.remove(&number)
        {
            if refusals.of_connection > 0 {
                self.confirm(refusals.publisher, Some(connection(number)), Some(refusals.of_connection));
            }
            if refusals.of_session > 0 {
                self.confirm(refusals.publisher, None, Some(refusals.of_session));
            }
        }
    }

    pub(super) fn forget_unconfirmed(&mut self, number: u32) {
        if let Some(refusals) = self.unconfirmed.remove(&number) {
            self.confirm(refusals.publisher, Some(connection(number)), None);
            if refusals.of_session > 0 {
                self.confirm(refusals.publisher, None, Some(refusals.of_session));
            }
        }
    }

    /// The writer then accepts later messages of the publisher.
    fn confirm(&mut self, publisher: PublisherKey, connection: Option<ConnectionId>, count: Option<u32>) {
        self.jobs.push(Job { write: Write::Confirmed { publisher, connection, count }, ack: None });
    }
}
