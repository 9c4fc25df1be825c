//! SUBSCRIBE, UNSUBSCRIBE and SUBSCRIBE of one filter, sent without waiting for the answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_mqtt::Version::V5;
use millrace_mqtt::{
    Connect, Packet, PacketId, Properties, Property, Publish, QoS, ReasonCode, RetainHandling,
    SubscribeOptions, encode,
};
use millrace_storage::Database;

use crate::away::{Far, Mended, Way, named};
use crate::common::{Client, Server, connect, id, publish_qos};
use crate::region::{Net, know_each_other, nets};
use crate::steps::{acknowledge, lasting, lasting_with, say, subscribe_and_leave, take, take_until, texts};
use crate::tools::{eventually, metric};

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

#[test]
fn a_late_answer_leaves_what_a_second_subscribe_of_the_filter_has_made() {
    for (lasts, qos, is_refused) in [
        (true, QoS::AtMostOnce, true),
        (true, QoS::AtLeastOnce, true),
        (true, QoS::AtMostOnce, false),
        (false, QoS::AtMostOnce, true),
        (false, QoS::AtLeastOnce, true),
        (false, QoS::AtMostOnce, false),
    ] {
        let case = format!("lasts: {lasts}, {qos:?}, refused: {is_refused}");
        let far = Far::new();
        let pods = [named(&far, "one"), named(&Far::over(far.near().clone()), "two")];
        let connect = |lasts| if lasts { lasting(V5, "ann") } else { connect(V5, "ann") };
        let _mended = Mended(far.clone());
        let mut ann = Client::open(&pods[0], connect(lasts));
        far.set(Way::Slow);
        send_subscribe(&mut ann, 1, "slow/+", at(QoS::AtLeastOnce));
        eventually(|| far.slow_reads() > 0, || "no retained messages are read".into());
        send_subscribe(&mut ann, 2, "slow/+", SubscribeOptions { qos, ..NOT_RETAINED });
        assert_eq!(answer(&mut ann), (id(2), ReasonCode(qos as u8)), "{case}");
        far.set(if is_refused { Way::Corrupt } else { Way::Fine });
        let (packet_id, reason) = answer(&mut ann);
        assert!(packet_id == id(1) && reason.is_error() == is_refused, "{case}: {reason:?}");
        far.set(Way::Fine);
        expect_subscription(ann, &pods, qos, lasts, &case);
    }
}

/// Expects that the client of pod 0 gets messages to `slow/+` with `qos`, and if its session `lasts`, that the store has this
/// subscription, too: pod 1 resumes the session.
fn expect_subscription(mut ann: Client, pods: &[Server; 2], qos: QoS, lasts: bool, case: &str) {
    let said = |ann: &mut Client, pod: &Server, text: &str| {
        say(pod, QoS::AtLeastOnce, "slow/a", &[text]);
        let message = take(ann);
        assert_eq!((String::from_utf8_lossy(message.payload), message.qos), (text.into(), qos), "{case}");
        if qos > QoS::AtMostOnce {
            acknowledge(ann, &message);
        }
    };
    said(&mut ann, &pods[0], "one");
    said(&mut ann, &pods[0], "two");
    if lasts {
        ann.disconnect();
        let mut ann = Client::open(&pods[1], Connect { clean_start: false, ..lasting(V5, "ann") });
        assert!(ann.connack.as_ref().is_some_and(|connack| connack.session_present), "{case}");
        said(&mut ann, &pods[1], "three");
        assert_eq!(ann.unsubscribe(&["slow/+"]).reasons, [0], "{case}");
    }
}

#[test]
fn two_refused_subscribes_of_a_filter_leave_no_subscription() {
    for lasts in [true, false] {
        let far = Far::new();
        let pods = [named(&far, "one"), named(&Far::over(far.near().clone()), "two")];
        let connect = if lasts { lasting(V5, "ann") } else { connect(V5, "ann") };
        let _mended = Mended(far.clone());
        let mut ann = Client::open(&pods[0], connect.clone());
        far.set(Way::Slow);
        send_subscribe(&mut ann, 1, "slow/+", at(QoS::AtLeastOnce));
        send_subscribe(&mut ann, 2, "slow/+", at(QoS::AtLeastOnce));
        eventually(|| far.slow_reads() > 0, || "no retained messages are read".into());
        // Both have left the event loop.
        ann.ping();
        far.set(Way::Corrupt);
        let mut answered = [answer(&mut ann), answer(&mut ann)];
        answered.sort_by_key(|(packet_id, _)| *packet_id);
        assert!(answered.iter().all(|(_, reason)| reason.is_error()), "{answered:?}");
        assert_eq!(answered.map(|(packet_id, _)| packet_id), [id(1), id(2)]);
        far.set(Way::Fine);
        let mut bea = Client::connect(&pods[0], V5, "bea");
        bea.subscribe("slow/+", QoS::AtLeastOnce);
        say(&pods[0], QoS::AtLeastOnce, "slow/a", &["not for ann"]);
        assert_eq!(take(&mut bea).payload, b"not for ann");
        ann.ping();
        if lasts {
            ann.disconnect();
            ann = Client::open(&pods[1], connect);
            assert!(ann.connack.as_ref().is_some_and(|connack| connack.session_present));
        }
        let reasons = ann.unsubscribe(&["slow/+"]).reasons.to_vec();
        assert_eq!(reasons, [ReasonCode::NO_SUBSCRIPTION_EXISTED.0], "lasts: {lasts}");
    }
}

#[test]
fn a_refusal_leaves_a_filter_that_a_long_subscribe_has_added_again() {
    // So many filters take many turns, and the refusal comes between two of them.
    const FILTERS: usize = 15_000;
    let others: Vec<String> = (0..FILTERS).map(|number| format!("n/{number}")).collect();
    for lasts in [true, false] {
        let far = Far::new();
        let pods = [named(&far, "one"), named(&Far::over(far.near().clone()), "two")];
        let connect = if lasts { lasting(V5, "ann") } else { connect(V5, "ann") };
        let _mended = Mended(far.clone());
        let mut ann = Client::open(&pods[0], connect);
        far.set(Way::Slow);
        send_subscribe(&mut ann, 1, "slow/+", at(QoS::AtLeastOnce));
        eventually(|| far.slow_reads() > 0, || "no retained messages are read".into());
        let edits = || metric(&pods[0], "millrace_loop_filter_edits_total", "");
        let before = edits();
        let filters = ["slow/+"].into_iter().chain(others.iter().map(|filter| &**filter));
        let mut bytes = Vec::new();
        let filters: Vec<_> = filters.map(|filter| (filter, NOT_RETAINED)).collect();
        encode::subscribe(id(2), Properties::EMPTY, filters, V5, &mut bytes);
        ann.send_bytes(&bytes);
        eventually(|| edits() > before, || "the long SUBSCRIBE does not begin".into());
        far.set(Way::Corrupt);
        let mut answered = BTreeMap::new();
        while answered.len() < 2 {
            let (packet_id, reason) = answer(&mut ann);
            answered.insert(packet_id, reason.is_error());
        }
        assert_eq!(answered, BTreeMap::from([(id(1), true), (id(2), false)]), "lasts: {lasts}");
        far.set(Way::Fine);
        say(&pods[0], QoS::AtLeastOnce, "slow/a", &["for ann"]);
        assert_eq!(take(&mut ann).payload, b"for ann", "lasts: {lasts}");
    }
}

#[test]
fn a_refused_subscribe_leaves_the_former_subscription() {
    for (lasts, former, refused) in [
        (true, QoS::AtLeastOnce, QoS::AtMostOnce),
        (true, QoS::AtMostOnce, QoS::AtLeastOnce),
        (false, QoS::AtLeastOnce, QoS::AtMostOnce),
        (false, QoS::AtMostOnce, QoS::AtLeastOnce),
    ] {
        let case = format!("lasts: {lasts}, {former:?}");
        let far = Far::new();
        let pods = [named(&far, "one"), named(&Far::over(far.near().clone()), "two")];
        let connect = |lasts| if lasts { lasting(V5, "ann") } else { connect(V5, "ann") };
        let _mended = Mended(far.clone());
        let mut ann = Client::open(&pods[0], connect(lasts));
        ann.subscribe("slow/+", former);
        far.set(Way::Corrupt);
        send_subscribe(&mut ann, 9, "slow/+", at(refused));
        let (packet_id, reason) = answer(&mut ann);
        assert!(packet_id == id(9) && reason.is_error(), "{case}: {reason:?}");
        far.set(Way::Fine);
        expect_subscription(ann, &pods, former, lasts, &case);
    }
}

#[test]
fn messages_stay_in_order_while_a_session_subscribes_again() {
    //= [MQTT-4.6.0-6] v5
    const MESSAGES: u16 = 30;
    for net in nets() {
        let database = Database::memory();
        let pods = ["one", "two"].map(|name| net.pod(&database, name, 1));
        if let Net::Nats(_) = net {
            know_each_other(&pods);
        }
        let mut ann = Client::open(&pods[0], lasting_with(V5, "ann", &[Property::ReceiveMaximum(2)]));
        ann.subscribe("t", QoS::AtLeastOnce);
        let mut bob = Client::connect(&pods[0], V5, "bob");
        let mut subscribes = 0;
        for number in 0..MESSAGES {
            let text = number.to_string();
            let message = publish_qos(QoS::AtLeastOnce, number + 1, "t", text.as_bytes());
            assert!(!bob.publish(message).is_error());
            if number % 5 == 0 || number % 7 == 3 {
                subscribes += 1;
                let qos = if number % 2 == 0 { QoS::AtLeastOnce } else { QoS::ExactlyOnce };
                send_subscribe(&mut ann, 100 + number, "t", at(qos));
            }
        }
        let mut got = Vec::new();
        while got.len() < usize::from(MESSAGES) || subscribes > 0 {
            match ann.recv() {
                Packet::SubAck(_) => subscribes -= 1,
                Packet::Publish(message) => {
                    got.push(String::from_utf8(message.payload.to_vec()).unwrap());
                    acknowledge(&mut ann, &message);
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(got, (0..MESSAGES).map(|number| number.to_string()).collect::<Vec<_>>());
    }
}
