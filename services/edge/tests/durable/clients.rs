//! Connected clients, for people: listed, shown, disconnected, banned; on one pod and on several.

use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use millrace_access::model::{Access, Ban};
use millrace_edge::Asking;
use millrace_edge::clients::{ClientsAnswer, PAGE_MAX, PodAnswer, Question};
use millrace_layers::catalog::{self, Details};
use millrace_layers::incidents::StoredIncidentKind;
use millrace_layers::{LayerError, Store, accounts};
use millrace_mqtt::{Packet, QoS, ReasonCode, Version, encode};
use millrace_storage::{Database, Read, Transaction, block_on};
use socket2::SockRef;

use crate::access::{bob, change, connect_as, put, refused, with_access};
use crate::common::{Client, Server, connect, publish, publish_qos};
use crate::limits::incidents_of;
use crate::region::three;
use crate::tools::{ended, eventually, metric};

const PATIENCE: Duration = Duration::from_secs(60);

/// A database with the broker `default`, and its number.
fn with_default() -> (Database, u64) {
    let database = Database::memory();
    let id = block_on(Store::new(database.clone()).ensure_broker(catalog::DEFAULT)).unwrap().id;
    (database, id)
}

fn ask(server: &Server, broker: u64, question: Question) -> (Asking, Receiver<PodAnswer>) {
    let (tell, said) = sync_channel(100);
    // A test that has what it wants stops listening.
    let asking = server.edge.ask_clients(broker, question, move |said| drop(tell.send(said)));
    (asking, said)
}

/// The merged answer of so many pods.
fn answer(server: &Server, broker: u64, question: Question, pods: usize) -> ClientsAnswer {
    let limit = if let Question::Page { limit, .. } = &question { *limit } else { 1 };
    let (_asking, said) = ask(server, broker, question);
    let answers = (0..pods).map(|_| said.recv_timeout(PATIENCE).unwrap().answer.unwrap());
    ClientsAnswer::merged(answers, limit)
}

fn page(after: Option<&str>, search: &str, limit: usize) -> Question {
    Question::Page { after: after.map(Into::into), search: search.into(), limit }
}

fn ids(answer: &ClientsAnswer) -> Vec<&str> {
    answer.clients.iter().map(|client| &*client.client_id).collect()
}

fn ban(database: &Database, id: u64, name: &str, ban: &Ban) {
    let ban = Ban { name: name.into(), ..ban.clone() };
    change(database, id, &async |tx: &Transaction| accounts::bans(id).put(tx, name.as_bytes(), &ban).await);
}

#[test]
fn clients_come_in_pages_in_order_and_by_what_id_or_user_begins_with() {
    let (database, id) = with_access(&Access { anonymous: true, ..Access::default() });
    put(&database, id, &bob(vec![]));
    let server = Server::on(&database, |config| config.threads = 3);
    let names: Vec<String> = (0..25).map(|number| format!("c{number:02}")).collect();
    let clients: Vec<Client> = names.iter().map(|name| Client::connect(&server, Version::V5, name)).collect();
    let mut bob = Client::open(&server, connect_as("bob", "right"));
    bob.subscribe("a/#", QoS::AtLeastOnce);

    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = answer(&server, id, page(after.as_deref(), "c", 10), 1);
        assert!(page.clients.len() <= 10);
        seen.extend(page.clients.into_iter().map(|client| client.client_id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let mut all: Vec<&str> = names.iter().map(|name| &**name).chain(["c1"]).collect();
    all.sort_unstable();
    assert_eq!(seen, all);
    assert_eq!(ids(&answer(&server, id, page(None, "c1", 99), 1)).len(), 11);
    let of_bob = answer(&server, id, page(None, "bo", 99), 1);
    let found = &of_bob.clients[0];
    assert_eq!((of_bob.clients.len(), &*found.client_id, found.user.as_deref()), (1, "c1", Some("bob")));
    assert_eq!((&*found.method, &*found.protocol, found.subscriptions), ("password", "5.0", 1));
    assert_eq!(found.address, Some(bob.stream().local_addr().unwrap().to_string()));
    assert!(answer(&server, id + 1, page(None, "", 99), 1).clients.is_empty(), "another broker");
    drop(clients);
}

#[test]
fn what_waits_for_a_client_is_shown() {
    let (database, id) = with_default();
    let server = Server::on(&database, |_| {});
    let mut slow = Client::connect(&server, Version::V5, "slow");
    slow.subscribe("t", QoS::AtLeastOnce);
    let mut publisher = Client::connect(&server, Version::V5, "publisher");
    for number in 1..=3 {
        publisher.publish(publish_qos(QoS::AtLeastOnce, number, "t", b"x"));
    }
    let shown = answer(&server, id, Question::One("slow".into()), 1);
    assert_eq!((shown.clients[0].unacknowledged, shown.clients[0].session_expiry_s), (3, 0));
    assert!(answer(&server, id, Question::One("nobody".into()), 1).clients.is_empty());
}

#[test]
fn who_is_disconnected_by_an_operator_is_told_and_may_come_again() {
    let (database, id) = with_default();
    let server = Server::on(&database, |config| config.threads = 2);
    for version in [Version::V5, Version::V311] {
        let mut client = Client::connect(&server, version, "c");
        let kicked = answer(&server, id, Question::Kick("c".into()), 1);
        assert_eq!(ids(&kicked), ["c"]);
        if version == Version::V5 {
            client.expect_disconnect(ReasonCode::ADMINISTRATIVE_ACTION);
        } else {
            client.expect_close();
        }
        assert!(answer(&server, id, Question::Kick("c".into()), 1).clients.is_empty());
        Client::connect(&server, version, "c").disconnect();
    }
    assert_eq!(ended(&server, "administrative_action"), 2);
}

/// Lists are made in slices, so traffic never waits for more than one of them.
#[test]
fn a_list_of_many_clients_is_made_in_slices_and_one_pass_serves_all_who_ask() {
    const CLIENTS: u64 = 20_000;
    const ASKED: u64 = 20;
    /// Units of work. A session takes one, besides one to four for each list, and a client on a list takes thirty.
    const SLICE: u64 = 2_000;
    // Two files a connection, and some for the other tests.
    let files = rlimit::increase_nofile_limit(u64::MAX).unwrap();
    let count = CLIENTS.min(files.saturating_sub(4_000) / 2);
    let (database, id) = with_default();
    let server = Server::on(&database, |config| {
        config.limits.connects_per_second_max = 0;
        config.limits.connect_timeout_s = 60;
    });
    let clients: Vec<_> = (0..count).map(|number| connected(&server, &format!("{number:05}"))).collect();
    let slices = || metric(&server, "millrace_session_scan_slices_total", "");
    assert_eq!(slices(), 0);
    let asked: Vec<_> = (0..ASKED).map(|_| ask(&server, id, page(None, "", PAGE_MAX))).collect();
    // Somebody who is served meanwhile.
    Client::connect(&server, Version::V5, "~").ping();
    for (_, said) in &asked {
        let found = said.recv_timeout(PATIENCE).unwrap().answer.unwrap();
        assert_eq!((found.clients.len(), &*found.clients[999].client_id), (PAGE_MAX, "00999"));
        assert_eq!(found.next.as_deref(), Some("00999"));
    }
    let least = (count + ASKED * (count + 30 * PAGE_MAX as u64)) / SLICE;
    // The room for sessions doubles, lists that were asked for while a pass was under way have the next one, and clients that a
    // list has had for a moment took work, too.
    assert!((least..=6 * least).contains(&slices()), "{} slices instead of {least}", slices());
    let last = answer(&server, id, page(Some(&format!("{:05}", count - 2)), "", 1), 1);
    assert_eq!(ids(&last), [format!("{:05}", count - 1)]);
    drop(clients);
}

/// A client without the buffers of a [`Client`].
fn connected(server: &Server, name: &str) -> std::net::TcpStream {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(server.mqtt()).unwrap();
    let mut bytes = Vec::new();
    encode::packet(&Packet::Connect(connect(Version::V311, name)), Version::V311, &mut bytes);
    stream.write_all(&bytes).unwrap();
    stream.read_exact(&mut [0; 4]).unwrap();
    stream
}

#[test]
fn who_is_banned_is_closed_and_does_not_come_back_until_the_ban_ends() {
    let (database, id) = with_access(&Access { anonymous: true, ..Access::default() });
    put(&database, id, &bob(vec![]));
    let server = Server::on(&database, |config| config.threads = 2);
    let address = || "127.0.0.0/8".to_owned();
    for of in [
        Ban { client_id: Some("c1".into()), ..Ban::default() },
        Ban { user: Some("bob".into()), ..Ban::default() },
        Ban { address: Some(address()), ..Ban::default() },
    ] {
        let mut client = Client::open(&server, connect_as("bob", "right"));
        let mut other = of.address.is_none().then(|| Client::connect(&server, Version::V5, "other"));
        ban(&database, id, "b", &of);
        client.expect_disconnect(ReasonCode::ADMINISTRATIVE_ACTION);
        assert_eq!(refused(&server, connect_as("bob", "right")), ReasonCode::BANNED.0, "{of:?}");
        if let Some(other) = &mut other {
            other.ping();
        }
        // It is over.
        ban(&database, id, "b", &Ban { until_ms: Some(1), ..of.clone() });
        let is_free = || answer_of(&server) == 0;
        eventually(is_free, || format!("{of:?} does not end"));
    }
    assert_eq!(ended(&server, "banned"), 3);
    assert!(metric(&server, "millrace_connects_refused_total", "reason=\"banned\"") >= 3);
    let incidents = incidents_of(&database, id, StoredIncidentKind::ConnectRefused);
    let of_bob = incidents.iter().find(|incident| incident.reason.contains("banned"));
    assert_eq!(of_bob.and_then(|incident| incident.client_id.as_deref()), Some("c1"), "{incidents:?}");
}

/// The kernel keeps the input of a socket that was reset, but not its address.
#[test]
fn a_client_of_a_banned_network_publishes_nothing_before_it_resets_its_connection() {
    let (database, id) = with_access(&Access { anonymous: true, ..Access::default() });
    let server = Server::on(&database, |config| config.threads = 1);
    ban(&database, id, "b", &Ban { address: Some("127.0.0.0/8".into()), ..Ban::default() });
    eventually(|| is_refused(&server), || "the ban does not begin".into());
    let mut burst = Vec::new();
    encode::packet(&Packet::Connect(connect(Version::V5, "c1")), Version::V5, &mut burst);
    encode::packet(&Packet::Publish(publish("t", b"x")), Version::V5, &mut burst);
    let accepted = || metric(&server, "millrace_connections_accepted_total", "");
    let before = accepted();
    for _ in 0..50 {
        let client = Client::raw(&server);
        SockRef::from(client.stream()).set_linger(Some(Duration::ZERO)).unwrap();
        crate::tools::send_anyway(client.stream(), &burst);
    }
    let is_over = || accepted() == before + 50 && metric(&server, "millrace_connections_open", "") == 0;
    eventually(is_over, || format!("{} accepted", accepted() - before));
    assert_eq!(metric(&server, "millrace_messages_received_total", ""), 0);
}

fn is_refused(server: &Server) -> bool {
    let mut client = Client::raw(server);
    client.send(&Packet::Connect(connect(Version::V5, "c1")));
    client.recv_connack().reason == ReasonCode::BANNED
}

/// The reason of the CONNACK that bob gets.
fn answer_of(server: &Server) -> u8 {
    let mut client = Client::raw(server);
    client.send(&Packet::Connect(connect_as("bob", "right")));
    client.recv_connack().reason.0
}

/// Bans count, too, where the server's settings authenticate clients.
#[test]
fn a_client_of_a_broker_without_records_is_banned() {
    let (database, id) = with_default();
    let server = Server::on(&database, |_| {});
    let mut client = Client::connect(&server, Version::V5, "c1");
    let mut other = Client::connect(&server, Version::V5, "c2");
    ban(&database, id, "b", &Ban { client_id: Some("c1".into()), ..Ban::default() });
    client.expect_disconnect(ReasonCode::ADMINISTRATIVE_ACTION);
    assert_eq!(refused(&server, connect(Version::V5, "c1")), ReasonCode::BANNED.0);
    other.ping();
    change(&database, id, &async |tx: &Transaction| {
        accounts::bans(id).clear(tx, b"b").await?;
        Ok(0)
    });
    let is_free = || {
        let mut client = Client::raw(&server);
        client.send(&Packet::Connect(connect(Version::V5, "c1")));
        client.recv_connack().reason == ReasonCode::SUCCESS
    };
    eventually(is_free, || "the ban is still there".into());
}

/// Suspends a broker, or deletes it, as the control plane does.
fn end_broker(database: &Database, id: u64, is_deleted: bool) {
    change(database, id, &async |tx: &Transaction| {
        let broker = catalog::get(tx, catalog::DEFAULT, Read::Serializable).await?;
        let broker = broker.ok_or(LayerError::Corrupt("broker"))?;
        if is_deleted {
            catalog::condemn(tx, &broker, 1)?;
        } else {
            catalog::describe(tx, &broker, &Details { suspended: true, ..Details::default() }).await?;
        }
        Ok(0)
    });
}

#[test]
fn a_broker_that_is_deleted_or_suspended_has_no_clients_on_any_pod() {
    for is_deleted in [false, true] {
        for access in [Some(Access { anonymous: true, ..Access::default() }), None] {
            let (database, id) = access.map_or_else(with_default, |access| with_access(&access));
            let pods =
                ["one", "two"].map(|name| Server::on(&database, |config| config.pod = Some(name.into())));
            let mut clients: Vec<_> = pods
                .iter()
                .zip(["a", "b"])
                .map(|(pod, name)| Client::connect(pod, Version::V5, name))
                .collect();
            end_broker(&database, id, is_deleted);
            for client in &mut clients {
                client.expect_disconnect(ReasonCode::NOT_AUTHORIZED);
            }
            for pod in &pods {
                let reason = Client::refused(pod, connect(Version::V5, "c")).reason;
                assert!(reason.is_error(), "{is_deleted}");
            }
        }
    }
}

#[test]
fn clients_of_all_pods_are_listed_and_disconnected_from_any() {
    let Some((pods, _net)) = three() else { return };
    let names = ["a", "b", "c", "d", "e", "f"];
    let mut clients: Vec<Client> = names
        .iter()
        .enumerate()
        .map(|(number, name)| Client::connect(&pods[number % 3], Version::V5, name))
        .collect();
    let id = 1;
    let first = answer(&pods[0], id, page(None, "", 4), 3);
    assert_eq!((ids(&first), first.next.as_deref()), (vec!["a", "b", "c", "d"], Some("d")));
    let second = answer(&pods[1], id, page(Some("d"), "", 4), 3);
    assert_eq!((ids(&second), second.next.as_deref()), (vec!["e", "f"], None));
    assert_eq!(ids(&answer(&pods[2], id, Question::One("b".into()), 3)), ["b"]);
    assert_eq!(ids(&answer(&pods[0], id, Question::Kick("b".into()), 3)), ["b"]);
    clients[1].expect_disconnect(ReasonCode::ADMINISTRATIVE_ACTION);
    assert!(answer(&pods[0], id, Question::One("b".into()), 3).clients.is_empty());
}

/// A pod that is gone says nothing; who asks knows by its lease that it should have.
#[test]
fn a_pod_that_is_gone_does_not_hold_up_the_answers_of_the_others() {
    let Some((pods, _net)) = three() else { return };
    let [one, two, three] = pods;
    let _here = Client::connect(&one, Version::V5, "here");
    let _there = Client::connect(&two, Version::V5, "there");
    drop(three);
    let (_asking, said) = ask(&one, 1, page(None, "", 9));
    let answers: Vec<PodAnswer> = (0..2).map(|_| said.recv_timeout(PATIENCE).unwrap()).collect();
    let mut names: Vec<_> = answers.iter().map(|said| said.pod.as_deref()).collect();
    names.sort_unstable();
    assert_eq!(names, [None, Some("two")]);
    let both = ClientsAnswer::merged(answers.into_iter().filter_map(|said| said.answer), 9);
    assert_eq!(ids(&both), ["here", "there"]);
}
