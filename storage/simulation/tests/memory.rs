//! The workload over the store in memory: it finds nothing where nothing is wrong, and what is
//! planted.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::sync::Arc;

use millrace_simulation::{Plant, RunPlan, SharedHistory, World, check, prepare, work};
use millrace_storage::{Database, System, block_on};

fn run(seconds: u64, plant: Option<Plant>) -> SharedHistory {
    let world = World::new(Arc::new(System::new()));
    let database = Database::memory_on(world.host());
    let history = SharedHistory::default();
    let plan = RunPlan { seconds, pods: 12, plant };
    block_on(async {
        prepare(&database, &world, &history).await;
        work(&database, &world, &history, plan, "m").await;
        check(&database, &world, &history).await;
    });
    println!("{:?}", history.borrow().counts().collect::<Vec<_>>());
    history
}

#[test]
fn nothing_is_found_where_nothing_is_wrong() {
    let history = run(5, None);
    assert_eq!(history.borrow().violations(), [""; 0]);
}

/// The simulator tests lost answers, and pods that die before their answer.
#[test]
fn what_is_planted_is_found() {
    for plant in [Plant::Index, Plant::Fence, Plant::Trim, Plant::Claims] {
        // A busy machine gets little done in a round.
        let found = (0..20).any(|_| !run(2, Some(plant)).borrow().violations().is_empty());
        assert!(found, "{plant:?}");
    }
}
