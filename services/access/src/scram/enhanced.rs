//! The order of the messages of one enhanced authentication, after the table in [`super`].

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::ScramRefusal;
use super::exchange::{FakeKey, NONCE_BYTES, ScramExchange};
use super::message::First;
use crate::model::ScramVerifier;

/// The enhanced authentication of one connection, from its CONNECT through every re-authentication;
/// a refusal ends it.
#[derive(Default)]
pub struct Enhanced {
    user: Option<Box<str>>,
    state: State,
}

#[derive(Default)]
enum State {
    #[default]
    Idle,
    NeedsVerifier(First),
    Challenged(Box<ScramExchange>),
    Refused,
}

#[derive(Debug, PartialEq, Eq)]
pub struct ScramAccepted {
    pub user: Box<str>,
    /// For the final CONNACK or AUTH.
    pub data: Vec<u8>,
}

impl Enhanced {
    /// Starts a re-authentication of `user`; another user is refused.
    #[must_use]
    pub fn reauthenticate(user: &str) -> Self {
        Self { user: Some(user.into()), state: State::Idle }
    }

    /// True when [`Enhanced::verify_proof`] takes the client's next message, false when
    /// [`Enhanced::begin`] does.
    #[must_use]
    pub fn is_challenged(&self) -> bool {
        matches!(self.state, State::Challenged(_))
    }

    /// Takes the first message, from a CONNECT or an AUTH 0x19; returns the user whose verifier
    /// [`Enhanced::challenge`] needs.
    pub fn begin(&mut self, data: &[u8]) -> Result<&str, ScramRefusal> {
        if !matches!(self.take(), State::Idle) {
            return Err(ScramRefusal::Order);
        }
        let first = First::parse(data)?;
        if self.user.as_deref().is_some_and(|user| user != &*first.user) {
            return Err(ScramRefusal::OtherUser);
        }
        self.state = State::NeedsVerifier(first);
        match &self.state {
            State::NeedsVerifier(first) => Ok(&first.user),
            _ => Err(ScramRefusal::Order),
        }
    }

    /// Returns the data for an AUTH 0x18. `verifier` is `None` for an unknown or disabled user,
    /// which the client cannot notice: `fake` makes the same salt for the same name each time; `random` must be unpredictable.
    pub fn challenge(
        &mut self,
        verifier: Option<&ScramVerifier>,
        fake: &FakeKey,
        random: &[u8; NONCE_BYTES],
    ) -> Result<Vec<u8>, ScramRefusal> {
        self.challenge_with(verifier, fake, &STANDARD.encode(random))
    }

    pub(super) fn challenge_with(
        &mut self,
        verifier: Option<&ScramVerifier>,
        fake: &FakeKey,
        nonce: &str,
    ) -> Result<Vec<u8>, ScramRefusal> {
        let State::NeedsVerifier(first) = self.take() else { return Err(ScramRefusal::Order) };
        let (exchange, message) = ScramExchange::new(first, verifier, fake, nonce);
        self.state = State::Challenged(Box::new(exchange));
        Ok(message.into_bytes())
    }

    /// Checks the client's last message; a wrong password and an unknown user fail alike, with [`ScramRefusal::Proof`].
    pub fn verify_proof(&mut self, data: &[u8]) -> Result<ScramAccepted, ScramRefusal> {
        let State::Challenged(exchange) = self.take() else { return Err(ScramRefusal::Order) };
        let data = exchange.finish(data)?.into_bytes();
        let user = exchange.user;
        (self.user, self.state) = (Some(user.clone()), State::Idle);
        Ok(ScramAccepted { user, data })
    }

    /// Takes the state out and leaves `Refused`, so that a method that returns an error ends the authentication.
    fn take(&mut self) -> State {
        std::mem::replace(&mut self.state, State::Refused)
    }
}
