use std::sync::Arc;
use std::sync::atomic::Ordering;

use millrace_layers::index::IndexedStream;
use millrace_mqtt::{Properties, QoS};
use millrace_session::Message;

use crate::core::testing::{Loops, SUBACK, TestClient, publish, subscribe};
use crate::core::{ConnectionEnd, work};
use crate::mailbox::Mail;

const GROUPS: usize = 200;
const MESSAGES: usize = 50;
const LETTERS: usize = GROUPS * MESSAGES;
const PINGREQ: [u8; 2] = [0xC0, 0];

/// A member of many groups on loop 1, and the work of each turn of loop 0 that publishes to them.
fn published() -> (Loops, TestClient, Vec<u64>) {
    let mut loops = Loops::start(2, |_| {});
    let mut member = loops.connect(1, "member");
    member.send_all(&subscribe(&filters_of_groups(), QoS::AtMostOnce));
    loops.answer(&mut member, SUBACK);
    let mut publisher = loops.connect(0, "publisher");
    publisher.send_all(&[publish(0, "t", b"x").repeat(MESSAGES), PINGREQ.to_vec()].concat());
    let mut turns = Vec::new();
    while publisher.next().is_none() {
        loops.turn(0);
        turns.push(loops.cores[0].work.counted());
    }
    (loops, member, turns)
}

#[test]
fn a_message_for_a_member_on_another_loop_counts_on_both() {
    const COPIES: u64 = LETTERS as u64 * work::SINGLE_COPY;
    // Reading stops at the end of a turn's budget, and behind the publish that exceeds it.
    const TURN_MAX: u64 = 2 * work::TURN;
    let (mut loops, mut member, turns) = published();
    assert!(turns.iter().sum::<u64>() >= COPIES, "{turns:?}");
    assert!(turns.iter().all(|work| *work < TURN_MAX), "{turns:?}");
    let (mut turns, mut received) = (Vec::new(), 0);
    while received < LETTERS {
        loops.turn(1);
        turns.push(loops.cores[1].work.counted());
        received += std::iter::from_fn(|| member.next()).count();
    }
    assert!(turns.iter().sum::<u64>() >= COPIES, "{turns:?}");
    assert!(turns.iter().all(|work| *work < 2 * TURN_MAX), "{turns:?}");
}

#[test]
fn a_small_message_for_a_member_counts_what_its_letter_takes() {
    let (loops, _member, _) = published();
    let bytes = loops.cores[0].process.mailboxes[1].bytes();
    assert!(bytes >= LETTERS * size_of::<Mail>(), "{bytes} bytes for {LETTERS} letters");
}

fn filters_of_groups() -> Vec<String> {
    (0..GROUPS).map(|group| format!("$share/g{group}/t")).collect()
}

/// Members of all groups with many other filters.
fn members(loops: &mut Loops, count: usize) -> Vec<TestClient> {
    let others = (0..2_000).map(|other| format!("$share/x/{other}"));
    let filters: Vec<String> = filters_of_groups().into_iter().chain(others).collect();
    let join = |number| {
        let mut member = loops.connect(0, &format!("member{number}"));
        loops.send_to(0, &mut member, &subscribe(&filters, QoS::AtMostOnce));
        loops.answer(&mut member, SUBACK);
        member
    };
    (0..count).map(join).collect()
}

/// Most of their filters are still to be removed afterwards.
fn end(loops: &mut Loops, members: &[TestClient]) {
    for member in members {
        let slot = loops.session(0, member).connection;
        loops.cores[0].end(slot, ConnectionEnd::Lost, false);
    }
}

/// The groups that a message has here, and the work of giving it to their members.
fn route(loops: &mut Loops) -> (usize, u64) {
    let broker = loops.broker();
    let core = &mut loops.cores[0];
    let message = Message::new("t".into(), QoS::AtMostOnce, false, Properties::EMPTY, b"x", 0);
    let routes = core.routes_to(&broker, "t");
    let before = core.work.spent();
    core.route(&routes, &Arc::new(message), None);
    (routes.matched.groups.len(), core.work.spent() - before)
}

#[test]
fn a_message_counts_for_groups_whose_only_members_have_ended() {
    let mut loops = Loops::start(1, |_| {});
    let members = members(&mut loops, 1);
    end(&mut loops, &members);
    let (groups, spent) = route(&mut loops);
    assert!(groups > GROUPS / 2, "{groups} groups");
    assert!(spent >= groups as u64, "{spent} units for {groups} groups");
}

#[test]
fn a_message_to_groups_with_many_ended_members_takes_several_turns_and_reaches_the_others() {
    let mut loops = Loops::start(1, |_| {});
    let members = members(&mut loops, 40);
    let mut member = loops.connect(0, "other");
    member.send_all(&subscribe(&filters_of_groups(), QoS::AtMostOnce));
    loops.answer(&mut member, SUBACK);
    end(&mut loops, &members);
    let (groups, spent) = route(&mut loops);
    assert_eq!(groups, GROUPS);
    let step = work::SLICE..=work::SLICE + 100;
    assert!(step.contains(&spent), "{spent} units in one step");
    let mut received = 0;
    loops.until(|_| {
        received += std::iter::from_fn(|| member.next()).count();
        received >= GROUPS
    });
    assert_eq!(received, GROUPS);
}

#[test]
fn many_shared_subscriptions_join_their_groups_over_several_turns() {
    const TURN_MAX: u64 = 40_000;
    let mut loops = Loops::start(1, |_| {});
    let stream = IndexedStream { group: "g".into(), stream: 7 };
    loops.broker().streams.set("other", &[stream], &[1]);
    let mut member = loops.connect_as("member", true);
    let filters: Vec<String> = (0..5_000).map(|number| format!("$share/x/{number}")).collect();
    let process = loops.cores[0].process.clone();
    process.core(0).work_max.store(0, Ordering::Relaxed);
    loops.send_to(0, &mut member, &subscribe(&filters, QoS::AtMostOnce));
    loops.answer(&mut member, SUBACK);
    let work = process.core(0).work_max.load(Ordering::Relaxed);
    assert!(work < TURN_MAX, "a turn did {work} units of work");
}
