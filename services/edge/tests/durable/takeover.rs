//! One client id, one connection (P5), and nothing lost by it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use millrace_layers::sessions::{self, Attach, SessionId};
use millrace_layers::{Store, pods};
use millrace_mqtt::Version::{V5, V311};
use millrace_mqtt::{Packet, QoS, ReasonCode, SubscribeOptions};
use millrace_storage::{Database, Read, block_on};

use crate::away::{Far, Mended, Way, named};
use crate::common::{Client, Server, connect, publish_qos};
use crate::history::publish_mixed;
use crate::steps::{
    Disk, VERSIONS, acknowledge, come_back, expect_no_rest, is_present, lasting, leave, marks, rest, say,
    start, subscribe_and_leave, take, texts,
};
use crate::tools::{Packets, counted, eventually, expect_clients, metric};

#[test]
fn the_second_connection_goes_on_with_what_the_first_had_in_flight() {
    for version in VERSIONS {
        for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
            let disk = Disk::new();
            let server = start(&disk.store.database(), 4);
            let mut first = Client::open(&server, lasting(version, "ann"));
            first.subscribe("t", QoS::ExactlyOnce);
            for round in 0..5 {
                say(&server, qos, "t", &["0", "1", "2", "3"]);
                let got: Vec<_> = (0..4).map(|_| take(&mut first)).collect();
                acknowledge(&mut first, &got[1]);
                first.ping();
                let mut second = come_back(&server, version, "ann");
                if version == V5 {
                    first.expect_disconnect(ReasonCode::SESSION_TAKEN_OVER);
                } else {
                    first.expect_close();
                }
                let again: Vec<_> = (0..3).map(|_| take(&mut second)).collect();
                let expected = [0, 2, 3].map(|index| {
                    let mut message = got[index].clone();
                    message.dup = true;
                    message
                });
                assert_eq!(marks(&again), marks(&expected), "{version:?} {qos:?} {round}");
                again.iter().for_each(|message| acknowledge(&mut second, message));
                first = second;
            }
            expect_no_rest(&server, &mut first, "t");
            expect_clients(&server, 1);
        }
    }
}

#[test]
fn racing_connections_of_one_client_lose_nothing_and_one_stays() {
    const COUNT: u64 = 1500;
    for (version, threads) in [(V5, 4), (V311, 1)] {
        let server = start(&Database::memory(), threads);
        subscribe_and_leave(&server, version, "ann", &[("f/+", QoS::AtLeastOnce)]);
        let seen = Mutex::new(vec![false; usize::try_from(COUNT).unwrap()]);
        let missing = || seen.lock().unwrap().iter().filter(|seen| !**seen).count();
        let (published, connections) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..50 {
                scope.spawn(|| {
                    // Each comes again until all is published.
                    while !published.load(Ordering::SeqCst) {
                        connections.fetch_add(1, Ordering::SeqCst);
                        let mut client = Client::raw(&server);
                        client.send(&Packet::Connect(lasting(version, "ann")));
                        note(&client, &mut Packets::of(&client), &seen);
                    }
                });
            }
            publish_mixed(&server, "f/a", COUNT, &[QoS::AtLeastOnce], |_| {});
            published.store(true, Ordering::SeqCst);
        });
        // The subscriber's and the publisher's were two.
        expect_gone(&server, 2 + connections.load(Ordering::SeqCst));
        let last = come_back(&server, version, "ann");
        last.stream().set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let mut packets = Packets::of(&last);
        eventually(
            || {
                note(&last, &mut packets, &seen);
                missing() == 0
            },
            || format!("{} are missing\n{}", missing(), counted(&server)),
        );
        assert_eq!(metric(&server, "millrace_clients_connected", ""), 1);
        assert_eq!(metric(&server, "millrace_sessions", ""), 1);
    }
}

/// Takes and acknowledges what comes to a connection until it ends, or for a hundred messages.
fn note(client: &Client, packets: &mut Packets<'_>, seen: &Mutex<Vec<bool>>) {
    for _ in 0..100 {
        let number = match packets.next() {
            None | Some(Packet::Disconnect(_)) => return,
            Some(Packet::Publish(message)) => {
                let id = message.packet_id.unwrap();
                let number = crate::tools::number_of(message.payload);
                let acknowledged =
                    crate::tools::encoded(&Packet::PubAck(crate::common::ack(id)), client.version);
                crate::tools::send_anyway(client.stream(), &acknowledged);
                number
            }
            Some(_) => continue,
        };
        seen.lock().unwrap()[usize::try_from(number).unwrap()] = true;
    }
}

#[test]
fn a_clean_start_that_races_with_a_resume_leaves_one_connection_that_works() {
    for threads in [1, 4] {
        let server = start(&Database::memory(), threads);
        for round in 0..60 {
            subscribe_and_leave(&server, V5, "ann", &[("old/#", QoS::AtLeastOnce)]);
            say(&server, QoS::AtLeastOnce, "old/a", &["waits"]);
            let mut keeps = lasting(V5, "ann");
            keeps.clean_start = true;
            let clean = if round % 2 == 0 { keeps } else { connect(V5, "ann") };
            let mut both = [Client::raw(&server), Client::raw(&server)];
            let order = if round % 4 < 2 { [0, 1] } else { [1, 0] };
            for index in order {
                let request = if index == 0 { lasting(V5, "ann") } else { clean.clone() };
                both[index].send(&Packet::Connect(request));
            }
            both.iter().for_each(subscribe_anyway);
            let granted = |packet: &Packet<'_>| match packet {
                Packet::SubAck(answer) => Some(answer.reasons.to_vec()),
                _ => None,
            };
            let answers = both.each_ref().map(|client| until(client, granted));
            // By now the server has seen both.
            let alive = both.each_ref().map(|client| {
                crate::tools::send_anyway(client.stream(), &[0xC0, 0]);
                until(client, |packet| matches!(packet, Packet::PingResp).then_some(())).is_some()
            });
            assert_ne!(alive[0], alive[1], "round {round}");
            let stays = usize::from(alive[1]);
            let what = "the connection that stays has no session";
            assert_eq!(answers[stays], Some(vec![1]), "round {round}, {stays}: {what}");
            leave(&mut both[stays], true);
            expect_clients(&server, 0);
            let mut ann = Client::open(&server, lasting(V5, "ann"));
            let is_kept = stays == 0 || round % 2 == 0;
            assert_eq!(is_present(&ann), is_kept, "round {round}");
            if is_kept {
                let got = texts(&rest(&server, &mut ann, "new"));
                assert!(got.is_empty() || got == ["waits"], "{got:?}");
            }
            leave(&mut ann, true);
            leave(&mut Client::connect(&server, V5, "ann"), true);
        }
    }
}

/// SUBSCRIBE, on a connection that may be over.
fn subscribe_anyway(client: &Client) {
    let options = SubscribeOptions { qos: QoS::AtLeastOnce, ..SubscribeOptions::default() };
    let mut bytes = Vec::new();
    let none = millrace_mqtt::Properties::EMPTY;
    let filters = [("new", options)];
    millrace_mqtt::encode::subscribe(crate::common::id(1), none, filters, V5, &mut bytes);
    crate::tools::send_anyway(client.stream(), &bytes);
}

/// Reads until `found` finds something; `None` when the server has closed the connection.
fn until<T>(client: &Client, found: impl Fn(&Packet<'_>) -> Option<T>) -> Option<T> {
    let mut packets = Packets::of(client);
    loop {
        let packet = packets.next()?;
        if matches!(packet, Packet::Disconnect(_)) {
            return None;
        }
        if let Some(found) = found(&packet) {
            return Some(found);
        }
    }
}

/// Waits until the server has seen so many connections come and go: a CONNECT of one that its client has closed may come late.
fn expect_gone(server: &Server, connections: u64) {
    let accepted = || metric(server, "millrace_connections_accepted_total", "");
    let open = || metric(server, "millrace_connections_open", "");
    eventually(|| accepted() == connections && open() == 0, || counted(server));
}

#[test]
fn what_an_old_connection_sends_late_changes_nothing() {
    let server = start(&Database::memory(), 4);
    subscribe_and_leave(&server, V5, "reader", &[("t", QoS::AtLeastOnce)]);
    let counter = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..10 {
                    let mut client = Client::raw(&server);
                    client.send(&Packet::Connect(lasting(V5, "writer")));
                    let number = counter.fetch_add(1, Ordering::SeqCst).to_string();
                    // The connection may be over: then nobody has acknowledged it.
                    let message = publish_qos(QoS::ExactlyOnce, 1, "t", number.as_bytes());
                    let bytes = crate::tools::encoded(&Packet::Publish(message), V5);
                    crate::tools::send_anyway(client.stream(), &bytes);
                }
            });
        }
    });
    expect_gone(&server, 81);
    let mut writer = come_back(&server, V5, "writer");
    // The id is in use, or it is not: in either case this ends it.
    writer.send(&Packet::PubRel(crate::common::ack(crate::common::id(1))));
    writer.recv_ack(millrace_mqtt::PacketType::PubComp, crate::common::id(1));
    assert!(!writer.publish(publish_qos(QoS::ExactlyOnce, 1, "t", b"last")).is_error());
    let got = texts(&rest(&server, &mut come_back(&server, V5, "reader"), "t"));
    let mut once = got.clone();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), got.len(), "{got:?}");
    assert_eq!(got.last().map(String::as_str), Some("last"));
}

#[test]
fn connections_that_are_gone_before_their_session_comes_leave_it_as_it_was() {
    let disk = Disk::new();
    let server: Server = start(&disk.store.database(), 1);
    subscribe_and_leave(&server, V5, "ann", &[("t", QoS::ExactlyOnce)]);
    let mut ann = come_back(&server, V5, "ann");
    say(&server, QoS::ExactlyOnce, "t", &["open", "over", "open too"]);
    let got: Vec<_> = (0..3).map(|_| take(&mut ann)).collect();
    acknowledge(&mut ann, &got[1]);
    leave(&mut ann, true);
    for _ in 0..20 {
        let mut client = Client::raw(&server);
        client.send(&Packet::Connect(lasting(V5, "ann")));
        drop(client);
    }
    // The publisher's was one.
    expect_gone(&server, 23);
    let again = rest(&server, &mut come_back(&server, V5, "ann"), "t");
    assert_eq!(texts(&again), ["open", "open too"]);
    let ids = |messages: &[millrace_mqtt::Publish<'_>]| -> Vec<_> {
        messages.iter().map(|message| message.packet_id).collect()
    };
    assert_eq!(ids(&again), ids(&[got[0].clone(), got[2].clone()]));
}

#[test]
fn of_many_connects_that_wait_for_one_session_the_oldest_are_refused() {
    const CONNECTS: usize = 40;
    const WAIT: usize = 17;
    let far = Far::new();
    let server = named(&far, "one");
    let _mended = Mended(far.clone());
    far.set(Way::Stuck);
    let mut clients: Vec<Client> = (0..CONNECTS)
        .map(|_| {
            let mut client = Client::raw(&server);
            client.send(&Packet::Connect(lasting(V5, "ann")));
            client
        })
        .collect();
    // The first one is with the store already.
    for client in &mut clients[1..=CONNECTS - WAIT] {
        assert_eq!(client.recv_connack().reason, ReasonCode::SERVER_BUSY);
        client.expect_close();
    }
    far.set(Way::Fine);
    let mut rest = clients.split_off(CONNECTS - WAIT + 1);
    rest.insert(0, clients.remove(0));
    let mut last = rest.pop().unwrap();
    for client in &mut rest {
        assert_eq!(client.recv_connack().reason, ReasonCode::SUCCESS);
        client.expect_disconnect(ReasonCode::SESSION_TAKEN_OVER);
    }
    assert_eq!(last.recv_connack().reason, ReasonCode::SUCCESS);
    last.ping();
}

/// A session whose pod does not answer.
struct OfSlowPod {
    store: Store,
    broker: u64,
}

impl OfSlowPod {
    fn new(database: &Database) -> Self {
        let store = Store::new(database.clone());
        let broker = block_on(store.ensure_broker(b"default")).unwrap().id;
        let new = Self { store, broker };
        new.attach();
        new
    }

    fn id(&self) -> SessionId<'_> {
        SessionId { broker: self.broker, client: b"ann" }
    }

    /// The client connects to that pod. Gives the epoch.
    fn attach(&self) -> u64 {
        let (owner, now_ms) = ("slow".into(), crate::pods::now_ms());
        let request = Attach { owner, clean: false, expiry_s: 3600, now_ms, will: None, details: None };
        let attach =
            self.store.run(async |tx| Ok(sessions::attach(&tx, self.id(), request.clone()).await?.epoch));
        block_on(attach).unwrap()
    }

    fn owner(&self) -> (Vec<u8>, u64) {
        let read = self.store.run(async |tx| sessions::get(&tx, self.id(), Read::Snapshot).await);
        let record = block_on(read).unwrap().unwrap();
        (record.owner.to_vec(), record.epoch)
    }

    /// Waits until the pod is asked to release the session that it has under this epoch.
    fn wait_until_asked(&self, epoch: u64) {
        let notices = || block_on(self.store.run(async |tx| pods::lost_sessions(&tx, b"slow", 10).await));
        let is_asked = || notices().unwrap().iter().any(|lost| lost.epoch == epoch);
        eventually(is_asked, || format!("the pod is not asked for epoch {epoch}"));
    }
}

#[test]
fn a_connect_whose_client_is_gone_takes_no_session_from_another_pod_by_force() {
    for comes_back in [false, true] {
        let database = Database::memory();
        let session = OfSlowPod::new(&database);
        let server = crate::region::pod_at(&database, "one", 1, None);
        let mut gone = Client::raw(&server);
        gone.send(&Packet::Connect(lasting(V5, "ann")));
        session.wait_until_asked(session.owner().1);
        drop(gone);
        if comes_back {
            session.attach();
        }
        let before = session.owner();
        expect_gone(&server, 1);
        assert_eq!(session.owner(), before, "it comes back to its pod: {comes_back}");
    }
}

#[test]
fn a_pod_has_its_time_to_release_a_session_that_its_client_has_just_taken_again() {
    let database = Database::memory();
    let session = OfSlowPod::new(&database);
    let server = crate::region::pod_at(&database, "one", 1, None);
    let mut client = Client::raw(&server);
    client.send(&Packet::Connect(lasting(V5, "ann")));
    session.wait_until_asked(session.owner().1);
    let epoch = session.attach();
    let since = crate::tools::now();
    session.wait_until_asked(epoch);
    assert_eq!(client.recv_connack().reason, ReasonCode::SUCCESS);
    assert!(since.elapsed() > Duration::from_secs(2), "{:?}", since.elapsed());
}

#[test]
fn a_stalled_pod_stores_nothing_of_a_connection_that_another_pod_has_replaced() {
    for lasts in [false, true] {
        let near = Database::memory();
        let far = Far::over(near.clone());
        let stalled = crate::region::pod_at(&far.database(), "stalled", 1, None);
        let other = crate::region::pod_at(&near, "other", 1, None);
        let _mended = Mended(far.clone());
        subscribe_and_leave(&other, V5, "reader", &[("t", QoS::AtLeastOnce)]);
        let request = || if lasts { lasting(V5, "ann") } else { connect(V5, "ann") };
        let message = |number, text| publish_qos(QoS::AtLeastOnce, number, "t", text);
        let mut before = Client::open(&stalled, request());
        before.publish(message(1, b"first"));
        // The one is with the store, the other waits for the writer.
        far.set(Way::Holds);
        before.send(&Packet::Publish(message(2, b"stalled")));
        eventually(|| far.is_waiting(), || "no commit waits".into());
        before.send(&Packet::Publish(message(3, b"behind it")));
        let mut ann = Client::open(&other, request());
        assert!(!ann.publish(message(1, b"new")).is_error());
        far.set(Way::Fine);
        say(&stalled, QoS::AtLeastOnce, "t", &["last"]);
        let got = rest(&other, &mut come_back(&other, V5, "reader"), "t");
        assert_eq!(texts(&got), ["first", "new", "last"], "the session lasts: {lasts}");
    }
}
