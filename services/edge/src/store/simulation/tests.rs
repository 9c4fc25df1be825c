use super::{Plan, Plant, run};

/// Seeds of each kind that `make test` runs.
const SEEDS: u64 = 3;

/// A number from the environment.
fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().expect("a number"))
}

/// Runs seeds from `SIMULATION_FIRST` on: as many as `SIMULATION_SEEDS` says, or for as many simulated hours as
/// `SIMULATION_HOURS` says.
fn run_seeds(plan: fn(u64) -> Plan) {
    let first = setting("SIMULATION_FIRST").unwrap_or(1);
    let seconds = setting("SIMULATION_HOURS").map(|hours| 3_600 * hours);
    let count = setting("SIMULATION_SEEDS").filter(|_| seconds.is_none()).unwrap_or(SEEDS);
    let (mut seed, mut simulated_s) = (first, 0);
    while seconds.map_or(seed < first + count, |seconds| simulated_s < seconds) {
        let outcome = run(plan(seed), None);
        println!("seed {seed}: {outcome}");
        assert!(outcome.acknowledged > 0 && outcome.delivered > 0, "a run of nothing");
        simulated_s += outcome.simulated_s;
        seed += 1;
    }
    println!("{} seeds, {} simulated hours", seed - first, simulated_s / 3_600);
}

#[test]
fn promises_of_one_process_are_kept() {
    run_seeds(Plan::one_process);
}

#[test]
fn promises_of_pods_are_kept() {
    run_seeds(Plan::pods);
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for plan in [Plan::one_process, Plan::pods] {
        let trace = || run(plan(3), None).trace;
        assert_eq!(trace(), trace());
    }
}

/// Some seed must show the fault.
fn finds(planted: Plant, plan: fn(u64) -> Plan) {
    for seed in 1..=40 {
        let Err(reason) = std::panic::catch_unwind(|| run(plan(seed), Some(planted))) else { continue };
        let text = reason.downcast_ref::<String>().map_or("a panic", String::as_str);
        return println!("{planted:?} is found: {text}");
    }
    panic!("no seed shows {planted:?}");
}

#[test]
fn planted_faults_of_one_process_are_found() {
    [Plant::ForgetsDoubt, Plant::RepeatsUnknown]
        .into_iter()
        .for_each(|planted| finds(planted, Plan::one_process));
}

/// Takes minutes, because some of these need many seeds.
#[test]
#[ignore = "takes minutes: run with --ignored"]
fn rarer_planted_faults_of_one_process_are_found() {
    let planted = [Plant::AcknowledgesRefused, Plant::ForgetsEnds, Plant::LetsPass, Plant::TrimsOthers];
    planted.into_iter().for_each(|planted| finds(planted, Plan::one_process));
}

#[test]
#[ignore = "takes minutes: run with --ignored"]
fn planted_faults_of_pods_are_found() {
    let planted =
        [Plant::SkipsFence, Plant::IgnoresOthersFilters, Plant::ForgetsClaims, Plant::RemovesLeaseEarly];
    planted.into_iter().for_each(|planted| finds(planted, Plan::pods));
}
