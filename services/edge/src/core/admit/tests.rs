use crate::core::connection::Paused;
use crate::core::testing::Loops;
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
