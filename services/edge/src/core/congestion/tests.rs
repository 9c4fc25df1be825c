use millrace_mqtt::QoS;

use crate::core::connection::{Partial, Paused};
use crate::core::testing::{Loops, publish};
use crate::core::work;
use crate::mailbox::Mail;

#[test]
fn a_publisher_that_waits_for_a_receiver_gets_its_pubacks() {
    let mut loops = Loops::stored(1);
    let mut keeps = loops.connect_as("keeps", false);
    loops.subscribe(&mut keeps, "kept", QoS::AtLeastOnce);
    let mut slow = loops.connect(0, "slow");
    loops.subscribe(&mut slow, "t", QoS::AtMostOnce);
    let mut publisher = loops.connect(0, "publisher");
    // While the time stands still, a pause does not end by itself.
    loops.now_ms = Some(loops.cores[0].now_ms);
    let mut last = 0;
    while loops.connection(0, &publisher).paused != Paused::ForReceiver {
        last += 1;
        assert!(last < 1_000, "the publisher is not paused");
        // The first is acknowledged in a later turn than the one in which the second pauses the publisher.
        let bytes = [publish(last, "kept", b"x"), publish(0, "t", &[0; 60_000])].concat();
        loops.send_to(0, &mut publisher, &bytes);
    }
    for id in 1..=last {
        assert_eq!(loops.answer(&mut publisher, 0x40), id.to_be_bytes());
    }
    assert!(loops.connection(0, &publisher).paused == Paused::ForReceiver);
}

#[test]
fn a_receiver_that_has_caught_up_resumes_only_publishers_that_wait_for_one() {
    for (why, after) in [
        (Paused::ForMailbox, Paused::ForMailbox),
        (Paused::ForReceiver, Paused::No),
        (Paused::ForMail, Paused::No),
    ] {
        let mut loops = Loops::start(1, |_| {});
        let publisher = loops.connect(0, "publisher");
        // While the time stands still, a pause does not end by itself.
        loops.now_ms = Some(loops.cores[0].now_ms);
        let slot = loops.session(0, &publisher).connection;
        let core = &mut loops.cores[0];
        let id = core.id_of(slot);
        core.pause(id, why);
        core.post(0, Mail::Relieved(id));
        loops.until(|loops| loops.cores[0].mail.is_sent());
        loops.turn(0);
        assert!(loops.connection(0, &publisher).paused == after, "{why:?}");
    }
}

#[test]
fn receivers_that_have_caught_up_together_resume_their_publishers_over_several_turns() {
    const PUBLISHERS: usize = 200;
    let mut loops = Loops::start(1, |_| {});
    let publishers: Vec<_> =
        (0..PUBLISHERS).map(|number| loops.connect(0, &format!("publisher-{number}"))).collect();
    // While the time stands still, a pause does not end by itself.
    loops.now_ms = Some(loops.cores[0].now_ms);
    let bytes = publish(0, "t", &[0; 10_000]).repeat(10);
    for (number, publisher) in (0..).zip(&publishers) {
        let slot = loops.session(0, publisher).connection;
        let core = &mut loops.cores[0];
        let id = core.id_of(slot);
        core.pause(id, Paused::ForReceiver);
        let held = Partial { bytes: bytes.clone(), raw: 0, needed: bytes.len(), charge: None };
        core.connections[slot as usize].partial = Some(Box::new(held));
        // These receivers are gone.
        core.pauses.for_receiver.entry(1_000 + number / 8).or_default().push(id);
    }
    let mut turns = Vec::new();
    while !loops.cores[0].pauses.for_receiver.is_empty() {
        loops.turn(0);
        turns.push(loops.cores[0].work.counted());
        assert!(loops.cores[0].has_relief() || loops.cores[0].pauses.for_receiver.is_empty());
    }
    assert!(turns.iter().all(|work| *work < 2 * work::TURN), "{turns:?}");
    loops.until(|loops| loops.cores[0].connections.iter().all(|(_, publisher)| publisher.partial.is_none()));
}
