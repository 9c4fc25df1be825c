//! Runs a plan: opens the connections, splits them among threads, measures, and adds up.

use std::net::{SocketAddr, TcpStream};

use crate::broker::Broker;
use crate::clock;
use crate::engine::{Bounds, Engine};
use crate::failure::{Failure, Outcome};
use crate::link::{Hello, Link};
use crate::measurement::Measurement;
use crate::packet::PublishTemplate;
use crate::plan::{Plan, Sessions, Shape};
use crate::publisher::Publisher;
use crate::receiver::Receiver;
use crate::report::{Better, Figure, Report};
use crate::scenario::SizedScenario;
use crate::session;
use crate::settings::Settings;
use crate::tally::Tally;

/// Queued messages of a session, because a broker may have a limit and drop the rest silently.
const QUEUED_MAX: u64 = 50_000;

struct Traffic<'a> {
    plan: Plan,
    settings: &'a Settings,
    broker: SocketAddr,
    /// Where publishers connect: another pod than the receivers' in some runs.
    publishers: SocketAddr,
    /// Distinguishes the topics and client ids of this run.
    run: u32,
}

/// How the receivers connect.
#[derive(Clone, Copy)]
struct Receivers {
    clean_session: bool,
    subscribes: bool,
}

/// Runs one scenario against a broker that is ready, and reports its figure. Sessions that were offline or return are filled before the
/// measured part.
pub(crate) fn run(case: SizedScenario, plan: Plan, settings: &Settings, broker: &Broker) -> Outcome<Report> {
    let traffic = Traffic {
        plan,
        settings,
        broker: broker.address,
        publishers: broker.publish_address,
        run: std::process::id(),
    };
    let persistent = plan.sessions != Sessions::Clean;
    let mut receivers = traffic.open_receivers(Receivers { clean_session: !persistent, subscribes: true })?;
    let mut sent_before = vec![0; plan.publishers as usize];
    if matches!(plan.sessions, Sessions::Offline | Sessions::Returning) {
        receivers.drain(..).try_for_each(session::leave)?;
    }
    let mut publishers = traffic.open_publishers()?;
    if plan.sessions == Sessions::Returning {
        let filled = traffic.run_engines(std::mem::take(&mut publishers), Vec::new(), &sent_before)?;
        if filled.timed_out || filled.faults.any() {
            return Err(Failure::new("the broker did not acknowledge all that is to be drained"));
        }
        sent_before = filled.sent;
    }

    let beside = broker.beside_cpu_seconds()?;
    let meter = Measurement::start(broker)?;
    if plan.sessions == Sessions::Returning {
        receivers = traffic.open_receivers(Receivers { clean_session: false, subscribes: false })?;
    }
    let tally = traffic.run_engines(publishers, receivers, &sent_before)?;
    let cost = meter.stop()?;
    let used = broker.beside_cpu_seconds()?.into_iter().zip(beside);
    let extra =
        used.map(|((name, now), (_, before))| (format!("{name}_cpu_s").into(), now - before)).collect();
    if persistent {
        traffic.end_sessions()?;
    }

    let (count, unit) = match plan.sessions {
        Sessions::Offline => (tally.acked, "acks per CPU s"),
        _ => (tally.delivered, "msg per CPU s"),
    };
    let value = cost.per_server_cpu_second(count);
    let figure = Figure { name: "per_server_cpu_s", unit, value, better: Better::More };
    Ok(Report {
        faults: tally.faults,
        timed_out: tally.timed_out,
        extra,
        latency: tally.latency.and_then(|h| h.percentiles()),
        ack_latency: tally.ack_latency.and_then(|h| h.percentiles()),
        ..Report::new(case, broker, figure, count, cost)
    })
}

impl Traffic<'_> {
    fn topic(&self, publisher: u32) -> String {
        format!("load/{:x}/{publisher}", self.run)
    }

    fn filter(&self, receiver: u32) -> String {
        match self.plan.shape {
            Shape::Pairs => self.topic(receiver),
            Shape::FanOut => self.topic(0),
            Shape::FanIn => format!("load/{:x}/+", self.run),
        }
    }

    fn open_receivers(&self, receivers: Receivers) -> Outcome<Vec<TcpStream>> {
        let open = |receiver: u32| {
            let filter = self.filter(receiver);
            let subscription = receivers.subscribes.then_some((filter.as_str(), self.plan.qos));
            let client_id = self.receiver_id(receiver);
            let clean_session = receivers.clean_session;
            Hello { client_id: &client_id, clean_session, subscription }.open(self.broker)
        };
        (0..self.plan.receivers).map(open).collect()
    }

    fn open_publishers(&self) -> Outcome<Vec<TcpStream>> {
        let open = |publisher: u32| {
            let client_id = format!("p{:x}-{publisher}", self.run);
            Hello { client_id: &client_id, clean_session: true, subscription: None }.open(self.publishers)
        };
        (0..self.plan.publishers).map(open).collect()
    }

    /// For a broker that continues running.
    fn end_sessions(&self) -> Outcome<()> {
        self.open_receivers(Receivers { clean_session: true, subscribes: false })?
            .into_iter()
            .try_for_each(session::leave)
    }

    fn receiver_id(&self, receiver: u32) -> String {
        format!("s{:x}-{receiver}", self.run)
    }

    /// With publishers only nothing is received, with receivers only nothing is sent.
    fn run_engines(
        &self,
        publishers: Vec<TcpStream>,
        receivers: Vec<TcpStream>,
        sent_before: &[u32],
    ) -> Outcome<Tally> {
        let engines = self.engines(publishers, receivers, sent_before)?;
        let tallies: Vec<Outcome<Tally>> = std::thread::scope(|scope| {
            let threads: Vec<_> = engines.into_iter().map(|e| scope.spawn(|| e.run())).collect();
            let panicked = || Err(Failure::new("a thread of the driver panicked"));
            threads.into_iter().map(|t| t.join().unwrap_or_else(|_| panicked())).collect()
        });
        let mut tallies = tallies.into_iter();
        let none = || Failure::new("nothing to run");
        let mut sum = tallies.next().ok_or_else(none)??;
        tallies.try_for_each(|tally| tally.map(|tally| sum.add(tally)))?;
        Ok(sum)
    }

    /// Splits pairs among threads; the links of a single subscriber or publisher stay together.
    fn engines(
        &self,
        publishers: Vec<TcpStream>,
        receivers: Vec<TcpStream>,
        sent_before: &[u32],
    ) -> Outcome<Vec<Engine>> {
        let threads = match self.plan.shape {
            Shape::Pairs => self.settings.threads.min(self.plan.publishers),
            Shape::FanOut | Shape::FanIn => 1,
        };
        let mut engines: Vec<Engine> = (0..threads).map(|_| self.engine(sent_before)).collect();
        for (index, stream) in (0u32..).zip(publishers) {
            let publisher = self.publisher(index, stream)?;
            engines[(index % threads) as usize].publishers.push(publisher);
        }
        for (index, stream) in (0u32..).zip(receivers) {
            let receiver = self.receiver(index, stream)?;
            engines[(index % threads) as usize].receivers.push(receiver);
        }
        Ok(engines)
    }

    fn engine(&self, sent_before: &[u32]) -> Engine {
        let settings = self.settings;
        let mut share = settings.messages / u64::from(self.plan.publishers);
        if matches!(self.plan.sessions, Sessions::Offline | Sessions::Returning) {
            share = share.min(QUEUED_MAX);
        }
        let bounds = Bounds {
            send_ns: clock::seconds_ns(settings.seconds),
            messages_max: u32::try_from(share).unwrap_or(u32::MAX).max(1),
            quiet_ns: clock::seconds_ns(settings.traffic_quiet_seconds()),
            hard_ns: clock::seconds_ns(settings.seconds + settings.timeout),
        };
        Engine {
            publishers: Vec::new(),
            receivers: Vec::new(),
            send_window: self.plan.send_window,
            bounds,
            sent_before: sent_before.to_vec(),
            payload_bytes: settings.payload_bytes as usize,
            measure_latency: self.plan.measure_latency,
        }
    }

    fn publisher(&self, index: u32, stream: TcpStream) -> Outcome<Publisher> {
        let payload_bytes = self.settings.payload_bytes as usize;
        let template = PublishTemplate::new(&self.topic(index), self.plan.qos, index, payload_bytes);
        let link = Link::new(stream)?;
        Ok(Publisher::new(link, index, template, self.settings.batch, self.plan.ack_window))
    }

    fn receiver(&self, index: u32, stream: TcpStream) -> Outcome<Receiver> {
        let (first_publisher, publishers) = match self.plan.shape {
            Shape::Pairs => (index, 1),
            Shape::FanOut => (0, 1),
            Shape::FanIn => (0, self.plan.publishers),
        };
        Ok(Receiver { link: Link::new(stream)?, first_publisher, publishers })
    }
}
