//! The functions that the simulator calls. It runs everything on one thread: this workload's
//! instances, each with a simulated process, the cluster, and its faults.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use foundationdb_simulation::{
    Metric, Metrics, RustWorkload, Severity, SimDatabase, SingleRustWorkload, WorkloadContext, details,
};
use millrace_storage::{Database, FoundationDb, Host, Pause, RetryPolicy};

use crate::{Plant, RunPlan, SharedHistory, World, check, prepare, work};

const PREFIX: &[u8] = b"millrace/";
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Simulated seconds that the check may take.
const CHECK_SECONDS: f64 = 20_000.0;

thread_local! {
    /// All simulated processes are in this one, so that they can share one history.
    static HISTORY: SharedHistory = SharedHistory::default();
    /// The simulator's pointers, which must not leave this thread.
    static CONTEXTS: RefCell<BTreeMap<u64, WorkloadContext>> = const { RefCell::new(BTreeMap::new()) };
}

static INSTANCES: AtomicU64 = AtomicU64::new(0);

struct Simulator {
    instance: u64,
}

impl Simulator {
    fn with<T>(&self, ask: impl FnOnce(&WorkloadContext) -> T) -> T {
        CONTEXTS.with_borrow(|all| ask(all.get(&self.instance).expect("the instance is there")))
    }
}

impl Host for Simulator {
    fn now(&self) -> Duration {
        Duration::from_secs_f64(self.with(WorkloadContext::now).max(0.0))
    }

    fn random(&self) -> u64 {
        self.with(|context| u64::from(context.rnd()) << 32 | u64::from(context.rnd()))
    }

    fn pause(&self, duration: Duration) -> Pause {
        let delay = self.with(|context| context.delay(duration));
        // The pause fails when the simulated process ends; nothing waits for it then.
        Box::pin(async {
            let _ended = delay.await;
        })
    }
}

struct Workload {
    instance: u64,
    client: i32,
    plan: RunPlan,
    world: World,
    history: SharedHistory,
}

impl SingleRustWorkload for Workload {
    fn new(_name: String, context: WorkloadContext) -> Self {
        let instance = INSTANCES.fetch_add(1, Ordering::Relaxed);
        let client = context.client_id();
        let plant = context.get_option::<String>("plant").filter(|name| name != "none");
        let plan = RunPlan {
            seconds: context.get_option("seconds").unwrap_or(60),
            pods: context.get_option("pods").unwrap_or(2),
            plant: plant.map(|name| name.parse::<Plant>().expect("a fault to plant")),
        };
        CONTEXTS.with_borrow_mut(|all| all.insert(instance, context));
        let world = World::new(Arc::new(Simulator { instance }));
        Self { instance, client, plan, world, history: HISTORY.with(SharedHistory::clone) }
    }
}

impl Workload {
    fn open(&self, database: &SimDatabase) -> Database {
        let store = FoundationDb::over(database.clone(), PREFIX, READ_TIMEOUT, self.world.host());
        store.expect("a prefix").database_on(self.world.host(), RetryPolicy::default())
    }

    /// Waits until nobody uses the database, because commits of dead pods may still be under way.
    async fn close(&self, database: &SimDatabase) {
        while Arc::strong_count(database) > 2 {
            self.world.pause_ms(100).await;
        }
    }

    fn report(&self) {
        let history = self.history.borrow();
        let counts: Vec<String> = history.counts().map(|(what, count)| format!("{what}: {count}")).collect();
        let seconds = self.world.now_ms() / 1_000 - 1_000;
        println!("MILLRACE simulated seconds: {seconds}; {}", counts.join("; "));
        for violation in history.violations() {
            println!("MILLRACE VIOLATION {violation}");
            self.trace(Severity::Error, violation);
        }
    }

    fn trace(&self, severity: Severity, what: &str) {
        CONTEXTS.with_borrow(|all| {
            if let Some(context) = all.get(&self.instance) {
                context.trace(severity, "MillraceViolation", details!["What" => what]);
            }
        });
    }
}

impl RustWorkload for Workload {
    async fn setup(&mut self, database: SimDatabase) {
        if self.client == 0 {
            prepare(&self.open(&database), &self.world, &self.history).await;
        }
        self.close(&database).await;
    }

    async fn start(&mut self, database: SimDatabase) {
        let store = self.open(&database);
        work(&store, &self.world, &self.history, self.plan, &self.client.to_string()).await;
        drop(store);
        self.close(&database).await;
    }

    async fn check(&mut self, database: SimDatabase) {
        if self.client == 0 {
            check(&self.open(&database), &self.world, &self.history).await;
            self.report();
        }
        self.close(&database).await;
    }

    fn get_metrics(&self, mut out: Metrics) {
        if self.client == 0 {
            let history = self.history.borrow();
            out.extend(history.counts().map(|(what, count)| Metric::val(what, count as f64)));
        }
    }

    fn get_check_timeout(&self) -> f64 {
        CHECK_SECONDS
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        CONTEXTS.with_borrow_mut(|all| all.remove(&self.instance));
    }
}

// SAFETY: the macro exports functions by the names that the simulator looks for, and no other code
// has these names.
#[allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
mod registered {
    use foundationdb_simulation::register_workload;

    use super::Workload;

    register_workload!(Workload);
}
