//! Progress of sessions that the store refuses: the session continues, and a later checkpoint says the same.

use std::io::{self, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use millrace_layers::Store;
use millrace_layers::qos2::{self, Direction};
use millrace_layers::sessions::SessionId;
use millrace_mqtt::Version::V5;
use millrace_mqtt::{Packet, PacketType, Property, QoS, SubscribeOptions, encode};
use millrace_storage::{Database, Read, block_on};

use crate::away::{Far, Mended, Way};
use crate::common::{Client, Server, ack, properties, publish_qos};
use crate::steps::{lasting, say, take};
use crate::store::entries;
use crate::tools::{eventually, metric};

/// The server stores progress after two seconds.
const SAVED: Duration = Duration::from_secs(5);

#[test]
fn a_session_whose_checkpoint_is_refused_goes_on_and_stores_its_progress_later() {
    for (way, pod) in [(Way::Broken, None), (Way::Away, Some("pod"))] {
        let far = Far::new();
        let server = Server::on(&far.database(), |config| config.pod = pod.map(Into::into));
        let _mended = Mended(far.clone());
        let store = Store::new(far.near().clone());
        let broker = block_on(store.ensure_broker(b"default")).unwrap().id;
        let id = SessionId { broker, client: b"ann" };
        let outbound = || {
            let list = store.run(async |tx| qos2::list(&tx, id, Direction::Outbound, Read::Snapshot).await);
            block_on(list).unwrap().len()
        };
        let mut ann = Client::open(&server, lasting(V5, "ann"));
        ann.subscribe("t", QoS::ExactlyOnce);
        say(&server, QoS::ExactlyOnce, "t", &["once"]);
        let message = take(&mut ann);
        let packet_id = message.packet_id.unwrap();
        ann.send(&Packet::PubRec(ack(packet_id)));
        ann.recv_ack(PacketType::PubRel, packet_id);
        assert_eq!(outbound(), 1);
        far.set(way);
        ann.send(&Packet::PubComp(ack(packet_id)));
        ann.expect_silence(SAVED);
        ann.ping();
        far.set(Way::Fine);
        eventually(|| outbound() == 0, || format!("{way:?}: the store still has the packet id"));
        ann.ping();
    }
}

#[test]
fn the_progress_of_many_sessions_is_collected_over_several_turns() {
    const SESSIONS: usize = 120;
    const OPEN: u16 = 500;
    // All checkpoints take 63,600.
    const WORK_MAX: u64 = 40_000;
    let server = Server::on(&Database::memory(), |config| config.threads = 1);
    let mut sessions: Vec<Client> = (0..SESSIONS)
        .map(|number| {
            let mut client = Client::open(&server, lasting(V5, &format!("reader {number}")));
            client.subscribe("t", QoS::AtLeastOnce);
            client
        })
        .collect();
    let mut publisher = Client::connect(&server, V5, "publisher");
    for number in 1..=OPEN {
        publisher.publish(publish_qos(QoS::AtLeastOnce, number, "t", b""));
    }
    for client in &mut sessions {
        let first = take(client);
        client.send(&Packet::PubAck(ack(first.packet_id.unwrap())));
    }
    publisher.expect_silence(SAVED);
    let work = metric(&server, "millrace_edge_turn_work_max", "");
    assert!(work < WORK_MAX, "a turn did {work} units of work");
}

/// Connections that end, so that the threads that use them do, also when a test fails.
struct Ending<'s>(Vec<&'s TcpStream>);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
    }
}

#[test]
fn acknowledged_messages_are_removed_while_other_messages_are_still_handed_out() {
    const RECEIVERS: usize = 200;
    // Each copy has 32 identifiers, so the copies of one message take more than a slice of work. The next message of its publisher
    // follows at once.
    let filters: Vec<String> = (0..32_u8)
        .map(|bits| {
            (0..5).map(|level| if bits >> level & 1 == 1 { "+/" } else { "a/" }).collect::<String>() + "b"
        })
        .collect();
    let database = Database::memory();
    let server = Server::on(&database, |config| config.threads = 1);
    let mut ann = Client::open(&server, lasting(V5, "ann"));
    ann.subscribe("t", QoS::AtLeastOnce);
    let receivers: Vec<Client> = (0..RECEIVERS)
        .map(|number| {
            let mut receiver = Client::connect(&server, V5, &format!("receiver {number}"));
            for (identifier, filter) in (1..).zip(&filters) {
                let identifier = properties(&[Property::SubscriptionIdentifier(identifier)]);
                receiver.subscribe_all(&[(filter, SubscribeOptions::default())], identifier);
            }
            receiver
        })
        .collect();
    let publisher = Client::connect(&server, V5, "publishes all the time");
    let mut packet = Vec::new();
    encode::packet(&Packet::Publish(publish_qos(QoS::AtLeastOnce, 1, "a/a/a/a/a/b", b"")), V5, &mut packet);
    let packets = packet.repeat(1_000);
    std::thread::scope(|scope| {
        let streams = Ending(receivers.iter().chain([&publisher]).map(Client::stream).collect());
        for mut stream in streams.0.iter().copied() {
            scope.spawn(move || io::copy(&mut stream, &mut io::sink()));
        }
        scope.spawn(|| while publisher.stream().write_all(&packets).is_ok() {});
        for _ in 0..5 {
            say(&server, QoS::AtLeastOnce, "t", &["once"]);
            let message = take(&mut ann);
            ann.send(&Packet::PubAck(ack(message.packet_id.unwrap())));
        }
        eventually(|| entries(&database) == [0], || format!("{:?} messages stay", entries(&database)));
    });
}
