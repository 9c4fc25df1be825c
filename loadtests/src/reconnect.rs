//! `reconnect`: persistent sessions without a backlog reconnect and stay, as after a restart of the
//! network in front of a broker.

use crate::broker::Broker;
use crate::churn::{CONCURRENT, leave};
use crate::crowd::{Crowd, CrowdLimits, VisitPlan};
use crate::failure::{Failure, Outcome};
use crate::measurement::Measurement;
use crate::population::Population;
use crate::procfs;
use crate::report::{Better, Figure, Report};
use crate::scenario::SizedScenario;
use crate::settings::{Credentials, Settings};

pub(crate) fn run(
    case: SizedScenario,
    sessions: u32,
    settings: &Settings,
    broker: &Broker,
) -> Outcome<Report> {
    let most = procfs::connections_max();
    if sessions as usize > most {
        let what = format!("the limit of open files leaves room for {most} connections; see --sessions");
        return Err(Failure::new(what));
    }
    let population = Population::new(sessions, 1);
    let made = population.make(settings, broker)?;
    if made.faults.any() || made.done < sessions {
        return Err(Failure::new(format!("the broker made only {} of {sessions} sessions", made.done)));
    }
    broker.wait_for_rest()?;

    broker.reset_peak();
    let meter = Measurement::start_with(broker, broker.settled_memory())?;
    let crowd = Crowd {
        broker: broker.address,
        population,
        plan: VisitPlan { resumes: true, stays: true, ..VisitPlan::default() },
        credentials: Credentials::default(),
        at_once: settings.window.unwrap_or(CONCURRENT),
        limits: CrowdLimits::new(settings.seconds_max, settings.timeout, settings.population_quiet_seconds()),
    };
    let back = crowd.run(0..sessions)?;
    let cost = meter.stop_at_rest()?;
    let done = u64::from(back.done);
    let value = cost.server_us_each(done);
    let figure = Figure { name: "us_per_session", unit: "µs CPU/session", value, better: Better::Less };
    let mut report = Report::new(case, broker, figure, done, cost);
    report.extra.push(("all_cpu_s".into(), cost.server_cpu_seconds));
    report.faults = back.faults;
    report.timed_out = back.timed_out || back.begun < sessions;
    report.latency = back.latency.percentiles();
    report.faults.closed += leave(back.staying);
    population.end(settings, broker)?;
    Ok(report)
}
