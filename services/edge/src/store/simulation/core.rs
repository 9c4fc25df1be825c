//! An imitation of an event loop: it turns packets into jobs and mail into packets, as `services/edge/src/core` does.

mod connections;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrace_layers::Position;
use millrace_layers::subscriptions::Subscribed;
use millrace_mqtt::PacketId;
use millrace_router::Target;
use millrace_session::Message;

use super::network::{ToClient, ToServer};
use super::pod::Pod;
use super::publishing::Refusals;
use super::session::Local;
use super::world::World;
use crate::broker::Broker;
use crate::connection_id::ConnectionId;
use crate::encoding::record;
use crate::jobs::{
    IdWrite, Ids, Job, PendingSubscribe, PublisherKey, SessionKey, SharedMessages, StoredPage, StreamRead,
    SubscribeWrite, UnsubscribeWrite, Write,
};
use crate::mailbox::Mail;

const LEAVING_US: u64 = 2_000_000;

/// A request to the writer that has exactly one answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Asked {
    Attach(u32),
    Publish(u32, u16),
    Ids(u32, u16, u8),
    Subscribe(u32, String),
    Unsubscribe(u32, String),
    Leave(u32),
    Barrier(u64),
}

#[derive(Default)]
pub(super) struct Core {
    pub(super) locals: BTreeMap<u32, Local>,
    pub(super) asked: BTreeSet<Asked>,
    pub(super) unconfirmed: BTreeMap<u32, Refusals>,
    /// Answers of members of shared subscriptions in this turn.
    pub(super) shared: SharedMessages,
    pub(super) jobs: Vec<Job>,
    pub(super) reads: Vec<StreamRead>,
    /// Connections that have sent DISCONNECT, until the store has removed their wills, and when they are closed without that.
    leaving: BTreeMap<u32, u64>,
    /// How many [`Write::Barrier`] this loop has submitted; each has its number.
    barriers: u64,
    barrier_us: u64,
}

pub(super) struct Turn<'w> {
    pub(super) world: &'w World,
    pub(super) pod: &'w Pod,
    pub(super) broker: Arc<Broker>,
}

pub(super) fn connection(number: u32) -> ConnectionId {
    ConnectionId { core: 0, slot: number, generation: number }
}

pub(super) fn target(number: u32) -> Target {
    Target { core: 0, slot: number, generation: number }
}

pub(super) fn packet_id(id: u16) -> PacketId {
    PacketId::new(id).unwrap()
}

pub(super) fn key(write: &IdWrite) -> (u16, u8) {
    match write {
        IdWrite::Reserve(reserve) => (reserve.rows[0].0.get(), 0),
        IdWrite::Release(id, _) => (id.get(), 1),
        IdWrite::Forget(id) => (id.get(), 2),
    }
}

impl Core {
    pub(super) fn unanswered(&self) -> String {
        format!("{:?}", self.asked)
    }

    /// Nothing waits for the writer or for a client. `is_shared`: a publish or a DISCONNECT whose connection has ended may have no
    /// answer, because another pod had the session and the job was fenced.
    pub(super) fn is_idle(&self, is_shared: bool) -> bool {
        let is_fenced = |asked: &Asked| match asked {
            Asked::Publish(from, _) | Asked::Leave(from) => is_shared && !self.locals.contains_key(from),
            _ => false,
        };
        self.leaving.is_empty()
            && self.asked.iter().all(is_fenced)
            && self.locals.values().all(Local::is_idle)
    }

    pub(super) fn turn(&mut self, world: &World, pod: &Pod, number: usize, mail: Vec<Mail>) -> Vec<Job> {
        let turn = Turn { world, pod, broker: pod.broker() };
        for mail in mail {
            self.mail(&turn, mail);
        }
        let packets = world.network.borrow_mut().take_up(number, world.micros());
        for (from, packet) in packets {
            world.note((from, format!("{packet:?}")));
            world.log(|| format!("pod {number} gets from {from}: {packet:?}"));
            self.packet(&turn, from, &packet);
        }
        self.set_barrier(&turn);
        self.close_leaving(&turn);
        let numbers: Vec<u32> = self.locals.keys().copied().collect();
        for local in numbers {
            self.go_on(&turn, local);
        }
        self.submit_shared(&turn);
        std::mem::take(&mut self.jobs)
    }

    pub(super) fn take_reads(&mut self) -> Vec<StreamRead> {
        std::mem::take(&mut self.reads)
    }

    pub(super) fn next_us(&self, world: &World) -> u64 {
        let locals = self.locals.values().map(Local::next_us).min().unwrap_or(u64::MAX);
        let leaving = self.leaving.values().copied().min().unwrap_or(u64::MAX);
        locals.min(leaving).max(world.micros() + 1_000)
    }

    pub(super) fn ask(&mut self, turn: &Turn<'_>, asked: Asked) {
        let text = format!("{asked:?}");
        if !self.asked.insert(asked) {
            turn.world.model.borrow().violated(&format!("the simulation asks twice for {text}"));
        }
    }

    fn answered(&mut self, turn: &Turn<'_>, asked: &Asked) {
        if !self.asked.remove(asked) {
            turn.world
                .model
                .borrow()
                .violated(&format!("an answer without a question, or a second one: {asked:?}"));
        }
    }

    fn set_barrier(&mut self, turn: &Turn<'_>) {
        if turn.world.micros() >= self.barrier_us {
            self.barrier_us = turn.world.micros() + turn.world.random(0..4_000_000);
            self.barriers += 1;
            self.ask(turn, Asked::Barrier(self.barriers));
            let write = Write::Barrier { core: 0, number: self.barriers, broker: turn.broker.id };
            self.jobs.push(Job { write, ack: None });
        }
    }

    fn mail(&mut self, turn: &Turn<'_>, mail: Mail) {
        match mail {
            Mail::Attached(connection, _, attached) => {
                self.answered(turn, &Asked::Attach(connection.slot));
                self.attached(turn, connection.slot, attached);
            }
            Mail::Stored { acks, stored } => {
                for ack in acks {
                    self.answered(turn, &Asked::Publish(ack.connection.slot, ack.packet_id.get()));
                    self.stored(turn, &ack, stored);
                }
            }
            Mail::SendAgain(connection) => self.send_again(turn, connection.slot),
            Mail::Subscribed(subscribe, subscribed) => self.subscribed(turn, &subscribe, subscribed[0]),
            Mail::Unsubscribed(unsubscribe, _) => {
                let (slot, filter) = (unsubscribe.target.slot, unsubscribe.filters[0].to_string());
                self.answered(turn, &Asked::Unsubscribe(slot, filter.clone()));
                if let Some(local) = self.locals.get_mut(&slot) {
                    local.subscribing -= 1;
                    turn.world.send_down(slot, ToClient::UnsubAck { filter });
                }
            }
            Mail::Ids(ids, stored) => {
                let (id, kind) = key(&ids.write);
                self.answered(turn, &Asked::Ids(ids.target.slot, id, kind));
                self.ids_written(turn, &ids, stored);
            }
            Mail::Left(connection) => {
                self.answered(turn, &Asked::Leave(connection.slot));
                if self.leaving.remove(&connection.slot).is_some() {
                    turn.world.send_down(connection.slot, ToClient::Left);
                }
            }
            Mail::BarrierPassed { number, .. } => self.answered(turn, &Asked::Barrier(number)),
            Mail::Lost { session, is_lost, .. } => {
                let lost = self.locals.iter().find(|(_, local)| local.is_session(turn.world, &session));
                if let Some(number) = lost.map(|(number, _)| *number) {
                    self.close(turn, number, is_lost);
                }
            }
            Mail::Page(target, version, page) => self.page(turn, target.slot, version, page),
            Mail::Shared { receiver, message, group, .. } => {
                self.deliver_shared(turn, receiver.target.slot, &message, group);
            }
            Mail::Unsaved(checkpoint) => {
                if let Some(local) = self.locals.get_mut(&checkpoint.target.slot) {
                    local.unsaved(turn.world, *checkpoint);
                }
            }
            // The sessions of the simulation read everything from the store.
            Mail::Publish { .. } | Mail::Committed(_) => {}
            _ => turn.world.model.borrow().violated("this mail has no reason here"),
        }
    }

    fn close_leaving(&mut self, turn: &Turn<'_>) {
        let now_us = turn.world.micros();
        self.leaving.retain(|number, until_us| {
            let stays = *until_us > now_us;
            if !stays {
                turn.world.send_down(*number, ToClient::Closed);
            }
            stays
        });
    }

    fn send_again(&mut self, turn: &Turn<'_>, number: u32) {
        if let Some(local) = self.locals.get(&number).filter(|local| local.is_open()) {
            let publisher = publisher_of(turn, &local.client_id(turn.world));
            self.unconfirmed.entry(number).or_insert_with(|| Refusals::none(publisher));
            self.close(turn, number, false);
        }
    }

    fn subscribed(&mut self, turn: &Turn<'_>, subscribe: &SubscribeWrite, subscribed: Option<Subscribed>) {
        let (number, filter) = (subscribe.target.slot, subscribe.filters[0].0.to_string());
        self.answered(turn, &Asked::Subscribe(number, filter.clone()));
        let Some(local) = self.locals.get_mut(&number) else { return };
        let granted = subscribed.filter(|_| !subscribe.pending.is_refused);
        local.subscribed(turn, &filter, granted);
        self.join(turn, &filter);
        turn.world.send_down(number, ToClient::SubAck { filter, granted: granted.is_some() });
    }

    fn packet(&mut self, turn: &Turn<'_>, from: u32, packet: &ToServer) {
        if let ToServer::Connect { client, clean, expiry_s, will } = *packet {
            return self.connect(turn, from, client, (clean, expiry_s), will);
        }
        let Some(local) = self.locals.get_mut(&from) else { return };
        if matches!(packet, ToServer::Closed) {
            (local.is_cut, local.asker) = (true, None);
        }
        if !local.is_open() {
            return;
        }
        match *packet {
            ToServer::Connect { .. } => {}
            ToServer::Closed => self.close(turn, from, false),
            ToServer::Publish { key, qos, id } => self.publish(turn, from, key, qos, id),
            ToServer::PubRel(id) if local.received.contains(&id) => {
                self.write_ids(turn, from, IdWrite::Forget(packet_id(id)));
            }
            ToServer::PubRel(id) => turn.world.send_down(from, ToClient::PubComp(id)),
            ToServer::PubAck(id) | ToServer::PubComp(id) => local.acknowledge(turn.world, id),
            ToServer::PubRec(id) => match local.position_of(id) {
                Some(position) => self.write_ids(turn, from, IdWrite::Release(packet_id(id), position)),
                None => turn.world.send_down(from, ToClient::PubRel(id)),
            },
            ToServer::Subscribe(filter) => {
                local.subscribing += 1;
                let filters = vec![(filter.into(), local.options(turn.world), 0)];
                let pending = PendingSubscribe::new(Some(PacketId::MIN));
                let subscribe =
                    SubscribeWrite::new(local.key(turn), target(from), filters, Vec::new(), pending);
                self.ask(turn, Asked::Subscribe(from, filter.into()));
                self.jobs.push(Job { write: Write::Subscribe(Box::new(subscribe)), ack: None });
            }
            ToServer::Unsubscribe(filter) => {
                local.subscribing += 1;
                local.reading.remove(filter);
                let (session, filters) = (local.key(turn), vec![filter.into()]);
                let packet_id = Some(PacketId::MIN);
                let unsubscribe =
                    UnsubscribeWrite::new(session, target(from), filters, packet_id, Default::default());
                self.ask(turn, Asked::Unsubscribe(from, filter.into()));
                self.jobs.push(Job { write: Write::Unsubscribe(Box::new(unsubscribe)), ack: None });
            }
            ToServer::Disconnect { expiry_s } => {
                local.expiry_s = expiry_s;
                let leaves = local.has_will;
                if leaves {
                    self.ask(turn, Asked::Leave(from));
                    self.leaving.insert(from, turn.world.micros() + LEAVING_US);
                } else {
                    turn.world.send_down(from, ToClient::Closed);
                }
                self.detach(turn, from, false, leaves);
            }
        }
    }

    pub(super) fn write_ids(&mut self, turn: &Turn<'_>, number: u32, write: IdWrite) {
        let (id, kind) = key(&write);
        // A client that sends PUBREC again gets its answer once.
        if !self.asked.insert(Asked::Ids(number, id, kind)) {
            return;
        }
        let session = self.locals[&number].key(turn);
        let ids = Ids { session, target: target(number), write, unordered_ids: false };
        self.jobs.push(Job { write: Write::Ids(Box::new(ids)), ack: None });
    }

    fn ids_written(&mut self, turn: &Turn<'_>, ids: &Ids, stored: bool) {
        let number = ids.target.slot;
        let Some(local) = self.locals.get_mut(&number).filter(|local| local.is_open()) else { return };
        if !stored {
            return self.close(turn, number, false);
        }
        match &ids.write {
            IdWrite::Reserve(reserve) => {
                reserve.rows.iter().for_each(|(id, _)| local.outbox.confirm(id.get()));
            }
            IdWrite::Release(id, position) => {
                local.outbox.release(id.get(), *position);
                turn.world.send_down(number, ToClient::PubRel(id.get()));
            }
            IdWrite::Forget(id) => {
                local.received.remove(&id.get());
                turn.world.send_down(number, ToClient::PubComp(id.get()));
            }
        }
    }

    fn page(&mut self, turn: &Turn<'_>, number: u32, version: u32, page: Option<StoredPage>) {
        let Some(local) = self.locals.get_mut(&number).filter(|local| local.is_open()) else { return };
        match page {
            None => self.close(turn, number, false),
            Some(page) => local.page(turn, version, page),
        }
    }

    fn go_on(&mut self, turn: &Turn<'_>, number: u32) {
        let Some(local) = self.locals.get_mut(&number).filter(|local| local.is_open()) else { return };
        if let Some(checkpoint) = local.checkpoint_in_time(turn) {
            self.jobs.push(Job { write: Write::Checkpoint(Box::new(checkpoint)), ack: None });
        }
        self.reads.extend(local.next_read(turn));
        if let Some(reserve) = local.reserve(turn) {
            self.write_ids(turn, number, IdWrite::Reserve(reserve));
        }
        if let Some(local) = self.locals.get_mut(&number) {
            local.outbox.pump(turn.world, number);
        }
    }
}

pub(super) fn publisher_of(turn: &Turn<'_>, client: &str) -> PublisherKey {
    PublisherKey { broker: turn.broker.id, publisher: record::publisher(client) }
}

pub(super) fn session_key(turn: &Turn<'_>, client: &str, epoch: u64) -> SessionKey {
    SessionKey { broker: turn.broker.clone(), client: client.into(), epoch }
}

pub(super) fn position_of(message: &Message) -> Position {
    Position(message.position().expect("a message of a page has its position"))
}
