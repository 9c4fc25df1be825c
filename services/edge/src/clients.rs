//! Requests for connected clients by the control plane: a page of them, one, or the end of a connection.
//!
//! Each event loop answers for its own connections. A pod merges the answers of its loops, and
//! [`crate::Edge::ask_clients`] asks all pods of the region.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::broker::Broker;

pub const PAGE_MAX: usize = 1_000;
pub const FILTERS_MAX: usize = 1_000;
/// Bytes of the filters of one answer as JSON: an event loop makes it, and other pods send it.
pub(crate) const FILTERS_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a filter's other fields as JSON, at most.
pub(crate) const FILTER_FIELDS_BYTES: usize = 100;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    Page {
        after: Option<Box<str>>,
        search: Box<str>,
        /// At most [`PAGE_MAX`].
        limit: usize,
    },
    One(Box<str>),
    /// One client; the server then closes its connection.
    Kick(Box<str>),
    /// One client, and trace it from now on. Other pods report to the asking pod under `number`, until
    /// [`Question::EndTrace`], or until the asking pod stops repeating the question.
    Trace {
        client_id: Box<str>,
        number: u64,
    },
    /// End a trace; the answer is empty.
    EndTrace(u64),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectedClient {
    pub client_id: String,
    /// User name, cut off at the longest name of a credential.
    pub user: Option<String>,
    /// Address and port; `None`: the system does not know them any more.
    pub address: Option<String>,
    /// `3.1`, `3.1.1` or `5.0`.
    pub protocol: String,
    /// The method that authenticated the client, such as `password` or `token:` and the name of the issuer.
    pub method: String,
    /// Time of the CONNECT, in unix milliseconds, to the second.
    pub connected_at_ms: u64,
    /// Keep alive in seconds; 0: none.
    pub keep_alive_s: u16,
    /// Session expiry interval in seconds; [`u32::MAX`]: never.
    pub session_expiry_s: u32,
    pub subscriptions: u64,
    pub unacknowledged: u64,
    /// Messages in the pod's memory that wait for the client.
    pub waiting_messages: u64,
    pub waiting_bytes: u64,
    /// Bytes that its socket has not accepted yet.
    pub unsent_bytes: u64,
    /// Time of its last packet, in unix milliseconds, to the second. Pods of older builds say 0.
    #[serde(default)]
    pub last_packet_at_ms: u64,
    /// Messages from the client on this connection; all bytes are with topics and properties.
    #[serde(default)]
    pub messages_in: u64,
    #[serde(default)]
    pub bytes_in: u64,
    #[serde(default)]
    pub messages_out: u64,
    #[serde(default)]
    pub bytes_out: u64,
    /// Up to [`FILTERS_MAX`] subscriptions and 64 KiB, in order of filters; of more, any. Empty in a page. `subscriptions` counts all.
    #[serde(default)]
    pub filters: Vec<ClientFilter>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ClientFilter {
    pub filter: String,
    pub qos: u8,
    pub no_local: bool,
    pub retain_as_published: bool,
    pub retain_handling: u8,
    pub identifier: u32,
}

/// The answer of one event loop or pod, or the merged answers of several.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientsAnswer {
    pub clients: Vec<ConnectedClient>,
    /// Client id after which more clients may follow.
    pub next: Option<String>,
}

impl ClientsAnswer {
    /// Merges answers to at most `limit` clients. Clients after the end of any one answer are left for the next page,
    /// because that answer may lack some between.
    #[must_use]
    pub fn merged(answers: impl IntoIterator<Item = Self>, limit: usize) -> Self {
        let (mut all, mut next): (BTreeMap<String, ConnectedClient>, Option<String>) = Default::default();
        for answer in answers {
            next = [next, answer.next].into_iter().flatten().min();
            for client in answer.clients {
                // A client that reconnects to another loop may be in two answers: the newer connection counts.
                let other = all.entry(client.client_id.clone()).or_insert_with(|| client.clone());
                if other.connected_at_ms < client.connected_at_ms {
                    *other = client;
                }
            }
        }
        let is_there = |client: &ConnectedClient| next.as_ref().is_none_or(|next| client.client_id <= *next);
        let mut clients: Vec<ConnectedClient> = all.into_values().filter(is_there).collect();
        if clients.len() > limit {
            clients.truncate(limit);
            next = clients.last().map(|client| client.client_id.clone());
        }
        Self { clients, next }
    }
}

#[derive(Debug)]
pub struct PodAnswer {
    pub pod: Option<Box<str>>,
    /// `None`: the pod has too many requests at once.
    pub answer: Option<ClientsAnswer>,
}

pub(crate) type Done = Box<dyn FnOnce(Option<ClientsAnswer>) + Send>;

pub(crate) struct ClientSearch {
    pub(crate) broker: Arc<Broker>,
    pub(crate) question: Question,
    gathered: Mutex<Gathered>,
}

struct Gathered {
    left: usize,
    answers: Option<Vec<ClientsAnswer>>,
    done: Option<Done>,
}

impl ClientSearch {
    /// A request that `loops` event loops have to answer before `done` is called.
    pub(crate) fn new(loops: usize, broker: Arc<Broker>, question: Question, done: Done) -> Self {
        let gathered = Gathered { left: loops, answers: Some(Vec::new()), done: Some(done) };
        Self { broker, question, gathered: Mutex::new(gathered) }
    }

    /// An event loop has answered; `None`: it cannot. The last answer completes the request.
    pub(crate) fn answer(&self, answer: Option<ClientsAnswer>) {
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        match answer {
            Some(answer) => gathered.answers.iter_mut().for_each(|answers| answers.push(answer.clone())),
            None => gathered.answers = None,
        }
        gathered.left = gathered.left.saturating_sub(1);
        if gathered.left > 0 {
            return;
        }
        let (answers, done) = (gathered.answers.take(), gathered.done.take());
        drop(gathered);
        if let Some(done) = done {
            done(answers.map(|answers| ClientsAnswer::merged(answers, self.question.limit())));
        }
    }
}

impl Question {
    pub(crate) fn limit(&self) -> usize {
        match self {
            Self::Page { limit, .. } => (*limit).clamp(1, PAGE_MAX),
            Self::One(_) | Self::Kick(_) | Self::Trace { .. } | Self::EndTrace(_) => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(id: &str, connected_at_ms: u64) -> ConnectedClient {
        ConnectedClient {
            client_id: id.into(),
            user: None,
            address: None,
            protocol: String::new(),
            method: String::new(),
            connected_at_ms,
            keep_alive_s: 0,
            session_expiry_s: 0,
            subscriptions: 0,
            unacknowledged: 0,
            waiting_messages: 0,
            waiting_bytes: 0,
            unsent_bytes: 0,
            last_packet_at_ms: 0,
            messages_in: 0,
            bytes_in: 0,
            messages_out: 0,
            bytes_out: 0,
            filters: Vec::new(),
        }
    }

    fn answer(ids: &[&str], next: Option<&str>) -> ClientsAnswer {
        ClientsAnswer { clients: ids.iter().map(|id| client(id, 1)).collect(), next: next.map(Into::into) }
    }

    #[test]
    fn an_answer_goes_no_further_than_the_shortest_of_its_parts() {
        let parts =
            [answer(&["a", "d"], Some("d")), answer(&["b", "c", "e"], None), answer(&["f"], Some("f"))];
        assert_eq!(ClientsAnswer::merged(parts.clone(), 9), answer(&["a", "b", "c", "d"], Some("d")));
        assert_eq!(ClientsAnswer::merged(parts, 2), answer(&["a", "b"], Some("b")));
        assert_eq!(ClientsAnswer::merged([answer(&["a"], None), answer(&[], None)], 1), answer(&["a"], None));
        // The clients before "c" of the first answer have gone meanwhile; the page ends at "c" all the same.
        assert_eq!(
            ClientsAnswer::merged([answer(&[], Some("c")), answer(&["b", "x"], None)], 9),
            answer(&["b"], Some("c"))
        );
    }

    #[test]
    fn a_client_that_moves_is_there_once_where_it_came_last() {
        let at = |ms| ClientsAnswer { clients: vec![client("a", ms)], next: None };
        for parts in [[at(1), at(2)], [at(2), at(1)]] {
            assert_eq!(ClientsAnswer::merged(parts, 9), at(2));
        }
    }
}
