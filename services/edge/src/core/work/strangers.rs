//! Connections without a session wait to be read in turns of their addresses, so that a flood from some addresses does not delay
//! the CONNECT of another one. All of them together take turns with the brokers.

use super::WaitingClient;
use crate::core::Core;

impl Core {
    pub(super) fn wait_to_read(&mut self, slot: u32) {
        let broker = self.broker_of(slot);
        let waiting = match self.connects.times.get(&slot).filter(|_| broker == 0) {
            Some(times) => {
                self.work.strangers.push(times.address, slot);
                WaitingClient::Stranger
            }
            None => WaitingClient::ToRead(slot),
        };
        self.work.waiting.push(broker, waiting);
    }

    pub(super) fn read_stranger(&mut self) {
        if let Some((_, slot)) = self.work.strangers.pop() {
            self.read_listed(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::core::testing::{Loops, stranger};

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
        let order: Vec<u32> =
            std::iter::from_fn(|| core.work.strangers.pop()).map(|(_, slot)| slot).collect();
        assert_eq!((order.len(), &order[..3]), (flood.len() + 1, &[0, last, 1][..]));
        drop(newcomer);
    }
}
