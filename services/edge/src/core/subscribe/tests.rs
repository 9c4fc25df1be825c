use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use millrace_layers::Position;
use millrace_mqtt::{PacketId, QoS, ReasonCode, SubscribeOptions};
use millrace_session::ClientSubscription;
use millrace_storage::{Embedded, Options};

use crate::broker::Broker;
use crate::core::ConnectionEnd;
use crate::core::connection::Paused;
use crate::core::feed::{Feed, ReadState, Way};
use crate::core::testing::{
    Loops, PUBLISH_QOS_1, SUBACK, TestClient, long_filters, publish, subscribe, unsubscribe,
};
use crate::jobs::{self, PendingSubscribe, StoredPage};

const TURN_MAX: u64 = 40_000;
/// Filters of [`long_filters`] that a turn may remove.
const REMOVED_MAX: usize = 100;
const FAILED: u8 = 0x80;
const UNSUBACK: u8 = 0xB0;
const PINGREQ: &[u8] = b"\xC0\0";
const PINGRESP: u8 = 0xD0;
const DUP: u8 = 0x08;

/// A publisher, and a client whose SUBSCRIBE with these filters the store has answered: a part of them is in the router.
fn with_begun_answer(filters: &[String]) -> (Loops, TestClient, TestClient) {
    let mut loops = Loops::stored(1);
    let publisher = loops.connect(0, "publisher");
    let mut client = loops.connect_as("session", false);
    loops.send_to(0, &mut client, &subscribe(filters, QoS::AtLeastOnce));
    loops.until(|loops| !loops.cores[0].work.stored_answers.is_empty());
    (loops, publisher, client)
}

#[test]
fn the_stores_answer_for_many_long_filters_is_carried_out_over_several_turns() {
    let mut loops = Loops::stored(1);
    let mut client = loops.connect_as("session", false);
    let process = loops.cores[0].process.clone();
    process.core(0).work_max.store(0, Ordering::Relaxed);
    loops.send_to(0, &mut client, &subscribe(&long_filters(), QoS::AtLeastOnce));
    loops.answer(&mut client, SUBACK);
    let work = process.core(0).work_max.load(Ordering::Relaxed);
    assert!(work < TURN_MAX, "a turn did {work} units of work");
}

#[test]
fn messages_that_are_published_before_the_suback_are_delivered_once() {
    let filters = long_filters();
    for number in [0, 999] {
        let (mut loops, mut publisher, mut client) = with_begun_answer(&filters);
        loops.publish(&mut publisher, &filters[number], b"x");
        loops.answer(&mut client, SUBACK);
        loops.answer(&mut client, PUBLISH_QOS_1);
        (0..10).for_each(|_| loops.turn(0));
        assert!(client.next().is_none());
    }
}

#[test]
fn a_session_that_leaves_before_its_suback_has_its_messages_next_time() {
    let filters = long_filters();
    let (mut loops, mut publisher, client) = with_begun_answer(&filters);
    let slot = loops.session(0, &client).connection;
    loops.cores[0].end(slot, ConnectionEnd::Kicked, false);
    loops.until(|loops| !loops.cores[0].work.has_removals());
    assert!(loops.cores[0].work.stored_answers.is_empty());
    assert_eq!(loops.broker().router.subscriptions(), 0);
    loops.publish(&mut publisher, &filters[500], b"x");
    let mut client = loops.connect_as("session", false);
    loops.answer(&mut client, PUBLISH_QOS_1);
}

#[test]
fn a_page_that_comes_before_the_suback_does_not_pass_messages_of_the_new_filters() {
    let filters = long_filters();
    let (mut loops, mut publisher, mut client) = with_begun_answer(&filters);
    let slot = loops.session(0, &client).connection;
    let core = &mut loops.cores[0];
    let session = core.connections[slot as usize].session;
    let target = core.target_of(session);
    let persistent = core.sessions[session as usize].persistent.as_mut().unwrap();
    // As a session that has asked for a page of its backlog.
    persistent.feed = Feed::Reading(ReadState { asked: true, ..ReadState::new(Position::MIN, Way::Far) });
    let version = persistent.page_sources.version;
    loops.publish(&mut publisher, &filters[999], b"x");
    assert!(!loops.cores[0].work.stored_answers.is_empty(), "the page would come too late");
    let page = StoredPage { through: Position::MAX, ..StoredPage::default() };
    loops.cores[0].page(target, version, Some(page));
    loops.answer(&mut client, SUBACK);
    loops.answer(&mut client, PUBLISH_QOS_1);
}

#[test]
fn a_message_that_another_loop_routed_before_the_subscribe_is_read_from_the_store() {
    let filters = long_filters();
    for reconnects in [false, true] {
        let mut loops = Loops::stored(2);
        let id = loops.id_of(0, "session");
        let mut client = loops.connect_as(&id, false);
        let mut publisher = loops.connect(1, "publisher");
        // Without it, the store would not get the message.
        let mut other = loops.connect_as("other", false);
        loops.subscribe(&mut other, "#", QoS::AtLeastOnce);
        publisher.send_all(&publish(1, &filters[0], b"x"));
        while loops.cores[1].store_jobs.queue.is_empty() {
            loops.serve(1);
        }
        loops.send_to(0, &mut client, &subscribe(&filters, QoS::AtLeastOnce));
        while loops.cores[0].work.stored_answers.is_empty() {
            loops.turn(0);
        }
        while publisher.next().is_none() {
            loops.turn(1);
        }
        loops.answer(&mut client, SUBACK);
        if reconnects {
            let slot = loops.session(0, &client).connection;
            loops.cores[0].end(slot, ConnectionEnd::Kicked, false);
            loops.until(|loops| !loops.cores[0].work.has_removals());
            client = loops.connect_as(&id, false);
        }
        let mut kind = None;
        loops.until(|_| {
            kind = client.next().map(|(kind, _)| kind & !DUP);
            kind.is_some()
        });
        assert_eq!(kind, Some(PUBLISH_QOS_1));
    }
}

#[test]
fn messages_held_during_a_subscribe_whose_filters_are_all_refused_are_delivered() {
    let mut loops = Loops::stored(1);
    let mut publisher = loops.connect(0, "publisher");
    let mut client = loops.connect_as("session", false);
    loops.subscribe(&mut client, "held", QoS::AtLeastOnce);
    // A stored filter has 1,024 bytes at most.
    let refused: Vec<String> = (0..900).map(|number| format!("{}{number}", "a/".repeat(512))).collect();
    loops.send_to(0, &mut client, &subscribe(&refused, QoS::AtLeastOnce));
    let is_subscribing = |loops: &mut Loops, client: &TestClient| {
        loops.session(0, client).persistent.as_ref().unwrap().subscribing > 0
    };
    loops.until(|loops| is_subscribing(loops, &client));
    loops.send_to(0, &mut publisher, &publish(1, "held", b"x"));
    loops.turn(0);
    assert!(is_subscribing(&mut loops, &client), "the message is not held");
    loops.answer(&mut client, PUBLISH_QOS_1);
    let reasons = loops.answer(&mut client, SUBACK);
    assert!(reasons[2..].iter().all(|reason| *reason >= FAILED));
}

/// Expects the SUBACK of a refused SUBSCRIBE, whose filters leave the router over several turns.
fn expect_refusal(loops: &mut Loops, client: &mut TestClient) {
    let broker = loops.broker();
    let (mut left, mut most, mut suback) = (broker.router.subscriptions(), 0, None);
    assert!(left > long_filters().len() - REMOVED_MAX, "{left} filters are left");
    loops.until(|_| {
        let now = broker.router.subscriptions();
        most = most.max(left - now);
        left = now;
        suback = client.next();
        suback.is_some()
    });
    let (kind, body) = suback.unwrap();
    assert_eq!(kind, SUBACK);
    assert!(body[2..].iter().all(|reason| *reason == FAILED), "{body:?}");
    assert_eq!(left, 0);
    assert!((1..=REMOVED_MAX).contains(&most), "a turn removed {most} filters");
    let work = loops.cores[0].process.core(0).work_max.load(Ordering::Relaxed);
    assert!(work < TURN_MAX, "a turn did {work} units of work");
}

#[test]
fn a_subscribe_that_a_full_disk_refuses_is_undone_over_several_turns() {
    let folder = tempfile::tempdir().unwrap();
    let free = Arc::new(AtomicU64::new(1 << 40));
    let asked = free.clone();
    let free_bytes = Arc::new(move |_: &_| Ok(asked.load(Ordering::SeqCst)));
    let options = Options { disk_reserve_bytes: 1 << 20, free_bytes, ..Options::default() };
    let store = Embedded::open(&folder, options).unwrap();
    let mut loops = Loops::stored_in(store.database());
    let mut client = loops.connect_as("session", false);
    free.store(0, Ordering::SeqCst);
    loops.send_to(0, &mut client, &subscribe(&long_filters(), QoS::AtLeastOnce));
    loops.until(|loops| !loops.cores[0].work.stored_answers.is_empty());
    expect_refusal(&mut loops, &mut client);
}

/// Once the store has the first of these filters of a client, its disk is full until `has_room`, so that it refuses the others.
fn with_half_stored_subscribe(filters: &[String]) -> (Loops, TestClient, Arc<AtomicBool>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let (has_room, broker) = (Arc::new(AtomicBool::new(false)), Arc::new(OnceLock::<Arc<Broker>>::new()));
    let (room, of, first) = (has_room.clone(), broker.clone(), filters[0].clone());
    let free_bytes = Arc::new(move |_: &_| {
        let is_full = of.get().is_some_and(|broker| is_stored(broker, &first));
        Ok(if is_full && !room.load(Ordering::SeqCst) { 0 } else { 1 << 40 })
    });
    let options = Options { disk_reserve_bytes: 1 << 20, free_bytes, ..Options::default() };
    let store = Embedded::open(&folder, options).unwrap();
    let mut loops = Loops::stored_in(store.database());
    let (mut client, mut other) = (loops.connect_as("session", false), loops.connect_as("other", false));
    assert!(broker.set(loops.broker()).is_ok());
    loops.send_to(0, &mut client, &subscribe(filters, QoS::AtLeastOnce));
    let reasons = loops.answer(&mut client, SUBACK);
    assert!(reasons[2..].iter().all(|reason| *reason == FAILED), "{reasons:?}");
    // The store refuses this after the undo.
    loops.send_to(0, &mut other, &subscribe(&filters[..1], QoS::AtLeastOnce));
    assert_eq!(loops.answer(&mut other, SUBACK)[2], FAILED);
    assert!(is_stored(&loops.broker(), &filters[0]));
    (loops, client, has_room, folder)
}

fn is_stored(broker: &Broker, filter: &str) -> bool {
    !broker.streams.matches(filter).streams.is_empty()
}

#[test]
fn the_store_ends_the_subscriptions_of_a_refused_subscribe_once_it_has_room() {
    let filters: Vec<String> = (0..1_000).map(|number| format!("f/{number}")).collect();
    for reconnects in [true, false] {
        let (mut loops, mut client, has_room, _folder) = with_half_stored_subscribe(&filters);
        let broker = loops.broker();
        has_room.store(true, Ordering::SeqCst);
        if reconnects {
            let slot = loops.session(0, &client).connection;
            loops.cores[0].end(slot, ConnectionEnd::Kicked, false);
            loops.until(|loops| !loops.cores[0].work.has_removals());
            client = loops.connect_as("session", false);
            assert!(loops.session(0, &client).session.subscription(&filters[0]).is_none());
        }
        loops.until(|_| !filters.iter().any(|filter| is_stored(&broker, filter)));
    }
}

#[test]
fn a_filter_that_is_subscribed_again_is_not_ended_for_an_earlier_refusal() {
    let filters: Vec<String> = (0..1_000).map(|number| format!("f/{number}")).collect();
    let (mut loops, mut client, has_room, _folder) = with_half_stored_subscribe(&filters);
    let broker = loops.broker();
    has_room.store(true, Ordering::SeqCst);
    loops.subscribe(&mut client, &filters[1], QoS::AtLeastOnce);
    loops.until(|_| !is_stored(&broker, &filters[0]) && !is_stored(&broker, &filters[2]));
    assert!(is_stored(&broker, &filters[1]));
    let mut publisher = loops.connect(0, "publisher");
    loops.publish(&mut publisher, &filters[1], b"x");
    loops.answer(&mut client, PUBLISH_QOS_1);
}

#[test]
fn a_refused_subscribe_of_a_session_in_memory_is_undone_over_several_turns() {
    let filters = long_filters();
    let mut loops = Loops::start(1, |_| {});
    let mut client = loops.connect_as("client", true);
    loops.send_to(0, &mut client, &subscribe(&filters, QoS::AtLeastOnce));
    loops.answer(&mut client, SUBACK);
    let session = loops.connection(0, &client).session;
    let core = &mut loops.cores[0];
    let target = core.target_of(session);
    let local = &mut core.sessions[session as usize];
    // As a session of a pod whose store cannot read retained messages.
    let new = local.new_subscriptions.get_or_insert_default();
    let number = new.unanswered_by_store.begin();
    filters.iter().for_each(|filter| new.unanswered_by_store.add(filter, None));
    let options = SubscribeOptions { qos: QoS::AtLeastOnce, ..SubscribeOptions::default() };
    let granted = ClientSubscription { options, identifier: 0 };
    let pending = PendingSubscribe {
        number,
        reasons: filters.iter().map(|_| ReasonCode(1)).collect(),
        requested_qos: filters.iter().map(|_| options.qos).collect(),
        places: (0..).zip(&filters).map(|(place, _)| (place, options.qos)).collect(),
        in_memory: filters.iter().map(|filter| (filter.as_str().into(), granted)).collect(),
        is_refused: true,
        ..PendingSubscribe::new(PacketId::new(2))
    };
    let subscribe = jobs::SubscribeWrite::new(local.key(), target, Vec::new(), Vec::new(), pending);
    core.subscribed(subscribe, &[]);
    expect_refusal(&mut loops, &mut client);
}

#[test]
fn no_page_is_taken_while_a_former_subscription_is_written_back() {
    let mut loops = Loops::stored(1);
    let mut client = loops.connect_as("session", false);
    loops.subscribe(&mut client, "a", QoS::AtLeastOnce);
    let session = loops.connection(0, &client).session;
    let core = &mut loops.cores[0];
    let target = core.target_of(session);
    let local = &mut core.sessions[session as usize];
    let (key, former) = (local.key(), *local.session.subscription("a").unwrap());
    core.write_back(key, target, vec![("a".into(), Some(former))]);
    assert!(loops.session(0, &client).waits_for_subscribe(&loops.cores[0].work));
    loops.until(|loops| !loops.session(0, &client).waits_for_subscribe(&loops.cores[0].work));
}

#[test]
fn a_client_that_changes_filters_while_the_store_is_full_is_read_again_once_there_is_room() {
    const WAITING: usize = 1 << 30;
    let short = ["a".to_owned()];
    let changes = [
        (subscribe(&short, QoS::AtLeastOnce), SUBACK),
        (unsubscribe(&short), UNSUBACK),
        (subscribe(&long_filters(), QoS::AtLeastOnce), SUBACK),
    ];
    for (change, answer) in changes {
        let mut loops = Loops::stored(1);
        let mut client = loops.connect_as("session", false);
        let broker = loops.broker();
        // As if other jobs of the broker waited.
        broker.unstored_bytes.fetch_add(WAITING, Ordering::Relaxed);
        loops.send_to(0, &mut client, &change);
        loops.answer(&mut client, answer);
        client.send_all(PINGREQ);
        (0..1_000).for_each(|_| loops.turn(0));
        assert!(client.next().is_none() && loops.connection(0, &client).paused == Paused::ForRoom);
        broker.unstored_bytes.fetch_sub(WAITING, Ordering::Relaxed);
        loops.answer(&mut client, PINGRESP);
    }
}

#[test]
fn a_client_is_not_read_while_the_store_is_full_although_each_subscribe_uses_up_its_share_of_a_turn() {
    const PACKETS: usize = 60;
    const STORE_BYTES_MAX: usize = 64 * 1024;
    let mut loops = Loops::stored_with(|limits| limits.store_bytes_max = STORE_BYTES_MAX as u32);
    let mut client = loops.connect_as("session", false);
    // As many as one turn adds.
    let filters: Vec<String> = (100..480).map(|number| format!("f/{number}")).collect();
    let (broker, packet) = (loops.broker(), subscribe(&filters, QoS::AtLeastOnce));
    client.send_all(&packet.repeat(PACKETS));
    let (mut most, mut answers) = (0, 0);
    loops.until(|_| {
        most = most.max(broker.unstored_bytes.load(Ordering::Relaxed));
        answers += std::iter::from_fn(|| client.next()).count();
        answers == PACKETS
    });
    assert!(most > STORE_BYTES_MAX, "the store was never full");
    assert!(most < STORE_BYTES_MAX + 1_000 * jobs::FILTER_BYTES, "{most} bytes waited");
}

#[test]
fn an_unsubscribe_ends_a_filter_for_earlier_subscribes_with_the_part_that_has_it() {
    let filters = long_filters();
    let mut loops = Loops::stored(1);
    let mut client = loops.connect_as("session", false);
    loops.send_to(0, &mut client, &subscribe(&filters, QoS::AtLeastOnce));
    loops.answer(&mut client, SUBACK);
    let session = loops.connection(0, &client).session as usize;
    let unanswered = loops.cores[0].sessions[session].unanswered_by_store().unwrap();
    let number = unanswered.begin();
    unanswered.add(&filters[0], None);
    loops.send_to(0, &mut client, &unsubscribe(&filters));
    loops.until(|loops| !loops.cores[0].work.tasks.is_empty());
    loops.turn(0);
    let unanswered = loops.cores[0].sessions[session].unanswered_by_store().unwrap();
    assert!(unanswered.remove(number, &filters[0], None).goes_back.is_none());
}

#[test]
fn a_session_in_memory_gets_the_retained_messages_of_a_subscribe_that_was_cut_off() {
    let filters = long_filters();
    let mut loops = Loops::start(1, |_| {});
    let mut publisher = loops.connect(0, "publisher");
    let mut retained = publish(1, &filters[0], b"x");
    retained[0] |= 1;
    publisher.send_all(&retained);
    loops.answer(&mut publisher, 0x40);
    let mut client = loops.connect_as("session", false);
    loops.send_to(0, &mut client, &subscribe(&filters, QoS::AtLeastOnce));
    loops.until(|loops| loops.session(0, &client).session.subscription(&filters[0]).is_some());
    assert!(!loops.cores[0].work.tasks.is_empty(), "it had only one part");
    let slot = loops.session(0, &client).connection;
    loops.cores[0].end(slot, ConnectionEnd::Kicked, false);
    let mut client = loops.connect_as("session", false);
    assert!(loops.answer(&mut client, PUBLISH_QOS_1 | 1).ends_with(b"x"));
}

#[test]
fn a_client_that_pipelines_subscribes_queues_no_more_for_the_store_than_its_share_and_one_turn() {
    const PACKETS: usize = 300;
    const STORE_BYTES_MAX: usize = 64 * 1024;
    let mut loops = Loops::stored_with(|limits| limits.store_bytes_max = STORE_BYTES_MAX as u32);
    let mut client = loops.connect_as("session", false);
    let filters: Vec<String> = (0..100).map(|number| format!("f/{number}")).collect();
    let (broker, packet) = (loops.broker(), subscribe(&filters, QoS::AtLeastOnce));
    let (mut most, mut answers) = (0, 0);
    let mut look = |client: &mut TestClient| {
        most = most.max(broker.unstored_bytes.load(Ordering::Relaxed));
        answers += std::iter::from_fn(|| client.next()).count();
        answers
    };
    for _ in 0..PACKETS {
        loops.send_to(0, &mut client, &packet);
        look(&mut client);
    }
    loops.until(|_| look(&mut client) == PACKETS);
    assert!(most > STORE_BYTES_MAX, "the store was never full");
    assert!(most < STORE_BYTES_MAX + 1_000 * jobs::FILTER_BYTES, "{most} bytes waited");
}
