//! The clients of a run: publishers, subscribers, clients with wills (`mortal`), and clients that
//! subscribe anew to retained messages (`probe`). The report of a broken promise names them, so
//! their names say what they do.

use std::ops::Range;
use std::sync::Arc;

use fastrand::Rng;

use crate::client::{Client, Habit, Identity, Mortal, Probe, Publisher, Role, Subscriber, Target, Wish};
use crate::stage::Stage;
use millrace_torture::history::ClientInfo;

/// Publishers with a persistent session. [`TRANSIENT_PUBLISHERS`] have none and publish with QoS 1
/// only.
const PUBLISHERS: u32 = 5;
const TRANSIENT_PUBLISHERS: u32 = 2;
const TOPICS: u32 = 4;
const RETAINED_PUBLISHERS: u32 = 2;
/// Two thirds of the clients with wills speak 5.0.
const MORTALS: u32 = 6;
/// Sessions with the same two overlapping filters.
const SHARING: u32 = 4;
/// Messages of one publisher in flight: below every server's default Receive Maximum.
const WINDOWS: Range<usize> = 4..13;
/// Packet ids of every other publisher: so few that each is used again at once.
const FEW_PACKET_IDS: u16 = 16;
/// Subscriptions of each subscriber that begin later in the run.
const LATE_WISHES: usize = 3;

/// The same seed makes the same clients; `storm_ms` is the approximate duration of the traffic
/// before the final checks.
pub(crate) fn clients(stage: &mut Stage, seed: u64, storm_ms: u64) -> Vec<Client> {
    let mut cast = Cast { stage, rng: Rng::with_seed(seed), clients: Vec::new(), storm_ms };
    cast.publishers();
    cast.subscribers();
    for at in 0..MORTALS {
        let v5 = at % 3 > 0;
        let name = format!("mortal-{at}");
        let role = Mortal::new(name.clone(), v5);
        cast.add(name, v5, false, Box::new(role));
    }
    for v5 in [false, true] {
        let name = format!("probe-{}", version(v5));
        cast.add(name, v5, false, Box::new(Probe::default()));
    }
    cast.clients
}

struct Cast<'a> {
    stage: &'a mut Stage,
    rng: Rng,
    clients: Vec<Client>,
    storm_ms: u64,
}

impl Cast<'_> {
    fn add(&mut self, name: String, v5: bool, persistent: bool, role: Box<dyn Role>) {
        let info = ClientInfo { name: name.clone(), v5, persistent };
        let me = Identity { id: self.stage.history.client(info), name, v5, persistent };
        self.clients.push(Client::new(me, self.rng.u64(..), role));
    }

    fn publishers(&mut self) {
        for at in 0..PUBLISHERS + TRANSIENT_PUBLISHERS {
            let persistent = at < PUBLISHERS;
            let qos = |topic: u32| if persistent { 1 + (topic + 1) as u8 % 2 } else { 1 };
            let targets = (0..TOPICS).map(|topic| target(format!("data/p{at}/t{topic}"), qos(topic)));
            let role = self.publisher(targets.collect(), false, at);
            self.add(format!("publisher-{at}"), at % 2 == 0, persistent, Box::new(role));
        }
        for at in 0..RETAINED_PUBLISHERS {
            let targets = (0..TOPICS).map(|topic| target(format!("ret/k{at}/t{topic}"), 1 + topic as u8 % 2));
            let role = self.publisher(targets.collect(), true, at);
            self.add(format!("retained-publisher-{at}"), at % 2 == 0, true, Box::new(role));
        }
    }

    fn publisher(&mut self, targets: Vec<Target>, retain: bool, at: u32) -> Publisher {
        let packet_ids = if at.is_multiple_of(2) { FEW_PACKET_IDS } else { u16::MAX };
        Publisher::new(targets, retain, self.rng.usize(WINDOWS), packet_ids)
    }

    fn subscribers(&mut self) {
        let steady = || Habit::new(1_500..6_000, 0..50);
        let flappy = || Habit::new(50..600, 0..150);
        let rare = || Habit::new(200..700, 1_500..6_000);
        let slow = || Habit { ack_delay_ms: 0..60, pause_ms: 50..400, ..Habit::new(600..3_000, 0..400) };
        let habits = [steady(), flappy(), rare(), slow()];

        for (at, habit) in habits.iter().enumerate() {
            self.subscriber(&format!("all-{at}"), vec![early("data/#", 2)], habit.clone());
        }
        for at in 0..SHARING {
            let wishes = vec![early("data/p0/+", 1), early("data/+/t0", 2)];
            self.subscriber(&format!("sharing-{at}"), wishes, habits[at as usize % habits.len()].clone());
        }
        // Subscribers with exact filters, and with one topic by three filters of different QoS.
        for (at, habit) in habits.iter().enumerate() {
            let own = format!("data/p{at}/t{at}");
            let mut wishes = vec![early(&own, 2), early(&format!("data/p{at}/#"), 1), early("data/+/t3", 1)];
            wishes.push(Wish { toggles: true, ..early(&format!("data/p{}/t0", at + 1), 2) });
            self.subscriber(&format!("exact-{at}"), wishes, habit.clone());
        }
        // Subscribers that toggle a subscription, and have no other.
        for (at, habit) in [steady(), flappy()].into_iter().enumerate() {
            let wish = |filter: &str, qos| Wish { toggles: true, ..early(filter, qos) };
            let wishes = vec![wish("data/p2/+", 1), wish("data/p3/t0", 2), wish("data/p5/#", 1)];
            self.subscriber(&format!("fickle-{at}"), wishes, habit);
        }
        for (at, habit) in [steady(), flappy()].into_iter().enumerate() {
            let (name, v5) = (format!("watcher-{at}"), at == 0);
            let role = Subscriber::new(vec![early("will/#", 2)], habit);
            self.add(name, v5, true, Box::new(role));
        }
    }

    /// Adds [`LATE_WISHES`] to the subscriptions.
    fn subscriber(&mut self, name: &str, mut wishes: Vec<Wish>, habit: Habit) {
        for _ in 0..LATE_WISHES {
            let (publisher, topic) =
                (self.rng.u32(0..PUBLISHERS + TRANSIENT_PUBLISHERS), self.rng.u32(0..TOPICS));
            let filters = [
                format!("data/p{publisher}/t{topic}"),
                format!("data/p{publisher}/+"),
                format!("data/+/t{topic}"),
                format!("+/p{publisher}/t{topic}/#"),
            ];
            let filter = &filters[self.rng.usize(0..filters.len())];
            // A second SUBSCRIBE to the same filter would replace the first, which is another test.
            if wishes.iter().all(|wish| wish.filter != *filter) {
                let qos = self.rng.u8(1..=2);
                wishes.push(Wish { from_ms: self.rng.u64(0..self.storm_ms), ..early(filter, qos) });
            }
        }
        let v5 = self.clients.len().is_multiple_of(2);
        let name = format!("{name}-{}", version(v5));
        self.add(name, v5, true, Box::new(Subscriber::new(wishes, habit)));
    }
}

impl Habit {
    fn new(online_ms: Range<u64>, away_ms: Range<u64>) -> Self {
        Self { online_ms, away_ms, ack_delay_ms: 0..0, pause_ms: 0..0 }
    }
}

fn early(filter: &str, qos: u8) -> Wish {
    Wish { filter: filter.to_owned(), qos, from_ms: 0, toggles: false }
}

fn target(topic: String, qos: u8) -> Target {
    Target { topic: Arc::from(topic), qos, sequence: 0 }
}

fn version(v5: bool) -> &'static str {
    if v5 { "v5" } else { "v311" }
}
