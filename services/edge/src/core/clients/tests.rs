use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use super::{SLICE, SLICE_EVERY_MS};
use crate::clients::{Answer, ClientSearch, PAGE_MAX, Question};
use crate::core::testing::{Client, Loops};

const CLIENTS: usize = 700;
/// A slice ends after the client that uses it up.
const SLICE_MAX: u64 = SLICE + 100;

fn ask(loops: &mut Loops) -> Receiver<Option<Answer>> {
    let (done, answers) = sync_channel(1);
    let question = Question::Page { after: None, search: "".into(), limit: PAGE_MAX };
    let search =
        ClientSearch::new(1, loops.broker(), question, Box::new(move |answer| done.send(answer).unwrap()));
    loops.cores[0].asked_for_clients(Arc::new(search));
    answers
}

#[test]
fn lists_of_many_clients_are_made_over_several_turns() {
    let mut loops = Loops::start(1, |_| {});
    let clients: Vec<Client> =
        (0..CLIENTS).map(|number| loops.connect_as(&format!("client{number}"), true)).collect();
    let asked: Vec<_> = (0..5).map(|_| ask(&mut loops)).collect();
    let core = &mut loops.cores[0];
    let (before, mut most) = (core.work.spent(), 0);
    while !core.unfinished.scans.is_idle() {
        let spent = core.work.spent();
        core.now_ms += SLICE_EVERY_MS;
        core.scan();
        most = most.max(core.work.spent() - spent);
    }
    assert!(most <= SLICE_MAX, "a slice did {most} units of work");
    let all = core.work.spent() - before;
    assert!(all >= (asked.len() * CLIENTS * 10) as u64, "{all} units of work for all");
    for answers in asked {
        let answer = answers.recv().unwrap().unwrap();
        assert_eq!((answer.clients.len(), answer.next), (CLIENTS, None));
    }
    drop(clients);
}
