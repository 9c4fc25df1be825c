//! The built program with the client rumqttc: MQTT 3.1.1 and 5.0 over TCP.
#![allow(clippy::unwrap_used, reason = "helpers of tests, where a panic is the failure")]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rumqttc::v5::mqttbytes::v5 as packets;

/// Longest wait of a test.
const WAIT: Duration = Duration::from_secs(60);
/// More than any test leaves unread, because a full queue to the client's event loop would block
/// the test's only thread.
const REQUESTS: usize = 10_000;

/// A server on a free port, ended with the test.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn start(args: &[&str]) -> Self {
        let free = [
            "serve",
            "--data-dir=off",
            "--mqtt-listen=127.0.0.1:0",
            "--ws-listen=off",
            "--http-listen=off",
            "--log-level=info",
        ];
        let mut child = program(&[&free, args].concat()).stderr(Stdio::piped()).spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let mut lines = log.lines().map(Result::unwrap);
        let port = lines.find_map(|line| Some(line.split_once("mqtt://127.0.0.1:")?.1.to_owned())).unwrap();
        // Nobody reads the log any further; the server must not mind.
        Self { child, port: port.trim().parse().unwrap() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
    command.args(args).stdin(Stdio::null());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("MILLRACE_")) {
        command.env_remove(name);
    }
    command
}

/// A message that a subscriber received.
#[derive(Clone, Debug, PartialEq)]
struct Message {
    topic: String,
    payload: Vec<u8>,
    qos: u8,
    retain: bool,
}

fn numbers(messages: &[Message]) -> Vec<u32> {
    messages.iter().map(|message| String::from_utf8_lossy(&message.payload).parse().unwrap()).collect()
}

/// rumqttc has its types once for each version of MQTT, so this file needs its functions twice.
macro_rules! version {
    ($version:ident, $clean:ident, $will:expr, $($types:item)+) => {
        mod $version {
            use std::collections::VecDeque;

            $($types)+

            use super::{Message, REQUESTS, WAIT};

            pub(super) const ALL: [QoS; 3] = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce];

            /// A client and its event loop, which runs while the test waits for something.
            pub(super) struct Client {
                pub(super) handle: mqtt::Client,
                pub(super) connection: mqtt::Connection,
                /// Messages that arrived while the test waited for something else.
                pub(super) messages: VecDeque<Message>,
                pub(super) resumed: bool,
            }

            pub(super) fn options(port: u16, id: &str) -> mqtt::MqttOptions {
                mqtt::MqttOptions::new(id, "127.0.0.1", port)
            }

            pub(super) fn will(topic: &str) -> LastWill {
                $will(topic)
            }

            impl Client {
                pub(super) fn open(options: mqtt::MqttOptions) -> Self {
                    Self::try_open(options).unwrap()
                }

                /// The error is rumqttc's.
                pub(super) fn try_open(options: mqtt::MqttOptions) -> Result<Self, String> {
                    let (handle, mut connection) = mqtt::Client::new(options, REQUESTS);
                    super::patience::$version(&mut connection.eventloop);
                    let mut client = Self { handle, connection, messages: VecDeque::new(), resumed: false };
                    loop {
                        if let mqtt::Event::Incoming(Packet::ConnAck(connack)) = client.event()? {
                            client.resumed = connack.session_present;
                            return Ok(client);
                        }
                    }
                }

                pub(super) fn event(&mut self) -> Result<mqtt::Event, String> {
                    let event = self.connection.recv_timeout(WAIT).expect("something happens in time");
                    let event = event.map_err(|error| format!("{error:?}"))?;
                    if let mqtt::Event::Incoming(Packet::Publish(publish)) = &event {
                        self.messages.push_back(Message {
                            topic: String::from_utf8_lossy(publish.topic.as_ref()).into_owned(),
                            payload: publish.payload.to_vec(),
                            qos: publish.qos as u8,
                            retain: publish.retain,
                        });
                    }
                    Ok(event)
                }

                /// Runs the event loop until a wanted packet arrives.
                pub(super) fn until<T>(&mut self, wanted: impl Fn(&Packet) -> Option<T>) -> T {
                    loop {
                        if let mqtt::Event::Incoming(packet) = self.event().unwrap()
                            && let Some(found) = wanted(&packet)
                        {
                            return found;
                        }
                    }
                }

                pub(super) fn subscribe(&mut self, topic: &str, qos: QoS) {
                    self.handle.subscribe(topic, qos).unwrap();
                    self.until(|packet| matches!(packet, Packet::SubAck(_)).then_some(()));
                }

                /// Waits for the acknowledgement, or until a QoS 0 message is sent.
                pub(super) fn publish(&mut self, topic: &str, payload: &[u8], qos: QoS, retain: bool) {
                    self.handle.publish(topic, qos, retain, payload.to_vec()).unwrap();
                    self.acknowledged(qos, 1);
                }

                pub(super) fn acknowledged(&mut self, qos: QoS, count: usize) {
                    let mut missing = count;
                    while missing > 0 {
                        let done = match self.event().unwrap() {
                            mqtt::Event::Incoming(Packet::PubAck(_) | Packet::PubComp(_)) => true,
                            mqtt::Event::Outgoing(rumqttc::Outgoing::Publish(_)) => qos == QoS::AtMostOnce,
                            _ => false,
                        };
                        missing -= usize::from(done);
                    }
                }

                pub(super) fn take(&mut self, count: usize) -> Vec<Message> {
                    while self.messages.len() < count {
                        self.event().unwrap();
                    }
                    self.messages.drain(..count).collect()
                }

                /// Receives messages until the one that marks the end.
                pub(super) fn take_until(&mut self, end: &str) -> Vec<Message> {
                    let mut taken = Vec::new();
                    loop {
                        let message = self.take(1).remove(0);
                        if message.topic == end {
                            return taken;
                        }
                        taken.push(message);
                    }
                }

                /// Sends DISCONNECT.
                pub(super) fn close(mut self) {
                    self.handle.disconnect().unwrap();
                    while self.event().is_ok() {}
                }

                /// Ends the TCP connection without DISCONNECT.
                pub(super) fn cut(self) {
                    drop(self.connection);
                }
            }

            mod promises {
                use super::super::{Server, numbers};
                use super::*;

                fn open(server: &Server, id: &str) -> Client {
                    let mut options = options(server.port, id);
                    large(&mut options);
                    Client::open(options)
                }

                fn large(options: &mut mqtt::MqttOptions) {
                    super::super::packets_of_any_size::$version(options);
                }

                fn durable(server: &Server, id: &str) -> Client {
                    let mut options = options(server.port, id);
                    options.$clean(false);
                    super::super::kept_for_an_hour::$version(&mut options);
                    Client::open(options)
                }

                #[test]
                fn payloads_arrive_as_they_were_sent() {
                    let server = Server::start(&[]);
                    let (mut sub, mut publisher) = (open(&server, "sub"), open(&server, "pub"));
                    sub.subscribe("a/#", QoS::ExactlyOnce);
                    let large: Vec<u8> = (0..200 * 1024_u32).map(|n| (n * 7 % 251) as u8).collect();
                    for qos in ALL {
                        for payload in [&b""[..], b"hello", &large] {
                            publisher.publish("a/b", payload, qos, false);
                            let got = sub.take(1).remove(0);
                            assert!(got.payload == payload, "{} bytes at {qos:?}", payload.len());
                            assert_eq!((got.topic.as_str(), got.qos, got.retain), ("a/b", qos as u8, false));
                        }
                    }
                }

                #[test]
                fn messages_of_one_publisher_keep_their_order() {
                    let server = Server::start(&[]);
                    let (mut sub, mut publisher) = (open(&server, "sub"), open(&server, "pub"));
                    sub.subscribe("a", QoS::ExactlyOnce);
                    for qos in ALL {
                        for n in 0..1000 {
                            publisher.handle.publish("a", qos, false, n.to_string()).unwrap();
                        }
                        publisher.acknowledged(qos, 1000);
                        assert_eq!(numbers(&sub.take(1000)), (0..1000).collect::<Vec<_>>(), "{qos:?}");
                    }
                }

                #[test]
                fn a_new_subscriber_gets_the_retained_message() {
                    let server = Server::start(&[]);
                    let mut publisher = open(&server, "pub");
                    for (payload, wanted) in [("first", Some("first")), ("second", Some("second")), ("", None)] {
                        publisher.publish("kept", payload.as_bytes(), QoS::AtLeastOnce, true);
                        let mut sub = open(&server, "sub");
                        sub.subscribe("#", QoS::AtLeastOnce);
                        publisher.publish("end", b"", QoS::AtLeastOnce, false);
                        let got = sub.take_until("end");
                        let got: Vec<_> = got.iter().map(|m| (m.payload.as_slice(), m.retain)).collect();
                        assert_eq!(got, wanted.iter().map(|w| (w.as_bytes(), true)).collect::<Vec<_>>());
                    }
                }

                #[test]
                fn the_will_comes_after_a_cut_connection_and_not_after_disconnect() {
                    let server = Server::start(&[]);
                    let mut sub = open(&server, "sub");
                    sub.subscribe("#", QoS::AtLeastOnce);
                    let mortal = || {
                        let mut options = options(server.port, "mortal");
                        options.set_last_will(will("will"));
                        Client::open(options)
                    };
                    mortal().cut();
                    assert_eq!(sub.take(1)[0].topic, "will");
                    mortal().close();
                    // The broker's answer to the same client id shows that it has ended the earlier
                    // connection.
                    open(&server, "mortal").publish("end", b"", QoS::AtLeastOnce, false);
                    assert_eq!(sub.take_until("end"), []);
                }

                #[test]
                fn members_of_a_group_take_turns() {
                    let server = Server::start(&[]);
                    let mut members = [open(&server, "a"), open(&server, "b"), open(&server, "c")];
                    let mut publisher = open(&server, "pub");
                    for member in &mut members {
                        member.subscribe("$share/group/work", QoS::AtLeastOnce);
                    }
                    for n in 0..30 {
                        publisher.publish("work", n.to_string().as_bytes(), QoS::AtLeastOnce, false);
                    }
                    let mut all: Vec<u32> = members.iter_mut().flat_map(|m| numbers(&m.take(10))).collect();
                    all.sort_unstable();
                    assert_eq!(all, (0..30).collect::<Vec<_>>());
                }

                #[test]
                fn a_session_waits_for_its_client() {
                    let server = Server::start(&[]);
                    let mut publisher = open(&server, "pub");
                    let mut sub = durable(&server, "sub");
                    assert!(!sub.resumed);
                    sub.subscribe("#", QoS::ExactlyOnce);
                    for _ in 0..3 {
                        sub.cut();
                        for n in 0..100_u32 {
                            let qos = ALL[1 + n as usize % 2];
                            publisher.publish("a", n.to_string().as_bytes(), qos, false);
                        }
                        sub = durable(&server, "sub");
                        assert!(sub.resumed);
                        publisher.publish("end", b"", QoS::AtLeastOnce, false);
                        // rumqttc returns QoS 2 messages when they arrive, so this is their order.
                        assert_eq!(numbers(&sub.take_until("end")), (0..100).collect::<Vec<_>>());
                        // Otherwise the end marker would be sent again.
                        sub.publish("seen", b"", QoS::ExactlyOnce, false);
                        sub.take_until("seen");
                    }
                    sub.close();
                    assert!(!open(&server, "sub").resumed, "after a clean start");
                }

                #[test]
                fn passwords_are_checked() {
                    let guarded = super::super::Guarded::start();
                    for (user, password, right) in
                        [("ann", "right", true), ("ann", "wrong", false), ("bob", "right", false)]
                    {
                        let mut options = options(guarded.server.port, "who");
                        options.set_credentials(user, password);
                        let opened = Client::try_open(options);
                        assert_eq!(opened.is_ok(), right, "{user} with {password}");
                        if let Err(error) = opened {
                            assert!(error.contains("ConnectionRefused"), "{error}");
                        }
                    }
                }
            }
        }
    };
}

version! {
    v3, set_clean_session, |topic| LastWill::new(topic, "gone", QoS::AtLeastOnce, false),
    use rumqttc::{self as mqtt, LastWill, Packet, QoS};
}
version! {
    v5, set_clean_start, |topic| LastWill::new(topic, "gone", QoS::AtLeastOnce, false, None),
    use rumqttc::v5::mqttbytes::QoS;
    use rumqttc::v5::mqttbytes::v5::{LastWill, Packet};
    use rumqttc::v5 as mqtt;
}

/// rumqttc accepts packets up to 10 KiB by default.
mod packets_of_any_size {
    pub(super) fn v3(options: &mut rumqttc::MqttOptions) {
        options.set_max_packet_size(1 << 20, 1 << 20);
    }

    pub(super) fn v5(options: &mut rumqttc::v5::MqttOptions) {
        options.set_max_packet_size(Some(1 << 20));
    }
}

/// rumqttc waits 5 s for a CONNACK; without optimisation a password check may take longer.
mod patience {
    use super::WAIT;

    pub(super) fn v3(event_loop: &mut rumqttc::EventLoop) {
        let mut network = rumqttc::NetworkOptions::new();
        network.set_connection_timeout(WAIT.as_secs());
        event_loop.set_network_options(network);
    }

    pub(super) fn v5(event_loop: &mut rumqttc::v5::EventLoop) {
        event_loop.options.set_connection_timeout(WAIT.as_secs());
    }
}

/// In 3.1.1 a session without clean session needs no expiry.
mod kept_for_an_hour {
    pub(super) fn v3(_: &mut rumqttc::MqttOptions) {}

    pub(super) fn v5(options: &mut rumqttc::v5::MqttOptions) {
        options.set_session_expiry_interval(Some(3600));
    }
}

/// A server that knows the user ann with the password "right", who may not publish below `closed`.
struct Guarded {
    server: Server,
    folder: std::path::PathBuf,
}

impl Guarded {
    fn start() -> Self {
        let thread = format!("{:?}", std::thread::current().id()).replace(['(', ')'], "-");
        let folder = std::env::temp_dir().join(format!("millrace-rumqttc-{}-{thread}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (users, rules) = (folder.join("users.txt"), folder.join("rules.txt"));
        std::fs::write(&rules, "deny publish * closed/#\nallow all ann #\n").unwrap();
        let mut passwd = program(&["passwd", users.to_str().unwrap(), "ann", "--stdin"]);
        let mut passwd = passwd.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        passwd.stdin.take().unwrap().write_all(b"right").unwrap();
        assert!(passwd.wait().unwrap().success());
        let server = Server::start(&[
            &format!("--password-file={}", users.display()),
            &format!("--rules-file={}", rules.display()),
        ]);
        Self { server, folder }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn a_denied_publish_is_acknowledged_with_0x87() {
    let guarded = Guarded::start();
    let mut options = v5::options(guarded.server.port, "ann");
    options.set_credentials("ann", "right");
    let mut ann = v5::Client::open(options);
    for (topic, reason) in [
        ("closed/a", packets::PubAckReason::NotAuthorized),
        ("open/a", packets::PubAckReason::NoMatchingSubscribers),
    ] {
        ann.handle.publish(topic, v5::ALL[1], false, "x").unwrap();
        let said = ann.until(|packet| match packet {
            packets::Packet::PubAck(puback) => Some(puback.reason),
            _ => None,
        });
        assert_eq!(said, reason, "{topic}");
    }
}

#[test]
fn properties_arrive_as_they_were_sent() {
    let server = Server::start(&[]);
    let mut client = v5::Client::open(v5::options(server.port, "client"));
    let identified = packets::SubscribeProperties { id: Some(300), user_properties: Vec::new() };
    client.handle.subscribe_with_properties("a", v5::ALL[1], identified).unwrap();
    let sent = packets::PublishProperties {
        payload_format_indicator: Some(1),
        response_topic: Some("answer".to_owned()),
        correlation_data: Some(vec![0, 255].into()),
        user_properties: vec![("a".into(), "1".into()), ("b".into(), "2".into()), ("a".into(), "3".into())],
        content_type: Some("text/plain".to_owned()),
        ..Default::default()
    };
    client.handle.publish_with_properties("a", v5::ALL[1], false, "x", sent.clone()).unwrap();
    let got = client.until(|packet| match packet {
        packets::Packet::Publish(publish) => publish.properties.clone(),
        _ => None,
    });
    assert_eq!(got, packets::PublishProperties { subscription_identifiers: vec![300], ..sent });
}

#[test]
fn the_broker_sets_topic_aliases() {
    let server = Server::start(&[]);
    let mut options = v5::options(server.port, "client");
    options.set_topic_alias_max(Some(5));
    let mut client = v5::Client::open(options);
    client.subscribe("a/+/with/a/long/name", v5::ALL[2]);
    let mut names = HashMap::new();
    for n in 0..10 {
        let topic = format!("a/{}/with/a/long/name", n % 2);
        client.handle.publish(&topic, v5::ALL[n % 3], false, "x").unwrap();
        // rumqttc shows the packet as it came.
        let (name, alias) = client.until(|packet| match packet {
            packets::Packet::Publish(publish) => {
                Some((publish.topic.clone(), publish.properties.as_ref()?.topic_alias?))
            }
            _ => None,
        });
        assert_eq!(name.is_empty(), n > 1, "message {n}");
        assert_eq!(*names.entry(alias).or_insert(name), topic, "message {n}");
    }
}

#[test]
fn who_connects_last_has_the_session() {
    let server = Server::start(&[]);
    let mut first = v5::Client::open(v5::options(server.port, "same"));
    let _second = v5::Client::open(v5::options(server.port, "same"));
    let said = loop {
        match first.event() {
            Ok(rumqttc::v5::Event::Incoming(packets::Packet::Disconnect(disconnect))) => {
                break format!("{:?}", disconnect.reason_code);
            }
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(said.contains("SessionTakenOver"), "{said}");
}
