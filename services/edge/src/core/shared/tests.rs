use millrace_mqtt::QoS;

use crate::core::testing::{Loops, SUBACK, TestClient, publish, subscribe};
use crate::core::work;
use crate::mailbox::Mail;

const GROUPS: usize = 200;
const MESSAGES: usize = 50;
const LETTERS: usize = GROUPS * MESSAGES;
const PINGREQ: [u8; 2] = [0xC0, 0];

/// A member of many groups on loop 1, and the work of each turn of loop 0 that publishes to them.
fn published() -> (Loops, TestClient, Vec<u64>) {
    let mut loops = Loops::start(2, |_| {});
    let mut member = loops.connect(1, "member");
    let filters: Vec<String> = (0..GROUPS).map(|group| format!("$share/g{group}/t")).collect();
    member.send_all(&subscribe(&filters, QoS::AtMostOnce));
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
