//! Webhooks of a server that is killed during a request.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use rumqttc::{Client, Packet, QoS};
use serde_json::{Value, json};

use crate::{Server, client};

/// Longest wait for an event, which is retried seconds after a failure.
const PATIENCE: Duration = Duration::from_secs(30);

/// An event, and the way to answer its request.
struct Told {
    id: String,
    payload: String,
    from: TcpStream,
}

impl Told {
    fn take(mut self) {
        self.from
            .write_all(b"HTTP/1.1 204 No Content\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            .unwrap();
    }
}

/// A tenant's service. Returns its URL and the received events.
fn service() -> (String, Receiver<Told>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let (tell, told) = sync_channel(100);
    std::thread::spawn(move || {
        for from in listener.incoming() {
            let from = from.unwrap();
            let mut reader = BufReader::new(from.try_clone().unwrap());
            let (mut line, mut length) = (String::new(), 0);
            while reader.read_line(&mut line).is_ok_and(|bytes| bytes > 2) {
                if let Some(bytes) = line.to_lowercase().strip_prefix("content-length:") {
                    length = bytes.trim().parse().unwrap();
                }
                line.clear();
            }
            let mut body = vec![0; length];
            // A server that was killed sends no more.
            if reader.read_exact(&mut body).is_err() {
                continue;
            }
            let Ok(event) = serde_json::from_slice::<Value>(&body) else { continue };
            let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap().to_owned();
            let told = Told { id: text("/id"), payload: text("/data/payload"), from };
            if tell.send(told).is_err() {
                return;
            }
        }
    });
    (url, told)
}

fn publish(server: &Server, payload: &str) {
    let publish =
        |client: &Client| client.try_publish("plant/alarm", QoS::AtLeastOnce, false, payload).unwrap();
    client(server, "writer", publish, |packet| matches!(packet, Packet::PubAck(_)));
}

#[test]
fn an_event_that_was_told_and_not_noted_is_told_again_as_the_same_one_and_none_is_lost() {
    let (url, told) = service();
    let told = || told.recv_timeout(PATIENCE).unwrap();
    let data = tempfile::tempdir().unwrap();
    let mut server = Server::start(data.path());
    let (ann, organisation) = server.first_person();
    let broker = format!("{organisation}/brokers/default");
    let webhook = json!({ "url": url, "events": ["message"], "filters": ["plant/#"] });
    assert_eq!(server.create(&ann, &format!("{broker}/webhooks/orders"), &webhook).status, 201);
    // The webhook counts within two seconds; earlier messages are not for it.
    let mut tries = 0;
    loop {
        publish(&server, "ready");
        let status = server.get(&ann, &format!("{broker}/webhooks/orders/status"));
        if status["queued_events"].as_u64() > Some(0) || status["delivered"].as_u64() > Some(0) {
            break;
        }
        tries += 1;
        assert!(tries < 100, "{status}");
        std::thread::park_timeout(Duration::from_millis(100));
    }
    publish(&server, "first");
    publish(&server, "second");
    let mut event = told();
    while event.payload == "ready" {
        event.take();
        event = told();
    }

    // The request was sent, and the server does not know the answer.
    assert_eq!(event.payload, "first");
    drop(server);
    let server = Server::start(data.path());
    let again = told();
    assert_eq!((&again.id, &*again.payload), (&event.id, "first"));
    // The server is killed before or after it can record the answer.
    again.take();
    drop(server);
    let server = Server::start(data.path());
    publish(&server, "third");
    let mut next = told();
    if next.payload == "first" {
        assert_eq!(next.id, event.id);
        next.take();
        next = told();
    }
    assert_eq!(next.payload, "second");
    next.take();
    let third = told();
    assert_eq!(third.payload, "third");
    third.take();
}
