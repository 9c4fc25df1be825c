//! Small packets that ask for much work: each is bounded, and a turn of the event loop does little of it.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millrace_mqtt::Version::{V5, V311};
use millrace_mqtt::{
    Connect, Packet, PacketType, Properties, Property, Publish, QoS, REPEATED_PROPERTIES_MAX, ReasonCode,
    SubscribeOptions, encode,
};

use crate::common::{Client, STORED, Server, ack, connect, disconnect, id, properties, publish, publish_qos};
use crate::tools::{
    Packets, Pair, TURN_WORK_MAX, a_moment, counted, dropped, eventually, flood, metric, narrow_client, now,
    number_of, numbered,
};

fn one_loop() -> Server {
    Server::with(|config| config.threads = 1)
}

fn assert_turns_are_short(server: &Server) {
    let work = metric(server, "millrace_edge_turn_work_max", "");
    assert!(work < TURN_WORK_MAX, "a turn did {work} units of work");
}

fn granted(qos: QoS) -> SubscribeOptions {
    SubscribeOptions { qos, ..Default::default() }
}

/// Retains `count` numbered messages under `r/`.
fn retain(server: &Server, count: u64) {
    let mut publisher = Client::connect(server, V5, "retains");
    let mut bytes = Vec::new();
    for number in 0..count {
        let (topic, payload) = (format!("r/{number}"), numbered(number, 8));
        let message = Publish { retain: true, ..publish(&topic, &payload) };
        encode::packet(&Packet::Publish(message), V5, &mut bytes);
    }
    publisher.send_bytes(&bytes);
    publisher.ping();
    assert_eq!(metric(server, "millrace_retained_messages", ""), count);
}

#[test]
fn a_filter_that_is_repeated_in_a_packet_is_one_filter() {
    const REPEATS: usize = 20_000;
    const RETAINED: u64 = 1_000;
    let server = one_loop();
    retain(&server, RETAINED);
    let mut client = Client::connect(&server, V5, "repeats");
    let filters = vec![("#", granted(QoS::AtMostOnce)); REPEATS];
    let suback = client.subscribe_all(&filters, Properties::EMPTY);
    assert_eq!(suback.reasons, vec![0; REPEATS]);
    let mut numbers: Vec<_> = (0..RETAINED)
        .map(|_| client.recv_publish())
        .map(|message| u64::from_be_bytes(*message.payload.first_chunk().unwrap()))
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..RETAINED).collect::<Vec<_>>());
    client.ping();
    assert_turns_are_short(&server);
}

#[test]
fn a_client_that_reads_fast_gets_what_waited_for_it_over_several_turns() {
    const COUNT: u64 = 400;
    // All of it takes 200,000.
    const WORK_MAX: u64 = 40_000;
    let server = one_loop();
    let mut reader = Client::connect(&server, V5, "reader");
    reader.subscribe("t", QoS::AtLeastOnce);
    let mut publisher = Client::connect(&server, V5, "publisher");
    for number in 0..COUNT {
        // More than the socket and its outbound buffer hold, so the rest is queued in the session.
        publisher.publish(publish_qos(QoS::AtLeastOnce, 1, "t", &numbered(number, 32 * 1024)));
    }
    let mut packets = Packets::of(&reader);
    (0..COUNT).for_each(|number| assert_eq!(packets.next_number(), Some(number)));
    publisher.ping();
    let work = metric(&server, "millrace_edge_turn_work_max", "");
    assert!(work < WORK_MAX, "a turn did {work} units of work");
}

/// The least work of `bytes` that are checked field by field.
fn checked(bytes: usize) -> u64 {
    bytes as u64 / 16
}

/// Waits, because a turn is counted at its end, after its answers were sent.
fn expect_work_of_a_turn(server: &Server, least: u64) {
    let work = || metric(server, "millrace_edge_turn_work_max", "");
    eventually(|| work() >= least, || format!("{} units of work instead of {least}", work()));
}

#[test]
fn each_of_many_properties_counts_as_work() {
    const PROPERTIES: usize = REPEATED_PROPERTIES_MAX as usize;
    let server = one_loop();
    let mut client = Client::connect(&server, V5, "properties");
    let properties = properties(&[Property::UserProperty("a", "b"); PROPERTIES]);
    client.send(&Packet::Publish(Publish { properties, ..publish("t", b"") }));
    client.ping();
    expect_work_of_a_turn(&server, checked(properties.as_bytes().len()));
}

#[test]
fn each_of_many_filters_counts_for_the_turn_that_reads_them() {
    const FILTERS: usize = 60_000;
    let server = one_loop();
    let mut client = Client::connect(&server, V5, "filters");
    let filters = vec![("a", granted(QoS::AtMostOnce)); FILTERS];
    assert_eq!(client.subscribe_all(&filters, Properties::EMPTY).reasons, vec![0; FILTERS]);
    expect_work_of_a_turn(&server, checked(4 * FILTERS));
}

#[test]
fn a_large_packet_that_is_malformed_at_its_end_counts_as_work() {
    const FILTERS: usize = 60_000;
    let server = one_loop();
    let mut client = Client::connect(&server, V5, "malformed");
    let filters = vec![("a", granted(QoS::AtMostOnce)); FILTERS];
    let mut bytes = Vec::new();
    encode::subscribe(id(1), Properties::EMPTY, filters.iter().copied(), V5, &mut bytes);
    *bytes.last_mut().unwrap() = 0xFF;
    client.send_bytes(&bytes);
    client.expect_disconnect(ReasonCode::MALFORMED_PACKET);
    expect_work_of_a_turn(&server, checked(4 * FILTERS));
}

#[test]
fn the_last_of_several_options_for_a_filter_counts() {
    let server = one_loop();
    let mut client = Client::connect(&server, V5, "options");
    let filters =
        [("a", granted(QoS::ExactlyOnce)), ("b", granted(QoS::AtLeastOnce)), ("a", granted(QoS::AtMostOnce))];
    assert_eq!(client.subscribe_all(&filters, Properties::EMPTY).reasons, [2, 1, 0]);
    Client::connect(&server, V5, "publisher").publish(publish_qos(QoS::ExactlyOnce, 7, "a", b"x"));
    assert_eq!(client.recv_publish().qos, QoS::AtMostOnce);
}

#[test]
fn many_filters_come_and_go_over_several_turns() {
    const FILTERS: usize = 20_000;
    let server = one_loop();
    retain(&server, 10);
    let names: Vec<_> = (0..FILTERS).map(|number| format!("r/{number}")).collect();
    let mut client = Client::connect(&server, V5, "many");
    let filters: Vec<_> = names.iter().map(|name| (&**name, granted(QoS::AtMostOnce))).collect();
    let mut bytes = Vec::new();
    encode::subscribe(id(1), Properties::EMPTY, filters.iter().copied(), V5, &mut bytes);
    // The packet behind the SUBSCRIBE is carried out after it.
    encode::packet(&Packet::Publish(publish("r/7", &numbered(100, 8))), V5, &mut bytes);
    client.send_bytes(&bytes);
    assert_eq!(client.recv_suback().reasons, vec![0; FILTERS]);
    let mut seen: Vec<_> =
        (0..11).map(|_| client.recv_publish()).map(|message| (message.retain, message.topic)).collect();
    assert_eq!(seen.pop(), Some((false, "r/7")), "the live message comes after the retained ones");
    assert!(seen.iter().all(|(retain, _)| *retain));
    let all: Vec<&str> = names.iter().map(|name| &**name).collect();
    assert_eq!(client.unsubscribe(&all).reasons, vec![0; FILTERS]);
    assert_eq!(metric(&server, "millrace_subscriptions", ""), 0);
    assert_turns_are_short(&server);
}

#[test]
fn packets_of_one_turn_are_one_edit_of_the_filters() {
    const PACKETS: u16 = 200;
    let server = one_loop();
    let mut client = Client::connect(&server, V5, "subscribes");
    // A subscription and its end, for each of the filters but the last.
    let mut bytes = Vec::new();
    for number in 1..=PACKETS {
        let filter = format!("f/{number}");
        let options = granted(QoS::AtMostOnce);
        encode::subscribe(id(number), Properties::EMPTY, [(&*filter, options)], V5, &mut bytes);
        if number < PACKETS {
            encode::unsubscribe(id(number), Properties::EMPTY, [&*filter], V5, &mut bytes);
        }
    }
    client.send_bytes(&bytes);
    for number in 1..=PACKETS {
        let suback = client.recv_suback();
        assert_eq!((suback.packet_id, suback.reasons.to_vec()), (id(number), vec![0]));
        if number < PACKETS {
            let unsuback = client.recv_unsuback();
            assert_eq!((unsuback.packet_id, unsuback.reasons.to_vec()), (id(number), vec![0]));
        }
    }
    assert_eq!(metric(&server, "millrace_subscriptions", ""), 1);
    let edits = metric(&server, "millrace_loop_filter_edits_total", "");
    assert!((1..=20).contains(&edits), "{edits} edits for {PACKETS} packets and more");
    assert_turns_are_short(&server);
}

/// Retained messages are sent after the turn's edit of the filters, where the budget is no longer checked.
#[test]
fn replays_of_many_subscribes_count_for_the_turn_that_reads_them() {
    const PACKETS: u16 = 1_500;
    let server = one_loop();
    retain(&server, 250);
    let mut client = Client::connect(&server, V5, "replays");
    let mut bytes = Vec::new();
    for number in 1..=PACKETS {
        encode::subscribe(
            id(number),
            Properties::EMPTY,
            [("r/+/none", granted(QoS::AtMostOnce))],
            V5,
            &mut bytes,
        );
    }
    client.send_bytes(&bytes);
    for number in 1..=PACKETS {
        assert_eq!(client.recv_suback().packet_id, id(number));
    }
    assert_turns_are_short(&server);
}

#[test]
fn a_publish_behind_a_subscribe_finds_the_subscription() {
    let server = one_loop();
    let mut client = Client::connect(&server, V5, "pipelines");
    let mut bytes = Vec::new();
    for number in 1..=50 {
        let topic = format!("t/{number}");
        let options = granted(QoS::AtMostOnce);
        encode::subscribe(id(number), Properties::EMPTY, [(&*topic, options)], V5, &mut bytes);
        encode::packet(&Packet::Publish(publish(&topic, b"x")), V5, &mut bytes);
        encode::unsubscribe(id(number), Properties::EMPTY, [&*topic], V5, &mut bytes);
        encode::packet(&Packet::Publish(publish(&topic, b"nobody")), V5, &mut bytes);
    }
    client.send_bytes(&bytes);
    for number in 1..=50 {
        assert_eq!(client.recv_suback().reasons.to_vec(), [0]);
        let message = client.recv_publish();
        assert_eq!((message.topic, message.payload), (&*format!("t/{number}"), &b"x"[..]));
        assert_eq!(client.recv_unsuback().reasons.to_vec(), [0]);
    }
    client.ping();
}

#[test]
fn what_was_sent_before_the_end_of_a_connection_is_carried_out() {
    let server = one_loop();
    let expiry = Property::SessionExpiryInterval(600);
    let request =
        || Connect { properties: properties(&[expiry]), clean_start: false, ..connect(V5, "leaves") };
    let mut client = Client::open(&server, request());
    let mut bytes = Vec::new();
    let options = granted(QoS::AtLeastOnce);
    encode::subscribe(id(1), Properties::EMPTY, [("kept", options)], V5, &mut bytes);
    encode::packet(&Packet::Disconnect(disconnect(ReasonCode::SUCCESS)), V5, &mut bytes);
    client.send_bytes(&bytes);
    client.stream().shutdown(std::net::Shutdown::Write).unwrap();
    while client.recv_bytes().is_some() {}
    let mut publisher = Client::connect(&server, V5, "publisher");
    publisher.publish(publish_qos(QoS::AtLeastOnce, 1, "kept", b"x"));
    let mut client = Client::open(&server, request());
    assert_eq!(client.recv_publish().topic, "kept");
}

#[test]
fn filters_of_many_levels_take_more_turns_than_short_ones() {
    const FILTERS: usize = 600;
    let turns = |levels: usize| {
        let server = one_loop();
        let names: Vec<_> = (0..FILTERS).map(|number| format!("{number}/{}#", "+/".repeat(levels))).collect();
        let filters: Vec<_> = names.iter().map(|name| (&**name, granted(QoS::AtMostOnce))).collect();
        let mut client = Client::connect(&server, V5, "deep");
        let before = metric(&server, "millrace_loop_turns_total", "");
        assert_eq!(client.subscribe_all(&filters, Properties::EMPTY).reasons, vec![0; FILTERS]);
        let turns = metric(&server, "millrace_loop_turns_total", "") - before;
        assert_turns_are_short(&server);
        turns
    };
    // A filter of 122 levels costs as much as 15 of 2: 20 parts, of which a turn carries out three.
    let deep = turns(120);
    assert!(deep >= 6, "{deep} turns");
}

#[test]
fn an_unsubscribe_in_parts_answers_each_filter_in_order() {
    const FILTERS: usize = 1_700;
    for expiry_s in [0, 600] {
        let server = one_loop();
        let expiry = Property::SessionExpiryInterval(expiry_s);
        let request = Connect { properties: properties(&[expiry]), ..connect(V5, "leaves-some") };
        let mut client = Client::open(&server, request);
        let names: Vec<_> = (0..FILTERS).map(|number| format!("f/{number}/+")).collect();
        // Two of five are there, and some stand in the packet twice.
        let is_there = |number: usize| number % 5 % 3 == 1;
        let there: Vec<_> = (0..FILTERS)
            .filter(|number| is_there(*number))
            .map(|number| (&*names[number], granted(QoS::AtLeastOnce)))
            .collect();
        assert_eq!(client.subscribe_all(&there, Properties::EMPTY).reasons, vec![1; there.len()]);
        let mut filters = Vec::new();
        let mut expected = Vec::new();
        for (number, name) in names.iter().enumerate() {
            filters.push(&**name);
            expected.push(if is_there(number) { 0 } else { 0x11 });
            if number % 7 == 0 {
                filters.push(&**name);
                expected.push(0x11);
            }
        }
        let unsuback = client.unsubscribe(&filters);
        assert_eq!(unsuback.reasons, expected, "expiry {expiry_s}");
        assert_eq!(metric(&server, "millrace_subscriptions", ""), 0);
        // The same packet again finds nothing.
        assert_eq!(client.unsubscribe(&filters).reasons, vec![0x11; filters.len()]);
        assert_turns_are_short(&server);
    }
}

#[test]
fn a_client_with_many_filters_may_leave_in_the_middle_of_them() {
    let server = one_loop();
    let names: Vec<_> = (0..20_000).map(|number| format!("f/{number}")).collect();
    let mut bytes = Vec::new();
    let filters = names.iter().map(|name| (&**name, granted(QoS::AtMostOnce)));
    encode::subscribe(id(1), Properties::EMPTY, filters, V5, &mut bytes);
    for round in 0..5 {
        let client = Client::connect(&server, V5, "leaves");
        client.stream().write_all(&bytes).unwrap();
        if round % 2 == 1 {
            client.stream().write_all(&[0xE0, 0]).unwrap();
        }
        client.cut();
    }
    let mut client = Client::connect(&server, V5, "leaves");
    client.subscribe("g", QoS::AtMostOnce);
    Client::connect(&server, V5, "publisher").publish(publish("g", b"x"));
    assert_eq!(client.recv_publish().payload, b"x");
    eventually(|| metric(&server, "millrace_subscriptions", "") == 1, || counted(&server));
    assert_turns_are_short(&server);
}

#[test]
fn retained_messages_come_in_slices_and_live_ones_behind_them() {
    const RETAINED: u64 = 5_000;
    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce] {
        let server = one_loop();
        retain(&server, RETAINED);
        let pair = Pair::start(&server);
        let mut client = narrow_client(&server, V5, "wants-all");
        let suback = client.subscribe_all(&[("r/+", granted(qos))], Properties::EMPTY);
        assert_eq!(suback.reasons, [qos as u8]);
        let mut publisher = Client::connect(&server, V5, "publisher");
        publisher.publish(publish_qos(QoS::AtLeastOnce, 1, "r/5", &numbered(RETAINED, 8)));
        let mut packets = Packets::of(&client);
        let mut numbers: Vec<_> = (0..=RETAINED).map(|_| packets.next_number().unwrap()).collect();
        assert_eq!(numbers.pop(), Some(RETAINED), "the live message comes last");
        numbers.sort_unstable();
        assert_eq!(numbers, (0..RETAINED).collect::<Vec<_>>(), "each retained message comes once");
        pair.finish();
        assert_turns_are_short(&server);
    }
}

#[test]
fn a_client_that_does_not_read_keeps_no_replaced_retained_messages() {
    // More than the sockets and the server's buffer of a client hold.
    const TOPICS: u64 = 400;
    const BYTES: usize = 50_000;
    const NEW: u64 = 1_000_000;
    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce] {
        let server = one_loop();
        let mut publisher = Client::connect(&server, V5, "publisher");
        let mut set = |number: u64, payload: &[u8]| {
            let topic = format!("v/{number}");
            let message = publish_qos(QoS::AtLeastOnce, 1, &topic, payload);
            assert!(!publisher.publish(Publish { retain: true, ..message }).is_error());
        };
        (0..TOPICS).for_each(|number| set(number, &numbered(number, BYTES)));
        let mut client = narrow_client(&server, V5, "reads-later");
        assert_eq!(client.subscribe_all(&[("v/+", granted(qos))], Properties::EMPTY).reasons, [qos as u8]);
        (0..TOPICS).for_each(|number| set(number, &numbered(NEW + number, 8)));
        let (mut packets, mut got) = (Packets::of(&client), BTreeMap::new());
        while got.values().filter(|numbers: &&Vec<u64>| numbers.last() >= Some(&NEW)).count()
            < TOPICS as usize
        {
            let (topic, number) = packets.next_message().unwrap();
            got.entry(topic).or_default().push(number);
        }
        let mut old = 0;
        for (topic, numbers) in &got {
            let number: u64 = topic["v/".len()..].parse().unwrap();
            let is_known = **numbers == [NEW + number] || **numbers == [number, NEW + number];
            assert!(is_known, "{topic}: {numbers:?}");
            old += numbers.len() - 1;
        }
        assert!(old < TOPICS as usize, "the server kept all {old} messages that were replaced");
        assert_turns_are_short(&server);
    }
}

#[test]
fn a_client_that_subscribes_again_and_again_without_reading_costs_little() {
    let server = one_loop();
    retain(&server, 2_000);
    let client = narrow_client(&server, V5, "never-reads");
    let mut bytes = Vec::new();
    for _ in 0..1_000 {
        encode::subscribe(id(1), Properties::EMPTY, [("#", granted(QoS::AtMostOnce))], V5, &mut bytes);
    }
    client.stream().write_all(&bytes).unwrap();
    let pair = Pair::start(&server);
    eventually(|| dropped(&server, "queue_full") > 0, || counted(&server));
    pair.finish();
    assert_turns_are_short(&server);
}

#[test]
fn a_filter_has_so_many_share_names() {
    const SHARE_NAMES_MAX: usize = 250;
    let server = one_loop();
    let names: Vec<_> = (0..300).map(|number| format!("$share/g{number}/t")).collect();
    let mut client = Client::connect(&server, V5, "shares");
    let filters: Vec<_> = names.iter().map(|name| (&**name, granted(QoS::AtMostOnce))).collect();
    let reasons = client.subscribe_all(&filters, Properties::EMPTY).reasons;
    assert_eq!(reasons[..SHARE_NAMES_MAX], [0; SHARE_NAMES_MAX]);
    assert_eq!(reasons[SHARE_NAMES_MAX..], [0x97; 50]);
    // Members of a name that is there may come.
    let mut other = Client::connect(&server, V5, "joins");
    let filters = [(&*names[3], granted(QoS::AtMostOnce)), ("$share/new/t", granted(QoS::AtMostOnce))];
    assert_eq!(other.subscribe_all(&filters, Properties::EMPTY).reasons, [0, 0x97]);
    assert_eq!(metric(&server, "millrace_limits_reached_total", "filter.share_names"), 2);
}

#[test]
fn many_shared_subscriptions_of_a_client_that_leaves_end_over_several_turns() {
    const FILTERS: usize = 20_000;
    const TOPICS: u16 = 1_000;
    let server = one_loop();
    let names: Vec<String> = (0..FILTERS).map(|number| format!("$share/g/r/{number}")).collect();
    let join = |client: &mut Client, names: &[String]| {
        for some in names.chunks(5_000) {
            let filters: Vec<_> = some.iter().map(|name| (&**name, granted(QoS::AtLeastOnce))).collect();
            assert_eq!(client.subscribe_all(&filters, Properties::EMPTY).reasons, vec![1; some.len()]);
        }
    };
    let mut stays = Client::connect(&server, V5, "stays");
    let some: Vec<String> = names.iter().step_by(FILTERS / usize::from(TOPICS)).cloned().collect();
    join(&mut stays, &some);
    let mut leaves = Client::connect(&server, V5, "leaves");
    join(&mut leaves, &names);
    let mut publisher = Client::connect(&server, V5, "publisher");
    let mut bytes = Vec::new();
    for (packet_id, name) in (1..).zip(&some) {
        let topic = name.strip_prefix("$share/g/").unwrap();
        encode::packet(
            &Packet::Publish(publish_qos(QoS::AtLeastOnce, packet_id, topic, b"x")),
            V5,
            &mut bytes,
        );
    }
    leaves.cut();
    publisher.send_bytes(&bytes);
    let mut topics: Vec<&str> = (0..TOPICS).map(|_| stays.recv_publish().topic).collect();
    topics.sort_unstable();
    topics.dedup();
    assert_eq!(topics.len(), usize::from(TOPICS));
    let left = || metric(&server, "millrace_subscriptions", "");
    eventually(|| left() == u64::from(TOPICS), || format!("{} subscriptions are left", left()));
    assert_turns_are_short(&server);
}

#[test]
fn many_messages_of_a_member_that_leaves_go_to_others_over_several_turns() {
    const MESSAGES: u64 = 20_000;
    let server = one_loop();
    let mut leaves = Client::connect(&server, V5, "leaves");
    leaves.subscribe("$share/g/t", QoS::AtLeastOnce);
    let mut publisher = Client::connect(&server, V5, "publisher");
    for number in 0..MESSAGES {
        let packet_id = u16::try_from(number % 1_000 + 1).unwrap();
        publisher.publish(publish_qos(QoS::AtLeastOnce, packet_id, "t", &numbered(number, 8)));
    }
    let mut stays = Client::connect(&server, V5, "stays");
    stays.subscribe("$share/g/t", QoS::AtLeastOnce);
    leaves.cut();
    let mut numbers: Vec<u64> = (0..MESSAGES)
        .map(|_| {
            let message = stays.recv_publish();
            stays.send(&Packet::PubAck(ack(message.packet_id.unwrap())));
            u64::from_be_bytes(*message.payload.first_chunk().unwrap())
        })
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..MESSAGES).collect::<Vec<_>>());
    assert_turns_are_short(&server);
}

/// `count` filters that all match `a/a/.../a`.
fn overlapping(count: usize, levels: usize, last: &str) -> Vec<String> {
    let level = |number: usize, bit: usize| if number >> bit & 1 == 0 { "a/" } else { "+/" };
    (0..count).map(|number| (0..levels).map(|bit| level(number, bit)).collect::<String>() + last).collect()
}

#[test]
fn a_topic_that_matches_too_many_filters_is_refused() {
    for last in ["a", "never"] {
        let server = one_loop();
        let names = overlapping(1 << 13, 13, last);
        let mut client = Client::connect(&server, V5, "overlaps");
        for some in names.chunks(1000) {
            let filters: Vec<_> = some.iter().map(|name| (&**name, granted(QoS::AtMostOnce))).collect();
            client.subscribe_all(&filters, properties(&[Property::SubscriptionIdentifier(1)]));
        }
        let topic = "a/".repeat(13) + "a";
        let mut publisher = Client::connect(&server, V5, "publisher");
        let ack = publisher.publish(publish_qos(QoS::AtLeastOnce, 1, &topic, b"x"));
        assert_eq!(ack.0, 0x97, "{last}");
        assert_eq!(publisher.publish(publish(&topic, b"x")).0, 0);
        let mut publisher_v3 = Client::connect(&server, V311, "publisher-v3");
        assert_eq!(publisher_v3.publish(publish(&topic, b"x")).0, 0);
        assert_eq!(metric(&server, "millrace_publishes_refused_total", "matching_filters"), 3);
        // Topics that match less continue.
        client.subscribe("b", QoS::AtMostOnce);
        publisher.publish(publish("b", b"y"));
        assert_eq!(client.recv_publish().payload, b"y");
        assert_turns_are_short(&server);
    }
}

#[test]
fn publishes_that_walk_all_filters_and_match_none_are_carried_out_over_many_turns() {
    const PUBLISHES: usize = 200;
    /// Fewest turns for them: a match takes about half of what a turn may read.
    const TURNS_MIN: u64 = 50;
    // 8,191 nodes are walked, and 8,192 of 16,383 before the match is given up.
    for (levels, refused) in [(12, 0), (13, PUBLISHES as u64)] {
        let server = one_loop();
        let names = overlapping(1 << levels, levels, "never");
        let mut client = Client::connect(&server, V5, "overlaps");
        for some in names.chunks(1000) {
            let filters: Vec<_> = some.iter().map(|name| (&**name, granted(QoS::AtMostOnce))).collect();
            client.subscribe_all(&filters, Properties::EMPTY);
        }
        let mut bytes = Vec::new();
        for number in 0..PUBLISHES {
            let topic = format!("{}{number}", "a/".repeat(levels));
            encode::packet(&Packet::Publish(publish(&topic, b"x")), V5, &mut bytes);
        }
        let mut publisher = Client::connect(&server, V5, "publisher");
        let before = metric(&server, "millrace_loop_turns_total", "");
        publisher.send_bytes(&bytes);
        publisher.ping();
        let turns = metric(&server, "millrace_loop_turns_total", "") - before;
        assert!(turns >= TURNS_MIN, "{levels} levels: {turns} turns");
        assert_turns_are_short(&server);
        assert_eq!(metric(&server, "millrace_publishes_refused_total", "matching_filters"), refused);
    }
}

#[test]
fn a_publish_with_many_receivers_is_handed_out_in_slices_and_in_order() {
    const RECEIVERS: usize = 100;
    const COUNT: u64 = 1_000;
    for identifier in [None, Some(5)] {
        let server = one_loop();
        let identifier = identifier.map(Property::SubscriptionIdentifier);
        let mut receivers: Vec<_> = (0..RECEIVERS)
            .map(|number| Client::connect(&server, V5, &format!("receiver-{number}")))
            .collect();
        for receiver in &mut receivers {
            receiver.subscribe_all(&[("t", granted(QoS::AtMostOnce))], properties(identifier.as_slice()));
        }
        let pair = Pair::start(&server);
        let publisher = Client::connect(&server, V5, "publisher");
        std::thread::scope(|scope| {
            scope.spawn(|| crate::tools::send_anyway(publisher.stream(), &flood("t", COUNT, 100, V5)));
            for some in receivers.chunks(25) {
                scope.spawn(move || {
                    for receiver in some {
                        let mut packets = Packets::of(receiver);
                        let numbers: Vec<_> = (0..COUNT).map_while(|_| packets.next_number()).collect();
                        assert_eq!(numbers, (0..COUNT).collect::<Vec<_>>());
                    }
                });
            }
        });
        pair.finish();
        assert_eq!(dropped(&server, "busy_socket"), 0);
        assert_turns_are_short(&server);
    }
}

#[test]
fn a_slow_reader_costs_a_healthy_one_nothing() {
    const COUNT: u64 = 40_000;
    const PIECES: usize = 400;
    for threads in [1, 2] {
        let server = Server::with(|config| {
            config.threads = threads;
            config.limits.outbound_soft_bytes = 256 * 1024;
        });
        let mut slow = narrow_client(&server, V5, "slow");
        slow.subscribe("t", QoS::AtMostOnce);
        let mut healthy = Client::connect(&server, V5, "healthy");
        healthy.subscribe("t", QoS::AtMostOnce);
        let publisher = Client::connect(&server, V5, "publisher");
        let (healthy, received) = (&healthy, AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // The pieces are smaller than the soft limit, so that the healthy reader never lags.
                let bytes = flood("t", COUNT, 1000, V5);
                for (number, some) in bytes.chunks(bytes.len() / PIECES).enumerate() {
                    crate::tools::send_anyway(publisher.stream(), some);
                    let sent = number as u64 * COUNT / PIECES as u64;
                    let is_there = || received.load(Ordering::Relaxed) >= sent;
                    eventually(is_there, || format!("{sent} received"));
                }
            });
            let reads = scope.spawn(|| {
                let mut packets = Packets::of(healthy);
                for number in 0..COUNT {
                    assert_eq!(packets.next_number(), Some(number), "the healthy one gets all, in order");
                    received.store(number + 1, Ordering::Relaxed);
                }
            });
            // Some 5 MB a second.
            read_slowly_until(&reads, &slow);
        });
        assert!(dropped(&server, "busy_socket") > 0, "{}", counted(&server));
    }
}

/// Reads 10 KiB at a time, until the other thread has ended.
fn read_slowly_until(reads: &std::thread::ScopedJoinHandle<'_, ()>, slow: &Client) {
    let mut packets = Packets::of(slow);
    while !reads.is_finished() && packets.next_number().is_some() {
        if packets.bytes % (10 * 1024) < 1024 {
            a_moment();
        }
    }
}

#[test]
fn a_slow_reader_costs_a_healthy_one_of_another_topic_nothing() {
    const PIECES: u64 = 400;
    // The pieces are smaller than the soft limit, so that the healthy reader never lags.
    const MESSAGES: u64 = 50;
    for threads in [1, 2] {
        let server = Server::with(|config| {
            config.threads = threads;
            config.limits.outbound_soft_bytes = 256 * 1024;
            config.limits.outbound_hard_bytes = 1024 * 1024;
        });
        let mut slow = narrow_client(&server, V5, "slow");
        slow.subscribe("a", QoS::AtMostOnce);
        let mut healthy = Client::connect(&server, V5, "healthy");
        healthy.subscribe("b", QoS::AtMostOnce);
        let publisher = Client::connect(&server, V5, "publisher");
        let (healthy, received) = (&healthy, AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut piece = flood("a", MESSAGES, 1000, V5);
                piece.extend(flood("b", MESSAGES, 1000, V5));
                for number in 0..PIECES {
                    crate::tools::send_anyway(publisher.stream(), &piece);
                    let is_there = || received.load(Ordering::Relaxed) >= number * MESSAGES;
                    eventually(is_there, || format!("{number} pieces received"));
                }
            });
            let reads = scope.spawn(|| {
                let mut packets = Packets::of(healthy);
                for number in 0..PIECES * MESSAGES {
                    assert_eq!(packets.next_number(), Some(number % MESSAGES), "the healthy one gets all");
                    received.store(number + 1, Ordering::Relaxed);
                }
            });
            // More than the soft limit a second, but less than is published.
            read_slowly_until(&reads, &slow);
        });
        assert!(dropped(&server, "busy_socket") > 0, "{}", counted(&server));
    }
}

#[test]
fn each_byte_that_trickles_in_counts_for_the_incomplete_packet_that_is_copied() {
    const HELD: usize = 60_000;
    let server = Server::with(|config| {
        config.threads = 1;
        // The match of $SYS topics is work, too.
        config.limits.sys_interval_s = 0;
    });
    let mut client = Client::connect(&server, V5, "trickles");
    let payload = vec![0; HELD + 10];
    let mut bytes = Vec::new();
    encode::packet(&Packet::Publish(publish("t", &payload)), V5, &mut bytes);
    let (first, rest) = bytes.split_at(HELD);
    let read = || metric(&server, "millrace_received_bytes_total", "");
    let before = read();
    client.send_bytes(first);
    eventually(|| read() >= before + HELD as u64, || "the packet is not read".into());
    let copied = 2 * HELD as u64 / 512;
    let work = metric(&server, "millrace_edge_turn_work_max", "");
    assert!(work < copied, "{work} units of work before");
    client.send_bytes(&rest[..1]);
    expect_work_of_a_turn(&server, copied);
    client.send_bytes(&rest[1..]);
    client.ping();
}

#[test]
fn sessions_that_come_back_together_are_served_over_several_turns() {
    const SESSIONS: usize = 200;
    const MESSAGES: u64 = 1_000;
    if !STORED {
        return;
    }
    let server = one_loop();
    let expiry = || properties(&[Property::SessionExpiryInterval(60)]);
    let back = |name| Connect { clean_start: false, properties: expiry(), ..connect(V5, name) };
    let names: Vec<String> = (0..SESSIONS).map(|number| format!("sleeper-{number}")).collect();
    for name in &names {
        let mut client = Client::open(&server, back(name));
        client.subscribe("t", QoS::AtLeastOnce);
        client.disconnect();
    }
    let mut publisher = Client::connect(&server, V5, "publisher");
    for number in 0..MESSAGES {
        let text = numbered(number, 8);
        assert!(!publisher.publish(publish_qos(QoS::AtLeastOnce, 1, "t", &text)).is_error());
    }
    let mut clients: Vec<Client> = names
        .iter()
        .map(|name| {
            let mut client = Client::raw(&server);
            client.version = V5;
            client.send(&Packet::Connect(back(name)));
            client
        })
        .collect();
    for client in &mut clients {
        assert!(client.recv_connack().session_present);
        assert_eq!(client.recv_publish().topic, "t");
    }
    assert_turns_are_short(&server);
}

#[test]
fn queued_messages_that_have_expired_are_dropped_over_several_turns() {
    const COUNT: u64 = 16_000;
    // To drop them all takes 80,000.
    const WORK_MAX: u64 = 50_000;
    let server = one_loop();
    let expiry = properties(&[Property::SessionExpiryInterval(60)]);
    let session = || Connect { clean_start: false, properties: expiry, ..connect(V5, "reader") };
    let mut reader = Client::open(&server, session());
    reader.subscribe("t", QoS::AtLeastOnce);
    reader.disconnect();
    let mut publisher = Client::connect(&server, V5, "publisher");
    let expiry = properties(&[Property::MessageExpiryInterval(1)]);
    for batch in 0..COUNT / 500 {
        for number in 0..500_u16 {
            let payload = numbered(batch * 500 + u64::from(number), 8);
            let message = publish_qos(QoS::AtLeastOnce, number + 1, "t", &payload);
            publisher.send(&Packet::Publish(Publish { properties: expiry, ..message }));
        }
        for number in 1..=500 {
            publisher.recv_ack(PacketType::PubAck, id(number));
        }
    }
    publisher.publish(publish_qos(QoS::AtLeastOnce, 1, "t", &numbered(COUNT, 8)));
    let published = now();
    while published.elapsed() < Duration::from_millis(2_200) {
        a_moment();
    }
    let mut reader = Client::open(&server, session());
    assert_eq!(number_of(reader.recv_publish().payload), COUNT);
    reader.ping();
    let work = metric(&server, "millrace_edge_turn_work_max", "");
    assert!(work < WORK_MAX, "a turn did {work} units of work");
}

#[test]
fn a_large_message_to_many_receivers_is_written_over_several_turns() {
    const RECEIVERS: usize = 40;
    const BYTES: usize = 256 * 1024;
    // A slice of work copies it to ten receivers, and to write these takes 40,000. A turn has two slices and writes besides.
    const WORK_MAX: u64 = 60_000;
    let server = one_loop();
    let mut receivers: Vec<Client> = (0..RECEIVERS)
        .map(|number| {
            let mut client = Client::connect(&server, V5, &format!("receiver-{number}"));
            client.subscribe("t", QoS::AtMostOnce);
            client
        })
        .collect();
    let mut publisher = Client::connect(&server, V5, "publisher");
    publisher.publish(publish_qos(QoS::AtLeastOnce, 1, "t", &vec![0; BYTES]));
    for receiver in &mut receivers {
        assert_eq!(receiver.recv_publish().payload.len(), BYTES);
    }
    let work = metric(&server, "millrace_edge_turn_work_max", "");
    assert!(work < WORK_MAX, "a turn did {work} units of work");
}
