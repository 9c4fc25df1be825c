//! Shared subscriptions with a stream and members on several pods: each message goes to one of them, and waits while none is there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use millrace_layers::streams::{self, ReadLimit};
use millrace_layers::{Store, pods};
use millrace_mqtt::Version::V5;
use millrace_mqtt::{Packet, Properties, QoS, SubscribeOptions, encode};
use millrace_storage::{Database, block_on};

use crate::away::{Far, Way, named};
use crate::common::{Client, Server, ack, connect, id, publish_qos};
use crate::pods::now_ms;
use crate::region::nets;
use crate::steps::{acknowledge, come_back, lasting, leave, say, subscribe_and_leave, take, texts};
use crate::tools::{Packets, TURN_WORK_MAX, eventually, metric};

const GROUP: &str = "$share/g/t/+";

#[test]
fn each_message_goes_to_one_member_on_one_pod() {
    const EACH: usize = 120;
    for net in nets() {
        let database = Database::memory();
        let pods = net.three(&database);
        let mut members: Vec<Client> = [0, 1, 1, 2]
            .into_iter()
            .enumerate()
            .map(|(number, pod)| {
                let mut member = Client::open(&pods[pod], lasting(V5, &format!("member {number}")));
                member.subscribe(GROUP, QoS::ExactlyOnce);
                member
            })
            .collect();
        let got = AtomicUsize::new(0);
        let all = 3 * EACH;
        let counts: Vec<BTreeMap<String, usize>> = std::thread::scope(|scope| {
            for (number, pod) in pods.iter().enumerate() {
                scope.spawn(move || {
                    let mut publisher = Client::connect(pod, V5, &format!("publisher {number}"));
                    for message in 0..EACH {
                        let qos = [QoS::AtLeastOnce, QoS::ExactlyOnce][message % 2];
                        let text = format!("{number} {message}");
                        publisher.publish(publish_qos(qos, 1, &format!("t/{number}"), text.as_bytes()));
                    }
                });
            }
            let got = &got;
            let takers: Vec<_> =
                members.iter_mut().map(|member| scope.spawn(move || take_all(member, got, all))).collect();
            takers.into_iter().map(|taker| taker.join().unwrap()).collect()
        });
        let mut sum = BTreeMap::new();
        for (text, count) in counts.iter().flatten() {
            *sum.entry(text.clone()).or_insert(0) += count;
        }
        assert!(sum.values().all(|count| *count == 1), "{:?}", sum.iter().find(|(_, count)| **count > 1));
        assert_eq!(sum.len(), all);
    }
}

/// Takes what comes until all members together have so many; gives how often each text came.
fn take_all(member: &mut Client, got: &AtomicUsize, all: usize) -> BTreeMap<String, usize> {
    let mut texts = BTreeMap::new();
    let mut rounds = 0;
    member.stream().set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    while got.load(Ordering::Relaxed) < all && rounds < 1_000 {
        rounds += 1;
        let mut answers = Vec::new();
        let mut packets = Packets::of(member);
        while let Some(packet) = packets.next() {
            match packet {
                Packet::Publish(message) => {
                    *texts.entry(String::from_utf8(message.payload.to_vec()).unwrap()).or_insert(0) += 1;
                    got.fetch_add(1, Ordering::Relaxed);
                    let id = message.packet_id.unwrap();
                    answers.push(match message.qos {
                        QoS::ExactlyOnce => Packet::PubRec(ack(id)),
                        _ => Packet::PubAck(ack(id)),
                    });
                }
                Packet::PubRel(release) => answers.push(Packet::PubComp(ack(release.packet_id))),
                _ => {}
            }
        }
        drop(packets);
        answers.iter().for_each(|answer| member.send(answer));
    }
    texts
}

#[test]
fn messages_wait_for_a_member_on_any_pod_also_one_that_does_not_last() {
    for net in nets() {
        let database = Database::memory();
        let pods = net.three(&database);
        subscribe_and_leave(&pods[0], V5, "ann", &[(GROUP, QoS::AtLeastOnce)]);
        let mut expected = Vec::new();
        for (number, pod) in pods.iter().enumerate() {
            let text = format!("from {number}");
            say(pod, QoS::AtLeastOnce, "t/x", &[&text]);
            expected.push(text);
        }
        // On a pod that does not know the group.
        let mut guest = Client::open(&pods[2], connect(V5, "guest"));
        let (mut got, mut is_granted, mut bytes) = (Vec::new(), false, Vec::new());
        let options = SubscribeOptions { qos: QoS::AtLeastOnce, ..SubscribeOptions::default() };
        let filters = [(GROUP, options)].into_iter();
        encode::subscribe(id(1), Properties::EMPTY, filters, V5, &mut bytes);
        guest.send_bytes(&bytes);
        while !is_granted || got.len() < 3 {
            match guest.recv() {
                // Waiting messages may come before the SUBACK (section 3.8.4).
                Packet::Publish(message) => {
                    got.push(message.payload.to_vec());
                    // One is left unacknowledged: it goes to another member.
                    if got.len() < 3 {
                        acknowledge(&mut guest, &message);
                    }
                }
                Packet::SubAck(suback) => is_granted = suback.reasons == [1],
                other => panic!("{other:?}"),
            }
        }
        guest.ping();
        assert_eq!(got, expected.iter().map(|text| text.as_bytes().to_vec()).collect::<Vec<_>>());
        leave(&mut guest, true);
        let mut ann = come_back(&pods[1], V5, "ann");
        say(&pods[0], QoS::AtLeastOnce, "t/x", &["the end"]);
        // A message that a member gave back may become free after the new one.
        let mut rest = texts(&[take(&mut ann), take(&mut ann)]);
        rest.sort();
        assert_eq!(rest, ["from 2", "the end"]);
    }
}

#[test]
fn what_the_members_of_a_dead_pod_had_goes_to_others() {
    for net in nets() {
        let database = Database::memory();
        let store = Store::new(database.clone());
        let pod = net.pod(&database, "one", 1);
        let mut ann = Client::open(&pod, lasting(V5, "ann"));
        ann.subscribe(GROUP, QoS::AtLeastOnce);
        leave(&mut ann, true);
        say(&pod, QoS::AtLeastOnce, "t/x", &["first", "second"]);
        let broker = block_on(store.ensure_broker(b"default")).unwrap().id;
        let claimed = block_on(store.run(async |tx| {
            let stream = streams::list(&tx, broker, None, 1).await?[0].0;
            let limit = ReadLimit { entries: 10, bytes: 1 << 20 };
            let claimed = streams::claim(&tx, broker, stream, b"dead", limit).await?;
            pods::renew(&tx, b"dead", now_ms() - 1)?;
            Ok::<_, millrace_layers::LayerError>(claimed.entries.len())
        }));
        assert_eq!(claimed.unwrap(), 2);
        let all = || block_on(store.run(async |tx| pods::list(&tx).await)).unwrap();
        eventually(|| all().iter().all(|pod| pod.name != "dead"), || "nobody takes it for dead".into());
        let mut ann = come_back(&pod, V5, "ann");
        assert_eq!(
            [take(&mut ann), take(&mut ann)].map(|message| message.payload),
            [&b"first"[..], b"second"]
        );
    }
}

#[test]
fn a_group_that_one_pod_had_for_itself_goes_on_among_several() {
    let database = Database::memory();
    let alone = Server::on(&database, |_| {});
    let mut ann = Client::open(&alone, lasting(V5, "ann"));
    ann.subscribe(GROUP, QoS::AtLeastOnce);
    say(&alone, QoS::AtLeastOnce, "t/x", &["one", "two", "three"]);
    let messages = [take(&mut ann), take(&mut ann), take(&mut ann)];
    acknowledge(&mut ann, &messages[1]);
    ann.ping();
    leave(&mut ann, true);
    drop(alone);
    for net in nets() {
        let pods = net.three(&database);
        let mut ann = come_back(&pods[1], V5, "ann");
        let got = [take(&mut ann), take(&mut ann)].map(|message| message.payload);
        assert_eq!(got, [&b"one"[..], b"three"]);
        leave(&mut ann, false);
        drop(pods);
    }
}

#[test]
fn what_was_claimed_without_an_answer_comes_to_a_member_all_the_same() {
    const COUNT: usize = 200;
    let far = Far::new();
    let pod = named(&far, "one");
    let mut member = Client::open(&pod, lasting(V5, "member"));
    member.subscribe(GROUP, QoS::AtLeastOnce);
    far.set(Way::Loses);
    let mut publisher = Client::connect(&pod, V5, "publisher");
    for number in 0..COUNT {
        let text = number.to_string();
        assert!(!publisher.publish(publish_qos(QoS::AtLeastOnce, 1, "t/a", text.as_bytes())).is_error());
    }
    let mut got = BTreeSet::new();
    while got.len() < COUNT {
        let message = take(&mut member);
        acknowledge(&mut member, &message);
        got.insert(message.payload.to_vec());
    }
}

#[test]
fn a_subscribe_costs_what_it_has_and_not_what_its_session_has() {
    const FILTERS: usize = 15_000;
    let server = Server::on(&Database::memory(), |config| {
        config.pod = Some("pod".into());
        config.threads = 1;
    });
    let mut client = Client::connect(&server, V5, "ann");
    let names: Vec<String> = (0..FILTERS).map(|number| format!("$share/g/t/{number}")).collect();
    let options = SubscribeOptions::default();
    for some in names.chunks(500) {
        let filters: Vec<_> = some.iter().map(|name| (&**name, options)).collect();
        assert_eq!(client.subscribe_all(&filters, Properties::EMPTY).reasons, vec![0; some.len()]);
    }
    client.subscribe("t", QoS::AtMostOnce);
    let work = metric(&server, "millrace_edge_turn_work_max", "");
    assert!(work < TURN_WORK_MAX, "a turn did {work} units of work");
}
