//! Sampled messages on their way from the writer back to the publisher's loop, which ends their traces.

use std::sync::Arc;

use millrace_session::Message;

use super::jobs::Publish;
use crate::broker::Broker;

pub(crate) struct StoredTraces {
    pub(crate) messages: Vec<(Arc<Broker>, Arc<Message>)>,
    /// False: the store refused them.
    pub(crate) stored: bool,
    pub(crate) answered_us: u64,
}

impl StoredTraces {
    pub(crate) fn of(publish: &Publish, stored: bool, answered_us: u64) -> Self {
        let messages = vec![(publish.routes.broker.clone(), publish.message.clone())];
        Self { messages, stored, answered_us }
    }
}
