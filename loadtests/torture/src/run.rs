//! A run: kills the server, starts it again, lets the clients reconnect, and lets them finish at the end.

use std::process::Command;
use std::time::Duration;

use fastrand::Rng;
use mio::{Events, Poll};

use crate::client::{Client, Ghost};
use crate::clock;
use crate::failure::{Failure, Outcome, While};
use crate::hazards::{Hazard, HazardArgs, HazardCounts, Hazards};
use crate::link::Reading;
use crate::scenario;
use crate::server::{Home, Server};
use crate::stage::{Phase, Stage};
use millrace_torture::checker::{self, CheckRule, Verdict};
use millrace_torture::history::{End, Event, History};

/// Longest wait for the sockets before the clients' plans are checked, ms.
const TURN_MS: u64 = 5;
const EVENTS_MAX: usize = 256;
/// Time between all clients being connected and the kill, ms.
const KILL_AFTER_MS: std::ops::Range<u64> = 50..1_500;
/// One kill in this many comes while the clients reconnect, this soon after the start.
const HASTY_EVERY: u32 = 8;
const HASTY_MS: std::ops::Range<u64> = 0..40;
/// About the duration of a kill with its restart, ms. Subscriptions that begin during the run are planned with it.
const ROUND_MS: u64 = 1_000;
const CONNECT_MS_MAX: u64 = 30_000;
/// Time in which the sockets of a killed server must end, ms.
const DEATH_MS_MAX: u64 = 5_000;
/// Time in which a connection that was taken over, or that sent DISCONNECT, must be closed, ms.
const GHOST_MS_MAX: u64 = 10_000;
/// A killed store must accept messages again within this time, ms.
const STORE_BACK_MS_MAX: u64 = 30_000;
/// Enough acknowledgements to prove that the store is back: more than can have been in flight.
const STORE_BACK_ACKNOWLEDGED: usize = 50;
/// Every request must be answered within this time at the end, ms.
const SETTLE_MS_MAX: u64 = 60_000;
/// Time without events after which nothing more is expected at the end, ms.
const QUIET_MS: u64 = 2_000;
/// A planted failure must happen within this time, ms: the clients publish all the time.
const HAPPENS_MS_MAX: u64 = 60_000;
/// The server must store again within this time after the disk was healed, ms.
const HEALED_MS_MAX: u64 = 60_000;
/// Time from a failure to a kill or to the healing of the disk, ms.
const TROUBLE_MS: std::ops::Range<u64> = 0..1_500;
const HAZARDS: [Hazard; 3] = [Hazard::WriteError, Hazard::SyncError, Hazard::FullDisk];
const CLOSING_MS_MAX: u64 = 120_000;

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) kills: u32,
    pub(crate) pods: usize,
    pub(crate) seed: u64,
    pub(crate) calm_ms: u64,
    pub(crate) ends_ms: u64,
    pub(crate) patience_ms: u64,
    pub(crate) kill_store: Option<Vec<String>>,
    pub(crate) hazards: HazardArgs,
}

pub(crate) struct Run {
    home: Home,
    servers: Vec<Option<Server>>,
    /// How often each pod was started under another name.
    renamed: Vec<u32>,
    stage: Stage,
    clients: Vec<Client>,
    ghosts: Vec<Ghost>,
    takes_over_in_time: bool,
    poll: Poll,
    events: Events,
    rng: Rng,
}

/// The server must hide a kill of the store, except for a delay.
fn kill_store(command: &[String]) -> Outcome<()> {
    let what = "killing the store";
    let [program, arguments @ ..] = command else { return Err(Failure::new(what)) };
    let status = Command::new(program).args(arguments).status().during(what)?;
    if status.success() { Ok(()) } else { Err(Failure::new(format!("{what}: {status}"))) }
}

impl Run {
    pub(crate) fn new(home: Home, plan: &Plan) -> Outcome<Self> {
        let mut stage = Stage::new();
        let storm_ms = plan.calm_ms.max(u64::from(plan.kills) * ROUND_MS);
        let clients = scenario::clients(&mut stage, plan.seed, storm_ms);
        let poll = Poll::new().during("making a poll")?;
        let (ghosts, events) = (Vec::new(), Events::with_capacity(EVENTS_MAX));
        // Independent of the clients' random numbers.
        let rng = Rng::with_seed(!plan.seed);
        let servers = (0..plan.pods).map(|_| None).collect();
        let renamed = vec![0; plan.pods];
        let takes_over_in_time = plan.kill_store.is_none() && !plan.hazards.delays_takeovers();
        Ok(Self { home, servers, renamed, stage, clients, ghosts, takes_over_in_time, poll, events, rng })
    }

    pub(crate) fn history(&self) -> &History {
        &self.stage.history
    }

    /// `say` gets one line for each kill.
    pub(crate) fn go(&mut self, plan: &Plan, say: &mut dyn FnMut(&str)) -> Outcome<Verdict> {
        self.start()?;
        let back_ms = self.everybody_connects()?;
        say(&format!("{} clients connected in {back_ms} ms", self.clients.len()));
        let mut calm_ms = self.rng.u64(KILL_AFTER_MS);
        for kill in 1..=plan.kills {
            self.until(calm_ms, |_| false)?;
            if let Some(command) = plan.kill_store.as_deref().filter(|_| kill % 2 == 0) {
                kill_store(command)?;
                // The server stores in order of arrival, so everything acknowledged earlier is then stored.
                let before = self.stage.acknowledged;
                self.until(STORE_BACK_MS_MAX, |run| {
                    run.stage.acknowledged >= before + STORE_BACK_ACKNOWLEDGED
                })?;
                calm_ms = self.rng.u64(KILL_AFTER_MS);
                let Stage { acknowledged, received, .. } = self.stage;
                say(&format!(
                    "kill {kill}/{}: of the store; {acknowledged} acknowledged, {received} received",
                    plan.kills
                ));
                continue;
            }
            let planted = self.disturb()?;
            self.kill()?;
            let lost = self.home.hazards.as_mut().map_or(Ok(String::new()), Hazards::after_kill)?;
            let start_ms = self.start()?;
            let back = if self.rng.u32(0..HASTY_EVERY) == 0 {
                calm_ms = self.rng.u64(HASTY_MS);
                "not waited for".to_owned()
            } else {
                calm_ms = self.rng.u64(KILL_AFTER_MS);
                format!("all connected in {} ms", self.everybody_connects()?)
            };
            let Stage { acknowledged, received, now_ms, .. } = self.stage;
            let what = [planted, lost].into_iter().filter(|what| !what.is_empty()).map(|what| what + "; ");
            let what: String = what.collect();
            say(&format!(
                "kill {kill}/{}: {what}{acknowledged} acknowledged, {received} received; up in {start_ms} ms, {back}",
                plan.kills
            ));
            if now_ms > plan.ends_ms {
                say("the time is over");
                break;
            }
        }
        if plan.kills == 0 {
            self.until(plan.calm_ms, |_| false)?;
        }
        if self.home.hazards.as_ref().map_or(Ok(false), Hazards::catch_up)? {
            // A server reads the time of day when it starts.
            self.kill()?;
            self.start()?;
        }
        if let Some(hazards) = &self.home.hazards {
            hazards.heal()?;
        }
        let mut verdict = self.finish(plan)?;
        if let Some(hazards) = &mut self.home.hazards {
            hazards.finish()?;
        }
        if plan.hazards.moves_clock() {
            // A delay that spans a restart ends by the time of day, which may have jumped ahead.
            verdict.violations.retain(|violation| violation.rule != CheckRule::WillEarly);
        }
        if plan.kill_store.is_some() || plan.hazards.allows_refusals() {
            // A server without its store refuses clients, and says so.
            verdict
                .violations
                .retain(|violation| !matches!(violation.rule, CheckRule::Refused | CheckRule::Closed));
        }
        Ok(verdict)
    }

    fn start(&mut self) -> Outcome<u64> {
        let begin_ms = clock::now_ms();
        for pod in 0..self.servers.len() {
            if self.servers[pod].is_none() {
                let server = self.home.start(&format!("torture-{pod}-{}", self.renamed[pod]))?;
                self.stage.up.push((pod, server.address));
                self.servers[pod] = Some(server);
            }
        }
        self.stage.now_ms = clock::now_ms();
        self.stage.record(Event::Up);
        Ok(self.stage.now_ms - begin_ms)
    }

    pub(crate) fn hazard_counts(&self) -> Option<HazardCounts> {
        self.home.hazards.as_ref().map(Hazards::counts)
    }

    /// Plants failures and waits until the planted one has happened. Half of the kills come then, the others once the
    /// disk is healed and the server stores again.
    fn disturb(&mut self) -> Outcome<String> {
        let Some(hazards) = &mut self.home.hazards else { return Ok(String::new()) };
        let before = HAZARDS.map(|hazard| hazards.happened(hazard).unwrap_or_default());
        let (hazard, mut said) = hazards.plant()?;
        let heals = hazards.coin();
        let Some(hazard) = hazard else { return Ok(said) };
        let before = before[hazard as usize];
        let happened = |run: &mut Self| {
            run.home
                .hazards
                .as_ref()
                .is_some_and(|hazards| hazards.happened(hazard).is_ok_and(|now| now > before))
        };
        if !self.until(HAPPENS_MS_MAX, happened)? {
            return Err(Failure::new(format!("planted, and did not happen: {said}")));
        }
        let trouble_ms = self.rng.u64(TROUBLE_MS);
        self.until(trouble_ms, |_| false)?;
        if heals {
            if let Some(hazards) = &self.home.hazards {
                hazards.heal()?;
            }
            let before = self.stage.acknowledged;
            let enough = before + STORE_BACK_ACKNOWLEDGED;
            if !self.until(HEALED_MS_MAX, |run| run.stage.acknowledged >= enough)? {
                return Err(Failure::new(format!(
                    "no messages are stored after the disk was healed: {said}"
                )));
            }
            said += ", healed";
        }
        Ok(said)
    }

    fn kill(&mut self) -> Outcome<()> {
        let pod = if self.servers.len() > 1 { self.rng.usize(..self.servers.len()) } else { 0 };
        self.stage.record(Event::Kill { pod });
        self.stage.up.retain(|(up, _)| *up != pod);
        if let Some(server) = self.servers[pod].take() {
            server.kill()?;
        }
        // Other pods recover a pod that does not return; a pod that returns recovers its own sessions.
        if self.servers.len() > 1 && self.rng.bool() {
            self.renamed[pod] += 1;
        }
        // Packets that the server had sent are still in the sockets, and count.
        let gone = self.until(DEATH_MS_MAX, |run| {
            run.ghosts.iter().all(|ghost| ghost.link.pod != pod)
                && run.clients.iter().all(|client| !client.is_at(pod))
        })?;
        if gone { Ok(()) } else { Err(Failure::new("the sockets of the killed server do not end")) }
    }

    fn everybody_connects(&mut self) -> Outcome<u64> {
        let begin_ms = self.stage.now_ms;
        // Each client that was connected once counts, because clients come and go.
        let mut waiting: Vec<bool> =
            self.clients.iter().map(|client| !client.is_where_it_wants(&self.stage)).collect();
        let all = self.until(CONNECT_MS_MAX, |run| {
            for (waits, client) in waiting.iter_mut().zip(&run.clients) {
                *waits = *waits && !client.is_where_it_wants(&run.stage);
            }
            !waiting.contains(&true)
        })?;
        if all {
            return Ok(self.stage.now_ms - begin_ms);
        }
        let names =
            self.clients.iter().zip(waiting).filter(|(_, waits)| *waits).map(|(client, _)| client.name());
        let names = names.collect::<Vec<_>>().join(", ");
        Err(Failure::new(format!("no CONNACK within {CONNECT_MS_MAX} ms for {names}")))
    }

    /// Clients finish their open exchanges, then the run waits for everything in flight.
    fn finish(&mut self, plan: &Plan) -> Outcome<Verdict> {
        self.stage.phase = Phase::Finale;
        self.stage.record(Event::Finale);
        let settled = |run: &mut Self| run.clients.iter().all(|client| client.is_settled(&run.stage));
        // Requests that are still open then are reported as unanswered.
        self.until(SETTLE_MS_MAX, settled)?;
        self.stage.phase = Phase::Closing;
        let ends_ms = self.stage.now_ms + CLOSING_MS_MAX;
        let mut quiet_ms = QUIET_MS;
        let mut patient = false;
        loop {
            let left_ms = ends_ms.saturating_sub(self.stage.now_ms);
            let quiet =
                self.until(left_ms, |run| settled(run) && run.stage.now_ms >= run.stage.busy_ms + quiet_ms)?;
            let verdict = checker::check(&self.stage.history);
            let late = |rule| matches!(rule, CheckRule::Missing | CheckRule::WillLost);
            let missing = verdict.violations.iter().any(|violation| late(violation.rule));
            if !missing || !quiet || patient {
                return Ok(verdict);
            }
            patient = true;
            quiet_ms += plan.patience_ms;
        }
    }

    /// Turns until the condition holds or the time is over. Returns whether it holds.
    fn until(&mut self, at_most_ms: u64, mut done: impl FnMut(&mut Self) -> bool) -> Outcome<bool> {
        let ends_ms = clock::now_ms() + at_most_ms;
        loop {
            self.turn()?;
            if done(self) {
                return Ok(true);
            }
            if self.stage.now_ms >= ends_ms {
                return Ok(false);
            }
        }
    }

    fn turn(&mut self) -> Outcome<()> {
        let waited = self.poll.poll(&mut self.events, Some(Duration::from_millis(TURN_MS)));
        match waited {
            Err(error) if error.kind() != std::io::ErrorKind::Interrupted => {
                return Err(error).during("waiting for the sockets");
            }
            _ => {}
        }
        self.stage.now_ms = clock::now_ms();
        for server in self.servers.iter_mut().flatten() {
            self.home.check(server)?;
        }
        for event in &self.events {
            let is = |connection: u32| connection as usize == event.token().0;
            if let Some(client) =
                self.clients.iter_mut().find(|client| client.connection().is_some_and(|id| is(id.0)))
            {
                client.wake();
            }
        }
        for client in &mut self.clients {
            client.turn(&mut self.stage, self.poll.registry(), &mut self.ghosts);
        }
        self.lay_ghosts();
        Ok(())
    }

    fn lay_ghosts(&mut self) {
        let stage = &mut self.stage;
        let takes_over_in_time = self.takes_over_in_time;
        self.ghosts.retain_mut(|ghost| {
            let connection = ghost.link.connection;
            if ghost.link.drain() == Reading::Ended {
                stage.record(Event::HungUp { connection });
                return false;
            }
            let lingers = stage.now_ms >= ghost.since_ms + GHOST_MS_MAX;
            if lingers && ghost.taken_over && takes_over_in_time {
                stage.record(Event::Lingers { connection });
            }
            !lingers
        });
    }

    /// The record of a run that stopped early must be complete.
    pub(crate) fn stop(&mut self) {
        for connection in self.clients.iter().filter_map(Client::connection) {
            self.stage.record(Event::Ended { connection, end: End::Cut });
        }
        self.clients.clear();
        self.servers.clear();
    }
}
