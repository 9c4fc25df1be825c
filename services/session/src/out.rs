//! Where the state machine's bytes go.

use std::sync::Arc;

use crate::Message;

/// The outbound bytes of one connection.
pub trait Out {
    /// Where packets are appended.
    fn buffer(&mut self) -> &mut Vec<u8>;

    /// Appends the payload of `message`: a copy, or a reference to it when it is large.
    fn payload(&mut self, message: &Arc<Message>);

    /// True while so much waits for the socket that no further message should be sent.
    fn is_full(&self) -> bool;

    /// True while so much waits to be written, also to a socket that takes it, that what can wait in the session should.
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
