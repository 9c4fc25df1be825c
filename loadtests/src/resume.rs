//! `resume`: very many persistent sessions return to a backlog each; every message is checked.

use crate::broker::Broker;
use crate::crowd::VisitPlan;
use crate::failure::{Failure, Outcome};
use crate::measurement::Measurement;
use crate::population::{Filling, Population};
use crate::report::{Better, Figure, Report};
use crate::scenario::SizedScenario;
use crate::settings::Settings;

/// These sessions share a filter and therefore a backlog.
const GROUP: u32 = 100;
/// At the same time, while the backlog is made.
const PUBLISHERS_MAX: u32 = 1000;
const WINDOW: u32 = 100;

/// Waits until the broker is at rest before the sessions return.
pub(crate) fn run(
    case: SizedScenario,
    sessions: u32,
    settings: &Settings,
    broker: &Broker,
) -> Outcome<Report> {
    let planned = Population::new(sessions, GROUP);
    let made = planned.make(settings, broker)?;
    if made.faults.any() || made.done == 0 {
        return Err(Failure::new(format!("the broker made only {} of {sessions} sessions", made.done)));
    }
    // Sessions are made in order of their numbers, so the first ones exist.
    let population = Population { sessions: made.done, ..planned };
    let broken_off = made.done < sessions;
    fill(population, settings, broker)?;
    broker.wait_for_rest()?;

    let memory_before = broker.settled_memory();
    broker.reset_peak();
    let meter = Measurement::start_with(broker, memory_before)?;
    let plan = VisitPlan {
        resumes: true,
        backlog: settings.backlog,
        payload_bytes: settings.payload_bytes as usize,
        ..VisitPlan::default()
    };
    let back = population.visit(plan, settings, broker)?;
    let cost = meter.stop_at_rest()?;
    population.end(settings, broker)?;

    let done = u64::from(back.done);
    let value = cost.per_server_cpu_second(done);
    let figure =
        Figure { name: "sessions_per_server_cpu_s", unit: "sessions per CPU s", value, better: Better::More };
    let mut report = Report::new(case, broker, figure, done, cost);
    report.faults = back.faults;
    report.timed_out = broken_off || back.timed_out || back.begun < population.sessions;
    report.latency = back.latency.percentiles();
    report.extra = vec![
        ("deliveries_per_server_cpu_s".into(), cost.per_server_cpu_second(back.delivered)),
        ("sessions_per_wall_s".into(), done as f64 / cost.wall_seconds),
        ("rss_peak_kb".into(), cost.memory_after.peak_kb as f64),
    ];
    Ok(report)
}

fn fill(population: Population, settings: &Settings, broker: &Broker) -> Outcome<()> {
    let filling = Filling {
        population,
        settings,
        window: WINDOW.min(settings.backlog),
        messages: settings.backlog,
        send_seconds: settings.seconds_max,
    };
    for first in (0..population.groups()).step_by(PUBLISHERS_MAX as usize) {
        let groups = first..population.groups().min(first + PUBLISHERS_MAX);
        let due = groups.len() as u64 * u64::from(settings.backlog);
        let tally = filling.run(filling.open(groups, broker)?)?;
        if tally.faults.any() || tally.acked < due {
            let what = format!("the broker acknowledged {} of {due} messages of the backlog", tally.acked);
            return Err(Failure::new(what));
        }
    }
    Ok(())
}
