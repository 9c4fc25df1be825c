//! The checker finds what it is there to find.

use millrace_storage::Versionstamp;

use crate::checker::{End, Record, State, check};

fn writer(began: u64, stamp: u64, reads: &[(u8, u64)], writes: &[(u8, u64)]) -> Record {
    Record {
        began,
        ended: began + 3,
        read_version: stamp - 1,
        reads: reads.to_vec(),
        writes: writes.to_vec(),
        end: End::Committed(Versionstamp::new(stamp, 0)),
    }
}

fn reader(began: u64, read_version: u64, reads: &[(u8, u64)]) -> Record {
    let record = writer(began, read_version + 1, reads, &[]);
    Record { end: End::ReadOnly, ..record }
}

/// Two keys, four commits that overlap, two readers.
fn history() -> (Vec<Record>, State) {
    let refused = Record { end: End::Refused, ..writer(8, 4, &[(1, 11)], &[(1, 99)]) };
    let records = vec![
        writer(0, 1, &[(1, 0)], &[(1, 10)]),
        writer(2, 2, &[(1, 10)], &[(2, 20)]),
        writer(6, 3, &[(1, 10), (2, 20)], &[(1, 11)]),
        refused,
        reader(10, 3, &[(1, 11), (2, 20)]),
        writer(14, 4, &[(2, 20)], &[(2, 0)]),
        reader(20, 4, &[(1, 11), (2, 0)]),
    ];
    (records, State::from([(1, 11)]))
}

fn found(plant: impl FnOnce(&mut Vec<Record>, &mut State)) {
    let (mut records, mut state) = history();
    plant(&mut records, &mut state);
    assert!(check(&records, &state).is_err(), "not found");
}

#[test]
fn a_good_history_passes() {
    let (records, state) = history();
    check(&records, &state).unwrap();
}

#[test]
fn a_lost_update_is_found() {
    // The third wrote key 1 without having seen what the first wrote.
    found(|records, _| records[2].reads[0] = (1, 0));
    found(|records, _| {
        records[2] = Record { read_version: 0, ..writer(6, 3, &[(1, 0), (2, 0)], &[(1, 11)]) }
    });
}

#[test]
fn a_write_skew_is_found() {
    found(|records, state| {
        // Both read both keys at version 4; each wrote one.
        records.push(Record { read_version: 4, ..writer(30, 5, &[(1, 11), (2, 0)], &[(1, 0)]) });
        records.push(Record { read_version: 4, ..writer(30, 6, &[(1, 11), (2, 0)], &[(2, 7)]) });
        *state = State::from([(2, 7)]);
    });
}

#[test]
fn a_dirty_read_is_found() {
    found(|records, _| records[4].reads[0] = (1, 99));
}

#[test]
fn a_torn_read_is_found() {
    found(|records, _| records[4].reads[1] = (2, 0));
}

#[test]
fn a_stale_read_is_found() {
    // All of it is true at version 2, which was over when the reader began.
    found(|records, _| records[6] = reader(20, 2, &[(1, 10), (2, 20)]));
}

#[test]
fn a_lost_commit_is_found() {
    found(|_, state| *state = State::from([(1, 10)]));
    found(|records, _| {
        records.remove(1);
    });
}

#[test]
fn commits_out_of_the_order_of_time_are_found() {
    found(|records, state| {
        // Blind writes, which only their times can order.
        records.push(writer(40, 6, &[], &[(3, 1)]));
        records.push(writer(50, 5, &[], &[(3, 2)]));
        state.insert(3, 1);
    });
}

#[test]
fn one_stamp_for_two_is_found() {
    found(|records, _| records[2].end = records[1].end);
}

#[test]
fn a_refused_transaction_that_wrote_is_found() {
    found(|_, state| {
        state.insert(1, 99);
    });
}
