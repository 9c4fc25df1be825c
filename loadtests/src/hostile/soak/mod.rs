//! Random attacks against one server for a long time, several at once, beside friendly clients.
//!
//! The friendly clients must lose nothing, and memory must be flat. After each round the hostile
//! clients leave, and the remaining memory is compared with that after the first rounds. `verdict`
//! judges the rounds.

mod verdict;

use std::path::Path;

use super::attacks::{Attack, By};
use super::http;
use super::ring::Ring;
use super::run::{FriendWaits, Friends};
use super::server::{Server, Setup};
use super::verdict::USUAL_LIMITS;
use crate::clock;
use crate::failure::{Failure, Outcome};
use crate::machine::stand_back;
use crate::machine::stretch;
use verdict::{SoakLimits, SoakRound, TURN_S_MAX, Turns};

/// Most attacks of a round.
const AT_ONCE: usize = 3;
/// Pause between the end of a round and the look at the memory that it left.
const REST_MS: u64 = 2_000;
const TURN_METRIC: &str = "millrace_edge_turn_seconds";
/// Memory that the store fills with whatever is written and read, up to limits of its own.
const STORE_METRICS: [&str; 2] = ["millrace_store_memory_bytes", "millrace_store_cache_bytes"];

/// # Errors
/// The friendly clients lost or waited too much, memory grew, a turn took too long, the machine was
/// too busy to judge the turns, or the server ended.
pub(super) fn run(
    program: &Path,
    more: &[String],
    among: &[&'static Attack],
    minutes: f64,
    seed: u64,
) -> Outcome<()> {
    println!("seed {seed}");
    let mut server = Server::start(program, &Setup::default(), more)?;
    let until_ns = clock::now_ns() + clock::seconds_ns(minutes * 60.0);
    // xorshift64 never leaves 0.
    let mut random = Random(seed | 1);
    let mut rounds: Vec<SoakRound> = Vec::new();
    while clock::now_ns() < until_ns {
        let chosen = choose(among, &mut random);
        let names: Vec<&str> = chosen.iter().map(|attack| attack.name).collect();
        let friends = Friends::start(&server)?;
        let (from_ns, threads, turns_before) =
            (clock::now_ns(), server.threads(), parse_turns(&metrics(&server)));
        let failed = strike(&server, &chosen, rounds.len());
        let stretch = stretch(&threads, &server.threads());
        let waits = FriendWaits { stretch, ..friends.end(from_ns, clock::now_ns()) };
        clock::pause_ms(REST_MS);
        let metrics = metrics(&server);
        let turns = parse_turns(&metrics).zip(turns_before);
        let round = SoakRound {
            waits,
            limits: limits(&chosen),
            has_strangers: chosen.iter().any(|attack| attack.by == By::Stranger),
            turns: turns.map(|(after, before)| after.since(before)),
            left_mib: server.memory().rss_kb as f64 / 1024.0,
            store_mib: store_mib(&metrics),
        };
        println!("round {}: {} | {} {failed}", rounds.len() + 1, names.join(" + "), round.line());
        rounds.push(round);
        if server.has_ended() {
            return Err(Failure::new(format!(
                "the server ended beside {}\n{}",
                names.join(", "),
                server.log_tail()
            )));
        }
    }
    let judged = verdict::judge(&rounds);
    judged.lines.iter().for_each(|line| println!("{line}"));
    if judged.broken.is_empty() { Ok(()) } else { Err(Failure::new(judged.broken.join("; "))) }
}

/// The loosest limits of the attacks, and never stricter ones than usual.
fn limits(attacks: &[&Attack]) -> SoakLimits {
    // 0 is no limit.
    let ms = |of: fn(&super::verdict::AttackLimits) -> u64| {
        let all = attacks.iter().map(|attack| of(&attack.limits)).chain([of(&USUAL_LIMITS)]);
        all.map(|ms| if ms == 0 { f64::INFINITY } else { ms as f64 }).fold(0.0, f64::max)
    };
    SoakLimits {
        other_ms: ms(|limits| limits.other_ms),
        durable_ms: ms(|limits| limits.durable_ms),
        dial_ms: ms(|limits| limits.dial_ms),
    }
}

/// Runs attacks at once; returns the failures of attacks that could not be run, which are no fault
/// of the server.
fn strike(server: &Server, attacks: &[&'static Attack], round: usize) -> String {
    let failed = std::thread::scope(|scope| {
        let one = |place: usize, attack: &'static Attack| {
            let number = (round * AT_ONCE + place) as u64;
            scope.spawn(move || {
                stand_back();
                (attack.run)(&Ring::new(server, true, number))
                    .err()
                    .map(|why| format!("({}: {why})", attack.name))
            })
        };
        let threads: Vec<_> = attacks.iter().enumerate().map(|(place, attack)| one(place, attack)).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok().flatten()).collect::<Vec<_>>()
    });
    failed.join(" ")
}

fn choose(among: &[&'static Attack], random: &mut Random) -> Vec<&'static Attack> {
    let mut left = among.to_vec();
    let count = (1 + random.next() as usize % AT_ONCE).min(left.len());
    (0..count).map(|_| left.swap_remove(random.next() as usize % left.len())).collect()
}

/// Empty if the server does not answer.
fn metrics(server: &Server) -> String {
    http::get(server.admin, "/metrics").map(|answer| answer.text).unwrap_or_default()
}

fn store_mib(metrics: &str) -> f64 {
    let values = metrics.lines().filter_map(|line| {
        let (name, value) = line.rsplit_once(' ')?;
        STORE_METRICS.contains(&name).then(|| value.parse::<f64>().ok())?
    });
    values.sum::<f64>() / f64::from(1 << 20)
}

/// Counts the turns of the event loops since the server's start.
fn parse_turns(metrics: &str) -> Option<Turns> {
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
    Some(Turns { all, slow: all.saturating_sub(sum(&is_bound)?) })
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
    use crate::hostile::attacks;

    #[test]
    fn long_turns_are_those_above_the_bucket_of_the_limit() {
        let metrics = "# TYPE millrace_edge_turn_seconds histogram\n\
            millrace_edge_turn_seconds_bucket{le=\"0.005\"} 90\n\
            millrace_edge_turn_seconds_bucket{le=\"0.02\"} 97\n\
            millrace_edge_turn_seconds_bucket{le=\"+Inf\"} 100\n\
            millrace_edge_turn_seconds_sum 1.5\n\
            millrace_edge_turn_seconds_count 100\n";
        assert_eq!(parse_turns(metrics), Some(Turns { all: 100, slow: 3 }));
        assert_eq!(parse_turns("other 1\n"), None);
    }

    #[test]
    fn the_loosest_limit_of_a_round_counts() {
        let find = |name| attacks::all().find(|attack| attack.name == name).unwrap();
        assert_eq!(limits(&[]).other_ms, USUAL_LIMITS.other_ms as f64);
        assert_eq!(limits(&[find("share-groups")]).dial_ms, USUAL_LIMITS.dial_ms as f64);
        for attack in attacks::all().filter(|attack| attack.limits.durable_ms == 0) {
            assert_eq!(limits(&[attack]).durable_ms, f64::INFINITY);
        }
    }

    #[test]
    fn a_seed_repeats_its_choices_which_are_among_the_given_attacks() {
        let all: Vec<_> = attacks::all().collect();
        let names = |among, seed| -> Vec<&str> {
            choose(among, &mut Random(seed)).iter().map(|attack| attack.name).collect()
        };
        assert_eq!(names(&all, 42), names(&all, 42));
        assert!((1..100).all(|seed| names(&all[..1], seed) == [all[0].name]));
    }
}
