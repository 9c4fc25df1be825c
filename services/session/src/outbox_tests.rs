use super::*;

fn entry(qos: QoS, payload: &str) -> Entry {
    let message =
        Message::new("t".into(), qos, false, millrace_mqtt::Properties::EMPTY, payload.as_bytes(), 0);
    Entry {
        message: Arc::new(message),
        qos,
        retain: false,
        replay: false,
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
        Self { first_id: id(first), ..Self::default() }
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
fn a_packet_id_is_free_only_after_all_before_it_are_done() {
    let cases: [(&[u16], u16, usize); 5] = [
        // Acknowledged ids, the next id, places still taken.
        (&[65_535], 3, 2),
        (&[1], 3, 3),
        (&[2, 1], 3, 3),
        (&[1, 65_535], 3, 1),
        (&[2, 1, 65_535], 3, 0),
    ];
    for (acked, next, taken) in cases {
        let mut outbox = Outbox::beginning_at(65_535);
        for payload in ["a", "b", "c"] {
            outbox.send(QoS::AtLeastOnce, payload);
        }
        for number in acked {
            outbox.complete(id(*number));
        }
        assert_eq!(outbox.next_id(), id(next), "{acked:?}");
        assert_eq!(outbox.slots.len(), taken, "{acked:?}");
        assert_eq!(outbox.window(), 3 - acked.len(), "{acked:?}");
        assert!(acked.iter().all(|number| outbox.state(id(*number)).is_none()), "{acked:?}");
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
fn no_packet_id_is_given_twice_while_the_oldest_message_stays_unacknowledged() {
    let mut outbox = Outbox::beginning_at(40_000);
    let first = outbox.send(QoS::AtLeastOnce, "stays");
    let mut sent = 1;
    while outbox.has_room(10) {
        let next = outbox.send(QoS::AtLeastOnce, "x");
        assert_ne!(next, first);
        outbox.complete(id(next));
        sent += 1;
    }
    // All ids were used once, and then it waits.
    assert_eq!(sent, PACKET_IDS);
    assert_eq!(outbox.window(), 1);
    outbox.complete(id(first));
    assert!(outbox.has_room(10) && outbox.is_idle());
}

#[test]
fn after_a_reconnect_the_oldest_message_is_sent_again_even_when_no_packet_id_is_left() {
    //= [MQTT-4.4.0-1] v5 v3.1.1
    let mut outbox = Outbox::default();
    let first = outbox.send(QoS::AtLeastOnce, "stays");
    while outbox.has_room(10) {
        let next = outbox.send(QoS::AtLeastOnce, "x");
        outbox.complete(id(next));
    }
    outbox.rewind();
    assert!(outbox.has_window(10), "the message that is to be sent again needs no new packet id");
    assert_eq!(outbox.next_resend().map(|(id, ..)| id.get()), Some(first));
    assert!(outbox.next_resend().is_none() && outbox.is_caught_up());
    assert_eq!(outbox.window(), 1);
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
    while let Some((id, state, _)) = outbox.next_resend() {
        again.push((id.get(), matches!(state, State::Released(_))));
    }
    assert_eq!(again, [(65_534, false), (65_535, true), (2, false)]);
    assert_eq!(outbox.window(), 3);
    // Acknowledged by a late packet of the earlier connection: it must not count twice.
    outbox.rewind();
    outbox.complete(id(65_534));
    outbox.complete(id(65_535));
    assert_eq!(outbox.window(), 0);
    assert_eq!(outbox.next_resend().map(|(id, ..)| id.get()), Some(2));
    assert!(outbox.next_resend().is_none());
}

#[test]
fn what_is_taken_from_the_queue_no_longer_counts() {
    let mut outbox = Outbox::default();
    for (shared, replay) in [(0, true), (7, false), (0, false), (7, false)] {
        outbox.enqueue(Entry { shared, replay, ..entry(QoS::AtLeastOnce, "four") }, None);
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
        outbox.enqueue(Entry { shared: 1, ..entry(QoS::AtLeastOnce, "a") }, None);
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
