//! The check after all pods have ended. One more pod reads the contents of the store; then the
//! whole history must be consistent with them.

mod groups;
mod leftovers;
mod messages;
mod owners;
mod readings;
mod rest;
mod retained;

use millrace_storage::Database;

use crate::{history::SharedHistory, pod::Pod, world::World};

const CHECKER: &str = "checker";
/// Attempts of a step, because the cluster may still be recovering.
const TRIES: u64 = 60;

pub(crate) async fn check(database: &Database, world: &World, history: &SharedHistory) {
    let checker = Pod::new(CHECKER.into(), database, world, history, None);
    for try_number in 1.. {
        match rest::look(&checker).await {
            Ok(()) => break,
            Err(error) if try_number == TRIES => {
                history.borrow_mut().violated(format!("the store cannot be looked at: {error}"));
                break;
            }
            Err(_) => world.pause_ms(1_000).await,
        }
    }
    let mut history = history.borrow_mut();
    for check in [messages::check, readings::check, owners::check, retained::check, groups::check] {
        for violation in check(&history) {
            history.violated(violation);
        }
    }
}

type Violations = Vec<String>;
