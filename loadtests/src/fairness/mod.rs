//! Measures whether one tenant affects another: the latency of a steady publisher alone, beside a
//! neighbour at its limit, and beside a neighbour that tries ten times its limit. Both are brokers
//! of one server, to which the driver connects as the gateway does.
//!
//! `neighbour` does the work, `verdict` compares the phases, `wire` has the sockets of both.

mod neighbour;
mod verdict;
mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::spawn;

use clap::Args;

use crate::clock;
use crate::failure::{Outcome, While};
use crate::latency::{Histogram, Percentiles};
use crate::machine;
use crate::packet::{self, PublishTemplate};
use crate::procfs;
use neighbour::{Load, Neighbour, WorkKind};
use verdict::PhaseSeen;
use wire::TenantBroker;

/// Waits until the burst that each limit allows has passed.
const WARM_MS: u64 = 1_000;
/// Waits until the last messages have arrived.
const PAUSE_MS: u64 = 1_000;
const PING_EVERY_MS: u64 = 2;
const TOPIC: &str = "steady";
/// The factor by which the neighbour exceeds its limit in each phase.
const PHASES: [(&str, Option<u64>); 3] = [
    ("alone", None),
    ("beside a neighbour at its limit", Some(1)),
    ("beside one at ten times its limit", Some(10)),
];

#[derive(Args)]
pub(crate) struct Fairness {
    /// The neighbour's kind of work.
    #[arg(long, value_enum, default_value = "publishes")]
    kind: WorkKind,
    /// Port of the server's gateway listener on 127.0.0.1.
    #[arg(long)]
    gateway_port: u16,
    /// Server name of the broker whose latency is measured.
    #[arg(long)]
    steady: String,
    /// Server name of the neighbour's broker.
    #[arg(long)]
    neighbour: String,
    /// Units of work a second that the neighbour may do: publishes, connects, or pairs of SUBSCRIBE
    /// and UNSUBSCRIBE. It tries ten times as many.
    #[arg(long)]
    limit: u64,
    /// Fails if the steady tenant feels that the neighbour exceeds its limit.
    #[arg(long, requires = "pid")]
    check: bool,
    /// Process id of the server, to see how much other programs slow it down.
    #[arg(long)]
    pid: Option<u32>,
    /// The neighbour's connections, or its workers that connect.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=250))]
    publishers: u64,
    /// Messages a second of the steady publisher.
    #[arg(long, default_value_t = 500)]
    rate: u64,
    /// Quality of service of all messages, 0 or 1.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=1))]
    qos: u8,
    /// Bytes of a payload.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(16..=60_000))]
    payload_bytes: u32,
    /// Seconds of each phase.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Phases of each kind, in turn.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
}

impl Fairness {
    /// # Errors
    /// The run could not be made, or `--check` found that the neighbour disturbs the steady tenant.
    pub(crate) fn run(&self) -> Outcome<()> {
        let mut seen = PHASES.map(|_| PhaseSeen::default());
        for round in 1..=self.rounds {
            // The order alternates, so that a change of the machine's load favours no phase.
            let order = if round % 2 == 1 { [0, 1, 2] } else { [0, 2, 1] };
            for phase in order {
                self.phase(PHASES[phase].1, &mut seen[phase])?;
                eprintln!("round {round}: {}", PHASES[phase].0);
            }
        }
        println!("{}", verdict::HEAD);
        let phases = std::array::from_fn(|phase| {
            let (row, figures) = seen[phase].row(PHASES[phase].0);
            println!("{row}");
            figures
        });
        let [alone, at_limit, over] = &phases;
        println!(
            "\n{:?}: the limit is {} a second. Percentiles are medians over {} phases.",
            self.kind, self.limit, self.rounds
        );
        println!(
            "p99 beside one at ten times its limit: {:.2} of that beside one at its limit, {:.2} of that alone; \
             allowed with the machine's part: {:.2}.",
            over.p99_us / at_limit.p99_us,
            over.p99_us / alone.p99_us,
            verdict::allowed_us(at_limit, over) / at_limit.p99_us
        );
        if self.check {
            verdict::judge(self.limit, self.kind != WorkKind::Subscribes, &phases)
        } else {
            Ok(())
        }
    }

    fn phase(&self, times: Option<u64>, seen: &mut PhaseSeen) -> Outcome<()> {
        let neighbour = times.map(|times| Neighbour::start(&self.load(times))).transpose()?;
        clock::pause_ms(WARM_MS);
        self.measure(seen)?;
        if let Some(neighbour) = neighbour {
            let done = neighbour.end();
            seen.passed += done.passed;
            seen.tried += done.sent;
            seen.seconds += done.seconds;
            clock::pause_ms(PAUSE_MS);
        }
        Ok(())
    }

    fn load(&self, times: u64) -> Load {
        Load {
            kind: self.kind,
            target: self.target(&self.neighbour),
            rate: times * self.limit,
            times,
            workers: self.publishers,
            qos: self.qos,
            payload_bytes: self.payload_bytes as usize,
        }
    }

    fn target(&self, server_name: &str) -> TenantBroker {
        TenantBroker { gateway_port: self.gateway_port, server_name: server_name.to_owned() }
    }

    fn measure(&self, seen: &mut PhaseSeen) -> Outcome<()> {
        let target = self.target(&self.steady);
        let done = Arc::new(AtomicBool::new(false));
        let reader = target.open("steady-reader", &[TOPIC.to_owned()], self.qos)?;
        let reader = {
            let done = done.clone();
            spawn(move || wire::read(&reader, &done))
        };
        let echo = machine::echo().during("starting the echo thread")?;
        let machine = {
            let done = done.clone();
            spawn(move || {
                let mut waits = Histogram::new();
                machine::ping(&echo, PING_EVERY_MS, &done, |_, wait_ns| waits.record(wait_ns));
                waits.percentiles()
            })
        };
        let stream = target.open("steady-publisher", &[], 0)?;
        let template = PublishTemplate::new(TOPIC, self.qos, 0, self.payload_bytes as usize);
        let unit = |number: u64, batch: &mut Vec<u8>| {
            template.append(batch, number as u32, (number % 60_000 + 1) as u16, clock::now_ns());
        };
        let threads = || self.pid.map(procfs::threads).unwrap_or_default();
        let (before, begun_ns) = (threads(), clock::now_ns());
        let for_ns = clock::seconds_ns(self.seconds);
        let work = wire::send(&stream, self.rate, for_ns, &done, packet::PUBACK, unit)?;
        let (after, seconds) = (threads(), clock::ns_seconds(clock::now_ns() - begun_ns));
        clock::pause_ms(PAUSE_MS);
        done.store(true, Ordering::Relaxed);
        let (latency, delivered) = wire::joined(reader)?;
        let p99_us = |all: Percentiles| all.p99_ns as f64 / 1_000.0;
        seen.machine_us.extend(wire::joined(machine)?.map(p99_us));
        seen.stretch.push(machine::stretch(&before, &after));
        seen.busy.push(machine::busiest(&before, &after).map_or(0.0, |(ran, _)| ran / seconds));
        seen.latency.extend(latency.percentiles());
        seen.sent += work.sent;
        seen.delivered += delivered;
        Ok(())
    }
}
