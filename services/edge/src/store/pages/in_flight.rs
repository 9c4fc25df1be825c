//! The messages that were in flight when a session was detached.

use std::collections::HashMap;

use millrace_layers::streams::ReadLimit;
use millrace_layers::{LayerError, Position};
use millrace_mqtt::{PacketId, QoS};
use millrace_session::{InFlight, StoredPosition};

use super::super::AttachedSession;
use super::super::inflight::{InFlightRow, in_flight_entry};
use super::StreamReads;
use crate::jobs::FoundInFlight;

/// The in-flight messages of a session that is being attached, and the positions that it need not read again for
/// them.
pub(super) type ResolvedInFlight = (Vec<(PacketId, InFlight)>, Vec<Position>);

impl StreamReads<'_, '_> {
    /// Reads messages after those that are `known`. Returns false if some are left, because each that stands by itself takes a look into
    /// all streams.
    pub(super) async fn find_in_flight(
        &self,
        attached: &AttachedSession,
        known: &FoundInFlight,
    ) -> Result<(FoundInFlight, bool), LayerError> {
        let position = |row: &InFlightRow| match row {
            InFlightRow::InStream { position, .. } => Some(*position),
            _ => None,
        };
        let mut positions: Vec<StoredPosition> =
            attached.rows.iter().filter_map(|(_, row)| position(row)).collect();
        positions.sort_unstable();
        let mut found = FoundInFlight { messages: HashMap::new(), through: known.through };
        // In-flight messages mostly stand one behind the other.
        for at in &positions {
            if Position(*at) <= found.through {
                continue;
            }
            if found.through > known.through && self.work.get() == 0 {
                return Ok((found, false));
            }
            self.work.set(self.work.get().saturating_sub(self.read.sources.len()));
            let entries = positions.len() - known.messages.len() - found.messages.len();
            let limit = ReadLimit { entries, ..self.limit };
            let batch = self.stored(&self.read.sources, Position(*at).before(), limit).await?;
            found.through = batch.through;
            for entry in batch.entries {
                if positions.binary_search(&entry.position.0).is_ok() {
                    found.messages.insert(entry.position.0, self.message(&entry)?.0);
                }
            }
        }
        Ok((found, true))
    }
}

/// Trimmed messages are not in `found`.
pub(super) fn resolve(attached: &AttachedSession, found: [&FoundInFlight; 2]) -> ResolvedInFlight {
    let mut settled = Vec::new();
    let in_flight = attached.rows.iter().cloned().filter_map(|(id, row)| {
        let in_flight = match row {
            InFlightRow::Released(position) => InFlight::Released(position),
            InFlightRow::Whole(entry) => InFlight::Published(entry),
            InFlightRow::Unsent(entry) => InFlight::Unsent(entry),
            InFlightRow::InStream { position, qos, retain, identifiers } => {
                settled.push(Position(position));
                let message = found.iter().find_map(|found| found.messages.get(&position));
                let Some(message) = message.cloned() else {
                    // The message was trimmed, or its subscription ended. With QoS 2 the client may have the
                    // message, so it must release the packet id before the id is used for another one.
                    let released = (id, InFlight::Released(Some(position)));
                    return (qos == QoS::ExactlyOnce).then_some(released);
                };
                InFlight::Published(in_flight_entry(message, qos, retain, identifiers))
            }
        };
        if let InFlight::Released(Some(position)) = &in_flight {
            settled.push(Position(*position));
        }
        Some((id, in_flight))
    });
    let in_flight = in_flight.collect();
    (in_flight, settled)
}
