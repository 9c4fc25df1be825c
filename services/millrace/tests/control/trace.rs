//! The trace of a client over the API of the built program.

use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::Packet;
use rumqttc::v5::{Client, Connection, Event, MqttOptions};
use serde_json::{Value, json};

use crate::messages::Events;
use crate::{Browser, Server};

fn connect(server: &Server, id: &str) -> (Client, Connection) {
    Client::new(MqttOptions::new(id, "127.0.0.1", server.mqtt), 1_000)
}

fn until(connection: &mut Connection, is_last: impl Fn(&Packet) -> bool) {
    for event in connection.iter() {
        if matches!(event.unwrap(), Event::Incoming(packet) if is_last(&packet)) {
            return;
        }
    }
}

/// The next event of a trace that is of this kind, whatever stands between.
fn next(trace: &mut Events, kind: &str) -> Value {
    loop {
        let event = trace.next("trace");
        if event["kind"] == kind {
            return event;
        }
    }
}

fn of_default(server: &mut Server) -> (Browser, String) {
    let (owner, organisation) = server.machine_owner();
    (owner, format!("{organisation}/brokers/default"))
}

#[test]
fn a_trace_waits_for_its_client_and_shows_each_packet_without_payloads() {
    let data = tempfile::tempdir().unwrap();
    let mut server = Server::start(data.path());
    let (owner, broker) = of_default(&mut server);
    let mut trace = Events::open(&server, &owner, &format!("{broker}/clients/pump/trace"));
    assert_eq!(trace.next("begun"), json!({ "client": null, "unanswered": [] }));

    let (client, mut connection) = connect(&server, "pump");
    until(&mut connection, |packet| matches!(packet, Packet::ConnAck(_)));
    let connecting = next(&mut trace, "CONNECT");
    assert_eq!((&connecting["direction"], &connecting["connect"]["protocol"]), (&json!("in"), &json!("5.0")));
    let connected = next(&mut trace, "CONNACK");
    assert_eq!((&connected["direction"], &connected["reason_code"]), (&json!("out"), &json!(0)));

    client.subscribe("plant/#", QoS::AtLeastOnce).unwrap();
    until(&mut connection, |packet| matches!(packet, Packet::SubAck(_)));
    assert_eq!(next(&mut trace, "SUBSCRIBE")["filters"], json!([{ "filter": "plant/#", "qos": 1 }]));
    let answered = next(&mut trace, "SUBACK");
    assert_eq!(answered["filters"], json!([{ "filter": "plant/#", "qos": 1, "reason_code": 1 }]));

    client.publish("plant/1", QoS::AtLeastOnce, false, "top secret").unwrap();
    until(&mut connection, |packet| matches!(packet, Packet::Publish(_)));
    let published = next(&mut trace, "PUBLISH");
    assert_eq!((&published["direction"], &published["topic"]), (&json!("in"), &json!("plant/1")));
    assert_eq!((&published["qos"], &published["payload_bytes"]), (&json!(1), &json!(10)));
    assert!(!published.to_string().contains("secret"), "{published}");
    // The message and its acknowledgement go to the client in either order.
    let rest: Vec<Value> = (0..3).map(|_| trace.next("trace")).collect();
    for (kind, direction) in [("PUBLISH", "out"), ("PUBACK", "out"), ("PUBACK", "in")] {
        let is_there = rest.iter().any(|event| event["kind"] == kind && event["direction"] == direction);
        assert!(is_there, "{kind} {direction}: {rest:?}");
    }

    // A forbidden topic: the client gets only a reason code, and the trace says why.
    client.publish("$SYS/mine", QoS::AtMostOnce, false, "x").unwrap();
    client.disconnect().unwrap();
    while connection.iter().next().is_some_and(|event| event.is_ok()) {}
    let dropped = next(&mut trace, "dropped");
    assert_eq!((&dropped["direction"], &dropped["topic"]), (&json!("server"), &json!("$SYS/mine")));
    assert_eq!(next(&mut trace, "DISCONNECT")["direction"], "in");
    assert_eq!(next(&mut trace, "closed")["reason"], "client");
}

#[test]
fn a_trace_begins_on_a_connected_client_and_shows_no_other() {
    let data = tempfile::tempdir().unwrap();
    let mut server = Server::start(data.path());
    let (owner, broker) = of_default(&mut server);
    let (pump, mut of_pump) = connect(&server, "pump");
    let (other, mut of_other) = connect(&server, "other");
    for connection in [&mut of_pump, &mut of_other] {
        until(connection, |packet| matches!(packet, Packet::ConnAck(_)));
    }
    let mut trace = Events::open(&server, &owner, &format!("{broker}/clients/pump/trace"));
    assert_eq!(trace.next("begun")["client"]["client_id"], "pump");
    other.publish("a", QoS::AtLeastOnce, false, "").unwrap();
    until(&mut of_other, |packet| matches!(packet, Packet::PubAck(_)));
    pump.publish("b", QoS::AtMostOnce, false, "").unwrap();
    pump.publish("c", QoS::AtLeastOnce, false, "").unwrap();
    until(&mut of_pump, |packet| matches!(packet, Packet::PubAck(_)));
    let topics: Vec<Value> = (0..2).map(|_| next(&mut trace, "PUBLISH")["topic"].clone()).collect();
    assert_eq!(topics, ["b", "c"]);

    let shown = server.get(&owner, &format!("{broker}/clients/pump"));
    assert_eq!(
        (&shown["messages_in"], &shown["messages_out"], &shown["filters"]),
        (&json!(2), &json!(0), &json!([]))
    );
    assert!(shown["last_packet_at_ms"].as_u64() > Some(0), "{shown}");

    // An operator's decision is in the trace, too.
    let kicked = server.ask(&owner, "DELETE", &format!("{broker}/clients/pump"), &Value::Null);
    assert_eq!(kicked.status, 204, "{}", kicked.body);
    assert_eq!(next(&mut trace, "closed")["reason"], "disconnected by an operator");
    assert_eq!(next(&mut trace, "DISCONNECT")["reason_code"], 0x98);
}

#[test]
fn a_refused_connect_is_in_the_trace_with_its_reason() {
    let data = tempfile::tempdir().unwrap();
    let mut server = Server::start(data.path());
    let (owner, organisation) = server.machine_owner();
    let made =
        server.ask(&owner, "POST", &format!("{organisation}/brokers"), &json!({ "display_name": "Plant" }));
    let name = made.body["name"].as_str().unwrap();
    let broker = format!("{organisation}/brokers/{name}");
    let mut trace = Events::open(&server, &owner, &format!("{broker}/clients/pump/trace"));
    trace.next("begun");
    let mut options = MqttOptions::new("pump", "127.0.0.1", server.mqtt);
    options.set_credentials(format!("{name}/nobody"), "top secret");
    let (_client, mut connection) = Client::new(options, 10);
    assert!(connection.iter().any(|event| event.is_err()));
    let connecting = next(&mut trace, "CONNECT");
    assert!(!connecting.to_string().contains("secret"), "{connecting}");
    let refused = next(&mut trace, "refused");
    assert_eq!((&refused["direction"], &refused["reason_code"]), (&json!("server"), &json!(0x86)));
    assert!(refused["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{refused}");
    assert_eq!(next(&mut trace, "CONNACK")["reason_code"], 0x86);
}

#[test]
fn a_trace_of_a_fast_publisher_says_how_much_it_left_out() {
    const MESSAGES: u64 = 20_000;
    let data = tempfile::tempdir().unwrap();
    let mut server = Server::start(data.path());
    let (owner, broker) = of_default(&mut server);
    let mut trace = Events::open(&server, &owner, &format!("{broker}/clients/fast/trace"));
    trace.next("begun");
    let (client, mut connection) = connect(&server, "fast");
    let publishing = std::thread::spawn(move || {
        for _ in 0..MESSAGES {
            client.publish("a", QoS::AtMostOnce, false, "x").unwrap();
        }
        client.disconnect().unwrap();
    });
    while connection.iter().next().is_some_and(|event| event.is_ok()) {}
    publishing.join().unwrap();
    // The events that were shown and those that were left out are all there were.
    let (mut seen, mut left_out) = (0, 0);
    while seen + left_out < MESSAGES {
        match trace.next_of(&["trace", "left_out"]) {
            (0, event) => seen += u64::from(event["kind"] == "PUBLISH"),
            (_, event) => left_out += event["events"].as_u64().unwrap(),
        }
    }
    assert!(seen > 0, "some are shown");
}
