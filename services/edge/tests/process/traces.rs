//! Messages that are followed through the server.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use millrace_edge::{MessageSpan, SpanSink, TraceStep, Tracer};
use millrace_mqtt::Version::{V5, V311};
use millrace_mqtt::{Connect, Property, Publish, QoS, ReasonCode};
use millrace_storage::Database;

use crate::common::{Client, Server, ack, connect, list, properties, publish, publish_qos};
use crate::tools::{eventually, now};

const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// Chance chooses no message.
const ONLY_REQUESTED: f64 = 0.0;

#[derive(Default)]
struct Spans(Mutex<Vec<MessageSpan>>, AtomicBool);

impl SpanSink for Spans {
    fn span(&self, span: MessageSpan) {
        self.0.lock().unwrap().push(span);
    }

    fn has_room(&self) -> bool {
        !self.1.load(Ordering::SeqCst)
    }
}

impl Spans {
    fn all(&self) -> Vec<MessageSpan> {
        self.0.lock().unwrap().clone()
    }

    /// How many traces have ended.
    fn traces(&self) -> usize {
        self.all().iter().filter(|span| span.step == TraceStep::Publish).count()
    }
}

fn traced(ratio: f64, per_second_max: u32, threads: usize) -> (Arc<Spans>, Server) {
    let spans = Arc::new(Spans::default());
    let tracer = Arc::new(Tracer::new(spans.clone(), ratio, per_second_max));
    let server = Server::on(&Database::memory(), |config| {
        config.tracer = Some(tracer);
        config.threads = threads;
    });
    (spans, server)
}

/// A subscriber whose session the store keeps.
fn lasting(server: &Server, id: &str) -> Client {
    let expiry = properties(&[Property::SessionExpiryInterval(3600)]);
    let mut client = Client::open(server, Connect { properties: expiry, ..connect(V5, id) });
    client.subscribe("a/#", QoS::AtLeastOnce);
    client
}

fn asking<'a>(publish: &Publish<'a>, traceparent: &'a str) -> Publish<'a> {
    let properties = properties(&[Property::UserProperty("traceparent", traceparent)]);
    Publish { properties, ..publish.clone() }
}

#[test]
fn a_message_whose_publisher_records_its_trace_has_a_span_for_every_step() {
    let _alone = crate::alone();
    // Several loops: publisher and receiver may be on two.
    let (spans, server) = traced(ONLY_REQUESTED, 1000, 2);
    let mut receiver = lasting(&server, "receiver");
    let mut publisher = Client::connect(&server, V5, "publisher");
    let message = asking(&publish_qos(QoS::AtLeastOnce, 7, "a/b", b"x"), TRACEPARENT);
    assert_eq!(publisher.publish(message), ReasonCode::SUCCESS);
    let got = receiver.recv_publish();
    assert!(
        list(got.properties).contains(&Property::UserProperty("traceparent", TRACEPARENT)),
        "passed on as it was"
    );

    let steps = [
        TraceStep::Publish,
        TraceStep::Decode,
        TraceStep::Authorise,
        TraceStep::Match,
        TraceStep::Append,
        TraceStep::Commit,
        TraceStep::Deliver,
        TraceStep::Acknowledge,
    ];
    let seen = || spans.all().iter().map(|span| span.step).collect::<Vec<_>>();
    eventually(|| steps.iter().all(|step| seen().contains(step)), || format!("{:?}", spans.all()));
    let found = spans.all();
    let whole = found.iter().find(|span| span.step == TraceStep::Publish).unwrap();
    assert_eq!(whole.parent, Some([0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7]));
    assert_eq!((&*whole.broker, &*whole.topic, whole.qos), ("default", "a/b", QoS::AtLeastOnce));
    let by_id: HashMap<_, _> = found.iter().map(|span| (span.span_id, span)).collect();
    assert_eq!(by_id.len(), found.len(), "each span has an id of its own");
    for span in &found {
        assert_eq!(span.trace_id[..2], [0x4b, 0xf9]);
        assert!(span.start_ns <= span.end_ns && whole.start_ns <= span.start_ns, "{span:?}");
        assert!(!span.is_error);
        if span.step != TraceStep::Publish {
            assert_eq!(span.parent, Some(whole.span_id), "{span:?}");
        }
    }
}

#[test]
fn what_a_publisher_does_not_record_or_says_wrongly_is_not_followed() {
    let _alone = crate::alone();
    let (spans, server) = traced(ONLY_REQUESTED, 1000, 1);
    let mut receiver = lasting(&server, "receiver");
    let mut publisher = Client::connect(&server, V5, "publisher");
    let unrecorded = TRACEPARENT.replace("-01", "-00");
    for (number, text) in [&unrecorded, "00-nonsense", ""].into_iter().enumerate() {
        let id = u16::try_from(number + 1).unwrap();
        publisher.publish(asking(&publish_qos(QoS::AtLeastOnce, id, "a/b", b"x"), text));
        receiver.recv_publish();
    }
    assert!(spans.all().is_empty(), "{:?}", spans.all());
}

#[test]
fn with_a_ratio_of_one_every_message_is_followed_and_its_bytes_are_the_same() {
    let _alone = crate::alone();
    let (spans, server) = traced(1.0, 100_000, 1);
    let mut live = Client::connect(&server, V311, "live");
    live.subscribe("a/#", QoS::ExactlyOnce);
    let mut publisher = Client::connect(&server, V311, "publisher");
    for number in 0..20_u16 {
        let text = number.to_string();
        publisher.publish(publish("a/0", text.as_bytes()));
        assert_eq!(live.recv_publish().payload, text.as_bytes());
        publisher.publish(publish_qos(QoS::ExactlyOnce, number + 1, "a/2", text.as_bytes()));
        let got = live.recv_publish();
        assert_eq!(got.payload, text.as_bytes());
        live.send(&millrace_mqtt::Packet::PubRec(ack(got.packet_id.unwrap())));
        live.recv();
        live.send(&millrace_mqtt::Packet::PubComp(ack(got.packet_id.unwrap())));
    }
    eventually(|| spans.traces() == 40, || format!("{} traces", spans.traces()));
}

#[test]
fn a_flood_of_publishers_that_ask_is_followed_in_part() {
    let _alone = crate::alone();
    let (spans, server) = traced(ONLY_REQUESTED, 8, 1);
    let mut publisher = Client::connect(&server, V5, "publisher");
    let began = now();
    for _ in 0..500 {
        publisher.send(&millrace_mqtt::Packet::Publish(asking(&publish("a/b", b"x"), TRACEPARENT)));
    }
    publisher.ping();
    // A quarter of eight for the broker in each second that has begun.
    let seconds = usize::try_from(began.elapsed().as_secs()).unwrap() + 2;
    assert!((1..=2 * seconds).contains(&spans.traces()), "{} traces in {seconds} seconds", spans.traces());
}

#[test]
fn while_the_exporter_has_no_room_no_trace_begins() {
    let _alone = crate::alone();
    let (spans, server) = traced(1.0, 1000, 1);
    let mut publisher = Client::connect(&server, V5, "publisher");
    spans.1.store(true, Ordering::SeqCst);
    publisher.publish(publish_qos(QoS::AtLeastOnce, 1, "a/b", b"x"));
    publisher.publish(asking(&publish_qos(QoS::AtLeastOnce, 2, "a/b", b"x"), TRACEPARENT));
    assert!(spans.all().is_empty(), "{:?}", spans.all());
    spans.1.store(false, Ordering::SeqCst);
    publisher.publish(publish_qos(QoS::AtLeastOnce, 3, "a/b", b"x"));
    eventually(|| spans.traces() == 1, || format!("{:?}", spans.all()));
}

#[test]
fn a_refused_message_has_an_error() {
    let _alone = crate::alone();
    let (spans, server) = traced(1.0, 1000, 1);
    let mut publisher = Client::connect(&server, V5, "publisher");
    let reason = publisher.publish(publish_qos(QoS::AtLeastOnce, 1, "$SYS/x", b"x"));
    assert_eq!(reason, ReasonCode::NOT_AUTHORIZED);
    eventually(|| spans.traces() == 1, || format!("{:?}", spans.all()));
    let failed: Vec<_> = spans.all().iter().filter(|span| span.is_error).map(|span| span.step).collect();
    assert_eq!(failed, [TraceStep::Authorise, TraceStep::Acknowledge, TraceStep::Publish]);
}
