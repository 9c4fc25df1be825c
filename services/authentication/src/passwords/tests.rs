use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use super::*;
use crate::PendingRequest;

const PATIENCE: Duration = Duration::from_secs(30);

struct World {
    checker: Checker<&'static str>,
    at_once: SyncSender<CheckedPassword<&'static str>>,
    answers: Receiver<CheckedPassword<&'static str>>,
    now_s: Arc<AtomicU32>,
    pending: PendingRequest,
    hash: Box<str>,
    /// While a test holds the gate, no thread begins a second check, so the queue is as the test fills it.
    gate: Arc<Mutex<()>>,
}

impl World {
    fn new(threads: usize) -> Self {
        let (sender, answers) = sync_channel(1_000);
        let at_once = sender.clone();
        let now_s = Arc::new(AtomicU32::new(1));
        let clock = now_s.clone();
        let gate = Arc::new(Mutex::new(()));
        let passed = gate.clone();
        let checker = Checker::start(
            threads,
            &[7; 32],
            Box::new(move || clock.load(Ordering::Relaxed)),
            Box::new(move |answer| {
                drop(passed.lock().unwrap());
                sender.send(answer).unwrap();
            }),
        );
        let hash = chosen::hash(b"right", &[1; 16]).unwrap();
        Self {
            checker: checker.unwrap(),
            at_once,
            answers,
            now_s,
            pending: PendingRequest::default(),
            hash: hash.into(),
            gate,
        }
    }

    fn request(&self, last: u8, password: &str, context: &'static str) -> PasswordRequest<&'static str> {
        PasswordRequest {
            tenant: "t".into(),
            broker: 1,
            source: ClientSource::new(Some([10, 0, 0, last].into())),
            user: "ann".into(),
            password: password.as_bytes().into(),
            hashes: vec![self.hash.clone()],
            cancellation: self.pending.cancellation(),
            context,
        }
    }

    /// Submits a request; an answer that comes at once stands in the line with the others.
    fn check(&self, request: PasswordRequest<&'static str>) {
        if let Some(answer) = self.checker.check(request) {
            self.at_once.send(answer).unwrap();
        }
    }

    fn next(&self) -> (&'static str, CheckOutcome) {
        let answer = self.answers.recv_timeout(PATIENCE).expect("an answer");
        (answer.context, answer.outcome)
    }
}

#[test]
fn right_and_wrong_passwords_are_remembered_wrong_ones_for_seconds() {
    let world = World::new(2);
    for (password, outcome) in [("right", CheckOutcome::Right), ("guess", CheckOutcome::Wrong)] {
        for _ in 0..3 {
            world.check(world.request(1, password, "it"));
            assert_eq!(world.next(), ("it", outcome));
        }
    }
    let counts = world.checker.counts();
    assert_eq!((counts.right, counts.wrong, counts.remembered, counts.waiting), (1, 1, 4, 0));
    world.now_s.fetch_add(limits::WRONG_S, Ordering::Relaxed);
    for (password, outcome) in [("right", CheckOutcome::Right), ("guess", CheckOutcome::Wrong)] {
        world.check(world.request(1, password, "again"));
        assert_eq!(world.next(), ("again", outcome));
    }
    let counts = world.checker.counts();
    assert_eq!((counts.right, counts.wrong), (1, 2), "the right one is still known");
}

#[test]
fn a_right_password_waits_for_few_of_the_wrong_ones() {
    for last in [1, 2] {
        let world = World::new(1);
        let closed = world.gate.lock().unwrap();
        for number in 0..60 {
            world.check(world.request(1, &format!("guess {number}"), "wrong"));
        }
        world.check(world.request(last, "right", "right"));
        drop(closed);
        let before = std::iter::from_fn(|| Some(world.next())).position(|(context, _)| context == "right");
        // The one under way, and one whose turn came first.
        assert!(before.is_some_and(|before| before <= 4), "address {last}: {before:?}");
    }
}

#[test]
fn checks_of_a_connection_that_has_gone_are_skipped() {
    let mut world = World::new(1);
    let stays = PendingRequest::default();
    let cancellation = stays.cancellation();
    let gate = world.gate.clone();
    let closed = gate.lock().unwrap();
    for number in 0..200 {
        world.check(world.request(1, &format!("guess {number}"), "gone"));
    }
    world.pending = PendingRequest::default();
    world.check(PasswordRequest { cancellation, ..world.request(1, "right", "stays") });
    drop(closed);
    while world.next().0 != "stays" {}
    let counts = loop {
        let counts = world.checker.counts();
        if counts.waiting == 0 {
            break counts;
        }
        std::thread::yield_now();
    };
    assert!(counts.cancelled + counts.wrong >= 199 && counts.cancelled > 150, "{counts:?}");
}
