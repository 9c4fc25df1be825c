//! An MQTT client of the edge within this process, over a Unix socket without a name. The API publishes and reads
//! through it, so MQTT's limits, counters and promises hold for the API, too.

use std::sync::PoisonError;
use std::time::Duration;

use millrace_control::{LiveError, Visit};
use millrace_mqtt::{
    Connect, Disconnect, Packet, Properties, Property, ReasonCode, Version, decode, encode, frame,
};
use tokio::net::UnixStream;

use crate::running::Running;

/// Longest wait for the edge, which itself waits 10 s for the store.
const EDGE_ANSWER_MAX: Duration = Duration::from_secs(15);
/// The largest packet that MQTT can express, bytes.
const PACKET_BYTES_MAX: u32 = 268_435_460;
const READ_BYTES: usize = 16 * 1024;

pub(super) struct Inside {
    stream: UnixStream,
    /// Received bytes; the bytes before `taken` are handled.
    read: Vec<u8>,
    taken: usize,
    packet_size_max: usize,
}

#[derive(Debug)]
pub(super) struct Gone {
    pub(super) reason: Option<ReasonCode>,
    pub(super) said: Option<String>,
}

impl Inside {
    /// Connects as the client of `visit`, with the permissions of its connect token.
    pub(super) async fn enter(running: &Running, visit: &Visit) -> Result<Self, LiveError> {
        let stream = {
            let running = running.read().unwrap_or_else(PoisonError::into_inner);
            let edge = running.as_ref().ok_or_else(|| unavailable("the server is stopping"))?;
            edge.connect_inside(&visit.broker.name)
        };
        let open = || {
            let stream = stream?;
            stream.set_nonblocking(true)?;
            UnixStream::from_std(stream)
        };
        let stream = open().map_err(|error: std::io::Error| unavailable(&error.to_string()))?;
        let mut client =
            Self { stream, read: Vec::new(), taken: 0, packet_size_max: PACKET_BYTES_MAX as usize };
        let connect = Packet::Connect(Connect {
            is_bridge: false,
            version: Version::V5,
            clean_start: true,
            keep_alive_s: 0,
            properties: Properties::EMPTY,
            client_id: &visit.client_id,
            will: None,
            user_name: Some(&visit.user),
            password: Some(visit.password.expose().as_bytes()),
        });
        client.send(&connect).await.map_err(Gone::refused)?;
        let (reason, said, size_max) = client
            .answer(|packet| match packet {
                Packet::ConnAck(ack) => {
                    let size_max = ack.properties.iter().find_map(|property| match property {
                        Property::MaximumPacketSize(bytes) => Some(bytes),
                        _ => None,
                    });
                    Some((ack.reason, said(ack.properties), size_max))
                }
                _ => None,
            })
            .await?;
        if reason.is_error() {
            return Err(Gone { reason: Some(reason), said }.refused());
        }
        if let Some(bytes) = size_max {
            client.packet_size_max = bytes as usize;
        }
        Ok(client)
    }

    pub(super) async fn send(&mut self, packet: &Packet<'_>) -> Result<(), Gone> {
        let mut bytes = Vec::new();
        encode::packet(packet, Version::V5, &mut bytes);
        self.write(&bytes).await
    }

    pub(super) async fn write(&mut self, mut bytes: &[u8]) -> Result<(), Gone> {
        while !bytes.is_empty() {
            self.stream.writable().await.map_err(|_| Gone::silent())?;
            match self.stream.try_write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return Err(self.closing_reason().await),
            }
        }
        Ok(())
    }

    pub(super) fn takes(&self, bytes: usize) -> bool {
        bytes <= self.packet_size_max
    }

    /// Waits at most [`EDGE_ANSWER_MAX`] for the first packet that `take` accepts.
    pub(super) async fn answer<T>(
        &mut self,
        mut take: impl FnMut(&Packet<'_>) -> Option<T>,
    ) -> Result<T, LiveError> {
        let found = async {
            loop {
                if let Some(found) = self.next(&mut take).await? {
                    return Ok(found);
                }
            }
        };
        match tokio::time::timeout(EDGE_ANSWER_MAX, found).await {
            Ok(found) => found.map_err(Gone::refused),
            Err(_) => Err(unavailable("the broker has not answered in time; it may still do what was asked")),
        }
    }

    /// Waits for the next packet, and returns what `take` makes of it. Dropping the future loses no packet.
    pub(super) async fn next<T>(&mut self, take: impl FnOnce(&Packet<'_>) -> T) -> Result<T, Gone> {
        loop {
            let found = frame(&self.read[self.taken..], PACKET_BYTES_MAX).map_err(|_| Gone::silent())?;
            if let Ok(found) = found {
                let packet =
                    decode(found.first, found.body, Some(Version::V5)).map_err(|_| Gone::silent())?;
                if let Packet::Disconnect(Disconnect { reason, properties }) = &packet {
                    return Err(Gone { reason: Some(*reason), said: said(*properties) });
                }
                let taken = take(&packet);
                self.taken += found.size;
                return Ok(taken);
            }
            self.fill().await?;
        }
    }

    async fn fill(&mut self) -> Result<(), Gone> {
        self.read.drain(..self.taken);
        self.taken = 0;
        loop {
            self.stream.readable().await.map_err(|_| Gone::silent())?;
            self.read.reserve(READ_BYTES);
            match self.stream.try_read_buf(&mut self.read) {
                Ok(0) => return Err(Gone::silent()),
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return Err(Gone::silent()),
            }
        }
    }

    async fn closing_reason(&mut self) -> Gone {
        let read = async {
            loop {
                if let Err(gone) = self.next(|_| ()).await {
                    return gone;
                }
            }
        };
        tokio::time::timeout(EDGE_ANSWER_MAX, read).await.unwrap_or_else(|_| Gone::silent())
    }
}

impl Gone {
    fn silent() -> Self {
        Self { reason: None, said: None }
    }

    pub(super) fn refused(self) -> LiveError {
        let Some(reason) = self.reason else {
            return unavailable("the broker has closed the connection; what was asked may have been done");
        };
        let name = reason.name();
        let what = self.said.map_or_else(|| name.to_owned(), |said| format!("{name}: {said}"));
        let what = format!("the broker says: {what}");
        match reason {
            ReasonCode::NOT_AUTHORIZED | ReasonCode::BANNED | ReasonCode::BAD_USER_NAME_OR_PASSWORD => {
                LiveError::Forbidden(what)
            }
            ReasonCode::QUOTA_EXCEEDED
            | ReasonCode::CONNECTION_RATE_EXCEEDED
            | ReasonCode::MESSAGE_RATE_TOO_HIGH
            | ReasonCode::SERVER_BUSY => LiveError::Limited(what),
            ReasonCode::TOPIC_NAME_INVALID => LiveError::Invalid { field: "topic", what },
            ReasonCode::PACKET_TOO_LARGE => LiveError::Invalid { field: "payload", what },
            ReasonCode::TOPIC_FILTER_INVALID => LiveError::Invalid { field: "filter", what },
            _ => LiveError::Unavailable(what),
        }
    }
}

pub(super) fn said(properties: Properties<'_>) -> Option<String> {
    properties.iter().find_map(|property| match property {
        Property::ReasonString(said) => Some(said.to_owned()),
        _ => None,
    })
}

fn unavailable(what: &str) -> LiveError {
    LiveError::Unavailable(what.to_owned())
}
