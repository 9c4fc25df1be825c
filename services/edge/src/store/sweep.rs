//! Work that becomes due by time: delayed wills, expired sessions, and connections that an earlier process left open.
//! Each function does one transaction, see [`super::duties`].

use std::cell::Cell;

use bytes::Bytes;
use futures_util::future::join_all;
use millrace_layers::LayerError;
use millrace_layers::due::{self, Due, DueRange, SHARDS};
use millrace_layers::pods::{self, Pod};
use millrace_layers::sessions::{self, OwnedSession, SessionId};
use millrace_storage::{Read, TransactionOption};

use super::apply::Applier;
use super::due_turns::due_here;
use super::duties::{Beside, Duty};
use super::writer::{CONFLICTS, Writer, is_contention, is_hopeless, may_pass};

/// Sessions that are ended together, before the transaction checks whether it is full.
const TOGETHER: usize = 5;
/// A due entry that cannot be settled at all is tried again after this time.
const PUT_OFF_MS: u64 = 3_600_000;

pub(super) fn due(writer: &mut Writer<'_>) {
    let now_ms = writer.shared.clock.unix_now_ms();
    let begins = writer.duties.passed.begins();
    // All shards in one request, because a store across a network takes time for each.
    let asked = writer.shared.layers.run(async |tx| {
        let rests = (0..SHARDS).zip(&begins).map(|(shard, from)| {
            let range = DueRange { shard, from: from.as_ref(), until_ms: now_ms };
            due::list_due(&tx, range, 1)
        });
        join_all(rests).await.into_iter().collect::<Result<Vec<_>, _>>()
    });
    let Ok(next) = writer.wait(asked) else { return };
    for due in next.iter().flatten() {
        writer.duties.passed.found(due);
        writer.duties.add(Duty::Due(due.shard(), now_ms));
    }
}

/// Settles some sessions that are due in a shard, and returns the rest. A failed step is tried again with fewer
/// sessions, and one with a single session in the next round.
pub(super) fn settle_some(writer: &mut Writer<'_>, shard: u8, now_ms: u64) -> Option<Duty> {
    let sessions = writer.duties.sessions();
    let due = match due_here(writer, shard, now_ms, sessions) {
        Ok(due) if due.is_empty() => return None,
        Ok(due) => due,
        Err(error) => {
            tracing::warn!(%error, "a will or an expired session waits, because the store did not settle it; the next round tries again");
            return None;
        }
    };
    // Opening a broker within the transaction would make jobs wait for other pods, so `are_open` begins it and the step comes
    // later. If the store cannot say, the step continues, fails and reports why.
    if !writer.shared.are_open(due.iter().map(|due| due.broker)).unwrap_or(true) {
        writer.duties.continue_later();
        return Some(Duty::Due(shard, now_ms));
    }
    let conflicts_max = conflicts_max(sessions, CONFLICTS);
    let swept = writer.transact(&[], conflicts_max, &async |applier| {
        applier.tx.set_option(TransactionOption::FreesSpace);
        settle_listed(applier, &due, now_ms).await
    });
    let error = match swept {
        Ok((applied, stamp)) => {
            writer.swept(applied, stamp);
            let is_done = list_due(writer, shard, now_ms, 1).is_ok_and(|due| due.is_empty());
            return (!is_done).then_some(Duty::Due(shard, now_ms));
        }
        Err(error) => error,
    };
    match writer.duties.halve(error, sessions) {
        Ok(()) => Some(Duty::Due(shard, now_ms)),
        Err(error) if is_hopeless(&error) && settle_first(writer, &due[..1], now_ms, &error) => {
            Some(Duty::Due(shard, now_ms))
        }
        Err(error) => {
            tracing::warn!(%error, "a will or an expired session waits, because the store did not settle it; the next round tries again");
            let goes_on = writer.shared.is_shared && is_contention(&error);
            goes_on.then(|| {
                writer.duties.turns.put_off(due[0].broker, writer.shared.clock.now());
                Duty::Due(shard, now_ms)
            })
        }
    }
}

/// Settles due sessions in a transaction of jobs, see [`super::duties`]. A full disk refuses such a transaction: only steps of
/// their own may use the space that is reserved for removals.
pub(super) async fn settle_beside(applier: &Applier<'_>, beside: Option<&Beside>) -> Result<(), LayerError> {
    let Some(beside) = beside.filter(|_| !applier.is_full()) else { return Ok(()) };
    let changes = applier.applied().changes.len();
    applier.applied().changes_by_jobs = Some(changes);
    let began_us = applier.shared.clock.micros();
    let rest = DueRange { shard: beside.shard, from: beside.from.as_ref(), until_ms: beside.now_ms };
    settle(applier, rest, beside.sessions).await?;
    beside.took_us.set(applier.shared.clock.micros() - began_us);
    Ok(())
}

impl Writer<'_> {
    pub(super) fn take_along(&mut self) -> Option<Beside> {
        let shared = self.shared;
        let beside = self.duties.take_along(shared.clock.micros(), self.commit_times.commit_us())?;
        let Beside { shard, now_ms, sessions, .. } = beside;
        let due = list_due(self, shard, now_ms, sessions).ok()?;
        if due.is_empty() {
            self.duties.end_due(shard);
            return None;
        }
        let are_open = shared.are_open(due.iter().map(|due| due.broker)).unwrap_or(false);
        are_open.then_some(Beside { sessions: due.len(), ..beside })
    }
}

/// Conflicts, and refusals as too old, after which a step fails. A step of several sessions is not repeated as it is,
/// because that would take as long again.
fn conflicts_max(sessions: usize, alone: u32) -> u32 {
    if sessions > 1 { 1 } else { alone }
}

/// Settles a due entry without publishing its will, because the store can never hold what the entry
/// writes, and all later ones would wait for it. If that fails too, as for a session that cannot be read, the entry is
/// put off; returns false when the store takes neither now.
fn settle_first(writer: &mut Writer<'_>, first: &[Due], now_ms: u64, why: &LayerError) -> bool {
    let settled = writer.transact(&[], CONFLICTS, &async |applier| {
        applier.tx.set_option(TransactionOption::FreesSpace);
        let first = due::take_listed(applier.tx, first).await?;
        settle_all(applier, first, now_ms, Some(why)).await
    });
    match settled {
        Ok((applied, stamp)) => {
            writer.swept(applied, stamp);
            return true;
        }
        Err(error) if !is_hopeless(&error) => return false,
        Err(_) => {}
    }
    let put_off = writer.transact(&[], CONFLICTS, &async |applier| {
        applier.tx.set_option(TransactionOption::FreesSpace);
        for due in due::take_listed(applier.tx, first).await? {
            due::schedule(applier.tx, &Due { at_ms: now_ms + PUT_OFF_MS, ..due })?;
        }
        Ok(())
    });
    if put_off.is_ok() {
        tracing::error!(error = %why, "a session that is due cannot be ended; it is tried again in an hour");
    }
    put_off.is_ok()
}

pub(super) fn list_due(
    writer: &mut Writer<'_>,
    shard: u8,
    now_ms: u64,
    limit: usize,
) -> Result<Vec<Due>, LayerError> {
    let last = writer.duties.passed.last(shard);
    let rest = DueRange { shard, from: last.as_ref(), until_ms: now_ms };
    let due = writer.shared.layers.run(async |tx| due::list_due(&tx, rest, limit).await);
    writer.wait(due)
}

async fn settle_listed(applier: &Applier<'_>, due: &[Due], now_ms: u64) -> Result<(), LayerError> {
    for some in due.chunks(TOGETHER) {
        let taken = due::take_listed(applier.tx, some).await?;
        settle_all(applier, taken, now_ms, None).await?;
        applier.applied().settled = some.last().cloned();
        if applier.is_full() {
            break;
        }
    }
    Ok(())
}

/// The same for those that a transaction of jobs takes along: a session may have a thousand filters.
async fn settle(applier: &Applier<'_>, range: DueRange<'_>, sessions: usize) -> Result<(), LayerError> {
    let (mut settled, mut last) = (0, range.from.cloned());
    while settled == 0 || settled < sessions && !applier.is_full() {
        let rest = DueRange { from: last.as_ref(), ..range };
        let all = due::take_due(applier.tx, rest, TOGETHER.min(sessions - settled)).await?;
        let Some(taken) = all.last() else { break };
        settled += all.len();
        last = Some(taken.clone());
        settle_all(applier, all, range.until_ms, None).await?;
    }
    applier.applied().settled = last;
    Ok(())
}

/// `wills_dropped`: why no will is published.
async fn settle_all(
    applier: &Applier<'_>,
    all: Vec<Due>,
    now_ms: u64,
    wills_dropped: Option<&LayerError>,
) -> Result<(), LayerError> {
    applier.shared.open_all(all.iter().map(|due| due.broker))?;
    for due in all {
        let Some(broker) = applier.shared.open_by_id(due.broker)? else { continue };
        // Before the session's filters are removed below.
        applier.catch_up(&[&broker]).await?;
        let settled = sessions::settle(applier.tx, &due, now_ms).await?;
        match (settled.will, wills_dropped) {
            (Some(_), Some(why)) => applier.applied().wills_dropped.push((broker.clone(), why.clone())),
            (Some(will), None) => applier.will_of(&broker, (&due.client, &settled.details), &will).await?,
            (None, _) => {}
        }
        if settled.ended {
            applier.applied().count(&broker).ended += 1;
            let ended = settled.subscriptions.iter().map(|subscription| &*subscription.filter);
            applier.note_changes(&broker, ended).await?;
        }
    }
    Ok(())
}

pub(super) enum Abandoned {
    /// Sessions up to this one are done.
    Through(OwnedSession),
    /// Repeat the step with fewer sessions.
    Again,
    All,
    Alive,
    Failed(LayerError),
}

/// Ends the connections of a former owner: their wills are published, and their sessions become offline. Must run
/// before clients connect.
pub(super) fn abandoned(writer: &mut Writer<'_>, owner: &[u8]) -> Result<(), LayerError> {
    let mut after = None;
    loop {
        match abandon_some(writer, owner, None, after.as_ref()) {
            Abandoned::Through(last) => {
                after = Some(last);
                writer.duties.grow();
            }
            Abandoned::Again => {}
            Abandoned::All | Abandoned::Alive => return Ok(()),
            Abandoned::Failed(error) => return Err(error),
        }
    }
}

/// One transaction of [`abandoned`], for sessions after `after`. A session that fails by itself is left out. The owner is the
/// pod `dead`, or an earlier run of this pod.
pub(super) fn abandon_some(
    writer: &mut Writer<'_>,
    owner: &[u8],
    dead: Option<&Pod>,
    after: Option<&OwnedSession>,
) -> Abandoned {
    let sessions = writer.duties.sessions();
    let from = after.map(OwnedSession::id);
    let page = writer.shared.layers.run(async |tx| sessions::of_owner(&tx, owner, from, sessions).await);
    let mut page = match writer.wait(page) {
        Ok(page) => page,
        Err(error) => {
            tracing::error!(%error, "sessions that an ended pod owned could not be read: they stay with it until the next try");
            return Abandoned::Failed(error);
        }
    };
    // At the start nobody waits for the writer.
    let brokers = page.iter().map(|owned| owned.broker);
    if dead.is_some() && !writer.shared.are_open(brokers).unwrap_or(true) {
        writer.duties.continue_later();
        return Abandoned::Again;
    }
    match abandon(writer, owner, dead, &page) {
        Ok(true) => {}
        Ok(false) => return Abandoned::Alive,
        Err(error) => match writer.duties.halve(error, page.len()) {
            Ok(()) => return Abandoned::Again,
            Err(error) if page.len() > 1 => {
                tracing::error!(%error, "sessions that an ended pod owned could not be released: they stay with it until the next try");
                return Abandoned::Failed(error);
            }
            Err(error) if dead.is_some() && is_contention(&error) => {
                tracing::warn!(%error, "sessions of a broker that an ended pod owned wait, because other pods change the same rows; the next scan tries again");
                // The sessions of other brokers come first.
                let broker = page[0].broker + 1;
                return Abandoned::Through(OwnedSession { broker, client: Bytes::new() });
            }
            Err(error) if may_pass(&error) => return Abandoned::Failed(error),
            Err(error) => {
                tracing::error!(%error, "a session that an ended pod owned could not be released and is left out: report it if its client cannot connect");
            }
        },
    }
    page.pop().map_or(Abandoned::All, Abandoned::Through)
}

/// Returns false, and writes nothing, if the pod has renewed its lease meanwhile.
fn abandon(
    writer: &mut Writer<'_>,
    owner: &[u8],
    dead: Option<&Pod>,
    owned: &[OwnedSession],
) -> Result<bool, LayerError> {
    if owned.is_empty() {
        return Ok(true);
    }
    let is_own = dead.is_none();
    let is_alive = Cell::new(false);
    // Nobody else ends the sessions of this pod's earlier run, so it is retried after any number of conflicts.
    let conflicts_max = conflicts_max(owned.len(), if is_own { u32::MAX } else { CONFLICTS });
    let (applied, stamp) = writer.transact(&[], conflicts_max, &async |applier| {
        // A full disk would otherwise keep the sessions from their wills and their expiry until their clients return.
        applier.tx.set_option(TransactionOption::FreesSpace);
        let now_ms = applier.shared.clock.unix_now_ms();
        if let Some(dead) = dead {
            is_alive.set(!pods::is_unchanged(applier.tx, dead).await?);
            if is_alive.get() {
                return Ok(());
            }
        }
        applier.shared.open_all(owned.iter().map(|owned| owned.broker))?;
        // Together, and before all writes: a store across a network takes time for each read, and its client library more of it
        // once it has writes.
        let records =
            owned.iter().map(|one| sessions::get_without_cursor(applier.tx, one.id(), Read::Serializable));
        let records = join_all(records).await.into_iter().collect::<Result<Vec<_>, _>>()?;
        for (one @ OwnedSession { broker, client }, record) in owned.iter().zip(records) {
            let Some(broker) = applier.shared.open_by_id(*broker)? else {
                // The broker was deleted, and its rows with it, except this one.
                sessions::disown(applier.tx, owner, one.id())?;
                continue;
            };
            applier.catch_up(&[&broker]).await?;
            let id = SessionId { broker: broker.id, client };
            if !is_own {
                // The pod may be alive: the notice makes it close the connection.
                let epoch = record.as_ref().map_or(0, |record| record.epoch);
                pods::take_away(applier.tx, owner, id, epoch)?;
            }
            applier.queue_server_lost(&broker, id, record.as_ref(), owner)?;
            let existed = record.is_some();
            let left = sessions::abandon_record(applier.tx, id, record, owner, now_ms).await?;
            if let Some(will) = left.will {
                applier.will_of(&broker, (client, &left.details), &will).await?;
            }
            if is_own {
                // Opening the broker counted its stored offline sessions, when this one still had an owner.
                applier.applied().count(&broker).began += usize::from(existed && !left.ended);
            }
            let ended = left.subscriptions.iter().map(|subscription| &*subscription.filter);
            applier.note_changes(&broker, ended).await?;
        }
        Ok(())
    })?;
    writer.swept(applied, stamp);
    Ok(!is_alive.get())
}

#[cfg(test)]
mod tests {
    use millrace_storage::{KeyRange, RangeOptions, block_on};

    use super::*;
    use crate::broker::Broker;
    use crate::store::StoreContext;
    use crate::store::testing_engine::ScriptedEngine;

    #[test]
    fn the_recovery_of_a_session_that_stays_changes_no_filter() {
        for stays in [true, false] {
            let (shared, id) = StoreContext::with_broker(true);
            shared.group(id, "member", "t");
            let session = SessionId { broker: id, client: b"member" };
            let (owner, will, details) = (Bytes::from_static(b"pod"), None, None);
            let expiry_s = if stays { 9 } else { 0 };
            let attach = sessions::Attach { owner, clean: false, expiry_s, now_ms: 1, will, details };
            shared.run(&async |tx| sessions::attach(tx, session, attach.clone()).await);
            let broker = shared.open("default").unwrap().unwrap();
            let before = broker.streams.matches("t").changes();
            abandoned(&mut Writer::new(&shared), b"pod").unwrap();
            let record = shared.run(&async |tx| sessions::get(tx, session, Read::Snapshot).await);
            assert_eq!(record.is_some(), stays);
            assert_eq!(broker.streams.group_of("member", "t").is_some(), stays);
            if stays {
                assert_eq!(broker.streams.matches("t").changes(), before, "its filters were read");
            }
        }
    }

    #[test]
    fn a_session_that_cannot_be_recovered_now_delays_no_session_of_another_broker() {
        let (engine, database) = ScriptedEngine::new();
        let (shared, _) = StoreContext::with_broker_on(database, true);
        let brokers = ["one", "other"].map(|name| {
            block_on(shared.layers.ensure_broker(name.as_bytes())).unwrap();
            let broker = shared.open(name).unwrap().unwrap();
            broker.stay_open();
            broker
        });
        let dead = Pod { name: Bytes::from_static(b"dead"), until_ms: 1 };
        let client = |broker: &Broker| if broker.id == brokers[0].id { "in conflict" } else { "quiet" };
        shared.run(&async |tx| {
            pods::renew(tx, &dead.name, dead.until_ms)?;
            for broker in &brokers {
                let id = SessionId { broker: broker.id, client: client(broker).as_bytes() };
                let (owner, will, details) = (dead.name.clone(), None, None);
                let attach = sessions::Attach { owner, clean: true, expiry_s: 9, now_ms: 1, will, details };
                sessions::attach(tx, id, attach).await?;
            }
            Ok(())
        });
        let store = engine.store.clone();
        engine.before_each_commit(move || {
            let write = store.run(async |tx, _| {
                let all = tx.range(KeyRange::prefix([]), RangeOptions::first(10_000)).await?.items;
                let is_of_session = |key: &Bytes| key.windows(11).any(|part| part == b"in conflict");
                all.into_iter()
                    .filter(|row| is_of_session(&row.key))
                    .try_for_each(|row| tx.set(row.key, row.value))
            });
            block_on(write).unwrap();
        });
        let mut writer = Writer::new(&shared);
        let mut after = None;
        for _ in 0..20 {
            match abandon_some(&mut writer, &dead.name, Some(&dead), after.as_ref()) {
                Abandoned::Through(last) => after = Some(last),
                Abandoned::Again => {}
                _ => break,
            }
        }
        let is_detached = brokers.each_ref().map(|broker| {
            let id = SessionId { broker: broker.id, client: client(broker).as_bytes() };
            shared.run(&async |tx| sessions::get(tx, id, Read::Snapshot).await).unwrap().is_detached()
        });
        assert_eq!(is_detached, [false, true]);
    }
}
