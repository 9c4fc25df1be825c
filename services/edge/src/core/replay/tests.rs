use std::sync::Arc;

use millrace_mqtt::{Properties, QoS};
use millrace_session::Message;

use crate::core::testing::{Loops, TestClient, publish, subscribe, unsubscribe};
use crate::core::{limits, work};

const PUBLISH: u8 = 0x30;
const SUBACK: u8 = 0x90;
const SUBSCRIBE: u8 = 0x82;
const UNSUBSCRIBE: u8 = 0xA2;
const UNSUBACK: u8 = 0xB0;
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

#[test]
fn an_unsubscribe_finds_its_lookup_after_those_before_it_have_ended() {
    const COUNT: usize = 1_500;
    let mut loops = Loops::start(1, |_| {});
    for number in 0..COUNT {
        let topic = format!("kept/{number}").into();
        let message = Message::new(topic, QoS::AtMostOnce, true, Properties::EMPTY, &[b'x'; 4_000], 0);
        loops.broker().retain(&Arc::new(message));
    }
    let mut client = loops.connect(0, "client");
    (0..limits::REPLAY_SLOTS_MAX).for_each(|_| client.send(SUBSCRIBE, KEPT));
    // Their look-ups join those of the last SUBSCRIBE.
    for filter in ["#", "+/#", "kept/+", "+/+"].map(String::from) {
        client.send_all(&subscribe(&[filter], QoS::AtMostOnce));
    }
    let before = (limits::REPLAY_SLOTS_MAX + 2) * COUNT;
    let mut found = 0;
    loops.until(|_| {
        while found < before
            && let Some((kind, _)) = client.next()
        {
            found += usize::from(kind & 0xF0 == PUBLISH);
        }
        found == before
    });
    client.send(UNSUBSCRIBE, b"\x00\x02\x00\x03+/+");
    loops.until(|loops| {
        found += received(&mut client, PUBLISH);
        !loops.cores[0].unfinished.replays.is_ready() && found >= before + COUNT
    });
    assert_eq!(found, before + COUNT, "the look-up of kept/+ continues, that of +/+ has ended");
}

#[test]
fn no_turn_looks_at_all_filters_of_a_large_subscribe_or_unsubscribe() {
    const FILTERS: usize = 30_000;
    let mut loops = with_retained(1);
    let mut client = loops.connect(0, "client");
    let filters: Vec<String> = (0..FILTERS).map(|number| format!("f/{number}")).collect();
    let mut most = 0;
    let mut answer = |loops: &mut Loops, client: &mut TestClient, first| {
        loops.until(|loops| {
            most = most.max(loops.cores[0].work.counted());
            received(client, first) > 0
        });
    };
    client.send_all(&subscribe(&filters, QoS::AtMostOnce));
    answer(&mut loops, &mut client, SUBACK);
    client.send_all(&unsubscribe(&filters));
    answer(&mut loops, &mut client, UNSUBACK);
    assert!(most < 4 * work::TURN, "a turn did {most} units of work");
}
