//! Which pod settles a due row: pods that have its broker open, and otherwise one pod of all, so that only one opens it.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use millrace_layers::due::{Due, SHARDS};
use millrace_layers::{BrokerId, LayerError};

use super::sweep::list_due;
use super::writer::Writer;

/// Rows that a step of a pod among others looks at, to find some of its own.
const LOOKED_AT: usize = 1_000;
/// A shard whose first row stays for so long is settled by any pod: the one whose turn it is cannot do it.
const PATIENCE_MS: u64 = 10_000;

/// The first row of each shard, and since when it has been the first one.
#[derive(Default)]
pub(super) struct Firsts([Option<(Due, u64)>; SHARDS as usize]);

impl Firsts {
    fn has_stayed(&mut self, first: &Due, now: u64) -> bool {
        let known = &mut self.0[usize::from(first.shard())];
        match known {
            Some((due, since)) if due == first => now >= *since + PATIENCE_MS,
            _ => {
                *known = Some((first.clone(), now));
                false
            }
        }
    }
}

pub(super) fn due_here(
    writer: &mut Writer<'_>,
    shard: u8,
    now_ms: u64,
    most: usize,
) -> Result<Vec<Due>, LayerError> {
    let shared = writer.shared;
    if !shared.is_shared {
        return list_due(writer, shard, now_ms, most);
    }
    let mut due = list_due(writer, shard, now_ms, LOOKED_AT)?;
    let has_stayed = |first: &Due| writer.duties.firsts.has_stayed(first, shared.clock.now());
    if !due.first().is_some_and(has_stayed) {
        let live = shared.leases.live();
        let is_open = |broker| shared.brokers.peek(broker).is_some();
        due.retain(|due| {
            is_open(due.broker) || is_turn(due.broker, &shared.owner, live.iter().map(|pod| &**pod))
        });
    }
    due.truncate(most);
    Ok(due)
}

/// Whether `own` is the one among the live pods that opens a broker when something of it is due. All pods compute it alike.
fn is_turn<'p>(broker: BrokerId, own: &[u8], mut others: impl Iterator<Item = &'p [u8]>) -> bool {
    let weight = |name: &[u8]| {
        let mut hasher = DefaultHasher::new();
        (broker, name).hash(&mut hasher);
        hasher.finish()
    };
    others.all(|other| weight(own) <= weight(other))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use millrace_layers::Store;
    use millrace_layers::due::{self, DueKind};
    use millrace_storage::{Database, block_on};

    use super::*;
    use crate::clock::Clock;
    use crate::store::Shared;
    use crate::store::lease::{self, Watch};

    fn row(broker: BrokerId) -> Due {
        Due { at_ms: 1, broker, client: Bytes::from_static(b"ann"), kind: DueKind::Expiry }
    }

    #[test]
    fn one_pod_settles_what_is_due_of_a_closed_broker_and_each_what_is_due_of_an_open_one() {
        let layers = Store::new(Database::memory());
        let pods = ["one", "two"].map(|name| Shared::of_test(layers.clone(), Clock::start(), true, name));
        let mut watches = [Watch::default(), Watch::default()];
        for _ in 0..2 {
            pods.iter().zip(&mut watches).for_each(|(pod, watch)| lease::step(pod, watch));
        }
        let names: Vec<String> = (0..20).map(|number| format!("b{number}")).collect();
        let make = |name: &String| block_on(layers.ensure_broker(name.as_bytes())).unwrap().id;
        let brokers: Vec<BrokerId> = names.iter().map(make).collect();
        brokers.iter().for_each(|broker| pods[0].run(&async |tx| due::schedule(tx, &row(*broker))));
        let settled_by = |pod: &Shared| -> Vec<BrokerId> {
            let mut writer = Writer::new(pod);
            let due = (0..SHARDS).flat_map(|shard| due_here(&mut writer, shard, 2, 100).unwrap());
            due.map(|due| due.broker).collect()
        };
        let [one, two] = [&pods[0], &pods[1]].map(settled_by);
        assert!(one.len() > 3 && two.len() > 3, "{one:?} {two:?}");
        let mut all = [one, two].concat();
        all.sort_unstable();
        assert_eq!(all, brokers, "each once");
        for pod in &pods {
            pod.open("b0").unwrap();
            assert!(settled_by(pod).contains(&brokers[0]));
        }
    }

    #[test]
    fn a_row_that_stays_the_first_one_is_for_any_pod() {
        let mut firsts = Firsts::default();
        assert!(!firsts.has_stayed(&row(1), 5) && !firsts.has_stayed(&row(1), 4 + PATIENCE_MS));
        assert!(firsts.has_stayed(&row(1), 5 + PATIENCE_MS));
        let next = Due { at_ms: 2, ..row(1) };
        assert!(!firsts.has_stayed(&next, 5 + PATIENCE_MS));
    }
}
