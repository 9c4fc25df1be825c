//! `offline-sessions`: the cost of very many offline sessions, and of a publish to all of them.
//! With one filter for all sessions, a publish need not cost more than a publish to one session.

use crate::broker::Broker;
use crate::failure::{Failure, Outcome};
use crate::latency::Percentiles;
use crate::measurement::{Cost, Measurement};
use crate::metrics::{self, Counters};
use crate::population::{Filling, Population};
use crate::procfs;
use crate::receipts::Faults;
use crate::report::{Better, Figure, Report};
use crate::scenario::SizedScenario;
use crate::settings::Settings;

/// Publishes of the trial, whose cost decides how many publishes are measured.
const TRIAL: u32 = 10;
const WINDOW: u32 = 100;
/// Bytes by which a broker may grow in a trial without queueing anything.
const TRIAL_NOISE_BYTES: f64 = 1e6;
/// Share of the free memory by which a broker may grow in a round, if it queues a copy for each
/// session.
const MEMORY_SHARE: f64 = 0.2;

struct Round {
    acked: u64,
    cost: Cost,
    faults: Faults,
    timed_out: bool,
    latency: Option<Percentiles>,
    counted: Counters,
}

/// Publishes one by one, then a window at a time.
pub(crate) fn run(
    case: SizedScenario,
    sessions: u32,
    settings: &Settings,
    broker: &Broker,
) -> Outcome<Report> {
    let population = Population::with_one_filter(sessions);
    let saved_before = broker.saved_bytes()?;
    let meter = Measurement::start_with(broker, broker.settled_memory())?;
    let made = population.make(settings, broker)?;
    let mut making = meter.stop_at_rest()?;
    making.memory_after = broker.settled_memory();
    let saved_after = broker.saved_bytes()?;
    if made.done == 0 {
        return Err(Failure::new("no session came about"));
    }

    let trial = publish(population, 1, TRIAL, settings, broker)?;
    let allowed = affordable(&trial, settings);
    let one_by_one = allowed.map(|n| publish(population, 1, n, settings, broker)).transpose()?;
    let window = settings.window.unwrap_or(WINDOW);
    // The window must be smaller, because a window that is never full would measure nothing.
    let allowed = allowed.filter(|n| *n > window);
    let piped = allowed.map(|n| publish(population, window, n, settings, broker)).transpose()?;
    population.end(settings, broker)?;

    let mut faults = made.faults;
    let mut timed_out = made.timed_out || made.begun < sessions;
    for round in [Some(&trial), one_by_one.as_ref(), piped.as_ref()].into_iter().flatten() {
        faults.add(round.faults);
        timed_out |= round.timed_out;
    }
    // If the trial did not end, it is the only result.
    let closed = one_by_one.unwrap_or(trial);
    let value = closed.cost.server_us_each(closed.acked);
    let figure = Figure { name: "us_per_publish", unit: "µs CPU/publish", value, better: Better::Less };
    let mut report = Report::new(case, broker, figure, closed.acked, closed.cost);
    report.ack_latency = closed.latency;
    report.faults = faults;
    report.timed_out = timed_out;
    let made = u64::from(made.done);
    report.extra = vec![
        ("sessions".into(), made as f64),
        ("make_wall_s".into(), making.wall_seconds),
        ("make_us_each".into(), making.server_us_each(made)),
        ("rss_bytes_each".into(), making.rss_bytes_each(made)),
        ("make_disk_bytes_each".into(), making.written_bytes_each(made)),
    ];
    if let (Some(before), Some(after)) = (saved_before, saved_after) {
        let each = after.saturating_sub(before) as f64 / made as f64;
        report.extra.push(("folder_bytes_each".into(), each));
    }
    report.extra.push(("publish_disk_bytes".into(), closed.cost.written_bytes_each(closed.acked)));
    report.extra.extend(closed.counted_each());
    if let Some(piped) = piped {
        report.extra.extend(piped.extra());
    }
    Ok(report)
}

/// The number of publishes that time and memory allow, by the cost of the trial; `None` if the
/// trial did not end.
fn affordable(trial: &Round, settings: &Settings) -> Option<u32> {
    if trial.timed_out || trial.faults.any() || trial.acked == 0 {
        return None;
    }
    // Smaller figures are noise of the clock and of the allocator.
    let cpu_seconds = (trial.cost.server_cpu_seconds - 2.0 * procfs::TICK_SECONDS).max(0.0);
    let grown_bytes = (trial.cost.rss_bytes_each(1) - TRIAL_NOISE_BYTES).max(0.0);
    let available = procfs::available_kb() as f64 * 1024.0 * MEMORY_SHARE;
    let in_time = settings.seconds / (cpu_seconds / trial.acked as f64);
    let in_memory = available / (grown_bytes / trial.acked as f64);
    Some(f64::from(settings.publishes).min(in_time).min(in_memory).max(1.0) as u32)
}

/// Publishes to the one filter and measures what it costs the broker.
fn publish(
    population: Population,
    window: u32,
    messages: u32,
    settings: &Settings,
    broker: &Broker,
) -> Outcome<Round> {
    let filling = Filling { population, settings, window, messages, send_seconds: settings.seconds };
    let publishers = filling.open(0..1, broker)?;
    broker.wait_for_rest()?;
    let counted_before = metrics::read(broker, &settings.metrics)?;
    let meter = Measurement::start(broker)?;
    let tally = filling.run(publishers)?;
    let cost = meter.stop_at_rest()?;
    Ok(Round {
        acked: tally.acked,
        cost,
        faults: tally.faults,
        timed_out: tally.timed_out,
        latency: tally.ack_latency.and_then(|h| h.percentiles()),
        counted: metrics::growth(&counted_before, &metrics::read(broker, &settings.metrics)?),
    })
}

impl Round {
    fn counted_each(&self) -> Counters {
        let each = |(name, grown): &(_, f64)| (Clone::clone(name), grown / self.acked.max(1) as f64);
        self.counted.iter().map(each).collect()
    }

    fn extra(&self) -> Counters {
        let mut extra = vec![
            ("window_publishes".into(), self.acked as f64),
            ("window_us_per_publish".into(), self.cost.server_us_each(self.acked)),
            ("window_disk_bytes".into(), self.cost.written_bytes_each(self.acked)),
        ];
        if let Some(latency) = self.latency {
            extra.push(("window_ack_p50_us".into(), latency.p50_ns as f64 / 1000.0));
            extra.push(("window_ack_p99_us".into(), latency.p99_ns as f64 / 1000.0));
        }
        let counted = self.counted_each().into_iter();
        extra.extend(counted.map(|(name, each)| (format!("window_{name}").into(), each)));
        extra
    }
}
