use millrace_fabric::FabricSettings;
use millrace_mqtt::topic::Filter;
use millrace_mqtt::{Properties, QoS};
use millrace_router::{Subscription, Target};

use super::*;
use crate::broker::Brokers;
use crate::clock::Clock;
use crate::home::Loads;
use crate::limits::EdgeLimits;
use crate::mailbox::Mailbox;

/// Its NATS server does not exist.
fn region(brokers: Arc<Brokers>, mailboxes: Arc<[Mailbox]>) -> Arc<PodNetwork> {
    let settings =
        FabricSettings { pod_name: "here".into(), ..FabricSettings::new("nats://127.0.0.1:1", "test") };
    PodNetwork::start(settings, Clock::start(), brokers, mailboxes, &EdgeLimits::default(), None).unwrap()
}

#[test]
fn sessions_read_the_messages_of_a_pod_that_is_not_there() {
    let brokers = Arc::new(Brokers::new(u64::MAX, u64::MAX, Loads::new(1, 0)));
    let broker = Arc::new(Broker::new(5, "acme", 1));
    brokers.insert(&broker);
    let filter = Filter::parse("t").unwrap();
    let target = Target { core: 0, slot: 1, generation: 1 };
    let subscription = Subscription {
        target,
        qos: QoS::AtLeastOnce,
        no_local: false,
        retain_as_published: false,
        persistent: true,
        identifier: 0,
    };
    broker.router.subscribe(filter, subscription);
    let poll = mio::Poll::new().unwrap();
    let mailbox = Mailbox::new(mio::Waker::new(poll.registry(), mio::Token(0)).unwrap());
    let region = region(brokers, [mailbox].into());
    let (sink, pod) = (FabricSink(Arc::downgrade(&region)), PodId(7));
    let message = Message::new("t".into(), QoS::AtLeastOnce, false, Properties::EMPTY, b"x", 0);
    let entry = record::encode_entry(&message, 0, &region.clock);
    let comes_as_copy = || {
        let (mut cores, mut matching) = (CoreMail::new(&region), region.matching.lock().unwrap());
        region.is_committed(&mut cores, &mut matching, &broker, ([1; 12], (pod, 9)), (&entry, None));
        cores.deliver();
        let mut mail = Vec::new();
        region.mailboxes[0].take(&mut mail);
        match mail.last() {
            Some(Mail::Committed(_)) => true,
            Some(Mail::Grown(_)) => false,
            _ => panic!("the session does not learn of the message"),
        }
    };
    assert!(!comes_as_copy());
    sink.pod_came(pod, "there", true);
    assert!(comes_as_copy());
    sink.pod_gone(pod);
    assert!(!comes_as_copy());
    sink.pod_came(pod, "there", false);
    assert!(comes_as_copy());
}

#[test]
fn late_notices_of_a_lost_pod_bring_none_of_its_members_back() {
    let brokers = Arc::new(Brokers::new(u64::MAX, u64::MAX, Loads::new(1, 0)));
    let broker = Arc::new(Broker::new(5, "acme", 1));
    brokers.insert(&broker);
    let region = region(brokers, [].into());
    let (sink, pod) = (FabricSink(Arc::downgrade(&region)), PodId(7));
    let said = || {
        let members = PodNotice::Members { broker: 5, count: 2, name: "g", filter: "a" };
        region.receive_notice(pod, members);
        broker.router.subscriptions()
    };
    sink.pod_came(pod, "there", true);
    region.receive_notice(pod, PodNotice::AskMembers { broker: 5 });
    assert_eq!((broker.elsewhere.peers.all(), said()), (vec![pod], 2));
    sink.pod_gone(pod);
    assert_eq!((broker.router.subscriptions(), said()), (0, 0));
    sink.pod_came(pod, "there", false);
    assert_eq!(said(), 2);
}
