//! Causes of conflicts between transactions, and actions that cause none.

use std::sync::Arc;

use millrace_storage::{Database, KeyRange, RangeOptions, Read, StoreError, block_on};

use crate::support::{TestHost, all, begin, commit, get, page, set, text};

pub(crate) fn a_lost_update_is_refused(database: &Database, _: &Arc<TestHost>) {
    set(database, &[("a", "0")]);
    let (one, two) = (begin(database), begin(database));
    for transaction in [&one, &two] {
        get(transaction, "a");
        transaction.set("a", "1").unwrap();
    }
    commit(one).unwrap();
    assert_eq!(commit(two), Err(StoreError::Conflict));
}

pub(crate) fn a_write_skew_is_refused(database: &Database, _: &Arc<TestHost>) {
    set(database, &[("a", "on"), ("b", "on")]);
    let (one, two) = (begin(database), begin(database));
    for (transaction, key) in [(&one, "a"), (&two, "b")] {
        assert_eq!(all(transaction), "a=on b=on");
        transaction.set(key, "off").unwrap();
    }
    commit(one).unwrap();
    assert_eq!(commit(two), Err(StoreError::Conflict));
}

pub(crate) fn a_phantom_is_refused(database: &Database, _: &Arc<TestHost>) {
    let counter = begin(database);
    assert_eq!(all(&counter), "");
    counter.set("zz", "none").unwrap();
    set(database, &[("m", "1")]);
    assert_eq!(commit(counter), Err(StoreError::Conflict));

    let absent = begin(database);
    assert_eq!(get(&absent, "n"), None);
    absent.set("zz", "no n").unwrap();
    set(database, &[("n", "1")]);
    assert_eq!(commit(absent), Err(StoreError::Conflict));
}

pub(crate) fn a_cleared_range_conflicts(database: &Database, _: &Arc<TestHost>) {
    set(database, &[("a", "1"), ("c", "1")]);
    let (reader, other) = (begin(database), begin(database));
    get(&reader, "b");
    get(&other, "d");
    for transaction in [&reader, &other] {
        transaction.set("zz", "1").unwrap();
    }
    let clear = begin(database);
    clear.clear_range(KeyRange::new("a", "d")).unwrap();
    commit(clear).unwrap();
    assert_eq!(commit(reader), Err(StoreError::Conflict));
    commit(other).unwrap();
}

pub(crate) fn an_append_conflicts_with_who_read_the_end(database: &Database, _: &Arc<TestHost>) {
    let reader = begin(database);
    let options = RangeOptions::first(9);
    assert!(block_on(reader.range(KeyRange::prefix("log/"), options)).unwrap().items.is_empty());
    reader.set("zz", "empty").unwrap();
    let append = begin(database);
    append.set_versionstamped_key("log/", [0; 2], "", "1").unwrap();
    commit(append).unwrap();
    assert_eq!(commit(reader), Err(StoreError::Conflict));
}

pub(crate) fn a_write_outside_the_read_ranges_does_not_conflict(database: &Database, _: &Arc<TestHost>) {
    let (one, two, blind) = (begin(database), begin(database), begin(database));
    get(&one, "a");
    get(&two, "b");
    for transaction in [&one, &two, &blind] {
        transaction.set("c", "1").unwrap();
        transaction.set_versionstamped_key("log/", [0; 2], "", "1").unwrap();
    }
    for transaction in [one, two, blind] {
        commit(transaction).unwrap();
    }
}

pub(crate) fn snapshot_reads_do_not_conflict(database: &Database, _: &Arc<TestHost>) {
    let transaction = begin(database);
    block_on(transaction.get("a", Read::Snapshot)).unwrap();
    page(&transaction, "a", "c", RangeOptions::first(9).snapshot());
    transaction.set("zz", "1").unwrap();
    set(database, &[("a", "1"), ("b", "1")]);
    commit(transaction).unwrap();
}

pub(crate) fn explicit_conflict_ranges_count(database: &Database, _: &Arc<TestHost>) {
    let reader = begin(database);
    block_on(reader.read_version()).unwrap();
    reader.add_read_conflict_range(KeyRange::new("a", "c")).unwrap();
    reader.set("zz", "1").unwrap();
    set(database, &[("b", "1")]);
    assert_eq!(commit(reader), Err(StoreError::Conflict));

    let reader = begin(database);
    get(&reader, "a");
    reader.set("zz", "1").unwrap();
    let writer = begin(database);
    writer.add_write_conflict_range(KeyRange::key("a")).unwrap();
    commit(writer).unwrap();
    assert_eq!(commit(reader), Err(StoreError::Conflict));
}

pub(crate) fn a_read_only_transaction_never_conflicts(database: &Database, _: &Arc<TestHost>) {
    let reader = begin(database);
    get(&reader, "a");
    set(database, &[("a", "1")]);
    assert_eq!(commit(reader).unwrap().versionstamp, None);
}

pub(crate) fn a_read_stays_at_its_version(database: &Database, _: &Arc<TestHost>) {
    set(database, &[("a", "1"), ("b", "1")]);
    let reader = begin(database);
    let version = block_on(reader.read_version()).unwrap();
    set(database, &[("a", "2"), ("c", "2")]);
    let clear = begin(database);
    clear.clear("b").unwrap();
    commit(clear).unwrap();
    assert_eq!(all(&reader), "a=1 b=1");
    assert_eq!(block_on(reader.read_version()).unwrap(), version);
    assert_eq!(all(&begin(database)), "a=2 c=2");
}

pub(crate) fn only_the_pages_that_were_read_conflict(database: &Database, _: &Arc<TestHost>) {
    set(database, &[("a", "1"), ("b", "1"), ("c", "1"), ("d", "1")]);
    let read = |options| {
        let transaction = begin(database);
        assert!(page(&transaction, "a", "z", options).more);
        transaction.set("zz", "1").unwrap();
        transaction
    };
    let (first, last) = (read(RangeOptions::first(2)), read(RangeOptions::last(2)));
    set(database, &[("bb", "1")]);
    commit(first).unwrap();
    commit(last).unwrap();
    let (first, last) = (read(RangeOptions::first(2)), read(RangeOptions::last(2)));
    set(database, &[("aa", "1"), ("cc", "1")]);
    assert_eq!(commit(first), Err(StoreError::Conflict));
    assert_eq!(commit(last), Err(StoreError::Conflict));
}

pub(crate) fn a_read_that_a_write_overtakes_conflicts_or_sees_it(database: &Database, _: &Arc<TestHost>) {
    set(database, &[("a", "theirs"), ("b", "1")]);
    for (own, reads_between) in [("a", false), ("c", false), ("a", true), ("c", true)] {
        let transaction = begin(database);
        let read = transaction.range(KeyRange::new("a", "d"), RangeOptions::first(9));
        transaction.set(own, "mine").unwrap();
        if reads_between {
            block_on(transaction.get(own, Read::Snapshot)).unwrap();
        }
        let page = block_on(read).unwrap();
        set(database, &[(own, "theirs")]);
        let result = commit(transaction);
        let saw_own = text(&page.items).contains("mine");
        assert!(saw_own || result == Err(StoreError::Conflict), "{own}: {} {result:?}", text(&page.items));
    }
}
