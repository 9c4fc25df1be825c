//! Hands notices of other pods about the store to the store's threads.

use std::sync::Arc;

use crate::broker::Broker;
use crate::jobs::StreamKey;

pub(crate) trait Notices: Send + Sync {
    /// Notices are in the store for the writer to read.
    fn look(&self);
    /// The streams of a topic have grown, and shared subscriptions with members on this pod may read them.
    fn grown(&self, broker: &Arc<Broker>, topic: &Arc<str>);
    /// Messages of other pods were lost, of this broker or of any (`None`): streams may have grown unnoticed.
    fn missed(&self, broker: Option<u64>);
    /// A stream of a shared subscription has messages that no member has claimed.
    fn unclaimed(&self, stream: StreamKey);
}
