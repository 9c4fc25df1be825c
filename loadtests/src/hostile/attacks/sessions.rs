//! Attacks with many sessions, with wills, and with acknowledgements that a client never sends. An
//! attack notes what it did; `verdict` judges it by the waits of friendly clients and by
//! [`AttackLimits`] ([`STORE_LIMITS`] lets the store keep its caches).

use std::sync::atomic::{AtomicUsize, Ordering};

use super::Attack;
use crate::clock;
use crate::failure::Outcome;
use crate::hostile::client::{ANSWER_S, Client};
use crate::hostile::packets::{self, Connect, PUBACK, PUBLISH, PUBREC, Publish, Will};
use crate::hostile::ring::Ring;
use crate::hostile::server::FRIENDLY;
use crate::hostile::traffic::{Sink, wait_until_quiet};
use crate::hostile::verdict::{AttackLimits, STORE_LIMITS, USUAL_LIMITS};

/// Bytes that [`publish_acknowledged`] writes at a time.
const PIECE_BYTES: usize = 64 * 1024;

pub(super) const ATTACKS: &[Attack] = &[
    // The bound on log lines fails a server that tries the refused write of the will again and
    // again.
    Attack::by_tenant("will-topic", "a retained will whose topic has 5,000 bytes", will_topic)
        .limits(AttackLimits { log_lines_s: 1, ..USUAL_LIMITS })
        .in_short_run()
        .not_in_soak(),
    Attack::by_tenant(
        "will-storm",
        "500 clients with retained wills and 100 subscribers to them, all cut at once",
        will_storm,
    )
    .limits(STORE_LIMITS),
    Attack::by_tenant(
        "takeover-loop",
        "eight threads that take over one persistent session with a will",
        takeover_loop,
    )
    // Each takeover writes twelve rows, which stay in the memtable until it is full.
    .limits(STORE_LIMITS)
    .in_short_run(),
    Attack::by_tenant(
        "share-no-ack",
        "a share group of 300 members that never acknowledge, then all leave",
        share_no_ack,
    ),
    Attack::by_tenant(
        "sessions-en-masse",
        "3,000 sessions with the longest expiry and 20 filters each",
        sessions_en_masse,
    )
    .limits(STORE_LIMITS)
    .not_in_soak(),
    // Longer than the minute between two removals of what ended sessions leave in the store.
    Attack::by_tenant(
        "sessions-dropped",
        "four threads that make sessions with three streams each and let them expire after a second, for 90 s",
        sessions_dropped,
    )
    .limits(STORE_LIMITS)
    .not_in_soak(),
    Attack::by_tenant(
        "qos2-unreleased",
        "1,000 QoS 2 ids of each of 50 sessions that are never released",
        qos2_unreleased,
    )
    .limits(STORE_LIMITS),
    Attack::by_tenant("pubrel-flood", "200,000 PUBREL of ids that are not known", pubrel_flood),
    Attack::by_tenant(
        "receive-maximum-1",
        "300 QoS 2 subscribers with receive maximum 1 that never answer, then 3,000 publishes",
        receive_maximum_1,
    ),
    Attack::by_tenant(
        "resume-storm",
        "200 sessions with 2,000 messages each come back at once and leave, three times",
        resume_storm,
    )
    .limits(STORE_LIMITS),
    Attack::by_tenant(
        "leave-in-flight",
        "a session with 1,000 deep filters and 1,000 unacknowledged messages that unsubscribes and leaves, four times",
        leave_in_flight,
    )
    .limits(STORE_LIMITS)
    .in_short_run(),
];

fn will_topic(ring: &Ring<'_>) -> Outcome<()> {
    let topic = "w".repeat(5_000);
    let mut watcher =
        Client::connect(Ring::address(9_001), ring.server.mqtt, &Connect::new(FRIENDLY, "watcher"))?;
    watcher.subscribe(&["wills/#"], 1);
    let will = Will { topic: topic.clone(), payload: b"x".to_vec(), qos: 1, retain: true, delay_s: 0 };
    let refused = ring.client_with(&ring.connect("mortal").persistent(3_600).will(will)).is_err();
    ring.note(if refused { "the CONNECT was refused" } else { "the CONNECT was accepted" });
    let mut publisher = ring.client("publisher")?;
    let publish =
        Publish { topic: &topic, payload: b"x", qos: 1, packet_id: 1, retain: true, ..Publish::default() };
    publisher.send(&publish.bytes());
    let code = publisher.wait_for(PUBACK, 2.0).map(|packet| packet.body.get(2).copied().unwrap_or(0));
    ring.note(format!(
        "a PUBLISH of such a topic: {}",
        code.map_or("closed".into(), |code| format!("{code:#04x}"))
    ));
    let will =
        Will { topic: "wills/friend".into(), payload: b"x".to_vec(), qos: 1, delay_s: 1, ..Will::default() };
    let friend = Connect::new(FRIENDLY, "friend").persistent(3_600).will(will);
    drop(Client::connect(Ring::address(9_002), ring.server.mqtt, &friend)?);
    let begun_ns = clock::now_ns();
    let fired = watcher.wait_for(PUBLISH, 10.0).is_some();
    ring.at_least("a will of another broker fired", f64::from(u8::from(fired)), 1.0, "");
    if fired {
        ring.note(format!(
            "the will of another broker came after {:.1} s",
            clock::ns_seconds(clock::now_ns() - begun_ns)
        ));
    }
    clock::pause_ms(3_000);
    let refusals = ring.server.log_lines_with("refuses");
    ring.at_most("writes that the store refused", refusals as f64, 0.0, "lines");
    Ok(())
}

fn will_storm(ring: &Ring<'_>) -> Outcome<()> {
    let mut readers = ring.clients(100, |number| ring.connect(&format!("reader-{number}")));
    let sinks: Vec<Sink> = readers
        .iter_mut()
        .map(|client| {
            client.subscribe(&["wills/#"], 1);
            Sink::start(&client.stream, None)
        })
        .collect();
    let mortals = ring.clients(500, |number| {
        let will = Will {
            topic: format!("wills/{number}"),
            payload: vec![b'x'; 1_000],
            qos: 1,
            retain: true,
            delay_s: 0,
        };
        ring.connect(&format!("mortal-{number}")).persistent(60).will(will)
    });
    drop(mortals);
    wait_until_quiet(&sinks[0], 500, 15.0);
    let bytes: u64 = sinks.iter().map(Sink::bytes).sum();
    ring.note(format!("{bytes} bytes of wills received"));
    Ok(())
}

fn takeover_loop(ring: &Ring<'_>) -> Outcome<()> {
    let until_ns = clock::now_ns() + clock::seconds_ns(if ring.short { 1.5 } else { 4.0 });
    let will = Will { topic: "taken".into(), payload: b"x".to_vec(), qos: 1, ..Will::default() };
    let connect = ring.connect("contested").persistent(120).will(will).bytes();
    let times = AtomicUsize::new(0);
    ring.crowd(8, |number| {
        while clock::now_ns() < until_ns {
            let Ok(stream) = ring.stranger(number) else { return };
            let mut client = Client::new(stream);
            client.send(&connect);
            if client.wait_for(packets::CONNACK, 2.0).is_some() {
                times.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    ring.note(format!("{} takeovers", times.into_inner()));
    Ok(())
}

fn share_no_ack(ring: &Ring<'_>) -> Outcome<()> {
    let mut members = ring.clients(300, |number| ring.connect(&format!("member-{number}")));
    for member in &mut members {
        member.subscribe(&["$share/lazy/work"], 1);
    }
    let mut publisher = ring.client("publisher")?;
    let published = publish_acknowledged(&mut publisher, "work", 20_000, 100);
    ring.note(format!("{} members, {published} published", members.len()));
    // Members that leave hand their messages to the remaining members.
    drop(members);
    clock::pause_ms(2_000);
    Ok(())
}

/// Publishes with QoS 1, a few hundred at once; returns the number of acknowledged messages.
pub(super) fn publish_acknowledged(
    client: &mut Client,
    topic: &str,
    count: usize,
    payload_bytes: usize,
) -> usize {
    let payload = vec![b'x'; payload_bytes];
    let mut acknowledged = 0;
    // Written in pieces: to build a large batch first would take processor time from the server.
    let mut piece = Vec::new();
    for _ in 0..count.div_ceil(500) {
        for _ in 0..500 {
            let packet_id = client.next_id();
            let publish = Publish { topic, payload: &payload, qos: 1, packet_id, ..Publish::default() };
            piece.extend_from_slice(&publish.bytes());
            if piece.len() >= PIECE_BYTES {
                client.send(&piece);
                piece.clear();
            }
        }
        client.send(&piece);
        piece.clear();
        acknowledged += (0..500).map_while(|_| client.wait_for(PUBACK, 10.0)).count();
    }
    acknowledged
}

fn sessions_en_masse(ring: &Ring<'_>) -> Outcome<()> {
    let before_kb = ring.server.memory().rss_kb;
    let until_ns = clock::now_ns() + clock::seconds_ns(20.0);
    let made = AtomicUsize::new(0);
    ring.crowd(4, |thread| {
        for number in (thread..3_000).step_by(4).take_while(|_| clock::now_ns() < until_ns) {
            let connect = ring.connect(&format!("session-{number}")).persistent(u32::MAX - 1);
            let Ok(mut client) = Client::connect(Ring::address(number), ring.server.mqtt, &connect) else {
                continue;
            };
            let filters: Vec<String> = (0..20).map(|filter| format!("s/{number}/{filter}/+")).collect();
            made.fetch_add(usize::from(client.subscribe(&filters, 1) == 20), Ordering::Relaxed);
            client.send(&packets::DISCONNECT_NORMALLY);
        }
    });
    let made = made.into_inner();
    clock::pause_ms(500);
    let held_kb = ring.server.memory().rss_kb.saturating_sub(before_kb);
    ring.note(format!(
        "{made} sessions, {} bytes each while all are offline",
        held_kb * 1024 / made.max(1) as u64
    ));
    Ok(())
}

/// Another broker's client subscribes all the while.
fn sessions_dropped(ring: &Ring<'_>) -> Outcome<()> {
    let until_ns = clock::now_ns() + clock::seconds_ns(if ring.short { 5.0 } else { 90.0 });
    let friend = Connect::new(FRIENDLY, "subscriber").persistent(3_600);
    let mut friend = Client::connect(Ring::address(9_004), ring.server.mqtt, &friend)?;
    let dropped = AtomicUsize::new(0);
    let (waits_ms, unanswered) = std::thread::scope(|scope| {
        let friend = scope.spawn(|| subscribe_again(&mut friend, until_ns));
        ring.crowd(4, |thread| {
            for number in (thread..).step_by(4).take_while(|_| clock::now_ns() < until_ns) {
                let connect = ring.connect(&format!("drops-{number}")).persistent(1);
                let Ok(mut client) = Client::connect(Ring::address(number), ring.server.mqtt, &connect)
                else {
                    continue;
                };
                let filters: Vec<String> = (0..3).map(|filter| format!("d/{number}/{filter}")).collect();
                dropped.fetch_add(usize::from(client.subscribe(&filters, 1) == 3), Ordering::Relaxed);
                client.send(&packets::DISCONNECT_NORMALLY);
            }
        });
        friend.join().unwrap_or_default()
    });
    let worst_ms = waits_ms.iter().copied().fold(0.0, f64::max);
    ring.note(format!("{} sessions dropped, {} SUBACKs", dropped.into_inner(), waits_ms.len()));
    ring.at_most("SUBACK of another broker waits", worst_ms, 1_000.0, "ms");
    ring.at_most("SUBSCRIBEs of another broker without an answer", unanswered as f64, 0.0, "packets");
    Ok(())
}

/// Subscribes to a stream of its own and ends it again. Returns the waits for SUBACK, in
/// milliseconds, and the number of SUBSCRIBEs that were not granted.
fn subscribe_again(client: &mut Client, until_ns: u64) -> (Vec<f64>, usize) {
    let (mut waits_ms, mut unanswered) = (Vec::new(), 0);
    let mut number = 0;
    while clock::now_ns() < until_ns {
        number += 1;
        let filter = [format!("own/{}", number % 100)];
        let begun_ns = clock::now_ns();
        match client.subscribe(&filter, 1) {
            1 => waits_ms.push((clock::now_ns() - begun_ns) as f64 / 1e6),
            _ => unanswered += 1,
        }
        let id = client.next_id();
        client.send(&packets::unsubscribe(id, &filter));
        client.wait_for(packets::UNSUBACK, ANSWER_S);
        clock::pause_ms(20);
    }
    (waits_ms, unanswered)
}

fn qos2_unreleased(ring: &Ring<'_>) -> Outcome<()> {
    let mut received = 0;
    for number in 0..50 {
        let mut client = ring.client_with(&ring.connect(&format!("half-{number}")).persistent(120))?;
        let publish = |packet_id| {
            Publish { topic: "half", payload: b"x", qos: 2, packet_id, ..Publish::default() }.bytes()
        };
        client.send(&(1..=1_000).flat_map(publish).collect::<Vec<u8>>());
        received += (0..1_000).map_while(|_| client.wait_for(PUBREC, 10.0)).count();
    }
    ring.note(format!("{received} ids are taken and not released"));
    Ok(())
}

fn pubrel_flood(ring: &Ring<'_>) -> Outcome<()> {
    let mut client = ring.client("releaser")?;
    let sink = Sink::start(&client.stream, None);
    let flood: Vec<u8> = (0..200_000u32)
        .flat_map(|id| packets::acknowledgement(packets::PUBREL_FIRST, (id % 65_535 + 1) as u16))
        .collect();
    client.send(&flood);
    wait_until_quiet(&sink, 300, 10.0);
    ring.note(format!("{} bytes of answers", sink.bytes()));
    Ok(())
}

fn receive_maximum_1(ring: &Ring<'_>) -> Outcome<()> {
    let mut clients =
        ring.clients(300, |number| ring.connect(&format!("narrow-{number}")).receive_maximum(1));
    for client in &mut clients {
        client.subscribe(&["narrow"], 2);
    }
    let mut publisher = ring.client("publisher")?;
    let mut taken = 0;
    for _ in 0..30 {
        let batch: Vec<u8> = (0..100)
            .flat_map(|_| {
                let packet_id = publisher.next_id();
                Publish { topic: "narrow", payload: &[b'x'; 100], qos: 2, packet_id, ..Publish::default() }
                    .bytes()
            })
            .collect();
        publisher.send(&batch);
        for _ in 0..100 {
            let Some(packet) = publisher.wait_for(PUBREC, 10.0) else { break };
            let id = packet.body.first_chunk().map_or(0, |id| u16::from_be_bytes(*id));
            publisher.send(&packets::acknowledgement(packets::PUBREL_FIRST, id));
            taken += 1;
        }
    }
    ring.note(format!("{} subscribers, {taken} messages taken", clients.len()));
    Ok(())
}

/// The server must find out which of the messages in flight are in no stream of the session any more.
fn leave_in_flight(ring: &Ring<'_>) -> Outcome<()> {
    let prefix = "p/".repeat(100);
    let filters: Vec<String> = (1..1_000).map(|number| format!("{prefix}{number}")).collect();
    let (mut publisher, mut granted) = (ring.client("publisher")?, 0);
    for round in 0..4 {
        let mut leaver = ring.client_with(&ring.connect(&format!("leaver-{round}")).persistent(60))?;
        granted += leaver.subscribe(&["p/#"], 1);
        granted += filters.chunks(250).map(|some| leaver.subscribe(some, 1)).sum::<usize>();
        publish_acknowledged(&mut publisher, &format!("{prefix}y"), 1_000, 10);
        if round > 0 {
            let id = leaver.next_id();
            leaver.send(&packets::unsubscribe(id, &filters[..if round == 1 { 1 } else { filters.len() }]));
            leaver.wait_for(packets::UNSUBACK, 20.0);
        }
        if round == 3 {
            leaver.send(&[0xE0, 0]);
        }
        drop(leaver);
        clock::pause_ms(300);
    }
    ring.note(format!("{granted} filters granted"));
    ring.granted(granted, 4_000);
    Ok(())
}

fn resume_storm(ring: &Ring<'_>) -> Outcome<()> {
    let connect = |number: usize| ring.connect(&format!("storm-{number}")).persistent(120);
    for mut client in ring.clients(200, connect) {
        client.subscribe(&["backlog"], 1);
    }
    let mut publisher = ring.client("publisher")?;
    let published = publish_acknowledged(&mut publisher, "backlog", 2_000, 200);
    for _ in 0..3 {
        let back = ring.clients(200, connect);
        let sinks: Vec<Sink> = back.iter().map(|client| Sink::start(&client.stream, None)).collect();
        clock::pause_ms(700);
        let bytes: u64 = sinks.iter().map(Sink::bytes).sum();
        ring.note(format!("{} sessions are back, {bytes} bytes received", back.len()));
    }
    ring.note(format!("{published} messages in the backlog"));
    Ok(())
}
