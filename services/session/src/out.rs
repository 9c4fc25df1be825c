//! The outbound side of one connection.

use std::sync::Arc;

use crate::Message;

pub trait Out {
    fn buffer(&mut self) -> &mut Vec<u8>;

    /// Appends [`Message::body`]: a copy, or a reference when it is large.
    fn body(&mut self, message: &Arc<Message>, with_properties: bool);

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

    fn body(&mut self, message: &Arc<Message>, with_properties: bool) {
        self.extend_from_slice(message.body(with_properties));
    }

    fn is_full(&self) -> bool {
        false
    }
}
