use super::*;
use crate::frame::{FrameContent, HEAD, decode};

const OWN: PodId = PodId(1);
const BROKER: To = To::Broker(1);
const GROUP: To = To::Group { broker: 1, group: 2 };

fn outbox(change: impl FnOnce(&mut FabricLimits)) -> FabricOutbox {
    let mut limits = FabricLimits { batch_bytes_max: 1024, ..FabricLimits::default() };
    change(&mut limits);
    let outbox = FabricOutbox::new(OWN, limits, Arc::default());
    outbox.connected(0, false, 1 << 20);
    outbox
}

/// All frames that leave now, batches as their receiver, first number and count.
fn leaves(outbox: &FabricOutbox) -> Vec<(To, u64, u32)> {
    outbox.close_batches();
    std::iter::from_fn(|| outbox.pop()).map(|outgoing| shape(&outgoing)).collect()
}

fn shape(outgoing: &Outgoing) -> (To, u64, u32) {
    let Destination::To(to) = outgoing.destination else { panic!("{outgoing:?}") };
    let FrameContent::Batch { numbers, .. } = decode(outgoing.frame.clone()).unwrap().content else {
        panic!("{outgoing:?}")
    };
    assert_eq!(Some(numbers), outgoing.numbers);
    (to, numbers.first, numbers.count)
}

#[track_caller]
fn queue(outbox: &FabricOutbox, to: To, bytes: usize) {
    assert_eq!(outbox.send(to, &[&vec![0; bytes]]), Sent::Queued);
}

#[test]
fn messages_to_one_receiver_share_a_batch() {
    let outbox = outbox(|_| {});
    for to in [BROKER, To::Pods, BROKER, BROKER] {
        queue(&outbox, to, 10);
    }
    assert_eq!(leaves(&outbox), [(BROKER, 0, 3), (To::Pods, 0, 1)]);
    queue(&outbox, BROKER, 10);
    assert_eq!(leaves(&outbox), [(BROKER, 3, 1)]);
}

#[test]
fn a_full_batch_makes_room_for_the_next_and_a_long_message_has_its_own() {
    let outbox = outbox(|_| {});
    for bytes in [600, 600, 5000, 10] {
        queue(&outbox, BROKER, bytes);
    }
    assert_eq!(leaves(&outbox), [(BROKER, 0, 1), (BROKER, 1, 1), (BROKER, 2, 1), (BROKER, 3, 1)]);
}

#[test]
fn a_message_that_is_dropped_leaves_a_hole_in_the_numbers() {
    let outbox = outbox(|limits| limits.message_bytes_max = 2000);
    queue(&outbox, BROKER, 10);
    assert_eq!(outbox.send(BROKER, &[&[0; 2001]]), Sent::Dropped(FabricDropReason::TooLarge));
    queue(&outbox, BROKER, 10);
    assert_eq!(leaves(&outbox), [(BROKER, 0, 1), (BROKER, 2, 1)]);
}

#[test]
fn a_full_queue_takes_more_when_a_quarter_has_left() {
    let outbox = outbox(|limits| {
        limits.queue_bytes_max = 4 * 1004;
        limits.batch_bytes_max = 1024;
    });
    for broker in 1..=4 {
        queue(&outbox, To::Broker(broker), 1000);
    }
    assert_eq!(outbox.send(To::Pods, &[b"x"]), Sent::Dropped(FabricDropReason::QueueFull));
    outbox.close_batches();
    outbox.pop().unwrap();
    queue(&outbox, To::Pods, 1);
}

#[test]
fn one_receiver_does_not_take_the_whole_queue() {
    let outbox = outbox(|limits| limits.queue_bytes_per_receiver_max = 2 * 1004);
    queue(&outbox, BROKER, 1000);
    queue(&outbox, BROKER, 1000);
    assert_eq!(outbox.send(BROKER, &[b"x"]), Sent::Dropped(FabricDropReason::ReceiverFull));
    queue(&outbox, To::Pods, 1000);
}

#[test]
fn a_broker_on_many_pods_leaves_room_in_the_queue_for_others() {
    let outbox = outbox(|limits| limits.queue_bytes_max = 12 * 1004);
    let send = |pod, broker| outbox.send(To::BrokerOnPod { pod: PodId(pod), broker }, &[&[0; 1000]]);
    let queued = |broker| (10..30).filter(|pod| send(*pod, broker) == Sent::Queued).count();
    assert_eq!([1, 2, 3].map(queued), [6, 3, 2], "each may have as much as is free");
    queue(&outbox, To::Pods, 1000);
    outbox.close_batches();
    (0..3).for_each(|_| drop(outbox.pop().unwrap()));
    assert!(matches!(send(10, 1), Sent::Dropped(_)), "it has 3, and 3 are free");
    outbox.pop().unwrap();
    assert_eq!(send(10, 1), Sent::Queued);
}

#[test]
fn frames_of_others_leave_between_the_parts_of_a_large_one() {
    const LARGE: To = To::Broker(9);
    let outbox = outbox(|limits| limits.part_bytes_max = 2_000);
    queue(&outbox, LARGE, 10_000);
    queue(&outbox, LARGE, 10);
    (1..9).for_each(|broker| queue(&outbox, To::Broker(broker), 900));
    outbox.close_batches();
    let frames: Vec<_> = std::iter::from_fn(|| outbox.pop()).collect();
    let order: Vec<_> = frames.iter().map(|outgoing| outgoing.destination).collect();
    let of_large = |to: &&Destination| **to == Destination::To(LARGE);
    assert_eq!(order.iter().filter(of_large).count(), 7, "six parts, and the next batch: {order:?}");
    assert_eq!(order[..9].iter().filter(of_large).count(), 3, "{order:?}");
    let last = frames.iter().rfind(|outgoing| outgoing.destination == Destination::To(LARGE));
    assert_eq!(last.unwrap().numbers.unwrap().first, 1, "its order stays");
}

#[test]
fn under_a_flood_a_message_of_another_broker_leaves_after_the_frames_that_were_ready() {
    const FLOOD: To = To::Broker(9);
    let outbox = outbox(|limits| limits.part_bytes_max = 4_000);
    (0..20).for_each(|_| queue(&outbox, FLOOD, 1000));
    outbox.close_batches();
    queue(&outbox, BROKER, 10);
    let left_before = (0..1_000).take_while(|_| {
        queue(&outbox, FLOOD, 1000);
        outbox.pop().unwrap().destination != Destination::To(BROKER)
    });
    assert!((20..=24).contains(&left_before.count()), "its batch is closed after four frames");
}

#[test]
fn a_small_message_that_comes_later_leaves_between_the_parts_of_a_large_one() {
    let outbox = outbox(|limits| limits.part_bytes_max = 2_000);
    queue(&outbox, To::Broker(9), 100_000);
    outbox.close_batches();
    outbox.pop().unwrap();
    queue(&outbox, BROKER, 10);
    let left_before = std::iter::from_fn(|| outbox.pop());
    let left_before = left_before.take_while(|outgoing| outgoing.destination != Destination::To(BROKER));
    assert!(left_before.count() <= 2);
}

#[test]
fn during_an_outage_a_little_waits_and_the_rest_is_dropped() {
    let outbox = outbox(|limits| limits.outage_bytes_max = 1100);
    outbox.disconnected();
    queue(&outbox, BROKER, 1000);
    assert_eq!(outbox.send(BROKER, &[&[0; 1000]]), Sent::Dropped(FabricDropReason::Outage));
    outbox.connected(10, false, 1 << 20);
    assert_eq!(leaves(&outbox), [(BROKER, 0, 1)]);
    outbox.tick(10);
    assert_eq!(leaves(&outbox), [(BROKER, 2, 0)], "how many there were is said at once");
}

#[test]
fn after_a_long_outage_and_before_the_first_connection_there_is_nothing() {
    let outbox = FabricOutbox::new(OWN, FabricLimits::default(), Arc::default());
    assert_eq!(outbox.send(BROKER, &[b"x"]), Sent::Dropped(FabricDropReason::Outage));
    outbox.connected(0, false, 1 << 20);
    queue(&outbox, BROKER, 1);
    outbox.disconnected();
    queue(&outbox, BROKER, 1);
    outbox.connected(100_000, true, 1 << 20);
    assert_eq!(leaves(&outbox), []);
    queue(&outbox, BROKER, 1);
    assert_eq!(leaves(&outbox), [(BROKER, 0, 1)]);
}

#[test]
fn messages_without_a_listener_are_numbered_and_not_sent() {
    let outbox = outbox(|_| {});
    queue(&outbox, BROKER, 1);
    outbox.close_batches();
    let probe = outbox.pop().unwrap().probe.expect("the first batch asks");
    assert!(!outbox.unwanted(BROKER, 1));
    outbox.no_responders(BROKER, probe);
    assert_eq!(outbox.send(BROKER, &[b"x"]), Sent::NoListener);
    assert!(outbox.unwanted(BROKER, 5));
    assert_eq!(leaves(&outbox), []);

    let position = SenderPosition { to: BROKER, generation: 1, next: 7 };
    assert_eq!(outbox.pod_joined(&[BROKER, To::Pods]), [position]);
    queue(&outbox, BROKER, 1);
    assert_eq!(leaves(&outbox), [(BROKER, 7, 0), (BROKER, 7, 1)]);
    outbox.no_responders(BROKER, probe);
    queue(&outbox, BROKER, 1);
}

#[test]
fn it_is_tried_again_while_there_are_messages() {
    let outbox = outbox(|_| {});
    queue(&outbox, BROKER, 1);
    outbox.close_batches();
    outbox.no_responders(BROKER, outbox.pop().unwrap().probe.unwrap());
    outbox.tick(0);
    outbox.no_responders(BROKER, outbox.pop().unwrap().probe.unwrap());
    assert_eq!(outbox.send(BROKER, &[b"x"]), Sent::NoListener);
    outbox.tick(1000);
    let heartbeat = outbox.pop().unwrap();
    assert_eq!((shape(&heartbeat), heartbeat.probe.is_some()), ((BROKER, 2, 0), true));
    queue(&outbox, BROKER, 1);
}

#[test]
fn quiet_receivers_get_three_heartbeats_and_are_forgotten() {
    let outbox = outbox(|_| {});
    queue(&outbox, BROKER, 1);
    let mut announced = Vec::new();
    for now in (0..100_000).step_by(500) {
        outbox.tick(now);
        announced.extend(leaves(&outbox).into_iter().map(|shape| (now, shape)));
    }
    let heartbeat = (BROKER, 1, 0);
    assert_eq!(announced, [(0, (BROKER, 0, 1)), (1500, heartbeat), (4500, heartbeat), (16500, heartbeat)]);
    assert_eq!(outbox.pod_joined(&[BROKER]), []);
    queue(&outbox, BROKER, 1);
    outbox.close_batches();
    assert_eq!(outbox.pop().unwrap().numbers.unwrap().generation, 2);
}

#[test]
fn groups_have_no_numbers_and_no_heartbeats() {
    let outbox = outbox(|_| {});
    outbox.connected(0, false, 3000);
    queue(&outbox, GROUP, 1000);
    assert_eq!(outbox.send(GROUP, &[&[0; 3000]]), Sent::Dropped(FabricDropReason::TooLarge));
    outbox.close_batches();
    let batch = outbox.pop().unwrap();
    assert_eq!(batch.numbers.unwrap().generation, 0);
    assert_eq!(outbox.pod_joined(&[GROUP]), []);
    for now in (0..100_000).step_by(500) {
        outbox.tick(now);
        assert_eq!(leaves(&outbox), []);
    }
}

#[test]
fn a_batch_to_a_group_is_no_longer_than_one_nats_message() {
    let outbox = outbox(|_| {});
    outbox.connected(0, false, 500);
    for to in [GROUP, GROUP, GROUP, BROKER, BROKER, BROKER] {
        queue(&outbox, to, 200);
    }
    outbox.close_batches();
    let frames: Vec<_> = std::iter::from_fn(|| outbox.pop()).collect();
    let of_group = |outgoing: &&Outgoing| outgoing.destination == Destination::To(GROUP);
    let lengths: Vec<_> = frames.iter().filter(of_group).map(|outgoing| outgoing.frame.len()).collect();
    assert_eq!(lengths, [HEAD + 2 * 204, HEAD + 204]);
    let bytes: Vec<_> = frames.into_iter().map(|outgoing| outgoing.payload(OWN).len()).collect();
    assert!(bytes.iter().all(|bytes| *bytes <= 500), "{bytes:?}");
}

#[test]
fn one_tick_checks_all_receivers() {
    const RECEIVERS: u64 = 5000;
    let outbox = outbox(|_| {});
    (0..RECEIVERS).for_each(|broker| queue(&outbox, To::Broker(broker), 1));
    outbox.close_batches();
    outbox.tick(0);
    while outbox.pop().is_some() {}
    outbox.tick(1000);
    let heartbeats = std::iter::from_fn(|| outbox.pop()).filter(|outgoing| shape(outgoing).2 == 0);
    assert_eq!(heartbeats.count() as u64, RECEIVERS);
}

#[test]
fn a_pod_sends_nothing_to_itself_and_nothing_after_the_end() {
    let outbox = outbox(|limits| limits.streams_max = 1);
    assert_eq!(outbox.send(To::Pod(OWN), &[b"x"]), Sent::NoListener);
    queue(&outbox, BROKER, 1);
    assert_eq!(outbox.send(To::Pods, &[b"x"]), Sent::Dropped(FabricDropReason::TooManyStreams));
    outbox.stop();
    assert_eq!(outbox.send(BROKER, &[b"x"]), Sent::Dropped(FabricDropReason::Stopped));
}
