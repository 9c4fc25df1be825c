//! The cost of a message. Prints figures: `cargo test --release -p millrace-fabric --test real
//! bench -- --ignored --nocapture`.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use millrace_fabric::{Fabric, FabricSettings, Gap, MessageBatch, Sent, Sink, To};

use crate::support::{Server, WAIT_MAX, needs_nats, poll};

const BROKER: To = To::Broker(7);

#[derive(Default)]
struct Counter {
    received: AtomicU64,
    missing: AtomicU64,
    joined: AtomicU64,
    pods: AtomicU64,
}

impl Sink for Counter {
    fn receive(&self, batch: &MessageBatch) {
        let bytes: usize = batch.messages().map(<[u8]>::len).sum();
        assert!(bytes >= batch.len());
        self.received.fetch_add(batch.len() as u64, Ordering::Relaxed);
    }

    fn gap(&self, gap: &Gap) {
        self.missing.fetch_add(gap.missing.unwrap_or_default(), Ordering::Relaxed);
    }

    fn joined(&self, _: To, _: bool) {
        self.joined.fetch_add(1, Ordering::Relaxed);
    }

    fn pod_came(&self, _: millrace_fabric::PodId, _: &str, _: bool) {
        self.pods.fetch_add(1, Ordering::Relaxed);
    }
}

/// CPU time of something in `/proc`: a process or a thread.
fn cpu(stat: &str) -> Duration {
    let stat = fs::read_to_string(stat).unwrap_or_default();
    let ticks: u64 = stat
        .rsplit(')')
        .next()
        .map(|rest| {
            rest.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
        })
        .unwrap_or_default();
    // Ticks of a hundredth of a second, everywhere on Linux.
    Duration::from_millis(10 * ticks)
}

/// CPU time of the threads of fabrics.
fn fabric_cpu() -> Duration {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let is_fabric = |path: &std::path::Path| {
        fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim() == "fabric")
    };
    let paths = tasks.map(|task| task.path()).filter(|path| is_fabric(path));
    paths.map(|path| cpu(&path.join("stat").display().to_string())).sum()
}

fn pair(server: &Server) -> [(Fabric, Arc<Counter>); 2] {
    let pods = [0, 1].map(|_| {
        let sink = Arc::new(Counter::default());
        (Fabric::start(FabricSettings::new(&server.url(), "bench"), sink.clone()).unwrap(), sink)
    });
    poll("to know each other", || pods.iter().all(|(_, sink)| sink.pods.load(Ordering::Relaxed) == 1));
    assert!(pods[1].0.join(BROKER));
    // [`Sink::joined`] is also called for `To::Pods` and the pod itself.
    poll("to join", || pods[1].1.joined.load(Ordering::Relaxed) == 3);
    pods
}

#[allow(clippy::disallowed_methods, reason = "a bench reads the clock")]
fn now() -> Instant {
    Instant::now()
}

fn per_second(messages: u64, time: Duration) -> String {
    format!("{:6.2} M/s", messages as f64 / time.as_secs_f64() / 1e6)
}

/// Sends `messages` of `bytes` bytes, `burst` at a time and so many of those a second (0: as many
/// as are taken).
fn one_to_one(name: &str, bytes: usize, messages: u64, burst: u64, bursts_per_s: u32) {
    let server = Server::start("");
    let [(a, _), (_b, sink)] = pair(&server);
    let message = vec![7; bytes];
    let server_stat = format!("/proc/{}/stat", server.pid());
    let before = (cpu("/proc/self/stat"), fabric_cpu(), cpu(&server_stat), now(), a.counters());
    let mut sent = 0;
    let mut due = before.3;
    while sent < messages {
        for _ in 0..burst {
            while a.send(BROKER, &[&message]) != Sent::Queued {
                std::thread::park_timeout(Duration::from_micros(200));
            }
        }
        sent += burst;
        if bursts_per_s > 0 {
            due += Duration::from_secs(1) / bursts_per_s;
            while let Some(left) = due.checked_duration_since(now()) {
                std::thread::park_timeout(left);
            }
        }
    }
    let end = now() + WAIT_MAX;
    while sink.received.load(Ordering::Relaxed) < messages && now() < end {
        std::thread::park_timeout(Duration::from_millis(1));
    }
    let wall = before.3.elapsed();
    let all = cpu("/proc/self/stat") - before.0;
    let fabrics = fabric_cpu() - before.1;
    let server_cpu = cpu(&server_stat) - before.2;
    let counters = a.counters();
    let batches = counters.batches_sent - before.4.batches_sent;
    println!(
        "{name:34} {} of wall, {} of CPU of both pods (sender's thread {:3.0} ns, fabrics' threads {:4.0} ns a message), \
         {} of CPU of nats-server, {:.0} messages a batch",
        per_second(sent, wall),
        per_second(sent, all),
        (all - fabrics).as_nanos() as f64 / sent as f64,
        fabrics.as_nanos() as f64 / sent as f64,
        per_second(sent, server_cpu),
        sent as f64 / batches as f64,
    );
    assert_eq!(sink.received.load(Ordering::Relaxed), messages);
}

#[test]
#[ignore = "measures"]
fn cost_of_a_message() {
    needs_nats!();
    one_to_one("flood, 100 B", 100, 10_000_000, 100, 0);
    one_to_one("flood, 1000 B", 1000, 2_000_000, 100, 0);
    one_to_one("200,000/s in turns of 100, 100 B", 100, 1_000_000, 100, 2000);
    one_to_one("20,000/s one by one, 100 B", 100, 100_000, 1, 20_000);
    one_to_one("1,000/s one by one, 100 B", 100, 5_000, 1, 1000);
}

#[test]
#[ignore = "measures"]
fn cost_of_a_message_without_a_listener() {
    needs_nats!();
    let server = Server::start("");
    let [(a, _), _b] = pair(&server);
    let to = To::Broker(8);
    poll("a notice that nobody listens", || a.send(to, &[&[7; 100]]) == Sent::NoListener);
    const MESSAGES: u64 = 20_000_000;
    let start = now();
    let unwanted = (0..MESSAGES).filter(|_| a.send(to, &[&[7; 100]]) == Sent::NoListener).count();
    let wall = start.elapsed();
    println!("nobody listens: {} of wall, {unwanted} of {MESSAGES} not sent", per_second(MESSAGES, wall));
}

/// Time from `send` on one pod to `receive` on the other and back, one message at a time.
#[test]
#[ignore = "measures"]
fn how_long_a_message_takes() {
    needs_nats!();
    let server = Server::start("");
    let [(a, sink_a), (b, sink_b)] = pair(&server);
    let (to_a, to_b) = (To::Pod(a.pod()), To::Pod(b.pod()));
    let mut times = Vec::new();
    for round in 1..=5000u64 {
        let start = now();
        let _ = a.send(to_b, &[b"ping"]);
        while sink_b.received.load(Ordering::Relaxed) < round {
            std::hint::spin_loop();
        }
        let _ = b.send(to_a, &[b"pong"]);
        while sink_a.received.load(Ordering::Relaxed) < round {
            std::hint::spin_loop();
        }
        times.push(start.elapsed() / 2);
    }
    times.sort_unstable();
    println!("one way: median {:?}, 99 % {:?}", times[times.len() / 2], times[times.len() * 99 / 100]);
}

/// Memory of this process for each broker that is joined, and the time until all are confirmed.
#[test]
#[ignore = "measures"]
fn cost_of_a_join() {
    needs_nats!();
    let server = Server::start("");
    let [(a, _), (b, sink)] = pair(&server);
    drop(a);
    let rss = || {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap().to_owned();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    };
    const JOINS: u64 = 20_000;
    let (before, start) = (rss(), now());
    for broker in 100..100 + JOINS {
        assert!(b.join(To::Broker(broker)));
    }
    poll("all joins", || sink.joined.load(Ordering::Relaxed) == JOINS + 3);
    println!("{JOINS} joins in {:?}, {} bytes each", start.elapsed(), (rss() - before) / JOINS);
}
