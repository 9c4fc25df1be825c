//! The limits of FoundationDB hold for every engine.

use std::{sync::Arc, time::Duration};

use millrace_storage::{
    Database, KeyRange, RangeOptions, Read, StoreError, Transaction, block_on,
    limits::{KEY_BYTES_MAX, TRANSACTION_AGE_MAX, TRANSACTION_BYTES_MAX, VALUE_BYTES_MAX, cost, range_cost},
};

use crate::support::{TestHost, begin, commit};

pub(crate) fn keys_and_values_have_limits(database: &Database, _: &Arc<TestHost>) {
    let transaction = begin(database);
    let (longest_key, longest_value) = (vec![b'k'; KEY_BYTES_MAX], vec![1; VALUE_BYTES_MAX]);
    transaction.set(&longest_key, longest_value.clone()).unwrap();
    assert_eq!(block_on(transaction.get(&longest_key, Read::Snapshot)), Ok(Some(longest_value.into())));

    let too_long = vec![b'k'; KEY_BYTES_MAX + 1];
    for key in [&too_long[..], b"", b"\xff", b"\xff\x01"] {
        let refused = StoreError::KeyNotAllowed(key.len());
        assert_eq!(transaction.set(key, "v"), Err(refused.clone()));
        assert_eq!(transaction.clear(key), Err(refused.clone()));
        assert_eq!(transaction.atomic_add(key, 1), Err(refused.clone()));
        assert_eq!(block_on(transaction.get(key, Read::Snapshot)), Err(refused));
    }
    let value = vec![0; VALUE_BYTES_MAX + 1];
    assert_eq!(transaction.set("k", value.clone()), Err(StoreError::ValueTooLarge(value.len())));
    assert_eq!(
        transaction.set_versionstamped_key("k", [0; 2], "", value.clone()),
        Err(StoreError::ValueTooLarge(value.len()))
    );
    let prefix = vec![b'k'; KEY_BYTES_MAX - 11];
    let length = KEY_BYTES_MAX + 1;
    assert_eq!(
        transaction.set_versionstamped_key(prefix, [0; 2], "", "v"),
        Err(StoreError::KeyNotAllowed(length))
    );
    // A refused write is not part of the transaction.
    commit(transaction).unwrap();
}

pub(crate) fn a_transaction_has_a_size(database: &Database, _: &Arc<TestHost>) {
    let transaction = begin(database);
    let mut written = 0;
    let refused = loop {
        let value = vec![0; VALUE_BYTES_MAX];
        match transaction.set(format!("k{written}"), value) {
            Ok(()) => written += VALUE_BYTES_MAX,
            Err(error) => break error,
        }
    };
    assert_eq!(refused, StoreError::TransactionTooLarge);
    assert!((TRANSACTION_BYTES_MAX - 2 * VALUE_BYTES_MAX..TRANSACTION_BYTES_MAX).contains(&written));
    assert_eq!(commit(transaction), Err(StoreError::TransactionTooLarge));
}

/// The interface counts no fewer bytes than the engine itself.
pub(crate) fn the_largest_transaction_commits(database: &Database, _: &Arc<TestHost>) {
    for key_bytes in [9, 300] {
        for kind in 0..6 {
            // A cluster may take too long for so much, then it is tried again.
            let run = database.run(async |transaction, _| fill(&transaction, kind, key_bytes).await);
            block_on(run).unwrap_or_else(|error| panic!("{kind}, {key_bytes}: {error}"));
        }
    }
}

/// As many writes of a kind as fit.
async fn fill(transaction: &Transaction, kind: usize, key_bytes: usize) -> Result<(), StoreError> {
    let key = |number: usize| format!("{number:0key_bytes$}");
    let (value, long) = (&b"1"[..], key_bytes + 1);
    let each = match kind {
        0 => cost(key_bytes, value.len()),
        1 => range_cost(key_bytes, key_bytes),
        2 => range_cost(key_bytes, long),
        3 => cost(key_bytes, 8),
        4 => cost(key_bytes + 13, value.len()),
        _ => range_cost(key_bytes, long) + cost(key_bytes, value.len()),
    };
    // Two apart, so that none touches the next.
    for number in (0..TRANSACTION_BYTES_MAX / each).map(|number| number * 2) {
        let key = key(number);
        match kind {
            0 => transaction.set(&key, value),
            1 => transaction.clear(&key),
            2 => transaction.clear_range(KeyRange::new(&key, format!("{key}+"))),
            3 => transaction.atomic_add(&key, 1),
            4 => transaction.set_versionstamped_key(&key, [0; 2], "+", value),
            _ if number % 100 == 0 => {
                transaction.get(&key, Read::Serializable).await?;
                transaction.set(&key, value)
            }
            _ => transaction
                .add_read_conflict_range(KeyRange::key(&key))
                .and_then(|()| transaction.set(&key, value)),
        }?;
    }
    Ok(())
}

pub(crate) fn a_transaction_has_an_age(database: &Database, host: &Arc<TestHost>) {
    let (young, old) = (begin(database), begin(database));
    for transaction in [&young, &old] {
        assert_eq!(block_on(transaction.get("k", Read::Serializable)), Ok(None));
        transaction.set("k", "v").unwrap();
    }
    host.advance(TRANSACTION_AGE_MAX);
    commit(young).unwrap();
    host.advance(Duration::from_millis(1));
    assert_eq!(block_on(old.get("k", Read::Serializable)), Err(StoreError::TooOld));
    assert_eq!(
        block_on(old.range(KeyRange::new("a", "b"), RangeOptions::first(1))).unwrap_err(),
        StoreError::TooOld
    );
    assert_eq!(commit(old), Err(StoreError::TooOld));
}

pub(crate) fn an_inverted_range_is_refused(database: &Database, _: &Arc<TestHost>) {
    let transaction = begin(database);
    let inverted = KeyRange::new("b", "a");
    assert_eq!(transaction.clear_range(inverted.clone()), Err(StoreError::InvertedRange));
    assert_eq!(transaction.add_read_conflict_range(inverted.clone()), Err(StoreError::InvertedRange));
    let read = block_on(transaction.range(inverted, RangeOptions::first(1)));
    assert_eq!(read.unwrap_err(), StoreError::InvertedRange);
    // An empty one is nothing, and the key space has an end.
    transaction.clear_range(KeyRange::new("a", "a")).unwrap();
    assert!(
        block_on(transaction.range(KeyRange::new("a", "a"), RangeOptions::first(1)))
            .unwrap()
            .items
            .is_empty()
    );
    transaction.clear_range(KeyRange::new("", b"\xff")).unwrap();
    assert_eq!(transaction.clear_range(KeyRange::new("", b"\xff\0")), Err(StoreError::KeyNotAllowed(2)));
}
