//! Builds histories by hand, event by event, so that tests of the checker can plant a violation.

use std::collections::HashMap;
use std::sync::Arc;

use super::{CheckRule, check};
use crate::history::{
    ClientId, ClientInfo, ConnectionId, End, Event, History, MessageId, MessageKind, PublishAnswer, Stamped,
};

/// A history in the making. Time passes only on request.
#[derive(Default)]
pub(crate) struct Story {
    pub(crate) history: History,
    now_ms: u64,
    sequences: HashMap<(ClientId, String), u32>,
    last_packet_id: u16,
}

impl Story {
    pub(crate) fn client(&mut self, name: &str, persistent: bool) -> ClientId {
        self.history.client(ClientInfo { name: name.into(), v5: true, persistent })
    }

    pub(crate) fn add(&mut self, event: Event) {
        self.history.record(self.now_ms, event);
    }

    pub(crate) fn wait(&mut self, ms: u64) {
        self.now_ms += ms;
    }

    pub(crate) fn ask(&mut self, client: ClientId, will: Option<MessageId>) -> ConnectionId {
        let connection = self.history.connection(client);
        let clean = !self.history.who(client).persistent;
        self.add(Event::ConnectSent { client, connection, pod: 0, clean, will });
        connection
    }

    pub(crate) fn connect(&mut self, client: ClientId, session_present: bool) -> ConnectionId {
        let connection = self.ask(client, None);
        self.add(Event::Connected { connection, session_present });
        connection
    }

    pub(crate) fn will(&mut self, client: ClientId, qos: u8, delay_ms: u64) -> MessageId {
        let topic = Arc::from("will/x");
        self.history.message(client, &topic, qos, 0, MessageKind::Will { delay_ms }).id
    }

    pub(crate) fn live(&mut self, client: ClientId, will: MessageId, session_present: bool) -> ConnectionId {
        let connection = self.ask(client, Some(will));
        self.add(Event::Connected { connection, session_present });
        connection
    }

    pub(crate) fn end(&mut self, connection: ConnectionId, end: End) {
        self.add(Event::Ended { connection, end });
        if matches!(end, End::Disconnect | End::TakenOver) {
            self.add(Event::HungUp { connection });
        }
    }

    pub(crate) fn kill(&mut self, connections: &[ConnectionId]) {
        self.add(Event::Kill { pod: 0 });
        for connection in connections {
            self.end(*connection, End::ByServer(None));
        }
        self.add(Event::Up);
    }

    pub(crate) fn subscribe(&mut self, connection: ConnectionId, filter: &str, qos: u8) {
        let filter = filter.to_owned();
        self.add(Event::SubscribeSent { connection, filter: filter.clone(), qos });
        self.add(Event::Subscribed { connection, filter });
    }

    pub(crate) fn unsubscribe(&mut self, connection: ConnectionId, filter: &str) {
        let filter = filter.to_owned();
        self.add(Event::UnsubscribeSent { connection, filter: filter.clone() });
        self.add(Event::Unsubscribed { connection, filter });
    }

    /// Publishes without an answer of the server.
    pub(crate) fn send(
        &mut self,
        connection: ConnectionId,
        topic: &str,
        qos: u8,
        kind: MessageKind,
    ) -> MessageId {
        let client = self.history.owner(connection);
        let sequence = self.sequences.entry((client, topic.into())).or_default();
        let message = self.history.message(client, &Arc::from(topic), qos, *sequence, kind).id;
        *sequence += 1;
        self.add(Event::PublishSent { connection, message, packet_id: 1, dup: false });
        message
    }

    pub(crate) fn publish(&mut self, connection: ConnectionId, topic: &str, qos: u8) -> MessageId {
        let kind = if topic.starts_with("ret/") { MessageKind::Retained } else { MessageKind::Plain };
        let message = self.send(connection, topic, qos, kind);
        let answers: &[PublishAnswer] = if qos == 1 {
            &[PublishAnswer::PubAck]
        } else {
            &[PublishAnswer::PubRec, PublishAnswer::PubComp]
        };
        for answer in answers {
            self.add(Event::Answered { connection, message, answer: *answer });
        }
        message
    }

    pub(crate) fn receive(&mut self, connection: ConnectionId, message: MessageId, qos: u8) -> u16 {
        self.last_packet_id += 1;
        self.receive_as(connection, message, qos, self.last_packet_id);
        self.last_packet_id
    }

    pub(crate) fn receive_as(
        &mut self,
        connection: ConnectionId,
        message: MessageId,
        qos: u8,
        packet_id: u16,
    ) {
        let message = Ok(message);
        self.add(Event::Received { connection, message, qos, dup: false, retained: false, packet_id });
    }

    pub(crate) fn release(&mut self, connection: ConnectionId, packet_id: u16) {
        self.add(Event::Released { connection, packet_id });
    }

    /// Expects that exactly these rules are broken, once each.
    pub(crate) fn expect(&self, rules: &[CheckRule]) {
        expect(&self.history, rules);
    }
}

pub(crate) fn expect(history: &History, rules: &[CheckRule]) {
    let verdict = check(history);
    let found: Vec<CheckRule> = verdict.violations.iter().map(|violation| violation.rule).collect();
    let told: Vec<String> =
        verdict.violations.iter().map(|violation| violation.explain(history, &[])).collect();
    assert_eq!(found, rules, "{}", told.join("\n"));
}

/// A history without violations, for tests to damage.
pub(crate) struct Good {
    pub(crate) story: Story,
    pub(crate) subscriber: ConnectionId,
    pub(crate) publisher: ConnectionId,
    pub(crate) probe: ConnectionId,
    /// QoS 1 to a/x, the second received again after the kill.
    pub(crate) once: [MessageId; 3],
    /// QoS 2 to a/y: the first two before the kill, which came before the second was released.
    pub(crate) exactly: [MessageId; 3],
    pub(crate) retained: [MessageId; 2],
    /// QoS 1 to b/x, received before the UNSUBSCRIBE of b/#.
    pub(crate) fickle: [MessageId; 2],
}

pub(crate) fn good() -> Good {
    let mut story = Story::default();
    story.add(Event::Up);
    let (ann, sue, pete) =
        (story.client("publisher", true), story.client("subscriber", true), story.client("probe", false));
    let subscriber = story.connect(sue, false);
    story.subscribe(subscriber, "a/+", 2);
    story.subscribe(subscriber, "b/#", 1);
    let publisher = story.connect(ann, false);

    let once = [story.publish(publisher, "a/x", 1), story.publish(publisher, "a/x", 1)];
    let exactly = [story.publish(publisher, "a/y", 2), story.publish(publisher, "a/y", 2)];
    story.receive(subscriber, once[0], 1);
    let packet_id = story.receive(subscriber, exactly[0], 2);
    let unacknowledged = story.receive(subscriber, once[1], 1);
    story.release(subscriber, packet_id);
    let unreleased = story.receive(subscriber, exactly[1], 2);

    let fickle = [story.publish(publisher, "b/x", 1), story.publish(publisher, "b/x", 1)];
    story.receive(subscriber, fickle[0], 1);
    story.receive(subscriber, fickle[1], 1);
    story.unsubscribe(subscriber, "b/#");
    story.publish(publisher, "b/x", 1);

    let retained = [story.publish(publisher, "ret/x", 1), story.publish(publisher, "ret/x", 2)];
    story.kill(&[subscriber, publisher]);

    let probe = story.connect(pete, false);
    story.subscribe(probe, "ret/#", 2);
    let message = Ok(retained[1]);
    story.add(Event::Received {
        connection: probe,
        message,
        qos: 2,
        dup: false,
        retained: true,
        packet_id: 1,
    });
    story.add(Event::Probed { connection: probe });
    story.end(probe, End::Disconnect);

    let subscriber = story.connect(sue, true);
    story.receive_as(subscriber, once[1], 1, unacknowledged);
    story.receive_as(subscriber, exactly[1], 2, unreleased);
    story.release(subscriber, unreleased);
    let publisher = story.connect(ann, true);
    let third = story.publish(publisher, "a/x", 1);
    story.receive(subscriber, third, 1);
    story.end(publisher, End::TakenOver);
    let publisher = story.connect(ann, true);
    let last = story.publish(publisher, "a/y", 2);
    story.receive(subscriber, last, 2);
    story.add(Event::Finale);
    let (once, exactly) = ([once[0], once[1], third], [exactly[0], exactly[1], last]);
    Good { story, subscriber, publisher, probe, once, exactly, retained, fickle }
}

impl Good {
    pub(crate) fn received(&self, id: MessageId) -> usize {
        self.find(|event| matches!(event, Event::Received { message, .. } if *message == Ok(id)))
    }

    pub(crate) fn find(&self, wanted: impl Fn(&Event) -> bool) -> usize {
        let events = &self.story.history.events;
        events.iter().position(|stamped| wanted(&stamped.event)).expect("the story has it")
    }

    pub(crate) fn events(&mut self) -> &mut Vec<Stamped> {
        &mut self.story.history.events
    }

    pub(crate) fn event(&mut self, at: usize) -> &mut Event {
        &mut self.story.history.events[at].event
    }

    pub(crate) fn expect(&self, rules: &[CheckRule]) {
        self.story.expect(rules);
    }
}
