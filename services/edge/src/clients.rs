//! Connected clients, for people who ask: a page of them, one, or the end of one's connection.
//!
//! Each event loop answers for its own connections, each pod with one answer of all its loops, and the pods of a region are asked
//! together: see [`crate::Edge::ask_clients`].

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::broker::Broker;
use crate::mailbox::{Mail, Mailbox};

/// Most clients of a page.
pub const PAGE_MAX: usize = 1_000;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    /// Clients in order of client ids.
    Page {
        /// Only those after this client id.
        after: Option<Box<str>>,
        /// What client id or user name begins with.
        search: Box<str>,
        /// So many, [`PAGE_MAX`] at most.
        limit: usize,
    },
    /// The client with this client id.
    One(Box<str>),
    /// The same, whose connection is closed.
    Kick(Box<str>),
}

/// A connected client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    /// Client id.
    pub client_id: String,
    /// User name. A longer one than a credential may have is cut off.
    pub user: Option<String>,
    /// Where it is, with its port; `None` when the system does not tell any more.
    pub address: Option<String>,
    /// `3.1`, `3.1.1` or `5.0`.
    pub protocol: String,
    /// What let it in.
    pub method: String,
    /// In unix milliseconds, to the second.
    pub connected_at_ms: u64,
    /// Seconds; 0 is none.
    pub keep_alive_s: u16,
    /// For so long its session outlives the connection, seconds; [`u32::MAX`] is for ever.
    pub session_expiry_s: u32,
    /// Its subscriptions.
    pub subscriptions: u64,
    /// QoS 1 and 2 messages to it that it has not acknowledged.
    pub unacknowledged: u64,
    /// Messages to it that wait in the pod's memory, and their bytes.
    pub waiting_messages: u64,
    /// See above.
    pub waiting_bytes: u64,
    /// Bytes that its socket has not taken yet.
    pub unsent_bytes: u64,
}

/// An answer, of one loop, one pod or several.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Clients in order of client ids.
    pub clients: Vec<Client>,
    /// There may be more of them after this client id.
    pub next: Option<String>,
}

impl Answer {
    /// One answer of several, with so many clients at most. What lies behind the end of one of them is left for the next page.
    #[must_use]
    pub fn merged(answers: impl IntoIterator<Item = Self>, limit: usize) -> Self {
        let (mut all, mut next): (BTreeMap<String, Client>, Option<String>) = Default::default();
        for answer in answers {
            next = [next, answer.next].into_iter().flatten().min();
            for client in answer.clients {
                // While a client moves it may be seen twice.
                let other = all.entry(client.client_id.clone()).or_insert_with(|| client.clone());
                if other.connected_at_ms < client.connected_at_ms {
                    *other = client;
                }
            }
        }
        let is_there = |client: &Client| next.as_ref().is_none_or(|next| client.client_id <= *next);
        let mut clients: Vec<Client> = all.into_values().filter(is_there).collect();
        if clients.len() > limit {
            clients.truncate(limit);
            next = clients.last().map(|client| client.client_id.clone());
        }
        Self { clients, next }
    }
}

/// What a pod has said.
#[derive(Debug)]
pub struct Said {
    /// Its name; `None`: this one.
    pub pod: Option<Box<str>>,
    /// `None`: too many ask it at once.
    pub answer: Option<Answer>,
}

/// What is done with the answer of a pod.
type Done = Box<dyn FnOnce(Option<Answer>) + Send>;

pub(crate) struct Asked {
    pub(crate) broker: Arc<Broker>,
    pub(crate) question: Question,
    gathered: Mutex<Gathered>,
}

struct Gathered {
    /// Loops that have not.
    left: usize,
    answers: Option<Vec<Answer>>,
    done: Option<Done>,
}

pub(crate) fn ask(mailboxes: &[Mailbox], broker: Arc<Broker>, question: Question, done: Done) {
    let gathered = Gathered { left: mailboxes.len(), answers: Some(Vec::new()), done: Some(done) };
    let asked = Arc::new(Asked { broker, question, gathered: Mutex::new(gathered) });
    for mailbox in mailboxes {
        mailbox.deliver(&mut vec![Mail::Clients(asked.clone())], 0);
    }
}

impl Asked {
    /// A loop has answered; `None`: it cannot. The last one hands over what all have.
    pub(crate) fn answer(&self, answer: Option<Answer>) {
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
            done(answers.map(|answers| Answer::merged(answers, self.question.limit())));
        }
    }
}

impl Question {
    pub(crate) fn limit(&self) -> usize {
        match self {
            Self::Page { limit, .. } => (*limit).clamp(1, PAGE_MAX),
            Self::One(_) | Self::Kick(_) => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(id: &str, connected_at_ms: u64) -> Client {
        Client {
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
        }
    }

    fn answer(ids: &[&str], next: Option<&str>) -> Answer {
        Answer { clients: ids.iter().map(|id| client(id, 1)).collect(), next: next.map(Into::into) }
    }

    #[test]
    fn an_answer_goes_no_further_than_the_shortest_of_its_parts() {
        let parts =
            [answer(&["a", "d"], Some("d")), answer(&["b", "c", "e"], None), answer(&["f"], Some("f"))];
        assert_eq!(Answer::merged(parts.clone(), 9), answer(&["a", "b", "c", "d"], Some("d")));
        assert_eq!(Answer::merged(parts, 2), answer(&["a", "b"], Some("b")));
        assert_eq!(Answer::merged([answer(&["a"], None), answer(&[], None)], 1), answer(&["a"], None));
        // Those who were to come have gone meanwhile; who comes after them is not left out.
        assert_eq!(
            Answer::merged([answer(&[], Some("c")), answer(&["b", "x"], None)], 9),
            answer(&["b"], Some("c"))
        );
    }

    #[test]
    fn a_client_that_moves_is_there_once_where_it_came_last() {
        let at = |ms| Answer { clients: vec![client("a", ms)], next: None };
        for parts in [[at(1), at(2)], [at(2), at(1)]] {
            assert_eq!(Answer::merged(parts, 9), at(2));
        }
    }
}
