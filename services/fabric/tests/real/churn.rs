//! Joins and leaves at random.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fastrand::Rng;
use millrace_fabric::To;

use crate::support::{Pod, Server, needs_nats, seed};

const BROKERS: u64 = 4;

/// Nothing is lost here, so there is no gap, and who has joined gets all that is sent from then on.
#[test]
fn joins_and_leaves_make_no_gap() {
    needs_nats!();
    let mut rng = Rng::with_seed(seed());
    let server = Server::start("");
    let pods: [Pod; 4] = Pod::start_some(&server.url());
    let is_over = AtomicBool::new(false);
    // How many messages each pod has sent to each broker.
    let sent: Vec<Vec<AtomicU64>> =
        pods.iter().map(|_| (0..BROKERS).map(|_| AtomicU64::new(0)).collect()).collect();
    /// Ends the senders, also when something fails.
    struct End<'e>(&'e AtomicBool);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    std::thread::scope(|scope| {
        let _end = End(&is_over);
        for (pod, sent) in pods.iter().zip(&sent) {
            let mut rng = rng.fork();
            let is_over = &is_over;
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    for _ in 0..rng.u32(..20) {
                        let broker = rng.u64(..BROKERS);
                        // A number that is counted is on its way, or will be.
                        let number = sent[broker as usize].fetch_add(1, Ordering::SeqCst);
                        let _ = pod.send(To::Broker(broker), number, rng.usize(..300));
                    }
                    std::thread::park_timeout(std::time::Duration::from_millis(rng.u64(1..10)));
                }
            });
        }
        for _ in 0..100 {
            let receiver = &pods[rng.usize(..pods.len())];
            let broker = rng.u64(..BROKERS);
            let to = To::Broker(broker);
            if receiver.seen(|seen| seen.joined.remove(&to).is_some()) {
                receiver.fabric.leave(to);
                continue;
            }
            // A new window: what an earlier one left is of no interest.
            receiver.seen(|seen| seen.messages.retain(|(_, other), _| *other != to));
            receiver.join(to);
            let since: BTreeMap<_, _> = pods
                .iter()
                .zip(&sent)
                .filter(|(pod, _)| pod.id != receiver.id)
                .map(|(pod, sent)| (pod.id, sent[broker as usize].load(Ordering::SeqCst)))
                .collect();
            receiver.until("messages of each", |seen| {
                since.iter().all(|(pod, since)| {
                    let last = seen.messages.get(&(*pod, to)).and_then(|numbers| *numbers.last()?);
                    last.is_some_and(|last| last >= since + 5)
                })
            });
            receiver.seen(|seen| {
                for (pod, since) in since {
                    let numbers = seen.messages[&(pod, to)].iter().map(|number| number.unwrap());
                    let numbers: Vec<_> = numbers.filter(|number| *number >= since).collect();
                    let expected: Vec<_> = (since..since + numbers.len() as u64).collect();
                    assert_eq!(numbers, expected, "{to:?} of {pod} after it was joined");
                }
            });
        }
    });
    for pod in &pods {
        let gaps = pod.seen(|seen| std::mem::take(&mut seen.gaps));
        assert_eq!(gaps, [], "{}\n{:#?}", pod.fabric.health(), pod.fabric.counters());
    }
}
