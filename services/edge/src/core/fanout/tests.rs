use std::collections::HashSet;

use millrace_mqtt::{Properties, QoS};
use millrace_session::Message;

use super::FanoutKey;
use crate::core::limits::REMOTE_BYTES_MAX;
use crate::core::testing::{Loops, TestClient, publish};
use crate::outbound::Outbound;

const LARGE: usize = 900_000;

fn receivers(loops: &mut Loops, core: u16, count: usize) -> Vec<TestClient> {
    (0..count)
        .map(|number| {
            let mut receiver = loops.connect(core, &format!("receiver-{number}"));
            loops.subscribe(&mut receiver, "t", QoS::AtLeastOnce);
            receiver
        })
        .collect()
}

fn is_fanning_out(loops: &Loops, core: usize) -> bool {
    !loops.cores[core].unfinished.fanouts.is_empty()
}

fn publish_large(loops: &mut Loops, publisher: &mut TestClient) {
    loops.send_to(0, publisher, &publish(1, "t", &[b'.'; LARGE]));
    while loops.cores[1].mailbox().bytes() == 0 {
        loops.turn(0);
    }
}

fn finish(loops: &mut Loops, core: usize) {
    assert!(is_fanning_out(loops, core));
    while is_fanning_out(loops, core) {
        loops.turn(core);
    }
}

/// Begins a fan-out of a message of a new client, and stops it before its last receivers. Returns what continues with it.
fn begin_endless(loops: &mut Loops, topic: &str) -> FanoutKey {
    let mut publisher = loops.connect(0, "broadcaster");
    loops.send_to(0, &mut publisher, &publish(1, topic, &[b'.'; LARGE]));
    while !is_fanning_out(loops, 0) {
        loops.turn(0);
    }
    loops.cores[0].unfinished.fanouts.ready.pop().unwrap().1
}

fn go_on(loops: &mut Loops, key: FanoutKey) {
    loops.cores[0].unfinished.fanouts.ready.push(key.0, key);
    finish(loops, 0);
}

fn payload_len(body: &[u8]) -> usize {
    body.len() - b"__s__".len()
}

fn is_live(loops: &Loops, client: &TestClient) -> bool {
    loops.session(0, client).persistent.as_ref().is_some_and(|persistent| persistent.is_live())
}

#[test]
fn a_session_that_comes_back_gets_its_messages_while_others_broadcast() {
    const LENS: [usize; 3] = [400_000, 400_001, 400_002];
    let mut loops = Loops::stored(1);
    let _receivers = receivers(&mut loops, 0, 30);
    let mut session = loops.connect_as("session", false);
    loops.subscribe(&mut session, "s", QoS::AtLeastOnce);
    drop(session);
    loops.until(|loops| loops.cores[0].process.open_connections() == 30);
    let mut publisher = loops.connect(0, "publisher");
    LENS.iter().for_each(|len| loops.publish(&mut publisher, "s", &vec![b'.'; *len]));
    let broadcast = begin_endless(&mut loops, "t");
    let mut session = loops.connect_as("session", false);
    for len in LENS {
        assert_eq!(payload_len(&loops.answer(&mut session, 0x32)), len);
    }
    loops.until(|loops| loops.session(0, &session).persistent.as_ref().unwrap().waits_for_fanouts(1));
    loops.publish(&mut publisher, "s", b"held");
    assert!(session.next().is_none() && !is_live(&loops, &session));
    go_on(&mut loops, broadcast);
    assert_eq!(payload_len(&loops.answer(&mut session, 0x32)), 4);
    loops.until(|loops| is_live(loops, &session));
}

#[test]
fn a_message_that_was_read_before_its_copy_comes_is_delivered_once() {
    let mut loops = Loops::stored(1);
    let _receivers = receivers(&mut loops, 0, 30);
    let mut session = loops.connect_as("session", false);
    loops.subscribe(&mut session, "t", QoS::AtLeastOnce);
    let broadcast = begin_endless(&mut loops, "t");
    loops.subscribe(&mut session, "s", QoS::AtLeastOnce);
    assert_eq!(payload_len(&loops.answer(&mut session, 0x32)), LARGE);
    let mut publisher = loops.connect(0, "publisher");
    loops.publish(&mut publisher, "s", b"later");
    go_on(&mut loops, broadcast);
    assert_eq!(payload_len(&loops.answer(&mut session, 0x32)), 5);
    loops.until(|loops| is_live(loops, &session));
    loops.publish(&mut publisher, "s", b"live");
    assert_eq!(payload_len(&loops.answer(&mut session, 0x32)), 4);
}

#[test]
fn a_publisher_waits_for_the_fan_outs_of_all_loops() {
    let mut loops = Loops::start(3, |_| {});
    let _receivers = [receivers(&mut loops, 1, 60), receivers(&mut loops, 2, 30)];
    let mut publisher = loops.connect(0, "publisher");
    publish_large(&mut loops, &mut publisher);
    [1, 2, 0].into_iter().for_each(|core| loops.turn(core));
    assert!(!loops.connection(0, &publisher).is_reading());
    finish(&mut loops, 2);
    loops.turn(0);
    assert!(is_fanning_out(&loops, 1) && !loops.connection(0, &publisher).is_reading());
    finish(&mut loops, 1);
    loops.turn(0);
    assert!(loops.connection(0, &publisher).is_reading());
}

#[test]
fn a_publisher_that_waits_for_its_own_loop_heeds_another_one() {
    let mut loops = Loops::start(2, |_| {});
    let _receivers = [receivers(&mut loops, 0, 30), receivers(&mut loops, 1, 60)];
    let mut publisher = loops.connect(0, "publisher");
    publish_large(&mut loops, &mut publisher);
    assert!(is_fanning_out(&loops, 0));
    [1, 0].into_iter().for_each(|core| loops.turn(core));
    finish(&mut loops, 0);
    loops.turn(0);
    assert!(is_fanning_out(&loops, 1) && !loops.connection(0, &publisher).is_reading());
    finish(&mut loops, 1);
    loops.turn(0);
    assert!(loops.connection(0, &publisher).is_reading());
}

#[test]
fn a_large_run_is_copied_once_for_all_its_receivers() {
    let mut loops = Loops::start(1, |_| {});
    let receivers = receivers(&mut loops, 0, 30);
    let mut publisher = loops.connect(0, "publisher");
    let held = |loops: &Loops| -> Vec<*const u8> {
        let outbound = |client| loops.connection(0, client).outbound.as_deref();
        receivers.iter().filter_map(outbound).flat_map(Outbound::addresses).collect()
    };
    let mut published = 0;
    while held(&loops).len() < receivers.len() / 2 {
        published += 1;
        assert!(published < 30);
        loops.send_to(0, &mut publisher, &publish(0, "t", &[b'.'; LARGE]));
        loops.until(|loops| !is_fanning_out(loops, 0));
    }
    let addresses: HashSet<*const u8> = held(&loops).into_iter().collect();
    assert!(addresses.len() <= 3, "{} copies for {} receivers", addresses.len(), receivers.len());
}

#[test]
fn messages_of_other_pods_wait_up_to_a_limit() {
    let mut loops = Loops::start_with(1, None, |config| config.pod = Some("pod-a".into()));
    let mut all: Vec<_> = (0..300).map(|number| loops.connect(0, &format!("receiver-{number}"))).collect();
    all.iter_mut().for_each(|receiver| loops.subscribe(receiver, "t", QoS::AtMostOnce));
    let (broker, core) = (loops.broker(), &mut loops.cores[0]);
    let routes = core.routes.get(&broker, "t");
    for _ in 0..100 {
        let message = Message::new("t".into(), QoS::AtMostOnce, false, Properties::EMPTY, &[b'.'; LARGE], 1);
        core.deliver_here(&routes, &message.into(), None);
    }
    let waiting = &core.unfinished.fanouts.bytes;
    assert!(waiting.all > REMOTE_BYTES_MAX && waiting.all < REMOTE_BYTES_MAX + 2 * LARGE, "{}", waiting.all);
    assert!(waiting.is_over(broker.id) && !waiting.is_over(broker.id + 1), "a broker with less waits on");
    assert!(broker.counters[0].dropped_busy.get() > 0);
    finish(&mut loops, 0);
    let waiting = &loops.cores[0].unfinished.fanouts.bytes;
    assert!(waiting.all == 0 && waiting.of.is_empty());
}
