//! Messages that come between a SUBSCRIBE and its SUBACK.

use std::time::Duration;

use millrace_mqtt::Version::V5;
use millrace_mqtt::{Packet, Properties, Property, QoS, SubscribeOptions, Will, encode};

use crate::away::{Far, Mended, Way};
use crate::common::{Client, Server, id, properties, will};
use crate::steps::{acknowledge, lasting, lasting_with, rest, say, subscribe_and_leave, take, texts};
use crate::tools::{eventually, half_close, metric, now};

/// Several transactions write so many filters.
const FILTERS: usize = 990;
/// Two pages of messages.
const BACKLOG: usize = 600;
const PAGE: usize = 500;
const DELAY: Duration = Duration::from_secs(2);

/// Passes commits of the writer until `is_so`, one at a time: each holds all that the writer has found meanwhile.
fn pass_until(far: &Far, is_so: impl Fn() -> bool) {
    eventually(
        || {
            let is_so = is_so();
            if !is_so {
                far.pass();
            }
            is_so
        },
        || "the writer has nothing to commit".into(),
    );
}

#[test]
fn a_session_that_reads_its_backlog_does_not_pass_a_will_that_comes_due_while_its_subscribe_is_written() {
    let far = Far::new();
    let server = Server::on(&far.database(), |_| {});
    let _mended = Mended(far.clone());
    subscribe_and_leave(&server, V5, "ann", &[("old", QoS::AtLeastOnce)]);
    let backlog: Vec<String> = (0..BACKLOG).map(|number| number.to_string()).collect();
    say(&server, QoS::AtLeastOnce, "old", &backlog.iter().map(|text| &**text).collect::<Vec<_>>());
    let mut ann = Client::open(&server, lasting_with(V5, "ann", &[Property::ReceiveMaximum(10)]));
    let first = take(&mut ann);

    let delay = properties(&[Property::WillDelayInterval(u32::try_from(DELAY.as_secs()).unwrap())]);
    let will = Will { qos: QoS::AtLeastOnce, properties: delay, ..will("will/0", b"gone") };
    let leaver = millrace_mqtt::Connect { will: Some(will), ..lasting(V5, "leaver") };
    half_close(Client::open(&server, leaver).stream());
    // The end of the connection is stored before the jobs of a later client.
    say(&server, QoS::AtLeastOnce, "old", &["later"]);
    let left = now();

    far.set(Way::Holds);
    let filters: Vec<String> = (0..FILTERS).map(|number| format!("will/{number}")).collect();
    let options = SubscribeOptions { qos: QoS::AtLeastOnce, ..SubscribeOptions::default() };
    let mut bytes = Vec::new();
    encode::subscribe(
        id(7),
        Properties::EMPTY,
        filters.iter().map(|filter| (&**filter, options)),
        V5,
        &mut bytes,
    );
    ann.send_bytes(&bytes);
    eventually(|| far.is_waiting(), || "the SUBSCRIBE is not written".into());
    far.pass();
    assert!(left.elapsed() < DELAY, "the first filters are stored too late for this test");
    eventually(|| left.elapsed() > DELAY + Duration::from_secs(1), String::new);
    let published = || metric(&server, "millrace_wills_published_total", "");
    pass_until(&far, || published() > 0);

    // The client takes what comes now. A page that has everything up to here passes the will.
    let mut got = vec![first.clone()];
    acknowledge(&mut ann, &first);
    while got.len() < PAGE {
        let message = take(&mut ann);
        acknowledge(&mut ann, &message);
        got.push(message);
    }
    far.set(Way::Fine);
    loop {
        match ann.recv() {
            Packet::Publish(message) => {
                acknowledge(&mut ann, &message);
                got.push(message);
            }
            Packet::SubAck(suback) => {
                assert_eq!(suback.reasons.len(), FILTERS);
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    got.extend(rest(&server, &mut ann, "old"));
    let expected: Vec<String> = backlog.into_iter().chain(["later".into(), "gone".into()]).collect();
    assert_eq!(texts(&got), expected);
}
