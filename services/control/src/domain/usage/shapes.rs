//! Requests and answers about usage, as the API shows them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How windows are summed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = Step)]
pub enum UsageStep {
    /// One sum per hour.
    Hour,
    /// One sum per day (UTC).
    Day,
    /// One sum.
    #[default]
    Total,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Span {
    /// Start in unix milliseconds, rounded down to the hour or day; left out: the beginning of the month.
    pub from_ms: Option<u64>,
    /// End (exclusive) in unix milliseconds; left out: now.
    pub to_ms: Option<u64>,
    pub step: UsageStep,
}

/// Usage. A message counts by the size of its topic, properties and payload: 1 up to 4 KiB, 2 up to 8 KiB, and so on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Used {
    /// Minutes of connected clients, added up over the clients.
    pub connected_session_minutes: f64,
    /// Minutes of sessions stored for offline clients.
    pub stored_session_minutes: f64,
    /// Messages that clients published, in units of 4 KiB.
    pub messages_in: u64,
    /// Copies of messages that clients received, in units of 4 KiB.
    pub messages_delivered: u64,
    /// Bytes of messages that clients published.
    pub bytes_in: u64,
    /// Bytes of copies that clients received.
    pub bytes_out: u64,
    /// Bytes of stored messages times hours. A message counts once for each filter for which it is stored.
    pub stored_byte_hours: f64,
    /// Bytes of retained messages times hours.
    #[serde(default)]
    pub retained_byte_hours: f64,
}

/// Usage in an hour, in a day or in the whole span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UsageWindow {
    /// Start, in unix milliseconds.
    pub from_ms: u64,
    /// End (exclusive), in unix milliseconds.
    pub to_ms: u64,
    pub used: Used,
    /// Cost at today's prices, in millionths of `currency`.
    pub cost_micros: u64,
}

/// Messages lost to limits since the broker was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Losses {
    /// Copies dropped for a connected client, or for an offline client without a stored session.
    pub dropped_messages: u64,
    /// Stored messages that a limit removed.
    pub trimmed_messages: u64,
    /// Bytes of these messages.
    pub trimmed_bytes: u64,
    /// Messages that a limit removed before a session read them, added up over the sessions.
    pub missed_messages: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Usage {
    /// Sum over the whole span.
    pub total: UsageWindow,
    /// Sums by hours or days, the earliest first; empty for `total`.
    pub windows: Vec<UsageWindow>,
    /// Losses since the broker was created.
    pub losses: Losses,
    /// ISO 4217 code of the currency; null: the operator has not set it.
    #[schema(example = "EUR")]
    pub currency: Option<String>,
}

/// Usage of one of an organisation's brokers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BrokerUsage {
    pub name: String,
    pub display_name: String,
    pub used: Used,
    /// Cost at today's prices, in millionths of `currency`.
    pub cost_micros: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OrganisationUsage {
    /// Sum over the whole span.
    pub total: UsageWindow,
    /// Sums by hours or days, the earliest first; empty for `total`.
    pub windows: Vec<UsageWindow>,
    pub brokers: Vec<BrokerUsage>,
    pub deleted: Used,
    /// Cost of the deleted brokers at today's prices, in millionths of `currency`.
    pub deleted_cost_micros: u64,
    /// ISO 4217 code of the currency; null: the operator has not set it.
    #[schema(example = "EUR")]
    pub currency: Option<String>,
}

impl UsageWindow {
    pub(crate) const COLUMNS: &'static str = "from_ms,to_ms,connected_session_minutes,stored_session_minutes,\
        messages_in,messages_delivered,bytes_in,bytes_out,stored_byte_hours,cost_micros,retained_byte_hours";

    pub(crate) fn row(&self) -> String {
        let Self { from_ms, to_ms, used, cost_micros } = self;
        format!(
            "{from_ms},{to_ms},{},{},{},{},{},{},{},{cost_micros},{}",
            used.connected_session_minutes,
            used.stored_session_minutes,
            used.messages_in,
            used.messages_delivered,
            used.bytes_in,
            used.bytes_out,
            used.stored_byte_hours,
            used.retained_byte_hours,
        )
    }
}
