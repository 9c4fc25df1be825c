//! Very many persistent sessions: their names, and publishers that fill their queues. `crowd` lets
//! the sessions connect.

use std::ops::Range;

use crate::broker::Broker;
use crate::clock;
use crate::engine::{Bounds, Engine, SendWindow};
use crate::failure::Outcome;
use crate::link::{Hello, Link};
use crate::packet::PublishTemplate;
use crate::publisher::{Publisher, WINDOW_MAX};
use crate::settings::Settings;
use crate::tally::Tally;

/// Sessions numbered from 0, whose filters have no wildcards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Population {
    /// Makes this run's names differ from those of other runs on the same broker.
    pub(crate) run: u32,
    pub(crate) sessions: u32,
    pub(crate) sessions_per_filter: u32,
}

/// Publishes to the sessions at QoS 1, on one connection for each filter.
pub(crate) struct Filling<'a> {
    pub(crate) population: Population,
    pub(crate) settings: &'a Settings,
    /// Unacknowledged messages of a publisher, at most.
    pub(crate) window: u32,
    /// Messages of each publisher.
    pub(crate) messages: u32,
    pub(crate) send_seconds: f64,
}

impl Population {
    pub(crate) fn new(sessions: u32, sessions_per_filter: u32) -> Self {
        Self { run: std::process::id(), sessions, sessions_per_filter }
    }

    pub(crate) fn with_one_filter(sessions: u32) -> Self {
        Self::new(sessions, sessions)
    }

    pub(crate) fn groups(&self) -> u32 {
        self.sessions.div_ceil(self.sessions_per_filter)
    }

    /// The group of a session, which is also the number of the publisher to it.
    pub(crate) fn group_of(&self, session: u32) -> u32 {
        session / self.sessions_per_filter
    }

    pub(crate) fn client_id(&self, session: u32) -> String {
        format!("n{:x}-{session}", self.run)
    }

    pub(crate) fn topic(&self, group: u32) -> String {
        format!("load/{:x}/{group}", self.run)
    }
}

impl Filling<'_> {
    pub(crate) fn open(&self, groups: Range<u32>, broker: &Broker) -> Outcome<Vec<Publisher>> {
        let open = |group: u32| {
            let client_id = format!("p{:x}-{group}", self.population.run);
            let hello = Hello { client_id: &client_id, clean_session: true, subscription: None };
            let link = Link::new(hello.open(broker.address)?)?;
            let payload_bytes = self.settings.payload_bytes as usize;
            let template = PublishTemplate::new(&self.population.topic(group), 1, group, payload_bytes);
            let window = self.window.clamp(1, WINDOW_MAX);
            Ok(Publisher::new(link, group, template, self.settings.batch, Some(window)))
        };
        groups.map(open).collect()
    }

    pub(crate) fn run(&self, publishers: Vec<Publisher>) -> Outcome<Tally> {
        let bounds = Bounds {
            send_ns: clock::seconds_ns(self.send_seconds),
            messages_max: self.messages,
            quiet_ns: clock::seconds_ns(self.settings.population_quiet_seconds()),
            hard_ns: clock::seconds_ns(self.send_seconds + self.settings.timeout),
        };
        let engine = Engine {
            publishers,
            receivers: Vec::new(),
            send_window: SendWindow::Free,
            bounds,
            sent_before: vec![0; self.population.groups() as usize],
            payload_bytes: self.settings.payload_bytes as usize,
            measure_latency: true,
        };
        engine.run()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_group_may_be_smaller() {
        let population = Population { run: 1, sessions: 201, sessions_per_filter: 100 };
        assert_eq!(population.groups(), 3);
        assert_eq!([0, 99, 100, 200].map(|s| population.group_of(s)), [0, 0, 1, 2]);
    }

    #[test]
    fn sessions_of_different_runs_share_no_name() {
        let [one, two] = [1, 2].map(|run| Population { run, sessions: 9, sessions_per_filter: 3 });
        assert_ne!(one.client_id(5), two.client_id(5));
        assert_ne!(one.topic(1), two.topic(1));
    }
}
