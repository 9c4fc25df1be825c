use std::sync::Arc;

use millrace_mqtt::QoS;

use crate::core::testing::{Loops, TestClient, publish};
use crate::traces::{MessageSpan, SpanSink, Tracer};

struct Nowhere;

impl SpanSink for Nowhere {
    fn span(&self, _: MessageSpan) {}
}

fn traced(cores: usize, ratio: f64, per_second_max: u32) -> Loops {
    let mut loops = Loops::traced(cores, Tracer::new(Arc::new(Nowhere), ratio, per_second_max));
    loops.now_ms = Some(1_000_000);
    loops
}

/// How many messages the first loop traced, and how many it left out for the limit of traces per second.
fn counted(loops: &Loops) -> (u64, u64) {
    let counters = &loops.cores[0].process.core(0).counters;
    (counters.traces_followed.get(), counters.traces_over_rate.get())
}

/// Sends so many messages of QoS 0 with the receiver on the same loop; returns the work of the turns.
fn send(loops: &mut Loops, (publisher, receiver): &mut (TestClient, TestClient), messages: u16) -> u64 {
    publisher.send_all(&publish(0, "t", b"x").repeat(messages.into()));
    let (mut work, mut received) = (0, 0);
    loops.until(|loops| {
        work += loops.cores[0].work.counted();
        received += std::iter::from_fn(|| receiver.next()).count();
        received == usize::from(messages)
    });
    work
}

fn clients(loops: &mut Loops) -> (TestClient, TestClient) {
    let mut receiver = loops.connect(0, "receiver");
    loops.subscribe(&mut receiver, "t", QoS::AtMostOnce);
    (loops.connect(0, "publisher"), receiver)
}

#[test]
fn each_second_has_its_traces_and_every_further_sample_counts() {
    let mut loops = traced(2, 1.0, 8);
    let mut clients = clients(&mut loops);
    for second in 1..=3 {
        send(&mut loops, &mut clients, 100);
        send(&mut loops, &mut clients, 100);
        assert_eq!(counted(&loops), (second * 4, second * 196), "a loop of two has half of the limit");
        loops.now_ms = loops.now_ms.map(|now_ms| now_ms + 1000);
    }
}

#[test]
fn once_a_second_has_its_traces_messages_cost_no_more_than_without_a_tracer() {
    let mut untraced = Loops::start(1, |_| {});
    let mut its_clients = clients(&mut untraced);
    let without = send(&mut untraced, &mut its_clients, 1000);
    let mut loops = traced(1, 1.0, 8);
    let mut clients = clients(&mut loops);
    send(&mut loops, &mut clients, 100);
    let with = send(&mut loops, &mut clients, 1000);
    assert!(with < without + 1000, "{with} units of work instead of {without}");
}
