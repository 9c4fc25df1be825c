//! Threads that exchange with the store what brokers count: incidents, usage, and usage of limits that pods share.
//!
//! Each thread visits all open brokers at its own interval, and ends when its handle is dropped. Event loops never wait for
//! these threads, and this folder knows no event loop.

mod incidents;
mod quota;
mod usage;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use millrace_layers::Store;

use crate::StartError;
use crate::broker::Brokers;
use crate::clock::Clock;
use crate::config::Config;

/// The running threads, which end in this order.
pub(crate) struct Reporters {
    _quota: Option<Reporter>,
    _incidents: Reporter,
    _usage: Option<Reporter>,
}

impl Reporters {
    pub(crate) fn start(
        store: &Store,
        clock: Clock,
        brokers: &Arc<Brokers>,
        config: &Config,
    ) -> Result<Self, StartError> {
        let (every_s, name) = (config.limits.usage_interval_s, config.pod_name());
        let quota = |pod: &String| quota::start(store.clone(), clock, brokers.clone(), pod);
        let usage = || usage::start(store.clone(), clock, brokers.clone(), name, every_s);
        Ok(Self {
            _incidents: incidents::start(store.clone(), clock, brokers.clone())?,
            _quota: config.pod.as_ref().map(quota).transpose()?,
            _usage: (every_s > 0).then(usage).transpose()?,
        })
    }
}

struct Reporter {
    work: &'static str,
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Reporter {
    /// The receiver is disconnected once the thread must end.
    fn start(
        name: &str,
        work: &'static str,
        run: impl FnOnce(Receiver<()>) + Send + 'static,
    ) -> Result<Self, StartError> {
        let (stop, stopped) = sync_channel(0);
        let spawned = std::thread::Builder::new().name(name.into()).spawn(move || run(stopped));
        let thread = spawned.map_err(|error| StartError(format!("cannot start a thread: {error}")))?;
        Ok(Self { work, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.stop = None;
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!(
                "the thread that {} ended with a panic: report it with the log before it",
                self.work
            );
        }
    }
}
