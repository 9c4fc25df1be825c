//! The outbound side of one connection.

use std::sync::Arc;

use crate::Message;

pub trait Out {
    fn buffer(&mut self) -> &mut Vec<u8>;

    /// Appends the payload: a copy, or a reference when it is large.
    fn payload(&mut self, message: &Arc<Message>);

    /// The socket is so busy that no further message should be sent.
    fn is_full(&self) -> bool;

    /// So much is queued for writing that messages should wait in the session, even if the socket accepts more.
    fn is_enough(&self) -> bool {
        self.is_full()
    }
}

impl Out for Vec<u8> {
    fn buffer(&mut self) -> &mut Vec<u8> {
        self
    }

    fn payload(&mut self, message: &Arc<Message>) {
        self.extend_from_slice(message.payload());
    }

    fn is_full(&self) -> bool {
        false
    }
}
