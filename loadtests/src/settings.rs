//! How large and how long: the options that all scenarios share.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;

use crate::failure::{Failure, Outcome, While};

/// Without progress for so long the rest counts as lost, in the scenarios in which messages flow.
const TRAFFIC_QUIET_SECONDS: f64 = 2.0;
/// The same where a broker may write a whole database, or serve a million sessions, before it answers.
const POPULATION_QUIET_SECONDS: f64 = 30.0;

/// How large and how long.
#[derive(Args, Clone, Debug)]
pub(crate) struct Settings {
    /// Seconds that publishers send in each run.
    #[arg(long, default_value_t = 5.0)]
    pub(crate) seconds: f64,
    /// Pairs; publishers of the fan-in and durable scenarios.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=9000))]
    pub(crate) pairs: u32,
    /// Subscribers of the fan-out.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=19_000))]
    pub(crate) subscribers: u32,
    /// Connections of `idle`.
    #[arg(long, default_value_t = 18_000, value_parser = clap::value_parser!(u32).range(1..=900_000))]
    pub(crate) connections: u32,
    /// With `idle`: one subscription for each connection.
    #[arg(long)]
    pub(crate) subscribe: bool,
    /// Connects of `connect`, at most.
    #[arg(long, default_value_t = 30_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) connects: u32,
    /// File with a user name, a space and a password in each line, which the clients of `connect` show in turn.
    #[arg(long)]
    credentials: Option<PathBuf>,
    /// Persistent sessions of `offline-sessions`, `resume` and `reconnect`; several numbers, separated by
    /// commas, are run one after the other [default: 1000000, 200000 and 18000; less in `compare`].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=20_000_000))]
    pub(crate) sessions: Vec<u32>,
    /// Messages that wait for each session of `resume`.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) backlog: u32,
    /// Publishes to the one filter of `offline-sessions`, at most: so many one by one, then so many in a window.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) publishes: u32,
    /// Seconds that making sessions, and that coming back to them, may take; then the run goes on with those it
    /// has, and says so.
    #[arg(long, default_value_t = 300.0)]
    pub(crate) seconds_max: f64,
    /// Counters of the broker's /metrics with this in their name are reported for each publish of
    /// `offline-sessions`, if its command line has {http_port}.
    #[arg(long, default_value = "store")]
    pub(crate) metrics: String,
    /// Messages in flight, or connections under way, instead of the scenario's own number; 0 lifts the limit of a
    /// QoS 0 scenario.
    #[arg(long)]
    pub(crate) window: Option<u32>,
    /// Messages a publisher gives to the socket in one write, at most. Large ones flatter brokers that pass on
    /// whole reads.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) batch: u32,
    /// Bytes of a payload; the first 16 carry the driver's stamp.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(16..=60_000))]
    pub(crate) payload_bytes: u32,
    /// Messages published in a run, at most.
    #[arg(long, default_value_t = 50_000_000)]
    pub(crate) messages: u64,
    /// Without a delivery or an answer for so many seconds, the rest counts as lost [default: 2; 30 in scenarios
    /// with `--sessions`].
    #[arg(long)]
    quiet_seconds: Option<f64>,
    /// Seconds a run may take beyond those of sending; then it ends with what it has.
    #[arg(long, default_value_t = 60.0)]
    pub(crate) timeout: f64,
    /// Threads of the driver among which pairs are split; all else runs on one.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) threads: u32,
}

/// What clients show, in turn; nothing when it is empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct Credentials(Arc<[(String, String)]>);

impl Credentials {
    /// Those of a client: user name and password.
    pub(crate) fn of(&self, client: u32) -> Option<(&str, &str)> {
        let turn = (client as usize).checked_rem(self.0.len())?;
        self.0.get(turn).map(|(user, password)| (&**user, &**password))
    }
}

impl Settings {
    /// Reads what clients show.
    pub(crate) fn credentials(&self) -> Outcome<Credentials> {
        let Some(file) = &self.credentials else { return Ok(Credentials::default()) };
        let text = std::fs::read_to_string(file).during("reading the credentials")?;
        let pair = |line: &str| line.split_once(' ').map(|(user, password)| (user.into(), password.into()));
        let all: Option<Vec<_>> = text.lines().map(pair).collect();
        let all = all.filter(|all| !all.is_empty());
        all.map(|all| Credentials(all.into())).ok_or_else(|| {
            Failure::new("each line of the credentials has a user name, a space and a password")
        })
    }

    /// How long nothing may happen while messages flow.
    pub(crate) fn traffic_quiet_seconds(&self) -> f64 {
        self.quiet_seconds.unwrap_or(TRAFFIC_QUIET_SECONDS)
    }

    /// How long nothing may happen in a scenario with many sessions.
    pub(crate) fn population_quiet_seconds(&self) -> f64 {
        self.quiet_seconds.unwrap_or(POPULATION_QUIET_SECONDS)
    }
}
