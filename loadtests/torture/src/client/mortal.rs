//! A role that leaves wills. Each life is a new client id, and each connection has a will of its
//! own.

use std::ops::Range;
use std::sync::Arc;

use super::role::{Identity, Io, Leave, Role, Start, Way, any_way};
use crate::packet::Packet;
use crate::stage::{Phase, Stage};
use fastrand::Rng;
use millrace_torture::history::{ClientInfo, MessageKind};

/// Will Delay Intervals (MQTT 5.0), seconds.
const DELAYS_S: [u32; 4] = [0, 1, 1, 2];
/// Mostly QoS 2, because only there "published twice" is exact.
const QOS: [u8; 3] = [1, 2, 2];
const RESUMES_MAX: u32 = 2;
const STAYS_MS: Range<u64> = 100..1_200;
const BETWEEN_LIVES_MS: Range<u64> = 20..400;
/// When a client returns, in percent of its delay: mostly in time, sometimes too late.
const BACK_PERCENT: Range<u64> = 0..125;
/// When a client without a delay returns, ms.
const BACK_MS: Range<u64> = 0..150;

pub(crate) struct Mortal {
    name: String,
    topic: Arc<str>,
    lives: u32,
    wills: u32,
    /// The next CONNECT begins a new life.
    over: bool,
    persistent: bool,
    v5: bool,
    delay_s: u32,
    resumes: u32,
    leave_at_ms: u64,
}

impl Mortal {
    /// Uses only 3.1.1 unless `v5`.
    pub(crate) fn new(name: String, v5: bool) -> Self {
        let topic = Arc::from(format!("will/{name}"));
        Self {
            name,
            topic,
            lives: 0,
            wills: 0,
            over: true,
            persistent: false,
            v5,
            delay_s: 0,
            resumes: 0,
            leave_at_ms: 0,
        }
    }

    fn new_life(&mut self, stage: &mut Stage, me: &mut Identity, rng: &mut Rng) {
        self.over = false;
        self.delay_s = if self.v5 { DELAYS_S[rng.usize(0..DELAYS_S.len())] } else { 0 };
        // Without a session the will is published at once, whatever its delay.
        self.persistent = self.delay_s > 0 || rng.bool();
        self.resumes = rng.u32(0..=RESUMES_MAX);
        let name = format!("{}-{}", self.name, self.lives);
        self.lives += 1;
        let info = ClientInfo { name: name.clone(), v5: self.v5, persistent: self.persistent };
        *me = Identity { id: stage.history.client(info), name, v5: self.v5, persistent: self.persistent };
    }

    fn back_after_ms(&self, rng: &mut Rng) -> u64 {
        if self.delay_s == 0 {
            return rng.u64(BACK_MS);
        }
        u64::from(self.delay_s) * 10 * rng.u64(BACK_PERCENT)
    }

    fn end(&mut self, rng: &mut Rng) -> Leave {
        self.over = true;
        let v3 = [Way::Cut, Way::Cut, Way::HalfPacket, Way::Disconnect, Way::Disconnect];
        let ways = if self.v5 { [&v3[..], &[Way::DisconnectWithWill]].concat() } else { v3.to_vec() };
        Leave { way: any_way(rng, &ways), away_ms: rng.u64(BETWEEN_LIVES_MS) }
    }
}

impl Role for Mortal {
    fn begin(&mut self, stage: &mut Stage, me: &mut Identity, rng: &mut Rng) -> Start {
        if self.over {
            self.new_life(stage, me, rng);
        }
        let kind = MessageKind::Will { delay_ms: u64::from(self.delay_s) * 1_000 };
        let qos = QOS[rng.usize(0..QOS.len())];
        let will = stage.history.message(me.id, &self.topic, qos, self.wills, kind).id;
        self.wills += 1;
        Start { clean: !self.persistent, will: Some((will, self.delay_s)) }
    }

    fn connected(&mut self, io: &mut Io<'_>, _session_present: bool) {
        self.leave_at_ms = io.stage.now_ms + io.rng.u64(STAYS_MS);
    }

    fn packet(&mut self, _io: &mut Io<'_>, _packet: Packet<'_>) {}

    fn tick(&mut self, io: &mut Io<'_>) -> Option<Leave> {
        if io.stage.phase > Phase::Storm {
            return Some(self.end(io.rng));
        }
        if io.stage.now_ms < self.leave_at_ms {
            return None;
        }
        if self.resumes == 0 {
            return Some(self.end(io.rng));
        }
        self.resumes -= 1;
        if any_way(io.rng, &[Way::Cut, Way::Cut, Way::TakeOver]) == Way::TakeOver {
            return Some(Leave { way: Way::TakeOver, away_ms: 0 });
        }
        Some(Leave { way: Way::Cut, away_ms: self.back_after_ms(io.rng) })
    }

    fn lost(&mut self, rng: &mut Rng) -> Option<u64> {
        self.over = self.over || rng.bool();
        Some(if self.over { rng.u64(BETWEEN_LIVES_MS) } else { self.back_after_ms(rng) })
    }

    /// At the end no life begins or continues.
    fn wants_to_connect(&self, stage: &Stage) -> bool {
        stage.phase == Phase::Storm
    }

    fn is_settled(&self, stage: &Stage) -> bool {
        stage.phase > Phase::Storm
    }
}
