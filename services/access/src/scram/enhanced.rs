//! The authentication of a connection, and its authentications anew.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::Refusal;
use super::exchange::{Exchange, FakeKey, NONCE_BYTES};
use super::message::First;
use crate::model::ScramVerifier;

/// Where a connection stands. After a refusal it is over: nothing is taken any more.
#[derive(Default)]
pub struct Enhanced {
    /// Who it is, once that was proven.
    user: Option<Box<str>>,
    state: State,
}

#[derive(Default)]
enum State {
    #[default]
    Idle,
    /// The verifier is being looked up.
    LooksUp(First),
    Challenged(Box<Exchange>),
    Over,
}

/// A client has proven who it is.
#[derive(Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Its user name.
    pub user: Box<str>,
    /// The authentication data of the CONNACK or AUTH that says so.
    pub data: Vec<u8>,
}

impl Enhanced {
    /// Of a client that is let in already, as this user: it cannot become another.
    #[must_use]
    pub fn anew(user: &str) -> Self {
        Self { user: Some(user.into()), state: State::Idle }
    }

    /// Whether the client has been challenged: what it sends next is for [`Enhanced::proceed`], else for [`Enhanced::begin`].
    #[must_use]
    pub fn is_challenged(&self) -> bool {
        matches!(self.state, State::Challenged(_))
    }

    /// The first message came, in CONNECT or in an AUTH 0x19. Says whose verifier to look up, for [`Enhanced::found`].
    ///
    /// # Errors
    /// Why the connection is to be closed.
    pub fn begin(&mut self, data: &[u8]) -> Result<&str, Refusal> {
        if !matches!(self.take(), State::Idle) {
            return Err(Refusal::Order);
        }
        let first = First::parse(data)?;
        if self.user.as_deref().is_some_and(|user| user != &*first.user) {
            return Err(Refusal::OtherUser);
        }
        self.state = State::LooksUp(first);
        match &self.state {
            State::LooksUp(first) => Ok(&first.user),
            _ => Err(Refusal::Order),
        }
    }

    /// The verifier was looked up. `None` when the user is not known or may not connect; the client is not told. `random` is random.
    /// Gives the data of an AUTH 0x18.
    ///
    /// # Errors
    /// [`Refusal::Order`] when nothing was to be looked up.
    pub fn found(
        &mut self,
        verifier: Option<&ScramVerifier>,
        fake: &FakeKey,
        random: &[u8; NONCE_BYTES],
    ) -> Result<Vec<u8>, Refusal> {
        self.found_with(verifier, fake, &STANDARD.encode(random))
    }

    pub(super) fn found_with(
        &mut self,
        verifier: Option<&ScramVerifier>,
        fake: &FakeKey,
        nonce: &str,
    ) -> Result<Vec<u8>, Refusal> {
        let State::LooksUp(first) = self.take() else { return Err(Refusal::Order) };
        let (exchange, message) = Exchange::new(first, verifier, fake, nonce);
        self.state = State::Challenged(Box::new(exchange));
        Ok(message.into_bytes())
    }

    /// The client's answer came, in an AUTH 0x18.
    ///
    /// # Errors
    /// Why the connection is to be closed.
    pub fn proceed(&mut self, data: &[u8]) -> Result<Accepted, Refusal> {
        let State::Challenged(exchange) = self.take() else { return Err(Refusal::Order) };
        let data = exchange.finish(data)?.into_bytes();
        let user = exchange.user;
        (self.user, self.state) = (Some(user.clone()), State::Idle);
        Ok(Accepted { user, data })
    }

    /// What follows says how it goes on; without that it is over.
    fn take(&mut self) -> State {
        std::mem::replace(&mut self.state, State::Over)
    }
}
