//! `mqttload` measures any MQTT broker on this machine by its CPU time, and checks every delivery.
//! It must not know a broker's inside: it starts a process, speaks MQTT 3.1.1 to it and reads
//! /proc.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool")]

mod broker;
mod churn;
mod clock;
mod compare;
mod crowd;
mod engine;
mod failure;
mod fairness;
mod floor;
mod hostile;
mod idle;
mod latency;
mod link;
mod machine;
mod measurement;
mod metrics;
mod offline;
mod packet;
mod plan;
mod population;
mod populations;
mod preset;
mod procfs;
mod publisher;
mod receipts;
mod receiver;
mod reconnect;
mod report;
mod resume;
mod scenario;
mod session;
mod settings;
mod table;
mod tally;
mod traffic;
mod visit;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

use broker::{Broker, Others};
use compare::Comparison;
use failure::{Failure, Outcome};
use fairness::Fairness;
use hostile::Hostile;
use plan::Plan;
use preset::BrokerSpec;
use report::Report;
use scenario::{Scenario, SizedScenario};
use settings::Settings;
use table::Cell;

/// Measures MQTT brokers by their CPU time.
#[derive(Parser)]
#[command(name = "mqttload", version)]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// One scenario, once, against one broker.
    Run(Single),
    /// Scenarios against several brokers in turn: a Markdown table of medians and ratios.
    Compare(Several),
    /// The latency of one tenant, alone and beside a tenant that tries ten times its limit;
    /// `fairness.sh` starts the server for it.
    Fairness(Fairness),
    /// Hostile clients, and how long friendly ones wait beside them.
    Hostile(Hostile),
    /// Serves as the least that a broker can do: a lower bound for the figures of every broker.
    Floor {
        #[arg(long)]
        port: u16,
    },
}

#[derive(Args)]
struct Single {
    scenario: Scenario,
    /// millrace, mosquitto, rumqttd, floor, or NAME=COMMAND with {port}, {http_port}, {config} and
    /// {dir} filled in.
    #[arg(long, default_value = "millrace", conflicts_with = "pid")]
    broker: String,
    /// A broker that runs already, by its process id; needs --port.
    #[arg(long, requires = "port")]
    pid: Option<u32>,
    /// Port of that broker on 127.0.0.1.
    #[arg(long, requires = "pid")]
    port: Option<u16>,
    /// Port of another pod of the same broker, to which publishers connect.
    #[arg(long, requires = "pid")]
    publish_port: Option<u16>,
    /// Other pods, by their process ids: their CPU counts as the broker's.
    #[arg(long, requires = "pid", value_delimiter = ',')]
    pods: Vec<u32>,
    /// Further processes that serve the broker, such as nats=PID,store=PID; their CPU is reported
    /// separately.
    #[arg(long, requires = "pid", value_delimiter = ',', value_parser = beside)]
    beside: Vec<(String, u32)>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    millrace: Millrace,
}

fn beside(text: &str) -> Result<(String, u32), String> {
    let found = text.split_once('=').and_then(|(name, pid)| Some((name.to_owned(), pid.parse().ok()?)));
    found.ok_or_else(|| "NAME=PID is expected".to_owned())
}

#[derive(Args)]
struct Several {
    /// As for `run`; may be repeated.
    #[arg(long, default_values = ["mosquitto", "millrace"])]
    broker: Vec<String>,
    /// Scenarios, separated by commas [default: all without persistent sessions].
    #[arg(long, value_delimiter = ',')]
    scenario: Vec<Scenario>,
    /// The scenarios with persistent sessions.
    #[arg(long, conflicts_with = "scenario")]
    durable: bool,
    /// Every scenario, those with persistent sessions too.
    #[arg(long, conflicts_with_all = ["scenario", "durable"])]
    all: bool,
    /// Runs of each, of which the median is shown.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// The broker whose figures are 1.
    #[arg(long, default_value = "mosquitto")]
    baseline: String,
    /// Also print the JSON of each run, before the tables.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    millrace: Millrace,
}

/// Command line of the preset `millrace`.
#[derive(Args)]
struct Millrace {
    /// Its program.
    #[arg(long, default_value = "target/release/millrace")]
    millrace_bin: PathBuf,
    /// More arguments for it.
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    millrace_args: String,
}

impl Millrace {
    fn spec(&self, text: &str) -> Outcome<BrokerSpec> {
        BrokerSpec::parse(text, &self.millrace_bin, &self.millrace_args)
    }
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Task::Run(single) => single.run(),
        Task::Compare(several) => several.run(),
        Task::Fairness(fairness) => {
            raise_descriptors();
            fairness.run()
        }
        Task::Hostile(hostile) => {
            raise_descriptors();
            hostile.run()
        }
        Task::Floor { port } => {
            raise_descriptors();
            floor::serve(port)
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("mqttload: {why}");
            ExitCode::FAILURE
        }
    }
}

impl Single {
    fn run(&self) -> Outcome<()> {
        raise_descriptors();
        // False: with the sizes of a single run, not the smaller ones of a comparison.
        let cases = self.scenario.cases(&self.settings, false);
        let mut cells = Vec::new();
        for case in &cases {
            let broker = match self.pid.zip(self.port) {
                Some((pid, port)) => {
                    let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
                    let others = Others { pods: self.pods.clone(), beside: self.beside.clone() };
                    Broker::attach(pid, at(port), at(self.publish_port.unwrap_or(port)), others)?
                }
                None => Broker::start(&self.millrace.spec(&self.broker)?)?,
            };
            let report = run_case(*case, &self.settings, &broker)?;
            println!("{}", if self.json { report.json() } else { report.line() });
            cells.push(vec![Cell { reports: vec![report], failures: Vec::new() }]);
        }
        if cases.len() > 1 && !self.json {
            println!("\n{}", populations::tables(&cases, &[&self.broker], &cells));
        }
        Ok(())
    }
}

impl Several {
    fn run(&self) -> Outcome<()> {
        raise_descriptors();
        let scenarios = match self.scenario.as_slice() {
            _ if self.all => Scenario::value_variants(),
            _ if self.durable => &Scenario::DURABLE,
            [] => &Scenario::LIVE,
            chosen => chosen,
        };
        let comparison = Comparison {
            brokers: self.broker.iter().map(|text| self.millrace.spec(text)).collect::<Outcome<_>>()?,
            cases: scenarios.iter().flat_map(|s| s.cases(&self.settings, true)).collect(),
            rounds: self.rounds,
            baseline: self.baseline.clone(),
            json: self.json,
        };
        comparison.run(&self.settings)
    }
}

fn run_case(case: SizedScenario, settings: &Settings, broker: &Broker) -> Outcome<Report> {
    match (case.scenario, case.sessions, Plan::of(case.scenario, settings)) {
        (_, _, Some(plan)) => traffic::run(case, plan, settings, broker),
        (Scenario::Idle, ..) => idle::run(case, settings, broker),
        (Scenario::Connect, ..) => churn::run(case, settings, broker),
        (Scenario::OfflineSessions, Some(sessions), _) => offline::run(case, sessions, settings, broker),
        (Scenario::Resume, Some(sessions), _) => resume::run(case, sessions, settings, broker),
        (Scenario::Reconnect, Some(sessions), _) => reconnect::run(case, sessions, settings, broker),
        (other, ..) => Err(Failure::new(format!("{} has no plan", other.name()))),
    }
}

/// Raises the soft limit to the hard one, for this process and the brokers that it starts.
fn raise_descriptors() {
    if let Err(why) = rlimit::increase_nofile_limit(u64::MAX) {
        eprintln!("mqttload: the limit of open files stays as it is: {why}");
    }
}
