use std::collections::BTreeSet;

use bytes::Bytes;
use millrace_storage::{Database, Read, Transaction, block_on};

use super::*;
use crate::{
    LayerError, Position, Store, index,
    limits::{DEAD_LETTER_BYTES_MAX, DEAD_LETTERS_MAX, WEBHOOK_DELIVERIES_MAX, WEBHOOK_LEASE_MS},
    streams::{self, LossReason, NewEntry, ReadLimit, StreamLimits, StreamRef, Totals},
    testing::{BROKER, database, rows, run, try_run},
};

const WEBHOOK: WebhookId<'_> = WebhookId { broker: BROKER, name: "plant 7/eu" };
const PAGE: ReadLimit = ReadLimit { entries: 10, bytes: 1 << 20 };

fn wanted(filters: &[&str]) -> Vec<WantedQueues> {
    let filters: BTreeSet<String> = filters.iter().map(|filter| (*filter).to_owned()).collect();
    vec![WantedQueues { name: WEBHOOK.name.into(), filters }]
}

fn synced(database: &Database, filters: &[&str]) -> Synced {
    let wanted = wanted(filters);
    run(database, async |tx| sync(tx, BROKER, &wanted).await)
}

/// Publishes to all streams of these filters.
fn publish(database: &Database, filters: &[&str], body: &'static str) {
    run(database, async |tx| {
        let mut to = Vec::new();
        for filter in filters {
            for indexed in index::streams(tx, BROKER, filter.as_bytes()).await? {
                assert_eq!(name_of_group(&indexed.group).as_deref(), Some(WEBHOOK.name));
                to.push(StreamRef { stream: indexed.stream, partition: 0 });
            }
        }
        streams::append(tx, BROKER, &to, NewEntry { number: 1, now_ms: 5, body: &body.into() })?;
        enqueue(tx, WEBHOOK)
    });
}

fn taken(database: &Database, owner: &str, now_ms: u64) -> TakenDelivery {
    run(database, async |tx| take(tx, WEBHOOK, owner, now_ms, PAGE).await)
}

fn work(database: &Database, owner: &str, now_ms: u64) -> DeliveryWork {
    let TakenDelivery::Work(work) = taken(database, owner, now_ms) else { panic!("nothing to do") };
    *work
}

fn bodies(work: &DeliveryWork) -> Vec<&str> {
    work.entries.iter().map(|entry| std::str::from_utf8(&entry.body).unwrap()).collect()
}

fn settled(database: &Database, work: &DeliveryWork, outcome: &DeliveryOutcome) -> LayerResult<WebhookState> {
    try_run(database, async |tx| settle(tx, WEBHOOK, work, (outcome, None), 9).await)
}

fn failure(status: u16) -> DeliveryFailure {
    DeliveryFailure { at_ms: 7, status: Some(status), reason: "no".into(), ..DeliveryFailure::default() }
}

fn dead(work: &DeliveryWork, event: &Bytes) -> DeliveryOutcome {
    let letter = |entry: &streams::StreamEntry| NewDeadLetter {
        id: entry.position,
        attempts: 1,
        failure: Some(failure(410)),
        event: event.clone(),
    };
    DeliveryOutcome::Dead { failure: failure(410), letters: work.entries.iter().map(letter).collect() }
}

fn all_letters(database: &Database) -> Vec<StoredDeadLetter> {
    run(database, async |tx| dead_letters(tx, WEBHOOK, None, 10_000).await).0
}

fn queued_now(database: &Database) -> Vec<(BrokerId, String)> {
    run(database, async |tx| queued(tx, None, 9).await)
}

fn state_now(database: &Database) -> (WebhookState, WaitingEvents) {
    run(database, async |tx| status(tx, WEBHOOK).await)
}

#[test]
fn each_event_is_taken_in_order_until_it_is_delivered() {
    let database = database();
    assert_eq!(synced(&database, &["a/+", "a/b"]).changed.len(), 2);
    assert_eq!(synced(&database, &["a/+", "a/b"]), Synced::default());
    publish(&database, &["a/+", "a/b"], "both");
    publish(&database, &["a/+"], "one");
    assert_eq!(queued_now(&database), [(BROKER, WEBHOOK.name.to_owned())]);
    let first = work(&database, "pod", 1);
    assert_eq!(bodies(&first), ["both", "one"]);
    // Not settled: whoever comes next gets the same, under the same ids.
    let again = work(&database, "pod", 2);
    assert_eq!(again.entries, first.entries);
    assert_eq!(
        settled(&database, &first, &DeliveryOutcome::Delivered),
        Err(LayerError::Fenced { epoch: first.epoch })
    );
    let state = settled(&database, &again, &DeliveryOutcome::Delivered).unwrap();
    assert_eq!((state.delivered, state.lost, state.last_success_ms), (2, 0, 9));
    assert_eq!(taken(&database, "pod", 3), TakenDelivery::Empty);
    assert_eq!(queued_now(&database), []);
    assert_eq!(state_now(&database).1, WaitingEvents::default());
    publish(&database, &["a/b"], "later");
    assert_eq!(bodies(&work(&database, "other", 4)), ["later"], "an empty queue is let go of");
}

#[test]
fn one_pod_delivers_a_webhook_until_its_lease_ends() {
    let database = database();
    synced(&database, &["a"]);
    publish(&database, &["a"], "x");
    let first = work(&database, "one", 1);
    assert_eq!(taken(&database, "two", 2), TakenDelivery::LeasedUntil(1 + WEBHOOK_LEASE_MS));
    let second = work(&database, "two", 1 + WEBHOOK_LEASE_MS);
    assert_eq!(second.entries, first.entries);
    assert_eq!(
        settled(&database, &first, &DeliveryOutcome::Delivered),
        Err(LayerError::Fenced { epoch: first.epoch })
    );
    settled(&database, &second, &DeliveryOutcome::Delivered).unwrap();
}

#[test]
fn emptying_a_queue_conflicts_with_an_event_that_is_added_meanwhile() {
    let database = database();
    synced(&database, &["a"]);
    run(&database, async |tx| enqueue(tx, WEBHOOK));
    let empty = database.begin_unretried();
    assert_eq!(block_on(take(&empty, WEBHOOK, "pod", 1, PAGE)), Ok(TakenDelivery::Empty));
    publish(&database, &["a"], "x");
    assert!(block_on(empty.commit()).is_err());
    assert_eq!(bodies(&work(&database, "pod", 1)), ["x"]);
}

#[test]
fn a_failure_is_tried_again_later_and_keeps_the_order() {
    let database = database();
    synced(&database, &["a"]);
    publish(&database, &["a"], "1");
    let first = work(&database, "pod", 1);
    let failed = DeliveryOutcome::Failed { failure: failure(503), next_attempt_ms: 50 };
    settled(&database, &first, &failed).unwrap();
    publish(&database, &["a"], "2");
    assert_eq!(taken(&database, "pod", 49), TakenDelivery::RetryAt(50));
    // Let go of: another pod may be the next.
    let second = work(&database, "other", 50);
    assert_eq!((bodies(&second), second.state.attempts), (vec!["1", "2"], 1));
    let state = settled(&database, &second, &DeliveryOutcome::Delivered).unwrap();
    assert_eq!((state.attempts, state.failing_since_ms, state.last_failure), (0, 0, Some(failure(503))));
}

#[test]
fn a_refused_event_of_a_batch_becomes_a_dead_letter() {
    let database = database();
    synced(&database, &["a"]);
    for body in ["1", "2", "3"] {
        publish(&database, &["a"], body);
    }
    let all = work(&database, "pod", 1);
    settled(&database, &all, &DeliveryOutcome::Split(failure(400))).unwrap();
    let first = work(&database, "pod", 1);
    assert_eq!(bodies(&first), ["1"]);
    settled(&database, &first, &DeliveryOutcome::Delivered).unwrap();
    let second = work(&database, "pod", 1);
    settled(&database, &second, &dead(&second, &"event 2".into())).unwrap();
    assert_eq!(bodies(&work(&database, "pod", 1)), ["3"]);
    let state = state_now(&database).0;
    assert_eq!((state.dead, state.dead_letters, state.dead_letter_bytes), (1, 1, 7));
    let letters = all_letters(&database);
    assert_eq!((letters[0].id, &letters[0].event[..]), (second.entries[0].position, &b"event 2"[..]));
}

#[test]
fn a_dead_letter_is_sent_again_alone_and_removed_when_delivered() {
    let database = database();
    synced(&database, &["a"]);
    publish(&database, &["a"], "x");
    let first = work(&database, "pod", 1);
    settled(&database, &first, &dead(&first, &"event".into())).unwrap();
    assert_eq!(taken(&database, "pod", 1), TakenDelivery::Empty);
    let id = Some(first.entries[0].position);
    assert_eq!(run(&database, async |tx| send_again(tx, WEBHOOK, Some(Position::MIN)).await), 0);
    assert_eq!(run(&database, async |tx| send_again(tx, WEBHOOK, id).await), 1);
    assert_eq!(queued_now(&database).len(), 1);
    let again = work(&database, "pod", 1);
    assert_eq!(again.letter.as_ref().map(|letter| letter.event.clone()), Some("event".into()));
    settled(&database, &again, &DeliveryOutcome::Failed { failure: failure(500), next_attempt_ms: 99 })
        .unwrap();
    assert_eq!(taken(&database, "pod", 1), TakenDelivery::Empty, "once");
    let letter = all_letters(&database).remove(0);
    assert_eq!((letter.attempts, letter.failure, letter.is_retried), (2, Some(failure(500)), false));
    assert_eq!(run(&database, async |tx| send_again(tx, WEBHOOK, None).await), 1);
    let again = work(&database, "pod", 1);
    let state = settled(&database, &again, &DeliveryOutcome::Delivered).unwrap();
    assert_eq!((state.dead_letters, state.dead_letter_bytes, state.delivered), (0, 0, 1));
    assert!(all_letters(&database).is_empty());
}

#[test]
fn a_test_event_is_sent_at_once_also_while_the_queue_waits() {
    let database = database();
    synced(&database, &["a"]);
    publish(&database, &["a"], "x");
    let first = work(&database, "pod", 1);
    let failed = DeliveryOutcome::Failed { failure: failure(503), next_attempt_ms: 1_000_000 };
    settled(&database, &first, &failed).unwrap();
    run(&database, async |tx| add_test(tx, WEBHOOK, &"test".into(), 3).await);
    let test = work(&database, "pod", 4);
    assert_eq!(
        test.letter.as_ref().map(|letter| (letter.attempts, letter.event.clone())),
        Some((0, "test".into()))
    );
    settled(&database, &test, &DeliveryOutcome::Delivered).unwrap();
    assert_eq!(taken(&database, "pod", 5), TakenDelivery::RetryAt(1_000_000));
    run(&database, async |tx| WEBHOOK.retry_now(tx).await);
    assert_eq!(bodies(&work(&database, "pod", 5)), ["x"]);
}

#[test]
fn dead_letters_are_removed_after_thirty_days() {
    let database = database();
    let other = WebhookId { name: "zzz", ..WEBHOOK };
    for (webhook, version, at_ms) in [(WEBHOOK, 1, 1_000), (WEBHOOK, 2, 5_000), (other, 3, 2_000)] {
        let failure = Some(DeliveryFailure { at_ms, ..failure(410) });
        let letter = NewDeadLetter { id: Position::end_of(version), attempts: 1, failure, event: "x".into() };
        run(&database, async |tx| {
            let mut state = state::get(tx, webhook, Read::Serializable).await?;
            dead_letters::add(tx, webhook, &mut state, &letter).await?;
            state::set(tx, webhook, &state)
        });
    }
    let day_ms = 86_400_000;
    let forget = |now_ms| run(&database, async |tx| forget_dead_letters(tx, BROKER, now_ms).await);
    assert_eq!((forget(30 * day_ms), forget(30 * day_ms + 2_000)), (0, 2));
    let left = all_letters(&database);
    assert_eq!(left.iter().map(|letter| letter.at_ms).collect::<Vec<_>>(), [5_000]);
    let state = run(&database, async |tx| state::get(tx, WEBHOOK, Read::Snapshot).await);
    assert_eq!((state.dead_letters, state.dead_letter_bytes, state.dead_letters_lost), (1, 1, 1));
}

#[test]
fn dead_letters_are_bounded_and_removed_ones_are_counted() {
    let database = database();
    let mut state = WebhookState::default();
    let long = Bytes::from(vec![b'x'; DEAD_LETTER_BYTES_MAX]);
    let letter = |version, event: &Bytes| NewDeadLetter {
        id: Position::end_of(version),
        attempts: 1,
        failure: None,
        event: event.clone(),
    };
    for version in 1..=10 {
        run(&database, async |tx| {
            dead_letters::add(tx, WEBHOOK, &mut state.clone(), &letter(version, &long)).await
        });
        state.dead_letters += 1;
        state.dead_letter_bytes += long.len() as u64;
        if state.dead_letters > 8 {
            state.dead_letters -= 1;
            state.dead_letter_bytes -= long.len() as u64;
        }
    }
    let kept = all_letters(&database).len();
    assert!(kept < 10, "a page ends by its bytes: {kept}");
    state = WebhookState { dead_letters: DEAD_LETTERS_MAX, dead_letter_bytes: 8, ..WebhookState::default() };
    let added = |letter: NewDeadLetter| {
        run(&database, async |tx| {
            let mut after = state.clone();
            dead_letters::add(tx, WEBHOOK, &mut after, &letter).await?;
            Ok(after)
        })
    };
    let after = added(letter(99, &"x".into()));
    assert_eq!((after.dead_letters, after.dead_letters_lost), (DEAD_LETTERS_MAX, 1));
    let too_long = Bytes::from(vec![b'x'; DEAD_LETTER_BYTES_MAX + 1]);
    let after = added(letter(100, &too_long));
    assert_eq!((after.dead_letters, after.dead_letters_lost), (DEAD_LETTERS_MAX, 1), "only counted");
}

#[test]
fn a_queue_over_its_limit_loses_its_oldest_events_and_counts_them() {
    let limits = |before_ms, keep| StreamLimits { now_ms: 9, before_ms, keep, over_keep: LossReason::Size };
    let database = database();
    synced(&database, &["a"]);
    for body in ["1", "2", "3", "4"] {
        publish(&database, &["a"], body);
    }
    let store = Store::new(database.clone());
    let keep = Totals { entries: 2, bytes: 1_000 };
    assert_eq!(block_on(WEBHOOK.limit(&store, limits(0, keep))), Ok(2));
    let rest = work(&database, "pod", 1);
    assert_eq!(bodies(&rest), ["3", "4"]);
    assert_eq!(settled(&database, &rest, &DeliveryOutcome::Delivered).unwrap().lost, 2);
    publish(&database, &["a"], "old");
    assert_eq!(state_now(&database).1.oldest_at_ms, Some(5));
    assert_eq!(block_on(WEBHOOK.limit(&store, limits(6, keep))), Ok(1));
}

#[test]
fn a_removed_filter_loses_its_queue_and_a_removed_webhook_all_rows() {
    let database = database();
    let before = rows(&database);
    synced(&database, &["a", "b"]);
    publish(&database, &["a"], "1");
    publish(&database, &["b"], "2");
    synced(&database, &["b"]);
    assert_eq!(state_now(&database).0.lost, 1);
    let left = work(&database, "pod", 1);
    assert_eq!(bodies(&left), ["2"]);
    settled(&database, &left, &dead(&left, &"event".into())).unwrap();
    assert!(run(&database, async |tx| has_any(tx, BROKER).await));
    let gone = run(&database, async |tx| sync(tx, BROKER, &[]).await);
    assert_eq!(gone.changed.len(), 1);
    block_on(Store::new(database.clone()).sweep(BROKER, 100)).unwrap();
    assert_eq!(rows(&database), before);
    assert!(!run(&database, async |tx| has_any(tx, BROKER).await));
}

#[test]
fn a_filter_over_a_limit_is_reported_and_the_others_are_queued() {
    let database = database();
    let long = "x".repeat(crate::limits::NAME_BYTES_MAX);
    let synced = synced(&database, &["a", &long]);
    assert_eq!((synced.changed.len(), synced.refused.len()), (1, 1));
}

#[test]
fn a_group_of_clients_is_no_webhook() {
    for name in ["a", "a/b", "%2F", "100%", "ä/#"] {
        let webhook = WebhookId { broker: BROKER, name };
        assert!(!webhook.group().contains('/'));
        assert_eq!(name_of_group(webhook.group().as_bytes()).as_deref(), Some(name));
    }
    assert_eq!(name_of_group(b"group"), None);
}

#[test]
fn two_brokers_have_webhooks_of_one_name() {
    let database = database();
    let other = WebhookId { broker: BROKER + 1, ..WEBHOOK };
    run(&database, async |tx: &Transaction| {
        enqueue(tx, WEBHOOK)?;
        enqueue(tx, other)
    });
    assert_eq!(queued_now(&database).len(), 2);
    run(&database, async |tx| remove_queued(tx, WEBHOOK));
    assert_eq!(queued_now(&database), [(BROKER + 1, WEBHOOK.name.to_owned())]);
}

#[test]
fn the_log_has_the_latest_deliveries_up_to_its_limit() {
    let database = database();
    synced(&database, &["c"]);
    publish(&database, &["c"], "event");
    let mut number = 0;
    let long = "é".repeat(1_000);
    let mut fail = || {
        number += 1;
        let made = DeliveryRecord { at_ms: number, error: Some(long.clone()), ..DeliveryRecord::default() };
        let outcome = DeliveryOutcome::Failed { failure: failure(500), next_attempt_ms: 0 };
        let work = work(&database, "a", 1);
        run(&database, async |tx| settle(tx, WEBHOOK, &work, (&outcome, Some(&made)), 1).await);
    };
    (0..WEBHOOK_DELIVERIES_MAX + 3).for_each(|_| fail());
    let log = run(&database, async |tx| deliveries(tx, WEBHOOK).await);
    let numbers: Vec<_> = log.iter().map(|one| (one.number, one.at_ms)).collect();
    let last = WEBHOOK_DELIVERIES_MAX + 3;
    assert_eq!(numbers, (4..=last).rev().map(|number| (number, number)).collect::<Vec<_>>());
    assert!(log.iter().all(|one| one.error.as_ref().unwrap().len() == 256));
    run(&database, async |tx| forget(tx, WEBHOOK));
    assert_eq!(run(&database, async |tx| deliveries(tx, WEBHOOK).await), []);
}
