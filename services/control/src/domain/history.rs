//! The history of a broker's metrics, from the points that servers write for each minute and each hour.

use std::collections::HashMap;

use millrace_layers::metering::{self, DROP_REASONS, DropCause, LatencyClasses, Point, Resolution};
use millrace_layers::{catalog, recount, webhooks};
use millrace_storage::Read;
use serde::{Deserialize, Serialize};
use tracing::warn;
use utoipa::ToSchema;

use super::error::of_one_tenant;
use super::{BrokerRef, Caller, Control, Error, Permission, Result, brokers};
use crate::limits::{HISTORY_BROKERS, HISTORY_LATE_MS, TIME_MS_MAX, TOO_LATE};

/// Length of the steps of a history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum HistoryStep {
    /// Stored for a day.
    #[default]
    Minute,
    /// Stored for a day.
    TenMinutes,
    /// Stored for 30 days.
    Hour,
    /// A day in UTC, stored for 30 days.
    Day,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct HistorySpan {
    pub from_ms: Option<u64>,
    /// Exclusive.
    pub to_ms: Option<u64>,
    pub step: HistoryStep,
}

/// Metrics over time, summed over all servers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MetricsHistory {
    pub step: HistoryStep,
    /// Length of a step, in milliseconds.
    pub step_ms: u64,
    /// One point for each step, the earliest first. A minute appears a few seconds after its end.
    pub points: Vec<HistoryPoint>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HistoryPoint {
    /// Start of the step, in unix milliseconds.
    pub from_ms: u64,
    /// Null: no server measured, or the broker had no clients and no messages.
    pub values: Option<HistoryValues>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HistoryValues {
    /// Milliseconds of the step that servers measured. For rates, divide counts by this time.
    pub measured_ms: u64,
    /// Connected clients on average.
    pub connections: f64,
    /// Messages that clients published.
    pub messages_in: u64,
    /// Copies of messages that clients received.
    pub messages_out: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub drops: Drops,
    /// Stored messages at the end of the step. A message counts once for each filter for which it is stored.
    pub stored_messages: u64,
    pub stored_bytes: u64,
    /// Time that a QoS 1 or 2 message waits to be stored, before its PUBACK or PUBREC; messages that are stored together count with
    /// the longest. The server answers other messages at once. Null: no message was stored.
    pub puback: Option<Latency>,
    /// Time from reading a PUBLISH of any QoS until an event loop has handed it to its connected subscribers. The server
    /// measures the first PUBLISH of every 17th read of a loop. A message that came from another server is not measured.
    /// Null: no delivery was measured.
    pub delivery: Option<Latency>,
}

/// Dropped messages by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Drops {
    /// The receiver's connection accepted no more.
    pub busy_socket: u64,
    /// The queue of the receiver's session was full.
    pub queue_full: u64,
    /// The sessions of the broker had no memory left.
    pub queue_memory: u64,
    /// The message had expired.
    pub expired: u64,
    /// The receiver accepts only smaller packets.
    pub packet_too_large: u64,
    /// A limit of stored messages removed the message.
    pub stored_limit: u64,
}

/// A time that the server measures for messages. It counts in classes, so a value may be off by the width of its class:
/// 10 ms and 20 ms are bounds of one, for example.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Latency {
    /// Messages that were measured.
    pub messages: u64,
    /// Milliseconds that half of the messages took at most.
    pub p50_ms: f64,
    /// Milliseconds that 99 of 100 messages took at most.
    pub p99_ms: f64,
}

impl From<[u64; DROP_REASONS]> for Drops {
    fn from(drops: [u64; DROP_REASONS]) -> Self {
        let of = |reason: DropCause| drops[reason as usize];
        Self {
            busy_socket: of(DropCause::BusySocket),
            queue_full: of(DropCause::QueueFull),
            queue_memory: of(DropCause::QueueMemory),
            expired: of(DropCause::Expired),
            packet_too_large: of(DropCause::PacketTooLarge),
            stored_limit: of(DropCause::StoredLimit),
        }
    }
}

impl Latency {
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn of(classes: &LatencyClasses) -> Option<Self> {
        let ms = |share| metering::latency_us(classes, share).map(|us| us as f64 / 1_000.0);
        Some(Self { messages: classes.iter().sum(), p50_ms: ms(0.5)?, p99_ms: ms(0.99)? })
    }
}

impl From<&Point> for HistoryValues {
    #[allow(clippy::cast_precision_loss)]
    fn from(point: &Point) -> Self {
        Self {
            measured_ms: point.measured_ms,
            // Time that several servers measured counts once, so this is the average of their sum.
            connections: point.connected_ms as f64 / point.measured_ms.max(1) as f64,
            messages_in: point.messages_in,
            messages_out: point.messages_out,
            bytes_in: point.bytes_in,
            bytes_out: point.bytes_out,
            drops: point.drops.into(),
            stored_messages: point.stored_messages,
            stored_bytes: point.stored_bytes,
            puback: Latency::of(&point.latencies),
            delivery: Latency::of(&point.deliveries),
        }
    }
}

struct HistoryRange {
    from_ms: u64,
    to_ms: u64,
    step_ms: u64,
    resolution: Resolution,
}

impl HistoryRange {
    fn of(span: HistorySpan, now_ms: u64) -> Result<Self> {
        let HistorySpan { from_ms, to_ms, step } = span;
        let (minute_ms, hour_ms) = (Resolution::Minute.window_ms(), Resolution::Hour.window_ms());
        let (resolution, step_ms, usual_ms) = match step {
            HistoryStep::Minute => (Resolution::Minute, minute_ms, hour_ms),
            HistoryStep::TenMinutes => (Resolution::Minute, 10 * minute_ms, 24 * hour_ms),
            HistoryStep::Hour => (Resolution::Hour, hour_ms, 7 * 24 * hour_ms),
            HistoryStep::Day => (Resolution::Hour, 24 * hour_ms, 30 * 24 * hour_ms),
        };
        for (name, at_ms) in [("from", from_ms), ("to", to_ms)] {
            if at_ms.is_some_and(|at_ms| at_ms > TIME_MS_MAX) {
                return Err(Error::field(name, TOO_LATE));
            }
        }
        let to_ms = to_ms.unwrap_or(now_ms + 1);
        let from_ms = from_ms.unwrap_or(to_ms.min(now_ms + 1).saturating_sub(usual_ms));
        if to_ms <= from_ms {
            return Err(Error::field("from", "must be before `to`"));
        }
        let from_ms = from_ms - from_ms % step_ms;
        if to_ms - from_ms > resolution.kept_ms() {
            let most = match resolution {
                Resolution::Minute => "25 hours",
                Resolution::Hour => "31 days",
            };
            return Err(Error::field("from", format!("with this step at most {most} can be asked for")));
        }
        // Servers write a minute after its end. A longer step may be incomplete, so the running one appears too.
        let ended_ms = match step {
            HistoryStep::Minute => resolution.window_of(now_ms.saturating_sub(HISTORY_LATE_MS)),
            _ => now_ms + 1,
        };
        Ok(Self { from_ms, to_ms: to_ms.min(ended_ms), step_ms, resolution })
    }

    fn points(&self, windows: Vec<(u64, Point)>) -> Vec<HistoryPoint> {
        let mut steps: HashMap<u64, Point> = HashMap::new();
        for (at_ms, point) in windows {
            steps.entry(at_ms - at_ms % self.step_ms).or_default().add(&point);
        }
        let starts = (self.from_ms..self.to_ms).step_by(usize::try_from(self.step_ms).unwrap_or(usize::MAX));
        starts
            .map(|from_ms| HistoryPoint { from_ms, values: steps.get(&from_ms).map(HistoryValues::from) })
            .collect()
    }
}

impl Control {
    pub(crate) async fn history(
        &self,
        caller: &Caller,
        at: &BrokerRef,
        span: HistorySpan,
    ) -> Result<MetricsHistory> {
        let now_ms = self.now_ms();
        let range = HistoryRange::of(span, now_ms)?;
        let HistoryRange { from_ms, to_ms, resolution, .. } = range;
        let oldest_ms = resolution.window_of(now_ms).saturating_sub(resolution.kept_ms());
        let windows = self
            .look(|tx| async move {
                let broker = brokers::find(&tx, caller, at, Permission::ClientsRead, Read::Snapshot).await?;
                let from_ms = from_ms.max(oldest_ms);
                if to_ms <= from_ms {
                    return Ok(Vec::new());
                }
                let to_ms = resolution.window_of(to_ms - 1) + resolution.window_ms();
                Ok(metering::history(&tx, broker.id, resolution, from_ms, to_ms).await?)
            })
            .await?;
        Ok(MetricsHistory { step: span.step, step_ms: range.step_ms, points: range.points(windows) })
    }

    /// For the sweep: removes old points and dead letters of the next brokers in order of names, and repairs counters that an earlier build
    /// did not have. Returns the name to continue with, `None` after the last one.
    pub async fn forget_history(&self, from: Option<&[u8]>) -> Result<Option<Vec<u8>>> {
        let now_ms = self.now_ms();
        let page =
            self.look(|tx| async move { Ok(catalog::list(&tx, from, HISTORY_BROKERS).await?) }).await?;
        for id in page.iter().map(|broker| broker.id) {
            let cleaned = async {
                self.write(|tx| async move { Ok(metering::forget_history(&tx, id, now_ms).await?) }).await?;
                self.write(|tx| async move { Ok(webhooks::forget_dead_letters(&tx, id, now_ms).await?) })
                    .await?;
                self.write(|tx| async move { Ok(recount::recount(&tx, id).await?) }).await
            };
            if let Err(error) = of_one_tenant(cleaned.await)? {
                warn!(%error, broker = id, "old metrics or dead letters of a broker could not be removed; a later round tries again");
            }
        }
        let has_more = page.len() == HISTORY_BROKERS;
        Ok(page.last().filter(|_| has_more).map(|last| last.name.to_vec()))
    }
}
