//! A transaction sees what it wrote; others do not, until it has committed.

use std::sync::Arc;

use millrace_storage::{Database, KeyRange, RangeOptions, Read, StoreError, block_on};

use crate::support::{TestHost, all, begin, commit, get, number, page, set, text};

pub(crate) fn own_writes_are_seen(database: &Database, _: &Arc<TestHost>) {
    set(database, &[("a", "old"), ("b", "old")]);
    let transaction = begin(database);
    transaction.set("a", "new").unwrap();
    transaction.clear("b").unwrap();
    transaction.set("c", "new").unwrap();
    assert_eq!(get(&transaction, "a").unwrap(), "new");
    assert_eq!(get(&transaction, "b"), None);
    assert_eq!(get(&transaction, "c").unwrap(), "new");
    commit(transaction).unwrap();
    assert_eq!(all(&begin(database)), "a=new c=new");
}

pub(crate) fn own_writes_are_merged_into_ranges(database: &Database, _: &Arc<TestHost>) {
    set(database, &[("b", "1"), ("d", "1"), ("f", "1"), ("h", "1")]);
    let transaction = begin(database);
    for key in ["a", "c", "d", "i"] {
        transaction.set(key, "2").unwrap();
    }
    transaction.clear("f").unwrap();
    assert_eq!(all(&transaction), "a=2 b=1 c=2 d=2 h=1 i=2");
    let first = page(&transaction, "b", "i", RangeOptions::first(2));
    assert_eq!((text(&first.items), first.more), ("b=1 c=2".into(), true));
    let last = page(&transaction, "a", "z", RangeOptions::last(3));
    assert_eq!((text(&last.items), last.more), ("i=2 h=1 d=2".into(), true));
    let whole = page(&transaction, "a", "z", RangeOptions::last(6));
    assert_eq!((text(&whole.items), whole.more), ("i=2 h=1 d=2 c=2 b=1 a=2".into(), false));
}

pub(crate) fn a_cleared_range_is_empty_until_written_again(database: &Database, _: &Arc<TestHost>) {
    set(database, &[("a", "1"), ("b", "1"), ("c", "1"), ("d", "1")]);
    let transaction = begin(database);
    transaction.set("b1", "2").unwrap();
    transaction.clear_range(KeyRange::new("b", "d")).unwrap();
    assert_eq!(all(&transaction), "a=1 d=1");
    transaction.set("c", "2").unwrap();
    transaction.atomic_add("b", 5).unwrap();
    assert_eq!(number(get(&transaction, "b")), 5);
    transaction.clear("b").unwrap();
    assert_eq!(all(&transaction), "a=1 c=2 d=1");
    commit(transaction).unwrap();
    assert_eq!(all(&begin(database)), "a=1 c=2 d=1");
}

pub(crate) fn additions_are_seen(database: &Database, _: &Arc<TestHost>) {
    let transaction = begin(database);
    transaction.atomic_add("n", 5).unwrap();
    transaction.atomic_add("m", 1).unwrap();
    commit(transaction).unwrap();
    let transaction = begin(database);
    transaction.atomic_add("n", -7).unwrap();
    transaction.atomic_add("n", 1).unwrap();
    assert_eq!(number(get(&transaction, "n")), -1);
    let items = page(&transaction, "m", "o", RangeOptions::first(9)).items;
    assert_eq!(items.into_iter().map(|item| number(Some(item.value))).collect::<Vec<_>>(), [1, -1]);
    transaction.clear("m").unwrap();
    transaction.atomic_add("m", 3).unwrap();
    commit(transaction).unwrap();
    assert_eq!(number(get(&begin(database), "n")), -1);
    assert_eq!(number(get(&begin(database), "m")), 3);
}

pub(crate) fn versionstamped_keys_are_unreadable(database: &Database, _: &Arc<TestHost>) {
    let append = |value: &'static str| {
        let transaction = begin(database);
        transaction.set_versionstamped_key("log/", [0; 2], "", value).unwrap();
        transaction
    };
    commit(append("1")).unwrap();
    let transaction = append("2");
    let all = KeyRange::prefix("log/");
    let read = block_on(transaction.range(all.clone(), RangeOptions::first(9)));
    assert_eq!(read.unwrap_err(), StoreError::Unreadable);
    let key = [&b"log/"[..], &[0xfe; 10], &[0; 2]].concat();
    assert_eq!(block_on(transaction.get(key, Read::Snapshot)), Err(StoreError::Unreadable));
    // Elsewhere it can read.
    assert_eq!(get(&transaction, "lof"), None);
    commit(transaction).unwrap();
    let items = block_on(begin(database).range(all, RangeOptions::first(9))).unwrap().items;
    assert_eq!(items.iter().map(|item| &item.value[..]).collect::<Vec<_>>(), [b"1", b"2"]);
}

pub(crate) fn nothing_is_seen_by_others_before_the_commit(database: &Database, _: &Arc<TestHost>) {
    let writer = begin(database);
    writer.set("a", "1").unwrap();
    writer.atomic_add("b", 1).unwrap();
    assert_eq!(all(&begin(database)), "");
    commit(writer).unwrap();
    assert_eq!(get(&begin(database), "a").unwrap(), "1");
}

pub(crate) fn a_dropped_transaction_did_nothing(database: &Database, _: &Arc<TestHost>) {
    set(database, &[("a", "1")]);
    let transaction = begin(database);
    transaction.clear("a").unwrap();
    drop(transaction);
    assert_eq!(all(&begin(database)), "a=1");
}
