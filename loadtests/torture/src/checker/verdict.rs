//! The checker's findings, and how much it checked.

use std::collections::BTreeSet;
use std::fmt;

use crate::history::History;

const KILLS_SHOWN_MAX: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CheckRule {
    /// An acknowledged message never reached a session that held a subscription before it was sent
    /// (P1, P2, P3).
    Missing,
    /// A QoS 2 message reached the application of one session more than once.
    Twice,
    /// A QoS 1 message arrived again on the same connection, although no client resent it
    /// [MQTT-4.4.0-1].
    Repeated,
    /// A packet id was used for another message before its exchange was complete [MQTT-2.2.1-4].
    IdReused,
    /// Messages of one publisher on one topic came in another order than they were sent (P4)
    /// [MQTT-4.6.0-6].
    Order,
    /// A delivery that no client sent, or that no subscription covers.
    Stray,
    /// Another QoS than publisher and subscription agree on [MQTT-3.8.4-8].
    WrongQos,
    /// Session present was 0 for a session that must exist [MQTT-3.2.2-3].
    SessionGone,
    /// Session present was 1 where there can be no session [MQTT-3.2.2-2].
    SessionFromNowhere,
    /// The server closed a connection for no reason.
    Closed,
    /// A connection that was taken over was not closed (P5) [MQTT-3.1.4-3].
    Lingers,
    /// A new subscriber got no retained message, or one older than the last acknowledged one (P6).
    Retained,
    /// A will that had to be published was not (P7).
    WillLost,
    /// A will was published more than once (P7).
    WillTwice,
    /// A will was published that must not be, or too early [MQTT-3.14.4-3] [MQTT-3.1.3-9].
    WillWrong,
    /// A delayed will was published too early or though its session had come back, and the server
    /// was killed during the delay.
    WillEarly,
    /// A publish or subscription had no answer at the end.
    Unanswered,
    /// The server refused a publish though it is within all limits.
    Refused,
}

#[derive(Clone, Debug)]
pub struct Violation {
    pub rule: CheckRule,
    pub what: String,
    pub events: Vec<usize>,
}

/// How much was checked: a run in which a number is 0 has proven nothing about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "`rows` says what each one is")]
pub struct CheckCounts {
    pub acknowledged_qos1: usize,
    pub acknowledged_qos2: usize,
    pub retransmitted: usize,
    pub received: usize,
    pub repeats: usize,
    pub required: usize,
    pub required_late: usize,
    pub ordered: usize,
    pub exactly_once: usize,
    pub resumed: usize,
    pub resumed_after_kill: usize,
    pub takeovers: usize,
    pub retained: usize,
    pub wills_required: usize,
    pub wills_required_delayed: usize,
    pub wills_required_by_kill: usize,
    pub wills_forbidden: usize,
    pub wills_fired: usize,
    pub kills: usize,
}

#[derive(Clone, Debug, Default)]
pub struct Verdict {
    pub violations: Vec<Violation>,
    pub counts: CheckCounts,
}

impl Verdict {
    pub(crate) fn report(&mut self, rule: CheckRule, what: String, events: Vec<usize>) {
        self.violations.push(Violation { rule, what, events });
    }
}

impl Violation {
    #[must_use]
    pub fn explain(&self, history: &History, kills: &[usize]) -> String {
        let mut lines: BTreeSet<usize> = self.events.iter().copied().collect();
        if let (Some(&first), Some(&last)) = (lines.first(), lines.last()) {
            let between = kills.iter().copied().filter(|kill| (first..=last).contains(kill));
            lines.extend(between.take(KILLS_SHOWN_MAX));
            // A loss has no delivery to show, so the kill after it is shown.
            lines.extend(kills.iter().copied().find(|kill| *kill > last));
        }
        let lines: String = lines.into_iter().map(|at| format!("\n    {}", history.line(at))).collect();
        format!("{}: {}{lines}", self.rule, self.what)
    }
}

impl CheckCounts {
    #[must_use]
    pub fn rows(&self) -> [(&'static str, usize); 19] {
        [
            ("kills", self.kills),
            ("publishes acknowledged at QoS 1", self.acknowledged_qos1),
            ("publishes acknowledged at QoS 2", self.acknowledged_qos2),
            ("publishes sent again", self.retransmitted),
            ("messages received", self.received),
            ("  of these repeats", self.repeats),
            ("deliveries owed to persistent sessions", self.required),
            ("  of these to subscriptions made while messages flowed", self.required_late),
            ("first deliveries checked for order", self.ordered),
            ("QoS 2 deliveries checked for exactly once", self.exactly_once),
            ("resumes with session present", self.resumed),
            ("  of these the first after a kill", self.resumed_after_kill),
            ("takeovers", self.takeovers),
            ("retained messages checked", self.retained),
            ("wills owed", self.wills_required),
            ("  of these with a delay", self.wills_required_delayed),
            ("  of these by a kill", self.wills_required_by_kill),
            ("wills forbidden", self.wills_forbidden),
            ("wills seen", self.wills_fired),
        ]
    }
}

impl fmt::Display for CheckRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "acknowledged message lost",
            Self::Twice => "QoS 2 message delivered twice",
            Self::Repeated => "QoS 1 message repeated without a reason",
            Self::IdReused => "packet id used again too early",
            Self::Order => "out of order",
            Self::Stray => "stray delivery",
            Self::WrongQos => "wrong QoS",
            Self::SessionGone => "session gone",
            Self::SessionFromNowhere => "session from nowhere",
            Self::Closed => "connection closed by the server",
            Self::Lingers => "taken over and not closed",
            Self::Retained => "retained message wrong",
            Self::WillLost => "will lost",
            Self::WillTwice => "will published twice",
            Self::WillWrong => "will published that must not be",
            Self::WillEarly => "will published early over a restart",
            Self::Unanswered => "never answered",
            Self::Refused => "publish refused",
        })
    }
}
