//! The scenarios: who sends to whom, how fast, what is counted, and what Millrace is to reach.

use clap::{Args, ValueEnum};

use crate::engine::Pace;
use crate::publisher::WINDOW_MAX;

/// What is run against a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// Memory of connections that do nothing.
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
    /// Persistent sessions, subscribers offline, QoS 1: counts acknowledged publishes.
    DurablePublish,
    /// Persistent sessions: deliveries after the subscribers come back.
    DurableDrain,
    /// Persistent sessions, subscribers online, QoS 1.
    DurableOnline,
}

/// How large and how long.
#[derive(Args, Clone, Debug)]
pub(crate) struct Settings {
    /// Seconds that publishers send in each run.
    #[arg(long, default_value_t = 5.0)]
    pub(crate) seconds: f64,
    /// Pairs; publishers of the fan-in and durable scenarios.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=9000))]
    pub(crate) pairs: u32,
    /// Subscribers of the fan-out.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=19_000))]
    pub(crate) subscribers: u32,
    /// Connections of `idle`.
    #[arg(long, default_value_t = 18_000, value_parser = clap::value_parser!(u32).range(1..=900_000))]
    pub(crate) connections: u32,
    /// With `idle`: one subscription for each connection.
    #[arg(long)]
    pub(crate) subscribe: bool,
    /// Connects of `connect`, at most.
    #[arg(long, default_value_t = 30_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) connects: u32,
    /// Messages in flight, or with `connect` connections under way, instead of the scenario's own number; 0
    /// lifts the limit of a QoS 0 scenario.
    #[arg(long)]
    pub(crate) window: Option<u32>,
    /// Messages a publisher gives to the socket in one write, at most. Large ones flatter brokers that pass on
    /// whole reads.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) batch: u32,
    /// Bytes of a payload; the first 16 carry the driver's stamp.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(16..=60_000))]
    pub(crate) payload_bytes: u32,
    /// Messages published in a run, at most.
    #[arg(long, default_value_t = 50_000_000)]
    pub(crate) messages: u64,
    /// Without a delivery or acknowledgement for so many seconds, the rest counts as lost.
    #[arg(long, default_value_t = 2.0)]
    pub(crate) quiet_seconds: f64,
    /// Seconds a run may take beyond those of sending; then it ends with what it has.
    #[arg(long, default_value_t = 60.0)]
    pub(crate) timeout: f64,
    /// Threads of the driver among which pairs are split; fan-in and fan-out always run on one.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) threads: u32,
}

/// Who receives what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Pairs,
    FanOut,
    FanIn,
}

/// How long the receivers' sessions live, and where the receivers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sessions {
    /// End with the connection.
    Clean,
    /// Persistent, receivers connected.
    Online,
    /// Persistent, receivers away during the run.
    Offline,
    /// Persistent, receivers away while publishing, which is not measured, and back in the run.
    Returning,
}

/// A scenario in which messages flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) shape: Shape,
    pub(crate) publishers: u32,
    pub(crate) receivers: u32,
    pub(crate) qos: u8,
    pub(crate) pace: Pace,
    /// Unacknowledged publishes of each publisher at QoS 1.
    pub(crate) ack_window: Option<u32>,
    pub(crate) sessions: Sessions,
    pub(crate) measure_latency: bool,
}

impl Scenario {
    /// Those without persistent sessions: what `compare` runs unless told otherwise.
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

    /// Its name on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned())
    }

    /// What Millrace's figure is to be of mosquitto 2.0's in the same run: the project's first target. The
    /// live ones and the durable ones come from its tables; connects have a goal in microseconds instead.
    pub(crate) fn target_ratio(self) -> Option<f64> {
        match self {
            Self::Idle => Some(1.0),
            Self::Connect => None,
            Self::Qos1Closed => Some(1.2),
            Self::Qos0Flood => Some(18.0),
            Self::Qos0Window => Some(11.0),
            Self::Fanout => Some(20.0),
            Self::FaninQos0 => Some(14.0),
            Self::FaninQos1 => Some(2.1),
            Self::DurablePublish => Some(100.0 / 96.0),
            Self::DurableDrain => Some(150.0 / 108.0),
            Self::DurableOnline => Some(80.0 / 52.0),
        }
    }

    /// How messages flow; `None` for the scenarios that are about connections.
    pub(crate) fn plan(self, settings: &Settings) -> Option<Plan> {
        let acks = |default: u32| Some(settings.window.unwrap_or(default).clamp(1, WINDOW_MAX));
        let own = |default: u32| match settings.window.unwrap_or(default) {
            0 => Pace::Free,
            window => Pace::OwnReceiver(window),
        };
        let pairs = Plan {
            shape: Shape::Pairs,
            publishers: settings.pairs,
            receivers: settings.pairs,
            qos: 0,
            pace: Pace::Free,
            ack_window: None,
            sessions: Sessions::Clean,
            measure_latency: false,
        };
        let fan_in = Plan { shape: Shape::FanIn, receivers: 1, ..pairs };
        let durable = Plan { qos: 1, ack_window: acks(100), ..pairs };
        match self {
            Self::Idle | Self::Connect => None,
            Self::Qos1Closed => Some(Plan {
                qos: 1,
                pace: Pace::OwnReceiver(settings.window.unwrap_or(1).max(1)),
                ack_window: acks(1),
                measure_latency: true,
                ..pairs
            }),
            Self::Qos0Flood => Some(Plan { pace: own(0), ..pairs }),
            Self::Qos0Window => Some(Plan { pace: own(20), measure_latency: true, ..pairs }),
            Self::Fanout => Some(Plan {
                shape: Shape::FanOut,
                publishers: 1,
                receivers: settings.subscribers,
                pace: match settings.window.unwrap_or(1000) {
                    0 => Pace::Free,
                    window => Pace::SlowestReceiver(window),
                },
                ..pairs
            }),
            Self::FaninQos0 => Some(Plan { pace: own(0), ..fan_in }),
            Self::FaninQos1 => Some(Plan { qos: 1, ack_window: acks(1), measure_latency: true, ..fan_in }),
            Self::DurablePublish => Some(Plan { sessions: Sessions::Offline, ..durable }),
            Self::DurableDrain => Some(Plan { sessions: Sessions::Returning, ..durable }),
            Self::DurableOnline => {
                Some(Plan { sessions: Sessions::Online, measure_latency: true, ..durable })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        settings: Settings,
    }

    fn settings(arguments: &[&str]) -> Settings {
        Line::parse_from([&["x"], arguments].concat()).settings
    }

    #[test]
    fn scenario_names_are_those_of_the_documents() {
        let names: Vec<String> = Scenario::value_variants().iter().map(|s| s.name()).collect();
        let documented = "idle connect qos1-closed qos0-flood qos0-window fanout fanin-qos0 fanin-qos1 \
                          durable-publish durable-drain durable-online";
        assert_eq!(names.join(" "), documented);
    }

    #[test]
    fn a_window_of_zero_lifts_only_the_limits_of_qos_0() {
        let settings = settings(&["--window", "0"]);
        assert_eq!(Scenario::Qos0Window.plan(&settings).unwrap().pace, Pace::Free);
        assert_eq!(Scenario::Fanout.plan(&settings).unwrap().pace, Pace::Free);
        assert_eq!(Scenario::FaninQos1.plan(&settings).unwrap().ack_window, Some(1));
    }

    #[test]
    fn every_qos_1_plan_has_a_window_and_no_qos_0_plan_has_one() {
        for scenario in Scenario::value_variants() {
            let Some(plan) = scenario.plan(&settings(&[])) else { continue };
            assert_eq!(plan.ack_window.is_some(), plan.qos == 1, "{scenario:?}");
        }
    }
}
