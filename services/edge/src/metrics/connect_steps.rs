//! Times of the steps from an accepted connection to its CONNACK.

use super::Histogram;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectStep {
    /// Connections without TLS skip this step.
    Tls,
    /// Until the CONNECT is carried out: the client sends it, and it may wait for its turn or its broker.
    Packet,
    Authentication,
    /// From the decision to the CONNACK.
    Session,
    /// All steps together.
    Connack,
}

/// In the order of the enum.
const STEPS: [(ConnectStep, &str); 5] = [
    (ConnectStep::Tls, "step=\"tls\""),
    (ConnectStep::Packet, "step=\"packet\""),
    (ConnectStep::Authentication, "step=\"authentication\""),
    (ConnectStep::Session, "step=\"session\""),
    (ConnectStep::Connack, "step=\"connack\""),
];

/// When a connection was accepted, and when its last step ended, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectTimes {
    pub(crate) accepted_us: u64,
    pub(crate) step_us: u64,
    /// Number of the peer's address. Connections without a session are read in turns of their addresses.
    pub(crate) address: u64,
}

#[derive(Debug, Default)]
pub(crate) struct ConnectSteps([Histogram; STEPS.len()]);

impl ConnectSteps {
    pub(crate) fn of(&self, step: ConnectStep) -> &Histogram {
        &self.0[step as usize]
    }

    pub(crate) fn write<'l>(out: &mut String, loops: &(impl Iterator<Item = &'l Self> + Clone)) {
        let name = "millrace_connect_seconds";
        Histogram::write_head(
            out,
            name,
            "Time of the steps from an accepted connection to its CONNACK; the step connack is the whole time.",
        );
        for (step, label) in STEPS {
            Histogram::write_row(out, name, label, loops.clone().map(|one| one.of(step)));
        }
    }
}
