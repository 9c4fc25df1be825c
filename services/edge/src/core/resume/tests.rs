use std::sync::Arc;
use std::sync::atomic::Ordering;

use millrace_access::entry::{Grant, Method, ProvenIdentity};
use millrace_access::model::{Action, Effect, Rule};
use millrace_access::rules::{Permissions, RuleList};
use millrace_mqtt::QoS;
use millrace_storage::Database;

use crate::authorization::Granted;
use crate::core::ConnectionEnd;
use crate::core::connection::{ClientUser, Paused};
use crate::core::testing::{
    Loops, PUBLISH_QOS_1, SUBACK, TestClient, long_filters, packet, publish, subscribe, text,
};

const TURN_MAX: u64 = 40_000;

fn leave_session(loops: &mut Loops, id: &str, filters: &[String], qos: QoS) {
    let before = loops.cores[0].process.open_connections();
    let mut client = loops.connect_as(id, false);
    loops.send_to(0, &mut client, &subscribe(filters, qos));
    loops.answer(&mut client, SUBACK);
    drop(client);
    loops.until(|loops| {
        let core = &loops.cores[0];
        core.process.open_connections() == before && !core.work.has_removals()
    });
}

/// An offline "session" with the long filters, and a connected publisher.
fn with_offline_session() -> (Loops, Vec<String>, TestClient) {
    let mut loops = Loops::stored(1);
    let filters = long_filters();
    leave_session(&mut loops, "session", &filters, QoS::AtLeastOnce);
    let publisher = loops.connect(0, "publisher");
    (loops, filters, publisher)
}

fn resumes(loops: &Loops) -> bool {
    !loops.cores[0].work.resumptions.is_empty()
}

fn assert_gets_once(loops: &mut Loops, client: &mut TestClient) {
    loops.answer(client, PUBLISH_QOS_1);
    loops.until(|loops| !resumes(loops));
    (0..10).for_each(|_| loops.turn(0));
    assert!(client.next().is_none());
}

#[test]
fn a_session_with_many_long_filters_comes_back_over_several_turns() {
    let mut loops = Loops::stored(1);
    leave_session(&mut loops, "session", &long_filters(), QoS::AtLeastOnce);
    let process = loops.cores[0].process.clone();
    process.core(0).work_max.store(0, Ordering::Relaxed);
    let _client = loops.connect_as("session", false);
    loops.until(|loops| !resumes(loops) && loops.broker().router.subscriptions() == 1_000);
    let work = process.core(0).work_max.load(Ordering::Relaxed);
    assert!(work < TURN_MAX, "a turn did {work} units of work");
}

#[test]
fn a_message_that_is_published_while_a_session_comes_back_is_delivered_once() {
    let (mut loops, filters, mut publisher) = with_offline_session();
    for number in [0, 999] {
        let mut client = loops.connect_as("session", false);
        assert!(resumes(&loops));
        loops.publish(&mut publisher, &filters[number], b"x");
        assert_gets_once(&mut loops, &mut client);
        loops.send_to(0, &mut client, &[0x40, 2, 0, 1]);
        loops.send_to(0, &mut client, &[0xE0, 0]);
        drop(client);
        loops.until(|loops| loops.cores[0].process.open_connections() == 1);
    }
}

#[test]
fn a_session_that_leaves_before_it_is_back_has_its_messages_next_time() {
    let (mut loops, filters, mut publisher) = with_offline_session();
    let client = loops.connect_as("session", false);
    assert!(resumes(&loops));
    let slot = loops.session(0, &client).connection;
    loops.cores[0].end(slot, ConnectionEnd::Kicked, false);
    let mut turns = 0;
    loops.until(|loops| {
        turns += 1;
        !loops.cores[0].work.has_removals()
    });
    assert!(turns < 10, "only what was in the router is removed, in {turns} turns");
    assert_eq!((resumes(&loops), loops.broker().router.subscriptions()), (false, 0));
    loops.publish(&mut publisher, &filters[500], b"x");
    let mut client = loops.connect_as("session", false);
    assert_gets_once(&mut loops, &mut client);
}

#[test]
fn filters_of_sessions_that_come_back_count_for_the_limit_of_a_match() {
    let filters: Vec<String> = (0..1024)
        .map(|number| (0..10).map(|bit| if number >> bit & 1 == 0 { "a/" } else { "+/" }).collect())
        .collect();
    let mut loops = Loops::stored(1);
    leave_session(&mut loops, "one", &filters[..512], QoS::AtMostOnce);
    leave_session(&mut loops, "other", &filters[512..], QoS::AtMostOnce);
    let mut publisher = loops.connect(0, "publisher");
    let refused = |loops: &mut Loops, publisher: &mut TestClient| {
        loops.send_to(0, publisher, &publish(0, &"a/".repeat(10), b"x"));
        loops.publish(publisher, "other", b"x");
        loops.broker().counters[0].publish_matches.get()
    };
    let _one = loops.connect_as("one", false);
    loops.until(|loops| !resumes(loops));
    assert_eq!(refused(&mut loops, &mut publisher), 0);
    let _other = loops.connect_as("other", false);
    loops.until(|loops| !resumes(loops));
    assert_eq!(refused(&mut loops, &mut publisher), 1);
}

fn filters_of(client: &str) -> Vec<String> {
    (0..1_000).map(|number| format!("{client}-{number}/{}", "a/".repeat(120))).collect()
}

#[test]
fn a_session_whose_filters_have_no_room_stays_in_the_store() {
    let mut loops = Loops::stored(1);
    let mut client = loops.connect_as("one", false);
    loops.send_to(0, &mut client, &subscribe(&filters_of("one"), QoS::AtLeastOnce));
    loops.answer(&mut client, SUBACK);
    let most = loops.broker().router.bytes() as u64 / 2 * 3;

    let mut loops = Loops::stored_with(|limits| limits.filter_memory_per_broker_max = most);
    for id in ["one", "other"] {
        leave_session(&mut loops, id, &filters_of(id), QoS::AtLeastOnce);
    }
    let one = loops.connect_as("one", false);
    loops.until(|loops| !resumes(loops));
    let other = loops.connect_as("other", false);
    loops.until(|loops| loops.cores[0].process.open_connections() == 1 || !resumes(loops));
    let broker = loops.broker();
    let bytes = broker.router.bytes() as u64;
    assert!(bytes < most + most / 10, "{bytes} bytes of {most}");
    drop((one, other));
    loops
        .until(|loops| loops.cores[0].process.open_connections() == 0 && !loops.cores[0].work.has_removals());
    assert_eq!(loops.cores[0].counters().limit_broker_filters.get(), 1);
    let _other = loops.connect_as("other", false);
    loops.until(|loops| !resumes(loops));
    assert_eq!(broker.router.subscriptions(), 1_000);
}

fn rule(effect: Effect, filter: &str, qos_max: QoS) -> Rule {
    Rule { qos_max: qos_max as u8, ..Rule::new(effect, Action::Subscribe, filter) }
}

/// Gives a client other rules, and returns its connection, whose subscriptions have not been checked by them.
fn set_rules(loops: &mut Loops, client: &TestClient, rules: &[Rule]) -> u32 {
    let permissions = Permissions::new([Arc::new(RuleList::compile(rules).unwrap())]);
    let slot = loops.session(0, client).connection;
    let identity = ProvenIdentity::new(Method::Anonymous, None);
    let grant = Grant { permissions, until_ms: None };
    let granted = Granted { identity: identity.into(), grant, changes: 0, anew: None };
    loops.cores[0].connections[slot as usize].who = ClientUser::Granted(Some(Box::new(granted)));
    slot
}

#[test]
fn a_filter_that_rules_lower_while_its_session_comes_back_leaves_the_router_with_the_session() {
    let mut loops = Loops::stored(1);
    let filters = &long_filters()[..200];
    leave_session(&mut loops, "session", filters, QoS::AtLeastOnce);
    let lower: Vec<Rule> = [(&*filters[199], QoS::AtMostOnce), ("#", QoS::ExactlyOnce)]
        .map(|(filter, qos)| rule(Effect::Allow, filter, qos))
        .into();
    let client = loops.connect_as("session", false);
    let slot = set_rules(&mut loops, &client, &lower);
    assert!(resumes(&loops) && loops.broker().router.subscriptions() < 200);
    loops.cores[0].revoke(slot);
    loops.cores[0].end(slot, ConnectionEnd::Kicked, false);
    drop(client);
    loops.until(|loops| !loops.cores[0].work.has_removals());
    assert_eq!(loops.broker().router.subscriptions(), 0);

    let client = loops.connect_as("session", false);
    let slot = set_rules(&mut loops, &client, &lower);
    loops.cores[0].revoke(slot);
    loops.until(|loops| !resumes(loops) && loops.connection(0, &client).paused == Paused::No);
    let qos_of = |filter: &str| loops.session(0, &client).session.subscription(filter).unwrap().options.qos;
    assert_eq!([198, 199].map(|number| qos_of(&filters[number])), [QoS::AtLeastOnce, QoS::AtMostOnce]);
    assert_eq!(loops.broker().router.subscriptions(), 200);
}

#[test]
fn a_filter_that_only_former_rules_forbade_stays_when_its_session_is_back() {
    let mut loops = Loops::stored(1);
    leave_session(&mut loops, "session", &long_filters()[..200], QoS::AtLeastOnce);
    let client = loops.connect_as("session", false);
    let many = (0..20).map(|number| format!("other/{number}")).chain(["#".to_owned()]);
    let forbid: Vec<Rule> = many.map(|filter| rule(Effect::Deny, &filter, QoS::AtMostOnce)).collect();
    set_rules(&mut loops, &client, &forbid);
    loops.until(|loops| loops.broker().router.subscriptions() == 200);
    assert!(resumes(&loops), "the check has begun and has not ended");
    let slot = set_rules(&mut loops, &client, &[rule(Effect::Allow, "#", QoS::ExactlyOnce)]);
    loops.cores[0].revoke(slot);
    loops.until(|loops| !resumes(loops) && loops.connection(0, &client).paused == Paused::No);
    assert_eq!(loops.session(0, &client).session.subscriptions_len(), 200);
    assert_eq!(loops.broker().router.subscriptions(), 200);
}

#[test]
fn a_session_that_comes_back_waits_for_filters_that_are_being_removed() {
    let filters_of = |client: &str| filters_of(client).split_off(500);
    let leave = |loops: &mut Loops| {
        for (id, filters) in [("stays", "a"), ("leaves", "a"), ("leaves, too", "b"), ("comes", "c")] {
            leave_session(loops, id, &filters_of(filters), QoS::AtLeastOnce);
        }
    };
    let come = |loops: &mut Loops| {
        ["stays", "leaves", "leaves, too"].map(|id| {
            let client = loops.connect_as(id, false);
            loops.until(|loops| !resumes(loops));
            client
        })
    };
    let mut loops = Loops::stored(1);
    leave(&mut loops);
    let clients = come(&mut loops);
    let most = loops.broker().router.bytes() as u64;
    drop(clients);

    let mut loops = Loops::stored_with(|limits| limits.filter_memory_per_broker_max = most);
    leave(&mut loops);
    let [_stays, leaves, leaves_too] = come(&mut loops);
    // The parts of both are removed in turn, and the first ones leave the room to the session that stays.
    for client in [&leaves, &leaves_too] {
        let slot = loops.session(0, client).connection;
        loops.cores[0].end(slot, ConnectionEnd::Kicked, false);
    }
    let _comes = loops.connect_as("comes", false);
    assert!(resumes(&loops) && loops.cores[0].work.has_removals());
    loops.until(|loops| !resumes(loops));
    assert_eq!(loops.cores[0].counters().limit_broker_filters.get(), 0);
    loops.until(|loops| !loops.cores[0].work.has_removals());
    assert_eq!(loops.broker().router.subscriptions(), 1_000);
}

/// A session of 5.0 that reads all messages, and compares them with so many filters of QoS 0 that have an identifier.
fn with_identified(loops: &mut Loops, filters: usize, levels: usize) -> TestClient {
    let mut client = loops.connect_v5("session");
    client.send_all(&packet(0x82, b"\x00\x01\x00\x00\x01#\x02"));
    loops.answer(&mut client, SUBACK);
    let filters = (0..filters).flat_map(|number| [text(&identified(levels, number)), vec![0]].concat());
    client.send_all(&packet(0x82, &[0, 1, 2, 0x0B, 9].into_iter().chain(filters).collect::<Vec<u8>>()));
    loops.answer(&mut client, SUBACK);
    client
}

fn identified(levels: usize, number: usize) -> String {
    format!("{}{number}", "a/".repeat(levels))
}

/// A store as after a crash: the session has `count` messages that go before one in flight.
fn crashed(filters: usize, levels: usize, count: usize) -> Database {
    let database = Database::memory();
    let mut loops = Loops::stored_in(database.clone());
    let mut client = with_identified(&mut loops, filters, levels);
    let mut publisher = loops.connect(0, "publisher");
    (0..count).for_each(|_| loops.publish(&mut publisher, &identified(levels, 7), b"x"));
    publish_exactly_once(&mut loops, &mut publisher, "last");
    (0..count).for_each(|_| drop(loops.answer(&mut client, PUBLISH_QOS_1)));
    loops.answer(&mut client, 0x34);
    database
}

fn publish_exactly_once(loops: &mut Loops, publisher: &mut TestClient, topic: &str) {
    publisher.send(0x34, &[&text(topic), [0, 1].as_slice(), b"last"].concat());
    loops.answer(publisher, 0x50);
    publisher.send(0x62, &[0, 1]);
    loops.answer(publisher, 0x70);
}

/// The messages that a client gets up to the last one, and the most work of a turn.
fn received_again(loops: &mut Loops, count: usize) -> (Vec<(u8, Vec<u8>)>, u64) {
    let process = loops.cores[0].process.clone();
    process.core(0).work_max.store(0, Ordering::Relaxed);
    let (mut client, mut all) = (loops.connect_v5("session"), Vec::new());
    loops.until(|_| {
        all.extend(std::iter::from_fn(|| client.next()));
        all.len() >= count
    });
    (all, process.core(0).work_max.load(Ordering::Relaxed))
}

#[test]
fn messages_in_flight_are_not_compared_with_the_filters_of_a_session_that_comes_back() {
    const COUNT: usize = 200;
    let mut loops = Loops::stored(1);
    let mut client = with_identified(&mut loops, 300, 20);
    let mut publisher = loops.connect(0, "publisher");
    (0..COUNT).for_each(|_| loops.publish(&mut publisher, &identified(20, 7), b"x"));
    (0..COUNT).for_each(|_| drop(loops.answer(&mut client, PUBLISH_QOS_1)));
    drop(client);
    loops.until(|loops| loops.cores[0].process.open_connections() == 1);
    let (_, work) = received_again(&mut loops, COUNT);
    assert!(work < TURN_MAX, "a turn did {work} units of work");
}

#[test]
fn messages_that_go_between_those_in_flight_are_compared_with_many_filters_over_several_turns() {
    const COUNT: usize = 100;
    let mut loops = Loops::stored_in(crashed(300, 20, COUNT));
    let (all, work) = received_again(&mut loops, COUNT + 1);
    assert!(work < TURN_MAX, "a turn did {work} units of work");
    let (last, before) = all.split_last().unwrap();
    assert_eq!((last.0 & 0x36, before.len()), (0x34, COUNT));
    let identifier = [2, 0x0B, 9];
    let is_complete = |(kind, body): &(u8, Vec<u8>)| {
        kind & 0x36 == PUBLISH_QOS_1 && body.windows(3).any(|bytes| bytes == identifier)
    };
    assert!(before.iter().all(is_complete));
}

#[test]
fn mail_of_others_is_read_while_a_session_is_compared_with_many_filters() {
    // Each message costs more than a turn has for mail.
    let mut loops = Loops::stored_in(crashed(999, 120, 100));
    let mut publisher = loops.connect(0, "publisher");
    loops.subscribe(&mut publisher, "other", QoS::AtLeastOnce);
    let mut client = loops.dial_v5("session");
    loops.until(|loops| loops.cores[0].mail.has_more());
    loops.publish(&mut publisher, "t", b"x");
    assert!(client.next().is_none() && loops.cores[0].mail.has_more());
    loops.answer(&mut client, 0x20);
}

#[test]
fn messages_that_wait_in_stored_sessions_count_and_without_room_they_are_read_later() {
    const SESSIONS: usize = 10;
    const MESSAGES: usize = 60;
    const BYTES: usize = 20_000;
    const BUDGET: u64 = 400_000;
    const OWN: u64 = 64 * 1024 + 2 * BYTES as u64;
    let mut loops = Loops::stored_with(|limits| limits.queue_memory_per_broker_max = BUDGET);
    let mut clients: Vec<TestClient> =
        (0..SESSIONS).map(|number| loops.connect_as(&format!("session-{number}"), false)).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        loops.subscribe(client, &format!("q/{number}"), QoS::AtLeastOnce);
    }
    let mut publisher = loops.connect(0, "publisher");
    for number in 0..MESSAGES {
        let payload = [&[number as u8], [b'x'; BYTES - 1].as_slice()].concat();
        (0..SESSIONS).for_each(|of| loops.publish(&mut publisher, &format!("q/{of}"), &payload));
    }
    let waiting: u64 = clients.iter().map(|client| loops.session(0, client).session.waiting_bytes()).sum();
    assert!(waiting < BUDGET + SESSIONS as u64 * OWN, "{waiting} bytes wait");
    let used = loops.broker().queues().unwrap().used();
    assert!(used <= BUDGET, "{used} bytes count");
    for client in &mut clients {
        for number in 0..MESSAGES {
            let body = loops.answer(client, PUBLISH_QOS_1);
            assert_eq!(usize::from(body[7]), number, "in order, and none is missing");
            client.send(0x40, &body[5..7]);
        }
    }
    (0..100).for_each(|_| loops.turn(0));
    assert!(clients.iter_mut().all(|client| client.next().is_none()));
    assert_eq!(loops.broker().queues().unwrap().used(), 0);
}
