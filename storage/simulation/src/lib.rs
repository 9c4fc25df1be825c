//! A workload for FoundationDB's simulator: pods take sessions from each other, publish, read,
//! trim, share and die, while the simulator breaks the cluster below them. Afterwards a check
//! compares all answers with the promises of a broker (P1 to P8).
//!
//! The workload takes its whole environment from a [`millrace_storage::Host`], so a seed replays a
//! run. With the feature `foundationdb` it is a library that `fdbserver -r simulation` loads;
//! without it the tests run it over the store in memory. See README.md.
//!
//! This crate must not know packets, sockets or threads, nor read the machine's clock.

mod check;
#[cfg(feature = "foundationdb")]
mod external;
mod history;
mod plan;
mod pod;
mod setup;
mod tasks;
mod world;

use millrace_storage::Database;

pub use history::{PodHistory, SharedHistory};
pub use plan::{Plant, RunPlan};
pub use world::World;

const SETUP_TRIES: u64 = 60;

/// Makes the rows that must exist before pods start.
pub async fn prepare(database: &Database, world: &World, history: &SharedHistory) {
    for _ in 0..SETUP_TRIES {
        match setup::setup(database, world, history).await {
            Ok(()) => return,
            Err(_) => world.pause_ms(1_000).await,
        }
    }
    history.borrow_mut().violated("the store cannot be set up".into());
}

/// Runs pods for as long as the plan says. `instance` distinguishes them from those of other
/// instances.
pub async fn work(
    database: &Database,
    world: &World,
    history: &SharedHistory,
    plan: RunPlan,
    instance: &str,
) {
    let places: Vec<String> = (0..plan.pods).map(|number| format!("{instance}.{number}")).collect();
    let lives = |place| Box::pin(pod::lives(database, world, history, plan, place)) as tasks::Local<'_>;
    tasks::poll_again_if_woken(tasks::all(places.iter().map(|place| lives(place)).collect())).await;
}

/// Adds violations to the history; to be called after all pods have ended.
pub async fn check(database: &Database, world: &World, history: &SharedHistory) {
    tasks::poll_again_if_woken(check::check(database, world, history)).await;
}
