//! Persistent sessions in the store: a record with owner, epoch and expiry, a cursor (the position up to which the
//! client has acknowledged all messages), and the will of the connection. A will that a function returns fires, so
//! the caller must publish it in the same transaction.
//!
//! Every [`attach`] gives the session a new epoch, which the owner passes to [`fence`] in each transaction that
//! writes the session. `fence` reads the record serializably, so a transaction of a replaced owner fails or conflicts.
//!
//! The cursor has a row of its own, so that the frequent [`checkpoint`]s do not conflict with the owner's other
//! transactions, which all read the record.

mod attach;
mod end;
mod owned;
mod owner;
mod will;

#[cfg(test)]
mod tests;

pub use attach::{Attach, Attached, attach, take_over};
pub use end::{Settled, abandon, abandon_record, list, list_beginning_with, purge, settle};
pub use owned::{Detach, KeepWill, checkpoint, detach, end, leave, save};
pub use owner::{OwnedSession, disown, of_owner, owns_any};
pub use will::{PendingWill, will_bytes};

pub use crate::{
    SessionId,
    session_record::{EXPIRY_NEVER, Owned, SessionRecord, fence, fence_until_taken, get, get_without_cursor},
};
