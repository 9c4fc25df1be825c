//! The checker's rules about wills. Each test builds a history with or without a fault, and names
//! the rules that the checker must report as broken.

use super::check;
use super::story::Story;
use super::verdict::CheckRule;
use crate::history::{ClientId, ConnectionId, End, Event, MessageId};

/// A subscriber that is connected from the start, and a client with a will.
struct Scene {
    story: Story,
    watcher: ConnectionId,
    mortal: ClientId,
}

fn scene(persistent: bool) -> Scene {
    let mut story = Story::default();
    let (walt, mort) = (story.client("watcher", true), story.client("mortal", persistent));
    let watcher = story.connect(walt, false);
    story.subscribe(watcher, "will/#", 2);
    Scene { story, watcher, mortal: mort }
}

impl Scene {
    /// Connects with a will of its own.
    fn live(&mut self, qos: u8, delay_ms: u64, session_present: bool) -> (ConnectionId, MessageId) {
        let will = self.story.will(self.mortal, qos, delay_ms);
        (self.story.live(self.mortal, will, session_present), will)
    }

    fn sees(&mut self, will: MessageId, qos: u8) {
        self.story.receive(self.watcher, will, qos);
    }
}

/// How often the will is published, and the rules that are broken then.
type Case = (usize, &'static [CheckRule]);

const OWED: [Case; 3] = [(0, &[CheckRule::WillLost]), (1, &[]), (2, &[CheckRule::WillTwice])];
const FORBIDDEN: [Case; 2] = [(0, &[]), (1, &[CheckRule::WillWrong])];
const EITHER: [Case; 3] = [(0, &[]), (1, &[]), (2, &[CheckRule::WillTwice])];

fn try_all(cases: &[Case], persistent: bool, build: impl Fn(&mut Scene) -> MessageId) {
    for (times, rules) in cases {
        let mut scene = scene(persistent);
        let will = build(&mut scene);
        for _ in 0..*times {
            scene.sees(will, 2);
        }
        scene.story.expect(rules);
    }
}

#[test]
fn a_will_is_owed_once_when_the_socket_is_closed_taken_over_or_left_with_0x04() {
    for end in [End::Cut, End::DisconnectWithWill] {
        try_all(&OWED, false, |scene| {
            let (connection, will) = scene.live(2, 0, false);
            scene.story.end(connection, end);
            will
        });
    }
    try_all(&OWED, true, |scene| {
        let (connection, will) = scene.live(2, 0, false);
        scene.story.end(connection, End::TakenOver);
        let next = scene.story.connect(scene.mortal, true);
        scene.story.end(next, End::Disconnect);
        will
    });
}

#[test]
fn a_kill_owes_the_wills_of_its_connections() {
    try_all(&OWED, false, |scene| {
        let (connection, will) = scene.live(2, 0, false);
        scene.story.kill(&[connection]);
        will
    });
    try_all(&OWED, true, |scene| {
        let (connection, will) = scene.live(2, 1_000, false);
        scene.story.kill(&[connection]);
        scene.story.wait(1_500);
        will
    });
    let mut scene = scene(false);
    let (connection, will) = scene.live(2, 0, false);
    scene.story.kill(&[connection]);
    scene.sees(will, 2);
    let counts = check(&scene.story.history).counts;
    assert_eq!((counts.wills_required, counts.wills_required_by_kill, counts.wills_fired), (1, 1, 1));
}

#[test]
fn no_will_after_a_clean_disconnect_or_while_the_connection_lives() {
    try_all(&FORBIDDEN, false, |scene| {
        let (connection, will) = scene.live(2, 0, false);
        scene.story.end(connection, End::Disconnect);
        will
    });
    try_all(&FORBIDDEN, false, |scene| scene.live(2, 0, false).1);
}

#[test]
fn a_kill_right_after_a_disconnect_leaves_both_a_kill_long_after_it_does_not() {
    for (acknowledged, cases) in [(9, &EITHER[..]), (11, &FORBIDDEN)] {
        try_all(cases, false, |scene| {
            let (connection, will) = scene.live(2, 0, false);
            scene.story.end(connection, End::Disconnect);
            for _ in 0..acknowledged {
                scene.story.wait(100);
                scene.story.publish(scene.watcher, "nobody", 1);
            }
            scene.story.kill(&[]);
            will
        });
    }
    // The store may have been unreachable after the DISCONNECT, so the server could not record it.
    try_all(&EITHER, false, |scene| {
        let (connection, will) = scene.live(2, 0, false);
        scene.story.end(connection, End::Disconnect);
        scene.story.wait(3_000);
        for _ in 0..9 {
            scene.story.wait(100);
            scene.story.publish(scene.watcher, "nobody", 1);
        }
        scene.story.kill(&[]);
        will
    });
    // The kill came before the server closed its side.
    try_all(&EITHER, false, |scene| {
        let (connection, will) = scene.live(2, 0, false);
        scene.story.add(Event::Ended { connection, end: End::Disconnect });
        scene.story.wait(5_000);
        scene.story.kill(&[]);
        will
    });
}

#[test]
fn a_session_resumed_within_the_delay_has_no_will_one_resumed_later_may() {
    for (away_ms, cases) in [(900, &FORBIDDEN[..]), (1_000, &EITHER)] {
        try_all(cases, true, |scene| {
            let (connection, will) = scene.live(2, 1_000, false);
            scene.story.end(connection, End::Cut);
            scene.story.wait(away_ms);
            let next = scene.story.connect(scene.mortal, true);
            scene.story.end(next, End::Disconnect);
            scene.story.wait(3_000);
            will
        });
    }
}

#[test]
fn a_session_resumed_within_the_delay_after_a_kill_has_no_will() {
    try_all(&FORBIDDEN, true, |scene| {
        let (connection, will) = scene.live(2, 2_000, false);
        scene.story.wait(5_000);
        scene.story.kill(&[connection]);
        scene.story.wait(1_000);
        let next = scene.story.connect(scene.mortal, true);
        scene.story.end(next, End::Disconnect);
        will
    });
}

#[test]
fn a_will_does_not_come_before_its_delay() {
    for (wait_ms, rules) in [(900, &[CheckRule::WillWrong][..]), (1_000, &[])] {
        let mut scene = scene(true);
        let (connection, will) = scene.live(2, 1_000, false);
        scene.story.end(connection, End::Cut);
        scene.story.wait(wait_ms);
        scene.sees(will, 2);
        scene.story.expect(rules);
    }
}

#[test]
fn a_will_that_comes_early_over_a_restart_is_named_as_such() {
    for (delay_ms, kills, end, rule) in [
        (5_000, true, End::Cut, CheckRule::WillEarly),
        (5_000, false, End::Cut, CheckRule::WillWrong),
        (5_000, true, End::Disconnect, CheckRule::WillWrong),
    ] {
        let mut scene = scene(true);
        let (connection, will) = scene.live(2, delay_ms, false);
        scene.story.end(connection, end);
        scene.story.add(Event::HungUp { connection });
        if kills {
            scene.story.kill(&[]);
        }
        scene.story.wait(1_000);
        scene.sees(will, 2);
        scene.story.expect(&[rule]);
    }
}

#[test]
fn a_will_does_not_come_before_the_end() {
    let mut scene = scene(false);
    let (connection, will) = scene.live(2, 0, false);
    scene.sees(will, 2);
    scene.story.end(connection, End::Cut);
    scene.story.expect(&[CheckRule::WillWrong]);
}

#[test]
fn without_connack_there_may_be_a_will_but_not_two() {
    try_all(&EITHER, false, |scene| {
        let will = scene.story.will(scene.mortal, 2, 0);
        let connection = scene.story.ask(scene.mortal, Some(will));
        scene.story.kill(&[connection]);
        will
    });
}

#[test]
fn a_will_at_qos_1_may_come_again_after_a_reconnect_but_not_on_the_same_connection() {
    for (reconnects, rules) in [(true, &[][..]), (false, &[CheckRule::WillTwice])] {
        let mut scene = scene(false);
        let (connection, will) = scene.live(1, 0, false);
        scene.story.end(connection, End::Cut);
        scene.sees(will, 1);
        if reconnects {
            let walt = scene.story.history.owner(scene.watcher);
            scene.story.end(scene.watcher, End::Cut);
            scene.watcher = scene.story.connect(walt, true);
        }
        scene.sees(will, 1);
        scene.story.expect(rules);
    }
}

#[test]
fn a_watcher_that_came_later_is_owed_nothing() {
    let mut story = Story::default();
    let (walt, mort) = (story.client("watcher", true), story.client("mortal", false));
    let will = story.will(mort, 2, 0);
    let connection = story.live(mort, will, false);
    let watcher = story.connect(walt, false);
    story.subscribe(watcher, "will/#", 2);
    story.end(connection, End::Cut);
    story.expect(&[]);
}
