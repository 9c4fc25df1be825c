//! Random operations, one transaction after another, against a map.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use millrace_storage::{Database, KeyRange, Transaction, block_on};

use crate::support::{Random, TestHost, begin, commit, page};

type Model = BTreeMap<String, Bytes>;

pub(crate) fn random_operations_do_what_a_map_does(database: &Database, _: &Arc<TestHost>) {
    let mut random = Random(7);
    let mut model = Model::new();
    for round in 0..400 {
        let transaction = begin(database);
        let mut seen = model.clone();
        for _ in 0..1 + random.below(6) {
            change(&transaction, &mut seen, &mut random);
            if random.below(4) == 0 {
                compare(&transaction, &seen, &mut random);
            }
        }
        if random.below(5) > 0 {
            commit(transaction).unwrap();
            model = seen;
        }
        compare(&begin(database), &model, &mut random);
        assert_eq!(
            block_on(begin(database).get("k5", Default::default())).unwrap().as_ref(),
            model.get("k5"),
            "{round}"
        );
    }
}

fn change(transaction: &Transaction, model: &mut Model, random: &mut Random) {
    let key = format!("k{}", random.below(10));
    match random.below(6) {
        0 | 1 => {
            let value = Bytes::copy_from_slice(&(random.below(1_000) as i64).to_le_bytes());
            transaction.set(&key, value.clone()).unwrap();
            model.insert(key, value);
        }
        2 => {
            transaction.clear(&key).unwrap();
            model.remove(&key);
        }
        3 | 4 => {
            let end = format!("k{}", random.below(10));
            let (begin, end) = if key < end { (key, end) } else { (end, key) };
            transaction.clear_range(KeyRange::new(&begin, &end)).unwrap();
            model.retain(|key, _| *key < begin || *key >= end);
        }
        _ => {
            let addend = random.below(100) as i64 - 50;
            transaction.atomic_add(&key, addend).unwrap();
            let before = model.get(&key).map_or(0, |value| i64::from_le_bytes(value[..].try_into().unwrap()));
            model.insert(key, Bytes::copy_from_slice(&(before + addend).to_le_bytes()));
        }
    }
}

fn compare(transaction: &Transaction, model: &Model, random: &mut Random) {
    let (begin, end) = (format!("k{}", random.below(10)), "l");
    let reverse = random.below(2) == 0;
    let limit = 1 + random.below(12) as usize;
    let options = millrace_storage::RangeOptions { reverse, ..millrace_storage::RangeOptions::first(limit) };
    let found = page(transaction, &begin, end, options);
    let mut expected: Vec<_> =
        model.range(begin..).map(|(key, value)| (key.clone().into(), value.clone())).collect();
    if reverse {
        expected.reverse();
    }
    let more = expected.len() > limit;
    expected.truncate(limit);
    let items: Vec<(Bytes, Bytes)> = found.items.into_iter().map(|item| (item.key, item.value)).collect();
    assert_eq!((items, found.more), (expected, more));
}
