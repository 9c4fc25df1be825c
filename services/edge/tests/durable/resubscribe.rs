//! SUBSCRIBE, UNSUBSCRIBE and SUBSCRIBE of one filter, sent without waiting for the answers.

use std::sync::Arc;

use millrace_mqtt::Version::V5;
use millrace_mqtt::{
    Connect, Packet, PacketId, Properties, Publish, QoS, ReasonCode, RetainHandling, SubscribeOptions, encode,
};

use crate::away::{Far, Mended, Way, named};
use crate::common::{Client, Server, connect, id, publish_qos};
use crate::steps::{acknowledge, lasting, say, subscribe_and_leave, take, take_until, texts};
use crate::tools::eventually;

fn send_subscribe(client: &mut Client, packet_id: u16, filter: &str, options: SubscribeOptions) {
    let mut bytes = Vec::new();
    encode::subscribe(id(packet_id), Properties::EMPTY, [(filter, options)], V5, &mut bytes);
    client.send_bytes(&bytes);
}

fn send_unsubscribe(client: &mut Client, packet_id: u16, filter: &str) {
    let mut bytes = Vec::new();
    encode::unsubscribe(id(packet_id), Properties::EMPTY, [filter], V5, &mut bytes);
    client.send_bytes(&bytes);
}

/// The next packet, a SUBACK or UNSUBACK for one filter.
fn answer(client: &mut Client) -> (PacketId, ReasonCode) {
    match client.recv() {
        Packet::SubAck(ack) => (ack.packet_id, ReasonCode(ack.reasons[0])),
        Packet::UnsubAck(ack) => (ack.packet_id, ReasonCode(ack.reasons[0])),
        other => panic!("{other:?}"),
    }
}

fn at(qos: QoS) -> SubscribeOptions {
    SubscribeOptions { qos, ..SubscribeOptions::default() }
}

const NOT_RETAINED: SubscribeOptions = SubscribeOptions {
    qos: QoS::AtLeastOnce,
    no_local: false,
    retain_as_published: false,
    retain_handling: RetainHandling::DoNotSend,
};

/// Ann with a subscription whose first SUBSCRIBE, with packet id 1, waits for its retained messages, while its UNSUBSCRIBE and a
/// second SUBSCRIBE are answered. `between` runs when the filter is unsubscribed.
fn ann_with_a_late_answer(
    far: &Arc<Far>,
    server: &Server,
    connect: Connect<'_>,
    between: impl FnOnce(),
) -> Client {
    let mut ann = Client::open(server, connect);
    far.set(Way::Slow);
    send_subscribe(&mut ann, 1, "slow/+", at(QoS::AtLeastOnce));
    eventually(|| far.slow_reads() > 0, || "no retained messages are read".into());
    send_unsubscribe(&mut ann, 2, "slow/+");
    assert_eq!(answer(&mut ann), (id(2), ReasonCode::SUCCESS));
    between();
    send_subscribe(&mut ann, 3, "slow/+", NOT_RETAINED);
    assert_eq!(answer(&mut ann), (id(3), ReasonCode(1)));
    ann
}

#[test]
fn a_late_answer_of_the_store_does_not_bring_back_a_subscription_that_was_ended() {
    // Without another session the filter's stream ends at the UNSUBSCRIBE.
    for has_others in [true, false] {
        let far = Far::new();
        let pods = [named(&far, "one"), named(&Far::over(far.near().clone()), "two")];
        if has_others {
            subscribe_and_leave(&pods[1], V5, "other", &[("slow/+", QoS::AtLeastOnce)]);
        }
        let retained = Publish { retain: true, ..publish_qos(QoS::AtLeastOnce, 1, "slow/a", b"retained") };
        let mut publisher = Client::connect(&pods[1], V5, "publisher");
        assert!(!publisher.publish(retained).is_error());
        let _mended = Mended(far.clone());
        let mut ann = ann_with_a_late_answer(&far, &pods[0], lasting(V5, "ann"), || {
            say(&pods[1], QoS::AtLeastOnce, "slow/a", &["not for ann"]);
        });
        far.set(Way::Fine);
        assert_eq!(answer(&mut ann), (id(1), ReasonCode(1)));
        for text in ["one", "two"] {
            say(&pods[1], QoS::AtLeastOnce, "slow/a", &[text]);
            let message = take(&mut ann);
            assert_eq!(String::from_utf8_lossy(message.payload), text, "others: {has_others}");
            acknowledge(&mut ann, &message);
        }
    }
}

#[test]
fn a_late_refusal_ends_no_newer_subscription() {
    for lasts in [true, false] {
        let far = Far::new();
        let server = named(&far, "one");
        let connect = if lasts { lasting(V5, "ann") } else { connect(V5, "ann") };
        let _mended = Mended(far.clone());
        let mut ann = ann_with_a_late_answer(&far, &server, connect, || {});
        // No page is small enough.
        far.set(Way::Old(0));
        let (packet_id, reason) = answer(&mut ann);
        assert!(packet_id == id(1) && reason.is_error(), "{reason:?}");
        far.set(Way::Fine);
        say(&server, QoS::AtLeastOnce, "slow/a", &["for ann"]);
        assert_eq!(take(&mut ann).payload, b"for ann", "lasts: {lasts}");
    }
}

#[test]
fn a_session_that_subscribes_again_at_qos_0_gets_messages_once() {
    for name in ["", "pod"] {
        let far = Far::new();
        let server = Server::on(&far.database(), |config| {
            config.pod = (!name.is_empty()).then(|| name.into());
        });
        subscribe_and_leave(&server, V5, "other", &[("kept/+", QoS::AtLeastOnce)]);
        let mut ann = Client::open(&server, lasting(V5, "ann"));
        ann.subscribe("kept/end", QoS::AtLeastOnce);
        let _mended = Mended(far.clone());
        far.set(Way::Stuck);
        send_subscribe(&mut ann, 1, "kept/+", at(QoS::AtLeastOnce));
        send_unsubscribe(&mut ann, 2, "kept/+");
        send_subscribe(&mut ann, 3, "kept/+", at(QoS::AtMostOnce));
        // All three have left the event loop, and none is answered.
        ann.ping();
        far.set(Way::Fine);
        let mut answers: Vec<u16> = (0..3)
            .map(|_| {
                let (packet_id, reason) = answer(&mut ann);
                assert!(!reason.is_error(), "{reason:?}");
                packet_id.get()
            })
            .collect();
        answers.sort_unstable();
        assert_eq!(answers, [1, 2, 3]);
        say(&server, QoS::AtLeastOnce, "kept/a", &["one", "two", "three"]);
        // The session reads its streams in order, so copies that it reads come before this message.
        say(&server, QoS::AtLeastOnce, "kept/end", &["last"]);
        let got = texts(&take_until(&mut ann, "last"));
        let count = |text: &str| got.iter().filter(|got| *got == text).count();
        assert_eq!(["one", "two", "three"].map(count), [1, 1, 1], "pod {name:?}: {got:?}");
    }
}
