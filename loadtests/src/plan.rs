//! The flow of messages in a scenario: publishers, receivers, windows, sessions. [`Plan::of`]
//! derives it from the scenario's name and the command line; the engine carries it out.

use crate::engine::SendWindow;
use crate::publisher::WINDOW_MAX;
use crate::scenario::Scenario;
use crate::settings::Settings;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Pairs,
    FanOut,
    FanIn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sessions {
    Clean,
    /// Persistent; the receivers stay connected.
    Online,
    /// Persistent; the receivers are offline and do not return.
    Offline,
    /// Persistent; the receivers are offline during the publishing, which is not measured, and
    /// return in the run.
    Returning,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) shape: Shape,
    pub(crate) publishers: u32,
    pub(crate) receivers: u32,
    pub(crate) qos: u8,
    pub(crate) send_window: SendWindow,
    /// Unacknowledged publishes of each publisher at QoS 1.
    pub(crate) ack_window: Option<u32>,
    pub(crate) sessions: Sessions,
    pub(crate) measure_latency: bool,
}

impl Plan {
    /// `--window` replaces the scenario's default: the acknowledgement window at QoS 1, the send
    /// window otherwise. 0 lifts the send window. `None`: the scenario has code of its own.
    pub(crate) fn of(scenario: Scenario, settings: &Settings) -> Option<Self> {
        let acks = |default: u32| Some(settings.window.unwrap_or(default).clamp(1, WINDOW_MAX));
        let own = |default: u32| match settings.window.unwrap_or(default) {
            0 => SendWindow::Free,
            window => SendWindow::OwnReceiver(window),
        };
        let pairs = Self {
            shape: Shape::Pairs,
            publishers: settings.pairs,
            receivers: settings.pairs,
            qos: 0,
            send_window: SendWindow::Free,
            ack_window: None,
            sessions: Sessions::Clean,
            measure_latency: false,
        };
        let closed = Self {
            qos: 1,
            send_window: SendWindow::OwnReceiver(settings.window.unwrap_or(1).max(1)),
            ack_window: acks(1),
            measure_latency: true,
            ..pairs
        };
        let fan_in = Self { shape: Shape::FanIn, receivers: 1, ..pairs };
        let durable = Self { qos: 1, ack_window: acks(100), measure_latency: true, ..pairs };
        match scenario {
            Scenario::Idle
            | Scenario::Connect
            | Scenario::OfflineSessions
            | Scenario::Resume
            | Scenario::Reconnect => None,
            Scenario::Qos1Closed => Some(closed),
            Scenario::Qos0Flood => Some(Self { send_window: own(0), ..pairs }),
            Scenario::Qos0Window => Some(Self { send_window: own(20), measure_latency: true, ..pairs }),
            Scenario::Fanout => Some(Self {
                shape: Shape::FanOut,
                publishers: 1,
                receivers: settings.subscribers,
                send_window: match settings.window.unwrap_or(1000) {
                    0 => SendWindow::Free,
                    window => SendWindow::SlowestReceiver(window),
                },
                ..pairs
            }),
            Scenario::FaninQos0 => Some(Self { send_window: own(0), ..fan_in }),
            Scenario::FaninQos1 => {
                Some(Self { qos: 1, ack_window: acks(1), measure_latency: true, ..fan_in })
            }
            // Nothing is delivered, so latency is that of acknowledgements.
            Scenario::DurablePublishClosed => {
                Some(Self { sessions: Sessions::Offline, ack_window: acks(1), ..durable })
            }
            Scenario::DurablePublish => Some(Self { sessions: Sessions::Offline, ..durable }),
            // No latency: the age of a queued message says nothing about the broker.
            Scenario::DurableDrain => {
                Some(Self { sessions: Sessions::Returning, measure_latency: false, ..durable })
            }
            Scenario::DurableOnlineClosed => Some(Self { sessions: Sessions::Online, ..closed }),
            Scenario::DurableOnline => Some(Self { sessions: Sessions::Online, ..durable }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::parsed;
    use clap::ValueEnum;

    #[test]
    fn a_window_of_zero_lifts_only_the_limits_of_qos_0() {
        let settings = parsed(&["--window", "0"]);
        let plan = |scenario| Plan::of(scenario, &settings).unwrap();
        assert_eq!(plan(Scenario::Qos0Window).send_window, SendWindow::Free);
        assert_eq!(plan(Scenario::Fanout).send_window, SendWindow::Free);
        assert_eq!(plan(Scenario::FaninQos1).ack_window, Some(1));
        assert_eq!(plan(Scenario::DurableOnlineClosed).send_window, SendWindow::OwnReceiver(1));
    }

    #[test]
    fn every_qos_1_plan_has_a_window_and_no_qos_0_plan_has_one() {
        for scenario in Scenario::value_variants() {
            let Some(plan) = Plan::of(*scenario, &parsed(&[])) else { continue };
            assert_eq!(plan.ack_window.is_some(), plan.qos == 1, "{scenario:?}");
        }
    }

    #[test]
    fn the_closed_loops_of_durable_messages_have_one_in_flight() {
        for scenario in [Scenario::DurableOnlineClosed, Scenario::DurablePublishClosed] {
            let plan = Plan::of(scenario, &parsed(&[])).unwrap();
            assert_eq!((plan.ack_window, plan.qos, plan.measure_latency), (Some(1), 1, true), "{scenario:?}");
            assert_ne!(plan.sessions, Sessions::Clean);
        }
    }
}
