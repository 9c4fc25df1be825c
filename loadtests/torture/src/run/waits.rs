//! Waits for a server: as long as it makes progress, and longer on a slow disk. A wait ends in a failure of the server only if
//! the machine gave it the time to make progress.

use crate::clock;
use crate::failure::{Failure, Outcome};
use crate::stage::Phase;
use millrace_torture::checker::Verdict;
use millrace_torture::closing::{ClosingPhase, ClosingStep, ClosingTimes, Flow};
use millrace_torture::history::Event;

use super::{CONNECT_MS_MAX, Plan, QUIET_MS, Run, SETTLE_MS_MAX, STORE_BACK_ACKNOWLEDGED};

/// Longest wait while there is progress, ms.
const PROGRESS_MS_MAX: u64 = 900_000;
/// A sync, or the wait of a thread for its turn, of this many milliseconds makes a machine too slow for a verdict about time.
const TOO_SLOW_MS: u64 = 1_000;

impl Run {
    /// Waits until the server acknowledges messages, after `what` has ended a failure of its store. Fails if none is acknowledged
    /// for `at_most_ms` and the time of many syncs.
    pub(super) fn await_store(&mut self, at_most_ms: u64, what: &str) -> Outcome<()> {
        let enough = self.stage.acknowledged + STORE_BACK_ACKNOWLEDGED;
        self.stage.awaits_store = true;
        let acknowledged = |run: &mut Self| {
            let acknowledged = run.stage.acknowledged;
            (acknowledged < enough).then_some(acknowledged)
        };
        let outcome = self.await_progress(at_most_ms, acknowledged)?;
        self.stage.awaits_store = false;
        match outcome {
            Waited::Done => Ok(()),
            Waited::Progresses { per_s } => {
                let what = format!("{per_s} messages a second are stored after {what}");
                Err(Failure::no_verdict(what))
            }
            Waited::Stuck { ms } => {
                Err(self.stuck(&format!("no message is stored for {ms} ms after {what}"))?)
            }
        }
    }

    /// Waits until each client has been connected once; all at one time is impossible, because clients disconnect on purpose.
    pub(super) fn await_clients(&mut self) -> Outcome<u64> {
        let begin_ms = self.stage.now_ms;
        let mut waiting: Vec<bool> =
            self.clients.iter().map(|client| !client.is_where_it_wants(&self.stage)).collect();
        let outcome = self.await_progress(CONNECT_MS_MAX, |run| {
            for (waits, client) in waiting.iter_mut().zip(&run.clients) {
                *waits = *waits && !client.is_where_it_wants(&run.stage);
            }
            let connected = waiting.iter().filter(|waits| !**waits).count();
            (connected < waiting.len()).then_some(connected)
        })?;
        let names =
            self.clients.iter().zip(waiting).filter(|(_, waits)| *waits).map(|(client, _)| client.name());
        let names = names.collect::<Vec<_>>().join(", ");
        match outcome {
            Waited::Done => Ok(self.stage.now_ms - begin_ms),
            Waited::Progresses { .. } => Err(Failure::no_verdict(format!("still waiting for {names}"))),
            Waited::Stuck { ms } => Err(self.stuck(&format!("no CONNACK within {ms} ms for {names}"))?),
        }
    }

    /// Stops new messages, and waits for the rest.
    pub(super) fn finish(&mut self, plan: &Plan) -> Outcome<Verdict> {
        self.stage.phase = Phase::Finale;
        self.stage.record(Event::Finale);
        // The checker reports requests that stay open as unanswered.
        self.await_progress(SETTLE_MS_MAX, |run| (!run.is_settled()).then_some(run.stage.arrived))?;
        self.stage.phase = Phase::Closing;
        let lost_ms = if plan.patience_ms == 0 {
            QUIET_MS
        } else {
            self.home.patience_ms(QUIET_MS + plan.patience_ms)?
        };
        let times = ClosingTimes { quiet_ms: QUIET_MS, lost_ms, limit_ms: plan.closing_ms };
        let mut closing = ClosingPhase::new(times, self.stage.now_ms, self.stage.arrived);
        loop {
            self.turn()?;
            let (is_settled, stage) = (self.is_settled(), &self.stage);
            match closing.step(stage.now_ms, stage.arrived, is_settled, &stage.history) {
                ClosingStep::Waits => {}
                ClosingStep::Ends(verdict) => return Ok(verdict),
                ClosingStep::StillDelivering { per_s, left } => {
                    let after_s = plan.closing_ms / 1_000;
                    let what = format!("after {after_s} s still delivering at {per_s}/s, {left} left");
                    return Err(Failure::no_verdict(what));
                }
            }
        }
    }

    fn is_settled(&self) -> bool {
        self.clients.iter().all(|client| client.is_settled(&self.stage))
    }

    /// Runs the clients while `progress` grows, until it is `None`.
    fn await_progress(
        &mut self,
        stuck_ms: u64,
        mut progress: impl FnMut(&mut Self) -> Option<usize>,
    ) -> Outcome<Waited> {
        let stuck_ms = self.home.patience_ms(stuck_ms)?;
        self.stage.now_ms = clock::now_ms();
        self.slowest_turn_ms = 0;
        let ends_ms = self.stage.now_ms + PROGRESS_MS_MAX;
        let mut flow: Option<Flow> = None;
        loop {
            self.turn()?;
            let Some(count) = progress(self) else { return Ok(Waited::Done) };
            let now_ms = self.stage.now_ms;
            let flow = flow.get_or_insert_with(|| Flow::new(now_ms, count));
            if flow.look(now_ms, count) >= stuck_ms {
                return Ok(Waited::Stuck { ms: stuck_ms });
            }
            if now_ms >= ends_ms {
                return Ok(Waited::Progresses { per_s: flow.per_s(now_ms) });
            }
        }
    }

    /// On a machine that is too slow, no progress is no failure of the server.
    fn stuck(&self, what: &str) -> Outcome<Failure> {
        let (sync_ms, turn_ms) = (self.home.machine_sync_ms()?, self.slowest_turn_ms);
        if sync_ms.max(turn_ms) < TOO_SLOW_MS {
            return Ok(Failure::new(what));
        }
        Ok(Failure::no_verdict(format!(
            "the machine is too slow: a sync takes {sync_ms} ms, and this program waited up to {turn_ms} ms for its turn; {what}"
        )))
    }
}

enum Waited {
    Done,
    Progresses { per_s: u64 },
    Stuck { ms: u64 },
}
