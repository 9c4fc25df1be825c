//! Faults planted into a good history: each is found, and nothing else is.

use super::story::{Good, Story, good};
use super::{CheckRule, check};
use crate::history::{ConnectionId, End, Event, MessageId, MessageKind, PublishAnswer};

#[test]
fn a_good_history_is_good_and_everything_in_it_was_looked_at() {
    let good = good();
    good.expect(&[]);
    let counts = check(&good.story.history).counts;
    let seen = (counts.required, counts.ordered, counts.exactly_once, counts.resumed, counts.retained);
    assert_eq!(seen, (7, 8, 3, 3, 1));
    assert_eq!((counts.repeats, counts.resumed_after_kill, counts.takeovers, counts.kills), (2, 2, 1, 1));
    assert_eq!((counts.acknowledged_qos1, counts.acknowledged_qos2), (7, 4));
}

#[test]
fn an_acknowledged_message_that_never_came_is_missing() {
    for at in [0, 2] {
        let mut good = good();
        let received = good.received(good.once[at]);
        good.events().remove(received);
        good.expect(&[CheckRule::Missing]);
    }
}

#[test]
fn a_message_that_was_not_acknowledged_may_be_lost() {
    let mut good = good();
    let lost = good.once[2];
    let received = good.received(lost);
    good.events().remove(received);
    let answered = good.find(|event| matches!(event, Event::Answered { message, .. } if *message == lost));
    good.events().remove(answered);
    // It is sent again to the end, so the server is to be blamed for the answer.
    good.expect(&[CheckRule::Unanswered]);
}

#[test]
fn before_an_unsubscribe_the_rest_may_be_dropped_but_nothing_skipped() {
    for (at, rules) in [(0, &[CheckRule::Missing][..]), (1, &[])] {
        let mut good = good();
        let received = good.received(good.fickle[at]);
        good.events().remove(received);
        good.expect(rules);
    }
}

#[test]
fn a_qos_2_message_that_comes_with_another_packet_id_comes_twice() {
    let mut good = good();
    let (connection, twice) = (good.subscriber, good.exactly[0]);
    good.story.receive(connection, twice, 2);
    good.expect(&[CheckRule::Twice]);
}

#[test]
fn a_qos_2_message_that_comes_again_after_its_release_comes_twice() {
    let mut good = good();
    let again = good.exactly[1];
    let first = good.received(again);
    let Event::Received { connection, packet_id, .. } = *good.event(first) else { unreachable!() };
    good.events().insert(first + 1, at_once(Event::Released { connection, packet_id }));
    good.expect(&[CheckRule::Twice]);
}

#[test]
fn a_publisher_without_its_session_may_publish_anew() {
    let mut good = good();
    let (connection, message) = (good.publisher, good.exactly[2]);
    good.story.add(Event::PublishSent { connection, message, packet_id: 1, dup: false });
    good.story.receive(good.subscriber, message, 2);
    good.expect(&[]);
}

#[test]
fn a_qos_1_message_comes_on_one_connection_as_often_as_it_was_sent() {
    let mut good = good();
    let (connection, message) = (good.subscriber, good.once[2]);
    good.story.receive(connection, message, 1);
    good.expect(&[CheckRule::Repeated]);
    good.story.add(Event::PublishSent { connection: good.publisher, message, packet_id: 1, dup: true });
    good.expect(&[]);
}

#[test]
fn a_packet_id_that_is_not_released_is_not_for_another_message() {
    let mut good = good();
    let (held, message) = (good.received(good.exactly[1]), good.exactly[2]);
    let Event::Received { packet_id: held, .. } = *good.event(held) else { unreachable!() };
    let release = good.find(|event| matches!(event, Event::Released { packet_id, .. } if *packet_id == held));
    good.events().remove(release);
    let other = good.received(message);
    if let Event::Received { packet_id, .. } = good.event(other) {
        *packet_id = held;
    }
    good.expect(&[CheckRule::IdReused]);
}

#[test]
fn messages_of_one_topic_in_another_order_are_found() {
    let mut good = good();
    let (one, other) = (good.received(good.exactly[0]), good.received(good.exactly[1]));
    let (a, b) = (good.exactly[0], good.exactly[1]);
    for (at, id) in [(one, b), (other, a)] {
        if let Event::Received { message, .. } = good.event(at) {
            *message = Ok(id);
        }
    }
    // The packet id that comes again after the kill is then that of the other message, which was
    // complete.
    let again = good
        .events()
        .iter()
        .rposition(|stamped| matches!(stamped.event, Event::Received { message: Ok(id), .. } if id == b));
    good.events().remove(again.expect("it came again"));
    good.expect(&[CheckRule::Order]);
}

#[test]
fn repeated_messages_come_in_order_even_after_a_refusal() {
    for refuses in [false, true] {
        let mut story = Story::default();
        let (reader, publisher) = (story.client("reader", true), story.client("publisher", false));
        let (reading, publishing) = (story.connect(reader, false), story.connect(publisher, false));
        story.subscribe(reading, "t", 1);
        let first = story.send(publishing, "t", 1, MessageKind::Plain);
        if refuses {
            let message = story.send(publishing, "t", 1, MessageKind::Plain);
            story.add(Event::Answered {
                connection: publishing,
                message,
                answer: PublishAnswer::Refused(0x83),
            });
        }
        let second = story.publish(publishing, "t", 1);
        story.receive(reading, second, 1);
        story.end(publishing, End::Cut);
        let publishing = story.connect(publisher, false);
        story.add(Event::PublishSent { connection: publishing, message: first, packet_id: 1, dup: false });
        let answer = PublishAnswer::PubAck;
        story.add(Event::Answered { connection: publishing, message: first, answer });
        story.receive(reading, first, 1);
        story.expect(if refuses { &[CheckRule::Order, CheckRule::Refused] } else { &[CheckRule::Order] });
    }
}

#[test]
fn a_message_repeated_after_a_subscription_may_come_at_any_time() {
    for subscribed_before in [false, true] {
        let mut story = Story::default();
        let (reader, publisher) = (story.client("reader", true), story.client("publisher", false));
        let (reading, publishing) = (story.connect(reader, false), story.connect(publisher, false));
        if subscribed_before {
            story.subscribe(reading, "t", 1);
        }
        let first = story.send(publishing, "t", 1, MessageKind::Plain);
        if !subscribed_before {
            story.subscribe(reading, "t", 1);
        }
        let second = story.send(publishing, "t", 1, MessageKind::Plain);
        story.receive(reading, second, 1);
        story.end(publishing, End::Cut);
        let publishing = story.connect(publisher, false);
        for message in [first, second] {
            story.add(Event::PublishSent { connection: publishing, message, packet_id: 1, dup: false });
            story.add(Event::Answered { connection: publishing, message, answer: PublishAnswer::PubAck });
            story.receive(reading, message, 1);
        }
        story.expect(if subscribed_before { &[CheckRule::Order] } else { &[] });
    }
}

#[test]
fn an_unpublished_or_unsubscribed_message_is_a_stray() {
    let unknown: fn(&mut Good) = |good| {
        let (connection, message) = (good.subscriber, Err("\"x\" on a/x".into()));
        let event =
            Event::Received { connection, message, qos: 1, dup: false, retained: false, packet_id: 9 };
        good.story.add(event);
    };
    let never_subscribed: fn(&mut Good) = |good| {
        let retained = good.retained[0];
        good.story.receive(good.subscriber, retained, 1);
    };
    let after_unsuback: fn(&mut Good) = |good| {
        let message = good.story.publish(good.publisher, "b/x", 1);
        good.story.receive(good.subscriber, message, 1);
    };
    let from_before_the_subscription: fn(&mut Good) = |good| {
        let message = good.story.publish(good.publisher, "c", 1);
        good.story.subscribe(good.subscriber, "c", 1);
        good.story.receive(good.subscriber, message, 1);
    };
    for plant in [unknown, never_subscribed, after_unsuback, from_before_the_subscription] {
        let mut good = good();
        plant(&mut good);
        good.expect(&[CheckRule::Stray]);
    }
}

#[test]
fn a_qos_that_is_not_the_lesser_of_both_is_wrong() {
    let too_low: fn(&Good) -> (MessageId, u8) = |good| (good.exactly[2], 1);
    let above_the_message: fn(&Good) -> (MessageId, u8) = |good| (good.once[2], 2);
    for plant in [too_low, above_the_message] {
        let mut good = good();
        let (message, wrong) = plant(&good);
        let at = good.received(message);
        if let Event::Received { qos, .. } = good.event(at) {
            *qos = wrong;
        }
        good.expect(&[CheckRule::WrongQos]);
    }
    let mut good = good();
    good.story.subscribe(good.subscriber, "c", 1);
    let message = good.story.publish(good.publisher, "c", 2);
    good.story.receive(good.subscriber, message, 2);
    good.expect(&[CheckRule::WrongQos]);
}

#[test]
fn a_session_with_something_durable_must_be_there_after_a_kill_and_without_one() {
    for after_kill in [true, false] {
        let mut good = good();
        let last = good.publisher;
        let at = good.find(|event| match event {
            Event::Connected { connection, session_present: true } if after_kill => {
                connection.0 + 1 == last.0
            }
            Event::Connected { connection, .. } => *connection == last,
            _ => false,
        });
        if let Event::Connected { session_present, .. } = good.event(at) {
            *session_present = false;
        }
        good.expect(&[CheckRule::SessionGone]);
    }
}

#[test]
fn a_session_that_had_nothing_to_lose_may_be_gone_after_a_kill() {
    for (killed, rules) in [(true, &[][..]), (false, &[CheckRule::SessionGone])] {
        let mut story = Story::default();
        let ann = story.client("ann", true);
        let connection = story.connect(ann, false);
        if killed {
            story.kill(&[connection]);
        } else {
            story.end(connection, End::Cut);
        }
        story.connect(ann, false);
        story.expect(rules);
    }
}

#[test]
fn a_session_that_cannot_be_is_not_present() {
    let mut story = Story::default();
    let ann = story.client("ann", true);
    story.connect(ann, true);
    story.expect(&[CheckRule::SessionFromNowhere]);

    let mut story = Story::default();
    let ann = story.client("ann", false);
    story.connect(ann, true);
    story.expect(&[CheckRule::SessionFromNowhere]);

    // The first CONNECT was perhaps taken.
    let mut story = Story::default();
    let ann = story.client("ann", true);
    let connection = story.ask(ann, None);
    story.kill(&[connection]);
    story.connect(ann, true);
    story.expect(&[]);
}

#[test]
fn the_server_closes_no_connection_without_a_reason() {
    let mut good = good();
    let at = good.find(|event| matches!(event, Event::Ended { end: End::TakenOver, .. }));
    if let Event::Ended { end, .. } = good.event(at) {
        *end = End::ByServer(Some(0x81));
    }
    good.expect(&[CheckRule::Closed]);
}

#[test]
fn a_connection_that_is_taken_over_and_stays_lingers() {
    let mut good = good();
    let at = good.find(|event| matches!(event, Event::Ended { end: End::TakenOver, .. })) + 1;
    let Event::HungUp { connection } = *good.event(at) else { unreachable!() };
    *good.event(at) = Event::Lingers { connection };
    good.expect(&[CheckRule::Lingers]);
}

#[test]
fn a_new_subscriber_sees_the_last_retained_message() {
    let mut none = good();
    let at = none.received(none.retained[1]);
    none.events().remove(at);
    none.expect(&[CheckRule::Retained]);

    // It was cut off before it could see anything.
    let probed = none.find(|event| matches!(event, Event::Probed { .. }));
    none.events().remove(probed);
    none.expect(&[]);

    let mut old = good();
    let (at, first) = (old.received(old.retained[1]), old.retained[0]);
    if let Event::Received { message, qos, .. } = old.event(at) {
        (*message, *qos) = (Ok(first), 1);
    }
    old.expect(&[CheckRule::Retained]);
}

#[test]
fn a_retained_message_that_was_not_completed_may_have_won_or_not() {
    for winner in [0, 1] {
        let mut story = Story::default();
        let (ann, pete) = (story.client("ann", true), story.client("pete", false));
        let publisher = story.connect(ann, false);
        let messages =
            [story.publish(publisher, "ret/x", 1), story.send(publisher, "ret/x", 1, MessageKind::Retained)];
        let probe = story.connect(pete, false);
        story.subscribe(probe, "ret/#", 2);
        let message = Ok(messages[winner]);
        let event =
            Event::Received { connection: probe, message, qos: 1, dup: false, retained: true, packet_id: 1 };
        story.add(event);
        story.add(Event::Probed { connection: probe });
        story.add(Event::Answered {
            connection: publisher,
            message: messages[1],
            answer: PublishAnswer::PubAck,
        });
        story.expect(&[]);
    }
}

#[test]
fn an_unanswered_packet_is_reported() {
    let mut good = good();
    let message = good.once[2];
    let at = good.find(|event| matches!(event, Event::Answered { message: id, .. } if *id == message));
    good.events().remove(at);
    good.expect(&[CheckRule::Unanswered]);

    let connection = good.probe;
    let refused = Event::Answered { connection, message, answer: PublishAnswer::Refused(0x97) };
    good.story.add(refused);
    good.expect(&[CheckRule::Refused]);

    for wanted in ["a/+", "b/#"] {
        let mut good = self::good();
        let at = good.events().iter().rposition(|stamped| match &stamped.event {
            Event::Subscribed { filter, .. } => filter == wanted && wanted == "a/+",
            Event::Unsubscribed { filter, .. } => filter == wanted,
            _ => false,
        });
        good.events().remove(at.expect("it was answered"));
        good.expect(&[CheckRule::Unanswered]);
    }
}

#[test]
fn a_violation_shows_client_message_and_time() {
    let mut good = good();
    let lost = good.once[0];
    let received = good.received(lost);
    good.events().remove(received);
    let kill = good.find(|event| *event == Event::Kill { pod: 0 });
    let verdict = check(&good.story.history);
    let told = verdict.violations[0].explain(&good.story.history, &[kill]);
    for words in
        ["never came to subscriber", "publisher to a/x, number 0, QoS 1", "SUBACK a/+", "PUBACK", "SIGKILL"]
    {
        assert!(told.contains(words), "{words}: {told}");
    }
    assert_eq!(good.story.history.owner(ConnectionId(0)), good.story.history.owner(good.subscriber));
}

fn at_once(event: Event) -> crate::history::Stamped {
    crate::history::Stamped { at_ms: 0, event }
}
