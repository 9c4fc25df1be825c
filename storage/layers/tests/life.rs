//! Two sessions over their lives, against a model: what they read is all that was published to their filters after they
//! subscribed and after their cursor, in order, each message once.

mod common;

use std::collections::BTreeMap;

use bytes::Bytes;
use common::{BROKER, attach, database, id, matches, publish_all, run};
use millrace_layers::{
    Position, Positions,
    sessions::{self, Detach, fence},
    streams::{self, CountedSpan, ReadLimit, StreamSource, Totals},
    subscriptions::{self, StoredOptions},
};
use millrace_storage::Database;
use proptest::prelude::*;

const FILTERS: [&str; 4] = ["a/x", "a/+", "b/#", "$share/g/a/+"];
const TOPICS: [&str; 5] = ["a/x", "a/y", "b", "b/c", "c"];

#[derive(Clone, Debug)]
enum Step {
    /// Messages of two publishers, committed together.
    Publish(Vec<(usize, bool)>),
    Subscribe(usize, usize),
    Unsubscribe(usize, usize),
    Read(usize, usize),
    /// Acknowledges all that was read.
    Checkpoint(usize),
    /// Whether the owner detached or died, and whether the session begins anew.
    Reattach(usize, bool, bool),
    Sweep,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let messages = proptest::collection::vec((0..TOPICS.len(), any::<bool>()), 1..5);
    let step = prop_oneof![
        8 => messages.prop_map(Step::Publish),
        3 => (0..2usize, 0..FILTERS.len()).prop_map(|(session, filter)| Step::Subscribe(session, filter)),
        1 => (0..2usize, 0..FILTERS.len()).prop_map(|(session, filter)| Step::Unsubscribe(session, filter)),
        5 => (0..2usize, 1..8usize).prop_map(|(session, limit)| Step::Read(session, limit)),
        3 => (0..2usize).prop_map(Step::Checkpoint),
        2 => (0..2usize, any::<bool>(), prop::bool::weighted(0.1))
            .prop_map(|(session, farewell, clean)| Step::Reattach(session, farewell, clean)),
        1 => Just(Step::Sweep),
    ];
    proptest::collection::vec(step, 1..60)
}

/// A message of the model: its topic and its number.
type Message = (&'static str, u64);

struct Client {
    name: &'static str,
    epoch: u64,
    /// Filter to the length of the log when it was subscribed to.
    filters: BTreeMap<&'static str, usize>,
    /// The last read, and the length of the log at that time.
    cursor: (Position, usize),
    /// The last acknowledged position.
    checkpoint: (Position, usize),
    /// By stream: totals of the entries read after the checkpoint.
    read: BTreeMap<u64, Totals>,
}

impl Client {
    fn new(database: &Database, name: &'static str) -> Self {
        let epoch = attach(database, name, false).epoch;
        let start = (Position::MIN, 0);
        Self {
            name,
            epoch,
            filters: BTreeMap::new(),
            cursor: start,
            checkpoint: start,
            read: BTreeMap::new(),
        }
    }

    fn wants(&self, number: usize, message: &Message) -> bool {
        let matched = |filter: &str| matches(filter.strip_prefix("$share/g/").unwrap_or(filter), message.0);
        self.filters.iter().any(|(filter, since)| number >= *since && matched(filter))
    }
}

struct World {
    database: Database,
    log: Vec<Message>,
    clients: Vec<Client>,
}

impl World {
    fn new() -> Self {
        let database = database();
        let clients = ["one", "two"].map(|name| Client::new(&database, name)).into();
        Self { database, log: Vec::new(), clients }
    }

    fn publish(&mut self, messages: &[(usize, bool)]) {
        let mut bodies = Vec::new();
        for (topic, long) in messages {
            let (topic, number) = (TOPICS[*topic], self.log.len() as u64);
            let mut body = number.to_be_bytes().to_vec();
            body.resize(if *long { 2_000 } else { 8 }, 0);
            bodies.push((topic, Bytes::from(body)));
            self.log.push((topic, number));
        }
        publish_all(&self.database, &bodies);
    }

    fn subscribe(&mut self, number: usize, filter: &'static str) {
        let client = &mut self.clients[number];
        let made = run(&self.database, async |tx| {
            let owned = fence(tx, id(client.name), client.epoch).await?;
            subscriptions::subscribe(&owned, filter.as_bytes(), StoredOptions::default()).await
        });
        let is_new =
            client.filters.insert(filter, client.filters.get(filter).copied().unwrap_or(self.log.len()));
        assert_eq!(made.existed, is_new.is_some());
    }

    fn unsubscribe(&mut self, number: usize, filter: &'static str) {
        let client = &mut self.clients[number];
        let removed = run(&self.database, async |tx| {
            let owned = fence(tx, id(client.name), client.epoch).await?;
            subscriptions::unsubscribe(&owned, filter.as_bytes()).await
        });
        assert_eq!(removed, client.filters.remove(filter).is_some());
    }

    fn read(&mut self, number: usize, entries: usize) {
        let client = &mut self.clients[number];
        let (batch, sources) = run(&self.database, async |tx| {
            let subscriptions = subscriptions::list(tx, id(client.name)).await?;
            let source =
                |s: &subscriptions::StoredSubscription| StreamSource { stream: s.stream, since: s.since };
            let sources: Vec<StreamSource> = subscriptions.iter().map(source).collect();
            let limit = ReadLimit { entries, bytes: usize::MAX };
            Ok((streams::read(tx, BROKER, &sources, client.cursor.0, limit).await?, sources))
        });
        assert!(batch.missed.is_empty(), "nothing was trimmed that was not acknowledged");
        let found: Vec<u64> = batch.entries.iter().map(|entry| number_of(&entry.body)).collect();
        let after = self.log.iter().enumerate().skip(client.cursor.1);
        let wanted = after.filter(|(number, message)| client.wants(*number, message));
        let expected: Vec<u64> = wanted.map(|(_, message)| message.1).collect();
        assert_eq!(found, expected[..entries.min(expected.len())]);
        assert_eq!(batch.more, expected.len() > entries);
        for entry in &batch.entries {
            for source in &entry.sources {
                client.read.entry(sources[*source].stream).or_default().add(entry.body.len());
            }
        }
        let length = if batch.more { found[found.len() - 1] as usize + 1 } else { self.log.len() };
        client.cursor = (batch.through, length);
    }

    /// Writes the cursor, and trims the streams that nobody else reads.
    fn checkpoint(&mut self, number: usize) {
        let client = &mut self.clients[number];
        run(&self.database, async |tx| {
            let owned = fence(tx, id(client.name), client.epoch).await?;
            sessions::checkpoint(&owned, client.cursor.0, &Positions::default())?;
            for subscription in subscriptions::list(tx, id(client.name)).await? {
                let stream = subscription.stream;
                if subscriptions::is_sole(tx, BROKER, stream).await? {
                    let totals = client.read.get(&stream).copied().unwrap_or_default();
                    let from = client.checkpoint.0.max(Position::end_of(subscription.since));
                    let span = CountedSpan { from, totals };
                    streams::trim(tx, BROKER, stream, client.cursor.0, Some(span)).await?;
                }
            }
            Ok(())
        });
        client.checkpoint = client.cursor;
        client.read.clear();
    }

    fn reattach(&mut self, number: usize, farewell: bool, clean: bool) {
        let client = &mut self.clients[number];
        if farewell {
            let how = Detach { now_ms: 5, expiry_s: None, keep_will: false.into() };
            run(&self.database, async |tx| {
                let owned = fence(tx, id(client.name), client.epoch).await?;
                sessions::checkpoint(&owned, client.cursor.0, &Positions::default())?;
                sessions::detach(owned, how).await
            });
            client.checkpoint = client.cursor;
        }
        let attached = attach(&self.database, client.name, clean);
        assert!(attached.epoch > client.epoch && attached.present != clean);
        if clean {
            *client = Client { epoch: attached.epoch, ..Client::new(&database(), client.name) };
        }
        assert_eq!(attached.record.cursor, client.checkpoint.0);
        assert!(
            attached
                .subscriptions
                .iter()
                .map(|s| &s.filter[..])
                .eq(client.filters.keys().map(|f| f.as_bytes()))
        );
        client.epoch = attached.epoch;
        client.cursor = client.checkpoint;
        client.read.clear();
    }

    fn sweep(&self) {
        let store = millrace_layers::Store::new(self.database.clone());
        let (filters, _, _) = millrace_storage::block_on(store.sweep(BROKER, 3)).expect("a sweep");
        assert_eq!(filters, 0, "no race, nothing left behind");
    }

    /// The counters of the streams say what the streams have.
    fn check_totals(&self) {
        for client in &self.clients {
            run(&self.database, async |tx| {
                for subscription in subscriptions::list(tx, id(client.name)).await? {
                    let source = [StreamSource { stream: subscription.stream, since: 0 }];
                    let all = ReadLimit { entries: 10_000, bytes: usize::MAX };
                    let mut counted = Totals::default();
                    for entry in streams::read(tx, BROKER, &source, Position::MIN, all).await?.entries {
                        counted.add(entry.body.len());
                    }
                    assert_eq!(streams::totals(tx, BROKER, subscription.stream).await?, counted);
                }
                Ok(())
            });
        }
    }
}

fn number_of(body: &Bytes) -> u64 {
    u64::from_be_bytes(*body.first_chunk().expect("a body of this test"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn nothing_is_lost_and_nothing_comes_again_below_the_cursor(steps in steps()) {
        let mut world = World::new();
        for step in steps {
            match step {
                Step::Publish(messages) => world.publish(&messages),
                Step::Subscribe(session, filter) => world.subscribe(session, FILTERS[filter]),
                Step::Unsubscribe(session, filter) => world.unsubscribe(session, FILTERS[filter]),
                Step::Read(session, limit) => world.read(session, limit),
                Step::Checkpoint(session) => world.checkpoint(session),
                Step::Reattach(session, farewell, clean) => world.reattach(session, farewell, clean),
                Step::Sweep => world.sweep(),
            }
        }
        world.check_totals();
        for session in 0..2 {
            world.read(session, 10_000);
            world.checkpoint(session);
            world.reattach(session, true, true);
        }
        world.sweep();
        let mut left = common::rows(&world.database);
        // Each client's session and its row in the pod's index, the versions of buckets, and the last changes of filters.
        left.retain(|row| row.value.len() != 8 && !row.key.windows(4).any(|part| part == b"\x01xl\0"));
        prop_assert_eq!(left.len(), 4, "{:?}", left);
    }
}
