//! Against a `BTreeMap`.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Addresses that fall on one another, also over all 16 levels.
#[derive(Clone, Debug, PartialEq)]
struct Pair(u16, u32);

impl MapEntry for Pair {
    type Key = u16;
    const LEAF_MAX: usize = 4;

    fn key(&self) -> &u16 {
        &self.0
    }

    fn address(key: &u16, _: &Seed) -> u64 {
        if key.is_multiple_of(3) { 7 } else { u64::from(*key) << 56 | u64::from(*key >> 8) }
    }
}

fn address(pair: &Pair) -> u64 {
    Pair::address(&pair.0, &Seed::fixed(0))
}

fn check(map: &Map<Pair>, model: &BTreeMap<u16, u32>) {
    let seed = Seed::fixed(0);
    assert_eq!(map.len(), model.len());
    assert_eq!(map.is_empty(), model.is_empty());
    let mut entries: Vec<_> = map.iter().map(|pair| (pair.0, pair.1)).collect();
    entries.sort_unstable();
    assert!(entries.iter().copied().eq(model.iter().map(|(key, value)| (*key, *value))));
    for key in model.keys() {
        assert_eq!(map.get(key, &seed).map(|pair| pair.1), model.get(key).copied());
    }
    let mut addresses: Vec<_> = map.iter().map(address).collect();
    // Leaves are in the order of keys.
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!(map.first(address).map(address), addresses.first().copied());
    for pair in addresses.windows(2) {
        assert_eq!(map.next_after(pair[0], address).map(address), Some(pair[1]));
    }
    assert!(addresses.last().is_none_or(|last| map.next_after(*last, address).is_none()));
}

proptest! {
    #[test]
    fn is_a_map_and_its_clones_stay_as_they_were(
        steps in proptest::collection::vec((0u16..600, any::<u32>(), 0u8..5), 0..300),
    ) {
        let seed = Seed::fixed(0);
        let (mut map, mut model) = (Map::Empty, BTreeMap::new());
        let mut kept = Vec::new();
        for (key, value, action) in steps {
            match action {
                0 | 1 => {
                    let (entry, is_new) = map.get_or_insert(&key, &seed, || Pair(key, value));
                    entry.1 = value;
                    prop_assert_eq!(is_new, model.insert(key, value).is_none());
                }
                2 => {
                    let key = model.keys().nth(usize::from(key) % model.len().max(1)).copied().unwrap_or(key);
                    prop_assert_eq!(map.remove(&key, &seed).map(|pair| pair.1), model.remove(&key));
                }
                3 => {
                    if let Some(entry) = map.get_mut(&key, &seed) {
                        entry.1 = value;
                        model.insert(key, value);
                    }
                }
                _ => kept.push((map.clone(), model.clone())),
            }
        }
        check(&map, &model);
        for (map, model) in &kept {
            check(map, model);
        }
        for key in model.keys() {
            prop_assert!(map.remove(key, &seed).is_some());
        }
        prop_assert!(matches!(map, Map::Empty));
    }
}

#[test]
fn into_sole_yields_only_entries_without_another_owner() {
    let seed = Seed::fixed(0);
    let mut map = Map::Empty;
    for key in 0..500 {
        map.get_or_insert(&key, &seed, || Pair(key, 0));
    }
    let held = map.clone();
    let mut given = 0;
    map.into_sole(&mut |_| given += 1);
    assert_eq!(given, 0);
    held.into_sole(&mut |_| given += 1);
    assert_eq!(given, 500);
}
