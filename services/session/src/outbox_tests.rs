use super::packet_ids::{PACKET_IDS, STEPS};
use super::*;
use crate::RemainingMessage;

fn entry(qos: QoS, payload: &str) -> OutboxEntry {
    let message =
        Message::new("t".into(), qos, false, millrace_mqtt::Properties::EMPTY, payload.as_bytes(), 0);
    OutboxEntry {
        message: Arc::new(message),
        qos,
        retain: false,
        replay: false,
        maybe_sent: false,
        shared: 0,
        identifiers: SmallVec::new(),
    }
}

fn id(id: u16) -> PacketId {
    PacketId::new(id).unwrap()
}

impl Outbox {
    /// An empty one whose next packet id is `first`.
    pub(crate) fn beginning_at(first: u16) -> Self {
        Self { next_id: id(first), ..Self::default() }
    }

    fn send(&mut self, qos: QoS, payload: &str) -> u16 {
        let id = self.next_id();
        self.push(entry(qos, payload), None);
        id.get()
    }
}

#[test]
fn packet_ids_count_up_and_begin_again_at_1_after_65535() {
    let mut outbox = Outbox::beginning_at(65_533);
    let ids: Vec<u16> = (0..5).map(|_| outbox.send(QoS::AtLeastOnce, "x")).collect();
    assert_eq!(ids, [65_533, 65_534, 65_535, 1, 2]);
    // The ids in use are known on both sides of the wrap, no other is.
    for (number, known) in
        [(65_532, false), (65_533, true), (65_535, true), (1, true), (2, true), (3, false), (32_768, false)]
    {
        assert_eq!(outbox.state(id(number)).is_some(), known, "{number}");
    }
}

#[test]
fn acknowledgements_in_any_order_free_their_own_messages() {
    let cases: [&[u16]; 5] = [&[65_535], &[1], &[2, 1], &[1, 65_535], &[2, 1, 65_535]];
    for acked in cases {
        let mut outbox = Outbox::beginning_at(65_535);
        for payload in ["a", "b", "c"] {
            outbox.send(QoS::AtLeastOnce, payload);
        }
        for number in acked {
            outbox.complete(id(*number));
        }
        assert_eq!(outbox.next_id(), id(3), "{acked:?}");
        assert_eq!((outbox.len(), outbox.window()), (3 - acked.len(), 3 - acked.len()), "{acked:?}");
        for number in [65_535, 1, 2] {
            assert_eq!(outbox.state(id(number)).is_none(), acked.contains(&number), "{acked:?} {number}");
        }
    }
}

#[test]
fn an_acknowledgement_that_comes_twice_frees_one_place() {
    let mut outbox = Outbox::default();
    for _ in 0..3 {
        outbox.send(QoS::AtLeastOnce, "x");
    }
    outbox.complete(id(2));
    outbox.complete(id(2));
    outbox.complete(id(9));
    assert_eq!(outbox.window(), 2);
}

#[test]
fn messages_that_stay_unacknowledged_keep_their_ids_and_do_not_hold_up_later_ones() {
    //= [MQTT-2.2.1-4] v5
    let mut outbox = Outbox::beginning_at(40_000);
    let mut stay = Vec::new();
    let mut sent = 0_usize;
    // More than twice around.
    while sent < 2 * PACKET_IDS + 20 {
        assert!(outbox.has_room(10));
        let next = outbox.send(QoS::AtLeastOnce, &sent.to_string());
        assert!(!stay.contains(&next), "{next} is in use");
        if [0, 1, 30_000, 70_000, 70_002].contains(&sent) {
            stay.push(next);
        } else {
            outbox.complete(id(next));
        }
        sent += 1;
    }
    assert_eq!((outbox.window(), outbox.len()), (stay.len(), stay.len()));
    assert!(outbox.slots.capacity() < 200, "its memory is bounded: {}", outbox.slots.capacity());
    assert!(outbox.has_unordered_ids());
    outbox.rewind();
    let again: Vec<u16> =
        std::iter::from_fn(|| outbox.next_resend(usize::MAX).map(|(id, ..)| id.get())).collect();
    assert_eq!(again, stay, "in the order of sending");
    stay.iter().for_each(|number| outbox.complete(id(*number)));
    assert!(outbox.is_idle());
}

#[test]
fn acknowledgements_that_come_far_apart_leave_no_gaps_in_memory() {
    let mut outbox = Outbox::default();
    let ids: Vec<u16> = (0..1_000).map(|number| outbox.send(QoS::AtLeastOnce, &number.to_string())).collect();
    // All but every tenth one.
    let (stay, done): (Vec<u16>, Vec<u16>) = ids.iter().partition(|number| **number % 10 == 0);
    done.iter().for_each(|number| outbox.complete(id(*number)));
    assert_eq!((outbox.len(), outbox.window()), (stay.len(), stay.len()));
    assert!(outbox.slots.len() <= 2 * stay.len() + DONE_MAX);
    assert!(stay.iter().all(|number| outbox.is_in_use(id(*number))));
    assert!(done.iter().all(|number| !outbox.is_in_use(id(*number))));
    let next = outbox.send(QoS::AtLeastOnce, "next");
    assert_eq!(next, 1_001);
    outbox.complete(id(1_001));
    assert_eq!(outbox.len(), stay.len());
}

#[test]
fn a_restored_session_sends_again_in_the_given_order_and_skips_what_is_in_use() {
    let sent = |number: u16| (id(number), InFlight::Published(entry(QoS::ExactlyOnce, "x")));
    let mut outbox = Outbox::restored([5, 3, 4, 65_535].map(sent).into());
    assert!(outbox.has_unordered_ids());
    let again: Vec<u16> =
        std::iter::from_fn(|| outbox.next_resend(usize::MAX).map(|(id, ..)| id.get())).collect();
    assert_eq!(again, [5, 3, 4, 65_535]);
    let ids: Vec<u16> = (0..4).map(|_| outbox.send(QoS::AtLeastOnce, "x")).collect();
    assert_eq!(ids, [1, 2, 6, 7]);
    assert!(!Outbox::restored([65_534, 65_535, 2].map(sent).into()).has_unordered_ids());
}

#[test]
fn ids_far_apart_do_not_tell_the_order_of_sending() {
    let sent = |number: u16| (id(number), InFlight::Published(entry(QoS::ExactlyOnce, "x")));
    for ids in [[1, 40_001, 40_010], [5, 65_530, 2], [5, 1, 4]] {
        assert!(Outbox::restored(ids.map(sent).into()).has_unordered_ids(), "{ids:?}");
    }
    let mut outbox = Outbox::default();
    let send = |outbox: &mut Outbox| outbox.send(QoS::AtLeastOnce, "x");
    let oldest = send(&mut outbox);
    for _ in 0..40_000 {
        let next = send(&mut outbox);
        outbox.complete(id(next));
    }
    assert!(!outbox.has_unordered_ids());
    send(&mut outbox);
    assert!(outbox.has_unordered_ids());
    outbox.complete(id(oldest));
    assert!(!outbox.has_unordered_ids());
}

#[test]
fn a_long_row_of_ids_in_use_is_skipped_at_once() {
    let mut outbox = Outbox::beginning_at(2);
    let open: Vec<u16> = (0..65_000).map(|_| outbox.send(QoS::AtLeastOnce, "x")).collect();
    // Every free id comes once more, then the row is skipped.
    for _ in 0..2 * (PACKET_IDS - open.len()) {
        let next = outbox.send(QoS::AtLeastOnce, "x");
        assert!(!(2..=65_001).contains(&next), "{next} is in use");
        outbox.complete(id(next));
    }
    assert!(open.iter().all(|number| outbox.is_in_use(id(*number))));
    assert!(!outbox.is_in_use(id(65_002)) && !outbox.is_in_use(id(1)));
}

#[test]
fn what_is_sent_again_leaves_out_what_is_done_and_keeps_its_order() {
    let mut outbox = Outbox::beginning_at(65_534);
    for payload in ["a", "b", "c", "d"] {
        outbox.send(QoS::ExactlyOnce, payload);
    }
    outbox.release(id(65_535), true);
    outbox.complete(id(1));
    outbox.rewind();
    assert_eq!(outbox.window(), 0);
    let mut again = Vec::new();
    while let Some((id, state, _)) = outbox.next_resend(usize::MAX) {
        again.push((id.get(), matches!(state, SlotState::Released(_))));
    }
    assert_eq!(again, [(65_534, false), (65_535, true), (2, false)]);
    assert_eq!(outbox.window(), 3);
    // Acknowledged by a late packet of the earlier connection: it must not count twice.
    outbox.rewind();
    outbox.complete(id(65_534));
    outbox.complete(id(65_535));
    assert_eq!(outbox.window(), 0);
    assert_eq!(outbox.next_resend(usize::MAX).map(|(id, ..)| id.get()), Some(2));
    assert!(outbox.next_resend(usize::MAX).is_none());
}

#[test]
fn what_is_taken_from_the_queue_no_longer_counts() {
    let mut outbox = Outbox::default();
    for (shared, replay) in [(0, true), (7, false), (0, false), (7, false)] {
        outbox.enqueue(OutboxEntry { shared, replay, ..entry(QoS::AtLeastOnce, "four") }, None);
    }
    let size = entry(QoS::AtLeastOnce, "four").message.size() as u64;
    assert_eq!((outbox.queue_len(), outbox.queue_bytes(), outbox.replays()), (4, 4 * size, 1));
    assert_eq!(outbox.take_waiting(|entry| entry.shared == 7).len(), 2);
    assert_eq!((outbox.queue_len(), outbox.queue_bytes(), outbox.replays()), (2, 2 * size, 1));
    outbox.dequeue();
    assert_eq!((outbox.queue_len(), outbox.queue_bytes(), outbox.replays()), (1, size, 0));
}

fn drain(outbox: &mut Outbox) -> String {
    let next = |outbox: &mut Outbox| outbox.dequeue();
    std::iter::from_fn(|| next(outbox))
        .map(|(entry, _)| String::from_utf8_lossy(entry.message.payload()).into_owned())
        .collect()
}

#[test]
fn what_is_supplied_at_a_mark_comes_between_what_stood_before_it_and_behind_it() {
    let mut outbox = Outbox::default();
    for payload in ["a", "b"] {
        outbox.enqueue(entry(QoS::AtLeastOnce, payload), None);
    }
    outbox.open_replay();
    outbox.enqueue(entry(QoS::AtLeastOnce, "c"), None);
    outbox.open_replay();
    outbox.enqueue(entry(QoS::AtLeastOnce, "d"), None);
    assert!(!outbox.is_at_replay() && !outbox.is_idle() && !outbox.is_caught_up());
    assert_eq!((drain(&mut outbox), outbox.is_at_replay(), outbox.replays()), ("ab".into(), true, 2));
    for payload in ["1", "2"] {
        outbox.supply(entry(QoS::AtMostOnce, payload));
        assert!(!outbox.is_at_replay());
        assert_eq!(drain(&mut outbox), payload);
    }
    outbox.close_replay();
    assert_eq!((drain(&mut outbox), outbox.is_at_replay()), ("c".into(), true));
    outbox.close_replay();
    assert_eq!((drain(&mut outbox), outbox.replays()), ("d".into(), 0));
    assert!(outbox.is_idle());
}

#[test]
fn replay_points_keep_their_position_when_entries_leave_the_middle_or_the_end() {
    let queued = || {
        let mut outbox = Outbox::default();
        outbox.enqueue(OutboxEntry { shared: 1, ..entry(QoS::AtLeastOnce, "a") }, None);
        outbox.enqueue(entry(QoS::AtLeastOnce, "b"), None);
        outbox.open_replay();
        outbox.enqueue(entry(QoS::AtLeastOnce, "c"), None);
        outbox
    };
    let mut outbox = queued();
    assert_eq!(outbox.take_waiting(|entry| entry.shared == 1).len(), 1);
    assert_eq!((drain(&mut outbox), outbox.is_at_replay()), ("b".into(), true));
    outbox.close_replay();
    assert_eq!(drain(&mut outbox), "c");
    let mut outbox = queued();
    outbox.cut_queue(|entry| entry.message.payload() != b"a");
    assert_eq!((drain(&mut outbox), outbox.is_at_replay()), ("a".into(), true));
}

#[test]
fn begun_messages_are_those_whose_packet_ids_the_caller_has_and_the_client_has_not() {
    let mut outbox = Outbox::default();
    outbox.send(QoS::ExactlyOnce, "sent");
    for shared in [7, 0, 7] {
        outbox.append(OutboxEntry { shared, ..entry(QoS::ExactlyOnce, "begun") }, None, true);
    }
    assert_eq!(outbox.take_reserved().len(), 3);
    // The store has this one already, and the last one is not on its way.
    outbox.confirm(id(2));
    outbox.append(OutboxEntry { shared: 7, ..entry(QoS::ExactlyOnce, "reserved") }, None, true);
    let begun = outbox.take_begun(|entry| entry.shared == 7);
    assert_eq!(begun.iter().map(|(id, _)| id.get()).collect::<Vec<_>>(), [2, 4]);
    assert!(outbox.take_begun(|entry| entry.shared == 7).is_empty());
    let (sent, unseen) = outbox.in_flight();
    assert_eq!((sent.len(), unseen.len(), outbox.len()), (1, 2, 3));
    let left = std::iter::from_fn(|| outbox.take_remaining())
        .filter(|left| matches!(left, RemainingMessage::Shared(_)));
    assert_eq!(left.count(), 1, "another member gets the last one");
}

/// Steps of look-ups that `work` takes.
fn steps(work: impl FnOnce()) -> usize {
    let before = STEPS.get();
    work();
    STEPS.get() - before
}

#[test]
fn acknowledgements_behind_a_message_that_stays_do_not_look_at_all_messages() {
    let mut outbox = Outbox::default();
    // The first message stays for more than all ids, so its id is skipped.
    let stays = outbox.send(QoS::AtLeastOnce, "stays");
    for _ in 0..PACKET_IDS {
        let next = outbox.send(QoS::AtLeastOnce, "x");
        outbox.complete(id(next));
    }
    assert!(outbox.has_unordered_ids());
    let ids: Vec<u16> = (0..20_000).map(|_| outbox.send(QoS::AtLeastOnce, "x")).collect();
    // From the middle to both ends: every search from an end would visit thousands of slots.
    let (low, high) = ids.split_at(10_000);
    let taken = steps(|| {
        for (low, high) in low.iter().rev().zip(high) {
            outbox.complete(id(*low));
            outbox.complete(id(*high));
        }
    });
    assert!(taken <= 2 * ids.len(), "{taken} steps for {} acknowledgements", ids.len());
    assert_eq!((outbox.window(), outbox.is_in_use(id(stays))), (1, true));
}

#[test]
fn a_full_window_finds_the_next_free_id_without_looking_at_all_messages() {
    // Acknowledged in the order of sending, and with every second message staying.
    for every in [1, 2] {
        let mut outbox = Outbox::default();
        let mut open: VecDeque<u16> = (1..PACKET_IDS).map(|_| outbox.send(QoS::AtLeastOnce, "x")).collect();
        let taken = steps(|| {
            for _ in 0..200 {
                let acked = open.pop_front().unwrap();
                outbox.complete(id(acked));
                if every == 2 {
                    open.rotate_left(1);
                }
                let next = outbox.send(QoS::AtLeastOnce, "x");
                assert!(!open.contains(&next), "{next} is in use");
                open.push_back(next);
            }
        });
        assert!(taken <= 200 * 2 * 1_030, "{taken} steps");
        assert!(open.iter().all(|number| outbox.is_in_use(id(*number))));
    }
}

#[test]
fn replay_points_stay_where_they_are_when_entries_are_supplied_and_taken() {
    let shared = |payload| OutboxEntry { shared: 1, ..entry(QoS::AtLeastOnce, payload) };
    let mut outbox = Outbox::default();
    outbox.open_replay();
    outbox.enqueue(shared("a"), None);
    outbox.enqueue(entry(QoS::AtLeastOnce, "b"), None);
    outbox.open_replay();
    outbox.enqueue(shared("c"), None);
    outbox.open_replay();
    outbox.enqueue(entry(QoS::AtLeastOnce, "d"), None);
    outbox.supply(entry(QoS::AtLeastOnce, "retained"));
    assert_eq!(outbox.take_waiting(|entry| entry.shared != 0).len(), 2);
    let mut order = Vec::new();
    while outbox.queue_len() > 0 || outbox.is_at_replay() {
        if outbox.is_at_replay() {
            order.push("point".to_owned());
            outbox.close_replay();
        } else if let Some((entry, _)) = outbox.dequeue() {
            order.push(String::from_utf8(entry.message.payload().to_vec()).unwrap());
        }
    }
    assert_eq!(order, ["retained", "point", "b", "point", "point", "d"]);
}
