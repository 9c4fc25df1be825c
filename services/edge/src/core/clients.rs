//! Searches among connected clients: pages of clients for the console and the API, and clients to disconnect after a
//! ban.
//!
//! Sessions are not sorted, because an index would cost memory for each connection and time for each CONNECT. Each
//! search goes through all of them, a slice a turn. One pass serves all searches that were asked before it. The clients of a
//! page are described after the pass, a slice a turn, too.

mod pages;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use millrace_access::bans::BanQuery;
use millrace_access::entry::Method;
use millrace_access::limits::USER_BYTES_MAX;
use millrace_mqtt::{ReasonCode, Version};
use millrace_session::ClientSubscription;

use self::pages::{DESCRIBED, FoundClients, SearchedPage};
use super::connection::{ClientUser, Connected, NONE};
use super::limits;
use super::{ConnectionEnd, Core, work};
use crate::broker::Broker;
use crate::clients::{
    ClientFilter, ClientSearch, ClientsAnswer, ConnectedClient, FILTER_FIELDS_BYTES, FILTERS_BYTES_MAX,
    FILTERS_MAX, Question,
};
use crate::clock::{Millis, TICKS_PER_S};
use crate::connection_id::ConnectionId;
use crate::incidents::{NewIncident, StoredIncidentKind};

/// Work of one slice, in work units of about 0.1 µs: 0.2 ms.
const SLICE: u64 = 2_000;
/// Copying a filter of a client and sorting it among the others.
const SHOWN_FILTER: u64 = 2;
/// Least time between two slices, milliseconds. With [`SLICE`], scans use at most a tenth of a loop's time.
const SLICE_EVERY_MS: Millis = 2;

#[derive(Default)]
pub(super) struct Scans {
    /// Requested since the pass began: for the next pass.
    pages: Vec<Arc<ClientSearch>>,
    bans: Vec<Arc<Broker>>,
    pass: Option<SearchPass>,
    found: VecDeque<FoundClients>,
    /// Clients that connected while access rules or bans changed.
    late: Vec<ConnectionId>,
    last_ms: Millis,
}

struct SearchPass {
    place: usize,
    pages: Vec<SearchedPage>,
    bans: Vec<Arc<Broker>>,
}

impl Scans {
    pub(super) fn is_idle(&self) -> bool {
        self.pass.is_none()
            && self.pages.is_empty()
            && self.bans.is_empty()
            && self.late.is_empty()
            && self.found.is_empty()
    }

    fn has_pass(&self) -> bool {
        self.pass.is_some() || !(self.pages.is_empty() && self.bans.is_empty())
    }

    fn has_many(&self) -> bool {
        self.pages.len() + self.found.len() >= limits::CLIENT_SEARCHES_MAX
    }

    fn begin(&mut self) -> SearchPass {
        let pages = std::mem::take(&mut self.pages).into_iter().map(SearchedPage::new).collect();
        SearchPass { place: 0, pages, bans: std::mem::take(&mut self.bans) }
    }
}

/// Bytes of JSON that a byte of a filter becomes at most.
fn json_bytes(byte: u8) -> usize {
    if byte < b' ' || byte == b'"' || byte == b'\\' { 6 } else { 1 }
}

impl Core {
    pub(super) fn asked_for_clients(&mut self, asked: Arc<ClientSearch>) {
        match &asked.question {
            Question::Page { .. } if self.unfinished.scans.has_many() => {
                self.counters().scans_refused.add(1);
                asked.answer(None);
            }
            Question::Page { .. } => self.unfinished.scans.pages.push(asked),
            Question::One(client_id) => asked.answer(Some(self.client(&asked.broker, client_id))),
            Question::Kick(client_id) => {
                let found = self.without_filters(&asked.broker, client_id);
                self.kick(&asked.broker, client_id);
                asked.answer(Some(found));
            }
            Question::Trace { client_id, .. } => {
                if let Some(session) = self.session_of(&asked.broker, client_id) {
                    let slot = self.sessions[session as usize].connection;
                    if slot != NONE {
                        self.tap(slot, asked.broker.id, client_id);
                    }
                }
                asked.answer(Some(self.client(&asked.broker, client_id)));
            }
            // The pod's registry ends traces (region/clients.rs); event loops have nothing to do.
            Question::EndTrace(_) => asked.answer(Some(ClientsAnswer::default())),
        }
    }

    fn without_filters(&self, broker: &Arc<Broker>, client_id: &str) -> ClientsAnswer {
        let session = self.session_of(broker, client_id);
        ClientsAnswer {
            clients: session.and_then(|session| self.shown(session)).into_iter().collect(),
            next: None,
        }
    }

    fn client(&mut self, broker: &Arc<Broker>, client_id: &str) -> ClientsAnswer {
        let session = self.session_of(broker, client_id);
        let client = session.and_then(|session| {
            Some(ConnectedClient { filters: self.filters_of(session), ..self.shown(session)? })
        });
        let filters = client.as_ref().map_or(0, |client| client.filters.len());
        self.spend(DESCRIBED + SHOWN_FILTER * filters as u64);
        ClientsAnswer { clients: client.into_iter().collect(), next: None }
    }

    /// As many filters as an answer has room for, in order. Among more than that none is preferred, because a session can have a
    /// hundred thousand long ones.
    fn filters_of(&self, session: u32) -> Vec<ClientFilter> {
        let subscriptions = self.sessions[session as usize].session.subscriptions();
        let shown = |(filter, ClientSubscription { options, identifier }): (&str, &ClientSubscription)| {
            ClientFilter {
                filter: filter.to_owned(),
                qos: options.qos as u8,
                no_local: options.no_local,
                retain_as_published: options.retain_as_published,
                retain_handling: options.retain_handling as u8,
                identifier: *identifier,
            }
        };
        let mut bytes = 0;
        let fits = |(filter, _): &(&str, &ClientSubscription)| {
            bytes += FILTER_FIELDS_BYTES + filter.bytes().map(json_bytes).sum::<usize>();
            bytes <= FILTERS_BYTES_MAX
        };
        let mut filters: Vec<ClientFilter> =
            subscriptions.take(FILTERS_MAX).take_while(fits).map(shown).collect();
        filters.sort_unstable();
        filters
    }

    fn kick(&mut self, broker: &Arc<Broker>, client_id: &str) {
        let Some(session) = self.session_of(broker, client_id) else { return };
        let slot = self.sessions[session as usize].connection;
        if slot != NONE {
            let what = "disconnected by an operator";
            self.say_and_close(slot, ReasonCode::ADMINISTRATIVE_ACTION, what, ConnectionEnd::Kicked);
        }
    }

    pub(super) fn look_for_banned(&mut self, broker: &Arc<Broker>) {
        let waits = self.unfinished.scans.bans.iter().any(|other| Arc::ptr_eq(other, broker));
        if broker.bans().is_some() && !waits {
            self.unfinished.scans.bans.push(broker.clone());
        }
    }

    pub(super) fn scan(&mut self) {
        if self.unfinished.scans.is_idle() || self.now_ms < self.unfinished.scans.last_ms + SLICE_EVERY_MS {
            return;
        }
        self.unfinished.scans.last_ms = self.now_ms;
        self.counters().scan_slices.add(1);
        let end = self.work.spent() + SLICE;
        self.close_late(end);
        let has_pass = self.unfinished.scans.has_pass();
        // Descriptions and the pass share the slice, so that neither waits for the other to finish.
        self.describe(if has_pass { end - SLICE / 2 } else { end });
        if !has_pass {
            return;
        }
        let mut pass = self.unfinished.scans.pass.take().unwrap_or_else(|| self.unfinished.scans.begin());
        while pass.place < self.sessions.capacity() && self.work.spent() < end {
            let session = pass.place;
            pass.place += 1;
            self.spend(work::SEEN);
            let Some(local) = self.sessions.get(session).filter(|local| local.connection != NONE) else {
                continue;
            };
            let who = &self.connections[local.connection as usize].who;
            let slot = u32::try_from(session).unwrap_or(NONE);
            let mut work = 0;
            for page in pass.pages.iter_mut().filter(|page| Arc::ptr_eq(&local.broker, &page.asked.broker)) {
                work += page.see(slot, local, who);
            }
            let (slot, mut is_banned) = (local.connection, false);
            if pass.bans.iter().any(|broker| Arc::ptr_eq(broker, &local.broker)) {
                work += work::VISIT;
                is_banned = self.is_session_banned(slot);
            }
            self.spend(work);
            if is_banned {
                self.close_banned(slot);
            }
        }
        if pass.place < self.sessions.capacity() {
            self.unfinished.scans.pass = Some(pass);
        } else {
            self.unfinished.scans.found.extend(pass.pages.into_iter().map(FoundClients::from));
        }
    }

    fn shown(&self, session: u32) -> Option<ConnectedClient> {
        let local = self.sessions.get(session as usize).filter(|local| local.connection != NONE)?;
        let connection = &self.connections[local.connection as usize];
        let (session, protocol) = (&local.session, &connection.protocol);
        let count = |number: usize| number as u64;
        let activity = connection.activity.as_deref().copied().unwrap_or_default();
        Some(ConnectedClient {
            client_id: (&**session.client_id()).into(),
            user: shown_user(connection).map(str::to_owned),
            address: connection.address().map(|address| address.to_string()),
            protocol: version(protocol.version()).into(),
            method: method(connection),
            connected_at_ms: self.process.clock.unix_ms(local.connected_at().saturating_sub(1)),
            keep_alive_s: protocol.keep_alive_s(),
            session_expiry_s: session.expiry_s,
            subscriptions: count(session.subscriptions_len()),
            unacknowledged: count(session.unacknowledged()),
            waiting_messages: count(session.waiting()),
            waiting_bytes: session.waiting_bytes(),
            unsent_bytes: count(connection.outbound.as_ref().map_or(0, |outbound| outbound.len())),
            last_packet_at_ms: self
                .process
                .clock
                .unix_ms((connection.last_input / TICKS_PER_S).saturating_sub(1)),
            messages_in: activity.messages_in,
            bytes_in: activity.bytes_in,
            messages_out: activity.messages_out,
            bytes_out: activity.bytes_out,
            filters: Vec::new(),
        })
    }

    /// Refuses the CONNECT of a banned client, and returns true.
    pub(super) fn refuse_banned(
        &mut self,
        slot: u32,
        broker: &Arc<Broker>,
        client_id: Option<&str>,
        user: Option<&str>,
    ) -> bool {
        let is_banned = self.is_banned(slot, broker, client_id, user);
        if is_banned {
            let why = "banned from this broker";
            self.broker_counters(broker).refused_banned.add(1);
            self.note(
                broker,
                &NewIncident {
                    client_id,
                    user,
                    ..NewIncident::new(StoredIncidentKind::ConnectRefused, "", why)
                },
                1,
            );
            self.refuse(slot, ReasonCode::BANNED, why);
        }
        is_banned
    }

    fn is_banned(&self, slot: u32, broker: &Broker, client_id: Option<&str>, user: Option<&str>) -> bool {
        let Some(bans) = broker.bans() else { return false };
        let connection = &self.connections[slot as usize];
        let address = bans.has_networks().then(|| connection.address()).flatten();
        let is_in_process = || connection.origin.as_ref().is_some_and(|origin| origin.is_in_process());
        if bans.has_networks() && address.is_none() && !is_in_process() {
            // A socket has no address once its client has reset it, while its input can still be read.
            return true;
        }
        let suspect = BanQuery { client_id, user, address: address.map(|address| address.ip()) };
        bans.is_banned(suspect, self.process.clock.unix_now_ms())
    }

    /// [`Self::is_banned`] for a connection with a session.
    fn is_session_banned(&self, slot: u32) -> bool {
        let connection = &self.connections[slot as usize];
        let local = &self.sessions[connection.session as usize];
        self.is_banned(slot, &local.broker, Some(local.session.client_id()), connection.who.user())
    }

    fn close_banned(&mut self, slot: u32) {
        // DISCONNECT has no reason code for "banned".
        let reason = ReasonCode::ADMINISTRATIVE_ACTION;
        self.close_without_will(slot, reason, "banned from this broker", ConnectionEnd::Banned);
    }

    /// Checks a client once its session is attached, because access settings and bans may have changed while the store was read.
    /// The next scan closes the client, because the caller still uses the connection.
    pub(super) fn check_late(&mut self, slot: u32) {
        if self.lacks_grant(slot) || self.is_session_banned(slot) {
            self.unfinished.scans.late.push(self.id_of(slot));
        }
    }

    fn close_late(&mut self, end: u64) {
        while self.work.spent() < end
            && let Some(id) = self.unfinished.scans.late.pop()
        {
            self.spend(work::VISIT);
            let slot = id.slot;
            if self.connection_of(id).is_none_or(|connection| connection.session == NONE) {
                continue;
            }
            if self.lacks_grant(slot) {
                self.close_unauthorized(slot);
            } else if self.is_session_banned(slot) {
                self.close_banned(slot);
            }
        }
    }

    /// Whether the server's settings admitted the client, and its broker has got access settings of its own since.
    fn lacks_grant(&self, slot: u32) -> bool {
        let connection = &self.connections[slot as usize];
        let broker = &self.sessions[connection.session as usize].broker;
        connection.who.granted().is_none() && broker.access().is_some()
    }
}

pub(super) fn version(version: Version) -> &'static str {
    match version {
        Version::V31 => "3.1",
        Version::V311 => "3.1.1",
        Version::V5 => "5.0",
    }
}

/// A token or an old session may name a longer user than a CONNECT.
pub(super) fn shown_user(connection: &Connected) -> Option<&str> {
    connection.who.user().map(|user| &user[..user.floor_char_boundary(USER_BYTES_MAX)])
}

/// The method that authenticated a client, with the name of its record.
fn method(connection: &Connected) -> String {
    match (&connection.who, connection.who.granted().map(|granted| &granted.identity.method)) {
        (_, Some(Method::Password)) => "password".into(),
        (_, Some(Method::Token(issuer))) => format!("token:{issuer}"),
        (_, Some(Method::Certificate(authority))) => format!("certificate:{authority}"),
        (_, Some(Method::Webhook)) => "webhook".into(),
        (_, Some(Method::ConnectToken { .. })) => "connect_token".into(),
        (ClientUser::Named(_), None) => "settings".into(),
        (ClientUser::Granted(_), Some(Method::Anonymous) | None) => "anonymous".into(),
        (ClientUser::Named(_), Some(Method::Anonymous)) => "anonymous".into(),
    }
}
