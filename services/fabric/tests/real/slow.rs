//! A pod that does not take what it is sent.

use millrace_fabric::To;

use crate::support::{Pod, Server, needs_nats};

const BROKER: To = To::Broker(7);

#[test]
fn losses_of_a_slow_pod_are_counted_exactly_and_delay_no_other() {
    needs_nats!();
    // The server gives a client up that is 2 MB behind.
    let server = Server::start("max_pending: 2MB");
    let [sender, quick, slow]: [Pod; 3] = Pod::start_some(&server.url());
    quick.join(BROKER);
    slow.join(BROKER);
    const MESSAGES: u64 = 40_000;
    let gate = slow.recorder.gate.lock().unwrap();
    for round in 0..20 {
        sender.send_all(BROKER, round * MESSAGES / 20..(round + 1) * MESSAGES / 20, 1000);
        // Others are not slowed down, and lose nothing.
        sender.until_accounted(&quick, BROKER, (round + 1) * MESSAGES / 20);
    }
    drop(gate);
    sender.until_accounted(&slow, BROKER, MESSAGES);
    quick.seen(|seen| assert_eq!(seen.gaps, []));
    slow.seen(|seen| {
        assert!(!seen.gaps.is_empty(), "nothing was lost");
        assert!(seen.gaps.iter().all(|gap| gap.missing.is_some()), "{:?}", seen.gaps);
    });
    slow.until("to be back", |seen| seen.health.last().unwrap().connected);
    let counters = slow.fabric.counters();
    assert!(counters.connects > 1, "{counters:?}");
}
