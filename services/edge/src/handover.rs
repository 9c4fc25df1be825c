//! A connection on its way from the event loop that accepted it to the event loop that owns its client id.

use millrace_transport::addresses::Address;
use millrace_transport::socket::Socket;

use crate::home::Owner;
use crate::metrics::ConnectTimes;
use crate::origin::Origin;
use crate::outbound::Outbound;
use crate::ws::frames::Decoder;

pub(crate) struct Adopted {
    pub(crate) stream: Socket,
    pub(crate) transport: Transport,
    /// The CONNECT and the bytes after it, then `raw` bytes of an incomplete WebSocket frame header.
    pub(crate) bytes: Vec<u8>,
    pub(crate) raw: usize,
    /// The rest of the answer to the WebSocket handshake, which the socket has not accepted yet.
    pub(crate) outbound: Option<Box<Outbound>>,
    pub(crate) origin: Option<Box<Origin>>,
    pub(crate) counted_for: Address,
    pub(crate) read_closed: bool,
    pub(crate) arrival: Option<Box<Arrival>>,
    /// `None`: its CONNECT is not measured.
    pub(crate) times: Option<ConnectTimes>,
}

#[derive(Debug)]
pub(crate) enum Transport {
    Tcp,
    Proxy,
    /// With TLS, or after a PROXY protocol header: the first byte decides between MQTT and a WebSocket handshake.
    Either,
    Handshake,
    WebSocket(Box<WebSocket>),
}

#[derive(Debug, Default)]
pub(crate) struct WebSocket {
    pub(crate) decoder: Decoder,
    /// How the connection ends once the packets before the Close frame, or before an invalid frame, are processed.
    pub(crate) closing: Option<WebSocketEnd>,
}

/// With the code of the answering Close frame.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WebSocketEnd {
    Closed(u16),
    InvalidFrame(u16),
}

/// The owner that was found for the client id of a CONNECT, kept until the CONNECT is carried out.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) broker: u64,
    pub(crate) hash: u64,
    pub(crate) owner: Owner,
}
