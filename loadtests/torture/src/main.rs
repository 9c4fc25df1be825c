//! `torture` kills an MQTT broker again and again while clients publish, subscribe, connect and
//! disconnect. It checks that no acknowledged message is lost, doubled or out of order. It must not
//! know a broker's inside: it starts a process, speaks MQTT 3.1.1 and 5.0 to it, and records
//! everything.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool")]

mod client;
mod clock;
mod failure;
mod hazards;
mod link;
mod packet;
mod report;
mod run;
mod scenario;
mod server;
mod stage;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::{Parser, ValueEnum};

use failure::{Outcome, While};
use hazards::{HazardArgs, Hazards};
use report::Judgement;
use run::{Plan, Run};
use server::{Broker, Cluster, Home};

/// Exit code of a run without a verdict; 2 is a wrong command line.
const NO_VERDICT: u8 = 3;

/// Kills an MQTT broker again and again and checks that no acknowledged message is lost.
#[derive(Parser)]
#[command(name = "torture", version)]
struct Cli {
    /// How often the server is killed; 0 lets messages flow for --calm-s and ends in order.
    #[arg(long, default_value_t = 100)]
    kills: u32,
    /// Decides what all clients do; a random seed is printed. The machine decides when it happens.
    #[arg(long)]
    seed: Option<u64>,
    /// No further kill after this number of seconds.
    #[arg(long, default_value_t = 900)]
    seconds_max: u64,
    /// Without kills: how many seconds messages flow.
    #[arg(long, default_value_t = 5)]
    calm_s: u64,
    #[arg(long, value_enum, default_value_t = Preset::Millrace)]
    broker: Preset,
    #[arg(long, default_value = "target/release/millrace")]
    millrace_bin: PathBuf,
    /// More arguments of `millrace serve`, such as --millrace-arg=--threads=1.
    #[arg(long)]
    millrace_arg: Vec<String>,
    /// Keep the server's data in the FoundationDB cluster of this file, below a prefix of this run
    /// alone.
    #[arg(long)]
    fdb_cluster_file: Option<PathBuf>,
    /// Processes that share the cluster, of which one is killed at a time; their network is a
    /// --millrace-arg=--nats=URL.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=20))]
    pods: u8,
    /// Every other kill is of the cluster: by this command and its arguments, which start it again.
    #[arg(long, requires = "fdb_cluster_file")]
    fdb_kill: Option<String>,
    /// In the end: seconds in which nothing arrives until what is missing counts as lost. A slow disk makes it longer; 0 does not
    /// wait.
    #[arg(long, default_value_t = 30)]
    patience_s: u64,
    /// In the end: how many seconds to wait while messages still arrive. Then the run has no verdict, and exits with 3.
    #[arg(long, default_value_t = 3_600)]
    closing_s: u64,
    /// Explain this number of violations of each kind.
    #[arg(long, default_value_t = 3)]
    explain: usize,
    #[command(flatten)]
    hazards: HazardArgs,
}

#[derive(Clone, Copy, ValueEnum)]
enum Preset {
    Millrace,
    /// Not durable over a kill, which shows that this check can fail.
    Mosquitto,
}

fn main() -> ExitCode {
    match torture(Cli::parse()) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("torture: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn torture(cli: Cli) -> Outcome<ExitCode> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        // A second signal ends the program at once.
        signal_hook::flag::register_conditional_shutdown(signal, 130, interrupted.clone())
            .during("listening to signals")?;
        signal_hook::flag::register(signal, interrupted.clone()).during("listening to signals")?;
    }
    let broker = match cli.broker {
        Preset::Millrace => {
            let (program, arguments) = (cli.millrace_bin, cli.millrace_arg);
            let cluster = cli.fdb_cluster_file.map(Cluster::new);
            Broker::Millrace { program, arguments, cluster }
        }
        Preset::Mosquitto => Broker::Mosquitto,
    };
    if cli.pods > 1 && !matches!(&broker, Broker::Millrace { cluster: Some(_), .. }) {
        return Err(failure::Failure::new("several pods need a store that they share: --fdb-cluster-file"));
    }
    let seed = cli.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    let folder = tempfile::Builder::new().prefix("torture-").tempdir().during("making a folder")?;
    println!("seed {seed}, {} kills, data and log in {}", cli.kills, folder.path().display());
    let hazards = Hazards::new(&cli.hazards, folder.path(), seed)?;
    if hazards.is_some() && !matches!(&broker, Broker::Millrace { cluster: None, .. }) {
        return Err(failure::Failure::new("failures of the disk need a Millrace with a data folder"));
    }
    let plan = Plan {
        kills: cli.kills,
        pods: cli.pods.into(),
        seed,
        calm_ms: cli.calm_s * 1_000,
        ends_ms: cli.seconds_max * 1_000,
        patience_ms: cli.patience_s * 1_000,
        closing_ms: cli.closing_s * 1_000,
        kill_store: cli.fdb_kill.map(|command| command.split(' ').map(str::to_owned).collect()),
        hazards: cli.hazards,
    };
    let home = Home::new(broker, folder.path(), hazards, interrupted);
    let log = home.log_path();
    let mut run = Run::new(home, &plan)?;
    let outcome = run.go(&plan, &mut |line| println!("{line}"));
    run.stop();
    let judgement = report::print(run.history(), outcome, &plan, run.hazard_counts(), cli.explain);
    let code = match judgement {
        Judgement::Kept => return Ok(ExitCode::SUCCESS),
        Judgement::Failed => ExitCode::FAILURE,
        Judgement::NoVerdict => ExitCode::from(NO_VERDICT),
    };
    let lines: Vec<String> = (0..run.history().events.len()).map(|at| run.history().line(at)).collect();
    std::fs::write(folder.path().join("history.txt"), lines.join("\n")).during("writing the history")?;
    let kept = folder.keep();
    println!("kept: {} (log {}, history.txt); again with --seed {seed}", kept.display(), log.display());
    Ok(code)
}
