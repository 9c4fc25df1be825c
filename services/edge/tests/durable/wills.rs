//! Wills fire once for each session that ends without a farewell (P7), and wait for who is offline as all messages do.

use std::collections::BTreeMap;

use millrace_access::model::{Access, Action};
use millrace_mqtt::Version::{V5, V311};
use millrace_mqtt::{Connect, Property, QoS, ReasonCode, Will};
use millrace_storage::Database;

use crate::access::{allow, bob, connect_as, put, with_access};
use crate::common::{Client, Server, connect, disconnect, properties, will};
use crate::steps::{Disk, come_back, lasting, rest, start, subscribe_and_leave, texts};
use crate::tools::{eventually, half_close, metric};

/// A CONNECT with a will to `w/<id>` that says the id.
#[allow(clippy::needless_pass_by_value, reason = "it is passed on with one field changed")]
fn with_will<'a>(request: Connect<'a>, topic: &'a str, delay_s: u32) -> Connect<'a> {
    let delay = [Property::WillDelayInterval(delay_s)];
    let properties = if request.version == V5 { properties(&delay) } else { properties(&[]) };
    let payload = request.client_id.as_bytes();
    let will = Will { qos: QoS::ExactlyOnce, properties, ..will(topic, payload) };
    Connect { will: Some(will), ..request }
}

fn expiring(id: &str, expiry_s: u32) -> Connect<'_> {
    let expiry = [Property::SessionExpiryInterval(expiry_s)];
    Connect { clean_start: false, properties: properties(&expiry), ..connect(V5, id) }
}

fn published(server: &Server) -> u64 {
    metric(server, "millrace_wills_published_total", "")
}

fn expect_published(server: &Server, count: u64) {
    eventually(|| published(server) >= count, || format!("{} wills instead of {count}", published(server)));
}

/// Which wills waited for the session that was offline, and how often each.
fn waited(server: &Server) -> BTreeMap<String, usize> {
    let mut watcher = come_back(server, V5, "watcher");
    let mut counts = BTreeMap::new();
    for id in texts(&rest(server, &mut watcher, "w/end")) {
        *counts.entry(id).or_default() += 1;
    }
    counts
}

fn once(ids: &[&str]) -> BTreeMap<String, usize> {
    ids.iter().map(|id| ((*id).to_owned(), 1)).collect()
}

#[test]
fn a_will_waits_for_an_offline_session_however_its_connection_ended() {
    for threads in [1, 4] {
        let database = Database::memory();
        let server = start(&database, threads);
        subscribe_and_leave(&server, V5, "watcher", &[("w/+", QoS::ExactlyOnce)]);
        let open = |request| Client::open(&server, with_will(request, "w/a", 0));
        for (id, request) in [("cut clean", connect(V5, "cut clean")), ("cut old", lasting(V311, "cut old"))]
        {
            half_close(open(request).stream());
            let _ = id;
        }
        half_close(open(lasting(V5, "cut lasting")).stream());
        open(lasting(V5, "said so")).disconnect_with(disconnect(ReasonCode::DISCONNECT_WITH_WILL));
        open(lasting(V5, "farewell")).disconnect();
        open(connect(V5, "farewell clean")).disconnect();
        let _taken_over = [open(lasting(V5, "taken over")), Client::open(&server, lasting(V5, "taken over"))];
        let _begun_anew = [open(lasting(V5, "begun anew")), Client::connect(&server, V5, "begun anew")];
        let _silent = open(Connect { keep_alive_s: 1, ..lasting(V5, "silent") });
        expect_published(&server, 7);
        let expected =
            ["begun anew", "cut clean", "cut lasting", "cut old", "said so", "silent", "taken over"];
        assert_eq!(waited(&server), once(&expected), "{threads}");
        drop(server);
        assert_eq!(waited(&start(&database, threads)), once(&[]));
    }
}

#[test]
fn wills_of_connections_that_end_with_the_process_fire_once() {
    for crashes in [false, true] {
        let disk = Disk::new();
        let mut server = start(&disk.store.database(), 1);
        subscribe_and_leave(&server, V5, "watcher", &[("w/+", QoS::ExactlyOnce)]);
        let ids = ["clean", "lasting", "old", "old clean"];
        let requests =
            [connect(V5, "clean"), lasting(V5, "lasting"), lasting(V311, "old"), connect(V311, "old clean")];
        let open: Vec<Client> =
            requests.into_iter().map(|request| Client::open(&server, with_will(request, "w/a", 0))).collect();
        if crashes {
            server = disk.crash(server, 1);
        } else {
            drop(server);
            server = start(&disk.store.database(), 1);
        }
        drop(open);
        assert_eq!(waited(&server), once(&ids), "{crashes}");
        drop(server);
        assert_eq!(waited(&start(&disk.store.database(), 1)), once(&[]));
    }
}

#[test]
fn a_delay_passes_also_while_the_process_is_away_and_a_client_that_comes_back_ends_it() {
    for restarts in [false, true] {
        let database = Database::memory();
        let mut server = start(&database, 1);
        subscribe_and_leave(&server, V5, "watcher", &[("w/+", QoS::ExactlyOnce)]);
        // The will's delay, the session's expiry.
        let cases =
            [("delayed", 1, 60), ("expires", 60, 1), ("both", 1, 1), ("back", 1, 60), ("late", 60, 60)];
        for (id, delay_s, expiry_s) in cases {
            let client = Client::open(&server, with_will(expiring(id, expiry_s), "w/a", delay_s));
            half_close(client.stream());
        }
        let farewell = Client::open(&server, with_will(expiring("farewell", 60), "w/a", 1));
        farewell.disconnect();
        assert_eq!(published(&server), 0);
        let _back = come_back(&server, V5, "back");
        if restarts {
            drop(server);
            server = start(&database, 1);
        }
        expect_published(&server, 3);
        assert_eq!(waited(&server), once(&["both", "delayed", "expires"]), "{restarts}");
        // The one that waits still fires with the end of its session, and only then.
        let mut late = Client::open(&server, Connect { clean_start: true, ..expiring("late", 0) });
        late.expect_nothing();
        assert_eq!(waited(&server), once(&["late"]), "{restarts}");
    }
}

#[test]
fn a_takeover_within_the_delay_fires_nothing_and_the_next_will_replaces_the_last() {
    for version in [V5, V311] {
        let database = Database::memory();
        let server = start(&database, 1);
        subscribe_and_leave(&server, V5, "watcher", &[("w/+", QoS::ExactlyOnce)]);
        let mut fired = 0;
        for round in 0..3 {
            let client = Client::open(&server, with_will(lasting(version, "ann"), "w/a", 60));
            // A 3.1.1 client has no delay.
            fired = if version == V311 { round } else { 0 };
            expect_published(&server, fired);
            drop(client);
        }
        if version == V5 {
            let ann = come_back(&server, V5, "ann");
            ann.disconnect();
            assert_eq!(waited(&server), once(&[]));
        } else {
            let _ann = come_back(&server, V311, "ann");
            expect_published(&server, 3);
            assert_eq!(waited(&server), BTreeMap::from([("ann".to_owned(), 3)]), "{fired}");
        }
    }
}

#[test]
fn a_retained_will_is_there_for_who_comes_later_and_after_a_restart() {
    for crashes in [false, true] {
        let disk = Disk::new();
        let mut server = start(&disk.store.database(), 1);
        let request = with_will(lasting(V5, "ann"), "state/ann", 0);
        let retained = |request: Connect<'static>, payload: &'static [u8]| {
            let will = request.will.map(|will| Will { retain: true, payload, ..will });
            Connect { will, ..request }
        };
        half_close(Client::open(&server, retained(request.clone(), b"gone")).stream());
        let kept = |server: &Server| {
            let mut reader = Client::connect(server, V5, "reader");
            reader.subscribe("state/+", QoS::AtLeastOnce);
            texts(&rest(server, &mut reader, "state/z"))
        };
        expect_published(&server, 1);
        assert_eq!(kept(&server), ["gone"]);
        // An empty one removes it, here with the process.
        let ann = Client::open(&server, retained(request, b""));
        if crashes {
            server = disk.crash(server, 1);
        } else {
            drop(server);
            server = start(&disk.store.database(), 1);
        }
        drop(ann);
        assert_eq!(kept(&server), [""; 0], "{crashes}");
    }
}

#[test]
fn a_will_that_the_store_can_never_hold_is_dropped_alone() {
    let topic: &str = "x".repeat(5_000).leak();
    let unwritable = |id: &'static str, delay_s| {
        let mut request = with_will(expiring(id, 60), "w/a", delay_s);
        if let Some(will) = &mut request.will {
            (will.topic, will.retain) = (topic, true);
        }
        request
    };
    let database = Database::memory();
    // As an older version, which took topics of any length.
    let server = Server::on(&database, |config| config.limits.topic_bytes_max = u16::MAX);
    subscribe_and_leave(&server, V5, "watcher", &[("w/+", QoS::ExactlyOnce)]);
    for id in ["now", "comes back"] {
        half_close(Client::open(&server, unwritable(id, 0)).stream());
    }
    // Late enough that this server has stopped before they are due.
    let delay_s = 5;
    half_close(Client::open(&server, unwritable("later", delay_s)).stream());
    // Enough that each shard of what is due has some behind it.
    let ids: Vec<String> = (0..40).map(|number| format!("good {number}")).collect();
    for id in &ids {
        half_close(Client::open(&server, with_will(expiring(id, 60), "w/a", delay_s)).stream());
    }
    drop(server);
    let server = start(&database, 1);
    expect_published(&server, 40);
    let dropped = |server: &Server| metric(server, "millrace_wills_dropped_total", "");
    eventually(|| dropped(&server) >= 1, || "the will of an older version waits".into());
    // Nothing is tried again: the next one does not wait either.
    half_close(Client::open(&server, with_will(expiring("after", 60), "w/a", 0)).stream());
    expect_published(&server, 41);
    Client::open(&server, connect(V5, "comes back")).disconnect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).chain(["after"]).collect();
    assert_eq!(waited(&server), once(&ids));
    let dropped_now = dropped(&server);
    drop(server);
    let server = start(&database, 1);
    half_close(Client::open(&server, with_will(expiring("again", 60), "w/a", 0)).stream());
    expect_published(&server, 1);
    assert_eq!((dropped_now, dropped(&server)), (1, 0));
}

#[test]
fn a_will_is_gone_when_the_server_closes_after_a_disconnect() {
    let disk = Disk::new();
    let mut server = start(&disk.store.database(), 1);
    subscribe_and_leave(&server, V5, "watcher", &[("w/+", QoS::ExactlyOnce)]);
    for round in 0..20 {
        for request in [lasting(V5, "lasting"), connect(V311, "clean")] {
            Client::open(&server, with_will(request, "w/a", 0)).disconnect();
            server = disk.crash(server, 1);
        }
        assert_eq!(waited(&server), once(&[]), "round {round}");
    }
}

#[test]
fn a_client_that_disconnects_does_not_wait_for_a_store_that_takes_nothing() {
    let disk = Disk::new();
    let server = start(&disk.store.database(), 1);
    subscribe_and_leave(&server, V5, "watcher", &[("w/+", QoS::ExactlyOnce)]);
    let client = Client::open(&server, with_will(lasting(V5, "lasting"), "w/a", 0));
    disk.fill();
    client.disconnect();
    disk.make_room();
    // Its session is there, and its will goes when the store takes it.
    let _back = come_back(&server, V5, "lasting");
    assert_eq!(waited(&server), once(&[]));
}

#[test]
fn a_client_that_ends_only_its_own_sending_is_gone_on_every_broker() {
    let (managed, id) = with_access(&Access::default());
    put(&managed, id, &bob(vec![allow(Action::Publish, "w/a"), allow(Action::Subscribe, "w/a")]));
    for database in [managed, Database::memory()] {
        let server = Server::on(&database, |_| {});
        let mut watcher =
            Client::open(&server, Connect { client_id: "watcher", ..connect_as("bob", "right") });
        watcher.subscribe("w/a", QoS::AtLeastOnce);
        // The answer has arrived, so the will is in force.
        half_close(Client::open(&server, with_will(connect_as("bob", "right"), "w/a", 0)).stream());
        assert_eq!(watcher.recv_publish().payload, b"c1");
    }
}
