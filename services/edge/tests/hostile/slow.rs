//! Receivers that are slow or do not read at all: what waits for them is bounded, what is lost is counted, publishers
//! and everybody else continue.

use std::collections::HashSet;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millrace_mqtt::Version::{V5, V311};
use millrace_mqtt::{Connect, Packet, Properties, Property, Publish, QoS, encode};

use crate::common::{Client, Server, connect, id, properties, publish_qos};
use crate::tools::{
    Packets, Pair, a_moment, counted, dropped, encoded, ended, eventually, expect_count, flood, half_close,
    metric, narrow_client, now, numbered, publish_all, refused,
};
use crate::ws::{FIN, PING, WebSocket, frame_of};

/// Most bytes of a connection on loopback that the kernel buffers.
const KERNEL_BYTES: usize = 16 * 1024 * 1024;

/// A server on which little is much.
fn tight(threads: usize) -> Server {
    Server::with(|config| {
        config.threads = threads;
        config.limits.outbound_soft_bytes = 256 * 1024;
        config.limits.outbound_hard_bytes = 8 * 1024 * 1024;
        // Bytes between two cores when a publisher pauses come on top of the soft limit.
        config.limits.mailbox_bytes_max = 512 * 1024;
    })
}

/// Sends all of this and waits until the server has carried it out. The longest time that it took no byte.
fn send_all(client: &Client, bytes: &[u8]) -> Duration {
    let mut longest = Duration::ZERO;
    let mut stream = client.stream();
    for chunk in bytes.chunks(16 * 1024) {
        let start = now();
        stream.write_all(chunk).unwrap();
        longest = longest.max(start.elapsed());
    }
    let start = now();
    let mut end = Client::over(stream.try_clone().unwrap());
    end.version = client.version;
    end.ping();
    longest.max(start.elapsed())
}

#[test]
fn a_subscriber_that_never_reads_costs_the_others_nothing_but_its_grace() {
    const COUNT: u64 = 40_000;
    const PIECES: usize = 400;
    for threads in [1, 2] {
        let server = tight(threads);
        let pair = Pair::start(&server);
        let mut stuck = narrow_client(&server, V5, "stuck");
        stuck.subscribe("t", QoS::AtMostOnce);
        let mut healthy = Client::connect(&server, V5, "healthy");
        healthy.subscribe("t", QoS::AtMostOnce);
        let publisher = Client::connect(&server, V5, "publisher");
        let received = AtomicU64::new(0);
        let blocked = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut packets = Packets::of(&healthy);
                for number in 0..COUNT {
                    assert_eq!(packets.next_number(), Some(number), "the healthy one gets all, in order");
                    received.store(number + 1, Ordering::Relaxed);
                }
            });
            // In pieces that are smaller than the soft limit, so that the healthy one is never behind.
            let bytes = flood("t", COUNT, 1000, V5);
            let piece = bytes.len() / PIECES;
            let send = |(number, some): (usize, &[u8])| {
                let blocked = send_all(&publisher, some);
                let sent = (number as u64 + 1) * COUNT / PIECES as u64;
                eventually(|| received.load(Ordering::Relaxed) >= sent, || format!("{sent} received"));
                blocked
            };
            bytes.chunks(piece).enumerate().map(send).max().unwrap_or_default()
        });
        // The grace is a second, and a paused publisher is looked at every few milliseconds.
        assert!(blocked < Duration::from_millis(2500), "the publisher was blocked for {blocked:?}");
        assert!(dropped(&server, "busy_socket") > 0, "{}", counted(&server));
        assert_eq!(ended(&server, "outbound_limit"), 0);
        pair.finish();
        // The buffered part was bounded, and dropped messages were counted: some may be on their way between two cores.
        stuck.stream().set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let mut packets = Packets::of(&stuck);
        let (mut received, mut last) = (0, None);
        let all_but = || COUNT - dropped(&server, "busy_socket");
        eventually(
            || {
                while let Some(number) = packets.next_number() {
                    assert!(Some(number) > last, "{number} after {last:?}");
                    (received, last) = (received + 1, Some(number));
                }
                received == all_but()
            },
            || format!("a difference to {}\n{}", all_but(), counted(&server)),
        );
        assert!(packets.bytes < 8 * 1024 * 1024 + KERNEL_BYTES, "{} bytes waited", packets.bytes);
    }
}

#[test]
fn a_subscriber_that_is_slow_but_reads_loses_nothing() {
    const COUNT: u64 = 20_000;
    for (threads, identifier) in [(1, None), (2, None), (1, Some(7)), (2, Some(7))] {
        let server = tight(threads);
        let mut slow = narrow_client(&server, V5, "slow");
        let identifier = identifier.map(Property::SubscriptionIdentifier);
        slow.subscribe_all(&[("t", Default::default())], properties(identifier.as_slice()));
        let publisher = Client::connect(&server, V5, "publisher");
        std::thread::scope(|scope| {
            scope.spawn(|| send_all(&publisher, &flood("t", COUNT, 1000, V5)));
            let (mut packets, mut next_rest) = (Packets::of(&slow), 0);
            for number in 0..COUNT {
                assert_eq!(packets.next_number(), Some(number), "{}", counted(&server));
                // Some 50 MB a second, a fraction of what the server could send.
                if packets.bytes > next_rest {
                    next_rest = packets.bytes + 100 * 1024;
                    a_moment();
                }
            }
        });
        assert_eq!(dropped(&server, "busy_socket"), 0);
    }
}

#[test]
fn members_of_a_shared_subscription_that_are_slow_but_read_lose_nothing() {
    const COUNT: u64 = 40_000;
    for threads in [1, 2] {
        let server = tight(threads);
        let mut members: Vec<_> =
            (0..2).map(|number| narrow_client(&server, V5, &format!("member-{number}"))).collect();
        members.iter_mut().for_each(|member| member.subscribe("$share/g/t", QoS::AtMostOnce));
        let publisher = Client::connect(&server, V5, "publisher");
        let received = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| send_all(&publisher, &flood("t", COUNT, 1000, V5)));
            for member in &members {
                scope.spawn(|| {
                    let (mut packets, mut next_rest) = (Packets::of(member), 0);
                    while packets.next_number().is_some() {
                        received.fetch_add(1, Ordering::Relaxed);
                        if packets.bytes > next_rest {
                            next_rest = packets.bytes + 100 * 1024;
                            a_moment();
                        }
                    }
                });
            }
            let all = || received.load(Ordering::Relaxed) + dropped(&server, "busy_socket");
            eventually(|| all() >= COUNT, || format!("{} of {COUNT}\n{}", all(), counted(&server)));
            for member in &members {
                member.stream().shutdown(std::net::Shutdown::Both).unwrap();
            }
        });
        assert_eq!(dropped(&server, "busy_socket"), 0, "{}", counted(&server));
        assert_eq!(received.load(Ordering::Relaxed), COUNT);
    }
}

#[test]
fn bytes_that_wait_for_a_busy_socket_are_shown_until_it_has_taken_them() {
    const COUNT: u64 = 200;
    for threads in [1, 2] {
        let server = tight(threads);
        let waiting = || metric(&server, "millrace_outbound_bytes", "");
        let mut slow = narrow_client(&server, V5, "slow");
        slow.subscribe("t", QoS::AtLeastOnce);
        let mut publisher = Client::connect(&server, V5, "publisher");
        publish_all(&mut publisher, QoS::AtLeastOnce, "t", COUNT, 100_000);
        eventually(|| waiting() > 0, || counted(&server));
        let mut packets = Packets::of(&slow);
        for number in 0..COUNT {
            assert_eq!(packets.next_number(), Some(number));
        }
        eventually(|| waiting() == 0, || counted(&server));
    }
}

#[test]
fn qos_1_for_a_subscriber_that_does_not_read_waits_in_its_session() {
    const COUNT: u64 = 5000;
    for threads in [1, 2] {
        let server = tight(threads);
        let mut slow = narrow_client(&server, V5, "slow");
        slow.subscribe("t", QoS::AtLeastOnce);
        let mut publisher = Client::connect(&server, V5, "publisher");
        // All are acknowledged while the subscriber reads nothing.
        publish_all(&mut publisher, QoS::AtLeastOnce, "t", COUNT, 2000);
        let mut packets = Packets::of(&slow);
        for number in 0..COUNT {
            assert_eq!(packets.next_number(), Some(number));
        }
        slow.expect_nothing();
        assert_eq!(counted(&server).matches("messages_dropped").count(), 0, "{}", counted(&server));
    }
}

/// 200 publishers that flood one subscriber at once; each one's messages must arrive in order, and all of them.
fn fan_in(server: &Server, subscribe_with: Properties<'_>, message_with: Properties<'_>) {
    const PUBLISHERS: usize = 200;
    const COUNT: u64 = 200;
    let mut subscriber = Client::connect(server, V5, "subscriber");
    subscriber.subscribe_all(&[("fan/+", Default::default())], subscribe_with);
    let publishers: Vec<_> =
        (0..PUBLISHERS).map(|number| Client::connect(server, V5, &format!("publisher-{number}"))).collect();
    let floods: Vec<_> = (0..PUBLISHERS)
        .map(|publisher| {
            let mut bytes = Vec::new();
            let topic = format!("fan/{publisher}");
            for number in 0..COUNT {
                let payload = numbered(number, 1000);
                let message = crate::common::publish(&topic, &payload);
                let message = Packet::Publish(Publish { properties: message_with, ..message });
                encode::packet(&message, V5, &mut bytes);
            }
            bytes
        })
        .collect();
    std::thread::scope(|scope| {
        for half in 0..2 {
            let (publishers, floods) = (&publishers, &floods);
            scope.spawn(move || {
                // As much as fits, so that all of them have much to be read at once.
                let mine = || (half..PUBLISHERS).step_by(2);
                let mut sent = [0; PUBLISHERS];
                mine().for_each(|number| publishers[number].stream().set_nonblocking(true).unwrap());
                while mine().any(|number| sent[number] < floods[number].len()) {
                    for number in mine() {
                        let mut stream = publishers[number].stream();
                        sent[number] += stream.write(&floods[number][sent[number]..]).unwrap_or(0);
                    }
                }
            });
        }
        let mut next = [0; PUBLISHERS];
        let mut packets = Packets::of(&subscriber);
        for received in 0..PUBLISHERS as u64 * COUNT {
            let Some(Packet::Publish(message)) = packets.next() else {
                panic!("nothing after {received}\n{}", counted(server))
            };
            let publisher: usize = message.topic["fan/".len()..].parse().unwrap();
            assert_eq!(crate::tools::number_of(message.payload), next[publisher], "{}", counted(server));
            next[publisher] += 1;
        }
    });
    assert_eq!(dropped(server, "busy_socket"), 0);
    assert_eq!(ended(server, "outbound_limit"), 0);
}

#[test]
fn two_hundred_publishers_may_flood_one_subscriber_that_reads() {
    for threads in [1, 2] {
        let server = Server::with(|config| config.threads = threads);
        fan_in(&server, Properties::EMPTY, Properties::EMPTY);
    }
}

#[test]
fn two_hundred_publishers_may_flood_one_subscriber_with_properties() {
    for threads in [1, 2] {
        // A message for which nothing can be shared with other receivers takes another way.
        let server = Server::with(|config| config.threads = threads);
        let identifier = properties(&[Property::SubscriptionIdentifier(5)]);
        fan_in(&server, identifier, properties(&[Property::UserProperty("a", "b")]));
    }
}

#[test]
fn a_flood_that_one_turn_reads_does_not_end_a_subscriber_that_reads() {
    // 200 times 200 kB at once are more than this hard limit.
    let server = Server::with(|config| {
        config.threads = 1;
        config.limits.outbound_hard_bytes = 16 * 1024 * 1024;
    });
    let identifier = properties(&[Property::SubscriptionIdentifier(5)]);
    fan_in(&server, identifier, properties(&[Property::UserProperty("a", "b")]));
}

/// Sends this again and again until the server has closed the connection. The most that the server held of it, bytes: what it
/// read and did not write. Each question must be as long as its answer.
fn ask_until_closed(server: &Server, mut stream: &TcpStream, questions: &[u8]) -> u64 {
    let count = |name| metric(server, name, "");
    let held = || count("millrace_received_bytes_total").saturating_sub(count("millrace_sent_bytes_total"));
    stream.set_nonblocking(true).unwrap();
    let (start, mut most, mut at) = (now(), 0, 0);
    loop {
        match stream.write(&questions[at..]) {
            Ok(sent) => at = (at + sent) % questions.len(),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                most = most.max(held());
                a_moment();
            }
            Err(_) => return most,
        }
        assert!(start.elapsed() < Duration::from_secs(60), "it is not closed; {most} bytes are held");
    }
}

/// Bytes that a server may hold of one turn, beside the answers that it counts: what it has read of a client and not carried
/// out, and the answers of that.
const TURN_BYTES: u64 = 1024 * 1024;

#[test]
fn a_client_that_asks_and_never_reads_the_answers_is_not_read_and_then_ended() {
    for threads in [1, 2] {
        let server = Server::with(|config| {
            config.threads = threads;
            config.limits.answers_timeout_s = 1;
        });
        for (version, question) in [
            (V5, encoded(&Packet::PingReq, V5)),
            (V311, encoded(&Packet::PingReq, V311)),
            (V5, encoded(&Packet::Publish(publish_qos(QoS::AtLeastOnce, 1, "nobody", b"")), V5)),
        ] {
            let before = ended(&server, "outbound_limit");
            let client = narrow_client(&server, version, "rude");
            let held = ask_until_closed(&server, client.stream(), &question.repeat(64 * 1024));
            if question.len() == 2 {
                let most = u64::from(millrace_edge::EdgeLimits::default().answers_bytes_max) + TURN_BYTES;
                assert!(held <= most, "{held} bytes of answers are held");
            }
            expect_count(ended, &server, "outbound_limit", before + 1);
        }
    }
}

#[test]
fn a_client_that_reads_its_answers_late_gets_all_of_them() {
    const COUNT: usize = 4_000_000;
    let server = Server::with(|config| config.limits.answers_bytes_max = 16 * 1024);
    let client = narrow_client(&server, V5, "late");
    let mut stream = client.stream();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = client.stream();
            stream.write_all(&encoded(&Packet::PingReq, V5).repeat(COUNT)).unwrap();
        });
        // Nothing is read until the server has stopped to read.
        let read = || metric(&server, "millrace_received_bytes_total", "");
        let (mut last, mut same) = (read(), 0);
        while same < 50 {
            a_moment();
            same = if read() == last { same + 1 } else { 0 };
            last = read();
        }
        let mut answers = vec![0; 2 * COUNT];
        stream.read_exact(&mut answers).unwrap();
        assert!(answers.chunks(2).all(|answer| answer == [0xD0, 0]));
    });
    assert_eq!(ended(&server, "outbound_limit"), 0);
}

#[test]
fn a_stranger_that_pings_and_never_reads_the_pongs_is_ended_after_a_few_of_them() {
    let server = Server::start();
    let pair = Pair::start(&server);
    let stranger = WebSocket::open(&server);
    let pings = frame_of(FIN | PING, &[b'?'; 125]).repeat(1000);
    let held = ask_until_closed(&server, &stranger.stream, &pings);
    assert!(held <= TURN_BYTES, "{held} bytes of pongs are held");
    expect_count(refused, &server, "outbound_limit", 1);
    pair.finish();
}

#[test]
fn a_client_that_subscribes_again_and_again_without_reading_has_a_limit() {
    const RETAINED: u64 = 200;
    let server = Server::with(|config| {
        config.limits.retained_messages_max = 500;
        config.limits.queue_messages_max = 500;
        config.limits.outbound_soft_bytes = 64 * 1024;
        config.limits.sys_interval_s = 0;
    });
    let mut keeper = Client::connect(&server, V5, "keeper");
    for number in 0..RETAINED {
        let topic = format!("kept/{number}");
        let payload = numbered(number, 100_000);
        keeper.publish(Publish { retain: true, ..publish_qos(QoS::AtLeastOnce, 1, &topic, &payload) });
    }
    let mut rude = narrow_client(&server, V5, "rude");
    let mut subscribe = Vec::new();
    encode::subscribe(id(1), Properties::EMPTY, [("kept/#", Default::default())], V5, &mut subscribe);
    for _ in 0..100 {
        rude.send_bytes(&subscribe);
    }
    // The retained messages of a few SUBSCRIBE packets wait, as look-ups; those of the others are dropped.
    let dropped = || dropped(&server, "queue_full");
    eventually(|| dropped() >= 80, || format!("{} were dropped\n{}", dropped(), counted(&server)));
    keeper.ping();
}

#[test]
fn more_retained_messages_than_may_wait_for_a_socket_all_arrive() {
    const COUNT: u64 = 100;
    let server = Server::with(|config| {
        config.limits.outbound_soft_bytes = 64 * 1024;
        config.limits.outbound_hard_bytes = 2 * 1024 * 1024;
        config.limits.sys_interval_s = 0;
    });
    let mut keeper = Client::connect(&server, V5, "keeper");
    for number in 0..COUNT {
        let topic = format!("kept/{number}");
        let payload = numbered(number, 300_000);
        keeper.publish(Publish { retain: true, ..publish_qos(QoS::AtLeastOnce, 1, &topic, &payload) });
    }
    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce] {
        let mut reader = narrow_client(&server, V5, "reader");
        reader.subscribe("kept/#", qos);
        let mut packets = Packets::of(&reader);
        let numbers: HashSet<_> = (0..COUNT).map(|_| packets.next_number()).collect();
        assert_eq!(numbers, (0..COUNT).map(Some).collect(), "{}", counted(&server));
    }
}

#[test]
fn a_session_may_hold_more_than_may_wait_for_a_socket() {
    const COUNT: u64 = 100;
    let server = Server::with(|config| {
        config.limits.outbound_soft_bytes = 64 * 1024;
        config.limits.outbound_hard_bytes = 2 * 1024 * 1024;
    });
    let lasting = || {
        let expiry = properties(&[Property::SessionExpiryInterval(60)]);
        Connect { clean_start: false, properties: expiry, ..connect(V5, "lasting") }
    };
    let mut away = Client::open(&server, lasting());
    away.subscribe("t", QoS::AtLeastOnce);
    away.cut();
    let mut publisher = Client::connect(&server, V5, "publisher");
    publish_all(&mut publisher, QoS::AtLeastOnce, "t", COUNT, 300_000);
    // Twice: sent for the first time, and sent again because the first half alone was acknowledged.
    for from in [0, COUNT / 2] {
        let mut back = crate::tools::narrow(&server);
        back.send(&Packet::Connect(lasting()));
        back.recv_connack();
        let mut packets = Packets::of(&back);
        for number in from..if from == 0 { COUNT / 2 } else { COUNT } {
            assert_eq!(packets.next_number(), Some(number), "{}", counted(&server));
        }
        half_close(back.stream());
    }
    assert_eq!(ended(&server, "outbound_limit"), 0);
}

#[test]
fn keep_alive_goes_on_for_a_publisher_that_is_held_up() {
    const COUNT: u64 = 6000;
    let server = tight(1);
    let mut slow = narrow_client(&server, V5, "slow");
    slow.subscribe("t", QoS::AtMostOnce);
    let publisher = Client::open(&server, Connect { keep_alive_s: 1, ..connect(V5, "publisher") });
    std::thread::scope(|scope| {
        scope.spawn(|| send_all(&publisher, &flood("t", COUNT, 1000, V5)));
        let (mut packets, mut received, mut next_rest) = (Packets::of(&slow), 0, 0);
        while received < COUNT {
            assert_eq!(packets.next_number(), Some(received), "{}", counted(&server));
            received += 1;
            // Less than 2 MB a second: three seconds, in which the server mostly waits for it.
            if packets.bytes > next_rest {
                next_rest = packets.bytes + 4096;
                a_moment();
            }
        }
    });
    assert_eq!(ended(&server, "keep_alive"), 0);
}

#[test]
fn receivers_that_never_read_share_the_memory_of_outbound_buffers() {
    const RECEIVERS: u64 = 8;
    const MEMORY: u64 = 1024 * 1024;
    const MESSAGE: usize = 10_000;
    let server = Server::with(|config| {
        config.threads = 1;
        config.limits.outbound_memory_max = MEMORY;
    });
    let receivers: Vec<Client> = (0..RECEIVERS)
        .map(|number| {
            let mut client = narrow_client(&server, V5, &format!("stuck-{number}"));
            client.subscribe(&format!("t/{number}"), QoS::AtMostOnce);
            client
        })
        .collect();
    let publisher = Client::connect(&server, V5, "publisher");
    for number in 0..RECEIVERS {
        send_all(&publisher, &flood(&format!("t/{number}"), 2_000, MESSAGE, V5));
    }
    let waiting = || metric(&server, "millrace_outbound_bytes", "");
    eventually(|| waiting() > 0, || counted(&server));
    assert!(dropped(&server, "busy_socket") > 0, "{}", counted(&server));
    // The first ones had all of it for themselves.
    assert!(waiting() <= 4 * MEMORY, "{} bytes wait", waiting());
    drop(receivers);
}
