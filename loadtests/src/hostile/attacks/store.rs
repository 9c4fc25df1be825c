//! Attacks by one tenant's writes beside the durable publishes of another. Clients of the ring belong to the attacked
//! broker.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Attack;
use super::sessions::publish_acknowledged;
use crate::clock;
use crate::failure::Outcome;
use crate::hostile::client::Client;
use crate::hostile::packets::{self, Connect, PUBACK, Publish};
use crate::hostile::ring::Ring;
use crate::hostile::server::FRIENDLY;
use crate::hostile::traffic::{Sink, combinations, flood, retain, unretain};
use crate::hostile::verdict::{AttackLimits, STORE_LIMITS};
use crate::machine::stand_back;

pub(super) const ATTACKS: &[Attack] = &[
    Attack::by_tenant(
        "subscription-churn",
        "two clients that subscribe and unsubscribe beside durable publishers of another broker",
        |ring| beside_durable(ring, &churn),
    )
    .limits(STORE_LIMITS)
    .in_short_run()
    .not_in_soak(),
    Attack::by_tenant(
        "store-flood",
        "four clients that store 50 kB messages beside durable publishers of another broker",
        |ring| beside_durable(ring, &large_messages),
    )
    .limits(STORE_LIMITS)
    .not_in_soak(),
    Attack::by_tenant(
        "message-flood",
        "four clients that store small messages beside durable publishers of another broker",
        |ring| beside_durable(ring, &message_flood),
    )
    .limits(STORE_LIMITS)
    .not_in_soak(),
    Attack::by_tenant(
        "retained-churn",
        "two clients that set retained messages beside durable publishers of another broker",
        |ring| beside_durable(ring, &retained_churn),
    )
    .limits(STORE_LIMITS)
    .not_in_soak(),
    Attack::by_tenant(
        "session-churn",
        "four clients that make sessions beside durable publishers of another broker",
        |ring| beside_durable(ring, &session_churn),
    )
    .limits(STORE_LIMITS)
    .not_in_soak(),
    Attack::by_tenant(
        "durable-overlap",
        "a persistent session with 900 overlapping filters, then 1,000 messages of 1 kB with QoS 1",
        |ring| durable_copies(ring, &combinations(10, ["a", "+"])[..900]),
    )
    .limits(STORE_LIMITS)
    .not_in_soak(),
    Attack::by_tenant(
        "durable-groups",
        "900 persistent share groups of one topic, then 1,000 messages of 1 kB with QoS 1",
        |ring| {
            let topic = ["a"; 10].join("/");
            durable_copies(
                ring,
                &(0..900).map(|group| format!("$share/g{group}/{topic}")).collect::<Vec<_>>(),
            )
        },
    )
    .limits(STORE_LIMITS)
    .not_in_soak(),
    Attack::by_tenant(
        "subscribe-pipeline",
        "two persistent sessions that send SUBSCRIBEs of 900 filters with a retained message, and wait for no SUBACK",
        subscribe_pipeline,
    )
    // The queue of the store, its memtables and its cache.
    .limits(AttackLimits { peak_mib: 32 + 192, ..STORE_LIMITS })
    .not_in_soak(),
];

fn subscribe_pipeline(ring: &Ring<'_>) -> Outcome<()> {
    let topic = || std::iter::once("p0".to_owned());
    retain(ring, topic(), b"x")?;
    let filters: Vec<String> = (0..900).map(|number| format!("p{number}")).collect();
    let packets: Vec<u8> = (1..=16).flat_map(|id| packets::subscribe(id, &filters, 1, 0)).collect();
    let seconds = if ring.short { 3.0 } else { 15.0 };
    let sent = AtomicU64::new(0);
    ring.crowd(2, |number| {
        let connect = ring.connect(&format!("pipeline-{number}")).persistent(60);
        let Ok(mut client) = ring.client_with(&connect) else { return };
        // The SUBACKs that come do not make the server wait.
        let sink = Sink::start(&client.stream, None);
        sent.fetch_add(16 * flood(&mut client.stream, &packets, seconds), Ordering::Relaxed);
        drop(sink);
    });
    ring.at_least("SUBSCRIBEs that the server has read", sent.load(Ordering::Relaxed) as f64, 1.0, "");
    unretain(ring, topic())
}

/// The server must store every message for each of these filters.
fn durable_copies(ring: &Ring<'_>, filters: &[String]) -> Outcome<()> {
    let mut reader = ring.client_with(&ring.connect("reader").persistent(600))?;
    let granted = reader.subscribe(filters, 1);
    drop(reader);
    let mut publisher = ring.client("publisher")?;
    let begun_ns = clock::now_ns();
    let stored = publish_acknowledged(&mut publisher, &["a"; 10].join("/"), 1_000, 1_000);
    let seconds = clock::ns_seconds(clock::now_ns() - begun_ns);
    ring.note(format!("{granted} filters granted, {stored} messages stored in {seconds:.1} s"));
    ring.granted(granted, filters.len());
    ring.at_least("messages stored", stored as f64, 500.0, "");
    Ok(())
}

type AttackStep<'h> = &'h (dyn Fn(&Ring<'_>, usize, u64) + Sync);

/// Phases with and without the hostile clients take turns.
fn beside_durable(ring: &Ring<'_>, hostile: AttackStep<'_>) -> Outcome<()> {
    let seconds = if ring.short { 0.7 } else { 1.5 };
    let reader = Connect::new(FRIENDLY, "reader").persistent(3_600);
    let mut reader = Client::connect(Ring::address(9_003), ring.server.mqtt, &reader)?;
    reader.subscribe(&["d/#"], 1);
    drop(reader);
    let (mut alone, mut beside) = (0, 0);
    for _ in 0..if ring.short { 2 } else { 4 } {
        alone += durable_publishes(ring, seconds, None);
        beside += durable_publishes(ring, seconds, Some(hostile));
    }
    ring.note(format!("{alone} publishes acknowledged alone, {beside} beside"));
    let least = if ring.short { 0.5 } else { 0.8 };
    let share = f64::from(beside) / f64::from(alone.max(1));
    ring.at_least("durable publishes of another broker", share, least, "of those alone");
    Ok(())
}

/// Returns the number of acknowledged publishes of eight clients.
fn durable_publishes(ring: &Ring<'_>, seconds: f64, hostile: Option<AttackStep<'_>>) -> u32 {
    let until_ns = clock::now_ns() + clock::seconds_ns(seconds);
    let publisher = |number: usize| {
        let connect = Connect::new(FRIENDLY, &format!("durable-{number}"));
        let from = Ring::address(9_010 + number);
        let Ok(mut client) = Client::connect(from, ring.server.mqtt, &connect) else { return 0 };
        let mut acknowledged = 0;
        while clock::now_ns() < until_ns {
            let packet_id = client.next_id();
            client.send(
                &Publish { topic: "d/t", payload: b"x", qos: 1, packet_id, ..Publish::default() }.bytes(),
            );
            acknowledged += u32::from(client.wait_for(PUBACK, 10.0).is_some());
        }
        acknowledged
    };
    std::thread::scope(|scope| {
        let publisher = &publisher;
        let publishers: Vec<_> = (0..8).map(|number| scope.spawn(move || publisher(number))).collect();
        if let Some(hostile) = hostile {
            (0..4).for_each(|number| {
                scope.spawn(move || {
                    // Lowers the thread's priority, so that the attack does not take the server's cores.
                    stand_back();
                    hostile(ring, number, until_ns);
                });
            });
        }
        publishers.into_iter().map(|thread| thread.join().unwrap_or(0)).sum()
    })
}

fn churn(ring: &Ring<'_>, number: usize, until_ns: u64) {
    let connect = ring.connect(&format!("churner-{number}")).persistent(60);
    let Some(mut client) = ring.client_with(&connect).ok().filter(|_| number < 2) else { return };
    let filters: Vec<String> = (0..900).map(|filter| format!("churn/{number}/{filter}/+")).collect();
    while clock::now_ns() < until_ns {
        client.subscribe(&filters, 1);
        let id = client.next_id();
        client.send(&packets::unsubscribe(id, &filters));
        client.wait_for(packets::UNSUBACK, 10.0);
    }
}

fn large_messages(ring: &Ring<'_>, number: usize, until_ns: u64) {
    store_flood(ring, number, until_ns, 50_000);
}

fn message_flood(ring: &Ring<'_>, number: usize, until_ns: u64) {
    store_flood(ring, number, until_ns, 100);
}

fn store_flood(ring: &Ring<'_>, number: usize, until_ns: u64, payload_bytes: usize) {
    let reader = ring.connect(&format!("hoarder-{number}")).persistent(60);
    let Ok(mut reader) = ring.client_with(&reader) else { return };
    let topic = format!("hoard/{number}");
    reader.subscribe(&[&topic], 1);
    drop(reader);
    let Ok(mut client) = ring.client(&format!("storer-{number}")) else { return };
    while clock::now_ns() < until_ns {
        publish_acknowledged(&mut client, &topic, 500, payload_bytes);
    }
}

fn retained_churn(ring: &Ring<'_>, number: usize, until_ns: u64) {
    let Some(mut client) = ring.client(&format!("setter-{number}")).ok().filter(|_| number < 2) else {
        return;
    };
    let mut count = 0u64;
    while clock::now_ns() < until_ns {
        let batch: Vec<u8> = (0..500)
            .flat_map(|_| {
                count += 1;
                let (topic, packet_id) = (format!("set/{number}/{}", count % 5_000), client.next_id());
                Publish {
                    topic: &topic,
                    payload: &[b'x'; 200],
                    qos: 1,
                    retain: true,
                    packet_id,
                    ..Publish::default()
                }
                .bytes()
            })
            .collect();
        client.send(&batch);
        let _ = (0..500).map_while(|_| client.wait_for(PUBACK, 10.0)).count();
    }
}

fn session_churn(ring: &Ring<'_>, number: usize, until_ns: u64) {
    let mut count = 0;
    while clock::now_ns() < until_ns {
        count += 1;
        let connect = ring.connect(&format!("made-{number}-{count}")).persistent(3_600);
        let Ok(mut client) = ring.client_with(&connect) else { return };
        client.subscribe(&["made/+", "made/#"], 1);
        client.send(&packets::DISCONNECT_NORMALLY);
    }
}
