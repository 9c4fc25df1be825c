//! A workload for FoundationDB's simulator: pods that take sessions from each other, publish, read, trim, share and die, while the
//! simulator breaks the cluster below them; and a check of all that they were answered against what a broker promises (P1 to P8).
//!
//! It works on any [`millrace_storage::Database`] and has all of its surroundings from a [`millrace_storage::Host`]. With the feature
//! `foundationdb` it is a library that `fdbserver -r simulation` loads, and a seed replays a run; without it the tests run it over the
//! store in memory. See README.md.
//!
//! This crate must never know packets, sockets or threads, and never read the machine's clock.

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

pub use history::{History, Shared};
pub use plan::{Plan, Plant};
pub use world::World;

/// Times that the setup is tried.
const SETUP_TRIES: u64 = 60;

/// Makes what must be there before pods come.
pub async fn prepare(database: &Database, world: &World, history: &Shared) {
    for _ in 0..SETUP_TRIES {
        match setup::setup(database, world, history).await {
            Ok(()) => return,
            Err(_) => world.pause_ms(1_000).await,
        }
    }
    history.borrow_mut().violated("the store cannot be set up".into());
}

/// Pods work for as long as the plan says. `place` tells them from those of others.
pub async fn work(database: &Database, world: &World, history: &Shared, plan: Plan, place: &str) {
    let places: Vec<String> = (0..plan.pods).map(|number| format!("{place}.{number}")).collect();
    let lives = |place| Box::pin(pod::lives(database, world, history, plan, place)) as tasks::Local<'_>;
    tasks::steady(tasks::all(places.iter().map(|place| lives(place)).collect())).await;
}

/// Checks everything when all pods are gone. What is wrong is in the history afterwards.
pub async fn check(database: &Database, world: &World, history: &Shared) {
    tasks::steady(check::check(database, world, history)).await;
}
