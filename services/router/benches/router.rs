//! The cost of a match, a change and a subscription. `cargo bench -p millrace-router [-- [<part>]
//! [<subscriptions>]]`

#![allow(clippy::print_stdout, clippy::disallowed_methods, clippy::unwrap_used)]

use std::hint::black_box;
use std::time::Instant;

use millrace_mqtt::QoS;
use millrace_mqtt::topic::Filter;
use millrace_router::{MatchLimits, Router, Subscription, Target, TopicCode, TopicTree, Walk};

// The allocator of the broker.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn subscription(number: u32) -> Subscription {
    let target = Target { core: (number % 2) as u16, slot: number / 2, generation: 1 };
    Subscription {
        target,
        qos: QoS::AtLeastOnce,
        no_local: false,
        retain_as_published: false,
        persistent: false,
        identifier: 0,
    }
}

fn plain(filter: &str) -> Filter<'_> {
    Filter { share: None, filter }
}

/// Runs `work` for each number and prints the mean.
fn time(what: &str, numbers: impl ExactSizeIterator<Item = u32>, mut work: impl FnMut(u32)) {
    let count = numbers.len() as u128;
    let start = Instant::now();
    for number in numbers {
        work(number);
    }
    println!("{:>9} ns  {what}", start.elapsed().as_nanos() / count);
}

/// Anonymous memory of this process, in bytes.
fn memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("RssAnon")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<usize>().ok()).unwrap_or(0) * 1024
}

/// Numbers in an order that caches cannot guess.
fn scattered(count: u32, below: u32) -> impl ExactSizeIterator<Item = u32> {
    (0..count).map(move |number| (u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32 % below)
}

/// The digest of a number of filters.
fn digest(filters: u32) {
    println!("\ndigest of {filters} filters of two shapes");
    let router = Router::new();
    for number in 0..filters {
        let filter = if number % 2 == 0 {
            format!("device/{number}/cmd")
        } else {
            format!("device/{number}/+/conf/#")
        };
        router.subscribe(plain(&filter), subscription(number));
    }
    let snapshot = router.snapshot();
    let digest = snapshot.digest(|_| true, 0).unwrap();
    let start = Instant::now();
    black_box(snapshot.digest(|_| true, 0).unwrap());
    println!("{:>9} ns  making it, for each filter", start.elapsed().as_nanos() / u128::from(filters));
    let topics: Vec<String> =
        scattered(10_000, filters).map(|number| format!("device/{number}/cmd/x")).collect();
    time("asking it for a topic", 0..10_000, |number| {
        black_box(digest.may_match(&TopicCode::of(&topics[number as usize]), false));
    });
    let mut bytes = Vec::new();
    digest.encode(&mut bytes);
    println!("{:>9.2} bytes a filter", bytes.len() as f64 / f64::from(filters));
}

fn typical() {
    println!("\ntypical broker: 1,000 devices with three filters, ten dashboards with wildcards");
    let router = Router::new();
    for number in 0..1000 {
        router.subscribe(plain(&format!("site/{}/dev{number}/cmd", number % 10)), subscription(number));
        router.subscribe(plain(&format!("site/{}/dev{number}/conf/#", number % 10)), subscription(number));
        router.subscribe(plain("site/all"), subscription(number));
    }
    for site in 0..10 {
        router.subscribe(plain(&format!("site/{site}/+/state")), subscription(2000 + site));
        router.subscribe(plain("$SYS/#"), subscription(2000 + site));
    }
    let snapshot = router.snapshot();
    for (what, topic) in [
        ("exact, one receiver", "site/3/dev123/cmd"),
        ("through +, one receiver", "site/3/dev123/state"),
        ("through #, one receiver", "site/3/dev123/conf/a"),
        ("nobody, first level unknown", "home/3/dev123/state"),
        ("nobody, last level unknown", "site/3/dev123/other"),
        ("fan-out 1,000", "site/all"),
    ] {
        time(
            &format!("match {topic}: {what}"),
            0..200_000 / if topic == "site/all" { 20 } else { 1 },
            |_| {
                black_box(snapshot.matches(black_box(topic), MatchLimits::NONE).unwrap());
            },
        );
    }
    time("snapshot()", 0..1_000_000, |_| drop(black_box(router.snapshot())));
    time("generation()", 0..1_000_000, |_| {
        black_box(router.generation());
    });
    for number in 0..500 {
        router.subscribe(plain("site/+"), subscription(number * 2));
    }
    let snapshot = router.snapshot();
    time("match site/all: fan-out 1,000, half of them by two filters", 0..5000, |_| {
        black_box(snapshot.matches(black_box("site/all"), MatchLimits::NONE).unwrap());
    });
    for number in 0..100 {
        router.subscribe(Filter { share: Some("g"), filter: "jobs/#" }, subscription(number));
    }
    let matched = router.snapshot().matches("jobs/1", MatchLimits::NONE).unwrap();
    time("pick of 100 members", 0..1_000_000, |_| drop(black_box(matched.groups[0].pick())));
}

fn distinct(count: u32) {
    println!("\n{count} subscriptions with distinct filters d/<number>/cmd");
    let router = Router::new();
    let before = memory();
    let start = Instant::now();
    for batch in (0..count).step_by(1000) {
        router.edit(|edit| {
            for number in batch..count.min(batch + 1000) {
                edit.subscribe(plain(&format!("d/{number}/cmd")), subscription(number));
            }
        });
    }
    println!("{:>9} ns  subscribe, in batches of 1,000", start.elapsed().as_nanos() / u128::from(count));
    println!("{:>9} B   per subscription", (memory() - before) / count as usize);
    time("subscribe, one by one", scattered(100_000, count), |number| {
        router.subscribe(plain(&format!("d/{number}/cfg")), subscription(number));
    });
    time("unsubscribe, one by one", scattered(100_000, count), |number| {
        router.unsubscribe(plain(&format!("d/{number}/cfg")), subscription(number).target);
    });
    time("subscribe that changes nothing", scattered(100_000, count), |number| {
        router.subscribe(plain(&format!("d/{number}/cmd")), subscription(number));
    });
    time("subscribe, 100 in a batch, per batch", scattered(1000, count), |first| {
        router.edit(|edit| {
            for number in scattered(100, count).map(|number| number.wrapping_add(first) % count) {
                edit.subscribe(plain(&format!("d/{number}/x")), subscription(number));
            }
        });
    });
    let topics: Vec<_> = scattered(200_000, count).map(|number| format!("d/{number}/cmd")).collect();
    let snapshot = router.snapshot();
    time("match, cold", 0..200_000, |number| {
        black_box(snapshot.matches(&topics[number as usize], MatchLimits::NONE).unwrap());
    });
    time("match, warm", 0..200_000, |number| {
        black_box(snapshot.matches(&topics[number as usize % 100], MatchLimits::NONE).unwrap());
    });
    drop(snapshot);
    let start = Instant::now();
    drop(router);
    println!("{:>9} ns  drop, per subscription", start.elapsed().as_nanos() / u128::from(count));
}

fn one_filter(count: u32) {
    println!("\n{count} subscribers of one filter");
    let router = Router::new();
    let before = memory();
    router.edit(|edit| {
        for number in 0..count {
            edit.subscribe(plain("news"), subscription(number));
        }
    });
    println!("{:>9} B   per subscription", (memory() - before) / count as usize);
    time("unsubscribe and subscribe", scattered(100_000, count), |number| {
        router.unsubscribe(plain("news"), subscription(number).target);
        router.subscribe(plain("news"), subscription(number));
    });
    let snapshot = router.snapshot();
    time("match", 0..5, |_| drop(black_box(snapshot.matches("news", MatchLimits::NONE).unwrap())));
}

fn retained(count: u32) {
    println!("\n{count} retained topics d/<number>/state");
    let tree = TopicTree::new();
    let before = memory();
    time("insert", 0..count, |number| {
        black_box(tree.insert(&format!("d/{number}/state"), number));
    });
    println!("{:>9} B   per topic", (memory() - before) / count as usize);
    time("replace", scattered(100_000, count), |number| {
        black_box(tree.insert(&format!("d/{number}/state"), number));
    });
    time("get", scattered(100_000, count), |number| {
        black_box(tree.get(&format!("d/{number}/state")));
    });
    let snapshot = tree.snapshot();
    time("d/+/state, all", 0..2, |_| {
        assert_eq!(Walk::new(snapshot.clone(), "d/+/state").count() as u64, u64::from(count));
    });
}

/// Each part runs in a process of its own, so that the memory of one is not the free memory of the
/// next.
fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let number = |text: &String| text.parse::<u32>().ok();
    let count = arguments.iter().find_map(number).unwrap_or(1_000_000);
    match arguments.iter().find(|argument| number(argument).is_none()).map(String::as_str) {
        Some("typical") => typical(),
        Some("distinct") => distinct(count),
        Some("digest") => digest(count),
        Some("one_filter") => one_filter(count),
        Some("retained") => retained(count),
        _ => {
            for part in ["typical", "distinct", "digest", "one_filter", "retained"] {
                let program = std::env::current_exe().unwrap();
                let status =
                    std::process::Command::new(program).args([part, &count.to_string()]).status().unwrap();
                assert!(status.success());
            }
        }
    }
}
