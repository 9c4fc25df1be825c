//! Lists and changes the connected clients of a broker, by asking every pod of the region.

use std::collections::BTreeSet;
use std::sync::PoisonError;
use std::time::Duration;

use millrace_control::{Client, ClientDetails, Clients, LiveError, Page, PageRequest, SubscriptionInfo};
use millrace_edge::Asking;
use millrace_edge::clients::{self, ClientsAnswer, PodAnswer, Question};
use millrace_layers::{BrokerId, pods};
use tokio::sync::mpsc::{self, Receiver};

use super::live::LiveEdge;
use crate::clock::now_ms;

/// Longest wait for the pods. A pod with a million connections takes a hundredth of it for its part
/// of a page.
const POD_ANSWER_MAX: Duration = Duration::from_secs(3);
const NEVER: u32 = u32::MAX;

pub(super) async fn list(
    edge: &LiveEdge,
    broker: BrokerId,
    search: &str,
    page: &PageRequest,
) -> Result<Clients, LiveError> {
    let wrong = |_| LiveError::Invalid {
        field: "cursor",
        what: "is not a cursor of this list: leave it out for the first page".into(),
    };
    let after = page.after.clone().map(String::from_utf8).transpose().map_err(wrong)?;
    let question = Question::Page { after: after.map(Into::into), search: search.into(), limit: page.limit };
    let mut inquiry = Inquiry::begin(edge, broker, question).await?;
    let answers = inquiry.gather(|_| false).await;
    let ClientsAnswer { clients, next } = ClientsAnswer::merged(answers, page.limit);
    let page = Page { items: clients.into_iter().map(client).collect(), next: next.map(String::into_bytes) };
    Ok(Clients { page, unanswered: inquiry.unanswered.into_iter().collect() })
}

pub(super) async fn show(
    edge: &LiveEdge,
    broker: BrokerId,
    client_id: &str,
) -> Result<ClientDetails, LiveError> {
    one(edge, broker, Question::One(client_id.into())).await.map(details)
}

pub(super) async fn kick(edge: &LiveEdge, broker: BrokerId, client_id: &str) -> Result<(), LiveError> {
    one(edge, broker, Question::Kick(client_id.into())).await.map(drop)
}

/// Asks every pod, because any pod may have the client.
async fn one(
    edge: &LiveEdge,
    broker: BrokerId,
    question: Question,
) -> Result<clients::ConnectedClient, LiveError> {
    let mut inquiry = Inquiry::begin(edge, broker, question).await?;
    let answers = inquiry.gather(|answer| !answer.clients.is_empty()).await;
    if let Some(found) = ClientsAnswer::merged(answers, 1).clients.pop() {
        return Ok(found);
    }
    if inquiry.unanswered.is_empty() {
        return Err(LiveError::NotFound("client"));
    }
    let names: Vec<_> = inquiry.unanswered.into_iter().collect();
    Err(LiveError::Unavailable(format!(
        "the client is not connected to the servers that answer, and these do not answer: {}; try again",
        names.join(", ")
    )))
}

/// Begins a trace on every pod; returns the client, if it is connected, and the pods that do not
/// answer.
pub(super) async fn begin_trace(
    edge: &LiveEdge,
    broker: BrokerId,
    question: Question,
) -> Result<(Option<ClientDetails>, Vec<String>), LiveError> {
    let mut inquiry = Inquiry::begin(edge, broker, question).await?;
    let answers = inquiry.gather(|_| false).await;
    let found = ClientsAnswer::merged(answers, 1).clients.pop();
    Ok((found.map(details), inquiry.unanswered.into_iter().collect()))
}

struct Inquiry {
    answers: Receiver<PodAnswer>,
    /// Names of pods that have not answered.
    unanswered: BTreeSet<String>,
    asking: Asking,
}

impl Inquiry {
    async fn begin(edge: &LiveEdge, broker: BrokerId, question: Question) -> Result<Self, LiveError> {
        // Counts the pods with a valid lease in the store, so that the answer names pods that the
        // network does not reach.
        let leases = edge.run(|tx| async move { pods::list(&tx).await }).await?;
        let alive = leases.into_iter().filter(|pod| pod.until_ms >= now_ms());
        let mut unanswered: BTreeSet<_> =
            alive.map(|pod| String::from_utf8_lossy(&pod.name).into_owned()).collect();
        // Room for all pods, this one and one that starts meanwhile, so that no pod waits to answer.
        let (sender, answers) = mpsc::channel(unanswered.len() + 2);
        let running = edge.running.read().unwrap_or_else(PoisonError::into_inner);
        let edge = running.as_ref().ok_or_else(|| LiveError::Unavailable("the server is stopping".into()))?;
        let asking = edge.ask_clients(broker, question, move |said| {
            // Fails when the request was given up.
            let _ = sender.try_send(said);
        });
        unanswered.insert(own_name(&asking));
        Ok(Self { answers, unanswered, asking })
    }

    /// Collects answers until all pods have answered, the time is over, or `enough` accepts an
    /// answer.
    async fn gather(&mut self, enough: impl Fn(&ClientsAnswer) -> bool) -> Vec<ClientsAnswer> {
        let mut answers = Vec::new();
        let all = async {
            while !self.unanswered.is_empty() {
                let Some(said) = self.answers.recv().await else { return };
                let Some(answer) = said.answer else { continue };
                let pod = said.pod.map_or_else(|| own_name(&self.asking), Into::into);
                self.unanswered.remove(&pod);
                let is_enough = enough(&answer);
                answers.push(answer);
                if is_enough {
                    return;
                }
            }
        };
        // After a timeout, `answers` has what came in time.
        let _ = tokio::time::timeout(POD_ANSWER_MAX, all).await;
        answers
    }
}

fn own_name(asking: &Asking) -> String {
    asking.pod.clone().unwrap_or_else(|| "this server".into())
}

fn client(of: clients::ConnectedClient) -> Client {
    let clients::ConnectedClient { client_id, user, address, protocol, method, connected_at_ms, .. } = of;
    let (keep_alive_s, subscriptions) = (of.keep_alive_s, of.subscriptions);
    Client { client_id, user, address, protocol, method, connected_at_ms, keep_alive_s, subscriptions }
}

fn filter(of: clients::ClientFilter) -> SubscriptionInfo {
    let clients::ClientFilter { filter, qos, no_local, retain_as_published, retain_handling, identifier } =
        of;
    SubscriptionInfo { filter, qos, no_local, retain_as_published, retain_handling, identifier }
}

fn details(mut of: clients::ConnectedClient) -> ClientDetails {
    ClientDetails {
        session_expiry_s: Some(of.session_expiry_s).filter(|expiry_s| *expiry_s != NEVER),
        unacknowledged_messages: of.unacknowledged,
        waiting_messages: of.waiting_messages,
        waiting_bytes: of.waiting_bytes,
        unsent_bytes: of.unsent_bytes,
        last_packet_at_ms: of.last_packet_at_ms,
        messages_in: of.messages_in,
        bytes_in: of.bytes_in,
        messages_out: of.messages_out,
        bytes_out: of.bytes_out,
        filters: std::mem::take(&mut of.filters).into_iter().map(filter).collect(),
        client: client(of),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpStream};
    use std::sync::{Arc, RwLock};

    use millrace_layers::{Store, catalog};
    use millrace_storage::Database;

    use super::*;

    /// A pod on a store, with a client of the broker `default`, and that broker's id.
    fn pod(client_id: &str) -> (LiveEdge, TcpStream, BrokerId, Store) {
        let database = Database::memory();
        let config = millrace_edge::Config {
            mqtt_listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
            pod: Some("one".into()),
            threads: 2,
            ..millrace_edge::Config::default()
        };
        let edge = millrace_edge::start_on(config, database.clone()).unwrap();
        let mut socket = TcpStream::connect(edge.mqtt_addresses()[0]).unwrap();
        let length = u8::try_from(client_id.len()).unwrap();
        let connect =
            [&[0x10, 12 + length, 0, 4][..], b"MQTT", &[4, 2, 0, 9, 0, length], client_id.as_bytes()];
        socket.write_all(&connect.concat()).unwrap();
        let mut connack = [0; 4];
        socket.read_exact(&mut connack).unwrap();
        assert_eq!(connack, [0x20, 2, 0, 0]);
        let store = Store::new(database.clone());
        let id = millrace_storage::block_on(store.ensure_broker(catalog::DEFAULT)).unwrap().id;
        (LiveEdge::new(database, Arc::new(RwLock::new(Some(edge)))), socket, id, store)
    }

    fn page() -> PageRequest {
        PageRequest { after: None, limit: 10 }
    }

    #[tokio::test]
    async fn a_client_is_listed_shown_and_disconnected() {
        let (edge, mut socket, broker, _) = pod("pump");
        let found = list(&edge, broker, "pu", &page()).await.unwrap();
        let rows: Vec<_> = found.page.items.iter().map(|row| (&*row.client_id, row.keep_alive_s)).collect();
        assert_eq!((rows, found.unanswered), (vec![("pump", 9)], vec![]));
        assert!(list(&edge, broker, "x", &page()).await.unwrap().page.items.is_empty());
        let shown = show(&edge, broker, "pump").await.unwrap();
        assert_eq!((&*shown.client.protocol, &*shown.client.method), ("3.1.1", "anonymous"));
        assert_eq!(shown.client.address, Some(socket.local_addr().unwrap().to_string()));
        kick(&edge, broker, "pump").await.unwrap();
        assert_eq!(socket.read(&mut [0; 9]).unwrap(), 0);
        for gone in [kick(&edge, broker, "pump").await, show(&edge, broker, "pump").await.map(drop)] {
            assert_eq!(gone, Err(LiveError::NotFound("client")));
        }
        let wrong = PageRequest { after: Some(vec![0xff]), limit: 1 };
        assert!(matches!(
            list(&edge, broker, "", &wrong).await,
            Err(LiveError::Invalid { field: "cursor", .. })
        ));
    }

    #[tokio::test]
    async fn a_pod_that_does_not_answer_is_said_and_a_client_that_may_be_there_is_not_called_missing() {
        let (edge, _socket, broker, store) = pod("pump");
        let dead = async |until_ms| {
            store.run(|tx| async move { pods::renew(&tx, b"dead", until_ms) }).await.unwrap();
        };
        dead(now_ms() + 60_000).await;
        let found = list(&edge, broker, "", &page()).await.unwrap();
        assert_eq!((found.page.items.len(), found.unanswered), (1, vec!["dead".to_owned()]));
        let missing = show(&edge, broker, "other").await;
        assert!(
            matches!(&missing, Err(LiveError::Unavailable(what)) if what.contains("dead")),
            "{missing:?}"
        );
        assert!(show(&edge, broker, "pump").await.is_ok(), "it is found without that pod");
        dead(now_ms() - 1).await;
        assert_eq!(list(&edge, broker, "", &page()).await.unwrap().unanswered, [""; 0]);
    }
}
