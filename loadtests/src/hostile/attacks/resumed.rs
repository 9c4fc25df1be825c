//! Attacks by stored sessions that come back with very much to read or to compare.

use super::Attack;
use super::sessions::publish_acknowledged;
use crate::clock;
use crate::failure::Outcome;
use crate::hostile::client::Client;
use crate::hostile::packets::{self, Connect, PUBACK, PUBLISH, Publish, received};
use crate::hostile::ring::Ring;
use crate::hostile::server::FRIENDLY;
use crate::hostile::verdict::STORE_LIMITS;

/// Filters of a persistent session: the most that the server allows.
const FILTERS: usize = 1_000;
/// Messages that are published before their PUBACKs are awaited.
const IN_FLIGHT: usize = 500;

pub(super) const ATTACKS: &[Attack] = &[
    Attack::by_tenant(
        "streams-backlog",
        "64 sessions with 1,000 common filters and 500 messages in each come back at once",
        streams_backlog,
    )
    .limits(STORE_LIMITS)
    .not_in_soak(),
    Attack::by_tenant(
        "deep-resume",
        "a session with 500 unacknowledged messages and 999 deep filters comes back ten times",
        deep_resume,
    )
    .limits(STORE_LIMITS)
    .in_short_run(),
];

fn streams_backlog(ring: &Ring<'_>) -> Outcome<()> {
    let sessions = ring.full_or_short(64, 16);
    let filters: Vec<String> = (0..FILTERS).map(|number| format!("f/{number}")).collect();
    let connect = |number: usize| ring.connect(&format!("reader-{number}")).persistent(600);
    for number in 0..sessions {
        ring.client_with(&connect(number))?.subscribe(&filters, 1);
    }
    let mut publisher = ring.client("publisher")?;
    let mut stored = 0;
    for _ in 0..ring.full_or_short(500, 50) {
        stored += publish_once(&mut publisher, &filters);
    }
    let until_ns = clock::now_ns() + clock::seconds_ns(ring.full_or_short(30, 8) as f64);
    let waits_ms = std::thread::scope(|scope| {
        let friend = scope.spawn(|| come_back_again(ring, until_ns));
        ring.crowd(sessions, |number| {
            let Ok(mut client) = ring.client_with(&connect(number)) else { return };
            acknowledge_all(&mut client, until_ns);
        });
        friend.join().unwrap_or_default()
    });
    let worst_ms = waits_ms.iter().copied().fold(0.0, f64::max);
    ring.note(format!(
        "{stored} messages were stored, another broker's session came back {} times",
        waits_ms.len()
    ));
    ring.at_most("a stored session of another broker waits", worst_ms, 1_000.0, "ms");
    ring.at_least("times that it came back", waits_ms.len() as f64, 20.0, "");
    Ok(())
}

/// Publishes a message to each topic with QoS 1; returns the number of PUBACKs.
fn publish_once(publisher: &mut Client, topics: &[String]) -> usize {
    let mut acknowledged = 0;
    for some in topics.chunks(IN_FLIGHT) {
        let mut batch = Vec::new();
        for topic in some {
            let packet_id = publisher.next_id();
            batch.extend(Publish { topic, payload: b"x", qos: 1, packet_id, ..Publish::default() }.bytes());
        }
        publisher.send(&batch);
        acknowledged += some.iter().map_while(|_| publisher.wait_for(PUBACK, 10.0)).count();
    }
    acknowledged
}

fn acknowledge_all(client: &mut Client, until_ns: u64) {
    while let Some(packet) = client.read(until_ns) {
        if packet.kind() == PUBLISH
            && let Some(message) = received(packet.first, &packet.body)
        {
            client.send(&packets::acknowledgement(packets::PUBACK_FIRST, message.packet_id));
        }
    }
}

/// Connects a persistent session with a subscription of its own again and again; returns its waits in milliseconds.
fn come_back_again(ring: &Ring<'_>, until_ns: u64) -> Vec<f64> {
    let connect = Connect::new(FRIENDLY, "comes-back").persistent(600);
    let mut waits_ms = Vec::new();
    while clock::now_ns() < until_ns {
        let begun_ns = clock::now_ns();
        let client = Client::connect(Ring::address(9_005), ring.server.mqtt, &connect);
        waits_ms.push((clock::now_ns() - begun_ns) as f64 / 1e6);
        let Ok(mut client) = client else { continue };
        client.subscribe(&["own/stream"], 1);
        client.send(&packets::DISCONNECT_NORMALLY);
        clock::pause_ms(50);
    }
    waits_ms
}

fn deep_resume(ring: &Ring<'_>) -> Outcome<()> {
    let deep = |last: &str| format!("{}{last}", "a/".repeat(127));
    let filters: Vec<String> = (1..FILTERS).map(|number| deep(&number.to_string())).collect();
    let connect = ring.connect("deep").persistent(600);
    let mut client = ring.client_with(&connect)?;
    client.subscribe(&["#"], 1);
    client.send(&packets::subscribe(2, &filters, 0, 1));
    client.wait_for(packets::SUBACK, 10.0);
    let mut publisher = ring.client("publisher")?;
    let topic = deep("z");
    let stored = publish_acknowledged(&mut publisher, &topic, 500, 1);
    client.wait_for(PUBLISH, 5.0);
    drop(client);
    let times = ring.full_or_short(10, 4);
    let came_back = (0..times).map_while(|_| ring.client_with(&connect).ok()).count();
    ring.note(format!("{stored} messages were stored, the session came back {came_back} times"));
    ring.at_least("times that the session came back", came_back as f64, times as f64, "");
    Ok(())
}
