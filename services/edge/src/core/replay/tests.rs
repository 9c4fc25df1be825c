use std::sync::{Arc, Weak};

use millrace_mqtt::{Properties, QoS};
use millrace_session::Message;

use crate::core::ConnectionEnd;
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

/// A client whose socket is full: it does not read retained messages of 15 MB. `f/7` has a retained message, too.
fn with_full_client() -> (Loops, TestClient) {
    let mut loops = Loops::start(1, |_| {});
    let retain = |topic: String, payload: &[u8]| {
        let message = Message::new(topic.into(), QoS::AtMostOnce, true, Properties::EMPTY, payload, 0);
        loops.broker().retain(&Arc::new(message));
    };
    (0..15).for_each(|number| retain(format!("kept/{number}"), &[b'x'; 1_000_000]));
    retain("f/7".to_owned(), b"retained");
    let mut client = loops.connect(0, "client");
    client.send(SUBSCRIBE, KEPT);
    loops.until(|loops| lookups(loops, &client) > 0 && !loops.cores[0].unfinished.replays.is_ready());
    (loops, client)
}

fn filters(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("f/{number}")).collect()
}

/// Look-ups that wait for the client.
fn lookups(loops: &Loops, client: &TestClient) -> usize {
    let session = loops.connection(0, client).session;
    let own = loops.cores[0].unfinished.replays.of.get(&session);
    own.map_or(0, |own| own.slots.iter().map(|slot| slot.replays.len().max(1)).sum())
}

/// The loop takes turns until it has read all that has come. Returns the most work of a turn.
fn idle(loops: &mut Loops) -> u64 {
    let mut most = 0;
    loops.until(|loops| {
        let core = &loops.cores[0];
        most = most.max(core.work.counted());
        let is_read = core.connections.iter().all(|(_, client)| client.partial.is_none() && !client.readable);
        is_read && !core.work.has_waiting()
    });
    most
}

#[test]
fn a_client_that_does_not_read_has_few_lookups_however_many_large_subscribes_it_sends() {
    const PACKETS: usize = 60;
    const FILTERS: usize = 440;
    let (mut loops, mut client) = with_full_client();
    let packet = subscribe(&filters(FILTERS), QoS::AtMostOnce);
    (0..PACKETS).for_each(|_| loops.send_to(0, &mut client, &packet));
    idle(&mut loops);
    let most = limits::REPLAY_LOOKUPS_MAX + 3 * FILTERS;
    assert!((FILTERS..most).contains(&lookups(&loops, &client)), "{}", lookups(&loops, &client));
    let mut publisher = loops.connect(0, "publisher");
    publisher.send_all(&publish(0, "f/7", b"live"));
    idle(&mut loops);
    let (mut subacks, mut retained) = (0, 0);
    loops.until(|_| {
        let mut is_live = false;
        while let Some((kind, body)) = client.next() {
            subacks += usize::from(kind == SUBACK);
            retained += usize::from(body.ends_with(b"retained"));
            is_live |= body.ends_with(b"live");
        }
        is_live
    });
    assert_eq!((subacks, lookups(&loops, &client)), (1 + PACKETS, 0));
    assert!((2..PACKETS).contains(&retained), "{retained}");
}

#[test]
fn many_lookups_join_earlier_ones_and_end_over_several_turns() {
    const FILTERS: usize = 30_000;
    let (mut loops, mut client) = with_full_client();
    let (packet, mut most) = (subscribe(&filters(FILTERS), QoS::AtMostOnce), 0);
    for _ in 0..4 {
        loops.send_to(0, &mut client, &packet);
        most = most.max(idle(&mut loops));
    }
    let waiting = lookups(&loops, &client);
    assert!((2 * FILTERS..=2 * FILTERS + 10).contains(&waiting), "{waiting}");
    let slot = loops.session(0, &client).connection;
    let core = &mut loops.cores[0];
    core.work.begin_turn();
    core.end(slot, ConnectionEnd::Kicked, false);
    most = most.max(core.work.counted()).max(idle(&mut loops));
    assert!(most < 4 * work::TURN, "a turn did {most} units of work");
}

fn retain(loops: &Loops, payload: &[u8]) -> Weak<Message> {
    let topic = "kept/gone".into();
    let message = Message::new(topic, QoS::AtMostOnce, true, Properties::EMPTY, payload, 0).into();
    loops.broker().retain(&message);
    Arc::downgrade(&message)
}

#[test]
fn a_replay_that_finds_nothing_keeps_no_message_that_is_gone() {
    let mut loops = with_retained(5_000);
    let gone = retain(&loops, b"x");
    let mut client = loops.connect(0, "client");
    let filters: Vec<String> = (0..20).map(|number| format!("+/+/{number}")).collect();
    client.send_all(&subscribe(&filters, QoS::AtMostOnce));
    loops.answer(&mut client, SUBACK);
    loops.turn(0);
    retain(&loops, b"");
    loops.turn(0);
    assert!(loops.cores[0].unfinished.replays.is_ready(), "it looks for more");
    assert_eq!(gone.strong_count(), 0);
}

#[test]
fn a_subscribe_that_waits_for_the_store_keeps_no_message_that_is_gone() {
    let mut loops = Loops::stored(1);
    let gone = retain(&loops, b"x");
    let mut client = loops.connect_as("client", false);
    client.send_all(&subscribe(&["kept/#".to_owned()], QoS::AtLeastOnce));
    loops.until(|loops| loops.session(0, &client).persistent.as_ref().unwrap().subscribing > 0);
    assert!(gone.strong_count() > 0);
    retain(&loops, b"");
    assert_eq!(gone.strong_count(), 0);
    loops.answer(&mut client, SUBACK);
}
