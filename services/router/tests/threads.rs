//! Readers and writers at once.

#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use millrace_mqtt::QoS;
use millrace_mqtt::topic::Filter;
use millrace_router::{MatchLimits, Router, Subscription, Target, TopicTree};

fn subscription(slot: u32) -> Subscription {
    let target = Target { core: 0, slot, generation: 0 };
    Subscription {
        target,
        qos: QoS::AtMostOnce,
        no_local: false,
        retain_as_published: false,
        persistent: false,
        identifier: 0,
    }
}

fn plain(filter: &str) -> Filter<'_> {
    Filter { share: None, filter }
}

const ROUNDS: u32 = 2000;
const PAIRS: u32 = 50;

#[test]
fn readers_see_whole_batches_while_writers_work() {
    let router = Router::new();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut last = 0;
                    while !done.load(Ordering::Acquire) {
                        let generation = router.generation();
                        let snapshot = router.snapshot();
                        assert!(snapshot.generation() >= generation && generation >= last);
                        last = generation;
                        let receivers = snapshot.matches("a/b", MatchLimits::NONE).unwrap().receivers;
                        // Twins come and go together, by different filters.
                        for twins in receivers.chunks(2) {
                            assert_eq!(twins.len(), 2);
                            assert_eq!(twins[0].target.slot + 1, twins[1].target.slot);
                        }
                        assert!(receivers.is_sorted_by_key(|receiver| receiver.target));
                    }
                })
            })
            .collect();
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let router = &router;
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let slot = ((round * 7 % PAIRS) * 2 + writer) * 2;
                        router.edit(|edit| {
                            if !edit.unsubscribe(plain("a/b"), subscription(slot).target) {
                                assert!(edit.subscribe(plain("a/b"), subscription(slot)));
                                assert!(edit.subscribe(plain("a/+"), subscription(slot + 1)));
                            } else {
                                assert!(edit.unsubscribe(plain("a/+"), subscription(slot + 1).target));
                            }
                        });
                    }
                })
            })
            .collect();
        // Lets the readers go before it says that a writer failed.
        let results: Vec<_> = writers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        done.store(true, Ordering::Release);
        for result in results {
            result.unwrap();
        }
        for reader in readers {
            reader.join().unwrap();
        }
    });
    assert_eq!(router.generation(), u64::from(2 * ROUNDS));
    assert_eq!(
        router.subscriptions(),
        router.snapshot().matches("a/b", MatchLimits::NONE).unwrap().receivers.len()
    );
}

#[test]
fn a_thread_notified_after_subscribe_sees_the_subscription() {
    let router = Router::new();
    let told = AtomicU32::new(0);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for slot in 1..=ROUNDS {
                router.subscribe(plain("a"), subscription(slot));
                told.store(slot, Ordering::Release);
            }
        });
        let mut cached = (router.generation(), 0);
        let mut finished = false;
        while !finished {
            finished = writer.is_finished();
            let slot = told.load(Ordering::Acquire);
            // As a core does: what was matched before is good while the generation stands.
            if cached.0 != router.generation() {
                let snapshot = router.snapshot();
                cached = (
                    snapshot.generation(),
                    snapshot.matches("a", MatchLimits::NONE).unwrap().receivers.len(),
                );
            }
            assert!(cached.1 >= slot as usize);
        }
        assert_eq!(cached.1, ROUNDS as usize);
    });
}

#[test]
fn readers_of_a_topic_tree_see_each_change_whole() {
    let tree = TopicTree::new();
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in 0..ROUNDS {
                tree.insert("first", number);
                tree.insert("second", number);
            }
        });
        while !writer.is_finished() {
            let snapshot = tree.snapshot();
            let (first, second) = (snapshot.get("first").copied(), snapshot.get("second").copied());
            assert!(first == second || first == Some(second.map_or(0, |number| number + 1)));
        }
    });
    assert_eq!(tree.len(), 2);
}
