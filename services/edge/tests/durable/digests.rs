//! Pods that know what is wanted elsewhere: who may want a message gets it, others do not.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millrace_mqtt::QoS::{AtLeastOnce, AtMostOnce};
use millrace_mqtt::Version::V5;
use millrace_mqtt::{Properties, SubscribeOptions};
use millrace_storage::Database;

use crate::common::{Client, Server, publish};
use crate::region::{know_each_other, nats, three, with_relay};
use crate::steps::{acknowledge, lasting, say, take};
use crate::tools::{Packets, eventually, flood, metric};

fn received(pod: &Server) -> u64 {
    metric(pod, "millrace_region_messages_received_total", "")
}

fn needless(pod: &Server) -> u64 {
    metric(pod, "millrace_region_messages_needless_total", "")
}

#[test]
fn a_message_goes_to_the_pods_that_want_it_and_to_no_other() {
    let Some((pods, _net)) = three() else { return };
    let filters =
        [["own/a", "own/a", "own/a"], ["one/+/x", "both", "deep/#"], ["two", "both", "deep/er/+/x"]];
    let mut readers: Vec<Client> = (0..3)
        .map(|pod| {
            let mut reader = Client::connect(&pods[pod], V5, &format!("reader {pod}"));
            filters[pod].iter().for_each(|filter| reader.subscribe(filter, AtMostOnce));
            reader
        })
        .collect();
    let mut publisher = Client::connect(&pods[0], V5, "publisher");
    let (mut expected, one, two) = ([0, 0, 0], 1, 2);
    for round in 0..50 {
        for (topic, wanted) in [
            ("own/a", &[0][..]),
            ("one/7/x", &[one]),
            ("two", &[two]),
            ("both", &[one, two]),
            ("deep", &[one]),
            ("deep/er/than/x", &[one, two]),
            ("nobody/at/all", &[]),
            ("one/7/y", &[]),
        ] {
            publisher.publish(publish(topic, format!("{topic} {round}").as_bytes()));
            for pod in wanted {
                let message = take(&mut readers[*pod]);
                assert_eq!(message.payload, format!("{topic} {round}").as_bytes());
                expected[*pod] += u64::from(*pod > 0);
            }
        }
    }
    assert_eq!(pods.each_ref().map(received), expected);
    assert_eq!(pods.each_ref().map(needless), [0, 0, 0]);
}

#[test]
fn what_is_published_elsewhere_right_after_a_suback_arrives() {
    let Some((pods, _net)) = three() else { return };
    let mut reader = Client::connect(&pods[1], V5, "reader");
    let mut publisher = Client::connect(&pods[0], V5, "publisher");
    for round in 0..500 {
        let filter = ["a/+/", "b/", "+/c/"][round % 3].to_owned() + &round.to_string();
        let topic = filter.replace('+', "x");
        reader.subscribe(&filter, AtMostOnce);
        publisher.publish(publish(&topic, b"at once"));
        assert_eq!(take(&mut reader).topic, topic);
    }
    assert_eq!(needless(&pods[1]) + received(&pods[2]), 0);
}

#[test]
fn nothing_is_sent_any_more_once_the_last_subscriber_of_a_pod_has_left() {
    let Some((pods, _net)) = three() else { return };
    let mut leaves = Client::connect(&pods[1], V5, "leaves");
    let mut stays = Client::connect(&pods[1], V5, "stays");
    leaves.subscribe("a/+", AtMostOnce);
    stays.subscribe("b", AtMostOnce);
    say(&pods[0], AtMostOnce, "a/x", &["wanted"]);
    take(&mut leaves);
    leaves.unsubscribe(&["a/+"]);
    let mut publisher = Client::connect(&pods[0], V5, "publisher");
    let mut is_sent = || {
        let before = received(&pods[1]);
        publisher.publish(publish("a/x", b"needless?"));
        publisher.publish(publish("b", b"wanted"));
        take(&mut stays);
        received(&pods[1]) > before + 1
    };
    eventually(|| !is_sent(), || "it is still sent".into());
    leaves.subscribe("a/+", AtMostOnce);
    assert!(is_sent(), "it is wanted again");
}

#[test]
fn a_pod_that_was_started_again_hears_and_is_heard() {
    let Some(net) = nats() else { return };
    let database = Database::memory();
    let pods = ["one", "two"].map(|name| net.pod(&database, name, 2));
    know_each_other(&pods);
    let [one, mut two] = pods;
    let mut here = Client::connect(&one, V5, "here");
    here.subscribe("here/#", AtMostOnce);
    for round in 0..3 {
        let mut there = Client::connect(&two, V5, "there");
        there.subscribe("there/+", AtMostOnce);
        for (from, reader, topic) in [(&one, &mut there, "there/x"), (&two, &mut here, "here/x/y")] {
            say(from, AtMostOnce, topic, &[&round.to_string()]);
            assert_eq!(take(reader).payload, round.to_string().as_bytes());
        }
        drop((there, two));
        two = net.pod(&database, "two", 2);
        let knows = || {
            metric(&two, "millrace_region_peers", "") == 1 && metric(&one, "millrace_region_peers", "") == 1
        };
        eventually(knows, || {
            format!(
                "the new one is not known {} {}",
                metric(&two, "millrace_region_peers", ""),
                metric(&one, "millrace_region_peers", "")
            )
        });
    }
}

#[test]
fn what_a_pod_did_not_hear_of_comes_to_it_once_it_is_back() {
    let Some((pods, relay, _net)) = with_relay(["cut", "two"], 2) else { return };
    let mut kept = Client::open(&pods[1], lasting(V5, "kept"));
    let mut reader = Client::connect(&pods[1], V5, "reader");
    reader.subscribe("known", AtMostOnce);
    for round in 0..3 {
        let topic = format!("new/{round}");
        relay.refuse(true);
        eventually(|| !pods[0].edge.fabric_health().unwrap().connected, || "it is not cut off".into());
        reader.subscribe(&topic, AtMostOnce);
        kept.subscribe(&topic, AtLeastOnce);
        relay.refuse(false);
        // At once when it is back, whatever it knows by then.
        eventually(|| pods[0].edge.fabric_health().unwrap().connected, || "it is not back".into());
        say(&pods[0], AtLeastOnce, &topic, &["back"]);
        for reader in [&mut reader, &mut kept] {
            let message = take(reader);
            assert_eq!(message.topic, topic);
            acknowledge(reader, &message);
        }
    }
    know_each_other(&pods);
    let before = received(&pods[1]);
    let mut publisher = Client::connect(&pods[0], V5, "publisher");
    publisher.publish(publish("nobody", b"x"));
    publisher.publish(publish("known", b"x"));
    take(&mut reader);
    assert_eq!(received(&pods[1]), before + 1, "it knows again what is wanted");
}

#[test]
fn a_flood_stays_whole_and_in_order_while_the_pods_that_want_it_change() {
    const COUNT: u64 = 20_000;
    let Some((pods, _net)) = three() else { return };
    let mut reader = Client::connect(&pods[1], V5, "reader");
    reader.subscribe("f", AtMostOnce);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for pod in &pods[1..] {
            let is_over = &is_over;
            scope.spawn(move || {
                let mut churns = Client::connect(pod, V5, "");
                churns.stream().set_nodelay(true).unwrap();
                for round in 0.. {
                    let filters = ["f", "+", "f/#", "other/+/#"];
                    let mut another = Client::connect(pod, V5, "");
                    another.subscribe(filters[round % 4], AtMostOnce);
                    churns.subscribe(&format!("never/{round}"), AtMostOnce);
                    drop(another);
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
        }
        let mut publisher = Client::connect(&pods[0], V5, "publisher");
        scope.spawn(move || {
            let bytes = flood("f", COUNT, 50, V5);
            // Not all at once: much is to change meanwhile.
            for part in bytes.chunks(bytes.len() / 200) {
                publisher.send_bytes(part);
                crate::tools::a_moment();
            }
        });
        let mut packets = Packets::of(&reader);
        for expected in 0..COUNT {
            assert_eq!(packets.next_number(), Some(expected));
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_session_of_another_pod_reads_at_once_what_was_stored_for_it() {
    let Some((pods, _net)) = three() else { return };
    for round in 0..20 {
        let id = format!("kept {round}");
        let mut kept = Client::open(&pods[1], lasting(V5, &id));
        let topic = format!("k/{round}");
        kept.subscribe(&topic, AtLeastOnce);
        say(&pods[0], AtLeastOnce, &topic, &["subscribed"]);
        let message = take(&mut kept);
        acknowledge(&mut kept, &message);
        crate::steps::leave(&mut kept, true);
        // It comes back on a pod that did not know its filters.
        let mut kept = Client::open(&pods[2], lasting(V5, &id));
        say(&pods[0], AtLeastOnce, &topic, &["came back"]);
        assert_eq!(take(&mut kept).payload, b"came back");
    }
}

#[test]
fn what_does_not_fit_into_a_digest_is_sent_to_everybody_and_many_filters_fit() {
    let Some((pods, _net)) = three() else { return };
    let mut many = Client::connect(&pods[1], V5, "many");
    for first in (0..5_000).step_by(500) {
        let filters: Vec<String> = (first..first + 500).map(|number| format!("many/{number}/x")).collect();
        let filters: Vec<_> = filters.iter().map(|filter| (&**filter, SubscribeOptions::default())).collect();
        many.subscribe_all(&filters, Properties::EMPTY);
    }
    for number in (0..5_000).step_by(97) {
        say(&pods[0], AtMostOnce, &format!("many/{number}/x"), &["x"]);
        take(&mut many);
    }
    let mut odd = Client::connect(&pods[2], V5, "odd");
    for (before, after) in (0..7).flat_map(|before| (0..7).map(move |after| (before, after))) {
        odd.subscribe(&format!("{}+/{}#", "a/".repeat(before), "b/".repeat(after)), AtMostOnce);
    }
    for (topic, is_needed) in [("a/a/x/b/b", true), ("many/1/x", false)] {
        let before = received(&pods[2]);
        say(&pods[0], AtMostOnce, topic, &["x"]);
        if is_needed {
            take(&mut odd);
        }
        eventually(|| received(&pods[2]) > before, || format!("{topic} did not come"));
    }
}

#[test]
fn a_pod_that_does_not_answer_holds_no_suback_up_for_long_and_misses_nothing_that_is_stored() {
    let Some(([slow, one], relay, _net)) = with_relay(["slow", "one"], 2) else { return };
    relay.pause(true);
    let mut reader = Client::connect(&one, V5, "reader");
    // Long before the slow one is taken for gone, which takes more than a client waits here.
    reader.subscribe("a/+", AtMostOnce);
    let mut kept = Client::open(&one, lasting(V5, "kept"));
    kept.subscribe("k/+", AtLeastOnce);
    // It does not know that somebody here wants it.
    say(&slow, AtLeastOnce, "k/x", &["stored"]);
    assert_eq!(take(&mut kept).payload, b"stored");
    relay.pause(false);
    // The digests that were announced meanwhile are still on their way.
    reader.stream().set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let is_live = || {
        say(&slow, AtMostOnce, "a/x", &["live"]);
        Packets::of(&reader).next().is_some()
    };
    eventually(is_live, || "the pod that was silent does not know what is wanted".into());
}

#[test]
fn a_session_reads_what_a_pod_stored_before_it_knew_the_filter() {
    let Some(([slow, one], relay, _net)) = with_relay(["slow", "one"], 2) else { return };
    let mut kept = Client::open(&one, lasting(V5, "kept"));
    relay.pause(true);
    kept.subscribe("a/+", AtLeastOnce);
    // Longer than the session waits before it reads without a confirmation, shorter than until it reads every second.
    #[allow(clippy::disallowed_methods, reason = "the moment is what is tested")]
    std::thread::sleep(Duration::from_millis(300));
    say(&slow, AtLeastOnce, "a/1", &["stored"]);
    relay.pause(false);
    // Half of the time after which sessions read in any case.
    kept.stream().set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    assert_eq!(take(&mut kept).payload, b"stored");
}
