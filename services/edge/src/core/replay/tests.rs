use std::sync::Arc;

use millrace_mqtt::{Properties, QoS};
use millrace_session::Message;

use crate::core::testing::{Loops, TestClient, publish};

const PUBLISH: u8 = 0x30;
const SUBACK: u8 = 0x90;
const SUBSCRIBE: u8 = 0x82;
const KEPT: &[u8] = b"\x00\x01\x00\x06kept/#\x00";
/// Units of work of a turn that has nothing else to do.
const TURN_MAX: u64 = 2_500;

fn with_retained(count: usize) -> Loops {
    let loops = Loops::start(1, |_| {});
    for number in 0..count {
        let topic = format!("kept/{number}").into();
        let message = Message::new(topic, QoS::AtMostOnce, true, Properties::EMPTY, &[b'x'; 100], 0);
        loops.broker().retain(&Arc::new(message));
    }
    loops
}

fn received(client: &mut TestClient, first: u8) -> usize {
    std::iter::from_fn(|| client.next()).filter(|(kind, _)| kind & 0xF0 == first).count()
}

fn replay(loops: &mut Loops, client: &mut TestClient, count: usize) -> u64 {
    let (mut found, mut most) = (0, 0);
    loops.until(|loops| {
        most = most.max(loops.cores[0].work.counted());
        found += received(client, PUBLISH);
        found == count
    });
    most
}

#[test]
fn replays_take_a_small_part_of_each_turn() {
    const COUNT: usize = 2_000;
    let mut loops = with_retained(COUNT);
    let mut client = loops.connect(0, "client");
    client.send(SUBSCRIBE, KEPT);
    let work = replay(&mut loops, &mut client, COUNT);
    assert!(work < TURN_MAX, "a turn did {work} units of work");
}

#[test]
fn messages_that_are_replayed_at_once_count() {
    const COUNT: usize = 60;
    const CLIENTS: usize = 300;
    let mut loops = with_retained(COUNT);
    let mut clients: Vec<TestClient> =
        (0..CLIENTS).map(|number| loops.connect(0, &format!("client{number}"))).collect();
    clients.iter_mut().for_each(|client| client.send(SUBSCRIBE, KEPT));
    let (mut found, mut most) = (0, 0);
    loops.until(|_| {
        let now: usize = clients.iter_mut().map(|client| received(client, PUBLISH)).sum();
        most = most.max(now);
        found += now;
        found == COUNT * CLIENTS
    });
    assert!(most <= 40 * COUNT, "{most} messages in a turn");
}

#[test]
fn a_message_of_others_leaves_before_a_replay_goes_on() {
    let mut loops = with_retained(5_000);
    let mut other = loops.connect(0, "other");
    loops.subscribe(&mut other, "t", QoS::AtMostOnce);
    let mut publisher = loops.connect(0, "publisher");
    let mut client = loops.connect(0, "client");
    client.send(SUBSCRIBE, KEPT);
    loops.answer(&mut client, SUBACK);
    assert!(loops.cores[0].unfinished.replays.is_ready());
    let before = received(&mut client, PUBLISH);
    publisher.send_all(&publish(0, "t", b"x"));
    loops.serve(0);
    assert_eq!(received(&mut other, PUBLISH), 1);
    assert_eq!((received(&mut client, PUBLISH), before > 0), (0, true));
    assert!(loops.cores[0].unfinished.replays.is_ready(), "its next part comes in the rest of the turn");
}
