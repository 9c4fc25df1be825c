//! One network connection as its core holds it.

use std::net::SocketAddr;
use std::sync::Arc;

use millrace_access::entry::Method;
use millrace_authentication::{Cancellation, PendingRequest};
use millrace_session::{Accept, Connection, Message, Seconds};
use millrace_transport::addresses::Address;
use millrace_transport::socket::Socket;

use super::write_sizer::WriteSizer;
use crate::authorization::{ExchangeTurn, Granted};
use crate::broker::Broker;
use crate::clock::Ticks;
use crate::handover::Transport;
use crate::home::HomeClaim;
use crate::incomplete_packets::Charge;
use crate::origin::Origin;
use crate::outbound::Outbound;

pub(crate) const NONE: u32 = u32::MAX;

/// Two variants, so that the compiler needs no byte for the variant beside the name.
pub(crate) enum ClientUser {
    /// A user of a broker that is not managed.
    Named(Arc<str>),
    /// A client of a managed broker; `None`: it has no permissions.
    Granted(Option<Box<Granted>>),
}

impl ClientUser {
    pub(crate) fn user(&self) -> Option<&str> {
        match self {
            Self::Named(user) => Some(user),
            Self::Granted(granted) => granted.as_ref()?.identity.user.as_deref(),
        }
    }

    /// The user of a broker that is not managed.
    pub(crate) fn named(&self) -> Option<Arc<str>> {
        match self {
            Self::Named(user) => Some(user.clone()),
            Self::Granted(_) => None,
        }
    }

    pub(crate) fn granted(&self) -> Option<&Granted> {
        match self {
            Self::Granted(granted) => granted.as_deref(),
            Self::Named(_) => None,
        }
    }

    /// Whether the client authenticated with a connect token.
    pub(crate) fn is_visitor(&self) -> bool {
        matches!(self.method(), Some(Method::ConnectToken { .. }))
    }

    fn method(&self) -> Option<&Method> {
        self.granted().map(|granted| &granted.identity.method)
    }

    /// Whether the client may have shared subscriptions: all clients may, except with some connect tokens.
    pub(crate) fn may_share(&self) -> bool {
        !matches!(self.method(), Some(Method::ConnectToken { may_share: false }))
    }
}

/// Everything that an idle connection does not need is behind an empty option.
pub(crate) struct Connected {
    pub(crate) stream: Socket,
    pub(crate) generation: u32,
    /// Slot of the session, [`NONE`] before the CONNECT is accepted and after the session let go.
    pub(crate) session: u32,
    /// When the last bytes came; on a closing connection, when it began to close.
    pub(crate) last_input: Ticks,
    pub(crate) protocol: Connection,
    pub(crate) transport: Transport,
    pub(crate) partial: Option<Box<Partial>>,
    pub(crate) outbound: Option<Box<Outbound>>,
    /// The CONNECT, until the client is authenticated and admitted.
    pub(crate) pending: Option<Box<ConnectRequest>>,
    pub(crate) who: ClientUser,
    /// The client's address and certificate, as its TLS handshake or the gateway reports them.
    pub(crate) origin: Option<Box<Origin>>,
    /// The address that the limits per address count this connection for.
    pub(crate) counted_for: Address,
    pub(crate) state: ConnectionState,
    /// The socket accepts no more output for now.
    pub(crate) busy: bool,
    /// The socket has, or may have, more to read.
    pub(crate) readable: bool,
    /// It is in the core's list of connections to read.
    pub(crate) listed: bool,
    pub(crate) paused: Paused,
    /// The peer sends no more.
    pub(crate) read_closed: bool,
    pub(crate) is_limited: bool,
    /// `None` before the first message, unless the client is traced.
    pub(crate) activity: Option<Box<Activity>>,
    /// Its SUBSCRIBE or UNSUBSCRIBE waits for the end of the turn.
    pub(crate) changes_filters: bool,
    /// Messages of this publisher that wait for their commit before receivers get them. While there are any, its later messages
    /// wait too, so that they stay in order (P4).
    pub(crate) uncommitted: u32,
}

/// Messages of a connection, and their bytes with topics and properties.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Activity {
    /// The client is traced: the core has its [`super::tapped::Tapped`].
    pub(crate) is_traced: bool,
    pub(crate) messages_in: u64,
    pub(crate) bytes_in: u64,
    pub(crate) messages_out: u64,
    pub(crate) bytes_out: u64,
    pub(super) write_sizer: WriteSizer,
}

/// Why a publisher is not read for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paused {
    No,
    /// Too much waits for another core or for the store, or memory is short.
    ForRoom,
    ForReceiver,
    /// Its broker is being read from the store.
    ForBroker,
    ForAdmission,
    /// Its CONNECT is processed after the mail that is in the mailbox now.
    ForMail,
    /// It has published or subscribed more than the rates of its broker allow.
    ForRate,
    /// It has used its share of a turn.
    ForWork,
    /// Its earlier messages have not reached all receivers, on one loop or several.
    ForFanout,
    /// It sends packets, but does not read the answers.
    ForAnswers,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionState {
    Open,
    /// The client has sent DISCONNECT, and the connection closes once the store has removed the will.
    Leaving,
    /// The rest of the output is written before the close.
    Draining,
    /// Our side is closed. Input is thrown away until the peer closes too, because a reset could destroy the last
    /// packet on its way to the peer.
    Lingering,
}

/// Bytes that came and are not a whole packet yet.
#[derive(Default)]
pub(crate) struct Partial {
    /// MQTT bytes, then `raw` bytes of an incomplete WebSocket frame header.
    pub(crate) bytes: Vec<u8>,
    pub(crate) raw: usize,
    /// Expected size of the packet as far as known, bytes.
    pub(crate) needed: usize,
    pub(crate) charge: Option<Charge>,
}

impl Partial {
    /// The buffer at most doubles, so its size follows what has arrived, not what the client has announced.
    pub(super) fn append(&mut self, bytes: &[u8]) {
        let len = self.bytes.len();
        if self.bytes.capacity() - len < bytes.len() {
            self.bytes.reserve_exact(self.needed.saturating_sub(len).min(len).max(bytes.len()));
        }
        self.bytes.extend_from_slice(bytes);
    }
}

/// The contents of a CONNECT, copied out of its packet.
pub(crate) struct ConnectRequest {
    pub(crate) broker: Arc<Broker>,
    pub(crate) client_id: Arc<str>,
    pub(crate) assigned: bool,
    pub(crate) clean_start: bool,
    pub(crate) requested_expiry_s: u32,
    pub(crate) granted_expiry_s: u32,
    pub(crate) user: Option<Arc<str>>,
    /// The hash of the password file that the client's password is checked against.
    pub(crate) file_hash: Option<Box<str>>,
    /// The client's permissions on a managed broker, once they are known.
    pub(crate) granted: Option<Box<Granted>>,
    pub(crate) will: Option<(Arc<Message>, u32)>,
    pub(crate) charge: Option<Charge>,
    /// Keeps connections with this client id on this loop.
    pub(crate) claim: Option<HomeClaim>,
    /// The authentication in progress: dropping it cancels it.
    pub(crate) check: Option<PendingRequest>,
    pub(crate) exchange: Option<ExchangeInProgress>,
    /// The authentication data of the CONNACK, from a finished SCRAM exchange.
    pub(crate) authentication_data: Option<Box<[u8]>>,
    /// While the store is asked for the session and the client is there, see [`crate::jobs::AttachWrite`].
    pub(crate) asker: Option<Arc<()>>,
}

pub(crate) struct ExchangeInProgress {
    pub(crate) turn: ExchangeTurn,
    pub(crate) until: Seconds,
}

impl ConnectRequest {
    pub(crate) fn proven_user(&self) -> Option<&str> {
        match &self.granted {
            Some(granted) => granted.identity.user.as_deref(),
            None => self.user.as_deref().filter(|_| self.file_hash.is_some()),
        }
    }

    pub(crate) fn is_by_password(&self) -> bool {
        self.granted.as_ref().is_some_and(|granted| granted.identity.method == Method::Password)
    }

    /// Whether the client authenticated with a connect token.
    pub(crate) fn is_visitor(&self) -> bool {
        let method = self.granted.as_ref().map(|granted| &granted.identity.method);
        matches!(method, Some(Method::ConnectToken { .. }))
    }

    pub(crate) fn begin_check(&mut self) -> Cancellation {
        self.check.get_or_insert_default().cancellation()
    }

    /// While the server waits for the client's AUTH: when it must have come.
    pub(crate) fn awaits_client(&self) -> Option<Seconds> {
        let exchange = self.exchange.as_ref()?;
        matches!(exchange.turn, ExchangeTurn::Client(_)).then_some(exchange.until)
    }

    pub(crate) fn accept(&self, session_present: bool) -> Accept<'_> {
        Accept {
            session_present,
            assigned_client_id: self.assigned.then_some(&*self.client_id),
            requested_expiry_s: self.requested_expiry_s,
            granted_expiry_s: self.granted_expiry_s,
            authentication_data: self.authentication_data.as_deref(),
        }
    }
}

impl Connected {
    pub(crate) fn new(stream: Socket, transport: Transport, generation: u32, now: Ticks) -> Self {
        Self {
            stream,
            generation,
            session: NONE,
            last_input: now,
            protocol: Connection::new(),
            transport,
            partial: None,
            outbound: None,
            pending: None,
            who: ClientUser::Granted(None),
            origin: None,
            counted_for: Address::NONE,
            state: ConnectionState::Open,
            busy: false,
            readable: false,
            listed: false,
            paused: Paused::No,
            read_closed: false,
            is_limited: false,
            activity: None,
            changes_filters: false,
            uncommitted: 0,
        }
    }

    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match &self.origin {
            Some(origin) if origin.address.is_some() => origin.address,
            _ => self.stream.peer_addr().ok(),
        }
    }

    #[inline]
    pub(crate) fn is_traced(&self) -> bool {
        self.activity.as_ref().is_some_and(|activity| activity.is_traced)
    }

    #[inline]
    pub(crate) fn count_in(&mut self, messages: usize, bytes: usize) {
        let activity = self.activity.get_or_insert_default();
        activity.messages_in += messages as u64;
        activity.bytes_in += bytes as u64;
    }

    #[inline]
    pub(crate) fn count_out(&mut self, messages: usize, bytes: usize) {
        if messages > 0 {
            let activity = self.activity.get_or_insert_default();
            activity.messages_out += messages as u64;
            activity.bytes_out += bytes as u64;
        }
    }

    pub(crate) fn is_being_checked(&self) -> bool {
        self.state == ConnectionState::Open
            && self.pending.as_ref().is_some_and(|request| request.check.is_some())
    }

    pub(crate) fn is_websocket(&self) -> bool {
        matches!(self.transport, Transport::WebSocket(_))
    }

    /// The server name that the client asked for in TLS, in lower case.
    pub(crate) fn server_name(&self) -> Option<&str> {
        self.origin.as_ref()?.server_name.as_deref()
    }

    pub(crate) fn is_reading(&self) -> bool {
        let is_its_turn = self.pending.as_ref().is_none_or(|request| request.awaits_client().is_some());
        self.state == ConnectionState::Open && self.paused == Paused::No && is_its_turn
    }
}

#[cfg(test)]
mod tests;
