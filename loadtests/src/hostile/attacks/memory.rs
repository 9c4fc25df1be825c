//! Attacks that make the server keep memory in places that no ordinary client fills.

use super::Attack;
use super::sessions::publish_acknowledged;
use crate::clock;
use crate::failure::Outcome;
use crate::hostile::client::Client;
use crate::hostile::packets::{self, Connect, Publish};
use crate::hostile::ring::Ring;
use crate::hostile::server::{ATTACKED, Setup};
use crate::hostile::traffic::{Sink, finish, retain, unretain, wait_until_quiet};
use crate::hostile::verdict::{AttackLimits, STORE_LIMITS, USUAL_LIMITS};

const LARGE_BYTES: usize = 900_000;

/// The limit of the server's queues, and memtables and cache of the store.
const QUEUES_AND_STORE: AttackLimits = AttackLimits { peak_mib: 64 + 192, ..STORE_LIMITS };

fn with_64_mib_for_queues() -> Setup {
    Setup { arguments: &["--queue-memory-per-broker-max=67108864"], ..Setup::default() }
}

pub(super) const ATTACKS: &[Attack] = &[
    Attack::by_tenant(
        "stored-no-ack",
        "a persistent session that acknowledges none of 500 messages of 900 kB, at a server with 64 MiB for queues",
        stored_no_ack,
    )
    .with(with_64_mib_for_queues)
    .limits(QUEUES_AND_STORE),
    // The retained messages themselves take 43 MB.
    Attack::by_tenant(
        "retained-no-ack",
        "twelve clients that acknowledge no retained message, and 48 of 900 kB that are replaced for each client",
        retained_no_ack,
    )
    .with(with_64_mib_for_queues)
    .limits(AttackLimits { peak_mib: QUEUES_AND_STORE.peak_mib + 64, ..STORE_LIMITS }),
    Attack::by_stranger(
        "long-user-names",
        "2,000 clients with user names of 60 kB each",
        long_user_names,
    )
    .limits(AttackLimits { peak_mib: 48, ..USUAL_LIMITS })
    .in_short_run(),
    Attack::by_tenant(
        "dead-topics",
        "15,000 messages to as many topics of 4,000 bytes, and nobody uses them again",
        dead_topics,
    )
    .limits(AttackLimits { peak_mib: 128, ..USUAL_LIMITS }),
];

fn stored_no_ack(ring: &Ring<'_>) -> Outcome<()> {
    let mut client = ring.client_with(&ring.connect("hoarder").persistent(60))?;
    client.subscribe(&["hoard"], 1);
    let sink = Sink::start(&client.stream, None);
    let mut publisher = ring.client("publisher")?;
    let published = publish_acknowledged(&mut publisher, "hoard", 500, LARGE_BYTES);
    wait_until_quiet(&sink, 500, 20.0);
    ring.note(format!("{published} published, {} MB received", sink.bytes() / 1_000_000));
    Ok(())
}

fn retained_no_ack(ring: &Ring<'_>) -> Outcome<()> {
    let topics = || (0..48).map(|number| format!("hoard/{number}"));
    let mut hoarders = Vec::new();
    for round in 0..12u8 {
        retain(ring, topics(), &[round; LARGE_BYTES])?;
        let mut client = ring.client(&format!("hoarder-{round}"))?;
        let sink = Sink::start(&client.stream, None);
        client.send(&packets::subscribe(1, &["hoard/#"], 1, 0));
        wait_until_quiet(&sink, 300, 10.0);
        hoarders.push((client, sink));
    }
    let bytes: u64 = hoarders.iter().map(|(_, sink)| sink.bytes()).sum();
    ring.note(format!("{} MB received", bytes / 1_000_000));
    drop(hoarders);
    unretain(ring, topics())
}

fn long_user_names(ring: &Ring<'_>) -> Outcome<()> {
    let user = Some(format!("{ATTACKED}/{}", "u".repeat(60_000)));
    let mut taken = Vec::new();
    for number in 0..2_000 {
        let connect = Connect { user: user.clone(), ..ring.connect(&format!("long-{number}")) };
        taken.extend(Client::over(ring.stranger(number)?, &connect));
    }
    clock::pause_ms(1_000);
    ring.at_most("long user names that the server took", taken.len() as f64, 0.0, "of 2,000");
    Ok(())
}

fn dead_topics(ring: &Ring<'_>) -> Outcome<()> {
    let mut client = ring.client("publisher")?;
    let filler = "t".repeat(3_980);
    for number in 0..15_000 {
        let topic = format!("{filler}/{number}");
        client.send(&Publish { topic: &topic, payload: b"x", ..Publish::default() }.bytes());
    }
    ring.at_least("messages that were read", f64::from(u8::from(finish(&mut client, 20.0))), 1.0, "of 1");
    Ok(())
}
