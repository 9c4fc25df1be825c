//! Brokers that nobody uses are closed, and nobody notices.

use std::time::Duration;

use millrace_edge::fabric::FabricSettings;
use millrace_layers::metering::{self, WINDOW_MS, Window};
use millrace_layers::{Store, catalog};
use millrace_mqtt::Version::V5;
use millrace_mqtt::{Connect, Packet, Publish, QoS};
use millrace_storage::{Database, block_on};

use crate::brokers::{open, start_with};
use crate::common::{Client, Server, connect, publish, publish_qos};
use crate::pods::now_ms;
use crate::region::{Net, know_each_other, nats};
use crate::steps::{acknowledge, lasting, take};
use crate::tools::{eventually, metric};

/// A server that closes a broker after a second, and brokers that its settings do not name.
fn start(database: &Database, threads: usize, brokers: &[&str]) -> Server {
    let layers = Store::new(database.clone());
    brokers.iter().for_each(|name| drop(block_on(layers.ensure_broker(name.as_bytes())).unwrap()));
    start_with(database, threads, &["default"], |limits| {
        limits.broker_idle_s = 1;
        limits.sys_interval_s = 1;
    })
}

fn open_brokers(server: &Server) -> u64 {
    metric(server, "millrace_brokers_open", "")
}

fn wait_until_closed(server: &Server) {
    eventually(|| open_brokers(server) == 1, || format!("{} brokers are open", open_brokers(server)));
}

fn used(database: &Database, broker: &str) -> Window {
    let store = Store::new(database.clone());
    let found = block_on(
        store.run(async |tx| catalog::get(&tx, broker.as_bytes(), millrace_storage::Read::Snapshot).await),
    );
    let (id, now_ms) = (found.unwrap().unwrap().id, now_ms());
    let windows =
        block_on(store.run(async |tx| metering::used(&tx, id, now_ms - WINDOW_MS, now_ms + 1, now_ms).await));
    let mut sum = Window::default();
    for window in windows.unwrap() {
        sum.messages_in += window.messages_in;
        sum.messages_delivered += window.messages_delivered;
        sum.connected_ms += window.connected_ms;
    }
    sum
}

#[test]
fn a_closed_broker_opens_again_with_its_sessions_retained_messages_and_usage() {
    let database = Database::memory();
    let server = start(&database, 2, &["acme", "quiet"]);
    assert_eq!(open_brokers(&server), 1);
    for round in 1..=3_u16 {
        let mut ann = open(&server, "acme", lasting(V5, "ann"));
        let is_present = ann.connack.as_ref().unwrap().session_present;
        assert_eq!(is_present, round > 1, "round {round}");
        if round == 1 {
            ann.subscribe("t/#", QoS::AtLeastOnce);
        } else {
            let message = take(&mut ann);
            assert_eq!(message.payload, (round - 1).to_string().as_bytes(), "round {round}");
            acknowledge(&mut ann, &message);
        }
        ann.disconnect();
        let mut bob = open(&server, "acme", connect(V5, "bob"));
        assert_eq!(open_brokers(&server), 2);
        let text = round.to_string();
        let message = Publish { retain: true, ..publish_qos(QoS::AtLeastOnce, 1, "t/a", text.as_bytes()) };
        assert!(!bob.publish(message).is_error());
        bob.subscribe("t/+", QoS::AtMostOnce);
        assert_eq!(take(&mut bob).payload, text.as_bytes());
        bob.disconnect();
        wait_until_closed(&server);
    }
    // Three messages came. Bob got each as a retained one, and ann two of them.
    let is_counted = || {
        let used = used(&database, "acme");
        (used.messages_in, used.messages_delivered) == (3, 5)
    };
    eventually(is_counted, || format!("{:?}", used(&database, "acme")));
}

#[test]
fn a_broker_with_a_client_stays_open() {
    let server = start(&Database::memory(), 1, &["acme", "quiet"]);
    let mut ann = open(&server, "acme", connect(V5, "ann"));
    ann.subscribe("t", QoS::AtMostOnce);
    open(&server, "quiet", connect(V5, "bob")).disconnect();
    // Longer than the time after which an idle one is closed.
    eventually(|| open_brokers(&server) == 2, || format!("{} brokers are open", open_brokers(&server)));
    let mut bob = open(&server, "acme", connect(V5, "bob"));
    assert!(!bob.publish(publish_qos(QoS::AtLeastOnce, 1, "t", b"x")).is_error());
    assert_eq!(take(&mut ann).payload, b"x");
}

/// Clients come at about the moment at which the broker is closed.
#[test]
fn clients_that_come_while_brokers_are_closed_lose_nothing() {
    const ROUNDS: u16 = 6;
    const BROKERS: [&str; 8] = ["a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8"];
    let database = Database::memory();
    let server = start(&database, 2, &BROKERS);
    let mut closed = 0;
    for broker in BROKERS {
        let mut ann = open(&server, broker, lasting(V5, "ann"));
        ann.subscribe("t", QoS::AtLeastOnce);
        ann.disconnect();
    }
    std::thread::scope(|scope| {
        for (number, broker) in (0_u64..).zip(BROKERS) {
            let server = &server;
            scope.spawn(move || {
                for round in 1..=ROUNDS {
                    // Looks are 100 ms apart.
                    let pause_ms = 950 + (number * 37 + u64::from(round) * 53) % 250;
                    #[allow(clippy::disallowed_methods, reason = "the moment is what is tested")]
                    std::thread::sleep(Duration::from_millis(pause_ms));
                    let mut bob = open(server, broker, connect(V5, "bob"));
                    let text = round.to_string();
                    let message = publish_qos(QoS::AtLeastOnce, 1, "t", text.as_bytes());
                    assert!(!bob.publish(message).is_error(), "{broker}");
                    bob.disconnect();
                }
            });
        }
        for _ in 0..50 {
            closed += u32::from(open_brokers(&server) < 9);
            #[allow(clippy::disallowed_methods, reason = "samples of the number of open brokers")]
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    assert!(closed > 0, "no broker was closed meanwhile");
    for broker in BROKERS {
        let mut ann = open(&server, broker, lasting(V5, "ann"));
        for round in 1..=ROUNDS {
            let message = take(&mut ann);
            assert_eq!(message.payload, round.to_string().as_bytes(), "{broker}");
            acknowledge(&mut ann, &message);
        }
        ann.disconnect();
    }
    let all = || {
        BROKERS.iter().all(|broker| {
            let used = used(&database, broker);
            (used.messages_in, used.messages_delivered) == (u64::from(ROUNDS), u64::from(ROUNDS))
        })
    };
    eventually(all, || format!("{:?}", BROKERS.map(|broker| used(&database, broker))));
}

/// A pod that closes a broker after a second.
fn pod(database: &Database, name: &str, nats: &str) -> Server {
    Server::on(database, |config| {
        config.pod = Some(name.into());
        config.threads = 2;
        config.fabric = Some(FabricSettings { pod_name: name.into(), ..FabricSettings::new(nats, "test") });
        config.limits.broker_idle_s = 1;
    })
}

/// A client of the broker `acme`.
fn of_acme(pod: &Server, client_id: &str) -> Client {
    Client::open(pod, Connect { user_name: Some("acme/"), ..connect(V5, client_id) })
}

fn two_pods() -> Option<([Server; 2], Database, Net)> {
    let net = nats()?;
    let Net::Nats(server) = &net else { return None };
    let database = Database::memory();
    block_on(Store::new(database.clone()).ensure_broker(b"acme")).unwrap();
    let pods = ["one", "two"].map(|name| pod(&database, name, &server.url()));
    know_each_other(&pods);
    Some((pods, database, net))
}

#[test]
fn a_pod_that_has_closed_a_broker_is_no_peer_and_hears_all_when_it_has_opened_it_again() {
    let Some(([one, two], _database, _net)) = two_pods() else { return };
    let peers = |pod: &Server| metric(pod, "millrace_region_peers", "");
    let mut bob = of_acme(&one, "bob");
    let own = |round: u16| format!("own {round}");
    for round in 1..=3_u16 {
        let mut ann = of_acme(&two, "ann");
        ann.subscribe("t/+", QoS::AtMostOnce);
        ann.subscribe("$share/g/s", QoS::AtMostOnce);
        // Filters with numbers beyond those from before the closing.
        (0..round).for_each(|number| ann.subscribe(&own(number), QoS::AtMostOnce));
        for number in 0..20 {
            let text = format!("{round}.{number}");
            bob.send(&Packet::Publish(publish("t/a", text.as_bytes())));
            assert_eq!(take(&mut ann).payload, text.as_bytes());
        }
        bob.send(&Packet::Publish(publish("s", b"shared")));
        assert_eq!(take(&mut ann).payload, b"shared");
        bob.send(&Packet::Publish(publish(&own(round - 1), b"own")));
        assert_eq!(take(&mut ann).payload, b"own");
        assert_eq!(peers(&one), 2, "the broker default, and acme");
        ann.disconnect();
        wait_until_closed(&two);
        eventually(|| peers(&one) == 1, || format!("round {round}: {} peers", peers(&one)));
        assert_eq!(metric(&one, "millrace_region_peers_in_doubt", ""), 0);
        // Nothing waits for the pod that has closed the broker, and no message is lost here.
        bob.subscribe("s", QoS::AtMostOnce);
        bob.send(&Packet::Publish(publish("s", b"to itself")));
        assert_eq!(take(&mut bob).payload, b"to itself");
        bob.unsubscribe(&["s"]);
    }
}

/// A message that another pod publishes after a SUBACK arrives, also if the broker is closed and opened at that moment.
#[test]
fn subscribers_that_come_while_a_pod_closes_the_broker_hear_the_other_pod() {
    let Some(([one, two], _database, _net)) = two_pods() else { return };
    let mut bob = of_acme(&one, "bob");
    for round in 0..12_u64 {
        #[allow(clippy::disallowed_methods, reason = "the moment is what is tested")]
        std::thread::sleep(Duration::from_millis(900 + round * 31 % 300));
        let mut ann = of_acme(&two, "ann");
        ann.subscribe("t", QoS::AtMostOnce);
        let text = round.to_string();
        bob.send(&Packet::Publish(publish("t", text.as_bytes())));
        assert_eq!(take(&mut ann).payload, text.as_bytes());
        ann.disconnect();
    }
}
