//! The interface of a role: how one kind of client acts, such as a publisher or a subscriber.
//!
//! `client::Client` owns the connection and calls the role: `begin` before each CONNECT, `connected` after a CONNACK that accepts, then
//! `packet` and `tick`, and in the end `left` (the client ends the connection) or `lost` (the server does). A role records what it sends
//! and receives with [`Stage`]; the checker judges the record later.

use fastrand::Rng;

use crate::link::Link;
use crate::packet::Packet;
use crate::stage::Stage;
use millrace_torture::history::{ClientId, MessageId};

pub(crate) struct Identity {
    pub(crate) id: ClientId,
    pub(crate) name: String,
    pub(crate) v5: bool,
    pub(crate) persistent: bool,
}

pub(crate) struct Io<'a> {
    pub(crate) me: &'a Identity,
    pub(crate) stage: &'a mut Stage,
    pub(crate) link: &'a mut Link,
    pub(crate) rng: &'a mut Rng,
}

pub(crate) struct Start {
    pub(crate) clean: bool,
    /// The will, and its delay in seconds.
    pub(crate) will: Option<(MessageId, u32)>,
}

/// How a client ends its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Closes the socket without a DISCONNECT.
    Cut,
    /// Sends half a packet, and closes the socket.
    HalfPacket,
    Disconnect,
    DisconnectWithWill,
    /// The next CONNECT is sent while this connection lives.
    TakeOver,
}

/// Ends the connection; the next CONNECT follows after `away_ms`.
#[derive(Clone, Copy)]
pub(crate) struct Leave {
    pub(crate) way: Way,
    pub(crate) away_ms: u64,
}

pub(crate) trait Role {
    /// May choose a new identity.
    fn begin(&mut self, _stage: &mut Stage, me: &mut Identity, _rng: &mut Rng) -> Start {
        Start { clean: !me.persistent, will: None }
    }

    fn connected(&mut self, io: &mut Io<'_>, session_present: bool);

    fn packet(&mut self, io: &mut Io<'_>, packet: Packet<'_>);

    /// Called every few milliseconds while connected.
    fn tick(&mut self, io: &mut Io<'_>) -> Option<Leave>;

    fn left(&mut self) {}

    /// The server ended the connection or died; returns how long the client stays offline, if the
    /// role cares (ms).
    fn lost(&mut self, _rng: &mut Rng) -> Option<u64> {
        self.left();
        None
    }

    fn wants_to_connect(&self, _stage: &Stage) -> bool {
        true
    }

    /// No exchange is open that must be finished before the end.
    fn is_settled(&self, stage: &Stage) -> bool;
}

pub(crate) fn any_way(rng: &mut Rng, ways: &[Way]) -> Way {
    rng.choice(ways).copied().unwrap_or(Way::Cut)
}
