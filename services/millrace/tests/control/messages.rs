//! Messages over the API of the built program: publishing, the tail, connect tokens.

#![allow(clippy::disallowed_methods, reason = "a test measures the server from outside")]

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rumqttc::{Client, ConnectReturnCode, ConnectionError, Event, MqttOptions, Packet, QoS};
use serde_json::{Value, json};

use crate::{Browser, Server, client};

/// A stream of server-sent events.
pub(super) struct Events(BufReader<TcpStream>);

impl Events {
    pub(super) fn open(server: &Server, browser: &Browser, path: &str) -> Self {
        Self::open_with(server, &format!("Cookie: {}", browser.cookie), path)
    }

    pub(super) fn open_with(server: &Server, header: &str, path: &str) -> Self {
        let mut stream = TcpStream::connect(&server.http).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        write!(stream, "GET /api/v1{path} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n\r\n").unwrap();
        let mut events = Self(BufReader::new(stream));
        assert_eq!(events.line(), "HTTP/1.1 200 OK");
        events
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.0.read_line(&mut line).unwrap() > 0, "the stream has ended");
        line.trim_end().to_owned()
    }

    /// The next event of this kind.
    pub(super) fn next(&mut self, kind: &str) -> Value {
        self.next_of(&[kind]).1
    }

    /// The next event of one of these kinds, with the index of its kind.
    pub(super) fn next_of(&mut self, kinds: &[&str]) -> (usize, Value) {
        loop {
            let line = self.line();
            let found =
                line.strip_prefix("event: ").and_then(|name| kinds.iter().position(|kind| *kind == name));
            if let Some(found) = found {
                return (found, serde_json::from_str(self.line().strip_prefix("data: ").unwrap()).unwrap());
            }
        }
    }
}

#[test]
fn what_is_published_over_http_is_stored_and_shown_as_it_happens() {
    let data = tempfile::tempdir().unwrap();
    let mut server = Server::start(data.path());
    let (owner, organisation) = server.machine_owner();
    let broker = format!("{organisation}/brokers/default");
    let found = server.get(&owner, &broker);
    assert_eq!(found["endpoints"]["mqtt"]["url"], format!("mqtt://127.0.0.1:{}", server.mqtt));
    let publish = |body: &Value| server.ask(&owner, "POST", &format!("{broker}/publish"), body);

    let nobody = publish(&json!({ "topic": "plant/1", "payload": "x" }));
    assert_eq!((nobody.status, &nobody.body), (200, &json!({ "stored": true, "matched": 0 })));
    // With an offline subscriber the answer means that the message is stored.
    let subscribe = |client: &Client| client.subscribe("plant/#", QoS::AtLeastOnce).unwrap();
    client(&server, "reader", subscribe, |packet| matches!(packet, Packet::SubAck(_)));
    let mut tail = Events::open(&server, &owner, &format!("{broker}/tail?filter=plant/%23"));
    for qos in [0, 1, 2] {
        let message = json!({ "topic": "plant/1", "payload": "21.5", "qos": qos, "properties": {
            "content_type": "text/plain", "user_properties": [{ "name": "unit", "value": "C" }] } });
        let published = publish(&message);
        assert_eq!(published.status, 200, "{}", published.body);
        assert_eq!(published.body["stored"], qos > 0);
        let shown = tail.next("message");
        assert_eq!(
            (&shown["topic"], &shown["payload"], &shown["qos"]),
            (&json!("plant/1"), &json!("21.5"), &json!(qos))
        );
        let unit = json!({ "name": "unit", "value": "C" });
        let properties = &shown["properties"];
        assert_eq!(properties["content_type"], "text/plain", "{shown}");
        assert_eq!(properties["user_properties"], json!([unit]), "{shown}");
    }
    let session = server.get(&owner, &format!("{broker}/sessions/reader"));
    assert_eq!(session["waiting_messages"], 2);
    let retained = publish(&json!({
        "topic": "plant/2", "payload_base64": "/w==", "retain": true, "properties": {
            "response_topic": "plant/2/answer", "correlation_data_base64": "/wA=",
            "user_properties": [{ "name": "content type", "value": "of a user" }] } }));
    assert_eq!(retained.status, 200, "{}", retained.body);
    assert_eq!(tail.next("message")["payload_base64"], "/w==");
    let message = server.get(&owner, &format!("{broker}/retained/message?topic=plant/2"));
    assert_eq!(message["payload_base64"], "/w==");
    let expected = json!({
        "content_type": null, "response_topic": "plant/2/answer", "correlation_data_base64": "/wA=",
        "message_expiry_s": null, "user_properties": [{ "name": "content type", "value": "of a user" }],
    });
    assert_eq!(message["properties"], expected);
    for (wrong, status) in [
        (json!({ "topic": "a/+", "payload": "x" }), 422),
        (json!({ "topic": "$SYS/x", "payload": "x" }), 403),
        (json!({ "topic": "a", "payload": "x", "payload_base64": "eA==" }), 422),
        (json!({ "topic": "a", "qos": 3 }), 422),
        (json!({ "topic": "a", "payload": "x".repeat(1_060_000) }), 422),
    ] {
        let answer = publish(&wrong);
        assert_eq!(answer.status, status, "{}", answer.body);
    }
}

#[test]
fn publishing_over_http_keeps_to_the_rate_of_the_broker_and_leaves_no_client_behind() {
    let data = tempfile::tempdir().unwrap();
    let mut server = Server::start(data.path());
    let (owner, organisation) = server.machine_owner();
    let broker = format!("{organisation}/brokers/default");
    let limits = json!({ "limits": { "broker": { "publishes_per_s": 1 } } });
    assert_eq!(server.ask_if(&owner, "PATCH", &broker, "If-Match: *", &limits).status, 200);
    let publish = &|qos: u8| {
        let message = json!({ "topic": "a", "payload": "x", "qos": qos });
        server.ask(&owner, "POST", &format!("{broker}/publish"), &message)
    };
    // The edge reads the new limits after a moment.
    let until = Instant::now() + Duration::from_secs(60);
    let many = || -> Vec<_> {
        std::thread::scope(|scope| {
            let asked: Vec<_> = (0..24).map(|number| scope.spawn(move || publish(number % 3))).collect();
            asked.into_iter().map(|asked| asked.join().unwrap()).collect()
        })
    };
    while many().iter().all(|answer| answer.status == 200) {
        assert!(Instant::now() < until, "the limit does not hold");
    }
    let answers = many();
    for answer in &answers {
        assert!([200, 429].contains(&answer.status), "{} {}", answer.status, answer.body);
        assert!(answer.status == 200 || answer.head.contains("retry-after: "), "{}", answer.head);
    }
    let published = answers.iter().filter(|answer| answer.status == 200).count();
    assert!(published <= 12, "{published} of {}", answers.len());
    while publish(1).status != 200 {
        assert!(Instant::now() < until, "nothing can be published any more");
        std::thread::park_timeout(Duration::from_millis(200));
    }
    let count = || server.get(&owner, &format!("{broker}/clients"))["items"].as_array().unwrap().len();
    while count() > 0 {
        assert!(Instant::now() < until, "{} clients are left", count());
        std::thread::park_timeout(Duration::from_millis(50));
    }
}

#[test]
fn the_topic_tree_counts_the_retained_messages_of_each_branch() {
    let data = tempfile::tempdir().unwrap();
    let mut server = Server::start(data.path());
    let (owner, organisation) = server.machine_owner();
    let broker = format!("{organisation}/brokers/default");
    for topic in ["plant/1", "plant/1/heat", "plant/2/heat", "home"] {
        let message = json!({ "topic": topic, "payload": "x", "retain": true });
        assert_eq!(server.ask(&owner, "POST", &format!("{broker}/publish"), &message).status, 200);
    }
    let branches = |query: &str| {
        let page = server.get(&owner, &format!("{broker}/topics{query}"));
        let rows = page["items"].as_array().unwrap().iter();
        let fields = ["level", "topic", "has_message", "retained_messages", "is_more"];
        let rows: Vec<Value> =
            rows.map(|row| fields.iter().map(|name| row[*name].clone()).collect()).collect();
        (rows, page["next_cursor"].as_str().map(str::to_owned))
    };
    let top = vec![json!(["home", "home", true, 1, false]), json!(["plant", "plant", false, 3, false])];
    assert_eq!(branches(""), (top, None));
    let (first, cursor) = branches("?below=plant&limit=1");
    assert_eq!(first, [json!(["1", "plant/1", true, 2, false])]);
    let (second, _) = branches(&format!("?below=plant&limit=1&cursor={}", cursor.unwrap()));
    assert_eq!(second, [json!(["2", "plant/2", false, 1, false])]);
    assert_eq!(branches("?below=nowhere").0, Vec::<Value>::new());
}

#[test]
fn a_stored_message_is_found_with_the_sessions_that_have_it_and_those_it_waits_for() {
    let data = tempfile::tempdir().unwrap();
    let mut server = Server::start(data.path());
    let (owner, organisation) = server.machine_owner();
    let broker = format!("{organisation}/brokers/default");
    let look = |topic: &str| server.get(&owner, &format!("{broker}/messages?topic={topic}"));
    let publish = |topic: &str, body: &str| {
        let message = json!({ "topic": topic, "payload": body });
        let published = server.ask(&owner, "POST", &format!("{broker}/publish"), &message);
        assert_eq!(published.body["stored"], true, "{}", published.body);
    };
    publish("plant/1", "before anybody");
    assert_eq!(look("plant/1"), json!({ "items": [], "filters": [], "incomplete": false }));

    for (id, filter) in [("one", "plant/#"), ("two", "plant/1"), ("other", "hall/#")] {
        let subscribe = |client: &Client| client.subscribe(filter, QoS::AtLeastOnce).unwrap();
        client(&server, id, subscribe, |packet| matches!(packet, Packet::SubAck(_)));
    }
    publish("plant/2", "of another topic");
    publish("plant/1", "first");
    publish("plant/1", "second");
    let found = look("plant/1");
    let items = found["items"].as_array().unwrap();
    assert_eq!(items.len(), 2, "{found}");
    assert!(items[0]["position"].as_str() > items[1]["position"].as_str());
    assert_eq!((&items[0]["payload_bytes"], &items[0]["qos"]), (&json!(6), &json!(1)));
    let clients = |item: &Value| -> Vec<(Value, Value)> {
        let receivers = item["receivers"].as_array().unwrap();
        receivers.iter().map(|receiver| (receiver["client_id"].clone(), receiver["state"].clone())).collect()
    };
    let waits = |id: &str| (json!(id), json!("waiting"));
    assert_eq!(clients(&items[0]), [waits("one"), waits("two")]);
    assert_eq!(found["filters"].as_array().unwrap().len(), 2, "{found}");

    // One reads both, and what it has acknowledged is known once that is stored.
    let mut options = MqttOptions::new("two", "127.0.0.1", server.mqtt);
    options.set_clean_session(false);
    let (reader, mut connection) = Client::new(options, 10);
    let reading = std::thread::spawn(move || connection.iter().take_while(Result::is_ok).count());
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let found = look("plant/1");
        let states = clients(&found["items"][0]);
        // The message leaves the stream of a filter once all of that filter's sessions have it.
        if states == [waits("one")] {
            assert_eq!(found["items"][0]["filters"], json!(["plant/#"]), "{found}");
            break;
        }
        assert!(Instant::now() < until, "{found}");
        std::thread::park_timeout(Duration::from_millis(50));
    }
    reader.disconnect().unwrap();
    reading.join().unwrap();
    for (wrong, status) in [("plant/%2B", 422), ("", 422), ("a&limit=0", 400), ("a&limit=51", 400)] {
        let answer = server.ask(&owner, "GET", &format!("{broker}/messages?topic={wrong}"), &Value::Null);
        assert_eq!(answer.status, status, "{wrong}: {}", answer.body);
    }
}

#[test]
fn a_message_shows_who_acknowledged_it_while_it_waits_for_another_session_of_the_filter() {
    let data = tempfile::tempdir().unwrap();
    let mut server = Server::start(data.path());
    let (owner, organisation) = server.machine_owner();
    let broker = format!("{organisation}/brokers/default");
    for id in ["one", "two"] {
        let subscribe = |client: &Client| client.subscribe("plant/#", QoS::AtLeastOnce).unwrap();
        client(&server, id, subscribe, |packet| matches!(packet, Packet::SubAck(_)));
    }
    let message = json!({ "topic": "plant/1", "payload": "first" });
    let published = server.ask(&owner, "POST", &format!("{broker}/publish"), &message);
    assert_eq!(published.body["stored"], true, "{}", published.body);
    let counts = || {
        let found = server.get(&owner, &format!("{broker}/messages?topic=plant/1"));
        ["acknowledged", "in_flight", "waiting"].map(|of| found["items"][0][of].as_u64())
    };
    assert_eq!(counts(), [Some(0), Some(0), Some(2)]);

    let mut options = MqttOptions::new("two", "127.0.0.1", server.mqtt);
    options.set_clean_session(false);
    let (reader, mut connection) = Client::new(options, 10);
    let reading = std::thread::spawn(move || connection.iter().take_while(Result::is_ok).count());
    let until = Instant::now() + Duration::from_secs(20);
    while counts() != [Some(1), Some(0), Some(1)] {
        assert!(Instant::now() < until, "{:?}", counts());
        std::thread::park_timeout(Duration::from_millis(50));
    }
    reader.disconnect().unwrap();
    reading.join().unwrap();
    assert_eq!(counts(), [Some(1), Some(0), Some(1)], "after the connection, too");
    // The end of the connection is in the store a moment later.
    let by_ms = || {
        let found = server.get(&owner, &format!("{broker}/messages?topic=plant/1"));
        let item = &found["items"][0];
        assert_eq!(item["receivers"][0]["acknowledged_by_ms"], Value::Null, "one waits: {found}");
        let at_ms = item["at_ms"].as_u64().unwrap();
        item["receivers"][1]["acknowledged_by_ms"].as_u64().map(|by_ms| by_ms - at_ms)
    };
    while by_ms().is_none() {
        assert!(Instant::now() < until, "the session is offline");
        std::thread::park_timeout(Duration::from_millis(50));
    }
    assert!(by_ms().unwrap() < 20_000);
}

#[test]
fn a_filter_shows_when_and_why_its_messages_were_removed() {
    let data = tempfile::tempdir().unwrap();
    let mut server = Server::start(data.path());
    let (owner, organisation) = server.machine_owner();
    let broker = format!("{organisation}/brokers/default");
    let limits = json!({ "limits": { "client": { "queue_messages": 3 } } });
    assert_eq!(server.ask_if(&owner, "PATCH", &broker, "If-Match: *", &limits).status, 200);
    let subscribe = |client: &Client| client.subscribe("hall/#", QoS::AtLeastOnce).unwrap();
    client(&server, "full", subscribe, |packet| matches!(packet, Packet::SubAck(_)));
    let until = Instant::now() + Duration::from_secs(60);
    let filter = loop {
        for _ in 0..10 {
            let message = json!({ "topic": "hall/1", "payload": "x" });
            assert_eq!(server.ask(&owner, "POST", &format!("{broker}/publish"), &message).status, 200);
        }
        let found = server.get(&owner, &format!("{broker}/messages?topic=hall/1"));
        let filter = found["filters"][0].clone();
        if filter["trimmed"].as_u64() > Some(0) {
            break filter;
        }
        assert_eq!(filter["removed"], json!([]), "{found}");
        assert!(Instant::now() < until, "{found}");
    };
    let removed = &filter["removed"][0];
    assert_eq!((&removed["reason"], &removed["messages"]), (&json!("queue_size"), &filter["trimmed"]));
    let time = |name: &str| removed[name].as_u64().unwrap();
    let (oldest, newest) = (time("published_from_ms"), time("published_to_ms"));
    assert!(oldest <= newest && newest <= time("last_at_ms"), "{removed}");
    assert!(time("first_at_ms") <= time("last_at_ms"), "{removed}");
}

fn token(server: &Server, owner: &Browser, broker: &str, body: &Value) -> Value {
    let made = server.ask(owner, "POST", &format!("{broker}/connect-tokens"), body);
    assert_eq!(made.status, 201, "{}", made.body);
    made.body
}

fn options(server: &Server, token: &Value, client_id: &str) -> MqttOptions {
    let text = |name: &str| token[name].as_str().unwrap().to_owned();
    let mut options = MqttOptions::new(client_id, "127.0.0.1", server.mqtt);
    options.set_credentials(text("username"), text("password"));
    options
}

#[test]
fn a_connect_token_lets_its_client_do_what_it_says_until_it_ends() {
    use rumqttc::SubscribeReasonCode::{Failure, Success};

    let data = tempfile::tempdir().unwrap();
    let mut server = Server::start(data.path());
    let (owner, organisation) = server.machine_owner();
    let made =
        server.ask(&owner, "POST", &format!("{organisation}/brokers"), &json!({ "display_name": "Plant" }));
    let managed = format!("{organisation}/brokers/{}", made.body["name"].as_str().unwrap());
    for broker in [format!("{organisation}/brokers/default"), managed.clone()] {
        let rules = json!([{ "effect": "allow", "action": "subscribe", "filter": "plant/#" }]);
        let body = json!({ "client_id": "page-1", "rules": rules, "expires_in_s": 10 });
        let token = token(&server, &owner, &broker, &body);
        let began = Instant::now();

        let (_, mut other) = Client::new(options(&server, &token, "pump"), 10);
        let refused = other.iter().find_map(Result::err).unwrap();
        let is_refused =
            matches!(refused, ConnectionError::ConnectionRefused(ConnectReturnCode::NotAuthorized));
        assert!(is_refused, "{refused:?}");

        let (client, mut connection) = Client::new(options(&server, &token, "page-1"), 10);
        client.subscribe("plant/#", QoS::AtMostOnce).unwrap();
        client.subscribe("other/#", QoS::AtMostOnce).unwrap();
        let mut granted = Vec::new();
        for event in connection.iter() {
            match event {
                Ok(Event::Incoming(Packet::SubAck(ack))) => granted.extend(ack.return_codes),
                Ok(_) => {}
                // The server has ended the stream.
                Err(_) => break,
            }
        }
        assert_eq!(granted, [Success(QoS::AtMostOnce), Failure]);
        let lasted = began.elapsed();
        assert!(lasted >= Duration::from_secs(8), "{lasted:?}");
        let gone = server.ask(&owner, "GET", &format!("{broker}/clients/page-1"), &Value::Null);
        assert_eq!(gone.status, 404, "{}", gone.body);
    }

    // A caller who may only read takes no messages from the members of a shared subscription.
    let reader = json!({ "name": "reader", "scopes": ["messages:read"] });
    let made = server.ask(&owner, "POST", &format!("{organisation}/tokens"), &reader);
    let bearer = format!("Authorization: Bearer {}", made.body["secret"].as_str().unwrap());
    let path = format!("{managed}/connect-tokens");
    let asked = server.ask_if(&Browser::default(), "POST", &path, &bearer, &json!({ "client_id": "page-3" }));
    assert_eq!(asked.status, 201, "{}", asked.body);
    let writers = token(&server, &owner, &managed, &json!({ "client_id": "page-3" }));
    for (token, is_granted) in [(&asked.body, false), (&writers, true)] {
        let (client, mut connection) = Client::new(options(&server, token, "page-3"), 10);
        client.subscribe("$share/workers/jobs/#", QoS::AtLeastOnce).unwrap();
        let granted = connection.iter().find_map(|event| match event.unwrap() {
            Event::Incoming(Packet::SubAck(ack)) => Some(ack.return_codes),
            _ => None,
        });
        assert_eq!(granted != Some(vec![Failure]), is_granted, "{granted:?}");
        client.disconnect().unwrap();
        connection.iter().take_while(Result::is_ok).count();
    }

    // A suspended broker accepts no message.
    let token = token(&server, &owner, &managed, &json!({ "client_id": "page-2" }));
    assert_eq!(server.ask(&owner, "POST", &format!("{managed}/suspend"), &Value::Null).status, 200);
    let refused = || {
        let (_, mut connection) = Client::new(options(&server, &token, "page-2"), 10);
        connection.iter().next().unwrap().is_err()
    };
    let until = Instant::now() + Duration::from_secs(60);
    while !refused() {
        assert!(Instant::now() < until);
    }
}
