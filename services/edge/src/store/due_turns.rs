//! Decides which pod settles a due row: pods that have its broker open, and otherwise one pod of all, so that only one opens it.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use bytes::Bytes;
use millrace_layers::due::{self, Due, DueRange, SHARDS};
use millrace_layers::{BrokerId, LayerError};

use super::sweep::list_due;
use super::writer::Writer;

/// Rows that one step of a pod reads to find some of its own, when several pods share the store.
const LOOKED_AT: usize = 1_000;
/// Milliseconds after which a first row of a shard shows that the pod whose turn it is cannot settle it.
const PATIENCE_MS: u64 = 10_000;
/// Milliseconds for which the next pods then have the turns of that pod.
const PASSED_OVER_MS: u64 = 60_000;
/// Milliseconds for which rows of other brokers come before those of a broker that conflicts again and again.
const CONTENDED_MS: u64 = 500;

#[derive(Default)]
pub(super) struct DueTurns {
    shards: [DueShard; SHARDS as usize],
    /// Pods that did not settle a row, and until when they have no turns.
    passed_over: Vec<(Bytes, u64)>,
    /// Brokers of which a single row could not be settled because of conflicts, and until when they wait.
    contended: Vec<(BrokerId, u64)>,
}

#[derive(Default)]
struct DueShard {
    /// The first row, the pod whose turn it is, and since when both are the same.
    first: Option<(Due, Bytes, u64)>,
    /// Where the next look begins: rows of other pods do not keep this pod from its own behind them.
    after: Option<Due>,
}

struct Pods<'p> {
    own: &'p [u8],
    live: &'p [Bytes],
    can_commit_since: Option<u64>,
}

impl DueTurns {
    /// The other pod that opens a broker when something of it is due; `None`: this pod. All pods compute it alike; while builds hash
    /// differently, a broker may be opened twice, or only after `PATIENCE_MS`.
    fn other<'p>(&self, broker: BrokerId, pods: &Pods<'p>) -> Option<&'p Bytes> {
        let weight = |name: &[u8]| {
            let mut hasher = DefaultHasher::new();
            (broker, name).hash(&mut hasher);
            hasher.finish()
        };
        let is_passed_over = |pod: &Bytes| self.passed_over.iter().any(|(name, _)| name == pod);
        let live = pods.live.iter().filter(|pod| !is_passed_over(pod));
        live.min_by_key(|pod| weight(pod)).filter(|pod| weight(pod) < weight(pods.own))
    }

    pub(super) fn put_off(&mut self, broker: BrokerId, now: u64) {
        self.contended.push((broker, now + CONTENDED_MS));
    }

    fn is_put_off(&self, broker: BrokerId) -> bool {
        self.contended.iter().any(|(of, _)| *of == broker)
    }

    fn note_first(&mut self, first: &Due, is_open_here: bool, pods: &Pods<'_>, now: u64) {
        self.passed_over.retain(|(_, until)| now < *until);
        let pod = self.other(first.broker, pods).filter(|_| !is_open_here);
        let known = &mut self.shards[usize::from(first.shard())].first;
        match (known, pod) {
            (known, None) => *known = None,
            (Some((due, name, since)), Some(pod)) if due == first && name == pod => {
                // While this pod cannot commit, the store may refuse the commits of the other pod as well.
                let since = pods.can_commit_since.map(|can| can.max(*since));
                if since.is_some_and(|since| now >= since + PATIENCE_MS) {
                    self.passed_over.push((pod.clone(), now + PASSED_OVER_MS));
                }
            }
            (known, Some(pod)) => *known = Some((first.clone(), pod.clone(), now)),
        }
    }
}

pub(super) fn due_here(
    writer: &mut Writer<'_>,
    shard: u8,
    unix_now_ms: u64,
    most: usize,
) -> Result<Vec<Due>, LayerError> {
    let now = writer.shared.clock.now();
    if !writer.shared.is_shared {
        return list_due(writer, shard, unix_now_ms, most);
    }
    due_at(writer, shard, (unix_now_ms, now), most)
}

fn due_at(
    writer: &mut Writer<'_>,
    shard: u8,
    (unix_now_ms, now): (u64, u64),
    most: usize,
) -> Result<Vec<Due>, LayerError> {
    let (shared, place) = (writer.shared, usize::from(shard));
    let after = writer.duties.turns.shards[place].after.take();
    let range = DueRange { shard, from: after.as_ref(), until_ms: unix_now_ms };
    let listed = shared.layers.run(async |tx| due::list_due(&tx, range, LOOKED_AT).await);
    let mut due = writer.wait(listed)?;
    let turns = &mut writer.duties.turns;
    turns.contended.retain(|(_, until)| now < *until);
    let live = shared.leases.live();
    let can_commit_since = shared.leases.can_commit_since(now);
    let pods = Pods { own: &shared.owner, live: &live, can_commit_since };
    let is_open = |broker| shared.brokers.peek(broker).is_some();
    if let (Some(first), None) = (due.first(), &after) {
        turns.note_first(first, is_open(first.broker), &pods, now);
    }
    let last = due.last().filter(|_| due.len() == LOOKED_AT).cloned();
    due.retain(|due| {
        !turns.is_put_off(due.broker) && (is_open(due.broker) || turns.other(due.broker, &pods).is_none())
    });
    turns.shards[place].after = match due.is_empty() {
        true => last,
        // More rows may follow: the next look begins at the same position, so that a failed step tries fewer of the same rows.
        false if last.is_some() || due.len() > most => after,
        false => None,
    };
    due.truncate(most);
    Ok(due)
}

#[cfg(test)]
mod tests {
    use millrace_layers::Store;
    use millrace_layers::due::DueKind;
    use millrace_storage::{Database, block_on};

    use super::*;
    use crate::clock::Clock;
    use crate::store::StoreContext;
    use crate::store::lease::{self, Watch};

    fn row(broker: BrokerId) -> Due {
        Due { at_ms: 1, broker, client: Bytes::from_static(b"ann"), kind: DueKind::Expiry }
    }

    fn rows(broker: BrokerId, clients: usize) -> impl Iterator<Item = Due> {
        (0..clients).map(move |client| Due { client: format!("c{client}").into(), ..row(broker) })
    }

    /// Two live pods, and the numbers of 20 brokers that both have closed.
    fn two_pods() -> ([StoreContext; 2], Vec<BrokerId>) {
        let layers = Store::new(Database::memory());
        let pods =
            ["one", "two"].map(|name| StoreContext::of_test(layers.clone(), Clock::start(), true, name));
        let mut watches = [Watch::default(), Watch::default()];
        for _ in 0..2 {
            pods.iter().zip(&mut watches).for_each(|(pod, watch)| lease::step(pod, watch));
        }
        let make = |number| block_on(layers.ensure_broker(format!("b{number}").as_bytes())).unwrap().id;
        (pods, (0..20).map(make).collect())
    }

    fn schedule(pod: &StoreContext, rows: &[Due]) {
        pod.run(&async |tx| rows.iter().try_for_each(|due| due::schedule(tx, due)));
    }

    fn settle(writer: &mut Writer<'_>, now: u64, most: usize) -> Vec<Due> {
        let due = (0..SHARDS).flat_map(|shard| due_at(writer, shard, (5, now), most).unwrap());
        let due: Vec<Due> = due.collect();
        writer.shared.run(&async |tx| due::take_listed(tx, &due).await);
        due
    }

    fn settle_all(writer: &mut Writer<'_>, now: u64, most: usize) -> Vec<Due> {
        let mut all = Vec::new();
        loop {
            match settle(writer, now, most) {
                due if due.is_empty() => return all,
                due => all.extend(due),
            }
        }
    }

    #[test]
    fn one_pod_settles_what_is_due_of_a_closed_broker_and_each_what_is_due_of_an_open_one() {
        let (pods, brokers) = two_pods();
        schedule(&pods[0], &brokers.iter().map(|broker| row(*broker)).collect::<Vec<_>>());
        let settled_by = |pod: &StoreContext| -> Vec<BrokerId> {
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

    const START: u64 = 100_000;

    /// The store accepts the renewals of a pod at these times.
    fn renew(pod: &StoreContext, times: std::ops::RangeInclusive<u64>) {
        times.step_by(500).for_each(|now| pod.leases.note_renewal(now, pod.leases.live(), Vec::new()));
    }

    #[test]
    fn a_pod_that_settles_nothing_for_a_while_is_passed_over_with_all_its_rows() {
        let (pods, brokers) = two_pods();
        let all: Vec<Due> = brokers.iter().flat_map(|broker| rows(*broker, 8)).collect();
        schedule(&pods[0], &all);
        let mut writer = Writer::new(&pods[0]);
        renew(&pods[0], START..=START + PATIENCE_MS);
        let own = settle_all(&mut writer, START, 1).len();
        assert!(own > 0 && own < all.len());
        assert!(settle(&mut writer, START + PATIENCE_MS - 1, 1).is_empty());
        let taken = settle_all(&mut writer, START + PATIENCE_MS, 1).len();
        assert_eq!(own + taken, all.len());
    }

    #[test]
    fn no_pod_is_passed_over_for_the_time_in_which_this_one_could_not_commit() {
        let (pods, brokers) = two_pods();
        schedule(&pods[0], &brokers.iter().map(|broker| row(*broker)).collect::<Vec<_>>());
        let mut writer = Writer::new(&pods[0]);
        renew(&pods[0], START..=START);
        settle_all(&mut writer, START, 100);
        assert!(settle(&mut writer, START + PATIENCE_MS, 100).is_empty(), "no commit succeeds");
        let again = START + 2 * PATIENCE_MS;
        renew(&pods[0], again..=again + PATIENCE_MS);
        assert!(settle(&mut writer, again, 100).is_empty(), "the other pod has just begun, too");
        assert!(!settle(&mut writer, again + PATIENCE_MS, 100).is_empty());
    }

    #[test]
    fn no_pod_is_passed_over_for_a_row_of_a_broker_that_is_open_here() {
        let (pods, brokers) = two_pods();
        schedule(&pods[0], &brokers.iter().map(|broker| row(*broker)).collect::<Vec<_>>());
        let mut writer = Writer::new(&pods[0]);
        (0..brokers.len()).for_each(|number| drop(pods[0].open(&format!("b{number}"))));
        renew(&pods[0], START..=START + PATIENCE_MS);
        let list = |writer: &mut Writer<'_>, now| {
            (0..SHARDS).for_each(|shard| drop(due_at(writer, shard, (5, now), 100).unwrap()));
        };
        list(&mut writer, START);
        list(&mut writer, START + PATIENCE_MS);
        assert!(writer.duties.turns.passed_over.is_empty());
    }

    #[test]
    fn a_pod_finds_its_rows_behind_any_number_of_those_of_others() {
        let (pods, brokers) = two_pods();
        let mut writer = Writer::new(&pods[0]);
        schedule(&pods[0], &brokers.iter().map(|broker| row(*broker)).collect::<Vec<_>>());
        let own: Vec<BrokerId> = settle_all(&mut writer, 0, 100).iter().map(|due| due.broker).collect();
        let other = *brokers.iter().find(|broker| !own.contains(broker)).unwrap();
        let own = own[0];
        let others: Vec<Due> =
            rows(other, 5 * LOOKED_AT * usize::from(SHARDS)).filter(|due| due.shard() == 0).collect();
        assert!(others.len() > 2 * LOOKED_AT);
        others.chunks(1_000).for_each(|some| schedule(&pods[0], some));
        let behind = |client: usize| Due { at_ms: 2, client: format!("c{client}").into(), ..row(own) };
        let behind = (0..).map(behind).find(|due| due.shard() == 0).unwrap();
        schedule(&pods[0], std::slice::from_ref(&behind));
        let found = (0..10).find_map(|_| settle(&mut writer, 0, 100).pop());
        assert_eq!(found, Some(behind));
        let early = Due { at_ms: 0, ..rows(own, 100).find(|due| due.shard() == 0).unwrap() };
        schedule(&pods[0], std::slice::from_ref(&early));
        let found = (0..10).find_map(|_| settle(&mut writer, 0, 100).pop());
        assert_eq!(found, Some(early.clone()), "and then from the start again");

        // One after the other comes at the end.
        let mut behind = rows(own, 1_000).filter(|due| due.shard() == 0).map(|due| Due { at_ms: 3, ..due });
        for _ in 0..3 {
            schedule(&pods[0], &[behind.next().unwrap()]);
            settle(&mut writer, 0, 100);
        }
        schedule(&pods[0], std::slice::from_ref(&early));
        let found = (0..10).find(|_| {
            schedule(&pods[0], &[behind.next().unwrap()]);
            settle(&mut writer, 0, 100).contains(&early)
        });
        assert!(found.is_some());
    }

    #[test]
    fn rows_of_a_broker_in_conflict_wait_for_a_moment_behind_those_of_others() {
        let (pods, brokers) = two_pods();
        (0..brokers.len()).for_each(|number| drop(pods[0].open(&format!("b{number}"))));
        let rows = |broker| rows(broker, 1_000).filter(|due| due.shard() == 0).take(10);
        let mut contended: Vec<Due> = rows(brokers[0]).collect();
        let mut other: Vec<Due> = rows(brokers[1]).map(|due| Due { at_ms: 2, ..due }).collect();
        contended.sort();
        other.sort();
        schedule(&pods[0], &[&contended[..], &other[..]].concat());
        let mut writer = Writer::new(&pods[0]);
        let mut next = |now| due_at(&mut writer, 0, (5, now), 1).unwrap().pop();
        assert_eq!(next(0).as_ref(), contended.first());
        writer.duties.turns.put_off(brokers[0], 0);
        let mut next = |now| due_at(&mut writer, 0, (5, now), 1).unwrap().pop();
        assert_eq!(next(CONTENDED_MS - 1).as_ref(), other.first());
        assert_eq!(next(CONTENDED_MS).as_ref(), contended.first());
    }
}
