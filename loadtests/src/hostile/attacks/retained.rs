//! Attacks that cause work and memory by retained messages. While an attack runs, the delays of friendly clients and the
//! memory of the server must stay within its `AttackLimits`; figures that an attack notes fail no run.

use super::Attack;
use crate::clock;
use crate::failure::Outcome;
use crate::hostile::client::{Client, dial_with_buffer};
use crate::hostile::packets::{self, PUBACK, PUBLISH, Publish};
use crate::hostile::ring::Ring;
use crate::hostile::server::Setup;
use crate::hostile::traffic::{Sink, combinations, retain, unretain, wait_until_quiet};
use crate::hostile::verdict::{AttackLimits, STORE_LIMITS, USUAL_LIMITS};

pub(super) const ATTACKS: &[Attack] = &[
    Attack::by_tenant(
        "retained-loop",
        "eight clients that subscribe to # over 1,000 retained messages of 1 kB again and again and do not read",
        retained_loop,
    )
    .limits(AttackLimits { peak_mib: 128, ..USUAL_LIMITS })
    .in_short_run(),
    Attack::by_tenant(
        "retained-wildcards",
        "one SUBSCRIBE with 2,000 different wildcard filters over 4,096 retained messages",
        retained_wildcards,
    ),
    Attack::by_tenant("retained-flood", "100,000 retained messages, then all are removed", retained_flood)
        .limits(STORE_LIMITS)
        .not_in_soak(),
    Attack::by_tenant(
        "retained-pinned",
        "a subscriber whose 2,000 filters match none of 100,000 retained messages, which are then removed",
        retained_pinned,
    )
    .limits(STORE_LIMITS)
    .not_in_soak(),
    Attack::by_tenant(
        "retained-deep",
        "2,000 retained messages with topics of 128 levels, then all are removed",
        retained_deep,
    ),
    // A single process has its retained messages in memory: 400 of 900 kB are 343 MiB. The other 192 MiB are for memtables
    // of the store.
    Attack::by_tenant("retained-bytes", "400 retained messages of 900 kB", retained_bytes)
        .limits(AttackLimits { peak_mib: 343 + 192, ..STORE_LIMITS })
        .not_in_soak(),
    Attack::by_tenant(
        "retained-growth",
        "400 retained messages of one byte that become 900 kB large, to a server with 256 MiB",
        retained_growth,
    )
    .with(|| Setup { arguments: &["--memory-max=268435456"], ..Setup::default() })
    .limits(AttackLimits { peak_mib: 64 + 192, ..STORE_LIMITS })
    .not_in_soak(),
];

/// A quarter of the server's memory, 64 MiB, is for retained messages, so the server refuses most messages that grow (quota
/// exceeded, 0x97). The rest of the peak are memtables of the store.
fn retained_growth(ring: &Ring<'_>) -> Outcome<()> {
    let topics = || (0..400).map(|number| format!("grow/{number}"));
    retain(ring, topics(), b"x")?;
    let mut client = ring.client("grower")?;
    let payload = vec![b'x'; 900_000];
    let mut refused = 0;
    for topic in topics() {
        let packet_id = client.next_id();
        let publish = Publish {
            topic: &topic,
            payload: &payload,
            qos: 1,
            retain: true,
            packet_id,
            ..Publish::default()
        };
        client.send(&publish.bytes());
        refused += usize::from(
            client.wait_for(PUBACK, 10.0).is_some_and(|answer| answer.body.get(2) == Some(&0x97)),
        );
    }
    ring.at_least("refused messages", refused as f64, 300.0, "of 400");
    unretain(ring, topics())
}

fn retained_loop(ring: &Ring<'_>) -> Outcome<()> {
    retain(ring, (0..1_000).map(|number| format!("r/{number}")), &[b'x'; 1_000])?;
    let mut clients = Vec::new();
    for number in 0..8 {
        let Ok(stream) = dial_with_buffer(Ring::address(number), ring.server.mqtt, Some(4_096)) else {
            continue;
        };
        clients.extend(Client::over(stream, &ring.connect(&format!("greedy-{number}"))));
    }
    for _ in 0..ring.full_or_short(400, 100) {
        for client in &mut clients {
            client.send(&packets::subscribe(1, &["#"], 0, 0));
        }
    }
    clock::pause_ms(1_000);
    let open = clients.iter_mut().map(|client| usize::from(!client.is_closed())).sum::<usize>();
    ring.note(format!("{} clients, {open} are still connected", clients.len()));
    drop(clients);
    unretain(ring, (0..1_000).map(|number| format!("r/{number}")))
}

fn retained_wildcards(ring: &Ring<'_>) -> Outcome<()> {
    retain(ring, combinations(12, ["a", "b"]).into_iter(), b"x")?;
    let mut client = ring.client("subscriber")?;
    let sink = Sink::start(&client.stream, None);
    let filters: Vec<String> = combinations(12, ["a", "+"]).into_iter().rev().take(2_000).collect();
    client.send(&packets::subscribe(1, &filters, 0, 0));
    wait_until_quiet(&sink, 1_000, 40.0);
    ring.note(format!("{} bytes received", sink.bytes()));
    Ok(())
}

fn retained_flood(ring: &Ring<'_>) -> Outcome<()> {
    let before_kb = ring.server.memory().rss_kb;
    let topics = || (0..100_000).map(|number| format!("flood/{}/{number}", number % 100));
    retain(ring, topics(), b"x")?;
    let held_kb = ring.server.memory().rss_kb.saturating_sub(before_kb);
    ring.note(format!("{} bytes each while they are retained", held_kb * 1024 / 100_000));
    unretain(ring, topics())
}

fn retained_pinned(ring: &Ring<'_>) -> Outcome<()> {
    let topics = || (0..ring.full_or_short(100_000, 50_000)).map(|number| format!("{number}/y"));
    retain(ring, topics(), b"x")?;
    let mut client = ring.client("pins")?;
    let filters: Vec<String> = (0..2_000).map(|number| format!("+/x{number}")).collect();
    client.send(&packets::subscribe(1, &filters, 0, 0));
    clock::pause_ms(500);
    unretain(ring, topics())?;
    drop(client);
    clock::pause_ms(1_000);
    Ok(())
}

fn retained_deep(ring: &Ring<'_>) -> Outcome<()> {
    let deep = |number: usize| format!("{number}/{}", ["a"; 127].join("/"));
    let before_kb = ring.server.memory().rss_kb;
    retain(ring, (0..2_000).map(deep), b"x")?;
    let held_kb = ring.server.memory().rss_kb.saturating_sub(before_kb);
    ring.note(format!("{} bytes each while they are retained", held_kb * 1024 / 2_000));
    let mut client = ring.client("subscriber")?;
    let sink = Sink::start(&client.stream, None);
    client.send(&packets::subscribe(1, &["#", "+/#", "+/+/#", "+/a/+/#", "+/a/a/a/a/#"], 0, 0));
    wait_until_quiet(&sink, 300, 20.0);
    ring.note(format!("{} bytes received", sink.bytes()));
    unretain(ring, (0..2_000).map(deep))
}

fn retained_bytes(ring: &Ring<'_>) -> Outcome<()> {
    let payload = vec![b'x'; 900_000];
    let topics = || (0..400).map(|number| format!("big/{number}"));
    let taken = retain(ring, topics(), &payload);
    let held_kb = ring.server.memory().rss_kb;
    ring.note(format!("taken: {}; {} MiB", taken.is_ok(), held_kb / 1024));
    let mut client = ring.client("subscriber")?;
    client.subscribe(&["big/#"], 0);
    let got = (0..400).map_while(|_| client.wait_for(PUBLISH, 2.0)).count();
    ring.note(format!("{got} of them are retained"));
    unretain(ring, topics())
}
