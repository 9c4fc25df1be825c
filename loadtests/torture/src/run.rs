//! A run: starts the server and the clients, kills and restarts the server again and again, lets
//! the clients finish, and has the checker judge the recorded history.

mod waits;

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
use crate::stage::Stage;
use millrace_torture::checker::{CheckRule, Verdict};
use millrace_torture::history::{End, Event, History};

/// Longest wait for the sockets before every client acts again, ms.
const TURN_MS: u64 = 5;
const EVENTS_MAX: usize = 256;
/// Milliseconds from the moment when all clients are connected to the kill.
const KILL_AFTER_MS: std::ops::Range<u64> = 50..1_500;
/// After one restart in this many, the next kill comes within this time (ms), so that it hits
/// reconnecting clients.
const HASTY_EVERY: u32 = 8;
const HASTY_MS: std::ops::Range<u64> = 0..40;
/// Estimated time between two kills, ms, which spreads late subscriptions over the run.
const ROUND_MS: u64 = 1_000;
const CONNECT_MS_MAX: u64 = 30_000;
const SOCKETS_END_MS_MAX: u64 = 5_000;
/// Milliseconds in which the server must close a connection that was taken over; after a DISCONNECT
/// it may take longer.
const GHOST_MS_MAX: u64 = 10_000;
/// Time in which a killed store must accept messages again, ms.
const STORE_BACK_MS_MAX: u64 = 30_000;
/// Acknowledgements that prove that the store is back: more than the 108 messages that all
/// publishers together have in flight.
const STORE_BACK_ACKNOWLEDGED: usize = 128;
/// Time without an answer that ends the wait for the clients' open exchanges before the closing phase, ms.
const SETTLE_MS_MAX: u64 = 60_000;
/// Time without arrivals that ends the closing phase, ms.
const QUIET_MS: u64 = 2_000;
const FAILURE_HAPPENS_MS_MAX: u64 = 60_000;
const STORES_AFTER_HEALING_MS_MAX: u64 = 60_000;
/// Time from a failure to a kill or to the healing of the disk, ms.
const TROUBLE_MS: std::ops::Range<u64> = 0..1_500;
/// In the order of the enum, whose values index it.
const HAZARDS: [Hazard; 3] = [Hazard::WriteError, Hazard::SyncError, Hazard::FullDisk];

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) kills: u32,
    pub(crate) pods: usize,
    pub(crate) seed: u64,
    /// Duration of the traffic in a run without kills.
    pub(crate) calm_ms: u64,
    /// Time since the start of the program after which no further kill comes.
    pub(crate) ends_ms: u64,
    /// Further time without arrivals after which a missing message counts as lost.
    pub(crate) patience_ms: u64,
    /// Longest closing phase, though messages still arrive.
    pub(crate) closing_ms: u64,
    /// Command that kills and restarts the store (`--fdb-kill`), in place of each second kill of the server.
    pub(crate) kill_store: Option<Vec<String>>,
    pub(crate) hazards: HazardArgs,
}

impl Plan {
    fn check_kills(&self, made: u32) -> Outcome<()> {
        if made * 4 < self.kills {
            return Err(Failure::NoVerdict(format!("only {made} of {} kills fitted the time", self.kills)));
        }
        Ok(())
    }

    /// Removes the violations that the planned failures cause in a correct server.
    pub(crate) fn excuse(&self, verdict: &mut Verdict) {
        if self.hazards.moves_clock() {
            // After a restart the server publishes a delayed will by the time of day, which may
            // have jumped ahead.
            verdict.violations.retain(|violation| violation.rule != CheckRule::WillEarly);
        }
        if self.kill_store.is_some() || self.hazards.allows_refusals() {
            // A server whose store fails may refuse messages and close connections.
            verdict
                .violations
                .retain(|violation| !matches!(violation.rule, CheckRule::Refused | CheckRule::Closed));
        }
    }
}

pub(crate) struct Run {
    home: Home,
    servers: Vec<Option<Server>>,
    /// How often each pod got a new name, which makes other pods recover its sessions.
    renamed: Vec<u32>,
    stage: Stage,
    clients: Vec<Client>,
    ghosts: Vec<Ghost>,
    /// False when failures of the disk or kills of the store excuse slow takeovers.
    takes_over_in_time: bool,
    /// The longest time between two turns since the current wait began: on a busy machine the server has no time either.
    slowest_turn_ms: u64,
    poll: Poll,
    events: Events,
    rng: Rng,
}

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
        // The seed differs from the clients' seed, so that kills do not depend on what clients do.
        let rng = Rng::with_seed(!plan.seed);
        let servers = (0..plan.pods).map(|_| None).collect();
        let renamed = vec![0; plan.pods];
        let takes_over_in_time = plan.kill_store.is_none() && !plan.hazards.delays_takeovers();
        let slowest_turn_ms = 0;
        Ok(Self {
            home,
            servers,
            renamed,
            stage,
            clients,
            ghosts,
            takes_over_in_time,
            slowest_turn_ms,
            poll,
            events,
            rng,
        })
    }

    pub(crate) fn history(&self) -> &History {
        &self.stage.history
    }

    /// The whole run; `say` prints progress.
    pub(crate) fn go(&mut self, plan: &Plan, say: &mut dyn FnMut(&str)) -> Outcome<Verdict> {
        self.start()?;
        let back_ms = self.await_clients()?;
        say(&format!("{} clients connected in {back_ms} ms", self.clients.len()));
        let mut calm_ms = self.rng.u64(KILL_AFTER_MS);
        for kill in 1..=plan.kills {
            self.until(calm_ms, |_| false)?;
            if let Some(command) = plan.kill_store.as_deref().filter(|_| kill % 2 == 0) {
                kill_store(command)?;
                self.await_store(STORE_BACK_MS_MAX, "the store was restarted")?;
                calm_ms = self.rng.u64(KILL_AFTER_MS);
                let Stage { acknowledged, received, .. } = self.stage;
                say(&format!(
                    "kill {kill}/{}: of the store; {acknowledged} acknowledged, {received} received",
                    plan.kills
                ));
                continue;
            }
            let planted = self.plant_hazards()?;
            self.kill()?;
            let lost = self.home.hazards.as_mut().map_or(Ok(String::new()), Hazards::after_kill)?;
            let start_ms = self.start()?;
            let back = if self.rng.u32(0..HASTY_EVERY) == 0 {
                calm_ms = self.rng.u64(HASTY_MS);
                "not waited for".to_owned()
            } else {
                calm_ms = self.rng.u64(KILL_AFTER_MS);
                format!("all connected in {} ms", self.await_clients()?)
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
                plan.check_kills(kill)?;
                break;
            }
        }
        if plan.kills == 0 {
            self.until(plan.calm_ms, |_| false)?;
        }
        self.heal()?;
        let verdict = self.finish(plan)?;
        if let Some(hazards) = &mut self.home.hazards {
            hazards.finish()?;
        }
        Ok(verdict)
    }

    fn heal(&mut self) -> Outcome<()> {
        if self.home.hazards.as_ref().map_or(Ok(false), Hazards::catch_up)? {
            // A restart, because only then the server reads the new time of day.
            self.kill()?;
            self.start()?;
        }
        self.home.hazards.as_ref().map_or(Ok(()), Hazards::heal)
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

    /// Plants the hazards that the options ask for, and waits until a failure of the disk has
    /// happened. In half of the calls it also heals the disk, and waits until the server
    /// acknowledges messages again.
    fn plant_hazards(&mut self) -> Outcome<String> {
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
        let patience_ms = self.home.patience_ms(FAILURE_HAPPENS_MS_MAX)?;
        if !self.until(patience_ms, happened)? {
            return Err(Failure::no_verdict(format!(
                "planted, and did not happen in {patience_ms} ms: {said}"
            )));
        }
        let trouble_ms = self.rng.u64(TROUBLE_MS);
        self.until(trouble_ms, |_| false)?;
        if heals {
            if let Some(hazards) = &self.home.hazards {
                hazards.heal()?;
            }
            self.await_store(STORES_AFTER_HEALING_MS_MAX, &format!("the disk was healed: {said}"))?;
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
        // Other pods recover a pod that does not return; a pod that returns recovers its own
        // sessions.
        if self.servers.len() > 1 && self.rng.bool() {
            self.renamed[pod] += 1;
        }
        // Clients read to the end of their sockets, because packets that the server sent before the
        // kill count as received.
        let gone = self.until(SOCKETS_END_MS_MAX, |run| {
            run.ghosts.iter().all(|ghost| ghost.link.pod != pod)
                && run.clients.iter().all(|client| !client.is_at(pod))
        })?;
        if gone { Ok(()) } else { Err(Failure::new("the sockets of the killed server do not end")) }
    }

    /// Runs the clients until the condition holds, and returns false if the time is over first.
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
        let before_ms = std::mem::replace(&mut self.stage.now_ms, clock::now_ms());
        self.slowest_turn_ms = self.slowest_turn_ms.max(self.stage.now_ms - before_ms);
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
        self.drain_ghosts();
        Ok(())
    }

    /// Reads the connections that their clients have left, until the server closes them.
    fn drain_ghosts(&mut self) {
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

    /// Ends all connections and servers, so that the history of a failed run is complete, too.
    pub(crate) fn stop(&mut self) {
        for connection in self.clients.iter().filter_map(Client::connection) {
            self.stage.record(Event::Ended { connection, end: End::Cut });
        }
        self.clients.clear();
        self.servers.clear();
    }
}
