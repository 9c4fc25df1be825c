//! Random attacks against one server for a long time, several at once, beside friendly clients.
//!
//! The friendly clients must lose nothing, and memory must be flat. After each round the hostile
//! clients leave, and the remaining memory is compared with that after the first rounds.

use std::path::Path;

use super::attacks::{self, Attack};
use super::http;
use super::ring::{Ring, stand_back};
use super::run::{FriendWaits, Friends};
use super::server::{Server, Setup};
use crate::clock;
use crate::failure::{Failure, Outcome};
use crate::machine::stretch;

/// Most attacks of a round.
const AT_ONCE: usize = 3;
/// Rounds after which the server has allocated all that it reuses.
const WARM_ROUNDS: usize = 5;
/// Most growth of memory after the warm rounds, MiB.
const GROWTH_MIB_MAX: f64 = 64.0;
/// Longest turn of the event loop, seconds; the server's histogram has a bucket that ends there.
const TURN_S_MAX: f64 = 0.02;
/// Stretch of the machine above which a long turn is not the server's fault.
const QUIET_STRETCH: f64 = 1.5;
/// Longest wait of a client of another broker, milliseconds.
const WAIT_MS_MAX: f64 = 50.0;
/// Pause between the end of a round and the look at the memory that it left.
const REST_MS: u64 = 2_000;
const TURN_METRIC: &str = "millrace_edge_turn_seconds";

/// # Errors
/// The friendly clients lost or waited too much, memory grew, a turn took too long, or the server
/// ended.
pub(super) fn run(program: &Path, more: &[String], minutes: f64, seed: u64) -> Outcome<()> {
    println!("seed {seed}");
    let mut server = Server::start(program, &Setup::default(), more)?;
    let until_ns = clock::now_ns() + clock::seconds_ns(minutes * 60.0);
    // xorshift64 never leaves 0.
    let mut random = Random(seed | 1);
    let mut worst = Worst::default();
    let mut left_mib = Vec::new();
    while clock::now_ns() < until_ns {
        let chosen = choose(&mut random);
        let names: Vec<&str> = chosen.iter().map(|attack| attack.name).collect();
        let friends = Friends::start(&server)?;
        let (from_ns, threads) = (clock::now_ns(), server.threads());
        let failed = round(&server, &chosen, left_mib.len());
        let stretch = stretch(&threads, &server.threads());
        let waits = FriendWaits { stretch, ..friends.end(from_ns, clock::now_ns()) };
        clock::pause_ms(REST_MS);
        let mib = server.memory().rss_kb as f64 / 1024.0;
        left_mib.push(mib);
        worst.add(&waits);
        println!(
            "round {}: {} | waits {:.0} / {:.0} / {:.0} ms (other, PUBACK, CONNACK), machine {:.0} ms x{:.1} | lost {} | {mib:.0} MiB {failed}",
            left_mib.len(),
            names.join(" + "),
            waits.other.worst_ms,
            waits.durable.worst_ms,
            waits.dial.worst_ms,
            waits.machine.worst_ms,
            waits.stretch,
            waits.lost,
        );
        if server.has_ended() {
            return Err(Failure::new(format!(
                "the server ended beside {}\n{}",
                names.join(", "),
                server.log_tail()
            )));
        }
    }
    judge(&server, &worst, &left_mib)
}

fn judge(server: &Server, worst: &Worst, left_mib: &[f64]) -> Outcome<()> {
    let growth = growth(left_mib);
    println!(
        "{} rounds: worst wait {:.0} ms beyond the machine's own, {} friendly messages lost, {} connects refused, memory grew by {growth:.0} MiB",
        left_mib.len(),
        worst.wait_ms,
        worst.lost,
        worst.refused,
    );
    let mut broken = Vec::new();
    match turns(server) {
        Some((all, slow)) => {
            println!("{all} turns, {slow} of them over {:.0} ms", TURN_S_MAX * 1_000.0);
            if worst.stretch > QUIET_STRETCH {
                println!(
                    "SKIPPED: the limit of turns: other programs made the server {:.1} times slower",
                    worst.stretch
                );
            } else if slow > 0 {
                broken.push(format!("{slow} turns were too long"));
            }
        }
        None => println!("SKIPPED: the time of turns: /metrics has no {TURN_METRIC}"),
    }
    if worst.wait_ms > WAIT_MS_MAX {
        broken.push(format!("a friendly client waited {:.0} ms", worst.wait_ms));
    }
    if worst.lost > 0 {
        broken.push(format!("{} friendly messages were lost", worst.lost));
    }
    if growth > GROWTH_MIB_MAX {
        broken.push(format!("memory grew by {growth:.0} MiB"));
    }
    if broken.is_empty() { Ok(()) } else { Err(Failure::new(broken.join("; "))) }
}

#[derive(Default)]
struct Worst {
    wait_ms: f64,
    stretch: f64,
    lost: u64,
    refused: u64,
}

impl Worst {
    fn add(&mut self, waits: &FriendWaits) {
        // Without the machine's part, see [`FriendWaits`].
        let own_ms = (waits.other.worst_ms - waits.machine.worst_ms) / waits.stretch.max(1.0);
        self.wait_ms = self.wait_ms.max(own_ms);
        self.stretch = self.stretch.max(waits.stretch);
        self.lost += waits.lost;
        self.refused += waits.refused;
    }
}

/// Runs attacks at once; returns the failures of attacks that could not be run, which are no fault
/// of the server.
fn round(server: &Server, attacks: &[&'static Attack], round: usize) -> String {
    let failed = std::thread::scope(|scope| {
        let strike = |place: usize, attack: &'static Attack| {
            let number = (round * AT_ONCE + place) as u64;
            scope.spawn(move || {
                stand_back();
                (attack.run)(&Ring::new(server, true, number))
                    .err()
                    .map(|why| format!("({}: {why})", attack.name))
            })
        };
        let threads: Vec<_> =
            attacks.iter().enumerate().map(|(place, attack)| strike(place, attack)).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok().flatten()).collect::<Vec<_>>()
    });
    failed.join(" ")
}

fn choose(random: &mut Random) -> Vec<&'static Attack> {
    let mut all: Vec<&'static Attack> = attacks::all().filter(|attack| attack.is_for_soak).collect();
    (0..1 + random.next() as usize % AT_ONCE)
        .map(|_| all.swap_remove(random.next() as usize % all.len()))
        .collect()
}

/// How much more memory the last third of the rounds left than the first third, without the warm
/// rounds, MiB.
fn growth(left_mib: &[f64]) -> f64 {
    let late = &left_mib[left_mib.len().min(WARM_ROUNDS)..];
    let third = late.len() / 3;
    if third == 0 {
        return 0.0;
    }
    let median = |some: &[f64]| {
        let mut some = some.to_vec();
        some.sort_by(f64::total_cmp);
        some[some.len() / 2]
    };
    median(&late[late.len() - third..]) - median(&late[..third])
}

/// Counts the turns of the event loops, and those that took too long.
fn turns(server: &Server) -> Option<(u64, u64)> {
    parse_turns(&http::get(server.admin, "/metrics")?.text)
}

fn parse_turns(metrics: &str) -> Option<(u64, u64)> {
    let sum = |wanted: &dyn Fn(&str) -> bool| {
        let lines = metrics.lines().filter(|line| line.starts_with(TURN_METRIC) && wanted(line));
        let values: Vec<f64> = lines.filter_map(|line| line.rsplit_once(' ')?.1.parse().ok()).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() as u64)
    };
    let le = |line: &str| {
        line.split_once("le=\"").and_then(|(_, rest)| rest.split('"').next()?.parse::<f64>().ok())
    };
    let is_bound = |line: &str| le(line).is_some_and(|le| (le - TURN_S_MAX).abs() < 1e-9);
    let all = sum(&|line| line[TURN_METRIC.len()..].starts_with("_count"))?;
    Some((all, all.saturating_sub(sum(&is_bound)?)))
}

/// xorshift64, which is good enough to choose attacks and gives the same numbers for a seed on
/// every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flat_memory_does_not_grow_and_a_leak_does() {
        assert_eq!(growth(&[10.0, 500.0, 90.0]), 0.0);
        let flat: Vec<f64> = (0..30).map(|round| 100.0 + f64::from(round % 3)).collect();
        assert!(growth(&flat).abs() <= 2.0);
        let leak: Vec<f64> = (0..30).map(|round| 100.0 + 10.0 * f64::from(round)).collect();
        assert!(growth(&leak) > GROWTH_MIB_MAX);
    }

    #[test]
    fn long_turns_are_those_above_the_bucket_of_the_limit() {
        let metrics = "# TYPE millrace_edge_turn_seconds histogram\n\
            millrace_edge_turn_seconds_bucket{le=\"0.005\"} 90\n\
            millrace_edge_turn_seconds_bucket{le=\"0.02\"} 97\n\
            millrace_edge_turn_seconds_bucket{le=\"+Inf\"} 100\n\
            millrace_edge_turn_seconds_sum 1.5\n\
            millrace_edge_turn_seconds_count 100\n";
        assert_eq!(parse_turns(metrics), Some((100, 3)));
        assert_eq!(parse_turns("other 1\n"), None);
    }

    #[test]
    fn a_seed_repeats_its_choices() {
        let names =
            |seed| -> Vec<&str> { choose(&mut Random(seed)).iter().map(|attack| attack.name).collect() };
        assert_eq!(names(42), names(42));
    }
}
