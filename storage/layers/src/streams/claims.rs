//! Shared subscriptions with members on several pods. A pod claims messages before it delivers them to its members, so each message
//! goes to one pod. Messages that a pod gives back, or had claimed when it died, become free for other pods.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Buf, BufMut, Bytes};
use millrace_storage::{RangeOptions, Read, Transaction, TransactionOption, after};

use super::trim::trim_part;
use super::{GroupProgress, ReadLimit, StreamEntry, StreamId, StreamSource, group, keys, read, row};
use crate::{
    BrokerId,
    error::LayerResult,
    position::{Position, position},
    tuple::Elements,
};

#[derive(Debug, Default)]
pub struct Claimed {
    /// Messages that a pod has given back, then new ones in order.
    pub entries: Vec<StreamEntry>,
    pub more: bool,
}

/// Claims messages of a group's stream for the members on a pod.
pub async fn claim(
    tx: &Transaction,
    broker: BrokerId,
    stream: StreamId,
    pod: &[u8],
    limit: ReadLimit,
) -> LayerResult<Claimed> {
    if row::stream(tx, broker, stream, Read::Snapshot).await?.is_none() {
        return Ok(Claimed::default());
    }
    let mut claimed = free(tx, broker, stream, limit).await?;
    let room = limit.entries.saturating_sub(claimed.entries.len());
    claimed.more |= room == 0;
    if !claimed.more {
        let progress = head(tx, broker, stream).await?;
        let sources = [StreamSource { stream, since: 0 }];
        let limit = ReadLimit { entries: room, ..limit };
        let batch = read(tx, broker, &sources, progress.cursor, limit).await?;
        claimed.more = batch.more;
        if let Some(last) = batch.entries.last() {
            tx.set(keys::head(broker, stream), positions([last.position]))?;
            // Acknowledged while one pod alone served the group.
            let is_new = |entry: &StreamEntry| !progress.acknowledged.contains(entry.position);
            claimed.entries.extend(batch.entries.into_iter().filter(is_new));
        }
    }
    if !claimed.entries.is_empty() {
        let mut all = own(tx, broker, stream, pod).await?;
        all.extend(claimed.entries.iter().map(|entry| entry.position));
        tx.set(keys::claims(broker, stream).bytes(pod), positions(all))?;
        tx.set(keys::claims_of(pod).uint(broker).uint(stream), Bytes::new())?;
    }
    Ok(claimed)
}

/// The rest of a group after [`settle`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SettledClaims {
    /// The outstanding messages that the pod still owns.
    pub outstanding: Vec<Position>,
    /// There are more messages to trim than one transaction may: settle again, with `goes_on`.
    pub more: bool,
}

/// Reduces the claims of a pod to the `outstanding` messages of its members, and trims the stream up to the first
/// message that is not acknowledged. Claimed messages that are neither outstanding nor acknowledged become free, also
/// those of a claim whose answer was lost. Returns the outstanding messages that the pod still owns: another pod may
/// have freed the others because it took this pod for dead.
pub async fn settle(
    tx: &Transaction,
    broker: BrokerId,
    stream: StreamId,
    pod: &[u8],
    outstanding: &[Position],
    acknowledged: &[Position],
    goes_on: bool,
) -> LayerResult<SettledClaims> {
    tx.set_option(TransactionOption::FreesSpace);
    let (outstanding, acknowledged): (BTreeSet<_>, BTreeSet<_>) =
        (outstanding.iter().collect(), acknowledged.iter().collect());
    let all = own(tx, broker, stream, pod).await?;
    let (outstanding, others): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|position| outstanding.contains(position));
    for position in others.into_iter().filter(|position| !acknowledged.contains(position)) {
        tx.set(keys::free(broker, stream).position(position), Bytes::new())?;
    }
    set_own(tx, broker, stream, pod, &outstanding)?;
    let low = lowest(tx, broker, stream).await?;
    let progress = group::progress(tx, broker, stream).await?;
    let moved = low.filter(|cursor| *cursor > progress.cursor);
    if let Some(cursor) = moved {
        let mut acknowledged = progress.acknowledged;
        acknowledged.cut(cursor);
        group::set_progress(tx, broker, stream, &GroupProgress { cursor, acknowledged }).await?;
    }
    let through = moved.or(goes_on.then_some(progress.cursor));
    let more = match through {
        Some(through) => trim_part(tx, broker, stream, through).await?.more,
        None => false,
    };
    Ok(SettledClaims { outstanding, more })
}

/// Removes claims of messages that now belong to the session of a member. Returns false, and removes none, when the pod
/// no longer owns one of them, unless the group has ended.
pub async fn keep(
    tx: &Transaction,
    pod: &[u8],
    kept: &BTreeMap<(BrokerId, StreamId), Vec<Position>>,
) -> LayerResult<bool> {
    let mut left = Vec::with_capacity(kept.len());
    for ((broker, stream), positions) in kept {
        let mut all = own(tx, *broker, *stream, pod).await?;
        if !positions.iter().all(|position| all.contains(position)) {
            // A group that has ended, because its last member unsubscribed, has no claims and no other member.
            if row::stream(tx, *broker, *stream, Read::Serializable).await?.is_none() {
                continue;
            }
            return Ok(false);
        }
        all.retain(|position| !positions.contains(position));
        left.push((*broker, *stream, all));
    }
    for (broker, stream, all) in left {
        set_own(tx, broker, stream, pod, &all)?;
    }
    Ok(true)
}

/// Returns the streams whose claims are freed; none when no claim is left.
pub async fn free_all(tx: &Transaction, pod: &[u8], limit: usize) -> LayerResult<Vec<(BrokerId, StreamId)>> {
    let prefix = keys::claims_of(pod);
    let page = tx.range(prefix.children(), RangeOptions::first(limit)).await?;
    let mut streams = Vec::with_capacity(page.items.len());
    for item in page.items {
        let mut elements = Elements::after(&prefix, &item.key)?;
        let (broker, stream) = (elements.uint()?, elements.uint()?);
        for position in own(tx, broker, stream, pod).await? {
            tx.set(keys::free(broker, stream).position(position), Bytes::new())?;
        }
        set_own(tx, broker, stream, pod, &[])?;
        tx.clear(item.key)?;
        streams.push((broker, stream));
    }
    Ok(streams)
}

/// The messages of a stream that a pod has claimed, and that no session has.
pub async fn claimed_by(
    tx: &Transaction,
    broker: BrokerId,
    stream: StreamId,
    pod: &[u8],
) -> LayerResult<Vec<Position>> {
    own(tx, broker, stream, pod).await
}

/// Whether a pod has claims; the answer still holds at the commit.
pub async fn has_any(tx: &Transaction, pod: &[u8]) -> LayerResult<bool> {
    let page = tx.range(keys::claims_of(pod).children(), RangeOptions::first(1)).await?;
    Ok(!page.items.is_empty())
}

pub(super) fn clear(tx: &Transaction, broker: BrokerId, stream: StreamId) -> LayerResult<()> {
    tx.clear(keys::head(broker, stream))?;
    tx.clear_range(keys::free(broker, stream).children())?;
    Ok(tx.clear_range(keys::claims(broker, stream).children())?)
}

async fn free(
    tx: &Transaction,
    broker: BrokerId,
    stream: StreamId,
    limit: ReadLimit,
) -> LayerResult<Claimed> {
    let prefix = keys::free(broker, stream);
    let page = tx.range(prefix.children(), RangeOptions::first(limit.entries)).await?;
    let sources = [StreamSource { stream, since: 0 }];
    let (mut claimed, mut bytes) = (Claimed { entries: Vec::new(), more: page.more }, 0);
    for item in page.items {
        if bytes > limit.bytes {
            claimed.more = true;
            break;
        }
        let position = Elements::after(&prefix, &item.key)?.position()?;
        let one = ReadLimit { entries: 1, ..limit };
        let batch = read(tx, broker, &sources, position.before(), one).await?;
        let found = batch.entries.into_iter().filter(|entry| entry.position == position);
        claimed.entries.extend(found.inspect(|entry| bytes += entry.body.len()));
        tx.clear(item.key)?;
    }
    Ok(claimed)
}

/// The position up to which messages were claimed, and later ones that were acknowledged while one pod alone served the
/// group.
async fn head(tx: &Transaction, broker: BrokerId, stream: StreamId) -> LayerResult<GroupProgress> {
    let progress = group::progress(tx, broker, stream).await?;
    match tx.get(keys::head(broker, stream), Read::Serializable).await? {
        Some(mut value) => Ok(GroupProgress { cursor: position(&mut value)?, ..progress }),
        None => Ok(progress),
    }
}

/// All messages up to here are acknowledged; `None` before the first claim. A snapshot suffices, because a message that is
/// acknowledged stays so.
async fn lowest(tx: &Transaction, broker: BrokerId, stream: StreamId) -> LayerResult<Option<Position>> {
    let Some(mut head) = tx.get(keys::head(broker, stream), Read::Snapshot).await? else { return Ok(None) };
    let mut low = position(&mut head)?;
    let prefix = keys::free(broker, stream);
    let first = tx.range(prefix.children(), RangeOptions::first(1).snapshot()).await?;
    if let Some(item) = first.items.first() {
        low = low.min(Elements::after(&prefix, &item.key)?.position()?.before());
    }
    // A page has the claims of about 88 pods that each have 1,000 messages.
    let mut range = keys::claims(broker, stream).children();
    loop {
        let page = tx.range(range.clone(), RangeOptions::first(CLAIMS_PAGE).snapshot()).await?;
        let last = page.items.last().map(|item| item.key.clone());
        for item in page.items {
            let claimed = read_positions(item.value)?;
            low = claimed.into_iter().map(Position::before).fold(low, Position::min);
        }
        match last.filter(|_| page.more) {
            Some(last) => range.begin = after(&last),
            None => return Ok(Some(low)),
        }
    }
}

const CLAIMS_PAGE: usize = 1_000;

async fn own(tx: &Transaction, broker: BrokerId, stream: StreamId, pod: &[u8]) -> LayerResult<Vec<Position>> {
    let value = tx.get(keys::claims(broker, stream).bytes(pod), Read::Serializable).await?;
    value.map_or(Ok(Vec::new()), read_positions)
}

fn set_own(
    tx: &Transaction,
    broker: BrokerId,
    stream: StreamId,
    pod: &[u8],
    outstanding: &[Position],
) -> LayerResult<()> {
    let key = keys::claims(broker, stream).bytes(pod);
    if outstanding.is_empty() {
        tx.clear(keys::claims_of(pod).uint(broker).uint(stream))?;
        return Ok(tx.clear(key)?);
    }
    Ok(tx.set(key, positions(outstanding.iter().copied()))?)
}

fn positions(all: impl IntoIterator<Item = Position>) -> Vec<u8> {
    let mut value = Vec::new();
    all.into_iter().for_each(|position| value.put_slice(&position.0));
    value
}

fn read_positions(mut value: Bytes) -> LayerResult<Vec<Position>> {
    let mut all = Vec::with_capacity(value.len() / Position::LEN);
    while value.has_remaining() {
        all.push(position(&mut value)?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use millrace_storage::Database;
    use proptest::prelude::*;

    use super::super::tests::{publish, text, with};
    use super::*;
    use crate::positions::Positions;
    use crate::streams::totals;
    use crate::testing::{BROKER, rows, run};

    const PODS: [&[u8]; 3] = [b"one", b"two", b"three"];

    fn with_five_messages() -> Database {
        let database = with([(1, 1)]);
        for _ in 0..5 {
            publish(&database, &[(1, 0)], 1, &text("x"));
        }
        database
    }

    fn claim_of(database: &Database, pod: &[u8], entries: usize) -> Vec<Position> {
        let limit = ReadLimit { entries, bytes: usize::MAX };
        let claimed = run(database, async |tx| claim(tx, BROKER, 1, pod, limit).await);
        claimed.entries.iter().map(|entry| entry.position).collect()
    }

    #[test]
    fn a_message_is_with_one_pod_until_it_is_given_back_or_the_pod_is_dead() {
        let database = with_five_messages();
        let one = claim_of(&database, PODS[0], 2);
        let two = claim_of(&database, PODS[1], 10);
        assert_eq!((one.len(), two.len()), (2, 3));
        assert!(claim_of(&database, PODS[2], 10).is_empty());
        // One of two is acknowledged, the other given back.
        let left = run(&database, async |tx| settle(tx, BROKER, 1, PODS[0], &[], &one[..1], false).await);
        assert!(left.outstanding.is_empty());
        assert_eq!(claim_of(&database, PODS[2], 10), one[1..]);
        // The third keeps it for good, then nobody else has it; the dead one's are free.
        let kept = BTreeMap::from([((BROKER, 1), one[1..].to_vec())]);
        assert!(run(&database, async |tx| keep(tx, PODS[2], &kept).await));
        assert!(!run(&database, async |tx| keep(tx, PODS[2], &kept).await));
        assert!(run(&database, async |tx| has_any(tx, PODS[1]).await));
        assert_eq!(run(&database, async |tx| free_all(tx, PODS[1], 10).await), [(BROKER, 1)]);
        assert!(!run(&database, async |tx| has_any(tx, PODS[1]).await));
        assert!(run(&database, async |tx| free_all(tx, PODS[1], 10).await).is_empty());
        let late = run(&database, async |tx| settle(tx, BROKER, 1, PODS[1], &two, &[], false).await);
        assert!(late.outstanding.is_empty(), "it was taken for dead");
        assert_eq!(claim_of(&database, PODS[0], 10), two);
        run(&database, async |tx| settle(tx, BROKER, 1, PODS[0], &[], &two, false).await);
        let left = run(&database, async |tx| totals(tx, BROKER, 1).await);
        assert_eq!(left.entries, 0, "all of it is trimmed");
    }

    #[test]
    fn free_messages_beyond_the_bytes_of_a_claim_are_claimed_next() {
        let database = with_five_messages();
        let all = claim_of(&database, PODS[0], 10);
        run(&database, async |tx| free_all(tx, PODS[0], 10).await);
        let limit = ReadLimit { entries: 10, bytes: 1 };
        let mut claimed = Vec::new();
        loop {
            let page = run(&database, async |tx| claim(tx, BROKER, 1, PODS[1], limit).await);
            assert!(page.entries.len() <= 2, "{} entries", page.entries.len());
            claimed.extend(page.entries.iter().map(|entry| entry.position));
            if !page.more {
                break;
            }
        }
        assert_eq!(claimed, all);
    }

    #[test]
    fn a_large_backlog_of_acknowledged_messages_is_removed_in_parts() {
        const COUNT: usize = 1_500;
        let database = with([(1, 1)]);
        for _ in 0..COUNT {
            publish(&database, &[(1, 0)], 1, &text("x"));
        }
        let mut all = Vec::new();
        while all.len() < COUNT {
            all.extend(claim_of(&database, PODS[0], 200));
        }
        let left = || run(&database, async |tx| totals(tx, BROKER, 1).await).entries;
        let mut settled = run(&database, async |tx| settle(tx, BROKER, 1, PODS[0], &[], &all, false).await);
        assert!(settled.more && left() > COUNT as u64 / 2, "{} messages", left());
        let mut rounds = 0;
        while settled.more {
            settled = run(&database, async |tx| settle(tx, BROKER, 1, PODS[0], &[], &[], true).await);
            rounds += 1;
        }
        assert_eq!((left(), rounds), (0, 2));
    }

    #[test]
    fn messages_acknowledged_while_one_pod_served_the_group_are_never_claimed() {
        let database = with([(1, 1)]);
        for _ in 0..6 {
            publish(&database, &[(1, 0)], 1, &text("x"));
        }
        let all = run(&database, async |tx| {
            let limit = ReadLimit { entries: 10, bytes: usize::MAX };
            Ok(read(tx, BROKER, &[StreamSource { stream: 1, since: 0 }], Position::MIN, limit).await?.entries)
        });
        let all: Vec<Position> = all.iter().map(|entry| entry.position).collect();
        let acknowledged: Positions = [all[1], all[4]].into_iter().collect();
        let progress = GroupProgress { cursor: Position::MIN, acknowledged };
        run(&database, async |tx| group::set_progress(tx, BROKER, 1, &progress).await);
        assert_eq!(claim_of(&database, PODS[0], 1), all[..1]);
        // The rest is claimed after a part was acknowledged.
        run(&database, async |tx| settle(tx, BROKER, 1, PODS[0], &[], &all[..1], false).await);
        assert_eq!(claim_of(&database, PODS[1], 10), [all[2], all[3], all[5]]);
    }

    #[test]
    fn what_the_last_of_many_pods_has_is_not_trimmed() {
        let database = with([(1, 1)]);
        for _ in 0..2 {
            publish(&database, &[(1, 0)], 1, &text("x"));
        }
        let all = claim_of(&database, PODS[0], 2);
        // More than one page of claims, and the oldest message is with the pod that is read last.
        for pod in 0..100u32 {
            let claims = vec![Position::MAX; 1_000];
            run(&database, async |tx| set_own(tx, BROKER, 1, &pod.to_be_bytes(), &claims));
        }
        run(&database, async |tx| set_own(tx, BROKER, 1, b"zzzz", &all[..1]));
        run(&database, async |tx| settle(tx, BROKER, 1, PODS[0], &[], &all[1..], false).await);
        let low = run(&database, async |tx| lowest(tx, BROKER, 1).await);
        assert_eq!(low, Some(all[0].before()));
        let left = run(&database, async |tx| totals(tx, BROKER, 1).await);
        assert_eq!(left.entries, 2, "a member has the first one");
    }

    #[test]
    fn nothing_is_left_of_claims_when_the_stream_goes() {
        let database = with([(1, 1)]);
        publish(&database, &[(1, 0)], 1, &text("x"));
        publish(&database, &[(1, 0)], 1, &text("y"));
        let claimed = claim_of(&database, PODS[0], 10);
        run(&database, async |tx| settle(tx, BROKER, 1, PODS[0], &claimed[..1], &[], false).await);
        let kept = BTreeMap::from([((BROKER, 1), claimed[1..].to_vec())]);
        assert!(!run(&database, async |tx| keep(tx, PODS[0], &kept).await), "it was given back");
        run(&database, async |tx| super::super::drop_stream(tx, BROKER, 1, 1));
        assert!(run(&database, async |tx| keep(tx, PODS[0], &kept).await), "it can be with nobody else");
        let all = super::super::DroppedFrom::default();
        run(&database, async |tx| super::super::sweep_dropped(tx, BROKER, &all, 10).await);
        assert!(claim_of(&database, PODS[1], 10).is_empty());
        run(&database, async |tx| free_all(tx, PODS[0], 10).await);
        let left = rows(&database);
        assert!(
            left.iter().all(|row| !row.key.windows(2).any(|part| part == b"gc" || part == b"gf")),
            "{left:?}"
        );
    }

    #[derive(Clone, Debug)]
    enum Step {
        Publish,
        Claim(usize, usize),
        /// Acknowledges, or gives back, some of what the pod has.
        Settle(usize, u8, u8),
        Die(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => Just(Step::Publish),
            3 => (0..3usize, 1..4usize).prop_map(|(pod, entries)| Step::Claim(pod, entries)),
            3 => (0..3usize, any::<u8>(), any::<u8>()).prop_map(|(pod, done, back)| Step::Settle(pod, done, back)),
            1 => (0..3usize).prop_map(Step::Die),
        ];
        proptest::collection::vec(step, 1..60)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn each_message_is_with_one_pod_at_most_and_comes_until_it_is_acknowledged(steps in steps()) {
            let database = with([(1, 1)]);
            let mut published = 0;
            let mut held: BTreeMap<usize, BTreeSet<Position>> = BTreeMap::new();
            let mut done = BTreeSet::new();
            let take = |held: &mut BTreeMap<usize, BTreeSet<Position>>, done: &BTreeSet<Position>, pod: usize, entries| {
                let claimed = claim_of(&database, PODS[pod], entries);
                for position in &claimed {
                    assert!(!done.contains(position), "again after it was acknowledged");
                    assert!(held.values().all(|others| !others.contains(position)), "with two");
                }
                held.entry(pod).or_default().extend(&claimed);
                claimed.len()
            };
            for step in steps {
                match step {
                    Step::Publish => {
                        publish(&database, &[(1, 0)], 1, &text("x"));
                        published += 1;
                    }
                    Step::Claim(pod, entries) => drop(take(&mut held, &done, pod, entries)),
                    Step::Settle(pod, acknowledged, back) => {
                        let all: Vec<Position> = held.entry(pod).or_default().iter().copied().collect();
                        let (mut outstanding, mut settled) = (Vec::new(), Vec::new());
                        for (number, position) in all.into_iter().enumerate() {
                            match () {
                                () if acknowledged >> (number % 8) & 1 == 1 => settled.push(position),
                                // Given back.
                                () if back >> (number % 8) & 1 == 1 => {}
                                () => outstanding.push(position),
                            }
                        }
                        let left = run(&database, async |tx| settle(tx, BROKER, 1, PODS[pod], &outstanding, &settled, false).await);
                        let outstanding: BTreeSet<_> = outstanding.into_iter().collect();
                        prop_assert_eq!(&left.outstanding.into_iter().collect::<BTreeSet<_>>(), &outstanding);
                        done.extend(settled);
                        held.insert(pod, outstanding);
                    }
                    Step::Die(pod) => {
                        run(&database, async |tx| free_all(tx, PODS[pod], 10).await);
                        held.remove(&pod);
                    }
                }
            }
            while take(&mut held, &done, 0, 3) > 0 {}
            let seen = held.values().flatten().count() + done.len();
            prop_assert_eq!(seen, published);
        }
    }
}
