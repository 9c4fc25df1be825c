use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::ScramRefusal;
use super::exchange::{Exchange, FakeKey, NONCE_BYTES};
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
    LooksUp(First),
    Challenged(Box<Exchange>),
    Over,
}

#[derive(Debug, PartialEq, Eq)]
pub struct ScramAccepted {
    pub user: Box<str>,
    /// Authentication data for the final CONNACK or AUTH.
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
        self.state = State::LooksUp(first);
        match &self.state {
            State::LooksUp(first) => Ok(&first.user),
            _ => Err(ScramRefusal::Order),
        }
    }

    /// Returns the data for an AUTH 0x18. `verifier` is `None` for an unknown or disabled user,
    /// which the client cannot notice; `random` must be unpredictable.
    ///
    /// # Errors
    /// [`ScramRefusal::Order`] when no lookup is under way.
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
        let State::LooksUp(first) = self.take() else { return Err(ScramRefusal::Order) };
        let (exchange, message) = Exchange::new(first, verifier, fake, nonce);
        self.state = State::Challenged(Box::new(exchange));
        Ok(message.into_bytes())
    }

    pub fn verify_proof(&mut self, data: &[u8]) -> Result<ScramAccepted, ScramRefusal> {
        let State::Challenged(exchange) = self.take() else { return Err(ScramRefusal::Order) };
        let data = exchange.finish(data)?.into_bytes();
        let user = exchange.user;
        (self.user, self.state) = (Some(user.clone()), State::Idle);
        Ok(ScramAccepted { user, data })
    }

    /// Leaves the state `Over` behind, which is right for a caller that fails.
    fn take(&mut self) -> State {
        std::mem::replace(&mut self.state, State::Over)
    }
}
