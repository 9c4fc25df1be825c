//! Reads of ranges.

use std::sync::Arc;

use millrace_storage::{Database, KeyRange, RangeOptions, after, block_on, limits::PAGE_BYTES_MAX};

use crate::support::{TestHost, begin, commit, page, set, text};

pub(crate) fn pages_go_on_where_they_ended(database: &Database, _: &Arc<TestHost>) {
    let transaction = begin(database);
    for number in 0..100 {
        transaction.set(format!("k{number:02}"), "v").unwrap();
    }
    commit(transaction).unwrap();
    for (limit, reverse) in [(1, false), (7, true), (33, false), (50, true), (100, false), (100, true)] {
        let transaction = begin(database);
        let (mut range, mut seen) = (KeyRange::new("k", "l"), Vec::new());
        loop {
            let options = RangeOptions { reverse, ..RangeOptions::first(limit) };
            let page = block_on(transaction.range(range.clone(), options)).unwrap();
            assert!(page.items.len() <= limit);
            seen.extend(page.items.into_iter().map(|item| item.key));
            match seen.last() {
                Some(last) if page.more && reverse => range.end = last.clone(),
                Some(last) if page.more => range.begin = after(last),
                _ => break,
            }
        }
        if reverse {
            seen.reverse();
        }
        let expected: Vec<_> = (0..100).map(|number| format!("k{number:02}")).collect();
        assert_eq!(seen, expected, "limit {limit}, reverse {reverse}");
    }
}

pub(crate) fn a_page_is_bounded_in_bytes(database: &Database, _: &Arc<TestHost>) {
    let transaction = begin(database);
    for number in 0..30 {
        transaction.set(format!("k{number:02}"), vec![0; 90_000]).unwrap();
    }
    commit(transaction).unwrap();
    let page = page(&begin(database), "k", "l", RangeOptions::first(1_000));
    let bytes: usize = page.items.iter().map(|item| item.value.len()).sum();
    assert!(page.more && bytes <= PAGE_BYTES_MAX + 100_000, "{bytes}");
}

/// Whatever the engine reads at once.
pub(crate) fn a_page_has_as_many_keys_as_asked_for(database: &Database, _: &Arc<TestHost>) {
    let transaction = begin(database);
    for number in 0..3_000 {
        transaction.set(format!("k{number:04}"), vec![0; 200]).unwrap();
    }
    commit(transaction).unwrap();
    let transaction = begin(database);
    for (limit, reverse, found, more) in
        [(2_500, false, 2_500, true), (3_000, true, 3_000, false), (usize::MAX, false, 3_000, false)]
    {
        let options = RangeOptions { reverse, ..RangeOptions::first(limit) };
        let page = page(&transaction, "k", "l", options);
        assert_eq!((page.items.len(), page.more), (found, more), "limit {limit}, reverse {reverse}");
        assert!(page.items.is_sorted_by(|a, b| (a.key < b.key) != reverse));
    }
}

pub(crate) fn ends_and_directions(database: &Database, _: &Arc<TestHost>) {
    set(database, &[("a", "1"), ("b", "2"), ("b\0", "3"), ("c", "4")]);
    let transaction = begin(database);
    for (begin, end, limit, expected, more) in [
        ("a", "c", 9, "a=1 b=2 b\0=3", false),
        ("a", "c\0", 9, "a=1 b=2 b\0=3 c=4", false),
        ("b", "b\0", 9, "b=2", false),
        ("", "z", 4, "a=1 b=2 b\0=3 c=4", false),
        ("", "z", 3, "a=1 b=2 b\0=3", true),
        ("d", "z", 9, "", false),
    ] {
        let found = page(&transaction, begin, end, RangeOptions::first(limit));
        assert_eq!((text(&found.items).as_str(), found.more), (expected, more), "{begin:?} to {end:?}");
    }
    let found = page(&transaction, "a", "c", RangeOptions::last(2));
    assert_eq!((text(&found.items).as_str(), found.more), ("b\0=3 b=2", true));
    assert!(page(&transaction, "a", "z", RangeOptions::first(0)).items.is_empty());
}
