//! Look-ups that join those of an earlier SUBSCRIBE, because a session marks only so many slots in its queue.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::ReplayLookups;
use super::lookup::{Lookup, LookupTree};

/// Where the waiting look-up of each filter is in the session's last slot; a `$SYS` filter has two. The indexes stay valid,
/// because no look-up of the last slot starts before the earlier slots are done.
#[derive(Default)]
pub(super) struct Late {
    of_clients: HashMap<Box<str>, usize>,
    of_server: HashMap<Box<str>, usize>,
    ended: usize,
}

impl Late {
    /// Returns true if the look-up replaces one of the same filter.
    pub(super) fn push(&mut self, last: &mut ReplayLookups, filter: Box<str>, lookup: Lookup) -> bool {
        let at = if lookup.tree == LookupTree::Sys { &mut self.of_server } else { &mut self.of_clients };
        match at.entry(filter) {
            Entry::Occupied(at) => {
                last[*at.get()] = lookup;
                true
            }
            Entry::Vacant(new) => {
                new.insert(last.len());
                last.push_back(lookup);
                false
            }
        }
    }

    /// The subscription has ended. Ended look-ups are removed once they are the larger part.
    pub(super) fn end(&mut self, last: &mut ReplayLookups, filter: &str) {
        for at in [self.of_clients.remove(filter), self.of_server.remove(filter)].into_iter().flatten() {
            last[at].end();
            self.ended += 1;
        }
        if self.ended * 2 > last.len() {
            self.compact(last);
        }
    }

    fn compact(&mut self, last: &mut ReplayLookups) {
        let mut index = 0;
        let moved: Vec<usize> = last
            .iter()
            .map(|lookup| {
                index += usize::from(!lookup.has_ended());
                index.saturating_sub(1)
            })
            .collect();
        last.retain(|lookup| !lookup.has_ended());
        last.shrink_to(last.len() * 2);
        self.of_clients.values_mut().chain(self.of_server.values_mut()).for_each(|at| *at = moved[*at]);
        self.ended = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use millrace_mqtt::{Properties, QoS};
    use millrace_session::Message;

    use super::*;
    use crate::broker::Broker;
    use crate::jobs::replay::{Replay, RetainedPages};

    /// A broker with a retained message, because look-ups of an empty one do not begin.
    fn broker() -> Broker {
        let broker = Broker::new(1, "b", 1);
        let message = Message::new("t".into(), QoS::AtMostOnce, true, Properties::EMPTY, b"x", 0);
        broker.retain(&Arc::new(message));
        broker
    }

    fn lookup(broker: &Broker, filter: &str) -> Lookup {
        let replay = Replay {
            filter: filter.into(),
            qos: QoS::AtLeastOnce,
            identifier: 0,
            left_out: 0,
            retained: Some(broker.retained.snapshot()),
            pages: RetainedPages::default().into(),
        };
        Lookup::all(&replay, broker).next().unwrap()
    }

    #[test]
    fn filters_that_come_and_go_leave_no_lookups() {
        let broker = broker();
        let (mut late, mut last) = (Late::default(), ReplayLookups::new());
        last.push_back(lookup(&broker, "of the place"));
        assert!(!late.push(&mut last, "stays".into(), lookup(&broker, "stays")));
        for number in 0..10_000 {
            let filter = format!("f/{number}");
            assert!(!late.push(&mut last, (&*filter).into(), lookup(&broker, &filter)));
            late.end(&mut last, &filter);
            assert!(last.len() <= 6, "{}", last.len());
        }
        assert_eq!((late.of_clients.len(), late.of_server.len()), (1, 0));
        assert!(late.push(&mut last, "stays".into(), lookup(&broker, "stays")), "it is replaced");
        late.end(&mut last, "stays");
        late.end(&mut last, "was never there");
        assert_eq!(last.iter().filter(|lookup| !lookup.has_ended()).count(), 1);
    }

    #[test]
    fn indexes_hold_after_others_have_ended() {
        let broker = broker();
        let (mut late, mut last) = (Late::default(), ReplayLookups::new());
        let filters: Vec<String> = (0..100).map(|number| format!("f/{number}")).collect();
        for filter in &filters {
            late.push(&mut last, (&**filter).into(), lookup(&broker, filter));
        }
        filters[..70].iter().for_each(|filter| late.end(&mut last, filter));
        for filter in &filters[70..] {
            assert!(late.push(&mut last, (&**filter).into(), lookup(&broker, filter)));
        }
        filters[70..].iter().for_each(|filter| late.end(&mut last, filter));
        assert!(last.is_empty());
    }
}
