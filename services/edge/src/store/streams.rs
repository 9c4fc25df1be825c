//! Which streams keep a topic: the filter index of the store, in memory.
//!
//! Only the thread that writes changes it, after each commit that changed the index, and before anybody is told of the
//! commit. So what it has not yet was not acknowledged yet (P2).

use millrace_layers::index::Indexed;
use millrace_layers::streams::{StreamId, StreamRef};
use millrace_mqtt::QoS;
use millrace_mqtt::topic::Filter;
use millrace_router::{Router, Subscription, Target};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// The streams of a broker by filter.
#[derive(Default)]
pub(crate) struct Streams {
    router: Router,
    /// What stands in the router for a filter, to know what goes.
    of_filter: Mutex<HashMap<Box<str>, Vec<StreamId>>>,
}

/// The streams that keep a topic.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    pub(crate) generation: u64,
    pub(crate) streams: Box<[StreamRef]>,
}

impl Streams {
    pub(crate) fn generation(&self) -> u64 {
        self.router.generation()
    }

    pub(crate) fn matches(&self, topic: &str) -> Kept {
        let snapshot = self.router.snapshot();
        let found = snapshot.matches(topic);
        let streams = found
            .receivers
            .iter()
            .map(|receiver| StreamRef { stream: stream(receiver.target), partition: 0 });
        Kept { generation: snapshot.generation(), streams: streams.collect() }
    }

    /// These are all the streams of a filter now.
    pub(super) fn set(&self, filter: &str, streams: &[Indexed]) {
        let Some(parsed) = Filter::parse(filter) else { return };
        let new: Vec<StreamId> = streams.iter().map(|indexed| indexed.stream).collect();
        let mut of_filter = self.of_filter.lock().unwrap_or_else(PoisonError::into_inner);
        let old = of_filter.get(filter).map_or(&[][..], Vec::as_slice);
        if old == new {
            return;
        }
        self.router.edit(|edit| {
            for stream in old.iter().filter(|stream| !new.contains(stream)) {
                edit.unsubscribe(parsed, target(*stream));
            }
            for stream in new.iter().filter(|stream| !old.contains(stream)) {
                edit.subscribe(parsed, subscription(*stream));
            }
        });
        if new.is_empty() {
            of_filter.remove(filter);
        } else {
            of_filter.insert(filter.into(), new);
        }
    }
}

fn subscription(stream: StreamId) -> Subscription {
    let qos = QoS::AtLeastOnce;
    Subscription { target: target(stream), qos, no_local: false, retain_as_published: false, identifier: 0 }
}

/// A stream's id, which has 48 bits, as the router's kind of target.
fn target(stream: StreamId) -> Target {
    Target { core: 0, slot: (stream >> 32) as u32, generation: stream as u32 }
}

fn stream(target: Target) -> StreamId {
    u64::from(target.slot) << 32 | u64::from(target.generation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_finds_the_streams_of_its_filters_as_they_come_and_go() {
        let streams = Streams::default();
        let indexed = |group: &'static str, stream| Indexed { group: group.into(), stream };
        let found = |topic| {
            let mut found: Vec<u64> =
                streams.matches(topic).streams.iter().map(|stream| stream.stream).collect();
            found.sort_unstable();
            found
        };
        let (first, second) = ((1 << 48) - 1, 7);
        streams.set("a/+", &[indexed("", first)]);
        streams.set("a/b", &[indexed("", second), indexed("g", 9)]);
        assert_eq!((found("a/b"), found("a/c"), found("b")), (vec![7, 9, first], vec![first], vec![]));
        let generation = streams.generation();
        streams.set("a/+", &[indexed("", first)]);
        assert_eq!(streams.generation(), generation, "nothing changed");
        streams.set("a/+", &[indexed("", 3)]);
        streams.set("a/b", &[indexed("g", 9)]);
        assert_eq!((found("a/b"), found("a/c")), (vec![3, 9], vec![3]));
        streams.set("a/b", &[]);
        streams.set("a/+", &[]);
        assert!(found("a/b").is_empty() && streams.generation() > generation);
    }
}
