//! Converts stored subscriptions into those of a session.

use millrace_layers::streams::StreamSource;
use millrace_layers::subscriptions::{NO_STREAM, StoredOptions, StoredSubscription};
use millrace_mqtt::{QoS, SubscribeOptions};
use millrace_session::ClientSubscription;

use crate::core::persistent::FilterSource;

/// A subscription whose stream the session reads, as the reader and as the session need it.
pub(super) fn is_read(stored: &StoredSubscription) -> Option<(FilterSource, ClientSubscription)> {
    let filter = std::str::from_utf8(&stored.filter).ok()?;
    let source = StreamSource { stream: stored.stream, since: stored.since };
    let is_read = stored.stream != NO_STREAM && !filter.starts_with("$share/");
    is_read.then(|| (FilterSource { filter: filter.into(), source }, subscription_of(stored.options)))
}

pub(in crate::core) fn subscription_of(stored: StoredOptions) -> ClientSubscription {
    let StoredOptions { bits, identifier } = stored;
    let options = SubscribeOptions {
        qos: QoS::from_bits(bits & 3).unwrap_or_default(),
        no_local: bits & 4 != 0,
        retain_as_published: bits & 8 != 0,
        ..SubscribeOptions::default()
    };
    ClientSubscription { options, identifier }
}
