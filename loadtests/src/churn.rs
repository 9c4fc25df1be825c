//! `connect`: opens connections, some at a time, then closes all. Opening and closing are measured
//! apart, because brokers differ in opening, and closing is mostly the kernel's work.

use crate::broker::Broker;
use crate::crowd::{Crowd, CrowdLimits, VisitPlan};
use crate::failure::{Failure, Outcome};
use crate::link::Link;
use crate::measurement::Measurement;
use crate::packet;
use crate::population::Population;
use crate::procfs;
use crate::report::{Better, Figure, Report};
use crate::scenario::SizedScenario;
use crate::settings::Settings;

/// Default of concurrent connects; below the smallest listen backlog of the brokers compared.
pub(crate) const CONCURRENT: u32 = 50;
/// Connections held open before all of them close.
const WAVE: usize = 15_000;

pub(crate) fn run(case: SizedScenario, settings: &Settings, broker: &Broker) -> Outcome<Report> {
    let meter = Measurement::start(broker)?;
    let crowd = Crowd {
        broker: broker.address,
        population: Population::new(settings.connects, 1),
        plan: VisitPlan { clean_session: true, stays: true, ..VisitPlan::default() },
        credentials: settings.credentials()?,
        at_once: settings.window.unwrap_or(CONCURRENT),
        limits: CrowdLimits::new(settings.seconds, settings.timeout, settings.seconds + settings.timeout),
    };
    let wave = WAVE.min(procfs::connections_max()).max(1) as u32;
    let (mut connecting_seconds, mut leaving_seconds) = (0.0, 0.0);
    let (mut begun, mut done, mut closed, mut timed_out) = (0, 0, 0, false);
    while begun < settings.connects && !timed_out {
        let before = broker.cpu_seconds()?;
        let wanted = wave.min(settings.connects - begun);
        let came = crowd.run(begun..begun + wanted)?;
        let connected = broker.rested_cpu_seconds()?;
        begun += came.begun;
        done += u64::from(came.done);
        closed += came.faults.closed + leave(came.staying);
        timed_out = came.timed_out;
        connecting_seconds += connected - before;
        leaving_seconds += broker.rested_cpu_seconds()? - connected;
        if came.begun < wanted {
            break;
        }
    }
    if done == 0 {
        return Err(Failure::new("no connection came about"));
    }
    let mut cost = meter.stop()?;
    cost.server_cpu_seconds = connecting_seconds + leaving_seconds;
    let value = connecting_seconds * 1e6 / done as f64;
    let figure = Figure { name: "us_per_connect", unit: "µs CPU/connect", value, better: Better::Less };
    let mut report = Report::new(case, broker, figure, done, cost);
    report.extra.push(("us_per_disconnect".into(), leaving_seconds * 1e6 / done as f64));
    report.faults.closed = closed;
    report.timed_out = timed_out;
    Ok(report)
}

/// Closes the connections; returns how many the broker had closed before.
pub(crate) fn leave(links: Vec<Link>) -> u64 {
    let mut closed = 0;
    for mut link in links {
        link.write_some(&packet::DISCONNECT);
        closed += u64::from(!link.open);
    }
    closed
}
