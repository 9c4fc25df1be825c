//! The memory of a client, whichever pod it is connected to: the QoS 2 message that it is sending.

use super::MessageId;

#[derive(Clone, Debug, Default)]
pub(crate) struct Client {
    pub(crate) sending: Option<Sending>,
    sent: u16,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Sending {
    pub(crate) packet: u16,
    pub(crate) message: MessageId,
    pub(crate) stage: Stage,
    /// The life of the session that it is sent in; another life of the session does not know the
    /// message.
    pub(crate) life: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// No PUBREC yet; the message may be stored or not.
    Published,
    /// PUBREC came: it is stored, with the packet id.
    Received,
    /// PUBREL was sent: the packet id may be forgotten.
    Released,
}

impl Client {
    pub(crate) fn send(&mut self, message: MessageId, life: u64) -> Sending {
        self.sent = self.sent % 1_000 + 1;
        let sending = Sending { packet: self.sent, message, stage: Stage::Published, life };
        self.sending = Some(sending);
        sending
    }

    pub(crate) fn moved(&mut self, message: MessageId, from: Stage, to: Stage) {
        if let Some(sending) = self.sending.as_mut().filter(|it| it.message == message && it.stage == from) {
            sending.stage = to;
        }
    }

    pub(crate) fn completed(&mut self, message: MessageId) {
        self.sending.take_if(|sending| sending.message == message);
    }

    /// Whether a session that continues may know these packet ids.
    pub(crate) fn expects(&self, received: &[u16]) -> bool {
        match &self.sending {
            None => received.is_empty(),
            Some(sending) if sending.stage == Stage::Received => received == [sending.packet],
            Some(sending) => received.is_empty() || received == [sending.packet],
        }
    }
}
