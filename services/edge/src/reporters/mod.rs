//! Threads that exchange with the store what brokers count: incidents, usage, and usage of limits that pods share.
//!
//! Each thread visits all open brokers at its own interval, and ends when its handle is dropped. Event loops never wait for
//! these threads, and this folder knows no event loop.

mod incidents;
mod quota;
mod usage;

use std::sync::Arc;

use millrace_layers::Store;

use crate::StartError;
use crate::broker::Brokers;
use crate::clock::Clock;
use crate::config::Config;
use incidents::IncidentRecorder;
use quota::QuotaExchange;
use usage::UsageReporter;

/// The running threads. They are dropped, and so ended, in this order.
pub(crate) struct Reporters {
    _quota: Option<QuotaExchange>,
    _incidents: IncidentRecorder,
    _usage: Option<UsageReporter>,
}

impl Reporters {
    pub(crate) fn start(
        store: &Store,
        clock: Clock,
        brokers: &Arc<Brokers>,
        config: &Config,
    ) -> Result<Self, StartError> {
        let (every_s, name) = (config.limits.usage_interval_s, config.pod_name());
        let quota = |pod: &String| QuotaExchange::start(store.clone(), clock, brokers.clone(), pod);
        let usage = || UsageReporter::start(store.clone(), clock, brokers.clone(), name, every_s);
        Ok(Self {
            _incidents: IncidentRecorder::start(store.clone(), clock, brokers.clone())?,
            _quota: config.pod.as_ref().map(quota).transpose()?,
            _usage: (every_s > 0).then(usage).transpose()?,
        })
    }
}
