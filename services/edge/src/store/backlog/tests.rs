//! Which jobs a transaction gets, by brokers, costs and shares.

use super::*;

/// A job of a broker with a name, a checkpoint, or a `barrier`: a job without a cost that shows when all before it are written.
#[derive(Clone, Copy, Debug)]
struct Job {
    lane: Lane,
    name: &'static str,
    cost: usize,
    part_cost: Option<usize>,
    /// Its cost that is in the transaction.
    part: usize,
    session: Option<u64>,
}

impl BacklogJob for Job {
    fn lane(&self) -> Lane {
        self.lane
    }
    fn bytes(&self) -> usize {
        10
    }
    fn cost(&self) -> usize {
        self.cost
    }
    fn part_cost(&self) -> Option<usize> {
        self.part_cost
    }
    fn limit_to(&mut self, cost: usize) {
        self.part = cost;
    }
    fn session(&self) -> Option<u64> {
        self.session
    }
    fn changes_index(&self) -> bool {
        self.name == "subscribe"
    }
    fn begins_transaction(&self, index_changed: bool) -> bool {
        self.name == "publish" && index_changed || self.name == "detach"
    }
}

fn of(broker: u64, name: &'static str, cost: usize) -> Job {
    Job { lane: Lane::Broker(broker), name, cost, part_cost: None, part: cost, session: None }
}

/// A SUBSCRIBE that may be written in parts.
fn in_parts(broker: u64, filters: usize) -> Job {
    Job { part_cost: Some(20), part: 0, ..of(broker, "subscribe", 20 * filters) }
}

/// The next transaction; what it leaves of a job goes back.
fn write(backlog: &mut Backlog<Job>) -> Vec<Job> {
    let batch = backlog.next_batch(BUDGET);
    for job in batch.iter().filter(|job| job.part < job.cost && job.part_cost.is_some()) {
        backlog.put_back(Job { cost: job.cost - job.part, part: 0, ..*job });
    }
    batch
}

const SHARE: usize = 100;
const BUDGET: BatchBudget = BatchBudget { jobs: 1_000, bytes: 1_000_000, cost: 4_000, share: SHARE };

fn backlog(jobs: impl IntoIterator<Item = Job>) -> Backlog<Job> {
    let mut backlog = Backlog::default();
    backlog.push(jobs);
    backlog
}

fn names(backlog: &mut Backlog<Job>) -> Vec<&'static str> {
    backlog.next_batch(BUDGET).iter().map(|job| job.name).collect()
}

/// The cost of each broker in a batch.
fn costs(batch: &[Job]) -> [usize; 3] {
    [1, 2, 3].map(|broker| {
        let of_broker = batch.iter().filter(|job| job.lane == Lane::Broker(broker));
        of_broker.map(|job| job.part).sum()
    })
}

#[test]
fn a_flood_of_costly_jobs_adds_as_much_to_a_transaction_as_the_others_do() {
    for (others, flood) in [(1, 100), (20, 100), (100, 100), (400, 400)] {
        let mut backlog = backlog(std::iter::repeat_n(of(1, "subscribe", 20), 5_000));
        backlog.push(std::iter::repeat_n(of(2, "publish", 1), others));
        for _ in 0..2 {
            let batch = backlog.next_batch(BUDGET);
            assert_eq!(costs(&batch), [flood, others, 0], "{others}");
            backlog.push(std::iter::repeat_n(of(2, "publish", 1), others));
        }
    }
}

#[test]
fn brokers_with_as_much_to_write_share_a_full_transaction_and_one_alone_fills_it() {
    let mut backlog = backlog(std::iter::repeat_n(of(1, "publish", 1), 3_000));
    backlog.push(std::iter::repeat_n(of(2, "publish", 1), 1_500));
    assert_eq!(costs(&backlog.next_batch(BUDGET)), [500, 500, 0]);
    assert_eq!(costs(&backlog.next_batch(BUDGET)), [500, 500, 0]);
    assert_eq!(costs(&backlog.next_batch(BUDGET)), [500, 500, 0]);
    // The other broker may come back, so broker 1 keeps to its share for `RECENT` transactions.
    assert_eq!(costs(&backlog.next_batch(BUDGET)), [500, 0, 0]);
    assert_eq!(costs(&backlog.next_batch(BUDGET)), [500, 0, 0]);
    assert_eq!(costs(&backlog.next_batch(BUDGET)), [500, 0, 0]);
    assert!(backlog.is_empty() && backlog.next_batch(BUDGET).is_empty());
    backlog.push(std::iter::repeat_n(of(1, "publish", 1), 9_000));
    let alone: Vec<usize> = (0..7).map(|_| backlog.next_batch(BUDGET).len()).collect();
    assert_eq!(alone, [500, 500, 500, 500, 500, 1_000, 1_000]);
}

#[test]
fn costly_jobs_wait_for_the_brokers_of_the_last_transaction_and_others_do_not() {
    let mut backlog = backlog([of(1, "subscribe", 20), of(1, "subscribe", 20), of(2, "publish", 1)]);
    assert!(!backlog.is_early(SHARE), "there was no transaction before");
    backlog.next_batch(BUDGET);
    backlog.push([of(1, "subscribe", 20)]);
    assert!(backlog.is_early(SHARE));
    backlog.push([of(2, "publish", 1)]);
    assert!(!backlog.is_early(SHARE));
    backlog.next_batch(BUDGET);
    backlog.push([of(1, "publish", 1)]);
    assert!(!backlog.is_early(SHARE), "a message does not wait");
    backlog.next_batch(BUDGET);
    backlog.push([of(1, "subscribe", 20)]);
    assert!(!backlog.is_early(SHARE), "the other one was not in the last transaction");
}

#[test]
fn a_flood_of_messages_waits_for_the_brokers_of_the_last_transaction_too() {
    let mut backlog = backlog(std::iter::repeat_n(of(1, "publish", 1), 1_000));
    backlog.push([of(2, "publish", 1)]);
    backlog.next_batch(BUDGET);
    assert!(backlog.has_jobs_of(1) && !backlog.has_jobs_of(2));
    assert!(backlog.is_early(SHARE), "broker 1 has more than a share");
    backlog.push([of(2, "publish", 1)]);
    assert!(!backlog.is_early(SHARE));
    while backlog.has_jobs_of(1) {
        backlog.push([of(2, "publish", 1)]);
        backlog.next_batch(BUDGET);
    }
    backlog.push(std::iter::repeat_n(of(1, "publish", 1), SHARE));
    assert!(!backlog.is_early(SHARE), "a share is not a flood");
}

#[test]
fn a_publish_waits_for_the_index_changes_of_its_own_broker_alone() {
    let mut backlog = backlog([
        of(1, "publish", 1),
        of(1, "subscribe", 1),
        of(1, "publish", 1),
        of(2, "publish", 1),
        of(2, "publish", 1),
    ]);
    assert_eq!(names(&mut backlog), ["publish", "subscribe", "publish", "publish"]);
    assert_eq!(names(&mut backlog), ["publish"]);
}

#[test]
fn a_job_that_begins_a_transaction_waits_for_those_before_it_and_is_taken_when_there_are_none() {
    let mut backlog = backlog([of(1, "publish", 1), of(1, "detach", 1), of(1, "detach", 1)]);
    for expected in ["publish", "detach", "detach"] {
        assert_eq!(names(&mut backlog), [expected]);
    }
}

#[test]
fn checkpoints_take_turns_with_other_jobs_and_come_after_publishes() {
    let checkpoint = Job { lane: Lane::Checkpoint, session: Some(1), ..of(0, "checkpoint", 1) };
    let mut backlog = backlog(std::iter::repeat_n(checkpoint, 5_000));
    backlog.push(std::iter::repeat_n(of(1, "publish", 1), 1_500));
    let mut costs = Vec::new();
    while !backlog.is_empty() {
        backlog.push(std::iter::repeat_n(of(1, "publish", 1), if costs.len() < 8 { 10 } else { 0 }));
        let names = names(&mut backlog);
        assert!(names.iter().all(|name| *name == names[0]), "checkpoints share no transaction with others");
        costs.push((names[0], names.len()));
    }
    let turns = [
        ("publish", 1_000),
        ("checkpoint", 1_000),
        ("publish", 530),
        ("checkpoint", 530),
        ("publish", 20),
        ("checkpoint", 433),
        ("publish", 20),
        ("checkpoint", 379),
    ];
    assert_eq!(costs[..8], turns, "as many checkpoints as jobs before them, or an eighth of those that wait");
    assert_eq!(
        costs.iter().filter(|(name, _)| *name == "checkpoint").map(|(_, count)| count).sum::<usize>(),
        5_000
    );
}

#[test]
fn a_job_waits_for_the_checkpoints_of_its_session_and_a_publish_for_none() {
    let of_session = |name, session| Job { session: Some(session), ..of(1, name, 1) };
    let checkpoint = |session| Job { lane: Lane::Checkpoint, ..of_session("checkpoint", session) };
    let mut backlog = backlog([checkpoint(5), checkpoint(5), checkpoint(6)]);
    backlog.push([of(1, "publish", 1), of_session("ids", 7), of_session("ids", 5), of(1, "publish", 1)]);
    assert_eq!(names(&mut backlog), ["publish", "ids"]);
    assert_eq!(names(&mut backlog), ["checkpoint"; 3]);
    assert_eq!(names(&mut backlog), ["ids", "publish"]);
    backlog.push([checkpoint(5), of_session("detach", 5)]);
    assert_eq!(names(&mut backlog), ["checkpoint"]);
    assert_eq!(names(&mut backlog), ["detach"]);
    assert!(backlog.is_empty() && backlog.checkpointed.is_empty());
}

#[test]
fn a_session_that_acknowledges_all_the_time_does_not_hold_up_its_broker() {
    let checkpoint =
        |session| Job { lane: Lane::Checkpoint, session: Some(session), ..of(0, "checkpoint", 1) };
    let mut backlog = backlog([checkpoint(5)]);
    backlog.push([Job { session: Some(5), ..of(1, "subscribe", 1) }, of(2, "publish", 1)]);
    backlog.push([checkpoint(5)]);
    assert_eq!(names(&mut backlog), ["publish"]);
    backlog.push(std::iter::repeat_n(of(2, "publish", 1), 1_000));
    backlog.push(std::iter::repeat_n(checkpoint(6), 800));
    let of_session = names(&mut backlog).len();
    assert!((2..800).contains(&of_session), "{of_session}");
    backlog.push([checkpoint(5)]);
    assert!(names(&mut backlog).contains(&"subscribe"), "it waits for earlier checkpoints only");
}

#[test]
fn checkpoints_that_hold_up_all_others_fill_their_transaction() {
    let checkpoint = Job { lane: Lane::Checkpoint, session: Some(5), ..of(0, "checkpoint", 1) };
    let mut backlog = backlog(std::iter::repeat_n(checkpoint, 900));
    backlog.push([Job { session: Some(5), ..of(1, "detach", 1) }]);
    assert_eq!(names(&mut backlog).len(), 900);
    assert_eq!(names(&mut backlog), ["detach"]);
}

#[test]
fn a_mark_comes_when_all_before_it_of_its_broker_is_written() {
    let barrier = Job { lane: Lane::Barrier(1), ..of(0, "barrier", 0) };
    let mut backlog = backlog([of(1, "subscribe", 1), of(1, "publish", 1), of(2, "publish", 1), barrier]);
    backlog.push([of(2, "detach", 1), of(3, "publish", 1)]);
    assert_eq!(names(&mut backlog), ["subscribe", "publish", "publish"]);
    assert_eq!(names(&mut backlog), ["detach", "publish", "barrier"]);
    backlog.push([barrier, barrier]);
    assert_eq!(names(&mut backlog), ["barrier", "barrier"]);
}

#[test]
fn a_mark_does_not_wait_for_a_costly_job_of_another_broker() {
    let barrier = Job { lane: Lane::Barrier(2), ..of(0, "barrier", 0) };
    let mut backlog = backlog([in_parts(1, 900), of(2, "publish", 1), barrier]);
    let batch = write(&mut backlog);
    assert_eq!(batch.iter().map(|job| job.name).collect::<Vec<_>>(), ["publish", "subscribe", "barrier"]);
}

#[test]
fn a_mark_does_not_pass_a_job_that_comes_back_with_a_begun_one_behind_it() {
    let barrier = Job { lane: Lane::Barrier(1), ..of(0, "barrier", 0) };
    let mut backlog = backlog([of(1, "a", 1), of(1, "b", 1), barrier, in_parts(1, 900), of(2, "publish", 1)]);
    let batch = backlog.next_batch(BUDGET);
    assert!(batch.iter().any(|job| job.name == "subscribe"), "{batch:?}");
    // The transaction was cut behind "a".
    let barrier_is_out = batch.iter().any(|job| job.name == "barrier");
    let cut = batch.iter().skip(1).filter(|job| matches!(job.lane, Lane::Broker(1)));
    cut.rev().for_each(|job| backlog.put_back(*job));
    backlog.push(barrier_is_out.then_some(barrier));
    backlog.owe(1, 10 * SHARE);
    backlog.push([of(2, "publish", 1)]);
    assert_eq!(names(&mut backlog), ["publish"], "the barrier waits for b");
}

#[test]
fn checkpoints_that_come_back_stay_before_newer_ones() {
    let checkpoint = |name| Job { lane: Lane::Checkpoint, ..of(0, name, 1) };
    let mut backlog = backlog([checkpoint("a"), checkpoint("b")]);
    let batch = backlog.next_batch(BUDGET);
    backlog.push([checkpoint("c")]);
    batch.iter().rev().for_each(|job| backlog.put_back(*job));
    assert_eq!(names(&mut backlog), ["a", "b", "c"]);
}

#[test]
fn jobs_of_a_broker_stay_in_order_whatever_the_others_have() {
    const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
    let mut backlog = Backlog::default();
    let mut written: [Vec<&str>; 3] = Default::default();
    for round in 0..50 {
        for broker in 1..=3u64 {
            let count = (round * broker as usize * 7) % 40;
            backlog.push((0..count).map(|number| of(broker, NAMES[number % 5], 1 + number % 30)));
        }
        for job in backlog.next_batch(BatchBudget { jobs: 50, ..BUDGET }) {
            let Lane::Broker(broker) = job.lane else { continue };
            written[broker as usize - 1].push(job.name);
        }
    }
    // Each push begins with "a" and continues in order.
    for names in &written {
        for pair in names.windows(2) {
            let at = |name| NAMES.iter().position(|known| *known == name).unwrap();
            assert!(at(pair[1]) == (at(pair[0]) + 1) % 5 || pair[1] == "a", "{pair:?}");
        }
    }
}

#[test]
fn a_transaction_is_bounded_by_jobs_bytes_and_cost_and_has_one_job_at_least() {
    let mut many = backlog(std::iter::repeat_n(of(1, "publish", 1), 100));
    assert_eq!(many.next_batch(BatchBudget { jobs: 7, ..BUDGET }).len(), 7);
    assert_eq!(many.next_batch(BatchBudget { bytes: 35, ..BUDGET }).len(), 3);
    assert_eq!(many.next_batch(BatchBudget { bytes: 1, ..BUDGET }).len(), 1);
    let mut costly = backlog(std::iter::repeat_n(of(1, "subscribe", 90), 100));
    assert_eq!(costly.next_batch(BatchBudget { cost: 200, ..BUDGET }).len(), 3);
}

#[test]
fn a_large_job_beside_others_is_written_in_parts_that_are_no_larger_than_a_share() {
    let mut backlog = backlog([in_parts(1, 900), of(1, "publish", 1)]);
    for _ in 0..180 {
        backlog.push(std::iter::repeat_n(of(2, "publish", 1), 8));
        assert_eq!(costs(&write(&mut backlog)), [100, 8, 0]);
    }
    backlog.push([of(2, "publish", 1)]);
    assert_eq!(names(&mut backlog), ["publish", "publish"], "all of it is written");
    assert!(backlog.is_empty());
}

#[test]
fn a_large_job_that_is_alone_fills_transactions_and_nothing_of_its_broker_overtakes_it() {
    let barrier = Job { lane: Lane::Barrier(1), ..of(0, "barrier", 0) };
    let mut backlog = backlog([of(1, "publish", 1), in_parts(1, 300), of(1, "detach", 1), barrier]);
    let written: Vec<(Vec<&str>, usize)> = (0..4)
        .map(|_| {
            let batch = write(&mut backlog);
            (batch.iter().map(|job| job.name).collect(), costs(&batch)[0])
        })
        .collect();
    let expected: [(&[&str], usize); 4] =
        [(&["publish", "subscribe"], 4_001), (&["subscribe"], 2_000), (&["detach", "barrier"], 1), (&[], 0)];
    for (written, (names, cost)) in written.iter().zip(expected) {
        assert_eq!((&written.0[..], written.1), (names, cost));
    }
}

#[test]
fn a_job_larger_than_a_share_that_has_no_parts_is_paid_back() {
    let mut backlog = backlog(std::iter::repeat_n(of(1, "publish", 1_000), 50));
    let mut total = [0; 3];
    for _ in 0..100 {
        backlog.push(std::iter::repeat_n(of(2, "publish", 1), 8));
        let batch = backlog.next_batch(BUDGET);
        costs(&batch).into_iter().zip(&mut total).for_each(|(cost, total)| *total += cost);
    }
    assert_eq!(total[1], 800, "the others are in every transaction");
    assert_eq!(total[0], 10_000, "a share of each");
    // Alone, it waits for nobody.
    while !backlog.is_empty() {
        assert!(!backlog.next_batch(BUDGET).is_empty());
    }
}

#[test]
fn a_broker_that_always_has_one_job_larger_than_a_share_pays_it_back_too() {
    let hogs = [of(1, "publish", 1_000), of(3, "publish", 1_000)];
    let (mut backlog, mut total) = (backlog(hogs), [0; 3]);
    for _ in 0..100 {
        backlog.push(std::iter::repeat_n(of(2, "publish", 1), 8));
        let batch = backlog.next_batch(BUDGET);
        costs(&batch).into_iter().zip(&mut total).for_each(|(cost, total)| *total += cost);
        backlog.push(batch.into_iter().filter(|job| job.cost > 1));
    }
    assert_eq!(total, [10_000, 800, 10_000]);
}

#[test]
fn jobs_that_come_back_are_the_first_ones_in_their_order_and_barriers_wait_for_them() {
    let barrier = Job { lane: Lane::Barrier(1), ..of(0, "barrier", 0) };
    let mut backlog = backlog([of(1, "a", 1), of(1, "b", 1), of(1, "c", 1), barrier]);
    backlog.push([of(1, "d", 1)]);
    let batch = backlog.next_batch(BatchBudget { jobs: 3, ..BUDGET });
    batch[1..].iter().rev().for_each(|job| backlog.put_back(*job));
    assert_eq!(names(&mut backlog), ["b", "c", "d", "barrier"]);
}

#[test]
fn a_broker_whose_jobs_were_more_costly_than_they_said_waits_for_the_others() {
    let mut backlog = backlog(std::iter::repeat_n(of(1, "attach", 8), 100));
    backlog.owe(1, 10 * SHARE);
    for round in 0..12 {
        backlog.push([of(2, "publish", 1)]);
        assert_eq!(costs(&backlog.next_batch(BUDGET))[0] > 0, round >= 10, "{round}");
    }
}

#[test]
fn several_floods_together_do_not_fill_the_transactions_of_a_broker_with_little_to_write() {
    let mut backlog = Backlog::default();
    for broker in 1..=16 {
        backlog.push(std::iter::repeat_n(of(broker, "publish", 1), 5_000));
    }
    for round in 0..50 {
        backlog.push(std::iter::repeat_n(of(17, "publish", 1), 8));
        let batch = backlog.next_batch(BUDGET);
        let of_last = batch.iter().filter(|job| job.lane == Lane::Broker(17)).count();
        assert!(of_last == 8 && batch.len() <= 8 + 16 * QUANTUM, "{round}: {} jobs", batch.len());
    }
}

#[test]
fn a_smaller_share_holds_for_jobs_with_parts_and_without() {
    let floods = [in_parts(1, 5_000), of(1, "publish", 50), of(1, "attach", 30), of(1, "publish", 1)];
    for (share, flood) in [8, QUANTUM].into_iter().flat_map(|share| floods.map(|flood| (share, flood))) {
        let budget = BatchBudget { share, ..BUDGET };
        let mut backlog = backlog(std::iter::repeat_n(flood, 3_000));
        let mut total = [0; 3];
        for _ in 0..100 {
            backlog.push(std::iter::repeat_n(of(2, "publish", 1), 8));
            let batch = backlog.next_batch(budget);
            for job in batch.iter().filter(|job| job.part < job.cost && job.part_cost.is_some()) {
                backlog.put_back(Job { cost: job.cost - job.part, part: 0, ..*job });
            }
            costs(&batch).into_iter().zip(&mut total).for_each(|(cost, total)| *total += cost);
        }
        assert_eq!(total[1], 800, "the others are in every transaction");
        let all = 100 * share;
        assert!(total[0].abs_diff(all) <= 50, "{} of {}: {}", flood.name, flood.cost, total[0]);
    }
}

#[test]
fn a_part_of_a_job_has_its_part_of_the_bytes() {
    let mut backlog = backlog([in_parts(1, 10), in_parts(2, 10)]);
    let parts = |batch: &[Job]| batch.iter().map(|job| job.part).collect::<Vec<_>>();
    // Ten bytes a job, so one a filter.
    assert_eq!(parts(&backlog.next_batch(BatchBudget { bytes: 7, ..BUDGET })), [80, 60]);
}
