use super::{Plan, WriterBug, run};

/// Seeds of each kind that `make test` runs, and of busy pods, whose runs take the longest.
const SEEDS: u64 = 3;
const SEEDS_BUSY: u64 = 1;
/// Seeds of which one must show a bug that is switched on.
const SEEDS_WITH_BUG: u64 = 40;

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().expect("a number"))
}

/// Runs `seeds` from `SIMULATION_FIRST` on: as many as `SIMULATION_SEEDS` says, or for as many simulated hours as
/// `SIMULATION_HOURS` says. Returns how many transactions read at a known version.
fn run_seeds(plan: fn(u64) -> Plan, seeds: u64) -> u64 {
    let first = setting("SIMULATION_FIRST").unwrap_or(1);
    let seconds = setting("SIMULATION_HOURS").map(|hours| 3_600 * hours);
    let count = setting("SIMULATION_SEEDS").filter(|_| seconds.is_none()).unwrap_or(seeds);
    let (mut seed, mut simulated_s, mut unasked) = (first, 0, 0);
    while seconds.map_or(seed < first + count, |seconds| simulated_s < seconds) {
        let outcome = run(plan(seed), None);
        println!("seed {seed}: {outcome}");
        assert!(outcome.acknowledged > 0 && outcome.delivered > 0, "a run of nothing");
        unasked += outcome.unasked;
        simulated_s += outcome.simulated_s;
        seed += 1;
    }
    println!("{} seeds, {} simulated hours", seed - first, simulated_s / 3_600);
    unasked
}

#[test]
fn promises_of_one_process_are_kept() {
    run_seeds(Plan::one_process, SEEDS);
}

#[test]
fn promises_of_pods_are_kept() {
    let unasked = run_seeds(Plan::pods, SEEDS);
    assert!(unasked > 100, "{unasked} transactions read at a known version");
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for plan in [Plan::one_process, Plan::pods] {
        let trace = || run(plan(3), None).trace;
        assert_eq!(trace(), trace());
    }
}

#[test]
fn promises_of_busy_pods_are_kept() {
    run_seeds(Plan::busy_pods, SEEDS_BUSY);
}

#[test]
fn promises_to_members_that_come_and_go_are_kept() {
    run_seeds(Plan::members, SEEDS);
}

#[test]
fn promises_to_clients_of_a_dead_pod_that_never_return_are_kept() {
    run_seeds(Plan::last_death, SEEDS);
}

fn finds(bug: WriterBug, plan: fn(u64) -> Plan) {
    for seed in 1..=SEEDS_WITH_BUG {
        let Err(reason) = std::panic::catch_unwind(|| run(plan(seed), Some(bug))) else { continue };
        // Any other panic is a fault of the simulation.
        let text = reason.downcast_ref::<String>().filter(|text| text.contains("(seed "));
        let Some(text) = text else { std::panic::resume_unwind(reason) };
        return println!("{bug:?} is found: {text}");
    }
    panic!("no seed shows {bug:?}");
}

#[test]
fn a_forgotten_doubt_is_found() {
    finds(WriterBug::ForgetsDoubt, Plan::one_process);
}

#[test]
fn a_repeated_transaction_is_found() {
    finds(WriterBug::RepeatsUnknown, Plan::one_process);
}

#[test]
fn an_acknowledged_refusal_is_found() {
    finds(WriterBug::AcknowledgesRefused, Plan::one_process);
}

#[test]
fn a_forgotten_end_of_a_connection_is_found() {
    finds(WriterBug::ForgetsDetach, Plan::one_process);
}

#[test]
#[ignore = "runs with `make simulate-writer`: found with seed 7"]
fn a_message_that_passes_a_refused_one_is_found() {
    finds(WriterBug::LetsPass, Plan::one_process);
}

#[test]
fn a_stream_that_is_trimmed_too_early_is_found() {
    finds(WriterBug::TrimsOthers, Plan::one_process);
}

#[test]
fn a_missing_fence_is_found() {
    finds(WriterBug::SkipsFence, Plan::busy_pods);
}

#[test]
fn a_fence_for_qos_2_alone_is_found() {
    finds(WriterBug::FencesQos2Only, Plan::busy_pods);
}

#[test]
fn a_message_that_a_stalled_pod_stores_too_late_is_found() {
    finds(WriterBug::TrustsStalled, Plan::busy_pods);
}

#[test]
#[ignore = "runs with `make simulate-writer`: found with seed 6"]
fn a_message_that_is_with_a_session_and_passed_on_is_found() {
    finds(WriterBug::ReassignsBegun, Plan::members);
}

#[test]
fn an_ignored_filter_of_another_pod_is_found() {
    finds(WriterBug::IgnoresOthersFilters, Plan::pods);
}

#[test]
#[ignore = "runs with `make simulate-writer`: found with seed 17"]
fn filters_that_nobody_watched_are_found() {
    finds(WriterBug::TrustsUnwatched, Plan::pods);
}

#[test]
#[ignore = "runs with `make simulate-writer`: found with seed 36"]
fn a_change_behind_the_watch_in_the_same_version_is_found() {
    finds(WriterBug::TrustsWholeVersion, Plan::pods);
}

#[test]
#[ignore = "runs with `make simulate-writer`: found with seed 2"]
fn a_forgotten_claim_is_found() {
    finds(WriterBug::ForgetsClaims, Plan::members);
}

#[test]
fn a_message_that_a_full_member_settles_is_found() {
    finds(WriterBug::SettlesRefused, Plan::members);
}

#[test]
#[ignore = "runs with `make simulate-writer`: takes 16 s of CPU time"]
fn a_lease_that_is_removed_too_early_is_found() {
    finds(WriterBug::RemovesLeaseEarly, Plan::last_death);
}
