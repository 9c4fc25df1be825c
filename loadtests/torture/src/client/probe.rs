//! A role without a session: it connects again and again, subscribes to the retained messages, and records which of
//! them arrive. It pauses in [`Phase::Finale`], whose publishes may still change the retained messages.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use super::role::{Identity, Io, Leave, Role, Start, Way};
use super::subscriber::record_publication;
use crate::packet::{self, Ack, Packet, Publication};
use crate::stage::{Phase, Stage};
use fastrand::Rng;
use millrace_torture::history::Event;

pub(crate) const RETAINED_FILTER: &str = "ret/#";
/// Time after the SUBACK or the last retained message without a further one; the checker then decides whether some are lost.
const QUIET_MS_MAX: u64 = 5_000;
/// Time between two connections.
const AWAY_MS: Range<u64> = 100..500;

#[derive(Default)]
pub(crate) struct Probe {
    /// The topics that must still arrive.
    owed: Option<BTreeSet<Arc<str>>>,
    /// Time of the SUBACK, or of the last retained message after it.
    quiet_since_ms: Option<u64>,
    refused: bool,
    has_checked_in_closing: bool,
}

impl Role for Probe {
    fn begin(&mut self, _stage: &mut Stage, _me: &mut Identity, _rng: &mut Rng) -> Start {
        Start { clean: true, will: None }
    }

    fn connected(&mut self, io: &mut Io<'_>, _session_present: bool) {
        self.owed = Some(io.stage.retained.clone());
        (self.quiet_since_ms, self.refused) = (None, false);
        let (connection, filter) = (io.link.connection, RETAINED_FILTER.to_owned());
        io.link.send(&packet::subscribe(io.me.v5, 1, &filter, 2));
        io.stage.record(Event::SubscribeSent { connection, filter, qos: 2 });
    }

    fn packet(&mut self, io: &mut Io<'_>, packet: Packet<'_>) {
        let connection = io.link.connection;
        match packet {
            Packet::SubAck { reason: 2, .. } => {
                self.quiet_since_ms = Some(io.stage.now_ms);
                io.stage.record(Event::Subscribed { connection, filter: RETAINED_FILTER.to_owned() });
            }
            // The server refuses the filter while the store does not answer.
            Packet::SubAck { .. } => self.refused = true,
            Packet::Publish(publication) => {
                record_publication(io, publication);
                let Publication { topic, qos, retain, packet_id, .. } = publication;
                match qos {
                    1 => io.link.send(&packet::ack(Ack::PubAck, packet_id)),
                    2 => io.link.send(&packet::ack(Ack::PubRec, packet_id)),
                    _ => {}
                }
                if let (true, Some(owed)) = (retain, &mut self.owed) {
                    owed.retain(|wanted| wanted.as_bytes() != topic);
                    self.quiet_since_ms = self.quiet_since_ms.map(|_| io.stage.now_ms);
                }
            }
            Packet::Ack { kind: Ack::PubRel, packet_id, .. } => {
                io.stage.record(Event::Released { connection, packet_id });
                io.link.send(&packet::ack(Ack::PubComp, packet_id));
            }
            _ => {}
        }
    }

    fn tick(&mut self, io: &mut Io<'_>) -> Option<Leave> {
        if self.refused {
            return Some(Leave { way: Way::Disconnect, away_ms: io.rng.u64(AWAY_MS) });
        }
        let quiet_since_ms = self.quiet_since_ms?;
        let seen_all = self.owed.as_ref().is_some_and(BTreeSet::is_empty);
        if !seen_all && io.stage.now_ms < quiet_since_ms + QUIET_MS_MAX {
            return None;
        }
        io.stage.record(Event::Probed { connection: io.link.connection });
        self.has_checked_in_closing = io.stage.phase == Phase::Closing;
        Some(Leave { way: Way::Disconnect, away_ms: io.rng.u64(AWAY_MS) })
    }

    fn wants_to_connect(&self, stage: &Stage) -> bool {
        match stage.phase {
            Phase::Storm => true,
            Phase::Finale => false,
            Phase::Closing => !self.has_checked_in_closing,
        }
    }

    fn is_settled(&self, stage: &Stage) -> bool {
        stage.phase == Phase::Finale || self.has_checked_in_closing
    }
}
