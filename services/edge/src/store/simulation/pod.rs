//! A pod: the real writer, reader and lease thread of the store, without their threads, and an imitation of an event loop.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use millrace_layers::LayerError;
use millrace_storage::block_on;

use super::BROKER;
use super::core::Core;
use super::engine::SimulatedEngine;
use super::groups;
use super::model::TOPICS;
use super::world::{Actor, World};
use crate::broker::Broker;
use crate::clock::{Clock, simulated};
use crate::mailbox::{Mail, Mailbox};
use crate::region::Notices as _;
use crate::store::lease::{self, Watch};
use crate::store::reader::FirstReader;
use crate::store::writer::{self, Writer};
use crate::store::{Job, StoreContext, testing};

/// Between two attempts of a starting pod.
const AGAIN: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Down,
    Starting,
    Up,
    /// It accepts no clients, and writes its remaining jobs.
    Ending,
    Ended,
}

pub(super) struct Pod {
    number: usize,
    mailboxes: Arc<[Mailbox]>,
    /// Grows when the pod is killed.
    life: Cell<u32>,
    /// How many pods took this one's place under a new name.
    successors: Cell<u32>,
    state: Cell<State>,
    pub(super) stalled_until_us: Cell<u64>,
    /// Never freed, because the writer borrows it.
    shared: Cell<Option<&'static StoreContext>>,
    writer: RefCell<Option<Writer<'static>>>,
    reader: RefCell<Option<FirstReader>>,
    watch: RefCell<Watch>,
    core: RefCell<Core>,
}

impl Pod {
    pub(super) fn new(number: usize) -> Self {
        Self {
            number,
            mailboxes: [testing::mailbox()].into(),
            life: Cell::new(1),
            successors: Cell::new(0),
            state: Cell::new(State::Down),
            stalled_until_us: Cell::new(0),
            shared: Cell::new(None),
            writer: RefCell::default(),
            reader: RefCell::default(),
            watch: RefCell::default(),
            core: RefCell::default(),
        }
    }

    pub(super) fn life(&self) -> u32 {
        self.life.get()
    }

    pub(super) fn is_up(&self) -> bool {
        self.state.get() == State::Up
    }

    pub(super) fn has_ended(&self) -> bool {
        self.state.get() == State::Ended
    }

    pub(super) fn is_idle(&self, world: &World) -> bool {
        self.core.borrow().is_idle(world.plan.is_shared)
    }

    pub(super) fn unanswered(&self) -> String {
        self.core.borrow().unanswered()
    }

    pub(super) fn shared(&self) -> &'static StoreContext {
        self.shared.get().expect("the pod has begun")
    }

    pub(super) fn broker(&self) -> Arc<Broker> {
        self.shared().brokers.get(BROKER).expect("a pod that is up has the broker open")
    }

    pub(super) fn submit(&self, world: &World, jobs: &mut Vec<Job>) {
        if !jobs.is_empty() {
            self.shared().writes.push(jobs);
            world.wake(Actor::Writer(self.number), world.micros());
        }
    }

    /// Ends everything of the pod, wherever it is. A pod that is not replaced comes back with its name and recovers its own
    /// sessions.
    pub(super) fn kill(&self, world: &World, is_replaced: bool) {
        self.life.set(self.life.get() + 1);
        self.successors.set(self.successors.get() + u32::from(is_replaced));
        self.state.set(State::Down);
        // The lease thread of the next life must not renew the lease of this one.
        self.shared.set(None);
        self.stalled_until_us.set(0);
        self.drop_all();
        self.mailboxes[0].take(&mut Vec::new());
        self.core.take();
        world.log(|| format!("pod {} is killed", self.number));
        world.cut_pod(self.number);
        world.wake(Actor::Writer(self.number), world.micros() + world.random(1..8_000_000));
    }

    /// Frees all parts but those that are acting now, which end with their calls.
    pub(super) fn drop_all(&self) {
        self.writer.take();
        self.reader.take();
        self.watch.take();
    }

    pub(super) fn close(&self, world: &World) {
        self.state.set(State::Ending);
        // No renewal is under way.
        self.shared().leases.note_end();
        self.shared().writes.close();
        self.shared().reads.close();
        world.wake(Actor::Writer(self.number), world.micros());
    }

    fn name(&self, world: &World) -> String {
        let Self { number, successors, .. } = self;
        if world.plan.is_shared { format!("pod-{number}.{}", successors.get()) } else { "edge".into() }
    }

    pub(super) fn write(&self, world: &World) -> u64 {
        match self.state.get() {
            State::Down => self.start(world),
            State::Starting => unreachable!("it starts in one call"),
            State::Ended => return u64::MAX,
            State::Up | State::Ending => {}
        }
        let Some(mut writer) = self.writer.take() else { return u64::MAX };
        let ended = writer.step(self.shared().writes.take(Duration::ZERO)).is_break();
        let wait = writer.wait_for_jobs();
        if world.plan.is_shared {
            groups::check_claims(world, self.shared(), &writer);
        }
        if ended {
            self.state.set(State::Ended);
            return u64::MAX;
        }
        self.wake_core(world);
        *self.writer.borrow_mut() = Some(writer);
        let jitter_us = world.random(0..300);
        world.micros() + wait.as_micros() as u64 + jitter_us
    }

    /// As [`crate::store::StoreService::start`] does.
    fn start(&self, world: &World) {
        self.state.set(State::Starting);
        let ahead_ms = world.random(0..2 * world.plan.clocks_ms + 1);
        let clock = Clock::simulated(world.unix_ms() + ahead_ms - world.plan.clocks_ms);
        let layers = millrace_layers::Store::new(SimulatedEngine::database());
        let through = again(|| block_on(layers.run(async |tx| Ok(tx.read_version().await?))));
        let shared = StoreContext {
            mailboxes: self.mailboxes.clone(),
            through: AtomicU64::new(through),
            ..StoreContext::of_test(layers, clock, world.plan.is_shared, &self.name(world))
        };
        let shared: &'static StoreContext = Box::leak(Box::new(shared));
        // The lease thread begins first.
        self.shared.set(Some(shared));
        world.wake(Actor::Lease(self.number), world.micros());
        again(|| block_on(shared.layers.ensure_broker(BROKER.as_bytes())));
        let broker = again(|| shared.open(BROKER)).expect("it is made");
        broker.stay_open();
        again(|| match writer::abandon(shared) {
            Err(error) if !writer::may_pass(&error) => Ok(()),
            ended => ended,
        });
        *self.writer.borrow_mut() = Some(Writer::new(shared));
        *self.reader.borrow_mut() = Some(FirstReader::new(shared));
        self.state.set(State::Up);
        world.wake(Actor::Reader(self.number), world.micros());
        self.wake_core(world);
    }

    /// A notice reaches another pod. Most do not.
    fn gossip(&self, world: &World) {
        let other = world.pick(&world.pods);
        if !other.is_up() {
            return;
        }
        let (shared, broker) = (other.shared(), other.broker());
        match world.random(0..3) {
            0 => shared.look(),
            1 => shared.grown(&broker, &(*world.pick(&TOPICS)).into()),
            _ => {
                if let Some(group) = broker.streams.group_of("group", "t/#") {
                    shared.unclaimed((broker.id, group.stream));
                }
            }
        }
        world.wake(Actor::Writer(other.number), world.micros());
    }

    fn wake_core(&self, world: &World) {
        world.wake(Actor::Core(self.number), world.micros());
    }

    pub(super) fn read(&self, world: &World) -> u64 {
        let Some(mut reader) = self.reader.take() else { return u64::MAX };
        if !reader.step(self.shared(), Duration::ZERO) {
            return u64::MAX;
        }
        self.wake_core(world);
        *self.reader.borrow_mut() = Some(reader);
        world.micros() + 1_000_000
    }

    pub(super) fn renew(&self, world: &World) -> u64 {
        let runs = matches!(self.state.get(), State::Starting | State::Up) && world.plan.is_shared;
        let Some(shared) = self.shared.get().filter(|_| runs) else { return u64::MAX };
        let mut watch = self.watch.take();
        lease::step(shared, &mut watch);
        *self.watch.borrow_mut() = watch;
        world.micros() + 500_000
    }

    pub(super) fn serve(&self, world: &World) -> u64 {
        if self.state.get() != State::Up {
            return u64::MAX;
        }
        let mut mail: Vec<Mail> = Vec::new();
        self.mailboxes[0].take(&mut mail);
        let mut core = self.core.borrow_mut();
        let mut jobs = core.turn(world, self, self.number, mail);
        let reads = core.take_reads();
        if !reads.is_empty() {
            self.shared().reads.push(&mut { reads });
            world.wake(Actor::Reader(self.number), world.micros());
        }
        let next_us = core.next_us(world);
        drop(core);
        self.submit(world, &mut jobs);
        if world.plan.is_shared && world.one_in(20) {
            self.gossip(world);
        }
        let packets_us = world.network.borrow().next_up_us(self.number).unwrap_or(u64::MAX);
        next_us.min(packets_us)
    }
}

/// As [`crate::store::patiently`] does, for as long as it takes.
fn again<T>(attempt: impl Fn() -> Result<T, LayerError>) -> T {
    loop {
        match attempt() {
            Ok(done) => return done,
            Err(_) => simulated::pass(AGAIN, &|| false),
        }
    }
}
