use millrace_mqtt::QoS;

use crate::core::Ended;
use crate::core::testing::{Loops, packet};
use crate::core::work;

const SUBSCRIBE: u8 = 0x82;
const SUBACK: u8 = 0x90;
const LEVELS: usize = 11;

/// Each filter has another level at its end than the topics, so a match visits the nodes of all filters and finds none.
fn filters_without_end() -> Vec<u8> {
    let mut body = vec![0, 1];
    for number in 0..1_u32 << LEVELS {
        let levels = (0..LEVELS).map(|bit| if number >> bit & 1 == 0 { "a/" } else { "+/" });
        let filter = levels.collect::<String>() + "end";
        body.extend_from_slice(&(filter.len() as u16).to_be_bytes());
        body.extend_from_slice(filter.as_bytes());
        body.push(QoS::AtMostOnce as u8);
    }
    body
}

#[test]
fn the_match_of_a_will_counts_for_its_own_turn() {
    let mut loops = Loops::start(1, |_| {});
    let mut subscriber = loops.connect_as("subscriber", true);
    loops.send_to(0, &mut subscriber, &packet(SUBSCRIBE, &filters_without_end()));
    loops.answer(&mut subscriber, SUBACK);
    let mortal = loops.connect_with_will("mortal", &("a/".repeat(LEVELS) + "x"));
    let slot = loops.session(0, &mortal).connection;
    let core = &mut loops.cores[0];
    let before = core.work.spent();
    core.end(slot, Ended::Lost, true);
    let (least, spent) = ((1 << LEVELS) * work::NODE, core.work.spent() - before);
    assert!(spent >= least, "{spent} of at least {least} units were counted");
    assert_eq!(core.routes.take_work(), 0, "another client would be charged with it");
}
