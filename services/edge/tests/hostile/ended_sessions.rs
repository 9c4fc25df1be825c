//! Sessions that end with much to drop, or come back with much to check: a turn of the event loop does a part of it.

use millrace_mqtt::Version::V5;
use millrace_mqtt::{Connect, Packet, PacketType, Property, QoS};

use crate::common::{Client, Server, connect, id, properties, publish_qos};
use crate::tools::{TURN_WORK_MAX, counted, encoded, eventually, metric, numbered};

/// Fills the queue of a session that takes one message at a time.
fn fill_queue(server: &Server, count: u16) {
    let mut publisher = Client::connect(server, V5, "publisher");
    for some in (1..=count).collect::<Vec<_>>().chunks(500) {
        let message = |number: &u16| {
            let payload = numbered(u64::from(*number), 8);
            encoded(&Packet::Publish(publish_qos(QoS::AtLeastOnce, *number, "t", &payload)), V5)
        };
        publisher.send_bytes(&some.iter().flat_map(message).collect::<Vec<_>>());
        some.iter().for_each(|number| {
            publisher.recv_ack(PacketType::PubAck, id(*number));
        });
    }
}

#[test]
fn the_queue_of_a_session_that_ends_is_dropped_over_several_turns() {
    const MESSAGES: u16 = 20_000;
    // A turn drops 1,000 messages. While nothing happens, a loop makes one or two turns a second.
    const TURNS_MIN: u64 = 19;
    let server = Server::start();
    let one = properties(&[Property::ReceiveMaximum(1)]);
    let mut reader = Client::open(&server, Connect { properties: one, ..connect(V5, "reader") });
    reader.subscribe("t", QoS::AtLeastOnce);
    fill_queue(&server, MESSAGES);
    let queued = || metric(&server, "millrace_queue_bytes", "");
    assert!(queued() > 0);
    let turns = || metric(&server, "millrace_loop_turns_total", "");
    let before = turns();
    reader.cut();
    eventually(|| queued() == 0, || format!("{} bytes are queued\n{}", queued(), counted(&server)));
    let turns = turns() - before;
    assert!(turns >= TURNS_MIN, "{turns} turns");
    let work = metric(&server, "millrace_edge_turn_work_max", "");
    assert!(work < TURN_WORK_MAX, "a turn did {work} units of work");
}
