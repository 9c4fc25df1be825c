//! Makes very many visits to a broker, a limited number at a time. A visit is one short connection
//! of one session.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use mio::event::Event;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::broker::Broker;
use crate::clock;
use crate::failure::{Outcome, While};
use crate::latency::Histogram;
use crate::link::{Link, socket};
use crate::packet;
use crate::population::Population;
use crate::procfs;
use crate::receipts::Faults;
use crate::settings::{Credentials, Settings};
pub(crate) use crate::visit::VisitPlan;
use crate::visit::{Step, Visit};

const EVENTS_PER_TURN: usize = 1024;
const READ_BYTES: usize = 64 * 1024;
/// The longest wait for an event; deadlines are checked this often.
const WAIT: Duration = Duration::from_millis(20);
/// Visits open at a time; each needs a descriptor of the broker, too.
const AT_ONCE_MAX: u32 = 15_000;
/// Visits that wait for their CONNACK: fewer than the smallest listen backlog of the brokers
/// compared. With a full backlog a broker drops connections, and the kernel tries them again only
/// after a second.
const KNOCKING_MAX: usize = 90;
/// Default of [`Crowd::at_once`] for a visit of a whole population.
const AT_ONCE: u32 = 500;
/// Linux's number for a connection that is still being made; the standard library has no name for
/// it.
const EINPROGRESS: i32 = 115;

/// When visits begin and end; the first two are on the clock of [`clock::now_ns`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct CrowdLimits {
    begin_until_ns: u64,
    /// Unfinished visits are given up at this time, or after `quiet_ns` without any event.
    end_ns: u64,
    quiet_ns: u64,
}

impl CrowdLimits {
    /// `grace_seconds` is the time for the last visits.
    pub(crate) fn new(seconds: f64, grace_seconds: f64, quiet_seconds: f64) -> Self {
        let now_ns = clock::now_ns();
        Self {
            begin_until_ns: now_ns.saturating_add(clock::seconds_ns(seconds)),
            end_ns: now_ns.saturating_add(clock::seconds_ns(seconds + grace_seconds)),
            quiet_ns: clock::seconds_ns(quiet_seconds),
        }
    }
}

pub(crate) struct Crowd {
    pub(crate) broker: SocketAddr,
    pub(crate) population: Population,
    pub(crate) plan: VisitPlan,
    pub(crate) credentials: Credentials,
    /// Most visits open at a time.
    pub(crate) at_once: u32,
    pub(crate) limits: CrowdLimits,
}

/// The results of the visits, and the links that stay.
pub(crate) struct Attendance {
    pub(crate) done: u32,
    pub(crate) begun: u32,
    pub(crate) delivered: u64,
    pub(crate) faults: Faults,
    /// Time from CONNECT to the last message that is due.
    pub(crate) latency: Histogram,
    pub(crate) staying: Vec<Link>,
    pub(crate) timed_out: bool,
}

impl Population {
    /// Each session connects, subscribes and disconnects.
    pub(crate) fn make(&self, settings: &Settings, broker: &Broker) -> Outcome<Attendance> {
        self.visit(VisitPlan { subscribe: true, ..VisitPlan::default() }, settings, broker)
    }

    /// Ends all sessions, for a broker that continues running.
    pub(crate) fn end(&self, settings: &Settings, broker: &Broker) -> Outcome<()> {
        if broker.stays() {
            self.visit(VisitPlan { clean_session: true, ..VisitPlan::default() }, settings, broker)?;
        }
        Ok(())
    }

    pub(crate) fn visit(&self, plan: VisitPlan, settings: &Settings, broker: &Broker) -> Outcome<Attendance> {
        let crowd = Crowd {
            broker: broker.address,
            population: *self,
            plan,
            credentials: Credentials::default(),
            at_once: settings.window.unwrap_or(AT_ONCE),
            limits: CrowdLimits::new(
                settings.seconds_max,
                settings.timeout,
                settings.population_quiet_seconds(),
            ),
        };
        crowd.run(0..self.sessions)
    }
}

impl Crowd {
    pub(crate) fn run(&self, sessions: Range<u32>) -> Outcome<Attendance> {
        let places = self.at_once.clamp(1, AT_ONCE_MAX).min(procfs::connections_max() as u32) as usize;
        let now_ns = clock::now_ns();
        let mut gathering = Gathering {
            crowd: self,
            poll: Poll::new().during("creating an epoll instance")?,
            places: (0..places).map(|_| None).collect(),
            free: (0..places).collect(),
            knocking: 0,
            next: sessions.start,
            sessions,
            attendance: Attendance::none(),
            buffer: vec![0; READ_BYTES],
            now_ns,
            progress_ns: now_ns,
        };
        gathering.turns()?;
        Ok(gathering.attendance)
    }

    fn first_packets(&self, session: u32) -> Vec<u8> {
        let client_id = self.population.client_id(session);
        let mut bytes = packet::connect_as(&client_id, self.plan.clean_session, self.credentials.of(session));
        if self.plan.subscribe {
            // A client need not wait for CONNACK (MQTT 3.1.1 section 3.1.4).
            let filter = self.population.topic(self.population.group_of(session));
            bytes.extend_from_slice(&packet::subscribe(1, &filter, 1));
        }
        bytes
    }
}

impl Attendance {
    fn none() -> Self {
        Self {
            done: 0,
            begun: 0,
            delivered: 0,
            faults: Faults::default(),
            latency: Histogram::new(),
            staying: Vec::new(),
            timed_out: false,
        }
    }
}

/// Visits in progress on one thread, each in a slot (`places`).
struct Gathering<'a> {
    crowd: &'a Crowd,
    poll: Poll,
    places: Vec<Option<Visit>>,
    free: Vec<usize>,
    /// Connections that wait for their CONNACK.
    knocking: usize,
    sessions: Range<u32>,
    next: u32,
    attendance: Attendance,
    buffer: Vec<u8>,
    now_ns: u64,
    progress_ns: u64,
}

impl Gathering<'_> {
    fn turns(&mut self) -> Outcome<()> {
        let mut events = Events::with_capacity(EVENTS_PER_TURN);
        let limits = self.crowd.limits;
        loop {
            self.now_ns = clock::now_ns();
            let in_time = self.now_ns < limits.begin_until_ns;
            if in_time {
                self.begin()?;
            }
            if self.free.len() == self.places.len() {
                break;
            }
            if self.now_ns >= limits.end_ns || self.now_ns - self.progress_ns >= limits.quiet_ns {
                self.give_up();
                break;
            }
            match self.poll.poll(&mut events, Some(WAIT)) {
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                polled => polled.during("waiting for events")?,
            }
            self.now_ns = clock::now_ns();
            events.iter().for_each(|event| self.advance(event));
        }
        self.attendance.begun = self.next - self.sessions.start;
        Ok(())
    }

    fn begin(&mut self) -> Outcome<()> {
        while self.knocking < KNOCKING_MAX && self.next < self.sessions.end {
            let Some(place) = self.free.pop() else { break };
            let mut stream = connect(self.crowd.broker).during("opening a connection")?;
            let both = Interest::READABLE | Interest::WRITABLE;
            self.poll.registry().register(&mut stream, Token(place), both).during("registering a socket")?;
            let publisher = self.crowd.population.group_of(self.next);
            self.places[place] = Some(Visit::new(Link::accepted(stream), self.next, publisher));
            self.next += 1;
            self.knocking += 1;
        }
        Ok(())
    }

    fn advance(&mut self, event: &Event) {
        let Token(place) = event.token();
        let Some(mut visit) = self.places[place].take() else { return };
        self.progress_ns = self.now_ns;
        let crowd = self.crowd;
        let session = visit.session;
        let first_packets = || crowd.first_packets(session);
        let knocked = !visit.is_connected();
        let step = visit.advance(event, &crowd.plan, first_packets, &mut self.buffer, self.now_ns);
        if knocked && (visit.is_connected() || step != Step::Continues) {
            self.knocking -= 1;
        }
        match step {
            Step::Continues => self.places[place] = Some(visit),
            step => {
                self.free.push(place);
                self.end(visit, step == Step::Done);
            }
        }
    }

    fn end(&mut self, mut visit: Visit, done: bool) {
        let attendance = &mut self.attendance;
        attendance.delivered += u64::from(visit.delivered());
        attendance.faults.add(visit.faults(&self.crowd.plan));
        if let Some(latency_ns) = visit.latency_ns() {
            attendance.latency.record(latency_ns);
        }
        // A link that stays is deregistered, because a later visit gets the slot and with it the link's events.
        let kept = !self.crowd.plan.stays || self.poll.registry().deregister(&mut visit.link.stream).is_ok();
        if done && kept {
            attendance.done += 1;
            if self.crowd.plan.stays {
                attendance.staying.push(visit.link);
            }
        } else {
            attendance.faults.closed += 1;
        }
    }

    /// Ends all open visits: complete ones count as done, and missing messages as lost.
    fn give_up(&mut self) {
        self.attendance.timed_out = true;
        let under_way: Vec<Visit> = self.places.iter_mut().filter_map(Option::take).collect();
        for visit in under_way {
            let complete = visit.complete_ns.is_some();
            self.end(visit, complete);
        }
    }
}

fn connect(broker: SocketAddr) -> io::Result<TcpStream> {
    let socket = socket()?;
    socket.set_nonblocking(true)?;
    match socket.connect(&broker.into()) {
        Err(e) if e.raw_os_error() != Some(EINPROGRESS) => Err(e),
        _ => Ok(TcpStream::from_std(socket.into())),
    }
}
