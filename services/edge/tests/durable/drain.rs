//! A pod that is left in order: its sessions continue elsewhere, with all they have.

use std::time::Duration;

use millrace_edge::DrainRate;
use millrace_mqtt::Version::{V5, V311};
use millrace_mqtt::{Connect, Property, QoS, Version, Will};
use millrace_storage::Database;

use crate::brokers;
use crate::common::{Client, Server, connect, properties, will};
use crate::steps::{
    VERSIONS, acknowledge, come_back, expect_no_rest, lasting, marks, rest, say, subscribe_and_leave, take,
    texts,
};
use crate::tools::{PATIENCE, eventually, metric};

const FAST: DrainRate = DrainRate { per_second: 1000, at_most: Duration::from_secs(60) };

/// An edge that is one of several, or alone.
fn start(database: &Database, name: &str, is_pod: bool) -> Server {
    Server::on(database, |config| {
        config.pod = is_pod.then(|| name.into());
        config.server_reference = Some("other.example:8883".into());
        config.threads = 2;
    })
}

/// Sends all clients away, then ends the process.
fn leave(server: Server) {
    assert!(server.edge.drain(&FAST).wait(PATIENCE));
    server.edge.shutdown(PATIENCE);
}

#[test]
fn a_session_goes_on_elsewhere_with_what_was_in_flight_and_what_waits() {
    for (version, is_pod) in VERSIONS.into_iter().flat_map(|version| [(version, false), (version, true)]) {
        let database = Database::memory();
        let first = start(&database, "first", is_pod);
        let mut ann = Client::open(&first, lasting(version, "ann"));
        ann.subscribe("t", QoS::AtLeastOnce);
        subscribe_and_leave(&first, version, "away", &[("t", QoS::AtLeastOnce)]);
        say(&first, QoS::AtLeastOnce, "t", &["one", "two"]);
        let (one, two) = (take(&mut ann), take(&mut ann));
        acknowledge(&mut ann, &one);
        ann.ping();
        if is_pod {
            // The other one is there before this one goes.
            let second = start(&database, "second", true);
            leave(first);
            expect_all(&second, version, &two);
        } else {
            leave(first);
            expect_all(&start(&database, "second", false), version, &two);
        }
    }
}

/// The session gets the unacknowledged message, then the new one; the session that was offline gets all.
fn expect_all(server: &Server, version: Version, unacknowledged: &millrace_mqtt::Publish<'_>) {
    say(server, QoS::AtLeastOnce, "t", &["three"]);
    let mut ann = come_back(server, version, "ann");
    let again = take(&mut ann);
    let id = unacknowledged.packet_id.unwrap().get();
    assert_eq!(marks(std::slice::from_ref(&again)), [(id, true, "two".to_owned())], "{version:?}");
    acknowledge(&mut ann, &again);
    assert_eq!(texts(&rest(server, &mut ann, "t")), ["three"]);
    let mut away = come_back(server, version, "away");
    let got = texts(&crate::steps::take_until(&mut away, "the end"));
    assert_eq!(got, ["one", "two", "three"]);
}

#[test]
fn wills_fire_as_for_any_lost_connection_and_a_delayed_one_not_for_who_comes_back() {
    //= [MQTT-3.1.2-8] v5 v3.1.1
    let with_will = |request: Connect<'static>, delay_s: Option<u32>| {
        let delay: Vec<_> = delay_s.into_iter().map(Property::WillDelayInterval).collect();
        let payload = request.client_id.as_bytes();
        let will = Will { qos: QoS::AtLeastOnce, properties: properties(&delay), ..will("w/a", payload) };
        Connect { will: Some(will), ..request }
    };
    let database = Database::memory();
    let (first, second) = (start(&database, "first", true), start(&database, "second", true));
    let mut watcher = Client::open(&second, lasting(V5, "watcher"));
    watcher.subscribe("w/+", QoS::AtLeastOnce);
    let requests = [
        with_will(lasting(V5, "back in time"), Some(60)),
        with_will(lasting(V5, "late"), Some(1)),
        with_will(lasting(V5, "without delay"), None),
        with_will(connect(V5, "without session"), Some(60)),
        with_will(connect(V311, "old"), None),
    ];
    let _clients: Vec<Client> = requests.into_iter().map(|request| Client::open(&first, request)).collect();
    leave(first);
    let _back = come_back(&second, V5, "back in time");
    // The delay of one passes on whichever pod is there then.
    let mut got: Vec<String> = (0..4)
        .flat_map(|_| {
            let message = take(&mut watcher);
            acknowledge(&mut watcher, &message);
            texts(&[message])
        })
        .collect();
    got.sort();
    assert_eq!(got, ["late", "old", "without delay", "without session"]);
    expect_no_rest(&second, &mut watcher, "w/end");
}

#[test]
fn clients_of_all_brokers_go_at_the_same_time() {
    const EACH: u64 = 50;
    let database = Database::memory();
    let server = brokers::start(&database, 2, &["acme", "umbrella"]);
    // One broker's clients come after the other's.
    let clients: Vec<Client> = ["acme", "umbrella"]
        .into_iter()
        .flat_map(|broker| {
            let server = &server;
            (0..EACH).map(move |number| {
                let id = format!("client-{number}");
                brokers::open(server, broker, connect(V5, &id))
            })
        })
        .collect();
    let gone = |broker: &str| {
        let label = format!("broker=\"{broker}\",reason=\"drained\"");
        metric(&server, "millrace_disconnects_total", &label)
    };
    let pace = DrainRate { per_second: 50, at_most: Duration::from_secs(60) };
    let draining = server.edge.drain(&pace);
    eventually(|| gone("acme") + gone("umbrella") >= 30, || "30 have not gone".into());
    assert!(gone("acme") >= 3 && gone("umbrella") >= 3, "{} {}", gone("acme"), gone("umbrella"));
    assert!(draining.wait(PATIENCE));
    assert_eq!((gone("acme"), gone("umbrella")), (EACH, EACH));
    drop(clients);
}
