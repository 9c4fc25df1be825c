//! One network connection as its core holds it.

use std::net::SocketAddr;
use std::sync::Arc;

use millrace_access::entry::Method;
use millrace_authentication::{Cancellation, Pending};
use millrace_session::{Accept, Connection, Message, Seconds};
use millrace_transport::addresses::Address;
use millrace_transport::socket::Socket;

use super::homes::Arrival;
use crate::access::{Granted, Turn};
use crate::broker::Broker;
use crate::home::HomeClaim;
use crate::origin::Origin;
use crate::outbound::Outbound;
use crate::ws::frames::Decoder;

/// No session.
pub(crate) const NONE: u32 = u32::MAX;

/// A connection of the process: a slot may be used again, a generation is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ConnectionId {
    pub(crate) core: u16,
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// What stands between the socket and MQTT.
#[derive(Debug)]
pub(crate) enum Transport {
    /// Nothing.
    Tcp,
    /// A PROXY protocol header comes first.
    Proxy,
    /// Behind that header: the first byte tells whether MQTT follows or a WebSocket handshake.
    Either,
    /// The HTTP request of a WebSocket handshake comes first.
    Handshake,
    /// WebSocket frames.
    WebSocket(Box<Decoder>),
}

/// Who a client is. Two variants only, so that it is no larger than a name.
pub(crate) enum Who {
    /// A user of a broker that is not managed.
    Named(Arc<str>),
    /// A client of a managed broker; `None`: nobody.
    Granted(Option<Box<Granted>>),
}

impl Who {
    /// Its user name.
    pub(crate) fn user(&self) -> Option<&str> {
        match self {
            Self::Named(user) => Some(user),
            Self::Granted(granted) => granted.as_ref()?.standing.user.as_deref(),
        }
    }

    pub(crate) fn granted(&self) -> Option<&Granted> {
        match self {
            Self::Granted(granted) => granted.as_deref(),
            Self::Named(_) => None,
        }
    }
}

/// One network connection. Everything that an idle connection does not need is behind an empty option.
pub(crate) struct Connected {
    pub(crate) stream: Socket,
    pub(crate) generation: u32,
    /// Slot of the session, [`NONE`] before the CONNECT is accepted and after the session let go.
    pub(crate) session: u32,
    /// When something came; on a closing connection, when it began to close.
    pub(crate) last_input: Seconds,
    pub(crate) protocol: Connection,
    pub(crate) transport: Transport,
    /// Bytes of a packet that is not whole yet.
    pub(crate) partial: Option<Box<Partial>>,
    pub(crate) outbound: Option<Box<Outbound>>,
    /// Waits for the authenticator, or authenticates.
    pub(crate) pending: Option<Box<Request>>,
    pub(crate) who: Who,
    /// What its TLS handshake, or the gateway, says of the client.
    pub(crate) origin: Option<Box<Origin>>,
    /// What its limits per address are counted for.
    pub(crate) counted_for: Address,
    pub(crate) state: State,
    /// The socket takes no more for now.
    pub(crate) busy: bool,
    /// The socket has, or may have, more to read.
    pub(crate) readable: bool,
    /// Stands in the core's list of connections to read.
    pub(crate) listed: bool,
    /// Whether it is not read for a while.
    pub(crate) paused: Paused,
    /// The peer closed its side.
    pub(crate) read_closed: bool,
    /// Its broker limits what it sends.
    pub(crate) is_limited: bool,
    /// A SUBSCRIBE or UNSUBSCRIBE of it waits for the end of the turn.
    pub(crate) changes_filters: bool,
    /// Messages from it that are handed on once they are committed, and are not yet. What it publishes meanwhile goes the same
    /// way, so that its messages stay in order (P4).
    pub(crate) uncommitted: u32,
}

/// Why a publisher is not read for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paused {
    /// It is read.
    No,
    /// Too much waits for another core, or to be stored.
    ForMailbox,
    /// One of its receivers is behind.
    ForReceiver,
    /// Its broker is being read from the store.
    ForBroker,
    /// Its CONNECT is over the rate.
    ForAdmission,
    /// Its CONNECT comes after the mail that is in the mailbox now.
    ForMail,
    /// What it has published is over the rate of its tenant.
    ForRate,
    /// It has used its share of a turn.
    ForWork,
    /// Messages of its broker are still handed out.
    ForFanout,
    /// It does not read the answers to what it sent.
    ForAnswers,
}

/// How far a connection is from its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// In use.
    Open,
    /// To be closed once what waits is written.
    Draining,
    /// Our side is closed; what still comes is thrown away until the peer closes too (else a reset could take the last
    /// packet from it).
    Lingering,
}

/// Bytes that came and are not a whole packet yet.
#[derive(Debug, Default)]
pub(crate) struct Partial {
    /// MQTT bytes, then `raw` bytes of an incomplete WebSocket frame header.
    pub(crate) bytes: Vec<u8>,
    pub(crate) raw: usize,
    /// Size of the packet as far as known, bytes.
    pub(crate) needed: usize,
}

/// What a CONNECT asked for, freed from the packet.
pub(crate) struct Request {
    pub(crate) broker: Arc<Broker>,
    pub(crate) client_id: Arc<str>,
    pub(crate) assigned: bool,
    pub(crate) clean_start: bool,
    pub(crate) requested_expiry_s: u32,
    pub(crate) granted_expiry_s: u32,
    pub(crate) user: Option<Arc<str>>,
    /// What it may do, on a managed broker; once that is known.
    pub(crate) granted: Option<Box<Granted>>,
    pub(crate) will: Option<(Arc<Message>, u32)>,
    /// Keeps the client id on this loop.
    pub(crate) claim: Option<HomeClaim>,
    /// While it is found out who the client is: dropping it cancels that.
    pub(crate) check: Option<Pending>,
    /// While it authenticates by SCRAM.
    pub(crate) exchange: Option<Exchange>,
    /// What that ended with.
    pub(crate) authentication_data: Option<Box<[u8]>>,
}

/// An exchange of SCRAM before CONNACK.
pub(crate) struct Exchange {
    pub(crate) turn: Turn,
    /// When it must be over.
    pub(crate) until: Seconds,
}

impl Request {
    /// The user that a client of a managed broker has shown to be.
    pub(crate) fn proven_user(&self) -> Option<&str> {
        self.granted.as_ref()?.standing.user.as_deref()
    }

    /// Whether a connect token let the client in.
    pub(crate) fn is_visitor(&self) -> bool {
        self.granted.as_ref().is_some_and(|granted| granted.standing.method == Method::ConnectToken)
    }

    /// Begins to find out who the client is.
    pub(crate) fn begin_check(&mut self) -> Cancellation {
        self.check.get_or_insert_default().cancellation()
    }

    /// Until when the client may say something, when it is its turn.
    pub(crate) fn awaits_client(&self) -> Option<Seconds> {
        let exchange = self.exchange.as_ref()?;
        matches!(exchange.turn, Turn::Client(_)).then_some(exchange.until)
    }

    /// What it is answered with when the client is let in.
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

/// A connection on its way to the core that owns its client id.
pub(crate) struct Adopted {
    pub(crate) stream: Socket,
    pub(crate) transport: Transport,
    /// The CONNECT and what came behind it, then `raw` bytes of an incomplete WebSocket frame header.
    pub(crate) bytes: Vec<u8>,
    pub(crate) raw: usize,
    /// The rest of the WebSocket handshake's answer, if the socket did not take it yet.
    pub(crate) outbound: Option<Box<Outbound>>,
    pub(crate) origin: Option<Box<Origin>>,
    pub(crate) counted_for: Address,
    pub(crate) read_closed: bool,
    pub(crate) arrival: Option<Box<Arrival>>,
}

impl Connected {
    pub(crate) fn new(stream: Socket, transport: Transport, generation: u32, now: Seconds) -> Self {
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
            who: Who::Granted(None),
            origin: None,
            counted_for: Address::NONE,
            state: State::Open,
            busy: false,
            readable: false,
            listed: false,
            paused: Paused::No,
            read_closed: false,
            is_limited: false,
            changes_filters: false,
            uncommitted: 0,
        }
    }

    /// Where the client is.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match &self.origin {
            Some(origin) if origin.address.is_some() => origin.address,
            _ => self.stream.peer_addr().ok(),
        }
    }

    /// It waits for the answer to what it showed in its CONNECT.
    pub(crate) fn is_being_checked(&self) -> bool {
        self.state == State::Open && self.pending.as_ref().is_some_and(|request| request.check.is_some())
    }

    pub(crate) fn is_websocket(&self) -> bool {
        matches!(self.transport, Transport::WebSocket(_))
    }

    /// The server that the client asked for, in lower case.
    pub(crate) fn server_name(&self) -> Option<&str> {
        self.origin.as_ref()?.server_name.as_deref()
    }

    /// Input is taken and processed.
    pub(crate) fn is_reading(&self) -> bool {
        let is_its_turn = self.pending.as_ref().is_none_or(|request| request.awaits_client().is_some());
        self.state == State::Open && self.paused == Paused::No && is_its_turn
    }
}
