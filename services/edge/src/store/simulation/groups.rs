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
use crate::jobs::{Job, Write};
use crate::routes::Routes;
use crate::store::StoreContext;
use crate::store::writer::Writer;
use crate::streams::StoredGroup;

/// Messages that may wait for a member. More go to another member, as those of a full session in memory do.
const WAITING_MAX: usize = 3;

/// Every message that the pod has claimed in the store must be known to its writer. A forgotten one would reach nobody,
/// because other pods get it only after this pod has ended.
pub(super) fn check_claims(world: &World, shared: &StoreContext, writer: &Writer<'_>) {
    let Some(broker) = shared.brokers.get(BROKER) else { return };
    let Some(group) = broker.streams.group_of("group", "t/#") else { return };
    let key = (broker.id, group.stream);
    let claimed =
        world.store().run(|tx, _| async move { streams::claimed_by(&tx, key.0, key.1, &shared.owner).await });
    let forgotten =
        block_on(claimed).unwrap().into_iter().find(|position| !writer.claims.knows(key, *position));
    if let Some(position) = forgotten {
        let pod = String::from_utf8_lossy(&shared.owner);
        world.model.borrow().violated(&format!("P1: {pod} has claimed {position:?} and forgotten it"));
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

    /// Sends the message to the member that the writer picked, or to another one if that member has left since.
    pub(super) fn deliver_shared(
        &mut self,
        turn: &Turn<'_>,
        number: u32,
        message: &Arc<Message>,
        group: u64,
    ) {
        match self.locals.get_mut(&number).filter(|local| local.is_open()) {
            Some(local) if local.outbox.waiting() >= WAITING_MAX => {
                if let (Some(stream), Some(position)) = (StoredGroup::stream_of(group), message.position()) {
                    self.shared.refused.push(((turn.broker.id, stream), Position(position)));
                }
            }
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

    /// Gives the claim back, because the group has no member on this pod: another pod may take the message.
    pub(super) fn return_to_group(&mut self, turn: &Turn<'_>, message: &Message, number: u64) {
        if let (Some(stream), Some(position)) = (StoredGroup::stream_of(number), message.position()) {
            self.shared.returned.push(((turn.broker.id, stream), Position(position)));
        }
    }

    pub(super) fn submit_shared(&mut self, turn: &Turn<'_>) {
        for local in self.locals.values_mut() {
            self.shared.settled.extend(local.outbox.take_settled(turn.broker.id));
        }
        if !self.shared.is_empty() {
            let shared = Box::new(std::mem::take(&mut self.shared));
            self.jobs.push(Job { write: Write::Shared(shared), ack: None });
        }
    }
}
