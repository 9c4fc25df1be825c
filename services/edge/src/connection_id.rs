//! Names a connection of the process for every part that answers it: authentication, the store, other event loops.

/// A connection of the process: a slot may be used again, a generation is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ConnectionId {
    pub(crate) core: u16,
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}
