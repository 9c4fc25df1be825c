use super::*;
use crate::testing::{BROKER, database, run};
use millrace_storage::{Database, block_on};

/// A month has begun.
const MONTH_MS: u64 = 1_793_491_200_000;
const POD: &[u8] = b"pod";

fn windows_of(database: &Database, hours: std::ops::Range<u64>, now_ms: u64) -> Vec<Window> {
    let at = |hour: u64| MONTH_MS + hour * WINDOW_MS;
    run(database, async |tx| used(tx, BROKER, at(hours.start), at(hours.end), now_ms).await)
}

fn said(units: [i64; 5]) -> UsageReport {
    UsageReport {
        broker: BROKER,
        at_ms: MONTH_MS + 5,
        units,
        counters: [3, 30, 4, 40, 5],
        connections: 7,
        is_new: true,
        drops: [1, 2, 0, 0, 2],
        points: Vec::new(),
    }
}

const MINUTE_MS: u64 = 60_000;

fn row(resolution: Resolution, from_ms: u64, point: Point) -> UsageReport {
    UsageReport {
        points: vec![NewPoint { resolution, from_ms, point }],
        ..UsageReport { broker: BROKER, ..UsageReport::default() }
    }
}

fn minutes(database: &Database, from_ms: u64, to_ms: u64) -> Vec<(u64, Point)> {
    run(database, async |tx| history(tx, BROKER, Resolution::Minute, from_ms, to_ms).await)
}

#[test]
fn rows_of_several_processes_add_up_and_a_repeated_row_replaces_itself() {
    let database = database();
    let mut latencies = [0; LATENCY_BOUNDS_US.len() + 1];
    latencies[4] = 99;
    latencies[16] = 1;
    let (begin_ms, end_ms) = (10_000, 60_000);
    let one =
        Point { begin_ms, end_ms, messages_in: 300, connected_ms: 60_000, latencies, ..Point::default() };
    let mut deliveries = [0; LATENCY_BOUNDS_US.len() + 1];
    deliveries[3] = 2;
    let other = Point { begin_ms: 5_000, end_ms: 8_000, drops: [0, 1, 0, 0, 0, 7], deliveries, ..one };
    for (number, (pod, point)) in (0..).zip([(b"one", one), (b"two", other), (b"one", one)]) {
        run(&database, async |tx| begin(tx, pod, u64::from(pod[0])));
        let flush = Flush { pod, incarnation: u64::from(pod[0]), number: 1 + number, now_ms: MONTH_MS };
        tell(&database, flush, &[row(Resolution::Minute, MONTH_MS, point)]);
    }
    let found = minutes(&database, MONTH_MS + 59_999, MONTH_MS + MINUTE_MS);
    let [(MONTH_MS, sum)] = found[..] else { panic!("{found:?}") };
    assert_eq!((sum.messages_in, sum.connected_ms, sum.drops), (600, 120_000, [0, 1, 0, 0, 0, 7]));
    assert_eq!(sum.measured_ms, 3_000 + 50_000, "time that two processes measure counts once");
    assert_eq!(latency_us(&sum.latencies, 0.5), Some(753));
    assert_eq!(latency_us(&sum.latencies, 0.999), Some(10_000_000), "the last class begins there");
    assert_eq!(latency_us(&sum.deliveries, 0.99), Some(498));
    assert_eq!(latency_us(&Point::default().latencies, 0.5), None);
    assert_eq!(minutes(&database, MONTH_MS - MINUTE_MS, MONTH_MS), []);
    assert_eq!(minutes(&database, MONTH_MS + MINUTE_MS, MONTH_MS + 9 * MINUTE_MS), []);
}

#[test]
fn a_row_has_every_number_that_was_counted() {
    let database = database();
    run(&database, async |tx| begin(tx, POD, 1));
    let mut point = Point {
        begin_ms: 1,
        end_ms: 60_000,
        measured_ms: 59_999,
        connected_ms: u64::MAX,
        messages_in: 127,
        messages_out: 128,
        bytes_in: 16_384,
        bytes_out: 1,
        ..Point::default()
    };
    let lists = point.latencies.iter_mut().chain(&mut point.drops).chain(&mut point.deliveries);
    for (number, of) in (1..).zip(lists) {
        *of = number << (number % 50);
    }
    tell(&database, word(1, 1), &[row(Resolution::Minute, MONTH_MS, point)]);
    let sum = Point { begin_ms: 0, end_ms: 0, ..point };
    assert_eq!(minutes(&database, MONTH_MS, MONTH_MS + MINUTE_MS), [(MONTH_MS, sum)]);
    assert!(!point.is_empty() && Point { begin_ms: 1, end_ms: 2, ..Point::default() }.is_empty());
}

#[test]
fn old_points_go_and_a_broker_without_old_points_is_left_alone() {
    let database = database();
    run(&database, async |tx| begin(tx, POD, 1));
    let point = Point { end_ms: 1, messages_in: 1, ..Point::default() };
    let kept = Resolution::ALL.map(|one| (one, MONTH_MS - one.kept_ms()));
    for (number, (resolution, oldest_ms)) in (1..).zip(kept) {
        let rows = [oldest_ms - resolution.window_ms(), oldest_ms].map(|at| row(resolution, at, point));
        tell(&database, word(1, number), &rows);
    }
    let sweep = || run(&database, async |tx| forget_history(tx, BROKER, MONTH_MS).await);
    assert_eq!((sweep(), sweep()), (true, false));
    for (resolution, oldest_ms) in kept {
        let left = run(&database, async |tx| history(tx, BROKER, resolution, 0, MONTH_MS).await);
        assert_eq!(left.into_iter().map(|(at, _)| at).collect::<Vec<_>>(), [oldest_ms]);
    }
}

fn word(incarnation: u64, number: u64) -> Flush<'static> {
    Flush { pod: POD, incarnation, number, now_ms: MONTH_MS }
}

fn tell(database: &Database, flush: Flush<'_>, said: &[UsageReport]) -> Flushed {
    run(database, async |tx| super::flush(tx, flush, said).await)
}

#[test]
fn a_message_is_one_unit_up_to_4_kib() {
    for (bytes, units) in [(0, 1), (1, 1), (4_096, 1), (4_097, 2), (8_192, 2), (8_193, 3)] {
        assert_eq!(message_units(bytes), units, "{bytes}");
    }
}

#[test]
fn a_repeated_flush_is_added_once() {
    let database = database();
    run(&database, async |tx| begin(tx, POD, 1));
    for number in [1, 1, 2, 1, 2] {
        assert_eq!(tell(&database, word(1, number), &[said([1, 2, 3, 4, 5])]), Flushed::Added);
    }
    let used = Window {
        from_ms: MONTH_MS,
        connected_ms: 2,
        messages_in: 4,
        messages_delivered: 6,
        bytes_in: 8,
        bytes_out: 10,
        ..Window::default()
    };
    assert_eq!(windows_of(&database, 0..1, MONTH_MS + 9), [used]);
    let live = run(&database, async |tx| live(tx, BROKER, MONTH_MS + 9).await);
    let expected = BrokerActivity {
        connections: 7,
        messages_in: 6,
        messages_out: 8,
        bytes_in: 60,
        bytes_out: 80,
        dropped: 10,
        drops: [2, 4, 0, 0, 4, 0],
        stored_messages: 0,
        stored_bytes: 0,
    };
    assert_eq!(live, expected);
}

#[test]
fn a_process_that_was_replaced_adds_nothing() {
    let database = database();
    assert_eq!(tell(&database, word(1, 1), &[said([1; 5])]), Flushed::Forgotten, "it has not begun");
    run(&database, async |tx| begin(tx, POD, 1));
    run(&database, async |tx| begin(tx, POD, 2));
    assert_eq!(tell(&database, word(1, 1), &[said([1; 5])]), Flushed::Replaced);
    assert_eq!(tell(&database, word(2, 1), &[said([1; 5])]), Flushed::Added);
    run(&database, async |tx| forget(tx, POD));
    assert_eq!(tell(&database, word(2, 2), &[said([1; 5])]), Flushed::Forgotten);
    assert_eq!(windows_of(&database, 0..1, MONTH_MS + 9)[0].messages_in, 1);
}

#[test]
fn flushes_of_two_pods_for_one_broker_do_not_conflict() {
    let database = database();
    let pods = [&b"one"[..], b"other"];
    for pod in pods {
        run(&database, async |tx| begin(tx, pod, 1));
    }
    let open = pods.map(|pod| {
        let tx = database.begin_unretried();
        let flush = Flush { pod, ..word(1, 1) };
        block_on(super::flush(&tx, flush, &[said([1; 5])])).unwrap();
        tx
    });
    for tx in open {
        block_on(tx.commit()).unwrap();
    }
    assert_eq!(windows_of(&database, 0..1, MONTH_MS + 9)[0].messages_in, 2);
}

#[test]
fn a_pods_report_of_its_clients_counts_until_it_is_old() {
    let database = database();
    run(&database, async |tx| begin(tx, POD, 1));
    tell(&database, word(1, 1), &[said([0; 5])]);
    let connections = |now_ms| run(&database, async |tx| live(tx, BROKER, now_ms).await).connections;
    assert_eq!((connections(MONTH_MS + 14_999), connections(MONTH_MS + 15_000)), (7, 0));
    tell(&database, word(1, 2), &[UsageReport { connections: 0, ..said([0; 5]) }]);
    assert_eq!(connections(MONTH_MS + 1), 0);
}

#[test]
fn windows_that_are_too_old_go() {
    let database = database();
    run(&database, async |tx| begin(tx, POD, 1));
    let kept_ms = crate::limits::USAGE_WINDOWS_KEPT * WINDOW_MS;
    let old = UsageReport { at_ms: MONTH_MS - kept_ms - WINDOW_MS, ..said([1; 5]) };
    let kept = UsageReport { at_ms: MONTH_MS - kept_ms, ..said([1; 5]) };
    tell(&database, word(1, 1), &[old.clone(), kept]);
    tell(&database, word(1, 2), &[said([1; 5])]);
    let all = run(&database, async |tx| used(tx, BROKER, old.at_ms, MONTH_MS + 1, MONTH_MS).await);
    let used: Vec<u64> =
        all.iter().filter(|window| window.bytes_in > 0).map(|window| window.from_ms).collect();
    assert_eq!(used, [MONTH_MS - kept_ms, MONTH_MS]);
}

/// Changes of a level at random times, against the sum over all ticks.
#[test]
fn a_level_is_its_integral_in_every_window() {
    for seed in 0..20 {
        let mut random = fastrand::Rng::with_seed(seed);
        let database = database();
        let mut changes: Vec<(u64, i64)> = Vec::new();
        let mut at_ms = MONTH_MS - random.u64(0..3 * WINDOW_MS);
        for _ in 0..random.usize(1..12) {
            at_ms += random.u64(0..WINDOW_MS);
            let held: i64 = changes.iter().map(|(_, more)| more).sum();
            let more = random.i64(-held..=1_000);
            changes.push((at_ms, more));
            run(&database, async |tx| {
                change(tx, BROKER, Level::Sessions, more, at_ms)?;
                change(tx, BROKER, Level::Bytes, more, at_ms)
            });
        }
        let now_ms = at_ms + random.u64(0..3 * WINDOW_MS);
        // A change within a second counts from the next one on.
        let held = |second: u64| -> i64 {
            changes.iter().filter(|(at_ms, _)| at_ms.div_ceil(1_000) <= second).map(|(_, more)| more).sum()
        };
        for window in windows_of(&database, 0..9, now_ms) {
            let until = now_ms.min(window.from_ms + WINDOW_MS);
            let seconds = window.from_ms / 1_000..until.div_ceil(1_000);
            let bytes: i64 = seconds.map(held).sum();
            let sessions: i64 = sum_of(&changes, window.from_ms, until);
            assert_eq!(window.stored_session_ms, sessions.cast_unsigned(), "seed {seed}");
            assert_eq!(window.stored_byte_s, bytes.cast_unsigned(), "seed {seed}");
        }
    }
}

fn sum_of(changes: &[(u64, i64)], from_ms: u64, until_ms: u64) -> i64 {
    let of = |(at, more): &(u64, i64)| more * until_ms.saturating_sub(from_ms.max(*at)).cast_signed();
    changes.iter().map(of).sum()
}

#[test]
fn usage_of_a_deleted_broker_moves_to_a_ledger_month_by_month() {
    const LEDGER: BrokerId = BROKER + 1;
    let database = database();
    let at = |hour: u64| MONTH_MS + hour * WINDOW_MS;
    let ended_ms = at(1_000) + WINDOW_MS / 2;
    run(&database, async |tx| {
        add(tx, BROKER, Unit::MessagesIn, at(0), 1)?;
        add(tx, BROKER, Unit::MessagesIn, at(800), 2)?;
        add(tx, BROKER, Unit::BytesOut, at(1_000), 4)?;
        change(tx, BROKER, Level::Sessions, 3, at(999))?;
        add(tx, LEDGER, Unit::MessagesIn, at(800), 10)
    });
    let of = |broker: BrokerId| run(&database, async |tx| used(tx, broker, at(0), at(1_100), ended_ms).await);
    let before = of(BROKER);
    let mut from_ms = Some(at(0));
    let mut rounds = 0;
    while let Some(next_ms) = from_ms {
        from_ms = run(&database, async |tx| {
            fold(tx, Fold { broker: BROKER, ledger: LEDGER, ended_ms }, next_ms).await
        });
        rounds += 1;
    }
    assert_eq!(rounds, 2);
    let mut expected = before;
    expected[800].messages_in += 10;
    assert_eq!(of(LEDGER), expected);
    let left = run(&database, async |tx| {
        crate::rows::all(tx, windows(BROKER).children(), millrace_storage::Read::Snapshot).await
    });
    assert_eq!(left.len(), 0);
}
