//! The handle of a pod's connection to the other pods. It starts the thread that runs the
//! connection.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crate::address::{PodId, Subjects, To};
use crate::clock::FabricClock;
use crate::core::FabricCore;
use crate::counters::{Counters, Counts};
use crate::health::Health;
use crate::link::options;
use crate::link::state::Link;
use crate::outbox::{FabricOutbox, Sent};
use crate::settings::{FabricSettings, SettingsError};
use crate::sink::Sink;
use crate::state::{FabricContext, JoinRequests};
use crate::tasks;

/// A pod's connection to the other pods. Any thread may call any method, and none blocks. Dropping
/// it sends the queued messages, for a second at most, and says goodbye.
pub struct Fabric {
    shared: Arc<FabricContext>,
    thread: Option<JoinHandle<()>>,
}

impl Fabric {
    /// Fails for invalid settings only. NATS need not be reachable: [`Fabric::health`] says whether
    /// it is.
    pub fn start(settings: FabricSettings, sink: Arc<dyn Sink>) -> Result<Self, SettingsError> {
        let (servers, client_options) = options::check(&settings)?;
        let FabricSettings { pod, region, pod_name, limits, .. } = settings;
        let counts = Arc::new(Counts::default());
        let outbox = Arc::new(FabricOutbox::new(pod, limits.clone(), counts.clone()));
        let subjects = Subjects::new(&region, pod);
        let link = Link::new(servers.len(), limits.reconnect_ms_max, subjects.all(), counts.clone());
        let core =
            FabricCore::new(pod, pod_name, limits.clone(), counts.clone(), outbox.clone(), sink.clone());
        let shared = Arc::new(FabricContext {
            limits,
            subjects,
            counts,
            outbox,
            link: Arc::new(link),
            sink,
            clock: FabricClock::start(),
            core: Mutex::new(core),
            join_requests: Mutex::new(JoinRequests::default()),
            join_requested: tokio::sync::Notify::new(),
            stop: tokio::sync::Notify::new(),
            must_finish: tokio::sync::Notify::new(),
            must_move: tokio::sync::Notify::new(),
            failed: tokio::sync::Notify::new(),
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            // For name lookups and files while connecting.
            .max_blocking_threads(2)
            .build()
            .map_err(SettingsError::Thread)?;
        let on_thread = shared.clone();
        let thread = std::thread::Builder::new()
            .name("fabric".into())
            .spawn(move || {
                let run = || runtime.block_on(tasks::run(&on_thread, servers, client_options));
                let ended = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err("it panicked".into()));
                on_thread.outbox.stop();
                let reason = match ended {
                    Ok(()) => "the fabric was stopped".into(),
                    Err(reason) => format!("the fabric has ended, this process must be restarted: {reason}"),
                };
                on_thread.link.fail(&reason);
                let notify = || on_thread.sink.health_changed(&on_thread.link.health());
                // The sink itself may have panicked.
                let _ = catch_unwind(AssertUnwindSafe(notify));
            })
            .map_err(SettingsError::Thread)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    #[must_use]
    pub fn pod(&self) -> PodId {
        self.shared.subjects.own()
    }

    /// Starts to receive messages of other pods to a broker, to this pod about a broker, or to a
    /// group. They arrive from [`Sink::joined`] on. False at the limit of joins. Messages to this
    /// pod and to all pods need no join.
    #[must_use]
    pub fn join(&self, to: To) -> bool {
        matches!(to, To::Pod(_) | To::Pods) || self.shared.request_join(to, true)
    }

    /// Messages on their way to the sink still arrive.
    pub fn leave(&self, to: To) {
        if !matches!(to, To::Pod(_) | To::Pods) {
            self.shared.request_join(to, false);
        }
    }

    /// `pieces` are the parts of one message. Messages of one thread to one receiver keep their
    /// order.
    pub fn send(&self, to: To, pieces: &[&[u8]]) -> Sent {
        self.shared.outbox.send(to, pieces)
    }

    /// True when no other pod listens, so that the caller need not build `messages` and must not
    /// send them. This call gives them numbers, so that a listening pod that was disconnected
    /// notices the loss.
    #[must_use]
    pub fn unwanted(&self, to: To, messages: u32) -> bool {
        self.shared.outbox.unwanted(to, messages)
    }

    #[must_use]
    pub fn health(&self) -> Health {
        self.shared.link.health()
    }

    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.shared.link.is_connected()
    }

    #[must_use]
    pub fn counters(&self) -> Counters {
        self.shared.counts.read()
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        self.shared.outbox.stop();
        self.shared.stop.notify_one();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            // The thread has caught its panics.
            let _ = thread.join();
        }
    }
}
