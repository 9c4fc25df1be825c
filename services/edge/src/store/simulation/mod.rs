//! Runs the real writer, reader and lease thread over a store in memory: one thread, a simulated time, and a seed that decides
//! what goes wrong and who acts next. Decision 0048 has the reasons and the limits.
//!
//! ```text
//! clients <── packets, lost connections ──> event loops (imitated) ── jobs ──> writer (real) ──> store in memory
//!    └─ model: P1, P2, P3, P4, P7              └─ each question has one answer      └─ commits that conflict, get lost, fail
//! ```
//!
//! It knows no socket, no thread and no clock of the machine.

mod client;
mod core;
mod engine;
mod faults;
mod groups;
mod leftovers;
mod model;
mod network;
mod outbox;
mod pod;
mod publishing;
mod session;
mod tests;
mod world;

use std::fmt;
use std::rc::Rc;

use self::faults::Counts;
use self::world::{Actor, World};
use super::bugs::{self, WriterBug};

const BROKER: &str = "default";
/// After the last fault, everything must be done within this time, s.
const CALM_S: u64 = 300;
/// How long the disk is full at the end of the faults, s.
const LAST_FULL_S: u64 = 2;
/// Time after which nothing is due any more, s: longer than any session, delay and sweep of these runs.
const EXPIRY_S: u64 = 600;

#[derive(Clone, Debug)]
struct Plan {
    seed: u64,
    pods: usize,
    is_shared: bool,
    publishers: usize,
    subscribers: usize,
    members: usize,
    seconds: u64,
    /// Mean time between two actions of a client, ms.
    action_every_ms: u64,
    /// One in so many actions of a member of the shared subscription loses its connection.
    actions_per_loss: u64,
    /// Others act in one of so many reads.
    overlap: u64,
    /// Mean time between two faults, s.
    fault_every_s: u64,
    commits_per_fault: u64,
    /// How far the clocks of pods are off, ms.
    clocks_ms: u64,
}

impl Plan {
    fn one_process(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        Self {
            seed,
            pods: 1,
            is_shared: false,
            publishers: random.usize(1..4),
            subscribers: random.usize(1..4),
            members: random.usize(0..3),
            seconds: 300,
            action_every_ms: random.u64(20..1_000),
            actions_per_loss: 70,
            overlap: random.u64(5..40),
            fault_every_s: random.u64(5..60),
            commits_per_fault: random.u64(2..100),
            clocks_ms: 0,
        }
    }

    fn pods(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed ^ 0x9e37_79b9);
        let clocks_ms = if random.bool() { 0 } else { 30_000 };
        Self { pods: random.usize(2..4), is_shared: true, clocks_ms, ..Self::one_process(seed) }
    }

    /// Pods of which often one is stalled or killed, under a high load.
    fn busy_pods(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed ^ 0xc2b2_ae35);
        let (publishers, subscribers, members) = (3, 1, 1);
        let (pods, is_shared, clocks_ms) = (2, true, 0);
        Self {
            seed,
            pods,
            is_shared,
            publishers,
            subscribers,
            members,
            seconds: 150,
            action_every_ms: random.u64(20..100),
            actions_per_loss: 70,
            overlap: random.u64(5..40),
            fault_every_s: random.u64(2..6),
            commits_per_fault: random.u64(10..100),
            clocks_ms,
        }
    }

    /// A short run that ends with the death of a pod, some of whose clients never return.
    fn last_death(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed ^ 0x27d4_eb2f);
        Self {
            publishers: 3,
            subscribers: 2,
            members: 0,
            seconds: 15,
            action_every_ms: random.u64(50..500),
            fault_every_s: 60,
            ..Self::pods(seed)
        }
    }

    /// Few members of the shared subscription, which come and go all the time, so that mostly nobody is there to take
    /// what a member leaves.
    fn members(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed ^ 0x85eb_ca6b);
        let plan = if random.bool() { Self::pods(seed) } else { Self::one_process(seed) };
        Self {
            publishers: 2,
            subscribers: 0,
            members: random.usize(1..3),
            seconds: 100,
            action_every_ms: random.u64(20..200),
            actions_per_loss: random.u64(3..10),
            ..plan
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    simulated_s: u64,
    trace: u64,
    commits: u64,
    /// Transactions that did not ask for a read version.
    unasked: u64,
    acknowledged: u64,
    delivered: u64,
    wills: usize,
    faults: Counts,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { simulated_s, commits, unasked, acknowledged, delivered, wills, faults, .. } = self;
        write!(
            f,
            "{simulated_s} s, {commits} commits ({unasked} of known versions), {acknowledged} acknowledged, {delivered} delivered, {wills} wills, {faults:?}"
        )
    }
}

/// Runs a simulation to its end; a violated promise is a panic.
fn run(plan: Plan, bug: Option<WriterBug>) -> Outcome {
    // Calls wait inside calls.
    let thread = std::thread::Builder::new().stack_size(64 << 20).spawn(move || {
        bugs::switch_on(bug);
        let seconds = plan.seconds;
        let world = World::begin(plan);
        world.pass_s(seconds);
        some_never_return(&world);
        world.faults.end(&world);
        finish(&world);
        let outcome = outcome(&world);
        world.end();
        outcome
    });
    thread.unwrap().join().unwrap_or_else(|reason| std::panic::resume_unwind(reason))
}

fn outcome(world: &World) -> Outcome {
    let model = world.model.borrow();
    Outcome {
        simulated_s: world.ms() / 1_000,
        trace: world.trace(),
        commits: world.commits(),
        unasked: world.unasked(),
        acknowledged: model.acknowledged,
        delivered: model.delivered,
        wills: model.fired(),
        faults: *world.faults.counts.borrow(),
    }
}

/// The last fault: a pod dies, or a full disk refuses everything. Meanwhile clients are gone for ever, so only the server
/// can end their sessions and publish their wills.
fn some_never_return(world: &Rc<World>) {
    let up: Vec<usize> = (0..world.pods.len()).filter(|pod| world.pods[*pod].is_up()).collect();
    if up.is_empty() {
        return;
    }
    let pod = *world.pick(&up);
    for client in &world.clients {
        client.borrow_mut().never_returns(world, pod);
    }
    if world.plan.is_shared {
        world.pods[pod].kill(world, true);
    } else {
        world.faults.fill_disk(world, LAST_FULL_S);
    }
    world.pass_s(LAST_FULL_S);
}

/// Nothing goes wrong any more: all clients get what they should have, and end their sessions.
fn finish(world: &Rc<World>) {
    for (number, client) in world.clients.iter().enumerate() {
        client.borrow_mut().finish();
        world.wake(Actor::Client(number), world.micros());
    }
    let is_done = || {
        world.clients.iter().all(|client| client.borrow().is_finished())
            && world.pods.iter().all(|pod| pod.is_up() && pod.is_idle(world))
    };
    let mut calm_s = 0;
    while calm_s < 5 {
        if world.ms() > 1_000 * (world.plan.seconds + CALM_S) {
            let clients: Vec<bool> =
                world.clients.iter().map(|client| client.borrow().is_finished()).collect();
            let pods: Vec<(bool, String)> =
                world.pods.iter().map(|pod| (pod.is_up(), pod.unanswered())).collect();
            let text = "somebody still waits although nothing goes wrong any more";
            world.model.borrow().violated(&format!("{text}: clients {clients:?}, pods {pods:?}"));
        }
        world.pass_s(1);
        calm_s = if is_done() { calm_s + 1 } else { 0 };
    }
    for client in &world.clients {
        client.borrow().check(world);
    }
    world.model.borrow().check_group();
    // The last one watches, and so sees the wills of the others.
    let (watcher, others) = world.clients.split_last().expect("there is a client");
    for client in others {
        client.borrow_mut().vanish(world);
    }
    world.pass_s(EXPIRY_S);
    watcher.borrow_mut().vanish(world);
    world.pass_s(60);
    if !world.clients.iter().all(|client| client.borrow().has_left()) {
        world.model.borrow().violated("a client has not left");
    }
    world.model.borrow().check_wills();
    // The last pod also removes what the others leave.
    let (last, others) = world.pods.split_last().expect("there is a pod");
    others.iter().for_each(|pod| pod.close(world));
    world.pass_s(130);
    last.close(world);
    world.pass_s(10);
    if !world.pods.iter().all(pod::Pod::has_ended) {
        world.model.borrow().violated("a writer does not end");
    }
    let left = leftovers::left(world);
    if !left.is_empty() {
        world.model.borrow().violated(&format!("keys of these kinds are left: {left:?}"));
    }
}
