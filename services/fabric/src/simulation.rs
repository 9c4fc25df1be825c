//! Pods on a simulated NATS of two servers: everything that may overtake does, connections break, and a seed repeats it. What
//! each pod received is then compared with what was sent to it.

mod check;
mod nats;
mod pod;

use std::ops::Range;

use fastrand::Rng;

use crate::address::{PodId, To};
use crate::clock::Millis;
use crate::limits::Limits;
use nats::Nats;
use pod::Pod;

/// What can happen in a run.
#[derive(Clone, Copy)]
struct Plan {
    pods: usize,
    steps: usize,
    /// One step in so many breaks a connection; 0: never.
    breaks: usize,
    /// One step in so many makes or ends a join.
    joins: usize,
    /// The longest simulated time of a step, milliseconds.
    step_ms_max: u64,
}

/// Long enough for all heartbeats, milliseconds.
const CALM_MS: Millis = 40_000;

fn run(seed: u64, plan: Plan) {
    let mut rng = Rng::with_seed(seed);
    // Time passes in leaps here: an answer may take seconds.
    let mut limits =
        Limits { batch_bytes_max: 400, settle_ms: 5_000, join_wait_ms: 60_000, ..Limits::default() };
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

/// Nothing happens but what must.
fn calm(pods: &mut [Pod], nats: &mut Nats, time: Range<Millis>) {
    let mut rng = Rng::with_seed(1);
    for now in time.step_by(50) {
        pods.iter_mut().for_each(|pod| pod.core.tick(now));
        for _ in 0..50 {
            for pod in pods.iter_mut() {
                pod.flush();
                pod.write(usize::MAX);
                while nats.serve(&mut rng, pod) {}
            }
            while nats.route(&mut rng) {}
            for pod in pods.iter_mut() {
                pod.read(nats, usize::MAX);
                while pod.consume(&mut rng, now) {}
            }
        }
    }
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
            // At once, to the other one: what is still on its way over the route may come later than what follows.
            pod.connect(nats, 1 - pod.server, now);
        }
    }
    if rng.usize(..plan.joins) == 0 {
        let to = receiver(rng, others, true);
        if pod.joined.contains(&to) { pod.leave(to) } else { pod.join(to, now) }
    }
    for _ in 0..rng.usize(..3) {
        pod.send(receiver(rng, others, false), rng.usize(..150));
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

fn receiver(rng: &mut Rng, pods: usize, joins: bool) -> To {
    match rng.usize(..if joins { 4 } else { 7 }) {
        0..=2 => To::Broker(rng.u64(..3)),
        3 => To::Group { broker: 1, group: rng.u64(..2) },
        4 => To::Pods,
        _ => To::Pod(PodId(rng.u64(1..=pods as u64))),
    }
}

/// So many pods that are connected and know each other.
fn settled(count: u64, nats: &mut Nats) -> Vec<Pod> {
    let mut pods: Vec<_> = (1..=count).map(|id| Pod::new(PodId(id), Limits::default())).collect();
    pods.iter_mut().for_each(|pod| pod.connect(nats, 0, 0));
    calm(&mut pods, nats, 0..1000);
    pods
}

/// How often each simulation is run with seeds of its own.
const RUNS: u64 = 40;

/// With `FABRIC_SEED` only that one.
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
fn what_a_sender_lost_shows_at_once_after_its_reconnect() {
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
