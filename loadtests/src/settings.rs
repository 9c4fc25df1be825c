//! Size and duration: the options that all scenarios share.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;

use crate::failure::{Failure, Outcome, While};

/// Time without progress after which missing messages are lost, in scenarios with traffic.
const TRAFFIC_QUIET_SECONDS: f64 = 2.0;
/// The same for scenarios in which a broker may write a whole database, or serve a million
/// sessions, before it answers.
const POPULATION_QUIET_SECONDS: f64 = 30.0;

#[derive(Args, Clone, Debug)]
pub(crate) struct Settings {
    /// Seconds that publishers send in each run.
    #[arg(long, default_value_t = 5.0)]
    pub(crate) seconds: f64,
    /// Pairs of a publisher and a subscriber; publishers of the fan-in and durable scenarios.
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
    /// File with a user name, a space and a password in each line, for the clients of `connect` in
    /// turn.
    #[arg(long)]
    credentials: Option<PathBuf>,
    /// Persistent sessions of `offline-sessions`, `resume` and `reconnect`; several numbers,
    /// separated by commas, are run one after the other [default: 1000000, 200000 and 18000 in this
    /// order; less in `compare`].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=20_000_000))]
    pub(crate) sessions: Vec<u32>,
    /// Queued messages of each session of `resume`.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) backlog: u32,
    /// Most publishes to the one filter of `offline-sessions`: this number one by one, then the same
    /// number in a window.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) publishes: u32,
    /// Seconds for making sessions, and for reconnecting them; afterwards the run continues with the
    /// sessions that it has, and reports that.
    #[arg(long, default_value_t = 300.0)]
    pub(crate) seconds_max: f64,
    /// Counters of the broker's /metrics with this in their name are reported for each publish of
    /// `offline-sessions`, if its command line has {http_port}.
    #[arg(long, default_value = "store")]
    pub(crate) metrics: String,
    /// Messages in flight, or connections under way, instead of the scenario's own number; 0 lifts
    /// the limit of a QoS 0 scenario.
    #[arg(long)]
    pub(crate) window: Option<u32>,
    /// Most messages in one write of a publisher. Large batches favour brokers that pass on whole
    /// reads.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) batch: u32,
    /// Bytes of a payload; the first 16 carry the driver's stamp.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(16..=60_000))]
    pub(crate) payload_bytes: u32,
    /// Messages published in a run, at most.
    #[arg(long, default_value_t = 50_000_000)]
    pub(crate) messages: u64,
    /// Seconds without a delivery or an answer after which the rest counts as lost [default: 2; 30
    /// in scenarios with `--sessions`].
    #[arg(long)]
    quiet_seconds: Option<f64>,
    /// Seconds that a run may take beyond the sending; then it ends with its results so far.
    #[arg(long, default_value_t = 60.0)]
    pub(crate) timeout: f64,
    /// Threads of the driver among which pairs are split; all else runs on one.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) threads: u32,
}

/// Clients use them in turn; empty for none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Credentials(Arc<[(String, String)]>);

impl Credentials {
    pub(crate) fn of(&self, client: u32) -> Option<(&str, &str)> {
        let turn = (client as usize).checked_rem(self.0.len())?;
        self.0.get(turn).map(|(user, password)| (&**user, &**password))
    }
}

impl Settings {
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

    pub(crate) fn traffic_quiet_seconds(&self) -> f64 {
        self.quiet_seconds.unwrap_or(TRAFFIC_QUIET_SECONDS)
    }

    pub(crate) fn population_quiet_seconds(&self) -> f64 {
        self.quiet_seconds.unwrap_or(POPULATION_QUIET_SECONDS)
    }
}

/// The settings of a command line, for tests.
#[cfg(test)]
pub(crate) fn parsed(arguments: &[&str]) -> Settings {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        settings: Settings,
    }
    <Line as clap::Parser>::parse_from([&["x"], arguments].concat()).settings
}
