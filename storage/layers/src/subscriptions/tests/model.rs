//! Sessions that subscribe, unsubscribe and end at random, against sets.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::sessions::end;

#[derive(Clone, Debug)]
enum Step {
    Subscribe(usize, &'static str),
    Unsubscribe(usize, &'static str),
    End(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let filter =
        || prop::sample::select(&["a", "a/+", "#", "b/#", "$share/g/a", "$share/g/a/+", "$share/h/a"][..]);
    let step = prop_oneof![
        6 => (0..4usize, filter()).prop_map(|(session, filter)| Step::Subscribe(session, filter)),
        4 => (0..4usize, filter()).prop_map(|(session, filter)| Step::Unsubscribe(session, filter)),
        1 => (0..4usize).prop_map(Step::End),
    ];
    proptest::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn the_index_has_the_filters_that_somebody_has(steps in steps()) {
        let database = database();
        let mut sessions = sessions(&database, 4);
        let mut model = vec![BTreeSet::new(); 4];
        for step in steps {
            match step {
                Step::Subscribe(number, filter) => {
                    let made = subscribed(&database, &sessions[number], filter);
                    let others = model.iter().any(|filters: &BTreeSet<_>| filters.contains(filter));
                    prop_assert_eq!((made.existed, made.is_first), (!model[number].insert(filter), !others));
                }
                Step::Unsubscribe(number, filter) => {
                    prop_assert_eq!(unsubscribed(&database, &sessions[number], filter), model[number].remove(filter));
                }
                Step::End(number) => {
                    let (client, epoch) = sessions[number].clone();
                    run(&database, async |tx| end(owned(tx, &client, epoch).await).await);
                    sessions[number].1 = attached(&database, &client, &request("pod", 1)).epoch;
                    model[number].clear();
                }
            }
            let mut counts = BTreeMap::new();
            for filter in model.iter().flatten() {
                *counts.entry(filter.as_bytes().to_vec()).or_insert(0u64) += 1;
            }
            prop_assert_eq!(indexed(&database), counts);
        }
        for (number, filters) in model.iter().enumerate() {
            let listed = run(&database, async |tx| list(tx, id(&sessions[number].0)).await);
            let listed: Vec<_> = listed.iter().map(|subscription| &subscription.filter[..]).collect();
            prop_assert_eq!(listed, filters.iter().map(|filter| filter.as_bytes()).collect::<Vec<_>>());
        }
    }
}

/// All filters of the index by name, with the number of their subscribers.
fn indexed(database: &Database) -> BTreeMap<Vec<u8>, u64> {
    run(database, async |tx| {
        let mut filters = index::list(tx, BROKER, IndexPart::Wildcard, None, 100).await?;
        filters.extend(index::list(tx, BROKER, IndexPart::Exact, None, 100).await?);
        let mut found = BTreeMap::new();
        for filter in filters {
            for indexed in filter.streams {
                let name = GroupedFilter { group: &indexed.group, filter: &filter.filter }.name();
                let row = streams::stream(tx, BROKER, indexed.stream, Read::Snapshot).await?;
                assert_eq!(row.unwrap().name, name);
                found.insert(name, subscribers(tx, BROKER, indexed.stream).await?);
            }
        }
        Ok(found)
    })
}
