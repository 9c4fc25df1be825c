//! Pods on a simulated NATS of two servers: everything that can overtake does, connections break,
//! and a seed repeats a run. The test compares what each pod received with what was sent to it.

mod check;
mod nats;
mod pod;

use std::collections::VecDeque;
use std::ops::Range;

use fastrand::Rng;

use crate::address::{PodId, To};
use crate::clock::Millis;
use crate::limits::FabricLimits;
use nats::Nats;
use pod::Pod;

#[derive(Clone, Copy)]
struct Plan {
    pods: usize,
    steps: usize,
    /// One step in this many breaks a connection; 0 breaks none.
    breaks: usize,
    /// One step in this many begins or ends a join.
    joins: usize,
    /// The longest simulated time of a step, milliseconds.
    step_ms_max: u64,
}

/// Milliseconds long enough for all heartbeats.
const CALM_MS: Millis = 40_000;

fn run(seed: u64, plan: Plan) {
    let mut rng = Rng::with_seed(seed);
    // Simulated time advances in leaps, so an answer may take seconds.
    let mut limits = FabricLimits {
        batch_bytes_max: 400,
        settle_ms: 5_000,
        join_wait_ms: 60_000,
        ..FabricLimits::default()
    };
    if plan.breaks > 0 {
        (limits.queue_bytes_max, limits.outage_bytes_max) = (5_000, 1_000);
    }
    let mut nats = Nats::default();
    let mut pods: Vec<_> = (1..=plan.pods as u64).map(|id| Pod::new(PodId(id), limits.clone())).collect();
    let mut now = 0;
    if plan.breaks == 0 {
        pods.iter_mut().for_each(|pod| pod.connect(&mut nats, rng.usize(..2), now));
    }
    for _ in 0..plan.steps {
        now += rng.u64(..=plan.step_ms_max);
        for place in 0..pods.len() {
            step(&mut rng, &mut nats, &mut pods, place, now, plan);
        }
    }
    for pod in pods.iter_mut().filter(|pod| !pod.is_connected) {
        pod.connect(&mut nats, rng.usize(..2), now);
    }
    calm(&mut pods, &mut nats, now..now + CALM_MS);
    check::all(&pods, plan.breaks == 0, seed);
}

fn calm(pods: &mut [Pod], nats: &mut Nats, time: Range<Millis>) {
    let mut rng = Rng::with_seed(1);
    for now in time.step_by(50) {
        pods.iter_mut().for_each(|pod| pod.core.tick(now));
        let rounds = (0..50).take_while(|_| settle(pods, nats, &mut rng, now)).count();
        assert!(rounds < 50, "the pods never fall silent");
    }
}

/// Moves everything in flight one step; false when there was nothing.
fn settle(pods: &mut [Pod], nats: &mut Nats, rng: &mut Rng, now: Millis) -> bool {
    let mut moved = false;
    for pod in pods.iter_mut() {
        pod.flush();
        pod.write(usize::MAX);
        while nats.serve(rng, pod) {
            moved = true;
        }
    }
    while nats.route(rng) {
        moved = true;
    }
    for pod in pods.iter_mut() {
        pod.read(nats, usize::MAX);
        while pod.consume(rng, now) {
            moved = true;
        }
    }
    moved
}

fn step(rng: &mut Rng, nats: &mut Nats, pods: &mut [Pod], place: usize, now: Millis, plan: Plan) {
    let others = pods.len();
    let pod = &mut pods[place];
    if !pod.is_connected && rng.usize(..20) == 0 {
        pod.connect(nats, rng.usize(..2), now);
    }
    if plan.breaks > 0 && pod.is_connected && rng.usize(..plan.breaks) == 0 {
        pod.disconnect(nats, now);
        if rng.bool() {
            // Immediately, at the other server: messages still on the route may arrive later than
            // the following ones.
            pod.connect(nats, 1 - pod.server, now);
        }
    }
    if rng.usize(..plan.joins) == 0 {
        let to = receiver(rng, others, Some(pod.id));
        if pod.joined.contains(&to) { pod.leave(to) } else { pod.join(to, now) }
    }
    for _ in 0..rng.usize(..3) {
        pod.send(receiver(rng, others, None), rng.usize(..150));
    }
    if rng.bool() {
        pod.flush();
    }
    if rng.bool() {
        pod.core.tick(now);
    }
    let turns = rng.usize(..20);
    pod.write(turns);
    for _ in 0..rng.usize(..20) {
        nats.serve(rng, pod);
        if rng.usize(..3) == 0 {
            nats.route(rng);
        }
    }
    pod.read(nats, rng.usize(..20));
    for _ in 0..rng.usize(..20) {
        pod.consume(rng, now);
    }
}

fn receiver(rng: &mut Rng, pods: usize, joins: Option<PodId>) -> To {
    match rng.usize(..if joins.is_some() { 6 } else { 9 }) {
        0..=2 => To::Broker(rng.u64(..3)),
        3 => To::Group { broker: 1, group: rng.u64(..2) },
        4 | 5 => {
            let pod = joins.unwrap_or_else(|| PodId(rng.u64(1..=pods as u64)));
            To::BrokerOnPod { pod, broker: rng.u64(..2) }
        }
        6 => To::Pods,
        _ => To::Pod(PodId(rng.u64(1..=pods as u64))),
    }
}

/// Pods that are connected and know each other.
fn settled(count: u64, nats: &mut Nats) -> Vec<Pod> {
    let mut pods: Vec<_> = (1..=count).map(|id| Pod::new(PodId(id), FabricLimits::default())).collect();
    pods.iter_mut().for_each(|pod| pod.connect(nats, 0, 0));
    calm(&mut pods, nats, 0..1000);
    pods
}

/// A pod sends its queued messages and then receives.
fn turn(pod: &mut Pod, nats: &mut Nats, rng: &mut Rng, now: Millis) {
    speak(pod, nats, rng, now);
    receive_all(pod, nats, rng, now);
}

fn receive_all(pod: &mut Pod, nats: &mut Nats, rng: &mut Rng, now: Millis) {
    pod.read(nats, usize::MAX);
    while pod.consume(rng, now) {}
}

fn speak(pod: &mut Pod, nats: &mut Nats, rng: &mut Rng, now: Millis) {
    pod.core.tick(now);
    pod.flush();
    pod.write(usize::MAX);
    while nats.serve(rng, pod) {}
}

const RUNS: u64 = 40;

/// `FABRIC_SEED` selects a single one.
fn seeds() -> Vec<u64> {
    match std::env::var("FABRIC_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => vec![seed],
        None => (0..std::env::var("FABRIC_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(RUNS))
            .map(|_| fastrand::u64(..1 << 32))
            .collect(),
    }
}

#[test]
fn without_losses_everything_comes_in_order_and_there_is_no_gap() {
    for seed in seeds() {
        run(seed, Plan { pods: 4, steps: 400, breaks: 0, joins: 30, step_ms_max: 20 });
    }
}

#[test]
fn joins_and_leaves_in_quick_succession_make_no_gap() {
    for seed in seeds() {
        run(seed, Plan { pods: 4, steps: 400, breaks: 0, joins: 3, step_ms_max: 300 });
    }
}

#[test]
fn every_loss_shows_with_its_size_and_nothing_else_does() {
    for seed in seeds() {
        run(seed, Plan { pods: 4, steps: 400, breaks: 60, joins: 30, step_ms_max: 20 });
    }
}

#[test]
fn losses_show_when_messages_are_few_and_outages_long() {
    for seed in seeds() {
        run(seed, Plan { pods: 3, steps: 300, breaks: 40, joins: 20, step_ms_max: 2000 });
    }
}

#[test]
fn a_loss_shows_at_once_after_a_reconnect_also_when_the_sender_has_long_been_quiet() {
    let mut nats = Nats::default();
    let mut pods = settled(2, &mut nats);
    let to = To::Broker(1);
    pods[1].join(to, 1000);
    calm(&mut pods, &mut nats, 1000..2000);
    pods[0].send(to, 1);
    calm(&mut pods, &mut nats, 2000..3000);
    pods[1].disconnect(&mut nats, 3000);
    pods[0].send(to, 1);
    calm(&mut pods, &mut nats, 3000..30_000);
    pods[1].connect(&mut nats, 1, 30_000);
    calm(&mut pods, &mut nats, 30_000..30_500);
    let gap = crate::Gap { from: Some(PodId(1)), to, missing: Some(1) };
    assert_eq!(pods[1].gaps(), [gap]);
}

#[test]
fn a_senders_losses_show_at_once_after_its_reconnect() {
    let mut nats = Nats::default();
    let mut pods = settled(2, &mut nats);
    let to = To::Broker(1);
    pods[1].join(to, 1000);
    calm(&mut pods, &mut nats, 1000..2000);
    pods[0].send(to, 1);
    calm(&mut pods, &mut nats, 2000..2050);
    pods[0].send(to, 1);
    pods[0].flush();
    pods[0].write(usize::MAX);
    pods[0].disconnect(&mut nats, 2050);
    pods[0].connect(&mut nats, 1, 2100);
    calm(&mut pods, &mut nats, 2100..2300);
    let gap = crate::Gap { from: Some(PodId(1)), to, missing: Some(1) };
    assert_eq!(pods[1].gaps(), [gap]);
}

#[test]
fn messages_of_before_a_long_outage_are_not_delivered_late() {
    let mut nats = Nats::default();
    let mut pods = settled(3, &mut nats);
    // This creates interest on the other server.
    pods[2].disconnect(&mut nats, 1000);
    pods[2].connect(&mut nats, 1, 1000);
    calm(&mut pods, &mut nats, 1000..2000);
    pods[0].send(To::Pods, 1);
    let mut rng = Rng::with_seed(1);
    for place in [0, 1] {
        turn(&mut pods[place], &mut nats, &mut rng, 2000);
    }
    assert_eq!(pods[1].messages(), 1);
    pods[1].disconnect(&mut nats, 2000);
    pods[1].connect(&mut nats, 1, 40_000);
    calm(&mut pods, &mut nats, 40_000..45_000);
    assert_eq!([1, 2].map(|pod: usize| pods[pod].messages()), [1, 1]);
}

#[test]
fn until_the_doubt_after_a_long_outage_ends_messages_come_behind_a_gap() {
    let mut nats = Nats::default();
    let mut pods = settled(2, &mut nats);
    let (to, mut rng) = (To::Broker(1), Rng::with_seed(1));
    pods[1].join(to, 1000);
    calm(&mut pods, &mut nats, 1000..2000);
    pods[0].send(to, 1);
    calm(&mut pods, &mut nats, 2000..3000);
    pods.iter_mut().for_each(|pod| pod.disconnect(&mut nats, 3000));
    pods[1].connect(&mut nats, 0, 40_000);
    turn(&mut pods[1], &mut nats, &mut rng, 40_000);
    let before = pods[1].gaps().len();
    // Lost, after the gap of the receiver's own outage.
    pods[0].send(to, 1);
    pods[0].connect(&mut nats, 0, 40_100);
    pods[0].send(to, 1);
    speak(&mut pods[0], &mut nats, &mut rng, 40_100);
    receive_all(&mut pods[1], &mut nats, &mut rng, 40_100);
    assert_eq!(pods[1].messages(), 2);
    assert_eq!(pods[1].gaps()[before..], [crate::Gap { from: Some(PodId(1)), to, missing: None }]);
    calm(&mut pods, &mut nats, 40_100..45_000);
    let gaps = pods[1].gaps().len();
    pods[0].send(to, 1);
    calm(&mut pods, &mut nats, 45_000..46_000);
    assert_eq!((pods[1].messages(), pods[1].gaps().len()), (3, gaps));
}

#[test]
fn a_join_is_confirmed_although_each_answer_comes_after_the_next_try() {
    let mut nats = Nats::default();
    let mut pods = settled(2, &mut nats);
    let to = To::Broker(1);
    pods[1].join(to, 1000);
    let mut rng = Rng::with_seed(1);
    for now in (1000..10_000).step_by(1500) {
        // The joining pod asks, and only then receives the other pod's answer to the earlier
        // question.
        for place in [1, 0] {
            turn(&mut pods[place], &mut nats, &mut rng, now);
        }
    }
    // The pod learned too early that nothing was confirmed: it asks again.
    pods[1].join(to, 10_000);
    assert!(pods[1].is_joined(to));
    assert_eq!(pods[1].gaps(), []);
}

#[test]
fn a_join_waits_for_a_pod_that_was_silent_when_it_was_announced() {
    let mut nats = Nats::default();
    let mut pods = settled(3, &mut nats);
    let to = To::Broker(1);
    let mut rng = Rng::with_seed(1);
    let [silent, joins, other] = [0, 1, 2];
    for now in (1000..9500).step_by(500) {
        turn(&mut pods[joins], &mut nats, &mut rng, now);
        turn(&mut pods[other], &mut nats, &mut rng, now);
    }
    pods[joins].join(to, 9500);
    // The silent pod says hello before it learns of the join.
    speak(&mut pods[joins], &mut nats, &mut rng, 9500);
    speak(&mut pods[silent], &mut nats, &mut rng, 9500);
    for place in [joins, other, other, joins] {
        turn(&mut pods[place], &mut nats, &mut rng, 9500);
    }
    pods[joins].join(to, 9500);
    assert!(!pods[joins].is_joined(to), "the other has answered, the silent one has not");
    calm(&mut pods, &mut nats, 9500..10_000);
    assert!(pods[joins].is_joined(to));
}

#[test]
fn a_loss_shows_when_what_came_first_came_between_two_answers() {
    let mut nats = Nats::default();
    let mut pods = settled(2, &mut nats);
    let mut rng = Rng::with_seed(1);
    for now in (1000..80_000).step_by(500) {
        turn(&mut pods[1], &mut nats, &mut rng, now);
    }
    // One pod was forgotten and returns. It is asked twice, and sends something after its first
    // answer.
    let now = 80_000;
    let (sender, receiver) = pods.split_at_mut(1);
    let (sender, receiver) = (&mut sender[0], &mut receiver[0]);
    speak(sender, &mut nats, &mut rng, now);
    turn(receiver, &mut nats, &mut rng, now);
    speak(receiver, &mut nats, &mut rng, now);
    receiver.join(To::Broker(1), now);
    turn(sender, &mut nats, &mut rng, now);
    speak(sender, &mut nats, &mut rng, now);
    receive_all(receiver, &mut nats, &mut rng, now);
    sender.send(To::Pods, 1);
    speak(sender, &mut nats, &mut rng, now);
    receive_all(receiver, &mut nats, &mut rng, now);
    assert_eq!(receiver.messages(), 1);
    speak(receiver, &mut nats, &mut rng, now);
    receive_all(sender, &mut nats, &mut rng, now);
    speak(sender, &mut nats, &mut rng, now);
    receive_all(receiver, &mut nats, &mut rng, now);
    sender.send(To::Pods, 1);
    speak(sender, &mut nats, &mut rng, now);
    nats.down.values_mut().for_each(VecDeque::clear);
    calm(&mut pods, &mut nats, now..now + 5000);
    let gap = crate::Gap { from: Some(PodId(1)), to: To::Pods, missing: Some(1) };
    assert_eq!(pods[1].gaps(), [gap]);
}
