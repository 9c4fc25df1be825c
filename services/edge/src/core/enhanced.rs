//! SCRAM authentication (MQTT 5.0 section 4.12): from CONNECT to CONNACK, and again while the client is connected.
//! The event loop passes the client's data to the authentication service, and the answer to the client.

use millrace_access::entry::Grant;
use millrace_access::limits::SCRAM_MESSAGE_BYTES_MAX;
use millrace_access::scram::Enhanced;
use millrace_authentication::Cancellation;
use millrace_mqtt::{Auth, Connect, Properties, Property, ReasonCode};

use super::connection::{ClientUser, ConnectRequest, ExchangeInProgress, NONE};
use super::{ConnectionEnd, Core, parts};
use crate::access::{AuthenticationRequest, ScramAttempt};
use crate::authorization::{Attempted, Denied, ExchangeStep, ExchangeTurn, Granted, Reviewed};
use crate::connection_id::ConnectionId;

const TOO_LARGE: &str = "Maximum Packet Size is too small for the answer";

pub(super) fn method<'a>(connect: &Connect<'a>) -> Option<&'a str> {
    connect.properties.iter().find_map(|property| match property {
        Property::AuthenticationMethod(method) => Some(method),
        _ => None,
    })
}

fn data<'a>(properties: Properties<'a>) -> Option<&'a [u8]> {
    properties.iter().find_map(|property| match property {
        Property::AuthenticationData(data) => Some(data),
        _ => None,
    })
}

/// A longer message is refused, so that the rest of it need not wait in the queue of the authentication service.
fn queued(data: &[u8]) -> Box<[u8]> {
    data[..data.len().min(SCRAM_MESSAGE_BYTES_MAX + 1)].into()
}

impl Core {
    /// Without data in the CONNECT, asks the client for its first message.
    pub(super) fn begin_exchange(&mut self, slot: u32, mut request: ConnectRequest, connect: &Connect<'_>) {
        let has_users = request.broker.access().is_some_and(|loaded| loaded.access.access().scram);
        if !has_users {
            //= [MQTT-4.12.0-1] v5
            self.broker_counters(&request.broker).refused_method.add(1);
            let what = "authentication method not supported";
            self.explain_refusal(slot, &request, what);
            return self.refuse(slot, ReasonCode::BAD_AUTHENTICATION_METHOD, what);
        }
        request.exchange =
            Some(ExchangeInProgress { turn: ExchangeTurn::Server, until: self.connect_deadline() });
        let enhanced = Box::default();
        match data(connect.properties) {
            Some(data) => self.attempt_entry(slot, Box::new(request), enhanced, data),
            None => self.ask_for_more(slot, Box::new(request), enhanced, &[]),
        }
    }

    fn attempt_entry(
        &mut self,
        slot: u32,
        request: Box<ConnectRequest>,
        enhanced: Box<Enhanced>,
        data: &[u8],
    ) {
        let authentication = self.authentication_request(slot, &request);
        let attempt = ScramAttempt { request: authentication, enhanced, data: queued(data), identity: None };
        if self.process.authentication.as_ref().is_some_and(|service| service.attempt(attempt)) {
            self.connections[slot as usize].pending = Some(request);
        } else {
            self.refuse_entry(slot, &request, &Denied::Busy);
        }
    }

    //= [MQTT-4.12.0-2] v5
    fn ask_for_more(
        &mut self,
        slot: u32,
        mut request: Box<ConnectRequest>,
        enhanced: Box<Enhanced>,
        data: &[u8],
    ) {
        let (protocol, mut out, _) = parts!(self, slot);
        if !protocol.challenge(data, &self.process.settings, &mut out) {
            self.counters().refused_connect.add(1);
            return self.refuse(slot, ReasonCode::PACKET_TOO_LARGE, TOO_LARGE);
        }
        if let Some(exchange) = &mut request.exchange {
            exchange.turn = ExchangeTurn::Client(enhanced);
        }
        self.connections[slot as usize].pending = Some(request);
    }

    pub(super) fn authenticate(&mut self, slot: u32, auth: &Auth<'_>) {
        let data = data(auth.properties);
        if self.connections[slot as usize].session != NONE {
            return self.authenticate_anew(slot, auth.reason, data);
        }
        let Some(mut request) = self.connections[slot as usize].pending.take() else { return };
        let turn = request
            .exchange
            .as_mut()
            .map(|exchange| std::mem::replace(&mut exchange.turn, ExchangeTurn::Server));
        if let Some(ExchangeTurn::Client(enhanced)) = turn {
            self.attempt_entry(slot, request, enhanced, data.unwrap_or_default());
        }
    }

    /// Re-authenticates a connected client, while its messages continue.
    fn authenticate_anew(&mut self, slot: u32, reason: ReasonCode, data: Option<&[u8]>) {
        let Some(granted) = self.granted_mut(slot) else { return };
        let user = granted.identity.user.as_deref().unwrap_or_default();
        let enhanced = match (reason, granted.anew.take()) {
            (ReasonCode::RE_AUTHENTICATE, None) => Box::new(Enhanced::reauthenticate(user)),
            (ReasonCode::CONTINUE_AUTHENTICATION, Some(ExchangeTurn::Client(enhanced))) => enhanced,
            _ => return self.close_for(slot, ReasonCode::PROTOCOL_ERROR, "AUTH out of turn"),
        };
        let identity = granted.identity.clone();
        granted.anew = Some(ExchangeTurn::Server);
        let data = match data {
            Some(data) => data,
            None if !enhanced.is_challenged() && reason == ReasonCode::RE_AUTHENTICATE => {
                return self.ask_anew(slot, enhanced, &[]);
            }
            None => &[],
        };
        let local = &self.sessions[self.connections[slot as usize].session as usize];
        // The client proves to be the user of `identity` again, whatever else its CONNECT said.
        let authentication = AuthenticationRequest {
            cancellation: Cancellation::default(),
            connection: self.id_of(slot),
            broker: local.broker.clone(),
            client_id: local.session.client_id().clone(),
            assigned: false,
            address: None,
            user: None,
            password: None,
            certificate: None,
        };
        let attempt =
            ScramAttempt { request: authentication, enhanced, data: queued(data), identity: Some(identity) };
        if !self.process.authentication.as_ref().is_some_and(|service| service.attempt(attempt)) {
            self.close_for(slot, ReasonCode::SERVER_BUSY, "too many clients are authenticating");
        }
    }

    fn ask_anew(&mut self, slot: u32, enhanced: Box<Enhanced>, data: &[u8]) {
        let (protocol, mut out, _) = parts!(self, slot);
        if !protocol.challenge(data, &self.process.settings, &mut out) {
            return self.close_for(slot, ReasonCode::PACKET_TOO_LARGE, TOO_LARGE);
        }
        if let Some(granted) = self.granted_mut(slot) {
            granted.anew = Some(ExchangeTurn::Client(enhanced));
        }
    }

    pub(super) fn attempted(&mut self, attempted: Attempted) {
        let id = attempted.connection;
        let Some(connection) = self.connection_of(id) else { return };
        match connection.pending.take() {
            Some(request) => self.attempted_entry(id, request, attempted.outcome),
            None if connection.session != NONE => self.attempted_anew(id, attempted.outcome),
            None => {}
        }
    }

    fn attempted_entry(
        &mut self,
        id: ConnectionId,
        mut request: Box<ConnectRequest>,
        outcome: Result<ExchangeStep, Denied>,
    ) {
        match outcome {
            Ok(ExchangeStep::Challenged(enhanced, data)) => {
                self.ask_for_more(id.slot, request, enhanced, &data);
            }
            Ok(ExchangeStep::Granted(granted, data)) => {
                request.user = granted.identity.user.as_deref().map(Into::into);
                request.granted = Some(granted);
                request.exchange = None;
                request.authentication_data = Some(data);
                self.admit(id.slot, *request);
            }
            // Only attempts with an identity are renewed.
            Ok(ExchangeStep::Renewed(..)) => {}
            Err(refused) => self.refuse_entry(id.slot, &request, &refused),
        }
        if self.connection_of(id).is_some_and(|connection| connection.is_reading()) {
            self.digest_held(id.slot);
        }
    }

    fn attempted_anew(&mut self, id: ConnectionId, outcome: Result<ExchangeStep, Denied>) {
        match outcome {
            Ok(ExchangeStep::Challenged(enhanced, data)) => self.ask_anew(id.slot, enhanced, &data),
            Ok(ExchangeStep::Renewed(grant, data)) => self.renewed(id, grant, &data),
            Ok(ExchangeStep::Granted(..)) => {}
            Err(refused @ (Denied::Busy | Denied::Unread)) => {
                tracing::debug!(%refused, "a client cannot be authenticated anew");
                self.close_for(
                    id.slot,
                    ReasonCode::SERVER_BUSY,
                    "the server cannot authenticate you now: try again later",
                );
            }
            Err(refused) => {
                //= [MQTT-4.12.1-2] v5
                tracing::debug!(%refused, "authenticating anew has failed");
                self.close_for(id.slot, ReasonCode::NOT_AUTHORIZED, "the authentication has failed");
            }
        }
    }

    /// Ends a re-authentication with success: the client's permissions are now what its records say.
    fn renewed(&mut self, id: ConnectionId, grant: Grant, data: &[u8]) {
        let Some(granted) = self.granted_mut(id.slot) else { return };
        granted.anew = None;
        self.reviewed(Reviewed { connection: id, outcome: Ok(grant) });
        let (protocol, mut out, _) = parts!(self, id.slot);
        if !protocol.authenticated(data, &self.process.settings, &mut out) {
            self.close_for(id.slot, ReasonCode::PACKET_TOO_LARGE, TOO_LARGE);
        }
    }

    fn granted_mut(&mut self, slot: u32) -> Option<&mut Granted> {
        match &mut self.connections[slot as usize].who {
            ClientUser::Granted(granted) => granted.as_deref_mut(),
            ClientUser::Named(_) => None,
        }
    }

    fn close_for(&mut self, slot: u32, reason: ReasonCode, what: &'static str) {
        self.say_and_close(slot, reason, what, ConnectionEnd::Error(reason));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_is_too_long_takes_no_more_memory_than_the_longest_one() {
        assert_eq!(queued(&[b'n'; SCRAM_MESSAGE_BYTES_MAX]).len(), SCRAM_MESSAGE_BYTES_MAX);
        assert_eq!(queued(&[b'n'; 1024 * 1024]).len(), SCRAM_MESSAGE_BYTES_MAX + 1);
    }
}
