//! No Local among several pods: a client's own messages are recognised on any of them.

use millrace_mqtt::Version::V5;
use millrace_mqtt::{Connect, Properties, Publish, QoS, SubscribeOptions, Will};
use millrace_storage::Database;

use crate::common::{Client, Server, connect, publish_qos, will};
use crate::region::nets;
use crate::steps::{acknowledge, come_back, lasting, leave, say, take};

fn no_local(client: &mut Client, filter: &str) {
    let options = SubscribeOptions { no_local: true, qos: QoS::AtLeastOnce, ..SubscribeOptions::default() };
    client.subscribe_all(&[(filter, options)], Properties::EMPTY);
}

#[test]
fn no_local_leaves_out_what_a_client_retained_on_any_pod() {
    //= [MQTT-3.8.3-3] v5
    for net in nets() {
        let pods = net.three(&Database::memory());
        let retain = |pod: &Server, request: Connect<'_>, topic: &str| {
            let message = publish_qos(QoS::AtLeastOnce, 1, topic, b"x");
            Client::open(pod, request).publish(Publish { retain: true, ..message });
        };
        for request in [|| connect(V5, "ann"), || lasting(V5, "ann")] {
            retain(&pods[0], request(), "t/own");
            retain(&pods[0], connect(V5, "bob"), "t/bobs");
            for pod in &pods {
                let mut ann = Client::open(pod, request());
                no_local(&mut ann, "t/+");
                let message = take(&mut ann);
                assert_eq!(message.topic, "t/bobs");
                acknowledge(&mut ann, &message);
                ann.expect_nothing();
                ann.unsubscribe(&["t/+"]);
                ann.disconnect();
            }
        }
    }
}

#[test]
fn no_local_keeps_a_clients_own_will_from_its_session_on_any_pod() {
    //= [MQTT-3.8.3-3] v5
    for net in nets() {
        let pods = net.three(&Database::memory());
        let mut watcher = Client::open(&pods[1], lasting(V5, "watcher"));
        watcher.subscribe("will/#", QoS::AtLeastOnce);
        for pod in &pods {
            let will = Will { qos: QoS::AtLeastOnce, ..will("will/ann", b"gone") };
            let mut ann = Client::open(&pods[0], Connect { will: Some(will), ..lasting(V5, "ann") });
            no_local(&mut ann, "will/#");
            leave(&mut ann, false);
            let expect = |client: &mut Client, payload: &[u8]| {
                let message = take(client);
                assert_eq!(message.payload, payload);
                acknowledge(client, &message);
            };
            expect(&mut watcher, b"gone");
            let mut ann = come_back(pod, V5, "ann");
            say(&pods[2], QoS::AtLeastOnce, "will/bob", &["bob's"]);
            expect(&mut ann, b"bob's");
            expect(&mut watcher, b"bob's");
            ann.disconnect();
        }
    }
}
