//! Traces and details of one client: on its own pod, and on another.

use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use millrace_edge::client_traces::{ClientTrace, ClientTraceEvent, PacketDirection, TraceReport};
use millrace_edge::clients::{ClientsAnswer, Question};
use millrace_layers::{Store, catalog};
use millrace_mqtt::{Properties, QoS, SubscribeOptions, Version};
use millrace_storage::{Database, block_on};

use crate::common::{Client, Server, publish_qos};
use crate::region::nats;
use crate::tools::eventually;

const PATIENCE: Duration = Duration::from_secs(60);

fn default_of(database: &Database) -> u64 {
    block_on(Store::new(database.clone()).ensure_broker(catalog::DEFAULT)).unwrap().id
}

fn ask(server: &Server, broker: u64, question: Question, pods: usize) -> ClientsAnswer {
    let (sender, said) = sync_channel(1_000);
    let _asking = server.edge.ask_clients(broker, question, move |answer| drop(sender.try_send(answer)));
    let answers: Vec<_> = (0..pods).filter_map(|_| said.recv_timeout(PATIENCE).unwrap().answer).collect();
    ClientsAnswer::merged(answers, 1)
}

/// A trace that all pods know.
fn trace(server: &Server, broker: u64, client: &str, pods: usize) -> (ClientTrace, Receiver<TraceReport>) {
    let (sender, said) = sync_channel(1_000);
    let trace =
        server.edge.trace_client(broker, client, move |report| drop(sender.try_send(report))).unwrap();
    let (number, client_id) = trace.subject();
    let client_id = client_id.into();
    ask(server, broker, Question::Trace { client_id, number }, pods);
    (trace, said)
}

/// The next event of this kind.
fn next(said: &Receiver<TraceReport>, kind: &str) -> ClientTraceEvent {
    loop {
        let event = said.recv_timeout(PATIENCE).unwrap().event;
        if let Some(event) = event.filter(|event| event.kind == kind) {
            return event;
        }
    }
}

#[test]
fn a_trace_shows_packets_of_both_ways_until_it_is_dropped() {
    let database = Database::memory();
    let id = default_of(&database);
    let server = Server::on(&database, |config| config.threads = 2);
    let mut client = Client::connect(&server, Version::V5, "c");
    let (trace, said) = trace(&server, id, "c", 1);
    client.publish(publish_qos(QoS::AtLeastOnce, 7, "plant/1", b"secret"));
    let published = next(&said, "PUBLISH");
    assert_eq!((published.direction, published.topic.as_deref()), (PacketDirection::In, Some("plant/1")));
    assert_eq!((published.packet_id, published.payload_bytes), (Some(7), Some(6)));
    assert_eq!(next(&said, "PUBACK").direction, PacketDirection::Out);
    client.ping();
    assert_eq!(next(&said, "PINGREQ").direction, PacketDirection::In);
    assert_eq!(next(&said, "PINGRESP").direction, PacketDirection::Out);
    drop(trace);
    client.ping();
    // The connection has dropped the trace, and with it the sink.
    let end = loop {
        if let Err(end) = said.recv_timeout(PATIENCE) {
            break end;
        }
    };
    assert_eq!(end, RecvTimeoutError::Disconnected);
}

#[test]
fn a_client_on_another_pod_is_traced() {
    let Some(net) = nats() else { return };
    let database = Database::memory();
    let id = default_of(&database);
    let pods = net.three(&database);
    // The other pods have not opened the broker yet.
    let (_trace, said) = trace(&pods[0], id, "c", 3);
    let mut client = Client::connect(&pods[1], Version::V5, "c");
    assert_eq!(next(&said, "CONNECT").direction, PacketDirection::In);
    client.subscribe("a/#", QoS::AtLeastOnce);
    let answered = next(&said, "SUBACK");
    let filter = &answered.filters[0];
    assert_eq!((filter.filter.as_deref(), filter.reason_code), (Some("a/#"), Some(1)));
    client.disconnect();
    assert_eq!(next(&said, "closed").reason.as_deref(), Some("client"));
}

#[test]
fn details_of_a_client_without_a_stored_session_have_its_filters_and_traffic() {
    let database = Database::memory();
    let id = default_of(&database);
    let server = Server::on(&database, |_| {});
    let mut reader = Client::connect(&server, Version::V311, "reader");
    reader.subscribe("b/#", QoS::AtMostOnce);
    reader.subscribe("a/+", QoS::AtLeastOnce);
    let mut publisher = Client::connect(&server, Version::V5, "publisher");
    publisher.publish(publish_qos(QoS::AtLeastOnce, 1, "a/1", b"xyz"));
    let of = |client: &str| ask(&server, id, Question::One(client.into()), 1).clients.pop().unwrap();
    let shown = of("reader");
    let filters: Vec<_> = shown.filters.iter().map(|one| (&*one.filter, one.qos)).collect();
    assert_eq!(filters, [("a/+", 1), ("b/#", 0)]);
    assert!(shown.last_packet_at_ms > 0);
    eventually(|| of("reader").messages_out == 1, || "the message is not counted".into());
    let sent = of("publisher");
    assert_eq!((sent.messages_in, sent.bytes_in, sent.messages_out), (1, 6, 0));
    let page = Question::Page { after: None, search: "reader".into(), limit: 1 };
    assert!(ask(&server, id, page, 1).clients[0].filters.is_empty(), "a page names no filters");
}

#[test]
fn details_of_a_client_with_many_filters_have_some_of_them_in_order() {
    let database = Database::memory();
    let id = default_of(&database);
    let server = Server::on(&database, |_| {});
    let mut client = Client::connect(&server, Version::V5, "c");
    let names: Vec<String> = (0..1_500).map(|number| format!("{number:04}")).collect();
    let filters: Vec<_> = names.iter().map(|name| (&**name, SubscribeOptions::default())).collect();
    client.subscribe_all(&filters, Properties::EMPTY);
    let shown = ask(&server, id, Question::One("c".into()), 1).clients.pop().unwrap();
    assert_eq!(shown.subscriptions, 1_500);
    let some: Vec<_> = shown.filters.iter().map(|one| one.filter.clone()).collect();
    assert!(some.len() > 100 && some.is_sorted_by(|a, b| a < b), "{some:?}");
    assert!(some.iter().all(|filter| names.contains(filter)), "{some:?}");
}
