//! Sessions: owner, epoch, expiry, cursor, and the will of the connection.
//!
//! Every [`attach`] gives the session a new epoch, which its owner shows to [`fence`] before it writes. `fence` reads
//! the record serializably, so a replaced owner writes nothing more, even if it is replaced at this moment.
//!
//! The cursor has a row of its own: checkpoints come often, and must not conflict with other transactions of the
//! owner, which all read the record.

mod attach;
mod end;
mod owned;
mod owner;
mod will;

#[cfg(test)]
mod tests;

pub use attach::{Attach, Attached, attach};
pub use end::{Settled, abandon, list, list_beginning_with, purge, settle};
pub use owned::{Detach, checkpoint, detach, end, save};
pub use owner::{OwnedSession, of_owner, owns_any};
pub use will::{PendingWill, will_bytes};

pub use crate::{
    SessionId,
    session_record::{EXPIRY_NEVER, Owned, Record, fence, get},
};
