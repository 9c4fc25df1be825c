//! Versionstamps, and additions without reads.

use std::{sync::Arc, thread};

use millrace_storage::{Database, KeyRange, RangeOptions, Versionstamp, block_on};

use crate::support::{TestHost, begin, commit, get, number, set, stamp};

fn append(database: &Database, user: [u8; 2], value: &str) -> Versionstamp {
    let transaction = begin(database);
    transaction.set_versionstamped_key("log/", user, "", value.to_owned()).unwrap();
    stamp(transaction)
}

fn log(database: &Database) -> Vec<(Versionstamp, u16, String)> {
    let range = KeyRange::prefix("log/");
    let items = block_on(begin(database).range(range, RangeOptions::first(100_000))).unwrap().items;
    let entry = |item: &millrace_storage::KeyValue| {
        let stamp = Versionstamp(item.key[4..14].try_into().unwrap());
        let user = u16::from_be_bytes(item.key[14..16].try_into().unwrap());
        (stamp, user, String::from_utf8(item.value.to_vec()).unwrap())
    };
    items.iter().map(entry).collect()
}

pub(crate) fn stamps_order_commits(database: &Database, _: &Arc<TestHost>) {
    let per_thread = || -> Vec<_> { (0..200).map(|_| append(database, [0; 2], "x")).collect() };
    let mut stamps = thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(per_thread)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    // A commit that began after another was acknowledged has the later stamp.
    assert!(stamps.iter().all(|stamps| stamps.is_sorted()));
    stamps.sort();
    let mut all = stamps.concat();
    all.sort_unstable();
    assert_eq!(all, log(database).into_iter().map(|entry| entry.0).collect::<Vec<_>>());
    all.dedup();
    assert_eq!(all.len(), 800);
}

pub(crate) fn user_bytes_order_within_a_commit(database: &Database, _: &Arc<TestHost>) {
    let transaction = begin(database);
    for user in (0..300u16).rev() {
        transaction.set_versionstamped_key("log/", user.to_be_bytes(), "", user.to_string()).unwrap();
    }
    let stamp = stamp(transaction);
    let expected: Vec<_> = (0..300).map(|user| (stamp, user, user.to_string())).collect();
    assert_eq!(log(database), expected);
}

pub(crate) fn the_stamp_of_a_commit_is_the_one_in_its_keys(database: &Database, _: &Arc<TestHost>) {
    let transaction = begin(database);
    transaction.set_versionstamped_key("p", [1, 2], "suffix", "v").unwrap();
    let stamp = stamp(transaction);
    let key = [&b"p"[..], &stamp.0, &[1, 2], b"suffix"].concat();
    let reader = begin(database);
    assert!(block_on(reader.get(key, Default::default())).unwrap().is_some());
    assert!(block_on(reader.read_version()).unwrap() >= stamp.version());
}

pub(crate) fn a_clear_is_older_than_an_append(database: &Database, _: &Arc<TestHost>) {
    let old = append(database, [0; 2], "old");
    let newest = [&b"log/"[..], &old.0, &[0xff; 2]].concat();
    // Whether the transaction has its read version before or not.
    for reads in [false, true] {
        let transaction = begin(database);
        if reads {
            get(&transaction, "a");
        }
        transaction.set_versionstamped_key("log/", [0; 2], "", format!("{reads}")).unwrap();
        transaction.clear_range(KeyRange::new("log/", &newest)).unwrap();
        commit(transaction).unwrap();
    }
    let values: Vec<_> = log(database).into_iter().map(|entry| entry.2).collect();
    assert_eq!(values, ["false", "true"]);

    // To clear all that may come takes the append too, but not one after it.
    let transaction = begin(database);
    transaction.set_versionstamped_key("log/", [0; 2], "", "cleared").unwrap();
    transaction.clear_range(KeyRange::prefix("log/")).unwrap();
    transaction.set_versionstamped_key("log/", [0; 2], "", "last").unwrap();
    commit(transaction).unwrap();
    assert_eq!(log(database).into_iter().map(|entry| entry.2).collect::<Vec<_>>(), ["last"]);
}

pub(crate) fn an_append_leaves_older_keys_readable(database: &Database, _: &Arc<TestHost>) {
    let old = append(database, [0; 2], "old");
    let transaction = begin(database);
    transaction.set_versionstamped_key("log/", [0; 2], "", "new").unwrap();
    let range = KeyRange::new("log/", [&b"log/"[..], &old.0, &[0xff; 2]].concat());
    assert_eq!(block_on(transaction.range(range, RangeOptions::first(9))).unwrap().items.len(), 1);
    let key = [&b"log/"[..], &old.0, &[0; 2]].concat();
    assert_eq!(block_on(transaction.get(&key, Default::default())).unwrap().unwrap(), "old");
    commit(transaction).unwrap();
    assert_eq!(log(database).len(), 2);
}

pub(crate) fn additions_do_not_conflict_and_none_is_lost(database: &Database, _: &Arc<TestHost>) {
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..100 {
                    let transaction = begin(database);
                    transaction.atomic_add("n", 3).unwrap();
                    commit(transaction).unwrap();
                }
            });
        }
    });
    assert_eq!(number(get(&begin(database), "n")), 1_200);
}

pub(crate) fn additions_take_values_of_any_length(database: &Database, _: &Arc<TestHost>) {
    set(database, &[("short", "\x01\x01"), ("long", "\x02\0\0\0\0\0\0\0\x09")]);
    let transaction = begin(database);
    transaction.atomic_add("short", 1).unwrap();
    transaction.atomic_add("long", 1).unwrap();
    commit(transaction).unwrap();
    assert_eq!(number(get(&begin(database), "short")), 258);
    assert_eq!(number(get(&begin(database), "long")), 3);
}

pub(crate) fn a_range_cleared_with_an_append_in_the_same_group(database: &Database, _: &Arc<TestHost>) {
    // Not awaited one by one, so that engines that commit in groups have them in one.
    let transactions = (0..100).map(|round| {
        let transaction = begin(database);
        if round % 10 == 9 {
            transaction.clear_range(KeyRange::prefix("log/")).unwrap();
            transaction.set("cleared", round.to_string()).unwrap();
        } else {
            transaction.set_versionstamped_key("log/", [0; 2], "", round.to_string()).unwrap();
            transaction.atomic_add("count", 1).unwrap();
        }
        transaction.commit()
    });
    let commits: Vec<_> = transactions.collect();
    let stamps: Vec<_> = commits.into_iter().map(|commit| block_on(commit).unwrap().versionstamp).collect();
    let rest = append(database, [0; 2], "after");
    assert!(stamps.into_iter().all(|stamp| stamp.unwrap() < rest));
    assert_eq!(number(get(&begin(database), "count")), 90);
    // They were handed over in order; an engine across a network may take them in another.
    let log = log(database);
    assert!(log.iter().any(|entry| entry.2 == "after"));
    assert!(log.iter().all(|entry| entry.0 <= rest));
}
