use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use super::pages::{FoundClients, SearchedPage};
use super::{SLICE, SLICE_EVERY_MS};
use crate::clients::{ClientSearch, ClientsAnswer, PAGE_MAX, Question};
use crate::core::testing::{Loops, TestClient};

const CLIENTS: usize = 700;
/// A slice ends after the client that uses it up.
const SLICE_MAX: u64 = SLICE + 100;

fn ask(loops: &mut Loops) -> Receiver<Option<ClientsAnswer>> {
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
    let clients: Vec<TestClient> =
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

#[test]
fn a_client_that_comes_back_into_a_later_slot_pushes_no_other_one_off_its_page() {
    let mut loops = Loops::start(1, |_| {});
    let clients = ["ann", "bob"].map(|id| loops.connect_as(id, true));
    let question = Question::Page { after: None, search: "".into(), limit: 1 };
    let search = ClientSearch::new(1, loops.broker(), question, Box::new(|_| {}));
    let mut page = SearchedPage::new(Arc::new(search));
    for (client, slot) in [(0, 0), (1, 1), (0, 2)] {
        let core = &loops.cores[0];
        let who = &core.connections[loops.session(0, &clients[client]).connection as usize].who;
        page.see(slot, loops.session(0, &clients[client]), who);
    }
    let found = FoundClients::from(page);
    assert_eq!(found.left.collect::<Vec<_>>(), [("ann".into(), 2)]);
    assert_eq!(found.next.as_deref(), Some("ann"), "another page has bob");
}
