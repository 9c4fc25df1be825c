use std::sync::Arc;

use millrace_mqtt::QoS;

use crate::core::connection::{Partial, Paused};
use crate::core::testing::{Loops, publish};
use crate::core::work;
use crate::mailbox::Mail;
use crate::outbound::Outbound;

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
    for (why, after) in
        [(Paused::ForRoom, Paused::ForRoom), (Paused::ForReceiver, Paused::No), (Paused::ForMail, Paused::No)]
    {
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
        core.pauses.note_drained(1_000 + number / 8);
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

#[test]
fn a_turn_looks_only_at_lagging_receivers_that_have_written_or_are_gone() {
    const RECEIVERS: usize = 300;
    let mut loops = Loops::start(1, |_| {});
    let publisher = loops.connect(0, "publisher");
    let mut receivers: Vec<_> =
        (0..RECEIVERS).map(|number| loops.connect(0, &format!("receiver-{number}"))).collect();
    // While the time stands still, a pause does not end by itself.
    loops.now_ms = Some(loops.cores[0].now_ms);
    let id = loops.cores[0].id_of(loops.session(0, &publisher).connection);
    loops.cores[0].pause(id, Paused::ForReceiver);
    let unread = Arc::new(vec![0; loops.cores[0].output.soft_bytes]);
    let slots: Vec<_> = receivers.iter().map(|receiver| loops.session(0, receiver).connection).collect();
    for slot in &slots {
        let mut outbound = Box::<Outbound>::default();
        outbound.push_shared(&unread);
        let core = &mut loops.cores[0];
        let connection = &mut core.connections[*slot as usize];
        (connection.outbound, connection.busy) = (Some(outbound), true);
        core.pauses.for_receiver.entry(*slot).or_default().push(id);
    }
    for _ in 0..5 {
        loops.turn(0);
        let work = loops.cores[0].work.counted();
        assert!(work < RECEIVERS as u64, "{work}");
    }
    assert!(loops.connection(0, &publisher).paused == Paused::ForReceiver);
    loops.cores[0].connections[slots[0] as usize].busy = false;
    loops.cores[0].flush_later(slots[0]);
    loops.until(|loops| loops.connection(0, &publisher).paused == Paused::No);
    assert_eq!(loops.cores[0].pauses.for_receiver.len(), RECEIVERS - 1);
    receivers.truncate(RECEIVERS / 2);
    loops.until(|loops| loops.cores[0].pauses.for_receiver.len() == RECEIVERS / 2 - 1);
}
