//! The connections between clients and pods: packets arrive in order, 0.05 to 5 ms after they were sent.

use std::collections::{BTreeMap, VecDeque};

use super::model::Key;
use super::world::{Actor, World};

#[derive(Clone, Debug)]
pub(super) enum ToServer {
    Connect { client: usize, clean: bool, expiry_s: u32, will: Option<Will> },
    Publish { key: Key, qos: u8, id: u16 },
    PubRel(u16),
    PubAck(u16),
    PubRec(u16),
    PubComp(u16),
    Subscribe(&'static str),
    Unsubscribe(&'static str),
    Disconnect { expiry_s: u32 },
    Closed,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Will {
    pub(super) number: u32,
    pub(super) delay_s: u32,
}

#[derive(Clone, Debug)]
pub(super) enum ToClient {
    ConnAck {
        present: bool,
        filters: Vec<String>,
    },
    PubAck {
        id: u16,
        stored: bool,
    },
    PubRec {
        id: u16,
        stored: bool,
    },
    PubComp(u16),
    PubRel(u16),
    Publish {
        id: u16,
        qos: u8,
        key: Key,
    },
    SubAck {
        filter: String,
        granted: bool,
    },
    UnsubAck {
        filter: String,
    },
    /// The clean end is stored.
    Left,
    Closed,
}

#[derive(Debug)]
pub(super) struct Connection {
    client: usize,
    pod: usize,
    up: VecDeque<(u64, ToServer)>,
    down: VecDeque<(u64, ToClient)>,
    is_cut: bool,
}

#[derive(Default)]
pub(super) struct Network {
    connections: BTreeMap<u32, Connection>,
    last: u32,
}

impl Network {
    pub(super) fn open(&mut self, client: usize, pod: usize) -> u32 {
        self.last += 1;
        let (up, down) = Default::default();
        self.connections.insert(self.last, Connection { client, pod, up, down, is_cut: false });
        self.last
    }

    /// Packets that have arrived at a pod, in the order of the connections.
    pub(super) fn take_up(&mut self, pod: usize, now_us: u64) -> Vec<(u32, ToServer)> {
        let mut taken = Vec::new();
        for (number, connection) in self.connections.iter_mut().filter(|(_, of)| of.pod == pod) {
            while let Some((_, packet)) = connection.up.pop_front_if(|(at_us, _)| *at_us <= now_us) {
                taken.push((*number, packet));
            }
        }
        taken
    }

    pub(super) fn take_down(&mut self, number: u32, now_us: u64) -> Option<ToClient> {
        let connection = self.connections.get_mut(&number).filter(|connection| !connection.is_cut)?;
        connection.down.pop_front_if(|(at_us, _)| *at_us <= now_us).map(|(_, packet)| packet)
    }

    pub(super) fn is_on(&self, number: u32, pod: usize) -> bool {
        self.connections.get(&number).is_some_and(|connection| connection.pod == pod)
    }

    pub(super) fn next_down_us(&self, number: u32) -> Option<u64> {
        self.connections.get(&number)?.down.front().map(|(at_us, _)| *at_us)
    }

    pub(super) fn next_up_us(&self, pod: usize) -> Option<u64> {
        self.connections
            .values()
            .filter(|of| of.pod == pod)
            .filter_map(|of| of.up.front())
            .map(|(at_us, _)| *at_us)
            .min()
    }
}

impl World {
    pub(super) fn send_up(&self, number: u32, packet: ToServer) {
        self.send_up_after(number, packet, self.random(50..5_000));
    }

    pub(super) fn send_up_after(&self, number: u32, packet: ToServer, after_us: u64) {
        let mut network = self.network.borrow_mut();
        let Some(connection) = network.connections.get_mut(&number) else { return };
        let last_us = connection.up.back().map_or(0, |(at_us, _)| *at_us);
        let at_us = last_us.max(self.micros() + after_us);
        connection.up.push_back((at_us, packet));
        self.wake(Actor::Core(connection.pod), at_us);
    }

    pub(super) fn send_down(&self, number: u32, packet: ToClient) {
        let mut network = self.network.borrow_mut();
        let Some(connection) = network.connections.get_mut(&number).filter(|of| !of.is_cut) else { return };
        let last_us = connection.down.back().map_or(0, |(at_us, _)| *at_us);
        let at_us = last_us.max(self.micros() + self.random(50..5_000));
        connection.down.push_back((at_us, packet));
        self.wake(Actor::Client(connection.client), at_us);
    }

    /// The client is gone. The pod notices it later; the packets under way reach it, or all are lost.
    pub(super) fn cut(&self, number: u32, noticed_after_us: u64) {
        if let Some(connection) = self.network.borrow_mut().connections.get_mut(&number) {
            connection.is_cut = true;
            connection.down.clear();
            if self.one_in(2) {
                connection.up.clear();
            }
        }
        self.send_up_after(number, ToServer::Closed, noticed_after_us);
    }

    /// A pod is gone with its connections. Clients may have got the packets before.
    pub(super) fn cut_pod(&self, pod: usize) {
        let numbers: Vec<u32> = {
            let mut network = self.network.borrow_mut();
            network.connections.values_mut().filter(|of| of.pod == pod).for_each(|of| of.up.clear());
            network
                .connections
                .iter()
                .filter(|(_, of)| of.pod == pod && !of.is_cut)
                .map(|(number, _)| *number)
                .collect()
        };
        for number in numbers {
            self.send_down(number, ToClient::Closed);
            // No pod has this number: the connection stays until the client has read its last packets.
            if let Some(connection) = self.network.borrow_mut().connections.get_mut(&number) {
                connection.pod = usize::MAX;
            }
        }
        self.network.borrow_mut().connections.retain(|_, of| of.pod != pod);
    }

    pub(super) fn forget_connection(&self, number: u32) {
        self.network.borrow_mut().connections.remove(&number);
    }
}
