//! Sessions: who owns one, since when nobody does, how far it has read, and the will of its connection.
//!
//! Every [`attach`] gives the session a new epoch. Whoever writes for a session first shows its epoch to [`fence`], which reads
//! the record serializably; so an owner that was replaced, even in this very moment, writes nothing more. The functions of an
//! owner take the [`Owned`] that only `fence` makes.
//!
//! The cursor has a row of its own: checkpoints come often and must not conflict with the other transactions of the same owner,
//! which all read the record.

mod attach;
mod end;
mod owned;
mod owner;
mod record;
mod will;

#[cfg(test)]
mod tests;

pub use attach::{Attach, Attached, attach};
pub use end::{Settled, abandon, list, purge, settle};
pub use owned::{Detach, Owned, checkpoint, detach, end, fence, save};
pub use owner::{OwnedSession, of_owner, owns_any};
pub use record::{EXPIRY_NEVER, Record, get};
pub use will::Will;

use crate::BrokerId;

/// The name of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionId<'a> {
    /// Its broker.
    pub broker: BrokerId,
    /// Its client id.
    pub client: &'a [u8],
}
