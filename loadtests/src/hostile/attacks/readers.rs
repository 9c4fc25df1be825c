//! Attacks by clients that read slowly or not at all, and so make the server hold data for them.

use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Attack;
use super::sessions::publish_acknowledged;
use crate::clock;
use crate::failure::Outcome;
use crate::hostile::client::{Client, dial_with_buffer};
use crate::hostile::packets::{PUBACK, Publish, USER_PROPERTIES_MAX, topic_alias, user_properties};
use crate::hostile::ring::Ring;
use crate::hostile::server::Setup;
use crate::hostile::traffic::{Sink, finish, flood, messages};
use crate::hostile::verdict::{AttackLimits, USUAL_LIMITS};

pub(super) const ATTACKS: &[Attack] = &[
    Attack::by_tenant(
        "slow-reader",
        "a subscriber that reads 1.5 MB/s beside a healthy one of the same topic",
        slow_reader,
    )
    .in_short_run(),
    Attack::by_tenant(
        "never-reads",
        "20 subscribers that never read, QoS 0 and 1, beside a flood of 3 kB messages",
        never_reads,
    )
    .limits(AttackLimits { peak_mib: 128, ..USUAL_LIMITS }),
    Attack::by_tenant(
        "asks-and-never-reads",
        "eight clients that flood PINGREQ and never read",
        asks_and_never_reads,
    )
    .limits(AttackLimits { peak_mib: 128, ..USUAL_LIMITS }),
    Attack::by_tenant("large-fanout", "20 messages of 900 kB to 100 subscribers that read", large_fanout),
    Attack::by_tenant(
        "memory-queues",
        "eight clean sessions that acknowledge nothing, and 40 MB of QoS 1 messages for each, to a server with 64 MiB for them",
        memory_queues,
    )
    .with(|| Setup { arguments: &["--queue-memory-per-broker-max=67108864"], ..Setup::default() })
    .limits(AttackLimits { peak_mib: 128, ..USUAL_LIMITS }),
    Attack::by_tenant(
        "wide-fanout",
        "1,000 subscribers, and 2,000 messages of 100 bytes in one write",
        wide_fanout,
    ),
    Attack::by_tenant(
        "publish-flood",
        "four clients that publish the smallest messages to nobody",
        publish_flood,
    )
    .in_short_run(),
    Attack::by_tenant(
        "user-properties",
        "50 messages with 10,000 user properties, 900 kB, to 20 subscribers",
        many_properties,
    ),
    Attack::by_tenant(
        "user-properties-flood",
        "40 clients that publish messages with 10,000 short user properties to nobody",
        user_properties_flood,
    ),
    Attack::by_tenant(
        "user-properties-over",
        "40 clients that connect again and again to publish 180,000 user properties, more than a message may have",
        user_properties_over,
    ),
    Attack::by_tenant("alias-memory", "50 clients with 64 topic aliases of 60 kB each", alias_memory)
        .limits(AttackLimits { peak_mib: 64, ..USUAL_LIMITS })
        .in_short_run(),
];

fn slow_reader(ring: &Ring<'_>) -> Outcome<()> {
    let seconds = if ring.short { 1.0 } else { 2.0 };
    let mut client = ring.client("healthy")?;
    client.subscribe(&["news"], 0);
    let healthy = Sink::start(&client.stream, None);
    let batch = messages("news", 64, 1_000);
    let measure = |name: &str| -> Outcome<f64> {
        let mut publisher = ring.client(name)?;
        // At first the flood only fills buffers.
        flood(&mut publisher.stream, &batch, 0.3);
        let before = healthy.bytes();
        flood(&mut publisher.stream, &batch, seconds);
        Ok((healthy.bytes() - before) as f64 / seconds)
    };
    let mut ratios = Vec::new();
    for round in 0..if ring.short { 1 } else { 3 } {
        let alone = measure(&format!("alone-{round}"))?;
        clock::pause_ms(300);
        let mut slow = ring.client("slow")?;
        slow.subscribe(&["news"], 0);
        let sink = Sink::start(&slow.stream, Some(1_500_000));
        let beside = measure(&format!("beside-{round}"))?;
        ring.note(format!("{:.1} MB/s alone, {:.1} MB/s beside", alone / 1e6, beside / 1e6));
        ratios.push(beside / alone.max(1.0));
        drop((sink, slow));
        clock::pause_ms(300);
    }
    ratios.sort_by(f64::total_cmp);
    let least = if ring.short { 0.5 } else { 0.9 };
    ring.at_least("a healthy reader beside a slow one", ratios[ratios.len() / 2], least, "of its rate alone");
    Ok(())
}

fn never_reads(ring: &Ring<'_>) -> Outcome<()> {
    let mut silent = Vec::new();
    for number in 0..20 {
        let Ok(stream) = dial_with_buffer(Ring::address(number), ring.server.mqtt, Some(4_096)) else {
            continue;
        };
        let Ok(mut client) = Client::over(stream, &ring.connect(&format!("silent-{number}"))) else {
            continue;
        };
        client.subscribe(&["pile"], (number % 2) as u8);
        silent.push(client);
    }
    let mut publisher = ring.client("publisher")?;
    let payload = vec![b'x'; 3_000];
    let until_ns = clock::now_ns() + clock::seconds_ns(5.0);
    let (mut sent, mut answered) = (0, 0);
    while clock::now_ns() < until_ns {
        for _ in 0..500 {
            let packet_id = publisher.next_id();
            sent += usize::from(
                publisher.send(
                    &Publish { topic: "pile", payload: &payload, qos: 1, packet_id, ..Publish::default() }
                        .bytes(),
                ),
            );
        }
        answered += (0..500).map_while(|_| publisher.wait_for(PUBACK, 5.0)).count();
    }
    ring.note(format!("{sent} published, {answered} acknowledged"));
    Ok(())
}

fn asks_and_never_reads(ring: &Ring<'_>) -> Outcome<()> {
    ring.crowd(8, |number| {
        let stream = dial_with_buffer(Ring::address(number), ring.server.mqtt, Some(4_096));
        let connect = ring.connect(&format!("asker-{number}"));
        let Some(mut client) = stream.ok().and_then(|stream| Client::over(stream, &connect).ok()) else {
            return;
        };
        flood(&mut client.stream, &[0xC0, 0].repeat(32 * 1024), 4.0);
    });
    Ok(())
}

fn large_fanout(ring: &Ring<'_>) -> Outcome<()> {
    let mut clients = ring.clients(100, |number| ring.connect(&format!("reader-{number}")));
    let sinks: Vec<Sink> = clients
        .iter_mut()
        .map(|client| {
            client.subscribe(&["large"], 0);
            Sink::start(&client.stream, None)
        })
        .collect();
    let mut publisher = ring.client("publisher")?;
    publisher.send(&messages("large", 20, 900_000));
    finish(&mut publisher, 30.0);
    clock::pause_ms(1_000);
    let bytes: u64 = sinks.iter().map(Sink::bytes).sum();
    ring.note(format!("{} MB received", bytes / 1_000_000));
    Ok(())
}

fn memory_queues(ring: &Ring<'_>) -> Outcome<()> {
    let mut clients = ring.clients(8, |number| ring.connect(&format!("hoarder-{number}")).receive_maximum(1));
    let mut published = 0;
    for (number, client) in clients.iter_mut().enumerate() {
        let topic = format!("queue/{number}");
        client.subscribe(&[&topic], 1);
        let mut publisher = ring.client(&format!("publisher-{number}"))?;
        published += publish_acknowledged(&mut publisher, &topic, 13_500, 3_000);
    }
    ring.note(format!("{published} published"));
    Ok(())
}

fn wide_fanout(ring: &Ring<'_>) -> Outcome<()> {
    let mut clients = ring.clients(1_000, |number| ring.connect(&format!("reader-{number}")));
    for client in &mut clients {
        client.subscribe(&["wide"], 0);
    }
    let mut publisher = ring.client("publisher")?;
    // So few messages that each subscriber's socket holds them, and no subscriber need read.
    publisher.send(&messages("wide", 2_000, 100));
    let is_read = finish(&mut publisher, 30.0);
    ring.note(format!("{} subscribers, all publishes read: {is_read}", clients.len()));
    Ok(())
}

fn publish_flood(ring: &Ring<'_>) -> Outcome<()> {
    let batch = messages("n", 10_000, 0);
    ring.crowd(4, |number| {
        let Ok(mut client) = ring.client(&format!("flood-{number}")) else { return };
        flood(&mut client.stream, &batch, if ring.short { 1.0 } else { 3.0 });
    });
    Ok(())
}

fn many_properties(ring: &Ring<'_>) -> Outcome<()> {
    let mut clients = ring.clients(20, |number| ring.connect(&format!("reader-{number}")));
    let sinks: Vec<Sink> = clients
        .iter_mut()
        .map(|client| {
            client.subscribe(&["properties"], 0);
            Sink::start(&client.stream, None)
        })
        .collect();
    let properties = user_properties(USER_PROPERTIES_MAX, 90);
    let publish = Publish { topic: "properties", properties: &properties, ..Publish::default() }.bytes();
    let mut publisher = ring.client("publisher")?;
    for _ in 0..50 {
        publisher.send(&publish);
    }
    finish(&mut publisher, 30.0);
    clock::pause_ms(500);
    let bytes: u64 = sinks.iter().map(Sink::bytes).sum();
    ring.note(format!("{} MB received", bytes / 1_000_000));
    Ok(())
}

fn user_properties_flood(ring: &Ring<'_>) -> Outcome<()> {
    let properties = user_properties(USER_PROPERTIES_MAX, 5);
    let publish = Publish { topic: "nobody", properties: &properties, ..Publish::default() }.bytes();
    let sent = AtomicU64::new(0);
    ring.crowd(40, |number| {
        let Ok(mut client) = ring.client(&format!("properties-{number}")) else { return };
        sent.fetch_add(flood(&mut client.stream, &publish, 5.0), Ordering::Relaxed);
    });
    ring.note(format!("{} messages sent", sent.into_inner()));
    Ok(())
}

fn user_properties_over(ring: &Ring<'_>) -> Outcome<()> {
    let properties = user_properties(180_000, 5);
    let publish = Publish { topic: "nobody", properties: &properties, ..Publish::default() }.bytes();
    let refused = AtomicU64::new(0);
    let end_ns = clock::now_ns() + clock::seconds_ns(5.0);
    ring.crowd(40, |number| {
        while clock::now_ns() < end_ns {
            let Ok(mut client) = ring.client(&format!("over-{number}")) else { return };
            client.send(&publish);
            let _ = client.stream.read_to_end(&mut Vec::new());
            refused.fetch_add(1, Ordering::Relaxed);
        }
    });
    ring.note(format!("{} messages refused", refused.into_inner()));
    Ok(())
}

fn alias_memory(ring: &Ring<'_>) -> Outcome<()> {
    let before_kb = ring.server.memory().rss_kb;
    let mut clients = ring.clients(50, |number| ring.connect(&format!("alias-{number}")));
    for (number, client) in clients.iter_mut().enumerate() {
        for alias in 1..=64 {
            let topic = format!("{number:04}-{alias:04}-{}", "t".repeat(60_000));
            let properties = topic_alias(alias);
            client.send(&Publish { topic: &topic, properties: &properties, ..Publish::default() }.bytes());
        }
        finish(client, 20.0);
    }
    let held_kb = ring.server.memory().rss_kb.saturating_sub(before_kb);
    ring.note(format!("{} KiB each of {} clients", held_kb / clients.len().max(1) as u64, clients.len()));
    Ok(())
}
