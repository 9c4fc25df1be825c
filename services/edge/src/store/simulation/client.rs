//! Clients: publishers that send each message until it is acknowledged, and subscribers that acknowledge what they get.

mod actions;

use std::collections::{BTreeMap, VecDeque};

use fastrand::Rng;

use super::Plan;
use super::model::{Key, Session};
use super::network::{ToClient, ToServer, Will};
use super::world::World;

/// Without an answer to CONNECT, the client tries another pod, us.
const CONNECT_US: u64 = 15_000_000;
/// The server notices the end of a connection, and stores it, within this time, ms.
const DETACH_MS: u64 = 120_000;
/// The filters that the last client keeps to the end.
const WATCHED: [&str; 2] = ["t/#", "will/#"];
const SHARED: &str = "$share/group/t/#";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Publishes,
    Subscribes,
    /// Is a member of the shared subscription, for ever.
    Shares,
    Watches,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Sent,
    /// With QoS 2: PUBREC is there, PUBREL is sent.
    Released,
}

#[derive(Debug)]
struct Outgoing {
    key: Key,
    qos: u8,
    id: u16,
    step: Step,
}

struct Link {
    number: u32,
    is_open: bool,
    since_us: u64,
    will: Option<Will>,
    left_ms: Option<u64>,
    /// The CONNECT began a new session, if the server has got it.
    is_clean: bool,
}

pub(super) struct Client {
    pub(super) name: String,
    role: Role,
    /// Gets reason codes, so a refused message is over.
    pub(super) is_v5: bool,
    pub(super) qos: u8,
    expiry_s: u32,
    link: Option<Link>,
    again_us: u64,
    act_us: u64,
    outgoing: VecDeque<Outgoing>,
    next_number: u32,
    next_id: u16,
    next_will: u32,
    /// Messages with QoS 2 that the client has, by packet id.
    received: BTreeMap<u16, Key>,
    session: Session,
    /// An unanswered request may have ended the session.
    may_be_new: bool,
    /// The session lives at least until this time, ms.
    lives_until_ms: u64,
    /// The session of an earlier connection ends before this time, ms.
    over_at_ms: u64,
    /// Filters with an unanswered request.
    asked: Vec<String>,
    /// From here on it does nothing new.
    is_ending: bool,
    /// It connects no more.
    is_over: bool,
}

impl Client {
    pub(super) fn all(plan: &Plan, random: &mut Rng) -> Vec<Self> {
        let roles = (0..plan.publishers).map(|_| Role::Publishes);
        let roles = roles.chain((0..plan.subscribers).map(|_| Role::Subscribes));
        let roles = roles.chain((0..plan.members).map(|_| Role::Shares)).chain([Role::Watches]);
        let client = |(number, role)| Self {
            name: format!("client-{number}"),
            role,
            is_v5: random.bool(),
            qos: if role == Role::Watches || random.bool() { 2 } else { 1 },
            expiry_s: if matches!(role, Role::Watches | Role::Shares) || random.u8(0..3) > 0 {
                1_000_000
            } else {
                random.u32(20..200)
            },
            link: None,
            again_us: 0,
            act_us: 0,
            outgoing: VecDeque::new(),
            next_number: 1,
            next_id: 1,
            next_will: number as u32 * 10_000,
            received: BTreeMap::new(),
            session: Session::default(),
            may_be_new: true,
            lives_until_ms: 0,
            over_at_ms: u64::MAX,
            asked: Vec::new(),
            is_ending: false,
            is_over: false,
        };
        roles.enumerate().map(client).collect()
    }

    /// Returns when it acts again, us.
    pub(super) fn act(&mut self, world: &World, number: usize) -> u64 {
        let now_us = world.micros();
        while let Some(link) = &self.link {
            let taken = world.network.borrow_mut().take_down(link.number, now_us);
            let Some(packet) = taken else { break };
            world.note(format!("{packet:?}"));
            world.log(|| format!("{} gets {packet:?}", self.name));
            self.receive(world, packet);
        }
        if self.link.as_ref().is_some_and(|link| !link.is_open && now_us > link.since_us + CONNECT_US) {
            self.give_up(world);
        }
        if self.link.is_none() && now_us >= self.again_us && !self.is_over {
            self.connect(world, number);
        }
        if self.is_online() && now_us >= self.act_us {
            self.act_us = now_us + world.random(1..2 * 1_000 * world.plan.action_every_ms);
            if !self.is_ending {
                self.do_something(world);
            }
        }
        let packet_us = self.link.as_ref().and_then(|link| world.network.borrow().next_down_us(link.number));
        let idle_us = match &self.link {
            None if self.is_over => u64::MAX,
            None => self.again_us,
            Some(link) if !link.is_open => link.since_us + CONNECT_US + 1,
            Some(_) => self.act_us,
        };
        packet_us.unwrap_or(u64::MAX).min(idle_us).max(now_us + 1_000)
    }

    /// Its session must not end before the run does.
    fn lasts(&self) -> bool {
        matches!(self.role, Role::Watches | Role::Shares)
    }

    fn is_online(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.is_open && link.left_ms.is_none())
    }

    fn connect(&mut self, world: &World, number: usize) {
        let up: Vec<usize> = (0..world.pods.len()).filter(|pod| world.pods[*pod].is_up()).collect();
        if up.is_empty() {
            self.again_us = world.micros() + 200_000;
            return;
        }
        let pod = *world.pick(&up);
        let connection = world.network.borrow_mut().open(number, pod);
        world.log(|| format!("{} connects to pod {pod} as {connection}", self.name));
        let is_clean = !self.is_ending && !self.lasts() && world.one_in(20);
        let will = (!self.is_ending && self.role != Role::Watches && world.one_in(3)).then(|| {
            self.next_will += 1;
            let delay_s = if world.one_in(2) { 0 } else { world.random(1..40) as u32 };
            Will { number: self.next_will, delay_s }
        });
        world.model.borrow_mut().connects(number, will, world.ms());
        self.may_be_new |= is_clean;
        if !self.is_ending && world.one_in(4) {
            // A new process repeats nothing but QoS 2, whose ids are those of the session.
            self.outgoing.retain(|out| out.qos == 2);
        }
        world.send_up(
            connection,
            ToServer::Connect { client: number, clean: is_clean, expiry_s: self.expiry_s, will },
        );
        let since_us = world.micros();
        self.link =
            Some(Link { number: connection, is_open: false, since_us, will, left_ms: None, is_clean });
    }

    fn give_up(&mut self, world: &World) {
        let Some(link) = &self.link else { return };
        let noticed_us = if world.one_in(2) { world.random(0..100_000) } else { world.random(0..30_000_000) };
        world.cut(link.number, noticed_us);
        self.lose_link(world);
    }

    fn lose_link(&mut self, world: &World) {
        let Some(link) = self.link.take() else { return };
        if let Some(will) = link.will {
            world.model.borrow_mut().is_lost(will.number, world.ms());
        }
        if link.is_open {
            // Clocks of pods may be off either way, and the pod may have detached the session before the client sees its connection end.
            let (since_ms, slack_ms) = (link.left_ms.unwrap_or(world.ms()), 2 * world.plan.clocks_ms + 2_000);
            self.lives_until_ms = (since_ms + 1_000 * u64::from(self.expiry_s)).saturating_sub(slack_ms);
        }
        let slack_ms = 2 * world.plan.clocks_ms + DETACH_MS;
        self.over_at_ms = world.ms() + 1_000 * u64::from(self.expiry_s) + slack_ms;
        self.asked.clear();
        let away_us = match world.random(0..40) {
            1..4 if self.role == Role::Shares => world.random(0..20_000_000),
            _ if self.role == Role::Shares => world.random(0..500_000),
            0 => world.random(60_000_000..300_000_000),
            1..10 => world.random(0..60_000_000),
            _ => world.random(0..500_000),
        };
        self.again_us = world.micros() + away_us;
    }

    fn receive(&mut self, world: &World, packet: ToClient) {
        let mut model = world.model.borrow_mut();
        match packet {
            ToClient::ConnAck { present, filters } => {
                drop(model);
                self.connected(world, present, &filters);
            }
            ToClient::PubAck { id, stored } => {
                let at = self.outgoing.iter().position(|out| out.qos == 1 && out.id == id);
                let Some(at) = at else {
                    model.violated(&format!("{} got PUBACK {id} for nothing", self.name))
                };
                let out = self.outgoing.remove(at).unwrap();
                if stored { model.acknowledged(out.key) } else { model.refused(out.key) }
            }
            ToClient::PubRec { id, stored } => {
                let at = self.outgoing.iter().position(|out| out.qos == 2 && out.id == id);
                let Some(at) = at else {
                    model.violated(&format!("{} got PUBREC {id} for nothing", self.name))
                };
                if stored {
                    if self.outgoing[at].step == Step::Sent {
                        model.acknowledged(self.outgoing[at].key);
                    }
                    self.outgoing[at].step = Step::Released;
                    self.send(world, ToServer::PubRel(id));
                } else {
                    model.refused(self.outgoing.remove(at).unwrap().key);
                }
            }
            ToClient::PubComp(id) => self.outgoing.retain(|out| out.qos < 2 || out.id != id),
            ToClient::PubRel(id) => {
                self.received.remove(&id);
                self.send(world, ToServer::PubComp(id));
            }
            ToClient::Publish { id, qos, key } => {
                drop(model);
                self.gets(world, id, qos, key);
            }
            ToClient::SubAck { filter, granted } => {
                self.asked.retain(|asked| *asked != filter);
                if granted {
                    model.granted(&mut self.session, &filter);
                }
            }
            ToClient::UnsubAck { filter } => self.asked.retain(|asked| *asked != filter),
            ToClient::Left => {
                if let Some(will) = self.link.as_ref().and_then(|link| link.will) {
                    model.leaves(will.number, Some(world.store_version()));
                }
                drop(model);
                self.closed(world);
            }
            ToClient::Closed => {
                drop(model);
                self.closed(world);
            }
        }
    }

    fn gets(&mut self, world: &World, id: u16, qos: u8, key: Key) {
        let mut model = world.model.borrow_mut();
        let had = if qos == 2 { self.received.insert(id, key) } else { None };
        match had {
            None if self.role == Role::Shares => model.delivers_shared(&self.name, key, qos),
            None => model.delivers(&mut self.session, &self.name, key, qos),
            Some(had) if had == key => {}
            Some(had) => {
                model.violated(&format!("{} got {key:?} under the packet id {id} of {had:?}", self.name))
            }
        }
        drop(model);
        self.send(world, if qos == 2 { ToServer::PubRec(id) } else { ToServer::PubAck(id) });
    }

    fn closed(&mut self, world: &World) {
        if let Some(link) = &self.link {
            world.forget_connection(link.number);
        }
        self.lose_link(world);
    }

    fn send(&self, world: &World, packet: ToServer) {
        if let Some(link) = &self.link {
            world.send_up(link.number, packet);
        }
    }

    fn connected(&mut self, world: &World, present: bool, filters: &[String]) {
        let Some(link) = &mut self.link else { return };
        link.is_open = true;
        if let Some(will) = link.will {
            world.model.borrow_mut().will_is_stored(will.number);
        }
        if present && link.since_us / 1_000 > self.over_at_ms {
            world.model.borrow().violated(&format!("{} found its session after the expiry", self.name));
        }
        if !present || link.is_clean {
            let must_be = !self.may_be_new && world.ms() < self.lives_until_ms;
            if must_be {
                world.model.borrow().violated(&format!("P3: the session of {} is gone", self.name));
            }
            self.session = Session::default();
            self.received.clear();
            // The server's QoS 2 state ended with the session, so a repeat could be stored twice.
            self.outgoing.retain(|out| out.qos == 1);
        }
        if self.may_be_new && present {
            // The session may be one that an unanswered CONNECT began.
            self.session.forget_filters();
        }
        self.may_be_new = false;
        world.model.borrow_mut().continues(&mut self.session, &self.name, filters);
        self.send_again(world);
        let kept: &[&'static str] = match self.role {
            Role::Watches => &WATCHED,
            Role::Shares => &[SHARED],
            Role::Publishes | Role::Subscribes => &[],
        };
        for filter in kept.iter().filter(|filter| !filters.iter().any(|had| had == *filter)) {
            self.subscribe(world, filter);
        }
    }

    fn send_again(&mut self, world: &World) {
        for out in &self.outgoing {
            match out.step {
                Step::Sent => {
                    world.model.borrow_mut().sends(out.key, out.qos);
                    self.send(world, ToServer::Publish { key: out.key, qos: out.qos, id: out.id });
                }
                Step::Released => self.send(world, ToServer::PubRel(out.id)),
            }
        }
    }
}
