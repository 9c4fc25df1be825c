use millrace_mqtt::QoS;

use crate::core::ConnectionEnd;
use crate::core::testing::{Loops, SUBACK, publish, subscribe};
use crate::core::work;

const LEVELS: usize = 11;

/// Each filter has another level at its end than the topics, so a match visits the nodes of all filters and finds none.
fn filters_without_end() -> Vec<String> {
    let levels = |number: u32| (0..LEVELS).map(move |bit| if number >> bit & 1 == 0 { "a/" } else { "+/" });
    (0..1 << LEVELS).map(|number| levels(number).collect::<String>() + "end").collect()
}

#[test]
fn the_match_of_a_will_counts_for_its_own_turn() {
    let mut loops = Loops::start(1, |_| {});
    let mut subscriber = loops.connect_as("subscriber", true);
    loops.send_to(0, &mut subscriber, &subscribe(&filters_without_end(), QoS::AtMostOnce));
    loops.answer(&mut subscriber, SUBACK);
    let mortal = loops.connect_with_will("mortal", &("a/".repeat(LEVELS) + "x"));
    let slot = loops.session(0, &mortal).connection;
    let core = &mut loops.cores[0];
    let before = core.work.spent();
    core.end(slot, ConnectionEnd::Lost, true);
    let (least, spent) = ((1 << LEVELS) * work::NODE, core.work.spent() - before);
    assert!(spent >= least, "{spent} of at least {least} units were counted");
    assert_eq!(core.routes.take_work(), 0, "another client would be charged with it");
}

#[test]
fn the_writer_knows_of_a_retained_message_before_the_turn_submits_it() {
    const RETAIN: u8 = 1;
    let mut loops = Loops::stored(1);
    let mut publisher = loops.connect(0, "publisher");
    let process = loops.cores[0].process.clone();
    let is_unwritten = || process.store.as_ref().unwrap().has_unwritten_retained();
    let mut message = publish(1, "t", b"x");
    message[0] |= RETAIN;
    assert!(!is_unwritten());
    publisher.send_all(&message);
    while loops.cores[0].store_jobs.queue.is_empty() {
        loops.serve(0);
    }
    assert!(is_unwritten());
    loops.answer(&mut publisher, 0x40);
    loops.until(|_| !is_unwritten());
}
