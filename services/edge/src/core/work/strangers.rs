//! Connections without a session wait to be read in turns of their addresses, so that a flood from some addresses does not delay
//! the CONNECT of another one. All of them together take turns with the brokers.

use super::WaitingClient;
use crate::connection_id::ConnectionId;
use crate::core::Core;
use crate::core::connection::Paused;

impl Core {
    pub(super) fn wait_to_read(&mut self, slot: u32) {
        let broker = self.broker_of(slot);
        self.wait_in_turn(slot, broker, WaitingClient::ToRead(slot));
    }

    fn wait_in_turn(&mut self, slot: u32, broker: u64, waiting: WaitingClient) {
        // Broker 0: the connection has no session. Before its CONNACK it is in `times`, with its address.
        let waiting = match self.connects.times.get(&slot).filter(|_| broker == 0) {
            Some(times) => {
                self.work.strangers.push(times.address, waiting);
                WaitingClient::Stranger
            }
            None => waiting,
        };
        self.work.waiting.push(broker, waiting);
    }

    /// Carries out a CONNECT that has waited for its broker, within the budget of reading: thousands may have waited.
    pub(in crate::core) fn resume_stranger(&mut self, id: ConnectionId) {
        let connection = self.connection_of(id).filter(|connection| connection.paused == Paused::ForBroker);
        if let Some(connection) = connection {
            connection.paused = Paused::ForWork;
            self.wait_in_turn(id.slot, 0, WaitingClient::ToResume(id));
        }
    }

    pub(super) fn continue_with_stranger(&mut self) {
        if let Some((_, waiting)) = self.work.strangers.pop() {
            self.continue_with(waiting);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::IpAddr;
    use std::sync::Arc;

    use millrace_transport::addresses::Address;

    use super::WaitingClient;
    use crate::core::connection::{Partial, Paused};
    use crate::core::testing::{Loops, stranger};
    use crate::handover::Transport;

    const PINGREQ: [u8; 2] = [0xC0, 0];
    const PINGRESP: u8 = 0xD0;

    #[test]
    fn a_flood_of_new_connections_leaves_a_part_of_each_turn_to_clients() {
        const STRANGERS: usize = 300;
        let mut loops = Loops::start(1, |_| {});
        let mut client = loops.connect_as("client", true);
        let accepted = |loops: &Loops| loops.cores[0].connections.len() - 1;
        let strangers: Vec<_> = (0..STRANGERS).map(|_| stranger(&loops, [127, 0, 0, 1])).collect();
        client.send_all(&PINGREQ);
        loops.answer(&mut client, PINGRESP);
        assert!(accepted(&loops) < STRANGERS / 2, "{} were accepted before", accepted(&loops));
        loops.until(|loops| accepted(loops) == STRANGERS);
        drop(strangers);
    }

    #[test]
    fn a_newcomer_waits_for_one_connection_of_each_other_address() {
        let mut loops = Loops::start(1, |_| {});
        let flood: Vec<_> = (0..100).map(|_| stranger(&loops, [127, 0, 0, 2])).collect();
        loops.until(|loops| loops.cores[0].connections.len() == flood.len());
        let newcomer = stranger(&loops, [127, 0, 0, 3]);
        loops.until(|loops| loops.cores[0].connections.len() > flood.len());
        let core = &mut loops.cores[0];
        let last = u32::try_from(flood.len()).unwrap();
        (0..=last).for_each(|slot| core.wait_to_read(slot));
        let next = || core.work.strangers.pop().map(|(_, waiting)| waiting);
        let order: Vec<WaitingClient> = std::iter::from_fn(next).collect();
        let first = [0, last, 1].map(WaitingClient::ToRead);
        assert_eq!((order.len(), &order[..3]), (flood.len() + 1, &first[..]));
        drop(newcomer);
    }

    #[test]
    fn clients_of_a_gateway_have_the_turns_of_their_own_addresses() {
        let mut loops = Loops::start(1, |_| {});
        let sources = [[192, 0, 2, 1], [192, 0, 2, 2]];
        let clients = sources.map(|source| {
            let known = loops.cores[0].connections.len();
            let mut client = stranger(&loops, [127, 0, 0, 1]);
            loops.until(|loops| loops.cores[0].connections.len() > known);
            loops.cores[0].connections[known].transport = Transport::Proxy;
            let header = [b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c", &source[..], &[127, 0, 0, 1, 1, 1, 1, 1]];
            client.write_all(&header.concat()).unwrap();
            client
        });
        let address = |loops: &Loops, slot| loops.cores[0].connects.times[&slot].address;
        loops.until(|loops| {
            (0..)
                .zip(sources)
                .all(|(slot, source)| address(loops, slot) == Address::of(IpAddr::from(source)).number())
        });
        drop(clients);
    }

    #[test]
    fn clients_that_waited_for_their_broker_are_let_in_over_several_turns() {
        const CLIENTS: usize = 1_000;
        const CONNECT: &[u8] = b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00";
        let mut loops = Loops::start(1, |_| {});
        let name: Arc<str> = "default".into();
        let clients: Vec<_> = (0..CLIENTS).map(|_| stranger(&loops, [127, 0, 0, 1])).collect();
        loops.until(|loops| loops.cores[0].connections.len() == CLIENTS);
        let core = &mut loops.cores[0];
        for slot in 0..CLIENTS {
            let connection = &mut core.connections[slot];
            connection.paused = Paused::ForBroker;
            let held = Partial { bytes: CONNECT.to_vec(), raw: 0, needed: CONNECT.len(), charge: None };
            connection.partial = Some(Box::new(held));
            let id = core.id_of(slot as u32);
            core.connects.opening.entry(name.clone()).or_default().push(id);
        }
        loops.cores[0].work.begin_turn();
        loops.cores[0].opened(&name, Some(true));
        let mut before = loops.cores[0].sessions.len();
        assert!(before < 10, "{before} are let in at once");
        let (mut turns, mut most) = (0, 0);
        loops.until(|loops| {
            let now = loops.cores[0].sessions.len();
            (turns, most, before) = (turns + 1, most.max(now - before), now);
            now == CLIENTS
        });
        assert!(turns > 5 && most < CLIENTS / 3, "{most} of them in one of {turns} turns");
        drop(clients);
    }
}
