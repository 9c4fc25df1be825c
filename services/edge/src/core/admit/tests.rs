use crate::core::connection::Paused;
use crate::core::testing::{Loops, stranger};
use crate::core::work;

const WAITING: usize = 500;

fn waiting(loops: &Loops) -> usize {
    let connections = loops.cores[0].connections.iter();
    connections.filter(|(_, connection)| connection.paused == Paused::ForAdmission).count()
}

#[test]
fn connects_whose_wait_ends_together_are_refused_or_forgotten_over_several_turns() {
    for are_gone in [false, true] {
        let mut loops = Loops::start(1, |limits| {
            (limits.connects_per_second_max, limits.connects_burst) = (1, 1);
            limits.connects_waiting_max = 2 * WAITING as u32;
        });
        let now_ms = loops.cores[0].now_ms;
        loops.now_ms = Some(now_ms);
        let mut clients: Vec<_> =
            (0..=WAITING).map(|number| loops.dial_with(&format!("client-{number}"), 2, "")).collect();
        loops.until(|loops| waiting(loops) == WAITING);
        if are_gone {
            clients.clear();
        } else {
            loops.now_ms = Some(now_ms + 6_000);
        }
        let mut turns = Vec::new();
        while waiting(&loops) > 0 {
            loops.turn(0);
            turns.push(loops.cores[0].work.counted());
        }
        assert!(turns.iter().all(|work| *work < 3 * work::TURN), "{are_gone}: {turns:?}");
    }
}

#[test]
fn while_memory_is_short_the_broker_of_a_client_is_not_opened() {
    for (memory_max, is_asked) in [(0, true), (1, false)] {
        let mut loops = Loops::stored_with(|limits| limits.memory_max = memory_max);
        let _client = stranger(&loops, [127, 0, 0, 1]);
        loops.until(|loops| loops.cores[0].connections.len() == 1);
        let core = &mut loops.cores[0];
        core.process.memory.look();
        assert_eq!((core.may_look_up(0, "closed", 0), core.is_refused(0)), (is_asked, false));
    }
}
