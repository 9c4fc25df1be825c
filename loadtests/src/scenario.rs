//! Names, sizes and targets of the scenarios.

use clap::ValueEnum;

use crate::settings::Settings;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    Idle,
    /// CPU of CONNECT and CONNACK; beside it that of DISCONNECT and close.
    Connect,
    /// Pairs, QoS 1: the next message only after PUBACK and delivery of the last.
    Qos1Closed,
    /// Pairs, QoS 0: as fast as the socket takes.
    Qos0Flood,
    /// Pairs, QoS 0: at most a window in flight per pair.
    Qos0Window,
    /// One publisher to many subscribers, QoS 0, a window ahead of the slowest.
    Fanout,
    /// Many publishers to one subscriber, QoS 0, as fast as the sockets take.
    FaninQos0,
    /// Many publishers to one subscriber, QoS 1, each publisher waiting for its PUBACK.
    FaninQos1,
    /// Persistent sessions, subscribers offline, QoS 1: each publisher waits for its PUBACK; counts
    /// acknowledged publishes.
    DurablePublishClosed,
    /// Persistent sessions, subscribers offline, QoS 1: counts acknowledged publishes.
    DurablePublish,
    /// Persistent sessions: deliveries after the subscribers come back.
    DurableDrain,
    /// Persistent sessions, subscribers online, QoS 1: the next message after PUBACK and delivery
    /// of the last.
    DurableOnlineClosed,
    /// Persistent sessions, subscribers online, QoS 1.
    DurableOnline,
    /// Very many offline sessions on one filter: their cost, and the cost of a publish to them.
    OfflineSessions,
    Resume,
    Reconnect,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Target {
    /// At least this multiple of mosquitto 2.0's figure in the same run.
    Ratio(f64),
    AtMost(f64),
}

/// A scenario to run, with a number of sessions if its size is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SizedScenario {
    pub(crate) scenario: Scenario,
    pub(crate) sessions: Option<u32>,
}

impl Scenario {
    /// The scenarios that `compare` runs by default.
    pub(crate) const LIVE: [Self; 8] = [
        Self::Idle,
        Self::Connect,
        Self::Qos1Closed,
        Self::Qos0Flood,
        Self::Qos0Window,
        Self::Fanout,
        Self::FaninQos0,
        Self::FaninQos1,
    ];

    pub(crate) const DURABLE: [Self; 8] = [
        Self::DurablePublishClosed,
        Self::DurablePublish,
        Self::DurableDrain,
        Self::DurableOnlineClosed,
        Self::DurableOnline,
        Self::OfflineSessions,
        Self::Resume,
        Self::Reconnect,
    ];

    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned())
    }

    pub(crate) fn is_durable(self) -> bool {
        Self::DURABLE.contains(&self)
    }

    pub(crate) fn stores_messages(self) -> bool {
        matches!(
            self,
            Self::DurablePublishClosed
                | Self::DurablePublish
                | Self::DurableOnlineClosed
                | Self::DurableOnline
                | Self::OfflineSessions
        )
    }

    /// The project's first target. A connect has a goal in microseconds, which depends on the
    /// authentication; scenarios without a figure of another broker have none.
    pub(crate) fn target(self) -> Option<Target> {
        match self {
            Self::Idle => Some(Target::Ratio(1.0)),
            Self::Qos1Closed => Some(Target::Ratio(1.2)),
            Self::Qos0Flood => Some(Target::Ratio(18.0)),
            Self::Qos0Window => Some(Target::Ratio(11.0)),
            Self::Fanout => Some(Target::Ratio(20.0)),
            Self::FaninQos0 => Some(Target::Ratio(14.0)),
            Self::FaninQos1 => Some(Target::Ratio(2.1)),
            Self::DurablePublish => Some(Target::Ratio(100.0 / 96.0)),
            Self::DurableDrain => Some(Target::Ratio(150.0 / 108.0)),
            Self::DurableOnline => Some(Target::Ratio(80.0 / 52.0)),
            // 2 s for 18,000 sessions.
            Self::Reconnect => Some(Target::AtMost(2e6 / 18_000.0)),
            Self::Connect
            | Self::DurablePublishClosed
            | Self::DurableOnlineClosed
            | Self::OfflineSessions
            | Self::Resume => None,
        }
    }

    /// Default numbers of persistent sessions, fewer in a comparison because some brokers need time
    /// with the square of the number.
    pub(crate) fn default_sessions(self, compared: bool) -> &'static [u32] {
        match (self, compared) {
            (Self::OfflineSessions, false) => &[1_000_000],
            (Self::OfflineSessions, true) => &[1, 1000, 20_000],
            (Self::Resume, false) => &[200_000],
            (Self::Resume, true) => &[20_000],
            (Self::Reconnect, _) => &[18_000],
            _ => &[],
        }
    }

    pub(crate) fn cases(self, settings: &Settings, compared: bool) -> Vec<SizedScenario> {
        let default = self.default_sessions(compared);
        let sizes = if settings.sessions.is_empty() { default } else { settings.sessions.as_slice() };
        match default {
            [] => vec![SizedScenario { scenario: self, sessions: None }],
            _ => sizes.iter().map(|n| SizedScenario { scenario: self, sessions: Some(*n) }).collect(),
        }
    }
}

impl SizedScenario {
    /// With the size where the scenario has several.
    pub(crate) fn name(self) -> String {
        let name = self.scenario.name();
        self.sessions.map_or_else(|| name.clone(), |sessions| format!("{name} {sessions}"))
    }

    pub(crate) fn is_smaller_when_compared(self) -> bool {
        self.scenario.default_sessions(true) != self.scenario.default_sessions(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::parsed;

    #[test]
    fn scenario_names_are_those_of_the_documents() {
        let names: Vec<String> = Scenario::value_variants().iter().map(|s| s.name()).collect();
        let documented = "idle connect qos1-closed qos0-flood qos0-window fanout fanin-qos0 fanin-qos1 \
                          durable-publish-closed durable-publish durable-drain durable-online-closed \
                          durable-online offline-sessions resume reconnect";
        assert_eq!(names.join(" "), documented);
    }

    #[test]
    fn every_scenario_is_in_one_of_the_two_groups() {
        let grouped = [Scenario::LIVE, Scenario::DURABLE].concat();
        assert_eq!(grouped, Scenario::value_variants());
    }

    #[test]
    fn sizes_apply_to_the_scenarios_about_sessions_only() {
        let names = |scenario: Scenario, arguments: &[&str], compared| {
            let cases = scenario.cases(&parsed(arguments), compared);
            cases.into_iter().map(SizedScenario::name).collect::<Vec<_>>().join(", ")
        };
        let sizes = ["--sessions", "1,1000"];
        assert_eq!(names(Scenario::OfflineSessions, &[], false), "offline-sessions 1000000");
        assert_eq!(
            names(Scenario::OfflineSessions, &sizes, true),
            "offline-sessions 1, offline-sessions 1000"
        );
        assert_eq!(names(Scenario::Resume, &[], true), "resume 20000");
        assert_eq!(names(Scenario::DurableOnline, &sizes, false), "durable-online");
    }
}
