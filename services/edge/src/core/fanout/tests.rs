use millrace_mqtt::QoS;

use crate::core::testing::{Client, Loops, publish};

/// The copies of a message take about a third of a slice each.
const LARGE: usize = 900_000;

fn receivers(loops: &mut Loops, core: u16, count: usize) -> Vec<Client> {
    (0..count)
        .map(|number| {
            let mut receiver = loops.connect(core, &format!("receiver-{number}"));
            loops.subscribe(&mut receiver, "t", QoS::AtLeastOnce);
            receiver
        })
        .collect()
}

fn is_fanning_out(loops: &Loops, core: usize) -> bool {
    !loops.cores[core].unfinished.fanouts.is_empty()
}

/// The loop of the publisher alone takes turns until it has read the message.
fn publish_large(loops: &mut Loops, publisher: &mut Client) {
    loops.send_to(0, publisher, &publish(1, "t", &[b'.'; LARGE]));
    while loops.cores[1].mailbox().bytes() == 0 {
        loops.turn(0);
    }
}

fn finish(loops: &mut Loops, core: usize) {
    assert!(is_fanning_out(loops, core));
    while is_fanning_out(loops, core) {
        loops.turn(core);
    }
}

#[test]
fn a_publisher_waits_for_the_fan_outs_of_all_loops() {
    let mut loops = Loops::start(3, |_| {});
    let _receivers = [receivers(&mut loops, 1, 60), receivers(&mut loops, 2, 30)];
    let mut publisher = loops.connect(0, "publisher");
    publish_large(&mut loops, &mut publisher);
    [1, 2, 0].into_iter().for_each(|core| loops.turn(core));
    assert!(!loops.connection(0, &publisher).is_reading());
    finish(&mut loops, 2);
    loops.turn(0);
    assert!(is_fanning_out(&loops, 1) && !loops.connection(0, &publisher).is_reading());
    finish(&mut loops, 1);
    loops.turn(0);
    assert!(loops.connection(0, &publisher).is_reading());
}

#[test]
fn a_publisher_that_waits_for_its_own_loop_heeds_another_one() {
    let mut loops = Loops::start(2, |_| {});
    let _receivers = [receivers(&mut loops, 0, 30), receivers(&mut loops, 1, 60)];
    let mut publisher = loops.connect(0, "publisher");
    publish_large(&mut loops, &mut publisher);
    assert!(is_fanning_out(&loops, 0));
    [1, 0].into_iter().for_each(|core| loops.turn(core));
    finish(&mut loops, 0);
    loops.turn(0);
    assert!(is_fanning_out(&loops, 1) && !loops.connection(0, &publisher).is_reading());
    finish(&mut loops, 1);
    loops.turn(0);
    assert!(loops.connection(0, &publisher).is_reading());
}
