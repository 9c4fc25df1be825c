//! What a client does with its connections.

use fastrand::Rng;

use crate::link::Link;
use crate::packet::Packet;
use crate::stage::Stage;
use millrace_torture::history::{ClientId, MessageId};

/// A client id and what its CONNECTs say.
pub(crate) struct Identity {
    pub(crate) id: ClientId,
    pub(crate) name: String,
    pub(crate) v5: bool,
    pub(crate) persistent: bool,
}

/// What a role needs to act on an open connection.
pub(crate) struct Io<'a> {
    pub(crate) me: &'a Identity,
    pub(crate) stage: &'a mut Stage,
    pub(crate) link: &'a mut Link,
    pub(crate) rng: &'a mut Rng,
}

/// A CONNECT.
pub(crate) struct Start {
    pub(crate) clean: bool,
    /// A will and its delay in seconds.
    pub(crate) will: Option<(MessageId, u32)>,
}

/// How to leave a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Cut,
    /// In the middle of a packet, then as `Cut`.
    HalfPacket,
    Disconnect,
    DisconnectWithWill,
    /// The next CONNECT goes out while this connection lives.
    TakeOver,
}

/// Leaves the connection and stays away for a while.
#[derive(Clone, Copy)]
pub(crate) struct Leave {
    pub(crate) way: Way,
    pub(crate) away_ms: u64,
}

/// What a client does.
pub(crate) trait Role {
    /// The next CONNECT; may take on a new identity.
    fn begin(&mut self, _stage: &mut Stage, me: &mut Identity, _rng: &mut Rng) -> Start {
        Start { clean: !me.persistent, will: None }
    }

    /// CONNACK came.
    fn connected(&mut self, io: &mut Io<'_>, session_present: bool);

    /// Any other packet came.
    fn packet(&mut self, io: &mut Io<'_>, packet: Packet<'_>);

    /// Called every few milliseconds while connected.
    fn tick(&mut self, io: &mut Io<'_>) -> Option<Leave>;

    /// The connection ended, by its own will.
    fn left(&mut self) {}

    /// The connection ended, by the server or its death; says for how long to stay away, if it cares (ms).
    fn lost(&mut self, _rng: &mut Rng) -> Option<u64> {
        self.left();
        None
    }

    fn wants_to_connect(&self, _stage: &Stage) -> bool {
        true
    }

    /// Nothing is open that has to be finished before the end.
    fn is_settled(&self, stage: &Stage) -> bool;
}

/// One of the ways, as often as it is named.
pub(crate) fn any_way(rng: &mut Rng, ways: &[Way]) -> Way {
    rng.choice(ways).copied().unwrap_or(Way::Cut)
}
