use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use millrace_access::bans::Bans;
use millrace_access::model::Ban;
use millrace_mqtt::QoS;

use super::pages::{FoundClients, SearchedPage};
use super::{SLICE, SLICE_EVERY_MS};
use crate::clients::{ClientSearch, ClientsAnswer, FILTERS_BYTES_MAX, PAGE_MAX, Question};
use crate::core::testing::{Loops, SUBACK, TestClient, subscribe};
use crate::core::work;

const CLIENTS: usize = 700;
/// A slice ends after the client that uses it up.
const SLICE_MAX: u64 = SLICE + 100;

fn ask(loops: &mut Loops) -> Receiver<Option<ClientsAnswer>> {
    ask_for(loops, Question::Page { after: None, search: "".into(), limit: PAGE_MAX })
}

fn ask_for(loops: &mut Loops, question: Question) -> Receiver<Option<ClientsAnswer>> {
    let (done, answers) = sync_channel(1);
    let search =
        ClientSearch::new(1, loops.broker(), question, Box::new(move |answer| done.send(answer).unwrap()));
    loops.cores[0].asked_for_clients(Arc::new(search));
    answers
}

/// Scans until nothing is left to scan; returns the work of the longest slice.
fn most_of_slices(loops: &mut Loops) -> u64 {
    let core = &mut loops.cores[0];
    let mut most = 0;
    while !core.unfinished.scans.is_idle() {
        let spent = core.work.spent();
        core.now_ms += SLICE_EVERY_MS;
        core.scan();
        most = most.max(core.work.spent() - spent);
    }
    most
}

#[test]
fn lists_of_many_clients_are_made_over_several_turns() {
    let mut loops = Loops::start(1, |_| {});
    let clients: Vec<TestClient> =
        (0..CLIENTS).map(|number| loops.connect_as(&format!("client{number}"), true)).collect();
    let asked: Vec<_> = (0..5).map(|_| ask(&mut loops)).collect();
    let before = loops.cores[0].work.spent();
    let most = most_of_slices(&mut loops);
    assert!(most <= SLICE_MAX, "a slice did {most} units of work");
    let all = loops.cores[0].work.spent() - before;
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

const BANNED: usize = 40;
const FILTERS: usize = 300;
/// A slice also ends after the client that uses it up by its end.
const CLOSE_MAX: u64 = SLICE_MAX + work::END + FILTERS as u64 * (work::FILTER + work::LEVEL);

fn with_filters(loops: &mut Loops, id: &str, filters: &[String]) -> TestClient {
    let mut client = loops.connect_as(id, true);
    loops.send_to(0, &mut client, &subscribe(filters, QoS::AtMostOnce));
    loops.answer(&mut client, SUBACK);
    client
}

/// Clients with many filters, one of which has a client id that is banned alone, and then all by a network.
fn with_banned() -> (Loops, Vec<TestClient>) {
    let mut loops = Loops::start(1, |_| {});
    let filters: Vec<String> = (0..FILTERS).map(|number| number.to_string()).collect();
    let clients = (0..BANNED).map(|number| with_filters(&mut loops, &format!("c{number}"), &filters));
    let clients = clients.collect();
    let ban = Ban { name: "b".into(), address: Some("127.0.0.0/8".into()), ..Ban::default() };
    loops.broker().set_bans(Bans::new(vec![ban]).0);
    (loops, clients)
}

fn close_in_slices(loops: &mut Loops) {
    let most = most_of_slices(loops);
    assert!(most <= CLOSE_MAX, "a slice did {most} units of work");
    assert_eq!(loops.broker().counters[0].ended_banned.get(), BANNED as u64);
}

#[test]
fn a_ban_closes_clients_with_many_filters_over_several_turns() {
    let (mut loops, clients) = with_banned();
    let broker = loops.broker();
    loops.cores[0].look_for_banned(&broker);
    close_in_slices(&mut loops);
    drop(clients);
}

#[test]
fn clients_that_connected_while_they_were_banned_are_closed_over_several_turns() {
    let (mut loops, clients) = with_banned();
    let slots: Vec<u32> = clients.iter().map(|client| loops.session(0, client).connection).collect();
    slots.into_iter().for_each(|slot| loops.cores[0].check_late(slot));
    close_in_slices(&mut loops);
    drop(clients);
}

#[test]
fn the_view_of_a_client_with_many_long_filters_takes_no_longer_than_a_slice() {
    let mut loops = Loops::start(1, |_| {});
    let filters: Vec<String> = (0..20_000).map(|number| format!("{number:05}")).collect();
    let client = with_filters(&mut loops, "many", &filters);
    let spent = loops.cores[0].work.spent();
    let answers = ask_for(&mut loops, Question::One(client.id.as_str().into()));
    let spent = loops.cores[0].work.spent() - spent;
    assert!(spent <= SLICE, "{spent} units of work");
    let shown = answers.recv().unwrap().unwrap().clients.remove(0);
    assert_eq!(shown.subscriptions, 20_000);
    assert!(shown.filters.len() > 500, "{} filters", shown.filters.len());
    let bytes: usize = shown.filters.iter().map(|filter| filter.filter.len()).sum();
    assert!(bytes <= FILTERS_BYTES_MAX, "{bytes} bytes");
    assert!(shown.filters.is_sorted());
    assert!(shown.filters.iter().all(|shown| filters.contains(&shown.filter)));
}

#[test]
fn the_view_of_a_client_has_all_its_filters_in_order() {
    let mut loops = Loops::start(1, |_| {});
    let filters: Vec<String> = (0..400).map(|number| format!("{number:05}")).collect();
    let reversed: Vec<String> = filters.iter().rev().cloned().collect();
    let client = with_filters(&mut loops, "few", &reversed);
    let answers = ask_for(&mut loops, Question::One(client.id.as_str().into()));
    let shown = answers.recv().unwrap().unwrap().clients.remove(0);
    assert_eq!(shown.filters.into_iter().map(|shown| shown.filter).collect::<Vec<_>>(), filters);
}
