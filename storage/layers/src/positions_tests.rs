use std::collections::BTreeSet;

use millrace_storage::Versionstamp;
use proptest::prelude::*;

use super::*;

fn at(version: u64, place: u16) -> Position {
    Position::new(Versionstamp::new(version, 0), place)
}

fn read(value: Vec<u8>) -> (Position, Positions) {
    Positions::decode(value.into()).unwrap()
}

#[test]
fn one_open_message_and_a_million_acknowledged_ones_take_a_few_bytes() {
    let open = [at(7, 3), at(500_000, 1)];
    let mut acknowledged = Positions::default();
    acknowledged.add_range(open[0].before(), at(1_000_007, 3));
    let acknowledged = acknowledged.without(&open);
    let value = acknowledged.encode(open[0].before());
    assert!(value.len() < 50, "{}", value.len());
    assert_eq!(read(value), (open[0].before(), acknowledged.clone()));
    for (position, is_in) in [
        (at(7, 2), false),
        (at(7, 3), false),
        (at(7, 4), true),
        (at(499_999, 9), true),
        (at(500_000, 1), false),
        (at(500_000, 2), true),
        (at(1_000_007, 3), true),
        (at(1_000_007, 4), false),
    ] {
        assert_eq!(acknowledged.contains(position), is_in, "{position:?}");
    }
    // A reader need not read what is in a range.
    assert_eq!(acknowledged.skip(at(7, 3)), at(500_000, 1).before());
    assert_eq!(acknowledged.skip(at(7, 2)), at(7, 2));
    assert_eq!(acknowledged.skip(at(600_000, 0)), at(1_000_007, 3));
    assert_eq!(acknowledged.skip(at(1_000_007, 3)), at(1_000_007, 3));
}

#[test]
fn a_row_of_single_positions_is_read_as_before() {
    let mut value = at(5, 0).0.to_vec();
    assert_eq!(read(value.clone()), (at(5, 0), Positions::default()));
    let positions = [at(6, 1), at(6, 2), at(9, 0), at(12, 4)];
    positions.iter().for_each(|position| value.extend_from_slice(&position.0));
    let (cursor, acknowledged) = read(value);
    assert_eq!((cursor, acknowledged.len()), (at(5, 0), 3));
    assert!(positions.iter().all(|position| acknowledged.contains(*position)));
    assert!(!acknowledged.contains(at(6, 3)) && !acknowledged.contains(at(5, 0)));
}

#[test]
fn a_value_of_the_store_holds_the_most_that_can_be_open() {
    // As many as a session may have unacknowledged, each between two acknowledged messages and far from the next.
    let open: Vec<Position> = (1..=6_000).map(|number| at(number * 5_000_000, 1)).collect();
    let mut acknowledged = Positions::default();
    acknowledged.add_range(open[0].before(), at(u64::from(u32::MAX) << 10, 0));
    let acknowledged = acknowledged.without(&open);
    let value = acknowledged.encode(open[0].before());
    assert!(value.len() <= 100_000, "{}", value.len());
    assert_eq!(read(value).1, acknowledged);
}

#[test]
fn what_a_value_cannot_hold_is_left_out_from_the_end() {
    let mut acknowledged = Positions::default();
    for number in 1..=50_000 {
        acknowledged.add(at(number << 20, 7));
    }
    let value = acknowledged.encode(Position::MIN);
    assert!(value.len() <= 100_000, "{}", value.len());
    let (_, kept) = read(value);
    assert!(kept.len() > 5_000);
    assert!(kept.contains(at(1 << 20, 7)) && !kept.contains(at(50_000 << 20, 7)));
}

#[test]
fn a_broken_row_is_an_error() {
    let broken: [&[u8]; 4] = [&[2], &[1, 0x80], &[1, 1, 0x80], &[1; 20]];
    for rest in broken {
        let mut value = at(5, 0).0.to_vec();
        value.extend_from_slice(rest);
        let read = Positions::decode(value.into());
        assert_eq!(read.is_err(), rest != [1; 20], "{rest:?}");
    }
    assert!(Positions::decode(Bytes::from_static(b"short")).is_err());
}

#[derive(Clone, Debug)]
enum Step {
    Add(u16),
    AddRange(u16, u16),
    Cut(u16),
    Without(BTreeSet<u16>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..200_u16).prop_map(Step::Add),
        2 => (0..200_u16, 0..20_u16).prop_map(|(after, more)| Step::AddRange(after, after + more)),
        1 => (0..200_u16).prop_map(Step::Cut),
        1 => proptest::collection::btree_set(0..220_u16, 0..20).prop_map(Step::Without),
    ];
    proptest::collection::vec(step, 1..60)
}

proptest! {
    #[test]
    fn it_is_the_set_of_its_positions_and_comes_back_from_a_row(steps in steps()) {
        let (mut acknowledged, mut model) = (Positions::default(), BTreeSet::new());
        let (mut cursor, of) = (Position::MIN, |number: u16| at(1, number));
        for step in steps {
            match step {
                Step::Add(number) => {
                    acknowledged.add(of(number));
                    model.insert(of(number));
                }
                Step::AddRange(after, through) => {
                    acknowledged.add_range(of(after), of(through));
                    model.extend((after + 1..=through).map(of));
                }
                Step::Cut(number) => {
                    cursor = cursor.max(of(number));
                    acknowledged.cut(cursor);
                    model.retain(|position| *position > cursor);
                }
                Step::Without(open) => {
                    let open: Vec<Position> = open.into_iter().map(of).collect();
                    acknowledged = acknowledged.without(&open);
                    model.retain(|position| !open.contains(position));
                }
            }
            prop_assert!((0..230).all(|number| acknowledged.contains(of(number)) == model.contains(&of(number))));
            let gaps = acknowledged.ranges.windows(2).all(|pair| pair[0].end < pair[1].start);
            prop_assert!(gaps && acknowledged.ranges.iter().all(|range| !range.is_empty()));
        }
        acknowledged.cut(cursor);
        prop_assert_eq!(read(acknowledged.encode(cursor)), (cursor, acknowledged));
    }
}
