use millrace_layers::BrokerId;
use millrace_layers::sessions::{self, SessionId};

use super::*;
use crate::region::Notices as _;
use crate::store::apply::Applier;
use crate::store::{StoreContext, duties};

const MEMBER: Target = Target { core: 0, slot: 1, generation: 1 };

#[test]
fn a_member_takes_messages_of_all_its_groups_or_of_none() {
    let (shared, broker) = StoreContext::with_broker(true);
    let mut groups = ["one", "two"].map(|name| shared.message_of_group(broker, name));
    groups.sort_unstable();
    let taken = groups.map(|group| (group, shared.claim(group, "pod")[0]));
    // Other pods took this one for dead, and one of them has the second message.
    let [_, (_, second)] = groups;
    shared.run(&async |tx| streams::settle(tx, broker, second, b"pod", &[], &[], false).await);
    let is_taken = shared.run(&async |tx| Applier::new(tx, &shared, false).take_from_groups(&taken).await);
    assert!(!is_taken);
    let [((_, first), position), _] = taken;
    let claims =
        shared.run(&async |tx| streams::settle(tx, broker, first, b"pod", &[position], &[], false).await);
    assert_eq!(claims.outstanding, [position], "the first message is no longer with this pod");
}

#[test]
fn a_broker_with_claims_is_closed_and_leaves_none_behind() {
    let (shared, broker) = StoreContext::with_broker(true);
    let group = shared.message_of_group(broker, "one");
    let mut writer = Writer::new(&shared);
    shared.open("default").unwrap().unwrap();
    let position = shared.claim(group, "pod")[0];
    writer.claims.grew(group);
    writer.claims.groups.get_mut(&group).unwrap().outstanding.insert(position, MEMBER);
    // Nobody looks the broker up from here on.
    shared.brokers.idle(1, 1);
    writer.tick(1_000);
    assert!(shared.brokers.close(broker).is_some(), "the writer has looked the broker up");
    writer.tick(2_000);
    assert!(writer.claims.groups.is_empty() && writer.claims.behind.is_empty());
    assert_eq!(shared.claim(group, "other"), [position]);
}

/// Groups with a message each, whose members are connected. If `takes`, the message is for them.
fn with_members(
    shared: &StoreContext,
    writer: &mut Writer<'_>,
    broker: BrokerId,
    count: usize,
    takes: bool,
) -> Vec<StreamKey> {
    let names: Vec<String> = (0..count).map(|number| number.to_string()).collect();
    let group = |name: &String| {
        let filter = if takes { "t" } else { name };
        let group = shared.group(broker, name, filter);
        shared.append_many(group, 1);
        group
    };
    let groups: Vec<StreamKey> = names.iter().map(group).collect();
    shared.open("default").unwrap().unwrap();
    for name in &names {
        shared.member(broker, name, if takes { "t" } else { name });
    }
    groups.iter().for_each(|group| writer.claims.grew(*group));
    groups
}

fn serve_one_group(
    shared: &StoreContext,
    writer: &mut Writer<'_>,
    broker: BrokerId,
    takes: bool,
) -> StreamKey {
    let group = with_members(shared, writer, broker, 1, takes)[0];
    writer.serve_groups();
    group
}

#[test]
fn messages_of_many_groups_are_claimed_and_saved_in_few_transactions_with_jobs_in_between() {
    let (shared, broker) = StoreContext::with_broker(true);
    let mut writer = Writer::new(&shared);
    let groups = with_members(&shared, &mut writer, broker, 100, false);
    let before = shared.version();
    writer.serve_groups();
    assert_eq!(
        writer.claims.behind.waiting().len(),
        100 - AT_ONCE * TOGETHER,
        "a commit is followed by some"
    );
    while !writer.claims.behind.is_empty() {
        duties::step(&mut writer);
    }
    assert_eq!(shared.version() - before, 7);
    // No filter of the members matches these messages, so all go back.
    let before = shared.version();
    let mut steps = 1;
    while writer.save_some_claims() {
        steps += 1;
    }
    assert_eq!((steps, shared.version() - before), (7, 7));
    assert!(!writer.save_some_claims());
    let Claims { groups: known, changed, .. } = &writer.claims;
    assert_eq!((known.len(), changed.len()), (100, 0), "a save looks at what has changed");
    assert!(groups.iter().all(|group| shared.claim(*group, "other").len() == 1));
}

#[test]
fn groups_of_a_broker_look_for_messages_whose_notice_was_lost() {
    let (shared, broker) = StoreContext::with_broker(true);
    let mut writer = Writer::new(&shared);
    let groups = with_members(&shared, &mut writer, broker, 2, true);
    writer.serve_groups();
    groups.iter().for_each(|group| shared.append_many(*group, 1));
    let mut claimed_after = |missed| {
        shared.missed(missed);
        writer.look_for_missed(false);
        writer.serve_groups();
        groups.iter().map(|group| writer.claims.groups[group].outstanding.len()).collect::<Vec<_>>()
    };
    assert_eq!(claimed_after(Some(broker + 1)), [1, 1]);
    assert_eq!(claimed_after(Some(broker)), [2, 2]);
}

#[test]
fn a_group_that_ends_leaves_no_claims_of_this_pod() {
    let (shared, broker) = StoreContext::with_broker(true);
    let mut writer = Writer::new(&shared);
    let group = serve_one_group(&shared, &mut writer, broker, false);
    let id = SessionId { broker, client: b"0" };
    shared.run(&async |tx| sessions::purge(tx, id).await);
    assert!(shared.run(&async |tx| streams::has_any(tx, b"pod").await));
    shared.brokers.peek(broker).unwrap().streams.set("0", &[], &[]);
    writer.claims.grew(group);
    writer.tick(1_000);
    writer.tick(2_000);
    assert!(!shared.run(&async |tx| streams::has_any(tx, b"pod").await), "a row of the pod is left");
}

#[test]
fn a_group_with_a_corrupt_row_keeps_no_other_from_its_messages() {
    let (shared, broker) = StoreContext::with_broker(true);
    let mut writer = Writer::new(&shared);
    let groups = with_members(&shared, &mut writer, broker, 3, true);
    let position = shared.claim(groups[1], "pod")[0];
    shared.corrupt(&position.0);
    shared.append_many(groups[1], 1);
    writer.serve_groups();
    let claimed = |key: &StreamKey| writer.claims.groups[key].outstanding.len();
    assert_eq!(groups.iter().map(claimed).collect::<Vec<_>>(), [1, 0, 1]);
    assert!(writer.claims.behind.is_empty(), "it is not read again at once");
    for key in &groups {
        let group = writer.claims.change(*key).unwrap();
        (group.gives_back, group.outstanding) = (true, BTreeMap::new());
    }
    writer.tick(1_000);
    let left = |key: &StreamKey| writer.claims.groups[key].is_unsaved();
    assert_eq!(groups.iter().map(left).collect::<Vec<_>>(), [false, true, false]);
}

#[test]
fn another_member_of_the_pod_gets_a_message_that_came_back() {
    let (shared, broker) = StoreContext::with_broker(true);
    let mut writer = Writer::new(&shared);
    let group = serve_one_group(&shared, &mut writer, broker, true);
    let outstanding = |writer: &Writer<'_>| outstanding(writer, group);
    let [position] = outstanding(&writer)[..] else { panic!("one message") };
    writer.shared_messages(SharedMessages { returned: vec![(group, position)], ..SharedMessages::default() });
    assert!(outstanding(&writer).is_empty());
    duties::step(&mut writer);
    writer.serve_groups();
    assert_eq!(outstanding(&writer), [position]);
}

fn outstanding(writer: &Writer<'_>, group: StreamKey) -> Vec<Position> {
    writer.claims.groups[&group].outstanding.keys().copied().collect()
}

#[test]
fn messages_for_which_no_member_of_the_pod_has_room_are_free_for_other_pods() {
    let (shared, broker) = StoreContext::with_broker(true);
    let mut writer = Writer::new(&shared);
    let group = shared.group(broker, "one", "t");
    shared.append_many(group, 30);
    shared.open("default").unwrap().unwrap();
    shared.member(broker, "one", "t");
    writer.claims.grew(group);
    writer.serve_groups();
    let claimed = outstanding(&writer, group);
    assert_eq!(claimed.len(), 30);
    let refused = claimed.iter().map(|position| (group, *position)).collect();
    writer.shared_messages(SharedMessages { refused, ..SharedMessages::default() });
    for _ in 0..10 {
        duties::step(&mut writer);
        writer.serve_groups();
    }
    assert!(outstanding(&writer, group).is_empty());
    assert_eq!(shared.claim(group, "other"), claimed[..10]);
    // One message shows whether the member has room now, and its acknowledgements let it have more.
    writer.tick(1_000);
    assert_eq!(outstanding(&writer, group), claimed[10..11]);
    for _ in 0..3 {
        let settled = outstanding(&writer, group).iter().map(|position| (group, *position)).collect();
        writer.shared_messages(SharedMessages { settled, ..SharedMessages::default() });
        writer.serve_groups();
    }
    assert_eq!(outstanding(&writer, group), claimed[17..25]);
    writer.shared_messages(SharedMessages { joined: vec![group], ..SharedMessages::default() });
    writer.serve_groups();
    assert_eq!(outstanding(&writer, group), claimed[17..]);
}
