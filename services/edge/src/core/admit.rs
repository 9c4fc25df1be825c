//! Admission of CONNECTs: those over the rate wait here unread, or are refused later.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::sync::Arc;

use millrace_mqtt::{Connect, ReasonCode};

use super::authenticate::Absent;
use super::connect_times::Measured;
use super::connection::{ConnectRequest, NONE, Paused};
use super::{Core, limits, work};
use crate::admission::{Admission, AdmissionAnswer, AdmissionOutcome, AdmissionRefusal};
use crate::broker::{Broker, OVER_CAP};
use crate::clock::Millis;
use crate::connection_id::ConnectionId;
use crate::home::HomeClaim;
use crate::incidents::{NewIncident, StoredIncidentKind};
use crate::incomplete_packets::OverLimit;
use crate::limits::EdgeLimits;
use crate::memory::Pressure;
use crate::metrics::Count;
use crate::quota::Limit;
use crate::quota::limiter::nanos;

/// In the admission queue: all brokers whose number is not known take turns as one.
const UNKNOWN_BROKER: u64 = u64::MAX;
const TOO_MANY_CONNECT: &str = "too many clients are connecting: try again later";

pub(super) struct Connects {
    pub(super) admission: Admission<ConnectionId>,
    /// The admission decision for the CONNECT that is processed again now: no refusal admits it, and `refuse_unadmitted` takes
    /// one.
    pub(super) verdict: Option<(ConnectionId, Option<AdmissionRefusal>)>,
    /// The broker of the CONNECT that is processed now.
    pub(super) broker: Option<Arc<Broker>>,
    /// Connections that wait for a broker to be read, by its name.
    pub(super) opening: HashMap<Arc<str>, Vec<ConnectionId>>,
    /// Names of brokers that the store did not have, and when it must be asked again.
    pub(super) absent: HashMap<Arc<str>, (Absent, Millis)>,
    /// Connections that wait for their session, by client id.
    pub(super) attaching: HashMap<(u64, Arc<str>), Attaching>,
    /// Connections without a CONNACK yet.
    pub(super) times: Measured,
    /// Accepted connections, the oldest first, of which the first has no session yet.
    pub(super) strangers: VecDeque<ConnectionId>,
}

pub(super) struct Attaching {
    /// Later connections with the same client id.
    pub(super) waiting: VecDeque<ConnectionId>,
    /// Outlives the connection, which may be gone before the store has answered.
    pub(super) claim: Option<HomeClaim>,
}

impl Connects {
    pub(super) fn new(limits: &EdgeLimits, cores: usize, now: Millis) -> Self {
        Self {
            admission: Admission::new(limits, cores, now),
            verdict: None,
            broker: None,
            opening: HashMap::new(),
            absent: HashMap::new(),
            attaching: HashMap::new(),
            strangers: VecDeque::new(),
            times: Measured::default(),
        }
    }
}

impl Core {
    /// Whether a CONNECT of `bytes` bytes is processed now, not again later.
    pub(super) fn is_admitted(
        &mut self,
        slot: u32,
        broker: &Arc<Broker>,
        connect: &Connect<'_>,
        bytes: usize,
    ) -> bool {
        let id = self.id_of(slot);
        if self.connects.verdict.is_some_and(|(of, _)| of == id) || self.process.drain.get().is_some() {
            return true;
        }
        let (now, random, keeps_up) = (self.now_ms, self.random(id), self.keeps_up());
        let refusal = match () {
            () if self.process.memory.pressure() >= Pressure::Connections => Some(AdmissionRefusal::Busy),
            () if broker.is_over_cap() => Some(AdmissionRefusal::SpendCap),
            () if self.is_over_quota(broker, connect.client_id) => Some(AdmissionRefusal::BrokerConnections),
            () if !broker.quota.take_connect(nanos(now)) => Some(AdmissionRefusal::BrokerConnects),
            () => None,
        };
        let asked = match refusal {
            Some(refusal) => self.connects.admission.refuse(id, refusal, bytes, now, random),
            None => self.connects.admission.ask(id, broker.id, bytes, keeps_up, now, random),
        };
        match asked {
            AdmissionAnswer::Admitted => {}
            AdmissionAnswer::Waits => {
                self.broker_counters(broker).waited.add(1);
                self.connections[slot as usize].paused = Paused::ForAdmission;
            }
            AdmissionAnswer::Refused(refusal) => {
                self.counters().refused_unspread.add(1);
                self.connects.verdict = Some((id, Some(refusal)));
            }
        }
        asked != AdmissionAnswer::Waits
    }

    /// Whether the store may be asked for the broker of a CONNECT of `bytes` bytes. If not, the CONNECT is processed
    /// again later, or refused now. Clients of unknown brokers take turns with those of known brokers, as if theirs
    /// were one broker.
    pub(super) fn may_look_up(&mut self, slot: u32, name: &str, bytes: usize) -> bool {
        let id = self.id_of(slot);
        if let Some((_, refusal)) = self.connects.verdict.filter(|(of, _)| *of == id) {
            return refusal.is_none();
        }
        let (now, random, keeps_up) = (self.now_ms, self.random(id), self.keeps_up());
        let broker = self.process.brokers.closed_number(name).unwrap_or(UNKNOWN_BROKER);
        // An opened broker takes memory for minutes.
        let asked = match self.process.memory.pressure() >= Pressure::Connections {
            true => self.connects.admission.refuse(id, AdmissionRefusal::Busy, bytes, now, random),
            false => self.connects.admission.ask(id, broker, bytes, keeps_up, now, random),
        };
        match asked {
            AdmissionAnswer::Admitted => return true,
            AdmissionAnswer::Waits => self.connections[slot as usize].paused = Paused::ForAdmission,
            AdmissionAnswer::Refused(refusal) => {
                self.counters().refused_unspread.add(1);
                self.connects.verdict = Some((id, Some(refusal)));
            }
        }
        false
    }

    pub(super) fn is_refused(&self, slot: u32) -> bool {
        let id = self.id_of(slot);
        self.connects.verdict.is_some_and(|(of, refusal)| of == id && refusal.is_some())
    }

    pub(super) fn admit_waiting(&mut self) {
        let end = self.end_of_resuming();
        while self.work.spent() < end && !self.connects.admission.is_idle() {
            self.spend(work::SEEN);
            let waits = |id: &ConnectionId| {
                let connection = self.connections.get(id.slot as usize);
                connection.filter(|connection| connection.generation == id.generation).is_some_and(
                    |connection| connection.paused == Paused::ForAdmission && !connection.read_closed,
                )
            };
            let keeps_up = self.keeps_up();
            let Some((id, verdict)) = self.connects.admission.next(keeps_up, self.now_ms, waits) else {
                return;
            };
            match verdict {
                AdmissionOutcome::Admitted => self.decide(id, None),
                AdmissionOutcome::Refused(refusal) => self.decide(id, Some(refusal)),
                AdmissionOutcome::Gone => self.decide_gone(id),
            }
        }
    }

    pub(super) fn decide(&mut self, id: ConnectionId, refusal: Option<AdmissionRefusal>) {
        self.connects.verdict = Some((id, refusal));
        self.resume(id);
    }

    fn decide_gone(&mut self, id: ConnectionId) {
        if self.connection_of(id).is_some_and(|connection| connection.paused == Paused::ForAdmission) {
            self.end(id.slot, super::ConnectionEnd::Lost, false);
        }
    }

    pub(super) fn refuse_unadmitted(&mut self, slot: u32, broker: &Arc<Broker>, client_id: &str) -> bool {
        let id = self.id_of(slot);
        let Some((_, Some(refusal))) = self.connects.verdict.take_if(|(of, _)| *of == id) else {
            return false;
        };
        let counters = self.broker_counters(broker);
        let (counter, reason, what) = match refusal {
            AdmissionRefusal::Rate => {
                (&counters.refused_rate, ReasonCode::CONNECTION_RATE_EXCEEDED, TOO_MANY_CONNECT)
            }
            AdmissionRefusal::BrokerConnects => {
                (&counters.refused_broker_rate, ReasonCode::CONNECTION_RATE_EXCEEDED, TOO_MANY_CONNECT)
            }
            AdmissionRefusal::Busy => (
                &counters.refused_busy,
                ReasonCode::SERVER_BUSY,
                "the server is behind with those that are connecting: try again later",
            ),
            AdmissionRefusal::BrokerConnections => (
                &counters.refused_quota,
                ReasonCode::QUOTA_EXCEEDED,
                "the broker has as many connections as it may have",
            ),
            AdmissionRefusal::SpendCap => (&counters.refused_spend_cap, ReasonCode::QUOTA_EXCEEDED, OVER_CAP),
        };
        counter.add(1);
        let limit = match refusal {
            AdmissionRefusal::BrokerConnections => Some(Limit::BrokerConnections),
            AdmissionRefusal::BrokerConnects => Some(Limit::BrokerConnects),
            AdmissionRefusal::Rate | AdmissionRefusal::Busy | AdmissionRefusal::SpendCap => None,
        };
        match limit {
            Some(limit) => self.reached_by(broker, limit, Some(client_id), None),
            None => {
                self.note(
                    broker,
                    &NewIncident::new(StoredIncidentKind::ConnectRefused, "", what).of(client_id, None),
                    1,
                );
            }
        }
        self.refuse(slot, reason, what);
        true
    }

    fn keeps_up(&self) -> bool {
        self.connects.attaching.len() < limits::ATTACHING_MAX
    }

    /// A client that takes over its own connection does not add one.
    fn is_over_quota(&self, broker: &Arc<Broker>, client_id: &str) -> bool {
        let connected = Count::sum(broker.counters.iter().map(|counters| &counters.connected));
        connected >= broker.quota.connections_max(self.process.limits.connections_per_broker_max)
            && self
                .session_of(broker, client_id)
                .is_none_or(|session| self.sessions[session as usize].connection == NONE)
    }

    /// A number that nobody can predict, another one for each connection.
    fn random(&self, id: ConnectionId) -> u32 {
        (self.process.owners.hash_one((id.core, id.slot, id.generation)) >> 32) as u32
    }

    /// Charges the memory of a CONNECT, because a stranger may take long to authenticate; false: the client was refused.
    pub(super) fn charge_connect(
        &mut self,
        slot: u32,
        request: &mut ConnectRequest,
        connect: &Connect<'_>,
    ) -> bool {
        let will = request.will.as_ref().map_or(0, |(will, _)| will.size());
        let names = connect.client_id.len() + connect.user_name.map_or(0, str::len);
        let bytes = will + names + connect.password.map_or(0, <[u8]>::len);
        match self.process.memory.input.charge(None, bytes) {
            Ok(charge) => request.charge = charge,
            Err(OverLimit) => {
                self.counters().refused_input.add(1);
                let what =
                    "clients that authenticate exceed their memory limit: send a shorter will or password";
                self.refuse(slot, ReasonCode::QUOTA_EXCEEDED, what);
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests;
