//! The embedded engine's numbers for `/metrics`.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::HashSet;

use common::{begin, files, put};
use millrace_storage::{Database, Embedded, Options, Read, Stat, StatKind, StoreError, block_on};

fn number(stats: &[Stat], name: &str, labels: &str) -> u64 {
    stats.iter().find(|stat| stat.name == name && stat.labels == labels).unwrap().value as u64
}

#[test]
fn transactions_keys_bytes_and_syncs_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let store = Embedded::open(&folder, Options::default()).unwrap();
    let database = store.database();
    let counter = |name: &str| number(&database.stats(), name, "");
    assert_eq!(counter("millrace_store_transactions_total"), 0);
    put(&database, "k", "value").unwrap();
    put(&database, "l", "value").unwrap();
    let late = begin(&database);
    block_on(late.get("k", Read::Serializable)).unwrap();
    put(&database, "k", "other").unwrap();
    late.set("m", "v").unwrap();
    assert_eq!(block_on(late.commit()), Err(StoreError::Conflict));
    assert_eq!(counter("millrace_store_transactions_total"), 3);
    assert_eq!(counter("millrace_store_keys_written_total"), 3);
    assert_eq!(counter("millrace_store_written_bytes_total"), 18);
    assert_eq!(number(&store.stats(), "millrace_store_refused_total", "reason=\"conflict\""), 1);
    // Each transaction was a group of its own. The transaction in conflict wrote nothing.
    assert_eq!((counter("millrace_store_groups_total"), counter("millrace_store_syncs_total")), (3, 3));
    let journal = std::fs::read(&files(folder.path(), ".jnl")[0]).unwrap();
    let written = journal.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    assert_eq!(counter("millrace_store_journal_bytes_total"), written as u64);
}

#[test]
fn each_number_has_a_name_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let stats = Embedded::open(&folder, Options::default()).unwrap().stats();
    let mut seen = HashSet::new();
    for (index, stat) in stats.iter().enumerate() {
        assert!(seen.insert((stat.name, stat.labels)), "{} is there twice", stat.name);
        assert!(stat.name.starts_with("millrace_store_") && stat.help.ends_with('.'), "{}", stat.name);
        assert_eq!(stat.name.ends_with("_total"), stat.kind == StatKind::Counter, "{}", stat.name);
        // Numbers of one name are adjacent and have the same description.
        if let Some(before) = stats[..index].iter().rfind(|before| before.name == stat.name) {
            assert_eq!(
                (before.name, before.help, before.kind),
                (stats[index - 1].name, stat.help, stat.kind)
            );
        }
    }
    assert!(Database::memory().stats().iter().any(|stat| stat.name == "millrace_store_groups_total"));
}
