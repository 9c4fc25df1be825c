//! Attacks that cause work by filters: in the SUBSCRIBE, and in each publish that must match the
//! filters. An attack that is `short()` also belongs to the quick run of CI, with the second of the two
//! sizes of [`Ring::full_or_short`].

use std::sync::atomic::{AtomicU64, Ordering};

use super::Attack;
use crate::clock;
use crate::failure::Outcome;
use crate::hostile::packets::{self, Publish};
use crate::hostile::ring::Ring;
use crate::hostile::server::Setup;
use crate::hostile::traffic::{Sink, combinations, finish, flood, messages, retain, wait_until_quiet};
use crate::hostile::verdict::{AttackLimits, USUAL_LIMITS};

pub(super) const ATTACKS: &[Attack] = &[
    Attack::by_tenant("share-groups", "20,000 share names on one filter, then 500 publishes", share_groups)
        .in_short_run(),
    Attack::by_tenant(
        "repeated-filter",
        "one SUBSCRIBE that repeats # 30,000 times over 1,000 retained messages",
        |ring| repeated_filter(ring, "#", ring.full_or_short(30_000, 15_000), 1_000),
    )
    .in_short_run(),
    Attack::by_tenant(
        "repeated-filter-more",
        "one SUBSCRIBE that repeats # 90,000 times over 3,000 retained messages",
        |ring| repeated_filter(ring, "#", 90_000, 3_000),
    ),
    Attack::by_tenant(
        "repeated-filter-flood",
        "20 clients that send SUBSCRIBE packets of 1 MB, each with one filter 250,000 times",
        repeated_filter_flood,
    ),
    Attack::by_tenant("repeated-sys", "one SUBSCRIBE that repeats $SYS/# 60,000 times", |ring| {
        repeated_filter(ring, "$SYS/#", 60_000, 1)
    }),
    Attack::by_tenant("repeated-share", "one SUBSCRIBE that repeats $share/g/# 60,000 times", |ring| {
        repeated_filter(ring, "$share/g/#", 60_000, 1_000)
    }),
    Attack::by_tenant(
        "overlapping-filters",
        "16,384 overlapping filters {a,+}^14, then 400 publishes",
        |ring| overlapping(ring, 0),
    )
    .in_short_run(),
    Attack::by_tenant(
        "subscription-identifiers",
        "4,096 overlapping filters with an identifier each, then 2,000 publishes",
        |ring| overlapping(ring, 4_096),
    ),
    Attack::by_tenant(
        "overlapping-subscribers",
        "3,000 subscribers with 128 overlapping filters each, then 200 publishes to new topics of 16 and 128 levels",
        overlapping_subscribers,
    )
    // The server caches the receivers of 50 topics, 7 MiB, while the broker has clients.
    .limits(AttackLimits { stays_mib: 32, ..USUAL_LIMITS }),
    Attack::by_tenant(
        "share-groups-of-another-loop",
        "a client that joins 1,000 groups of one topic and does not read, then 5,000 publishes to a server with two event loops",
        share_groups_of_another_loop,
    )
    .with(|| Setup { arguments: &["--threads=2", "--home-clients-max=0"], ..Setup::default() })
    .limits(AttackLimits { peak_mib: 128, ..USUAL_LIMITS }),
    Attack::by_tenant(
        "share-groups-left",
        "members of 1,000 groups of one topic with 75,000 other shared subscriptions leave, beside a flood to that topic",
        share_groups_left,
    )
    .in_short_run(),
    Attack::by_tenant(
        "walks-without-match",
        "32,768 filters {a,+}^15/z, then 400 publishes that walk all of them and match none",
        walks_without_match,
    )
    .in_short_run(),
    Attack::by_tenant(
        "many-filters",
        "SUBSCRIBE and UNSUBSCRIBE of 60,000 filters each, three times",
        many_filters,
    ),
    Attack::by_tenant(
        "shared-filters-dropped",
        "a client with 90,000 shared subscriptions leaves, three times",
        shared_filters_dropped,
    )
    .in_short_run(),
    Attack::by_tenant(
        "filter-memory",
        "40,000 filters of 4,000 bytes to a server that may take 64 MiB for filters",
        filter_memory,
    )
    .with(|| Setup { arguments: &["--filter-memory-max=67108864"], ..Setup::default() })
    .limits(AttackLimits { peak_mib: 128, ..USUAL_LIMITS }),
    Attack::by_tenant(
        "deep-filters",
        "256 filters of up to 128 levels, then 2,000 topics of 128 levels",
        deep_filters,
    ),
    Attack::by_tenant(
        "wildcard-churn",
        "four clients that subscribe and unsubscribe # beside a flood to 5,000 topics",
        wildcard_churn,
    ),
    Attack::by_tenant("long-topics", "3,000 publishes to topics of 60 kB", long_topics).in_short_run(),
];

fn share_groups(ring: &Ring<'_>) -> Outcome<()> {
    let groups = ring.full_or_short(20_000, 10_000);
    let mut member = ring.client("member")?;
    let filters: Vec<String> = (0..groups).map(|group| format!("$share/g{group}/t")).collect();
    let granted: usize = filters.chunks(1_000).map(|some| member.subscribe(some, 0)).sum();
    let sink = Sink::start(&member.stream, None);
    let mut publisher = ring.client("publisher")?;
    publisher.send(&messages("t", ring.full_or_short(500, 200), 10));
    let is_read = finish(&mut publisher, 60.0);
    wait_until_quiet(&sink, 500, 20.0);
    ring.note(format!(
        "{granted} groups granted, {} bytes received, all publishes read: {is_read}",
        sink.bytes()
    ));
    Ok(())
}

fn repeated_filter(ring: &Ring<'_>, filter: &str, times: usize, retained: usize) -> Outcome<()> {
    retain(ring, (0..retained).map(|number| format!("r/{number}")), b"x")?;
    let mut client = ring.client("subscriber")?;
    let sink = Sink::start(&client.stream, None);
    client.send(&packets::subscribe(1, &vec![filter; times], 0, 0));
    wait_until_quiet(&sink, 500, 40.0);
    ring.note(format!("{} bytes received", sink.bytes()));
    Ok(())
}

fn repeated_filter_flood(ring: &Ring<'_>) -> Outcome<()> {
    let subscribe = packets::subscribe(1, &["a"; 250_000], 0, 0);
    let sent = AtomicU64::new(0);
    ring.crowd(20, |number| {
        let Ok(mut client) = ring.client(&format!("repeats-{number}")) else { return };
        let _reads = Sink::start(&client.stream, None);
        sent.fetch_add(flood(&mut client.stream, &subscribe, 5.0), Ordering::Relaxed);
    });
    ring.note(format!("{} packets sent", sent.into_inner()));
    Ok(())
}

/// Many filters that match one topic; with identifiers, every copy names all of them.
fn overlapping(ring: &Ring<'_>, identifiers: usize) -> Outcome<()> {
    let levels = if identifiers > 0 { 12 } else { 14 };
    let filters = combinations(levels, ["a", "+"]);
    let mut client = ring.client("subscriber")?;
    let mut granted = 0;
    if identifiers > 0 {
        for (number, filter) in filters.iter().enumerate().take(identifiers) {
            let id = client.next_id();
            client.send(&packets::subscribe(id, std::slice::from_ref(filter), 0, number as u32 + 1));
            granted += usize::from(client.wait_for(packets::SUBACK, 10.0).is_some());
        }
    } else {
        granted = filters.chunks(4_096).map(|some| client.subscribe(some, 0)).sum();
    }
    let sink = Sink::start(&client.stream, None);
    let mut publisher = ring.client("publisher")?;
    let topic = vec!["a"; levels as usize].join("/");
    publisher.send(&messages(&topic, if identifiers > 0 { 2_000 } else { 400 }, 10));
    wait_until_quiet(&sink, 500, 20.0);
    ring.note(format!("{granted} filters granted, {} bytes received", sink.bytes()));
    ring.granted(granted, if identifiers > 0 { identifiers } else { filters.len() });
    Ok(())
}

/// A topic of 128 levels matches all filters of all subscribers, which is too many; one of 16 levels
/// matches nearly as many as it may.
fn overlapping_subscribers(ring: &Ring<'_>) -> Outcome<()> {
    let filters: Vec<String> = (0..128).map(|levels| format!("{}#", "+/".repeat(levels))).collect();
    let mut subscribers = ring.clients(3_000, |number| ring.connect(&format!("subscriber-{number}")));
    let granted: usize = subscribers.iter_mut().map(|client| client.subscribe(&filters, 0)).sum();
    let mut publisher = ring.client("publisher")?;
    let topic = |number: usize| format!("{}{number}", "a/".repeat([15, 127, 127, 127][number % 4]));
    // Each topic is new, so that no cached match helps.
    let all: Vec<u8> = (0..200).flat_map(|number| messages(&topic(number), 1, 1)).collect();
    publisher.send(&all);
    let is_read = finish(&mut publisher, 60.0);
    ring.note(format!("{granted} filters granted, all publishes read: {is_read}"));
    ring.granted(granted, 3_000 * filters.len());
    Ok(())
}

/// Some publishers are on another loop than the member.
fn share_groups_of_another_loop(ring: &Ring<'_>) -> Outcome<()> {
    let mut member = ring.client("member")?;
    let groups = |filter: &str| (0..250).map(|group| format!("$share/g{group}/{filter}")).collect::<Vec<_>>();
    let granted: usize =
        ["t", "+", "#", "t/#"].iter().map(|filter| member.subscribe(&groups(filter), 0)).sum();
    let read = AtomicU64::new(0);
    ring.crowd(4, |number| {
        let Ok(mut publisher) = ring.client(&format!("publisher-{number}")) else { return };
        publisher.send(&messages("t", 1_250, 1));
        read.fetch_add(u64::from(finish(&mut publisher, 60.0)), Ordering::Relaxed);
    });
    ring.note(format!("{granted} groups granted, {} of 4 publishers read", read.into_inner()));
    ring.granted(granted, 1_000);
    Ok(())
}

/// The members leave at once, but the server removes their filters over many turns.
fn share_groups_left(ring: &Ring<'_>) -> Outcome<()> {
    let groups = |filter: &str| (0..250).map(|group| format!("$share/g{group}/{filter}")).collect::<Vec<_>>();
    let others: Vec<String> =
        (0..ring.full_or_short(75_000, 20_000)).map(|number| format!("$share/x/{number}")).collect();
    let mut publisher = ring.client("publisher")?;
    for count in [1, ring.full_or_short(8, 3)] {
        let mut members = ring.clients(count, |number| ring.connect(&format!("member-{number}")));
        let mut granted = 0;
        for member in &mut members {
            granted += ["t", "+", "#", "t/#"]
                .iter()
                .map(|filter| member.subscribe(&groups(filter), 0))
                .sum::<usize>();
            granted += others.chunks(10_000).map(|some| member.subscribe(some, 0)).sum::<usize>();
        }
        drop(members);
        let sent = flood(&mut publisher.stream, &messages("t", 1_000, 0), 2.0);
        let is_read = finish(&mut publisher, 60.0);
        ring.note(format!("{granted} filters granted, {sent} thousand publishes sent, all read: {is_read}"));
        ring.granted(granted, count * (1_000 + others.len()));
    }
    Ok(())
}

fn walks_without_match(ring: &Ring<'_>) -> Outcome<()> {
    let mut client = ring.client("subscriber")?;
    let filters: Vec<String> =
        combinations(15, ["a", "+"]).iter().map(|filter| format!("{filter}/z")).collect();
    let granted: usize = filters.chunks(4_096).map(|some| client.subscribe(some, 0)).sum();
    let mut publisher = ring.client("publisher")?;
    let prefix = ["a"; 15].join("/");
    // Each topic is new, so that no cached match helps.
    let all: Vec<u8> = (0..ring.full_or_short(400, 200))
        .flat_map(|number| messages(&format!("{prefix}/{number}"), 1, 1))
        .collect();
    publisher.send(&all);
    let is_read = finish(&mut publisher, 60.0);
    ring.note(format!("{granted} filters granted, all publishes read: {is_read}"));
    ring.granted(granted, filters.len());
    Ok(())
}

fn many_filters(ring: &Ring<'_>) -> Outcome<()> {
    let mut client = ring.client("subscriber")?;
    let filters: Vec<String> = (0..60_000).map(|number| format!("f/{number}")).collect();
    let mut granted = 0;
    for _ in 0..3 {
        granted += client.subscribe(&filters, 0);
        let id = client.next_id();
        client.send(&packets::unsubscribe(id, &filters));
        client.wait_for(packets::UNSUBACK, 20.0);
    }
    ring.note(format!("{granted} filters granted"));
    ring.granted(granted, 3 * filters.len());
    Ok(())
}

fn shared_filters_dropped(ring: &Ring<'_>) -> Outcome<()> {
    let count = ring.full_or_short(90_000, 30_000);
    let filters: Vec<String> = (0..count).map(|number| format!("$share/g/s/{number}/x")).collect();
    for _ in 0..3 {
        let mut member = ring.client("member")?;
        let granted: usize = filters.chunks(10_000).map(|some| member.subscribe(some, 1)).sum();
        ring.note(format!("{granted} filters granted"));
        ring.granted(granted, count);
        drop(member);
        clock::pause_ms(500);
    }
    Ok(())
}

fn filter_memory(ring: &Ring<'_>) -> Outcome<()> {
    let mut clients = ring.clients(8, |number| ring.connect(&format!("subscriber-{number}")));
    let mut granted = 0;
    for (number, client) in clients.iter_mut().enumerate() {
        let filter = |filter: usize| format!("{number}-{filter}-{}", "f".repeat(3_980));
        let filters: Vec<String> = (0..5_000).map(filter).collect();
        granted += filters.chunks(200).map(|some| client.subscribe(some, 0)).sum::<usize>();
    }
    ring.note(format!("{granted} of 40,000 filters granted"));
    // The server grants what its memory of filters holds.
    ring.granted(granted, 2_000);
    Ok(())
}

fn deep_filters(ring: &Ring<'_>) -> Outcome<()> {
    let mut client = ring.client("subscriber")?;
    let filters: Vec<String> = (1..=127)
        .flat_map(|levels| {
            let plus = vec!["+"; levels].join("/");
            let plain = vec!["a"; levels].join("/");
            [format!("{plus}/#"), format!("{plain}/#")]
        })
        .collect();
    let granted = client.subscribe(&filters, 0);
    let sink = Sink::start(&client.stream, None);
    let mut publisher = ring.client("publisher")?;
    let deep = ["a"; 127].join("/");
    for number in 0..2_000 {
        publisher.send(&messages(&format!("{deep}/{number}"), 1, 1));
    }
    let is_read = finish(&mut publisher, 30.0);
    wait_until_quiet(&sink, 300, 10.0);
    ring.note(format!(
        "{granted} filters granted, {} bytes received, all publishes read: {is_read}",
        sink.bytes()
    ));
    ring.granted(granted, filters.len());
    Ok(())
}

fn wildcard_churn(ring: &Ring<'_>) -> Outcome<()> {
    let until_ns = clock::now_ns() + clock::seconds_ns(3.0);
    let topics: Vec<u8> = (0..5_000).flat_map(|number| messages(&format!("topic/{number}"), 1, 10)).collect();
    ring.crowd(5, |number| {
        let Ok(mut client) = ring.client(&format!("churner-{number}")) else { return };
        while clock::now_ns() < until_ns {
            if number == 0 {
                client.send(&topics);
                finish(&mut client, 30.0);
                continue;
            }
            client.subscribe(&["#", "+/+", "topic/#"], 0);
            let id = client.next_id();
            client.send(&packets::unsubscribe(id, &["#", "+/+", "topic/#"]));
            client.wait_for(packets::UNSUBACK, 10.0);
        }
    });
    Ok(())
}

fn long_topics(ring: &Ring<'_>) -> Outcome<()> {
    let mut publisher = ring.client("publisher")?;
    let mut sent = 0;
    for number in 0..3_000 {
        let topic = format!("{number:08}{}", "t".repeat(60_000 - 8));
        sent += usize::from(
            publisher.send(&Publish { topic: &topic, payload: b"x", ..Publish::default() }.bytes()),
        );
    }
    let is_read = finish(&mut publisher, 20.0);
    ring.note(format!("{sent} publishes sent, all read: {is_read}"));
    Ok(())
}
