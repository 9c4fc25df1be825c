//! The random actions of a simulated client: it publishes, subscribes, disconnects or vanishes, and finishes its open packets at
//! the end of a run.

use super::{Client, Outgoing, Role, Step};
use crate::store::simulation::model::{Key, WILLS};
use crate::store::simulation::network::ToServer;
use crate::store::simulation::world::World;

/// Most messages of a publisher without an acknowledgement.
const WINDOW: usize = 4;
const IDS: u16 = 8;
const FILTERS: [&str; 4] = ["t/a", "t/b", "t/+", "#"];

impl Client {
    pub(super) fn do_something(&mut self, world: &World) {
        let is_lost = match self.role {
            Role::Watches => world.one_in(200),
            Role::Shares => world.one_in(world.plan.actions_per_loss),
            Role::Publishes | Role::Subscribes => world.one_in(70),
        };
        if is_lost {
            return self.give_up(world);
        }
        match (self.role, world.random(0..200)) {
            (Role::Publishes | Role::Subscribes | Role::Shares, 0) => self.leave(world),
            (Role::Publishes, _) => {
                // A burst, so that messages of one publisher wait for the writer together.
                let count = if world.one_in(4) { WINDOW as u64 } else { 1 };
                (0..count).for_each(|_| self.publish(world));
            }
            (Role::Subscribes, 4..=40) => {
                let filter = *world.pick(&FILTERS);
                if self.session.has(filter) && world.one_in(2) {
                    self.unsubscribe(world, filter);
                } else {
                    self.subscribe(world, filter);
                }
            }
            _ => {}
        }
    }

    fn leave(&mut self, world: &World) {
        let ends = self.is_ending || !self.lasts() && world.one_in(5);
        let Some(link) = &mut self.link else { return };
        link.left_ms = Some(world.ms());
        let expiry_s = if ends { 0 } else { self.expiry_s };
        self.may_be_new |= ends;
        if let Some(will) = link.will {
            world.model.borrow_mut().leaves(will.number, None);
        }
        self.send(world, ToServer::Disconnect { expiry_s });
    }

    pub(super) fn subscribe(&mut self, world: &World, filter: &'static str) {
        if !self.asked.iter().any(|asked| asked == filter) {
            self.asked.push(filter.into());
            self.send(world, ToServer::Subscribe(filter));
        }
    }

    fn unsubscribe(&mut self, world: &World, filter: &'static str) {
        if !self.asked.iter().any(|asked| asked == filter) {
            self.session.unsubscribes(filter);
            self.asked.push(filter.into());
            self.send(world, ToServer::Unsubscribe(filter));
        }
    }

    fn publish(&mut self, world: &World) {
        if self.outgoing.len() >= WINDOW {
            return;
        }
        let used = |id: u16| self.outgoing.iter().any(|out| out.id == id);
        let id = (0..IDS).map(|more| (self.next_id + more - 1) % IDS + 1).find(|id| !used(*id)).unwrap();
        self.next_id = id % IDS + 1;
        let publisher = self.publisher();
        let key = Key { publisher, number: self.next_number };
        self.next_number += 1;
        let qos = if world.one_in(2) { 2 } else { 1 };
        self.outgoing.push_back(Outgoing { key, qos, id, step: Step::Sent });
        world.model.borrow_mut().sends(key, qos);
        self.send(world, ToServer::Publish { key, qos, id });
    }

    fn publisher(&self) -> u32 {
        let number = self.name.rsplit('-').next().unwrap().parse().unwrap();
        assert!(number < WILLS, "wills have these numbers");
        number
    }

    pub(in crate::store::simulation) fn finish(&mut self) {
        self.is_ending = true;
        self.again_us = 0;
    }

    /// Lets a client of this pod vanish for good, if its session expires soon.
    pub(in crate::store::simulation) fn never_returns(&mut self, world: &World, pod: usize) {
        let Some(link) = self.link.as_ref().filter(|link| link.is_open && link.left_ms.is_none()) else {
            return;
        };
        if self.expiry_s < 1_000 && world.network.borrow().is_on(link.number, pod) {
            let noticed_us = world.random(0..1_000_000);
            world.log(|| format!("{} is gone for ever", self.name));
            world.cut(link.number, noticed_us);
            self.lose_link(world);
            self.is_over = true;
        }
    }

    pub(in crate::store::simulation) fn is_finished(&self) -> bool {
        self.is_over || self.is_online() && self.outgoing.is_empty() && self.asked.is_empty()
    }

    pub(in crate::store::simulation) fn check(&self, world: &World) {
        if self.is_over {
            return;
        }
        world.model.borrow().check_session(&self.session, &self.name);
    }

    fn end(&mut self, world: &World) {
        self.leave(world);
        self.is_over = true;
    }

    /// Ends the session: by DISCONNECT, or if it expires soon also by a lost connection.
    pub(in crate::store::simulation) fn vanish(&mut self, world: &World) {
        if self.is_over {
            return;
        }
        if self.expiry_s < 1_000 && world.one_in(2) {
            self.give_up(world);
            self.is_over = true;
        } else {
            self.end(world);
        }
    }

    pub(in crate::store::simulation) fn has_left(&self) -> bool {
        self.link.is_none()
    }
}
