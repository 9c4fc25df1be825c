//! The API of the built program, over a real socket: the first account, its broker, and the effects
//! on store and edge.
#![allow(clippy::unwrap_used, reason = "helpers of tests, where a panic is the failure")]

#[path = "control/cli.rs"]
mod cli;
#[path = "control/doors.rs"]
mod doors;
#[path = "control/messages.rs"]
mod messages;
#[path = "control/operators.rs"]
mod operators;
#[path = "control/store.rs"]
mod store;
#[path = "control/trace.rs"]
mod trace;
#[path = "control/webhooks.rs"]
mod webhooks;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};

use rumqttc::{Client, Event, MqttOptions, Packet, QoS};
use serde_json::{Value, json};

/// A server on free ports, ended with the test.
struct Server {
    child: Child,
    log: BufReader<ChildStderr>,
    out: BufReader<ChildStdout>,
    http: String,
    admin: String,
    mqtt: u16,
}

/// The cookies and the CSRF token of a browser.
#[derive(Default)]
struct Browser {
    cookie: String,
    csrf: String,
}

struct Answer {
    status: u16,
    head: String,
    body: Value,
}

impl Server {
    fn start(data_dir: &Path) -> Self {
        Self::start_with(data_dir, &[])
    }

    fn start_with(data_dir: &Path, flags: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("MILLRACE_"))
        {
            command.env_remove(name);
        }
        let ports = ["--mqtt-listen=127.0.0.1:0", "--ws-listen=off", "--http-listen=127.0.0.1:0"];
        let here = "--outgoing-allow=127.0.0.0/8";
        let mut child = command
            .arg("serve")
            .args(ports)
            .arg(here)
            .arg("--data-dir")
            .arg(data_dir)
            .args(flags)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut server = Self { child, log, out, http: String::new(), admin: String::new(), mqtt: 0 };
        server.mqtt = server.behind("mqtt://127.0.0.1:").trim().parse().unwrap();
        server.http = server.behind("HTTP is open at http://").split('/').next().unwrap().to_owned();
        server.admin = server.behind("/metrics at http://").split('/').next().unwrap().to_owned();
        server.behind("the API is at ");
        server
    }

    /// Reads the log up to the line that has `words`, and returns the rest of that line.
    fn behind(&mut self, words: &str) -> String {
        let mut line = String::new();
        while self.log.read_line(&mut line).unwrap() > 0 {
            if let Some((_, rest)) = line.split_once(words) {
                return rest.trim().to_owned();
            }
            line.clear();
        }
        panic!("the server ended before it said \"{words}\"");
    }

    fn ask(&self, browser: &Browser, method: &str, path: &str, body: &Value) -> Answer {
        self.ask_if(browser, method, path, "If-Match: *", body)
    }

    /// Creates an object whose name the client chooses.
    fn create(&self, browser: &Browser, path: &str, body: &Value) -> Answer {
        self.ask_if(browser, "PUT", path, "If-None-Match: *", body)
    }

    fn ask_if(&self, browser: &Browser, method: &str, path: &str, only: &str, body: &Value) -> Answer {
        let mut stream = TcpStream::connect(&self.http).unwrap();
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let Browser { cookie, csrf } = browser;
        write!(
            stream,
            "{method} /api/v1{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nCookie: {cookie}\r\n\
             X-CSRF-Token: {csrf}\r\n{only}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{text}",
            text.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head: head.to_owned(), body: serde_json::from_str(body).unwrap_or_default() }
    }

    fn get(&self, browser: &Browser, path: &str) -> Value {
        let answer = self.ask(browser, "GET", path, &Value::Null);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        answer.body
    }

    fn sign(&self, path: &str, body: &Value) -> (Browser, Value) {
        let answer = self.ask(&Browser::default(), "POST", path, body);
        let cookie =
            answer.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap_or_default();
        let cookie = cookie.split(';').next().unwrap().to_owned();
        let csrf = answer.body["csrf_token"].as_str().unwrap_or_default().to_owned();
        (Browser { cookie, csrf }, answer.body)
    }

    /// Makes the first account by the link in the log. Returns the path of its organisation, too.
    fn first_person(&mut self) -> (Browser, String) {
        let token = self.behind("/sign-up#");
        let (ann, me) = self.sign(
            "/sign-up",
            &json!({ "email": "ann@example.org", "password": PASSWORD, "name": "Ann", "token": token }),
        );
        (ann, format!("/organisations/{}", me["organisations"][0]["id"].as_str().unwrap()))
    }

    /// Signs in by the link that the server prints at its start. Returns the path of the
    /// organisation, too.
    fn machine_owner(&mut self) -> (Browser, String) {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        let link = format!("Console: http://{}/#local=", self.http);
        let token = line.strip_prefix(&link).unwrap_or_else(|| panic!("no link: {line}")).trim();
        let (owner, me) = self.sign("/sign-in/local", &json!({ "token": token }));
        (owner, format!("/organisations/{}", me["organisations"][0]["id"].as_str().unwrap()))
    }

    fn stop(mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const PASSWORD: &str = "a sentence that nobody knows";

#[test]
fn the_first_person_makes_a_broker_and_all_of_it_is_there_after_a_restart() {
    let data = tempfile::tempdir().unwrap();
    let mut server = Server::start(data.path());
    let (ann, organisation) = server.first_person();
    let made =
        server.ask(&ann, "POST", &format!("{organisation}/brokers"), &json!({ "display_name": "Plant" }));
    assert_eq!(made.status, 201, "{}", made.body);
    let broker = format!("{organisation}/brokers/{}", made.body["name"].as_str().unwrap());
    let credential = server.ask(&ann, "POST", &format!("{broker}/credentials"), &json!({ "user": "pump-7" }));
    assert_eq!(credential.status, 201, "{}", credential.body);
    let other_site = Browser { csrf: String::new(), ..ann };
    assert_eq!(server.ask(&other_site, "DELETE", &broker, &Value::Null).status, 403);
    server.stop();

    let server = Server::start(data.path());
    let (ann, me) = server.sign("/sign-in", &json!({ "email": "ann@example.org", "password": PASSWORD }));
    assert_eq!(me["user"]["name"], "Ann");
    let all = server.get(&ann, &format!("{organisation}/brokers"));
    let names: Vec<_> = all["items"].as_array().unwrap().iter().map(|one| &one["display_name"]).collect();
    assert!(names.contains(&&json!("Plant")) && names.contains(&&json!("default")), "{all}");
    assert_eq!(server.get(&ann, &format!("{broker}/credentials"))["items"][0]["user"], "pump-7");
    let log = server.get(&ann, &format!("{organisation}/audit"));
    assert_eq!(log["items"][0]["action"], "sign_in");
    assert_eq!(log["items"][1]["action"], "credential.create");
    assert_eq!(log["items"][1]["actor"]["address"], "127.0.0.1");
}

/// Runs a client of the broker `default` until a condition holds.
fn client(server: &Server, id: &str, work: impl FnOnce(&Client), until: impl Fn(&Packet) -> bool) {
    let mut options = MqttOptions::new(id, "127.0.0.1", server.mqtt);
    options.set_clean_session(false);
    let (client, mut connection) = Client::new(options, 10);
    work(&client);
    for event in connection.iter() {
        if matches!(event.unwrap(), Event::Incoming(packet) if until(&packet)) {
            return;
        }
    }
}

#[test]
fn sessions_and_retained_messages_are_seen_and_removed() {
    let data = tempfile::tempdir().unwrap();
    let mut server = Server::start(data.path());
    let (ann, organisation) = server.first_person();
    let broker = format!("{organisation}/brokers/default");

    let subscribe = |client: &Client| client.subscribe("plant/#", QoS::AtLeastOnce).unwrap();
    client(&server, "reader", subscribe, |packet| matches!(packet, Packet::SubAck(_)));
    let publish = |client: &Client| client.publish("plant/1", QoS::AtLeastOnce, true, "21.5").unwrap();
    client(&server, "writer", publish, |packet| matches!(packet, Packet::PubAck(_)));

    let session = server.get(&ann, &format!("{broker}/sessions/reader"));
    assert_eq!(
        (&session["waiting_messages"], &session["filters"][0]["filter"]),
        (&json!(1), &json!("plant/#"))
    );
    let first = server.get(&ann, &format!("{broker}/sessions?limit=1"));
    assert_eq!(first["items"][0]["client_id"], "reader");
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = server.get(&ann, &format!("{broker}/sessions?limit=1&cursor={cursor}"));
    assert_eq!((&second["items"][0]["client_id"], &second["next_cursor"]), (&json!("writer"), &Value::Null));
    let found = server.get(&ann, &format!("{broker}/sessions?search=wr"));
    assert_eq!(
        (&found["items"][0]["client_id"], found["items"].as_array().map(Vec::len)),
        (&json!("writer"), Some(1))
    );
    let list = server.get(&ann, &format!("{broker}/retained?filter=plant/%2B"));
    assert_eq!(
        (&list["items"][0]["topic"], &list["items"][0]["payload_bytes"]),
        (&json!("plant/1"), &json!(4))
    );
    let message = format!("{broker}/retained/message?topic=plant/1");
    assert_eq!(server.get(&ann, &message)["payload"], "21.5");

    let remove = |path: &str| server.ask(&ann, "DELETE", path, &Value::Null).status;
    assert_eq!(remove(&message), 204);
    assert_eq!(remove(&message), 404);
    assert_eq!(server.get(&ann, &format!("{broker}/retained"))["items"], json!([]));
    assert_eq!(remove(&format!("{broker}/sessions/reader")), 204);
    assert_eq!(remove(&format!("{broker}/sessions/reader")), 404);
    for wrong in ["retained?filter=a/%23/b", "retained/message?topic=a/%2B"] {
        assert_eq!(
            server.ask(&ann, "GET", &format!("{broker}/{wrong}"), &Value::Null).status,
            422,
            "{wrong}"
        );
    }
    let log = server.get(&ann, &format!("{organisation}/audit"));
    let actions: Vec<_> =
        log["items"].as_array().unwrap().iter().take(4).map(|entry| &entry["action"]).collect();
    assert_eq!(actions, ["session.purge", "session.purge", "retained.clear", "retained.clear"]);
}

/// Publishes `count` messages to `plant/1`, each acknowledged.
fn publish(server: &Server, count: usize) {
    let acknowledged = std::cell::Cell::new(0);
    let publish = |client: &Client| {
        for _ in 0..count {
            client.try_publish("plant/1", QoS::AtLeastOnce, false, vec![b'x'; 4_090]).unwrap();
        }
    };
    client(server, "writer", publish, |packet| {
        acknowledged.set(acknowledged.get() + usize::from(matches!(packet, Packet::PubAck(_))));
        acknowledged.get() == count
    });
}

#[test]
fn what_was_stored_or_told_is_in_the_usage_of_a_server_that_was_killed() {
    let data = tempfile::tempdir().unwrap();
    let mut server = Server::start(data.path());
    let (_, organisation) = server.first_person();
    let broker = format!("{organisation}/brokers/default");
    let subscribe = |client: &Client| client.subscribe("plant/#", QoS::AtLeastOnce).unwrap();
    client(&server, "reader", subscribe, |packet| matches!(packet, Packet::SubAck(_)));

    let mut published = 0;
    for count in [1, 9, 5] {
        publish(&server, count);
        published += count;
        drop(server);
        server = Server::start(data.path());
        let (ann, _) = server.sign("/sign-in", &json!({ "email": "ann@example.org", "password": PASSWORD }));
        // Each has 4,097 bytes.
        let used = &server.get(&ann, &format!("{broker}/usage"))["total"]["used"];
        assert_eq!(
            (&used["messages_in"], &used["bytes_in"]),
            (&json!(2 * published), &json!(4_097 * published))
        );
    }

    let (ann, _) = server.sign("/sign-in", &json!({ "email": "ann@example.org", "password": PASSWORD }));
    client(&server, "reader", |_| {}, |packet| matches!(packet, Packet::Publish(_)));
    let metrics = || server.get(&ann, &format!("{broker}/metrics"));
    let mut told = metrics();
    // Once the usage shows no connection, it includes every message sent before.
    while told["messages_out"] == 0 || told["connections"] != 0 {
        std::thread::park_timeout(std::time::Duration::from_millis(100));
        told = metrics();
    }
    let delivered =
        || server.get(&ann, &format!("{broker}/usage"))["total"]["used"]["messages_delivered"].clone();
    assert_eq!(delivered(), 2 * told["messages_out"].as_u64().unwrap());
    // One short connection may take less than the millisecond in which the server counts.
    let connected = |server: &Server, ann: &Browser| {
        let minutes =
            &server.get(ann, &format!("{broker}/usage"))["total"]["used"]["connected_session_minutes"];
        minutes.as_f64().unwrap()
    };
    while connected(&server, &ann) == 0.0 {
        client(
            &server,
            "visitor",
            |client| client.subscribe("else", QoS::AtMostOnce).unwrap(),
            |packet| matches!(packet, Packet::SubAck(_)),
        );
    }
    let before = connected(&server, &ann);
    drop(server);
    let server = Server::start(data.path());
    let (ann, _) = server.sign("/sign-in", &json!({ "email": "ann@example.org", "password": PASSWORD }));
    let used = &server.get(&ann, &format!("{broker}/usage"))["total"]["used"];
    assert_eq!(used["messages_delivered"], 2 * told["messages_out"].as_u64().unwrap());
    assert!(connected(&server, &ann) >= before);
}

#[test]
fn a_retained_message_costs_until_it_is_removed_and_a_killed_server_forgets_nothing() {
    let (data, flags) = (tempfile::tempdir().unwrap(), ["--price=retained_byte_hours=1000000000000"]);
    let mut server = Server::start_with(data.path(), &flags);
    let (ann, organisation) = server.first_person();
    let broker = format!("{organisation}/brokers/default");
    let retain = |client: &Client| client.publish("kept", QoS::AtLeastOnce, true, [b'x'; 8_000]).unwrap();
    client(&server, "keeper", retain, |packet| matches!(packet, Packet::PubAck(_)));
    let read = |server: &Server| {
        let total = server.get(&ann, &format!("{broker}/usage"))["total"].take();
        (total["used"]["retained_byte_hours"].as_f64().unwrap(), total["cost_micros"].as_u64().unwrap())
    };
    let mut before = read(&server);
    while before.0 == 0.0 {
        before = read(&server);
    }
    assert!(before.1 > 0, "{before:?}");
    drop(server);

    let server = Server::start_with(data.path(), &flags);
    let mut after = read(&server);
    while after <= before {
        after = read(&server);
    }
    let path = format!("{broker}/retained/message?topic=kept");
    assert_eq!(server.ask(&ann, "DELETE", &path, &Value::Null).status, 204);
    let ended = read(&server);
    assert!(ended >= after);
    assert_eq!(read(&server), ended);
}

#[test]
fn operators_have_an_api_on_the_admin_port_alone() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let ask = |at: &str, path: &str, more: &str| {
        let mut stream = TcpStream::connect(at).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n{more}\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let tenants = "/v1/operator/tenants";
    assert!(ask(&server.admin, tenants, "").starts_with("HTTP/1.1 200 "));
    assert!(ask(&server.admin, tenants, "Origin: http://evil.example\r\n").starts_with("HTTP/1.1 403 "));
    for path in [tenants, "/api/v1/operator/tenants", "/metrics"] {
        assert!(ask(&server.http, path, "").starts_with("HTTP/1.1 404 "), "{path}");
    }
    for path in ["/api/v1/me", "/index.html", "/operator.html"] {
        assert!(ask(&server.admin, path, "").starts_with("HTTP/1.1 404 "), "{path}");
    }
    let own = ask(&server.admin, "/v1/operator/pod", "");
    assert!(own.contains(r#""name":"self""#) && own.contains("cache-control: no-store"), "{own}");
    let health = |port: &str| ask(port, "/healthz", "");
    assert!(
        health(&server.http).starts_with("HTTP/1.1 200 ")
            && health(&server.admin).starts_with("HTTP/1.1 200 ")
    );
    let own = ask(&server.admin, "/v1/operator/pod", "");
    let checks = r#""health_checks":[{"address":"127.0.0.1","healthy":2,"unhealthy":0"#;
    assert!(own.contains(checks) && own.contains(r#""gateway_peers":[]"#), "{own}");
    let misspelt = ask(&server.admin, "/v1/operator/plans?curser=x", "");
    assert!(misspelt.starts_with("HTTP/1.1 400 ") && misspelt.contains("curser"), "{misspelt}");
    assert!(ask(&server.http, "/operator.html", "").starts_with("HTTP/1.1 404 "));
    // Without a built console there are no pages.
    let page = ask(&server.admin, "/", "");
    if page.starts_with("HTTP/1.1 200 ") {
        assert!(page.contains("connect-src 'self';") && page.contains("<title>Operators"), "{page}");
        assert!(!ask(&server.http, "/", "").contains("<title>Operators"));
    } else {
        assert!(page.starts_with("HTTP/1.1 404 "), "{page}");
    }
    let metrics = ask(&server.admin, "/metrics", "");
    for labels in [
        r#"method="GET",route="/v1/operator/tenants",status="2xx""#,
        r#"method="GET",route="/v1/operator/tenants",status="4xx""#,
        r#"method="GET",route="_other",status="4xx""#,
    ] {
        let line = format!("millrace_http_requests_total{{{labels}}} 1");
        assert!(metrics.lines().any(|found| found == line), "no {line} in\n{metrics}");
    }
}
