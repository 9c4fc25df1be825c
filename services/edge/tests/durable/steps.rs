//! Helpers that the tests of this folder share: clients that come back, publishers that wait for their answers, and disks that the test
//! fills.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millrace_mqtt::Version::{V5, V311};
use millrace_mqtt::{Connect, Packet, PacketId, Property, Publish, QoS, ReasonCode, Version};
use millrace_storage::{Database, Embedded, Options};

use crate::common::{Client, Server, ack, connect, disconnect, properties, publish, publish_qos};
use crate::tools::half_close;

/// Both kinds of clients.
pub(crate) const VERSIONS: [Version; 2] = [V311, V5];

/// An event between two connections of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Between {
    Nothing,
    Restart,
}

pub(crate) const BETWEEN: [Between; 2] = [Between::Nothing, Between::Restart];

/// An edge with so many loops.
pub(crate) fn start(database: &Database, threads: usize) -> Server {
    Server::on(database, |config| config.threads = threads)
}

/// Ends the edge, if that is what happens, and starts another one.
pub(crate) fn pass(between: Between, server: Server, database: &Database) -> Server {
    match between {
        Between::Nothing => server,
        Between::Restart => {
            drop(server);
            start(database, 1)
        }
    }
}

/// A CONNECT for a session that outlives its connection.
pub(crate) fn lasting(version: Version, id: &str) -> Connect<'_> {
    lasting_with(version, id, &[])
}

/// The same with more properties, for who can say them.
pub(crate) fn lasting_with<'a>(version: Version, id: &'a str, more: &[Property<'_>]) -> Connect<'a> {
    let plain = Connect { clean_start: false, ..connect(version, id) };
    if version != V5 {
        return plain;
    }
    let all: Vec<Property<'_>> =
        [Property::SessionExpiryInterval(3600)].iter().chain(more).cloned().collect();
    Connect { properties: properties(&all), ..plain }
}

pub(crate) fn is_present(client: &Client) -> bool {
    client.connack.as_ref().unwrap().session_present
}

/// A client whose session is there.
pub(crate) fn come_back(server: &Server, version: Version, id: &str) -> Client {
    let client = Client::open(server, lasting(version, id));
    assert!(is_present(&client), "the session of {id} is gone");
    client
}

/// Ends a connection after the server has seen all that was sent.
/// The client goes, with a DISCONNECT or as one that is lost.
pub(crate) fn leave(client: &mut Client, with_disconnect: bool) {
    if with_disconnect {
        client.send(&Packet::Disconnect(disconnect(ReasonCode::SUCCESS)));
    }
    half_close(client.stream());
}

/// Subscribes a session, which then is offline.
pub(crate) fn subscribe_and_leave(server: &Server, version: Version, id: &str, filters: &[(&str, QoS)]) {
    let mut client = Client::open(server, lasting(version, id));
    for (filter, qos) in filters {
        client.subscribe(filter, *qos);
    }
    client.disconnect();
}

/// Publishes these one after the other, each acknowledged before the next. The last reason code.
pub(crate) fn say(server: &Server, qos: QoS, topic: &str, payloads: &[&str]) -> ReasonCode {
    let mut publisher = Client::connect(server, V5, "say");
    let mut last = ReasonCode::SUCCESS;
    for (number, payload) in payloads.iter().enumerate() {
        let message = match qos {
            QoS::AtMostOnce => publish(topic, payload.as_bytes()),
            _ => publish_qos(qos, u16::try_from(number + 1).unwrap(), topic, payload.as_bytes()),
        };
        last = publisher.publish(message);
        assert!(!last.is_error(), "{topic} {payload}: {last}");
    }
    publisher.disconnect();
    last
}

/// True when a publish finds that nobody will ever get it.
pub(crate) fn is_for_nobody(server: &Server, topic: &str) -> bool {
    say(server, QoS::AtLeastOnce, topic, &["for nobody?"]) == ReasonCode::NO_MATCHING_SUBSCRIBERS
}

/// Messages that come up to the one with this payload, which is not among them; all are acknowledged, with the whole exchange
/// of QoS 2.
pub(crate) fn take_until(client: &mut Client, end: &str) -> Vec<Publish<'static>> {
    let (mut got, mut releasing, mut ended) = (Vec::new(), HashSet::<PacketId>::new(), false);
    while !ended || !releasing.is_empty() {
        match client.recv() {
            Packet::Publish(publish) => {
                match (publish.qos, publish.packet_id) {
                    (QoS::ExactlyOnce, Some(id)) => {
                        releasing.insert(id);
                        client.send(&Packet::PubRec(ack(id)));
                    }
                    (_, Some(id)) => client.send(&Packet::PubAck(ack(id))),
                    _ => {}
                }
                ended |= publish.payload == end.as_bytes();
                if publish.payload != end.as_bytes() {
                    got.push(publish);
                }
            }
            Packet::PubRel(released) => {
                releasing.remove(&released.packet_id);
                client.send(&Packet::PubComp(ack(released.packet_id)));
            }
            other => panic!("{other:?}"),
        }
    }
    got
}

/// All that comes to a client that subscribes to this topic: a last message is published to it.
pub(crate) fn rest(server: &Server, client: &mut Client, topic: &str) -> Vec<Publish<'static>> {
    say(server, QoS::AtLeastOnce, topic, &["the end"]);
    let rest = take_until(client, "the end");
    // The server has seen the acknowledgements.
    client.ping();
    rest
}

/// Nothing comes to a client that subscribes to this topic, now or later.
pub(crate) fn expect_no_rest(server: &Server, client: &mut Client, topic: &str) {
    let rest = rest(server, client, topic);
    assert!(rest.is_empty(), "{rest:?}");
}

/// The next message, which is not acknowledged.
pub(crate) fn take(client: &mut Client) -> Publish<'static> {
    client.recv_publish()
}

/// PUBACK for a message, or the whole of QoS 2 when nothing else is on its way.
pub(crate) fn acknowledge(client: &mut Client, message: &Publish<'_>) {
    let Some(id) = message.packet_id else { return };
    if message.qos == QoS::AtLeastOnce {
        return client.send(&Packet::PubAck(ack(id)));
    }
    client.send(&Packet::PubRec(ack(id)));
    client.recv_ack(millrace_mqtt::PacketType::PubRel, id);
    client.send(&Packet::PubComp(ack(id)));
}

pub(crate) fn texts(messages: &[Publish<'_>]) -> Vec<String> {
    messages.iter().map(|message| String::from_utf8(message.payload.to_vec()).unwrap()).collect()
}

/// Packet id, DUP and payload: what a message that is sent again is known by.
pub(crate) fn marks(messages: &[Publish<'_>]) -> Vec<(u16, bool, String)> {
    let mark = |message: &Publish<'_>| {
        let payload = String::from_utf8(message.payload.to_vec()).unwrap();
        (message.packet_id.map_or(0, PacketId::get), message.dup, payload)
    };
    messages.iter().map(mark).collect()
}

/// A store in files, on a disk that is as full as the test says. While it is full nothing is written: what an edge had not
/// written before is lost, as if its machine had stopped.
pub(crate) struct Disk {
    free: Arc<AtomicU64>,
    pub(crate) store: Embedded,
    _folder: tempfile::TempDir,
}

impl Disk {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let free = Arc::new(AtomicU64::new(1 << 40));
        let asked = free.clone();
        let options = Options {
            memtable_bytes: 4 << 20,
            cache_bytes: 4 << 20,
            disk_reserve_bytes: 1 << 20,
            free_bytes: Arc::new(move |_| Ok(asked.load(Ordering::SeqCst))),
            ..Options::default()
        };
        let store = Embedded::open(&folder, options).unwrap();
        Self { free, store, _folder: folder }
    }

    pub(crate) fn fill(&self) {
        self.free.store(0, Ordering::SeqCst);
    }

    pub(crate) fn make_room(&self) {
        self.free.store(1 << 40, Ordering::SeqCst);
    }

    /// Ends an edge without anything of its end being written, and starts another one.
    pub(crate) fn crash(&self, server: Server, threads: usize) -> Server {
        self.fill();
        drop(server);
        self.make_room();
        start(&self.store.database(), threads)
    }
}

/// An interruption between two packets of an exchange of QoS 2.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Break {
    Reconnect,
    Restart,
    Crash,
}

pub(crate) const BREAKS: [Break; 3] = [Break::Reconnect, Break::Restart, Break::Crash];

pub(crate) fn break_off(how: Break, server: Server, disk: &Disk, threads: usize) -> Server {
    match how {
        Break::Reconnect => server,
        Break::Restart => {
            drop(server);
            start(&disk.store.database(), threads)
        }
        Break::Crash => disk.crash(server, threads),
    }
}
