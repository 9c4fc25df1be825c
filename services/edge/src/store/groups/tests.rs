use super::*;
use crate::store::{Job, Purge, StoreContext, Write, duties};

fn at(version: u64) -> Position {
    Position::end_of(version)
}

fn take(group: &mut GroupState, versions: std::ops::Range<u64>) {
    for version in versions {
        group.outstanding.insert(at(version), Target { core: 0, slot: 1, generation: 1 });
        group.came_through(at(version));
    }
}

#[test]
fn the_cursor_stops_before_the_oldest_unacknowledged_message() {
    let mut group =
        GroupState::new(GroupProgress { cursor: at(1), acknowledged: [at(9)].into_iter().collect() });
    take(&mut group, 2..6);
    group.settle(at(3));
    let GroupProgress { cursor, acknowledged } = group.progress();
    assert_eq!(cursor, at(2).before());
    assert!(acknowledged.contains(at(3)) && !acknowledged.contains(at(4)) && acknowledged.contains(at(9)));
    assert!(!group.wants(at(4)) && group.wants(at(7)) && !group.wants(at(9)));
    group.settle(at(2));
    let GroupProgress { cursor, acknowledged } = group.progress();
    assert_eq!(cursor, at(4).before());
    assert!(!acknowledged.contains(at(3)), "what the cursor has passed is forgotten");
    assert!(!acknowledged.contains(at(5)) && acknowledged.contains(at(9)));
    // A member leaves without acknowledging message 4: only that message is read again.
    group.settle(at(5));
    group.give_back(at(4));
    assert_eq!((group.behind, group.progress().cursor), (true, at(4).before()));
    assert!(group.wants(at(4)) && !group.wants(at(5)));
    // A message that was given back is not settled by a late acknowledgement of the member.
    group.settle(at(4));
    assert!(group.wants(at(4)));
}

#[test]
fn one_message_that_stays_with_a_member_makes_no_memory_grow() {
    let mut group = GroupState::new(GroupProgress::default());
    take(&mut group, 2..3);
    for version in 3..50_000 {
        take(&mut group, version..version + 1);
        group.settle(at(version));
    }
    assert_eq!((group.acknowledged.len(), group.outstanding.len()), (0, 1));
    let GroupProgress { cursor, acknowledged } = group.progress();
    assert_eq!((cursor, acknowledged.len()), (at(2).before(), 1));
    // The message comes back after the server's end, or after the member's.
    let mut after = GroupState::new(GroupProgress { cursor, acknowledged });
    group.give_back(at(2));
    for group in [&mut group, &mut after] {
        let wanted: Vec<u64> = (2..50_010).filter(|version| group.wants(at(*version))).collect();
        assert_eq!(wanted, [2].into_iter().chain(50_000..50_010).collect::<Vec<u64>>());
    }
}

#[test]
fn groups_of_a_closed_broker_are_forgotten() {
    let (shared, broker) = StoreContext::with_broker(false);
    let group = shared.message_of_group(broker, "one");
    let mut writer = Writer::new(&shared);
    shared.open("default").unwrap().unwrap();
    shared.member(broker, "one", "one");
    writer.shared_messages(SharedMessages { joined: vec![group], ..SharedMessages::default() });
    writer.serve_groups();
    assert!(writer.groups.of.contains_key(&group));
    shared.brokers.idle(1, 1);
    // The cache of routes drops a part at each tick.
    (1..20).for_each(|second| writer.tick(1_000 * second));
    assert!(shared.brokers.close(broker).is_some(), "the writer has looked the broker up");
    writer.tick(20_000);
    assert!(writer.groups.of.is_empty());
}

#[test]
fn pages_for_new_members_of_many_groups_are_read_with_jobs_in_between() {
    let (shared, id) = StoreContext::with_broker(false);
    let names = ["one", "two", "three"];
    let groups = names.map(|name| shared.group(id, name, "t"));
    shared.open("default").unwrap().unwrap();
    names.iter().for_each(|name| shared.member(id, name, "t"));
    groups.iter().for_each(|group| shared.append_many(*group, 900));
    let mut writer = Writer::new(&shared);
    writer.shared_messages(SharedMessages { joined: groups.to_vec(), ..SharedMessages::default() });
    let read = |writer: &Writer<'_>| {
        groups.map(|key| writer.groups.of.get(&key).map_or(0, |group| group.outstanding.len()))
    };
    writer.serve_groups();
    assert_eq!(read(&writer), [400, 200, 200]);
    writer.serve_groups();
    assert_eq!(read(&writer), [400, 200, 200], "a commit delays no other for the rest");
    let mut steps = Vec::new();
    while writer.groups.reads_in_steps {
        duties::step(&mut writer);
        steps.push(read(&writer));
    }
    assert_eq!(steps, [[600, 600, 400], [800, 800, 800], [900, 900, 900]]);
}

#[test]
fn messages_that_a_member_has_no_room_for_stay_in_the_stream_and_are_not_read_again_and_again() {
    let (shared, id) = StoreContext::with_broker(false);
    let key = shared.group(id, "one", "t");
    shared.open("default").unwrap().unwrap();
    shared.member(id, "one", "t");
    shared.append_many(key, 900);
    let mut writer = Writer::new(&shared);
    let outstanding = |writer: &Writer<'_>| -> Vec<Position> {
        writer.groups.of[&key].outstanding.keys().copied().collect()
    };
    let report = |writer: &mut Writer<'_>, messages: SharedMessages| {
        writer.shared_messages(messages);
        writer.serve_groups();
        while writer.groups.reads_in_steps {
            duties::step(writer);
        }
    };
    let of_group = |positions: &[Position]| positions.iter().map(|position| (key, *position)).collect();
    report(&mut writer, SharedMessages { joined: vec![key], ..SharedMessages::default() });
    let sent = outstanding(&writer);
    // The member has room for 11 messages.
    let refused = of_group(&sent[11..]);
    report(&mut writer, SharedMessages { refused, ..SharedMessages::default() });
    (0..10).for_each(|_| writer.serve_groups());
    assert_eq!(outstanding(&writer), sent[..11], "nothing more is handed out");
    let group = &writer.groups.of[&key];
    assert!(sent[11..].iter().all(|position| group.wants(*position)), "none counts as acknowledged");
    // It acknowledges one, and refuses one of two.
    let settled = of_group(&sent[..1]);
    report(&mut writer, SharedMessages { settled, ..SharedMessages::default() });
    assert_eq!(outstanding(&writer), sent[1..13]);
    let refused = of_group(&sent[12..13]);
    report(&mut writer, SharedMessages { refused, ..SharedMessages::default() });
    assert_eq!(outstanding(&writer), sent[1..12]);
    writer.tick(1_000);
    assert_eq!(outstanding(&writer), sent[1..13], "one shows whether it has room again");
    // It leaves, and a new member gets them all.
    let returned = of_group(&sent[1..13]);
    report(&mut writer, SharedMessages { returned, joined: vec![key], ..SharedMessages::default() });
    let again = outstanding(&writer);
    assert!(again.starts_with(&sent[1..]), "{} of {}", again.len(), sent.len());
}

#[test]
fn groups_that_have_ended_are_forgotten_and_saves_look_at_changed_ones_alone() {
    let (shared, id) = StoreContext::with_broker(false);
    let names: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    let groups: Vec<StreamKey> = names.iter().map(|name| shared.message_of_group(id, name)).collect();
    let broker = shared.open("default").unwrap().unwrap();
    names.iter().for_each(|name| shared.member(id, name, name));
    let mut writer = Writer::new(&shared);
    writer.shared_messages(SharedMessages { joined: groups.clone(), ..SharedMessages::default() });
    writer.serve_groups();
    while writer.groups.reads_in_steps {
        duties::step(&mut writer);
    }
    assert_eq!((writer.groups.of.len(), writer.groups.changed.len()), (100, 0));
    let settled = groups.iter().map(|group| (*group, at(1))).collect();
    writer.shared_messages(SharedMessages { settled, ..SharedMessages::default() });
    assert_eq!(writer.groups.changed.len(), 100);
    let (done, _answers) = std::sync::mpsc::sync_channel(names.len());
    let purge = |name: &String| {
        let (broker, client, was_online, done) = (broker.clone(), name.as_str().into(), false, done.clone());
        let write = Write::Purge(Box::new(Purge { broker, client, was_online, done }));
        Job { write, ack: None }
    };
    let mut purges: Vec<Job> = names.iter().map(purge).collect();
    // A transaction ends early when the machine is busy.
    while !purges.is_empty() {
        writer.write(purges);
        purges = std::mem::take(&mut writer.unfinished);
    }
    // Late mail of members.
    let returned = groups.iter().map(|group| (*group, at(1))).collect();
    writer.shared_messages(SharedMessages { returned, ..SharedMessages::default() });
    (1..10).for_each(|second| writer.tick(1_000 * second));
    assert_eq!((writer.groups.of.len(), writer.groups.changed.len()), (0, 0));
    assert!(writer.groups.reading.is_empty());
}
