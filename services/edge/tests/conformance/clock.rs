//! Time for the conformance tests: lets the server's clock run on, and measures durations.

use std::time::{Duration, Instant};

use millrace_mqtt::{Connect, Property, Publish, QoS, Version, Will};

use crate::common::{Client, Server, connect, properties, will};

/// Lets this many seconds of the server's time pass (at most one more): waits for a will that is delayed by them.
pub(crate) fn pass(server: &Server, seconds: u32) {
    let mut face = Client::connect(server, Version::V5, "clock-face");
    face.subscribe("clock", QoS::AtMostOnce);
    let delay = properties(&[Property::WillDelayInterval(seconds)]);
    let hand = Client::open(
        server,
        Connect {
            properties: properties(&[Property::SessionExpiryInterval(60)]),
            will: Some(Will { properties: delay, ..will("clock", b"tick") }),
            ..connect(Version::V5, "clock-hand")
        },
    );
    hand.cut();
    assert!(matches!(face.recv_publish(), Publish { topic: "clock", .. }));
    face.disconnect();
}

/// How long something takes as the client sees it.
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[allow(clippy::disallowed_methods, reason = "a test measures the server from outside")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}
