use millrace_mqtt::QoS;

use crate::core::testing::{Loops, TestClient, publish};

/// The first bytes of the packets that a client gets, up to the PINGRESP.
fn received(loops: &mut Loops, client: &mut TestClient) -> Vec<u8> {
    client.send(0xC0, b"");
    let mut received = Vec::new();
    while received.last() != Some(&0xD0) {
        loops.until(|_| client.next().map(|(first, _)| received.push(first)).is_some());
    }
    received
}

#[test]
fn a_message_that_arrives_after_the_subscribe_of_another_client_reaches_it() {
    let mut loops = Loops::start(1, |_| {});
    let mut subscriber = loops.connect(0, "subscriber");
    let mut publisher = loops.connect(0, "publisher");
    // QoS 0 has a path of its own.
    for (id, qos_0) in [(0, true), (1, false)] {
        let topic = if qos_0 { "a" } else { "b" };
        subscriber.send(0x82, &[b"\0\x01\0\x01", topic.as_bytes(), &[QoS::AtMostOnce as u8]].concat());
        publisher.send_all(&publish(id, topic, b"x"));
        // One turn reads both.
        loops.turn(0);
        assert_eq!(received(&mut loops, &mut subscriber), [0x90, 0x30, 0xD0], "{topic}");
        // The message does not come to a subscription that ended before it.
        subscriber.send(0xA2, &[b"\0\x01\0\x01", topic.as_bytes()].concat());
        publisher.send_all(&publish(id, topic, b"x"));
        loops.turn(0);
        assert_eq!(received(&mut loops, &mut subscriber), [0xB0, 0xD0], "{topic}");
    }
}
