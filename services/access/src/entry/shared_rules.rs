//! Rule lists that clients of a broker have in common: each is in memory once, however many clients have it.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::rules::RuleList;

/// Length of the table from which lists without clients are forgotten, whenever it has doubled.
const FORGOTTEN_FROM: usize = 64;

#[derive(Debug, Default)]
pub(super) struct SharedRules {
    hasher: RandomState,
    table: Mutex<RuleTable>,
}

#[derive(Debug, Default)]
struct RuleTable {
    lists: HashMap<u64, Weak<RuleList>>,
    left: usize,
}

impl SharedRules {
    pub(super) fn share(&self, list: RuleList) -> Arc<RuleList> {
        let hash = self.hasher.hash_one(&list);
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = table.lists.get(&hash).and_then(Weak::upgrade)
            && *known == list
        {
            return known;
        }
        let list = Arc::new(list);
        table.lists.insert(hash, Arc::downgrade(&list));
        if table.lists.len() >= FORGOTTEN_FROM.max(2 * table.left) {
            table.lists.retain(|_, list| list.strong_count() > 0);
            table.left = table.lists.len();
        }
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Action, Effect, Rule};

    fn list(filter: &str) -> RuleList {
        RuleList::compile(&[Rule::new(Effect::Allow, Action::All, filter)]).unwrap()
    }

    #[test]
    fn equal_lists_are_one_and_a_list_without_clients_is_forgotten() {
        let shared = SharedRules::default();
        let (one, same, other) = (shared.share(list("a")), shared.share(list("a")), shared.share(list("b")));
        assert!(Arc::ptr_eq(&one, &same) && !Arc::ptr_eq(&one, &other));
        for number in 0..10_000 {
            shared.share(list(&number.to_string()));
            assert!(shared.table.lock().unwrap().lists.len() <= FORGOTTEN_FROM);
        }
        assert!(Arc::ptr_eq(&one, &shared.share(list("a"))));
        let kept: Vec<_> = (0..1_000).map(|number| shared.share(list(&number.to_string()))).collect();
        assert_eq!(shared.table.lock().unwrap().lists.len(), kept.len() + 2);
    }
}
