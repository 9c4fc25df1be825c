//! The ring in which an attack meets the server: makes hostile clients and threads, collects checks and notes for the report.

use std::net::{Ipv4Addr, TcpStream};
use std::sync::{Mutex, PoisonError};

use super::client::{Client, dial};
use super::packets::Connect;
use super::server::{ATTACKED, Server};
use super::verdict::{Bound, Check};
use crate::clock;
use crate::failure::{Outcome, While};
use crate::machine::stand_back;

pub(super) const HOSTILE_NETWORK: &str = "127.66.0.0/16";
const MEMORY_LOOKS: u32 = 8;
const MEMORY_LOOK_MS: u64 = 100;

pub(super) struct Ring<'s> {
    pub(super) server: &'s Server,
    /// Smaller numbers, for CI.
    pub(super) short: bool,
    /// Distinguishes the client ids of attacks that run at the same time.
    number: u64,
    checks: Mutex<Vec<Check>>,
    notes: Mutex<Vec<String>>,
}

impl<'s> Ring<'s> {
    pub(super) fn new(server: &'s Server, short: bool, number: u64) -> Self {
        Self { server, short, number, checks: Mutex::default(), notes: Mutex::default() }
    }

    pub(super) fn full_or_short(&self, full: usize, short: usize) -> usize {
        if self.short { short } else { full }
    }

    /// One of [`HOSTILE_NETWORK`] for a hostile client: a thousand clients have a thousand addresses in several
    /// networks, as a botnet has.
    pub(super) fn address(number: usize) -> Ipv4Addr {
        Ipv4Addr::new(127, 66, (number / 250 % 250) as u8, (number % 250 + 2) as u8)
    }

    pub(super) fn connect(&self, name: &str) -> Connect {
        Connect::new(ATTACKED, &format!("{name}.{}", self.number))
    }

    pub(super) fn client(&self, name: &str) -> Outcome<Client> {
        self.client_with(&self.connect(name))
    }

    pub(super) fn client_with(&self, connect: &Connect) -> Outcome<Client> {
        Client::connect(Self::address(0), self.server.mqtt, connect)
    }

    /// Returns fewer clients when the server takes no more.
    pub(super) fn clients(&self, count: usize, connect: impl Fn(usize) -> Connect) -> Vec<Client> {
        let one = |number| Client::connect(Self::address(number), self.server.mqtt, &connect(number)).ok();
        let clients: Vec<Client> = (0..count).map_while(one).collect();
        if clients.len() < count {
            self.note(format!("only {} of {count} clients were let in", clients.len()));
        }
        clients
    }

    pub(super) fn stranger(&self, number: usize) -> Outcome<TcpStream> {
        dial(Self::address(number), self.server.mqtt).during("opening a stranger's connection")
    }

    /// Records how far the attack got, so that a reader sees that it was one.
    pub(super) fn note(&self, text: impl Into<String>) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).push(text.into());
    }

    pub(super) fn at_most(&self, what: &'static str, seen: f64, most: f64, unit: &'static str) {
        self.check(Check { what, seen, bound: Bound::AtMost(most), unit });
    }

    pub(super) fn at_least(&self, what: &'static str, seen: f64, least: f64, unit: &'static str) {
        self.check(Check { what, seen, bound: Bound::AtLeast(least), unit });
    }

    /// Fails if the server granted less than half of the filters: then the attack was none, whatever friendly clients felt.
    pub(super) fn granted(&self, granted: usize, of: usize) {
        self.at_least("filters granted", granted as f64, of as f64 / 2.0, "");
    }

    fn check(&self, check: Check) {
        self.checks.lock().unwrap_or_else(PoisonError::into_inner).push(check);
    }

    pub(super) fn into_findings(self) -> (Vec<Check>, Vec<String>) {
        let (checks, notes) = (self.checks.into_inner(), self.notes.into_inner());
        (checks.unwrap_or_else(PoisonError::into_inner), notes.unwrap_or_else(PoisonError::into_inner))
    }

    /// Compares the memory of each connected, unauthenticated client with the promised limit.
    pub(super) fn check_bytes_each(&self, what: &'static str, before_kb: u64, strangers: usize, most: f64) {
        // Measured several times, because a busy server reads the clients' bytes a little later.
        let mut most_kb = 0;
        for _ in 0..MEMORY_LOOKS {
            clock::pause_ms(MEMORY_LOOK_MS);
            most_kb = most_kb.max(self.server.memory().rss_kb);
        }
        let grown = most_kb.saturating_sub(before_kb) as f64 * 1024.0;
        self.note(format!("{strangers} connections were opened"));
        self.at_most(what, grown / strangers.max(1) as f64, most, "bytes");
    }

    /// Runs `work` on several hostile threads, each with its number.
    pub(super) fn crowd(&self, threads: usize, work: impl Fn(usize) + Sync) {
        std::thread::scope(|scope| {
            for number in 0..threads {
                let work = &work;
                scope.spawn(move || {
                    // At low priority, so that the attack does not take the cores from the server.
                    stand_back();
                    work(number);
                });
            }
        });
    }
}
