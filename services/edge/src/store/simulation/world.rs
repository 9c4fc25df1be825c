//! The scheduler: one thread, a time that only it moves, and everything that acts in an order that the seed decides.
//!
//! A part that waits for the store, or for jobs, lets the others act meanwhile, inside its own call. So transactions of
//! several pods overlap, and a part may be killed wherever it waits.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::time::Duration;

use fastrand::Rng;
use millrace_storage::{Database, StoreError, StoreVersion, Transaction, block_on};

use super::client::Client;
use super::engine::{Fate, Late};
use super::faults::Faults;
use super::model::Model;
use super::network::Network;
use super::pod::Pod;
use super::{Plan, leftovers};
use crate::clock::simulated::{self, Scheduler};

const VIEWS_MAX: usize = 32;
/// 2026-01-01.
const UNIX_START_MS: u64 = 1_767_225_600_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Actor {
    Writer(usize),
    Reader(usize),
    Lease(usize),
    Core(usize),
    Client(usize),
    Faults,
}

struct Seat {
    actor: Actor,
    wakes_us: Cell<u64>,
    is_busy: Cell<bool>,
}

/// A part that acts, or waits inside its call.
struct Frame {
    pod: Option<usize>,
    /// The pod's life when the call began; another one shows that the pod was killed.
    life: u32,
    is_patient: bool,
}

/// Ends the calls of a killed pod.
struct Killed;

pub(super) struct World {
    now_us: Cell<u64>,
    random: RefCell<Rng>,
    pub(super) plan: Plan,
    store: OnceCell<Database>,
    pub(super) pods: Vec<Pod>,
    pub(super) clients: Vec<RefCell<Client>>,
    /// For each client, the QoS of its subscriptions, and whether it speaks MQTT 5.
    traits: Vec<(u8, bool)>,
    pub(super) network: RefCell<Network>,
    pub(super) model: RefCell<Model>,
    pub(super) faults: Faults,
    frames: RefCell<Vec<Frame>>,
    seats: Vec<Seat>,
    late: RefCell<Vec<Late>>,
    /// Transactions that read at the versions of the last commits, for [`Transaction::set_read_version`].
    views: RefCell<VecDeque<Transaction>>,
    /// Everything that happened, as a number, to compare two runs.
    trace: RefCell<DefaultHasher>,
    commits: Cell<u64>,
    unasked: Cell<u64>,
    is_logged: bool,
}

thread_local! {
    static WORLD: RefCell<Option<Rc<World>>> = const { RefCell::new(None) };
}

pub(super) fn world() -> Rc<World> {
    WORLD.with_borrow(Clone::clone).expect("this thread runs a simulation")
}

struct Time(Rc<World>);

impl Scheduler for Time {
    fn micros(&self) -> u64 {
        self.0.micros()
    }

    fn pass(&self, wait: Duration, is_over: &dyn Fn() -> bool) {
        self.0.pass(wait, is_over);
    }

    fn set_patient(&self, is_patient: bool) -> bool {
        let mut frames = self.0.frames.borrow_mut();
        frames.last_mut().is_some_and(|frame| std::mem::replace(&mut frame.is_patient, is_patient))
    }
}

impl World {
    pub(super) fn begin(plan: Plan) -> Rc<Self> {
        let mut random = Rng::with_seed(plan.seed);
        let pods: Vec<Pod> = (0..plan.pods).map(Pod::new).collect();
        let clients = Client::all(&plan, &mut random);
        let mut actors = Vec::new();
        for pod in 0..pods.len() {
            actors.extend([Actor::Writer(pod), Actor::Reader(pod), Actor::Lease(pod), Actor::Core(pod)]);
        }
        actors.extend((0..clients.len()).map(Actor::Client));
        actors.push(Actor::Faults);
        let seat = |actor| Seat { actor, wakes_us: Cell::new(0), is_busy: Cell::new(false) };
        let world = Rc::new(Self {
            now_us: Cell::new(1_000_000),
            random: RefCell::new(random),
            store: OnceCell::new(),
            pods,
            traits: clients.iter().map(|client| (client.qos, client.is_v5)).collect(),
            clients: clients.into_iter().map(RefCell::new).collect(),
            network: RefCell::default(),
            model: RefCell::new(Model::new(plan.clone())),
            faults: Faults::default(),
            frames: RefCell::default(),
            seats: actors.into_iter().map(seat).collect(),
            late: RefCell::default(),
            views: RefCell::default(),
            trace: RefCell::default(),
            commits: Cell::new(0),
            unasked: Cell::new(0),
            is_logged: std::env::var_os("SIMULATION_LOG").is_some(),
            plan,
        });
        WORLD.set(Some(world.clone()));
        simulated::set(Some(Rc::new(Time(world.clone()))));
        let _ = world.store.set(leftovers::empty_store());
        world
    }

    pub(super) fn end(&self) {
        self.late.borrow_mut().clear();
        self.views.borrow_mut().clear();
        self.pods.iter().for_each(Pod::drop_all);
        WORLD.set(None);
        simulated::set(None);
    }

    pub(super) fn pass_s(&self, seconds: u64) {
        self.pass(Duration::from_secs(seconds), &|| false);
    }

    pub(super) fn client_name(&self, client: usize) -> String {
        format!("client-{client}")
    }

    pub(super) fn client_qos(&self, client: usize) -> u8 {
        self.traits[client].0
    }

    pub(super) fn clients_is_v5(&self, client: usize) -> bool {
        self.traits[client].1
    }

    pub(super) fn store_version(&self) -> u64 {
        block_on(self.store().run(async |tx, _| tx.read_version().await)).unwrap()
    }

    pub(super) fn store(&self) -> &Database {
        self.store.get().expect("it is set at the beginning")
    }

    pub(super) fn micros(&self) -> u64 {
        self.now_us.get()
    }

    pub(super) fn ms(&self) -> u64 {
        self.micros() / 1_000
    }

    pub(super) fn unix_ms(&self) -> u64 {
        UNIX_START_MS + self.ms()
    }

    pub(super) fn random(&self, range: Range<u64>) -> u64 {
        self.random.borrow_mut().u64(range)
    }

    pub(super) fn one_in(&self, n: u64) -> bool {
        self.random(0..n) == 0
    }

    pub(super) fn pick<'a, T>(&self, of: &'a [T]) -> &'a T {
        &of[self.random(0..of.len() as u64) as usize]
    }

    pub(super) fn note(&self, what: impl Hash) {
        what.hash(&mut *self.trace.borrow_mut());
    }

    /// Prints what happens, with `SIMULATION_LOG`.
    pub(super) fn log(&self, text: impl FnOnce() -> String) {
        if self.is_logged {
            println!("{:>9} ms  {}", self.ms(), text());
        }
    }

    pub(super) fn trace(&self) -> u64 {
        self.trace.borrow().finish()
    }

    pub(super) fn commits(&self) -> u64 {
        self.commits.get()
    }

    pub(super) fn unasked(&self) -> u64 {
        self.unasked.get()
    }

    /// Makes an actor act at this time or earlier.
    pub(super) fn wake(&self, actor: Actor, at_us: u64) {
        if let Some(seat) = self.seats.iter().find(|seat| seat.actor == actor) {
            seat.wakes_us.set(seat.wakes_us.get().min(at_us));
        }
    }

    pub(super) fn pass(&self, wait: Duration, is_over: &dyn Fn() -> bool) {
        let until_us = self.micros() + wait.as_micros() as u64;
        while !is_over() && self.turn(until_us) {}
        if !is_over() {
            self.now_us.set(self.micros().max(until_us));
        }
        self.check_life();
    }

    /// Runs one actor that acts until `until_us`; false if there is none.
    fn turn(&self, until_us: u64) -> bool {
        self.answer_due();
        let wakes = |seat: &Seat| seat.wakes_us.get().max(self.stalled_until_us(seat.actor));
        let mut free: Vec<(u64, usize)> = (0..self.seats.len())
            .filter(|at| !self.seats[*at].is_busy.get())
            .map(|at| (wakes(&self.seats[at]), at))
            .collect();
        let Some((first_us, _)) = free.iter().min().copied() else { return false };
        let late_us = self.late.borrow().iter().map(|late| late.at_us).min();
        let next_us = late_us.map_or(first_us, |late_us| late_us.min(first_us)).max(self.micros());
        if next_us > until_us {
            return false;
        }
        self.now_us.set(next_us);
        if first_us > next_us {
            return true;
        }
        free.retain(|(wakes_us, _)| *wakes_us <= next_us);
        let (_, at) = *self.pick(&free);
        self.act(&self.seats[at]);
        true
    }

    fn act(&self, seat: &Seat) {
        let actor = seat.actor;
        self.note((self.micros(), actor));
        let pod = actor.pod();
        let life = pod.map_or(0, |pod| self.pods[pod].life());
        seat.is_busy.set(true);
        seat.wakes_us.set(u64::MAX);
        let depth = self.frames.borrow().len();
        self.frames.borrow_mut().push(Frame { pod, life, is_patient: false });
        let acted = catch_unwind(AssertUnwindSafe(|| match actor {
            Actor::Writer(pod) => self.pods[pod].write(self),
            Actor::Reader(pod) => self.pods[pod].read(self),
            Actor::Lease(pod) => self.pods[pod].renew(self),
            Actor::Core(pod) => self.pods[pod].serve(self),
            Actor::Client(client) => self.clients[client].borrow_mut().act(self, client),
            Actor::Faults => self.faults.act(self),
        }));
        self.frames.borrow_mut().truncate(depth);
        seat.is_busy.set(false);
        let next_us = match acted {
            Ok(next_us) => next_us,
            Err(reason) if reason.is::<Killed>() => self.micros(),
            Err(reason) => resume_unwind(reason),
        };
        seat.wakes_us.set(seat.wakes_us.get().min(next_us.max(self.micros() + 1)));
    }

    fn answer_due(&self) {
        let now_us = self.micros();
        let (due, later): (Vec<Late>, Vec<Late>) =
            self.late.take().into_iter().partition(|late| late.at_us <= now_us);
        self.late.replace(later);
        if !due.is_empty() {
            Late::answer(due, self);
        }
    }

    fn stalled_until_us(&self, actor: Actor) -> u64 {
        actor.pod().map_or(0, |pod| self.pods[pod].stalled_until_us.get())
    }

    /// Ends the call if the pod was killed meanwhile, and waits while the pod is stalled.
    fn check_life(&self) {
        let (pod, life) = match self.frames.borrow().last() {
            Some(Frame { pod: Some(pod), life, .. }) => (*pod, *life),
            _ => return,
        };
        let is_killed = || self.pods[pod].life() != life;
        while !is_killed() && self.pods[pod].stalled_until_us.get() > self.micros() {
            let until_us = self.pods[pod].stalled_until_us.get();
            if !self.turn(until_us) {
                self.now_us.set(until_us.max(self.micros()));
            }
        }
        if is_killed() {
            resume_unwind(Box::new(Killed));
        }
    }

    pub(super) fn before_read(&self) -> Result<(), StoreError> {
        if self.one_in(self.plan.overlap) {
            self.pass(Duration::from_micros(self.random(1..2_000)), &|| false);
        }
        self.faults.of_read(self)
    }

    pub(super) fn before_commit(&self) {
        self.pass(Duration::from_micros(self.random(50..3_000)), &|| false);
    }

    pub(super) fn after_commit(&self) {
        self.pass(Duration::from_micros(self.random(50..3_000)), &|| false);
    }

    pub(super) fn note_commit(&self, is_committed: bool) {
        self.commits.set(self.commits.get() + u64::from(is_committed));
        self.note(is_committed);
        if is_committed {
            self.keep_view();
        }
    }

    #[allow(clippy::disallowed_methods, reason = "a part of the simulated engine")]
    fn keep_view(&self) {
        let view = self.store().begin_unretried();
        block_on(view.read_version()).unwrap();
        let mut views = self.views.borrow_mut();
        views.push_back(view);
        if views.len() > VIEWS_MAX {
            views.pop_front();
        }
    }

    pub(super) fn view(&self, version: StoreVersion) -> Option<Transaction> {
        let mut views = self.views.borrow_mut();
        let is_early = |view: &Transaction| block_on(view.read_version()).is_ok_and(|of| of <= version);
        let at = views.iter().rposition(is_early)?;
        self.unasked.set(self.unasked.get() + 1);
        views.remove(at)
    }

    pub(super) fn fate(&self, frees_space: bool) -> Fate {
        let (pod, is_patient) =
            self.frames.borrow().last().map_or((None, false), |frame| (frame.pod, frame.is_patient));
        let fate = self.faults.fate(self, frees_space, is_patient);
        if fate != Fate::Done {
            self.log(|| format!("a commit of {pod:?} {fate:?}"));
        }
        fate
    }

    pub(super) fn break_engine(&self, survivor: Option<Transaction>) {
        self.faults.break_engine(self, survivor);
    }

    pub(super) fn answer_late(&self, late: Late) {
        self.late.borrow_mut().push(late);
    }
}

impl Actor {
    fn pod(self) -> Option<usize> {
        match self {
            Self::Writer(pod) | Self::Reader(pod) | Self::Lease(pod) | Self::Core(pod) => Some(pod),
            Self::Client(_) | Self::Faults => None,
        }
    }
}
