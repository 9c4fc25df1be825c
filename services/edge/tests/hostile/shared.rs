//! Shared subscriptions: fair turns, and what a member cannot take goes to another.

use std::collections::HashMap;

use millrace_mqtt::Version::{V5, V311};
use millrace_mqtt::{Connect, Packet, Property, Publish, QoS, ReasonCode};

use crate::common::{Client, STORED, Server, ack, connect, properties, publish_qos};
use crate::tools::{
    Packets, counted, eventually, expect_clients, flood, half_close, metric, number_of, numbered, publish_all,
};

/// A session that outlives its connection and takes so many messages at once.
fn lasting(id: &str, receive_maximum: u16) -> Connect<'_> {
    let options = [Property::SessionExpiryInterval(60), Property::ReceiveMaximum(receive_maximum)];
    Connect { clean_start: false, properties: properties(&options), ..connect(V5, id) }
}

/// Takes a message without acknowledging it.
fn take(client: &mut Client) -> Publish<'static> {
    client.recv_publish()
}

fn acknowledge(client: &mut Client, message: &Publish<'_>) {
    client.send(&Packet::PubAck(ack(message.packet_id.unwrap())));
}

#[test]
fn members_take_turns() {
    //= [MQTT-4.8.2-3] v5
    for threads in [1, 4] {
        for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
            const MEMBERS: u64 = 5;
            const COUNT: u64 = 200;
            let server = Server::with(|config| config.threads = threads);
            let mut members: Vec<_> = (0..MEMBERS)
                .map(|member| Client::connect(&server, V5, &format!("member-{member}")))
                .collect();
            members.iter_mut().for_each(|member| member.subscribe("$share/g/t", qos));
            let mut publisher = Client::connect(&server, V311, "publisher");
            publish_all(&mut publisher, qos, "t", COUNT, 8);
            let mut all = Vec::new();
            for member in &members {
                let mut packets = Packets::of(member);
                let mut mine: Vec<_> = (0..COUNT / MEMBERS).map(|_| packets.next_number().unwrap()).collect();
                assert!(mine.is_sorted(), "{mine:?}");
                all.append(&mut mine);
            }
            all.sort_unstable();
            assert_eq!(all, (0..COUNT).collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_flood_to_a_group_is_shared_out_without_loss() {
    const COUNT: u64 = 20_000;
    let server = Server::with(|config| config.threads = 2);
    let mut members: Vec<_> =
        (0..4).map(|member| Client::connect(&server, V5, &format!("member-{member}"))).collect();
    members.iter_mut().for_each(|member| member.subscribe("$share/g/t", QoS::AtMostOnce));
    let mut everything = Client::connect(&server, V5, "everything");
    everything.subscribe("t", QoS::AtMostOnce);
    let publisher = Client::connect(&server, V5, "publisher");
    std::thread::scope(|scope| {
        scope.spawn(|| crate::tools::send_anyway(publisher.stream(), &flood("t", COUNT, 100, V5)));
        for member in &members {
            scope.spawn(|| {
                let (mut packets, mut last) = (Packets::of(member), None);
                for _ in 0..COUNT / 4 {
                    let number = packets.next_number();
                    assert!(number > last, "{number:?} after {last:?}");
                    last = number;
                }
            });
        }
        let mut packets = Packets::of(&everything);
        (0..COUNT).for_each(|number| assert_eq!(packets.next_number(), Some(number)));
    });
}

#[test]
fn what_was_not_sent_yet_goes_to_another_when_a_member_goes_offline() {
    for threads in [1, 4] {
        let server = Server::with(|config| config.threads = threads);
        // One takes a single message at a time, so the others that fall to it wait.
        let mut busy = Client::open(&server, lasting("busy", 1));
        let mut free = Client::open(&server, lasting("free", 100));
        busy.subscribe("$share/g/t", QoS::AtLeastOnce);
        free.subscribe("$share/g/t", QoS::AtLeastOnce);
        let mut publisher = Client::connect(&server, V5, "publisher");
        publish_all(&mut publisher, QoS::AtLeastOnce, "t", 10, 8);
        let kept = number_of(take(&mut busy).payload);
        let mut seen = Vec::new();
        let mut expect = |free: &mut Client, count: usize| {
            for _ in 0..count {
                let message = take(free);
                acknowledge(free, &message);
                seen.push(number_of(message.payload));
            }
            seen.clone()
        };
        expect(&mut free, 5);
        half_close(busy.stream());
        // The store gives what was sent and not acknowledged to another, too.
        let mut seen = expect(&mut free, if STORED { 5 } else { 4 });
        seen.sort_unstable();
        assert_eq!(seen, (0..10).filter(|number| STORED || *number != kept).collect::<Vec<_>>());
        free.expect_nothing();
        if STORED {
            Client::open(&server, lasting("busy", 1)).expect_nothing();
            continue;
        }
        // The message that was sent to it stays its own.
        let mut busy = Client::open(&server, lasting("busy", 1));
        let again = take(&mut busy);
        assert_eq!((again.dup, number_of(again.payload)), (true, kept));
        acknowledge(&mut busy, &again);
        busy.expect_nothing();
    }
}

#[test]
fn a_member_with_a_full_window_gets_nothing_more_while_another_has_room() {
    // Members of a small broker are on one loop, however many there are.
    for threads in [1, 4] {
        let server = Server::with(|config| {
            config.threads = threads;
            config.limits.home_clients_max = 100;
        });
        let mut full = Client::open(&server, lasting("full", 2));
        let mut free = Client::open(&server, lasting("free", 100));
        full.subscribe("$share/g/t", QoS::AtLeastOnce);
        free.subscribe("$share/g/t", QoS::AtLeastOnce);
        let mut publisher = Client::connect(&server, V5, "publisher");
        publish_all(&mut publisher, QoS::AtLeastOnce, "t", 40, 8);
        let kept = [take(&mut full), take(&mut full)];
        for _ in 0..38 {
            let message = take(&mut free);
            acknowledge(&mut free, &message);
        }
        free.expect_nothing();
        // With room again, it takes its turns again.
        kept.iter().for_each(|message| acknowledge(&mut full, message));
        full.ping();
        publish_all(&mut publisher, QoS::AtLeastOnce, "t", 4, 8);
        take(&mut full);
        take(&mut full);
    }
}

#[test]
fn what_was_not_acknowledged_goes_to_another_when_the_session_ends() {
    for threads in [1, 4] {
        for clean in [false, true] {
            let server = Server::with(|config| config.threads = threads);
            let mut leaves = Client::open(&server, lasting("leaves", 100));
            let mut stays = Client::connect(&server, V5, "stays");
            leaves.subscribe("$share/g/t", QoS::AtLeastOnce);
            stays.subscribe("$share/g/t", QoS::AtLeastOnce);
            let mut publisher = Client::connect(&server, V5, "publisher");
            publish_all(&mut publisher, QoS::AtLeastOnce, "t", 20, 8);
            let (mut acknowledged, mut seen) = (Vec::new(), Vec::new());
            for number in 0..10 {
                let message = take(&mut leaves);
                if number % 3 == 0 {
                    acknowledge(&mut leaves, &message);
                    acknowledged.push(number_of(message.payload));
                }
                let message = take(&mut stays);
                acknowledge(&mut stays, &message);
                seen.push(number_of(message.payload));
            }
            leaves.ping();
            let _again = if clean {
                // Its next connection wants nothing of it.
                Some(Client::connect(&server, V5, "leaves"))
            } else {
                let ends = properties(&[Property::SessionExpiryInterval(0)]);
                leaves.send(&Packet::Disconnect(millrace_mqtt::Disconnect {
                    reason: ReasonCode::SUCCESS,
                    properties: ends,
                }));
                leaves.expect_close();
                None
            };
            for _ in 0..10 - acknowledged.len() {
                let message = take(&mut stays);
                acknowledge(&mut stays, &message);
                seen.push(number_of(message.payload));
            }
            seen.append(&mut acknowledged);
            seen.sort_unstable();
            assert_eq!(seen, (0..20).collect::<Vec<_>>());
            stays.expect_nothing();
        }
    }
}

#[test]
fn what_was_sent_with_qos_2_never_goes_to_another() {
    //= [MQTT-4.8.2-5] v5
    for threads in [1, 4] {
        let server = Server::with(|config| config.threads = threads);
        let mut leaves = Client::open(&server, lasting("leaves", 100));
        let mut stays = Client::connect(&server, V5, "stays");
        leaves.subscribe("$share/g/t", QoS::ExactlyOnce);
        stays.subscribe("$share/g/t", QoS::ExactlyOnce);
        let mut publisher = Client::connect(&server, V5, "publisher");
        publish_all(&mut publisher, QoS::ExactlyOnce, "t", 10, 8);
        let mut stayed = Vec::new();
        {
            let mut packets = Packets::of(&stays);
            (0..5).for_each(|_| stayed.extend(packets.next_number()));
        }
        let first = take(&mut leaves);
        leaves.send(&Packet::PubRec(ack(first.packet_id.unwrap())));
        let mut left = vec![number_of(first.payload)];
        // PUBREL comes after what had been sent before it.
        loop {
            match leaves.recv() {
                Packet::Publish(message) => left.push(number_of(message.payload)),
                Packet::PubRel(_) => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(left.len(), 5);
        drop(leaves);
        expect_clients(&server, 2);
        // The session ends.
        let _other = Client::connect(&server, V5, "leaves");
        let mut sentinel = Client::connect(&server, V5, "sentinel");
        sentinel.publish(publish_qos(QoS::ExactlyOnce, 1, "t", &numbered(99, 8)));
        let mut packets = Packets::of(&stays);
        assert_eq!(packets.next_number(), Some(99), "{stayed:?}, left: {left:?}");
    }
}

#[test]
fn while_nobody_is_online_messages_wait_for_whoever_comes() {
    for threads in [1, 4] {
        let server = Server::with(|config| config.threads = threads);
        let ids = ["first", "second", "third"];
        for id in ids {
            let mut member = Client::open(&server, lasting(id, 100));
            member.subscribe("$share/g/t", QoS::AtLeastOnce);
            member.cut();
        }
        // The socket is closed before the session knows it is offline.
        expect_clients(&server, 0);
        let mut publisher = Client::connect(&server, V5, "publisher");
        publish_all(&mut publisher, QoS::AtLeastOnce, "t", 9, 8);
        if STORED {
            // They wait in the group, for the first who comes.
            let first = Client::open(&server, lasting("first", 100));
            let mut packets = Packets::of(&first);
            (0..9).for_each(|number| assert_eq!(packets.next_number(), Some(number)));
            continue;
        }
        // One that comes while a message is on its way to another core may get that, too.
        eventually(|| metric(&server, "millrace_messages_sent_total", "") == 9, || counted(&server));
        let mut seen: HashMap<u64, &str> = HashMap::new();
        for id in ids {
            let member = Client::open(&server, lasting(id, 100));
            let mut packets = Packets::of(&member);
            for _ in 0..3 {
                assert_eq!(seen.insert(packets.next_number().unwrap(), id), None);
            }
        }
        assert_eq!(seen.len(), 9);
    }
}

#[test]
fn members_that_come_and_go_lose_and_repeat_nothing() {
    const COUNT: u64 = 3000;
    let server = Server::with(|config| config.threads = 4);
    let mut stays = Client::connect(&server, V5, "stays");
    stays.subscribe("$share/g/t", QoS::AtLeastOnce);
    let mut publisher = Client::connect(&server, V5, "publisher");
    let stop = std::sync::atomic::AtomicBool::new(false);
    let mut seen = vec![0u8; usize::try_from(COUNT).unwrap()];
    std::thread::scope(|scope| {
        let others: Vec<_> = (0..3)
            .map(|other| {
                let (server, stop) = (&server, &stop);
                scope.spawn(move || {
                    let mut taken = Vec::new();
                    let id = format!("comes-and-goes-{other}");
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        // Its session ends with its connection: all that it did not acknowledge goes to another.
                        let mut member = Client::connect(server, V5, &id);
                        member.subscribe("$share/g/t", QoS::AtLeastOnce);
                        let mut packets = Packets::of(&member);
                        member.stream().set_read_timeout(Some(std::time::Duration::from_millis(20))).unwrap();
                        for _ in 0..20 {
                            let Some(number) = packets.next_number() else { break };
                            taken.push(number);
                        }
                        // The server processes its acknowledgements before the end of its bytes.
                        half_close(member.stream());
                    }
                    taken
                })
            })
            .collect();
        let all = scope.spawn(|| publish_all(&mut publisher, QoS::AtLeastOnce, "t", COUNT, 50));
        // Reads until all is published and everybody else has gone, and nothing comes any more.
        let mut packets = Packets::of(&stays);
        let mut take = |packets: &mut Packets<'_>| {
            packets.next_number().map(|number| seen[usize::try_from(number).unwrap()] += 1)
        };
        stays.stream().set_read_timeout(Some(std::time::Duration::from_millis(100))).unwrap();
        while !all.is_finished() {
            take(&mut packets);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        while others.iter().any(|other| !other.is_finished()) || take(&mut packets).is_some() {
            take(&mut packets);
        }
        for other in others {
            for number in other.join().unwrap() {
                seen[usize::try_from(number).unwrap()] += 1;
            }
        }
    });
    let lost = seen.iter().filter(|times| **times == 0).count();
    let repeated = seen.iter().filter(|times| **times > 1).count();
    assert_eq!((lost, repeated), (0, 0), "{}", counted(&server));
}

#[test]
fn each_group_and_everybody_else_gets_its_own_copy() {
    //= [MQTT-4.8.2-4] v5
    let server = Server::with(|config| config.threads = 2);
    let filters = ["$share/a/t/+", "$share/b/t/+", "$share/a/t/#", "t/1"];
    let mut members: Vec<_> = filters
        .iter()
        .map(|filter| {
            let mut member = Client::connect(&server, V5, filter);
            member.subscribe(filter, QoS::AtLeastOnce);
            member
        })
        .collect();
    let mut publisher = Client::connect(&server, V5, "publisher");
    publisher.publish(publish_qos(QoS::AtLeastOnce, 1, "t/1", b"x"));
    for member in &mut members {
        assert_eq!(take(member).topic, "t/1");
    }
    eventually(|| metric(&server, "millrace_messages_sent_total", "") == 4, || counted(&server));
}
