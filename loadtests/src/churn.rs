//! `connect`: connections that come, some at the same time, and then all go. Coming and going are measured
//! apart: brokers differ in the first, and the second is mostly the kernel's.

use std::io::{self, ErrorKind, Read, Write};
use std::time::Duration;

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::broker::Broker;
use crate::clock;
use crate::failure::{Failure, Outcome, While};
use crate::link::socket;
use crate::packet;
use crate::procfs;
use crate::receipts::Faults;
use crate::report::{Better, Figure, Report};
use crate::scenario::{Scenario, Settings};

/// Connections under way at the same time, unless told otherwise; below the smallest listen backlog of the
/// brokers compared.
const CONCURRENT: u32 = 50;
const EVENTS_PER_TURN: usize = 1024;
/// Connections held open before all of them go.
const WAVE: usize = 15_000;
const WAIT: Duration = Duration::from_millis(20);
/// The broker may still be closing what we closed: its CPU time counts once it stands still for so long.
const QUIET_LOOKS: u32 = 5;
const QUIET_LOOK_MS: u64 = 100;
const QUIET_LOOKS_MAX: u32 = 100;

struct Visit {
    stream: TcpStream,
    number: u32,
    greeted: bool,
    answered: usize,
}

struct Churn<'a> {
    poll: Poll,
    broker: &'a Broker,
    /// Places for connections that wait for their CONNACK.
    visits: Vec<Option<Visit>>,
    /// Connections that have it.
    held: Vec<TcpStream>,
    begun: u32,
    done: u32,
    failed: u64,
    connecting_seconds: f64,
    leaving_seconds: f64,
}

/// Connects and disconnects for the given count or time.
pub(crate) fn run(settings: &Settings, broker: &Broker) -> Outcome<Report> {
    let memory_before = broker.memory();
    let driver_before = procfs::own_cpu_seconds();
    let start_ns = clock::now_ns();
    let mut churn = Churn::new(settings, broker)?;
    let timed_out = churn.waves(settings, start_ns)?;
    if churn.done == 0 {
        return Err(Failure::new("no connection came about"));
    }
    let done = f64::from(churn.done);
    let value = churn.connecting_seconds * 1e6 / done;
    Ok(Report {
        scenario: Scenario::Connect.name(),
        broker: broker.name.clone(),
        figure: Figure { name: "us_per_connect", unit: "µs CPU/connect", value, better: Better::Less },
        extra: vec![("us_per_disconnect", churn.leaving_seconds * 1e6 / done)],
        count: u64::from(churn.done),
        wall_seconds: clock::ns_seconds(clock::now_ns() - start_ns),
        server_cpu_seconds: churn.connecting_seconds + churn.leaving_seconds,
        driver_cpu_seconds: procfs::own_cpu_seconds() - driver_before,
        faults: Faults { closed: churn.failed, ..Faults::default() },
        timed_out,
        latency: None,
        ack_latency: None,
        memory_before,
        memory_after: broker.memory(),
    })
}

fn quiet_cpu(broker: &Broker) -> Outcome<f64> {
    let mut last = broker.cpu_seconds()?;
    let mut same = 0;
    for _ in 0..QUIET_LOOKS_MAX {
        clock::pause_ms(QUIET_LOOK_MS);
        let now = broker.cpu_seconds()?;
        same = if now > last { 0 } else { same + 1 };
        last = now;
        if same >= QUIET_LOOKS {
            break;
        }
    }
    Ok(last)
}

impl<'a> Churn<'a> {
    fn new(settings: &Settings, broker: &'a Broker) -> Outcome<Self> {
        let concurrent = settings.window.unwrap_or(CONCURRENT).max(1);
        Ok(Self {
            poll: Poll::new().during("creating an epoll instance")?,
            broker,
            visits: (0..concurrent).map(|_| None).collect(),
            held: Vec::new(),
            begun: 0,
            done: 0,
            failed: 0,
            connecting_seconds: 0.0,
            leaving_seconds: 0.0,
        })
    }

    /// True if the hard time-out ended it.
    fn waves(&mut self, settings: &Settings, start_ns: u64) -> Outcome<bool> {
        let wave = WAVE.min(procfs::connections_max()).max(1);
        loop {
            let before = self.broker.cpu_seconds()?;
            let timed_out = self.connect(settings, start_ns, wave)?;
            let connected = quiet_cpu(self.broker)?;
            let over = timed_out || self.held.len() < wave;
            for mut stream in self.held.drain(..) {
                // A broker that closed before is noticed here at the latest.
                self.failed += u64::from(stream.write_all(&packet::DISCONNECT).is_err());
            }
            self.connecting_seconds += connected - before;
            self.leaving_seconds += quiet_cpu(self.broker)? - connected;
            if over || self.begun >= settings.connects {
                return Ok(timed_out);
            }
        }
    }

    /// Opens up to a wave of connections; true if the hard time-out ended it.
    fn connect(&mut self, settings: &Settings, start_ns: u64, wave: usize) -> Outcome<bool> {
        let send_ns = clock::seconds_ns(settings.seconds);
        let hard_ns = clock::seconds_ns(settings.seconds + settings.timeout);
        let mut events = Events::with_capacity(EVENTS_PER_TURN);
        loop {
            let passed_ns = clock::now_ns() - start_ns;
            if passed_ns >= hard_ns {
                return Ok(true);
            }
            if passed_ns < send_ns {
                self.fill(settings.connects, wave)?;
            }
            if self.visits.iter().all(Option::is_none) {
                return Ok(false);
            }
            match self.poll.poll(&mut events, Some(WAIT)) {
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                polled => polled.during("waiting for events")?,
            }
            for event in &events {
                let Token(place) = event.token();
                self.advance(place);
            }
        }
    }

    /// Begins a visit in every free place.
    fn fill(&mut self, connects_max: u32, wave: usize) -> Outcome<()> {
        let mut under_way = self.visits.iter().flatten().count();
        for place in 0..self.visits.len() {
            let room = self.begun < connects_max && self.held.len() + under_way < wave;
            if room && self.visits[place].is_none() {
                let mut stream = self.begin().during("opening a connection")?;
                let both = Interest::READABLE | Interest::WRITABLE;
                let registry = self.poll.registry();
                registry.register(&mut stream, Token(place), both).during("registering a socket")?;
                self.visits[place] = Some(Visit { stream, number: self.begun, greeted: false, answered: 0 });
                self.begun += 1;
                under_way += 1;
            }
        }
        Ok(())
    }

    fn begin(&self) -> io::Result<TcpStream> {
        let socket = socket()?;
        socket.set_nonblocking(true)?;
        match socket.connect(&self.broker.address.into()) {
            Err(e) if e.raw_os_error() != Some(EINPROGRESS) => return Err(e),
            _ => {}
        }
        Ok(TcpStream::from_std(socket.into()))
    }

    fn advance(&mut self, place: usize) {
        let Some(mut visit) = self.visits[place].take() else { return };
        match visit.advance(&format!("c{:x}-{}", std::process::id(), visit.number)) {
            Ok(false) => self.visits[place] = Some(visit),
            Ok(true) => {
                self.done += 1;
                // What a held connection says later must not come as an event of its place's next visit.
                match self.poll.registry().deregister(&mut visit.stream) {
                    Ok(()) => self.held.push(visit.stream),
                    Err(_) => self.failed += 1,
                }
            }
            Err(_) => self.failed += 1,
        }
    }
}

/// Linux's number for a connection that is still being made; the standard library has no name for it.
const EINPROGRESS: i32 = 115;

impl Visit {
    /// True once the broker has accepted.
    fn advance(&mut self, client_id: &str) -> io::Result<bool> {
        if !self.greeted {
            match self.stream.write(&packet::connect(client_id, true)) {
                Ok(_) => self.greeted = true,
                Err(e) if matches!(e.kind(), ErrorKind::NotConnected | ErrorKind::WouldBlock) => {
                    return Ok(false);
                }
                Err(e) => return Err(e),
            }
        }
        let mut answer = [0; packet::CONNACK_BYTES];
        match self.stream.read(&mut answer[self.answered..]) {
            Ok(0) => return Err(ErrorKind::ConnectionReset.into()),
            Ok(read) => self.answered += read,
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(e) => return Err(e),
        }
        if self.answered < packet::CONNACK_BYTES {
            return Ok(false);
        }
        if answer[3] != 0 {
            return Err(ErrorKind::PermissionDenied.into());
        }
        Ok(true)
    }
}
