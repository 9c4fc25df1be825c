//! Members of shared subscriptions on an event loop, as `services/edge/src/core/shared.rs` serves them.

use std::sync::Arc;

use millrace_layers::{Position, streams};
use millrace_mqtt::topic::Filter;
use millrace_session::Message;
use millrace_storage::block_on;

use super::BROKER;
use super::core::{Core, Turn};
use super::world::World;
use crate::elsewhere::is_here;
use crate::jobs::{Job, SharedMessages, Write};
use crate::routes::Routes;
use crate::store::Shared;
use crate::store::writer::Writer;
use crate::streams::StoredGroup;

/// A claimed message is with a member of the pod, or on its way back: no other pod can take it before this one ends.
pub(super) fn check_claims(world: &World, shared: &Shared, writer: &Writer<'_>) {
    let Some(broker) = shared.brokers.get(BROKER) else { return };
    let Some(group) = broker.streams.group_of("group", "t/#") else { return };
    let key = (broker.id, group.stream);
    let claimed =
        world.store().run(|tx, _| async move { streams::claimed_by(&tx, key.0, key.1, &shared.owner).await });
    let forgotten = block_on(claimed).unwrap().into_iter().find(|place| !writer.claims.knows(key, *place));
    if let Some(place) = forgotten {
        let pod = String::from_utf8_lossy(&shared.owner);
        world.model.borrow().violated(&format!("P1: {pod} has claimed {place:?} and forgotten it"));
    }
}

impl Core {
    pub(super) fn join(&mut self, turn: &Turn<'_>, filter: &str) {
        if let Some(Filter { share: Some(name), filter }) = Filter::parse(filter)
            && let Some(group) = turn.broker.streams.group_of(name, filter)
        {
            self.shared.joined.push((turn.broker.id, group.stream));
        }
    }

    /// The writer has picked a member, which may have left since.
    pub(super) fn deliver_shared(
        &mut self,
        turn: &Turn<'_>,
        number: u32,
        message: &Arc<Message>,
        group: u64,
    ) {
        match self.locals.get_mut(&number).filter(|local| local.is_open()) {
            Some(local) => {
                let entry = local.entry(turn.world, message.clone(), group);
                local.outbox.push(entry);
            }
            None => self.give_back(turn, message, group),
        }
    }

    pub(super) fn give_back(&mut self, turn: &Turn<'_>, message: &Arc<Message>, number: u64) {
        let Some(stream) = StoredGroup::stream_of(number) else { return };
        let routes = Routes::new(turn.broker.clone(), message.topic().clone());
        let stored = turn.broker.streams.group_or_ended(stream);
        let member = stored
            .and_then(|stored| routes.online_group(&stored).and_then(|group| group.pick_online(is_here)));
        if let Some(member) = member {
            self.deliver_shared(turn, member.target.slot, message, number);
        } else {
            self.return_to_group(turn, message, number);
        }
    }

    /// Nobody here takes the message.
    pub(super) fn return_to_group(&mut self, turn: &Turn<'_>, message: &Message, number: u64) {
        if let (Some(stream), Some(place)) = (StoredGroup::stream_of(number), message.place()) {
            self.shared.returned.push(((turn.broker.id, stream), Position(place)));
        }
    }

    pub(super) fn submit_shared(&mut self, turn: &Turn<'_>) {
        for local in self.locals.values_mut() {
            self.shared.settled.extend(local.outbox.take_settled(turn.broker.id));
        }
        let SharedMessages { settled, returned, joined } = &self.shared;
        if !(settled.is_empty() && returned.is_empty() && joined.is_empty()) {
            let shared = Box::new(std::mem::take(&mut self.shared));
            self.jobs.push(Job { write: Write::Shared(shared), ack: None });
        }
    }
}
