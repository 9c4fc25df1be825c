//! Reads everything from the store after all pods have ended.

use std::collections::BTreeMap;

use bytes::Bytes;
use millrace_layers::{
    BrokerId, LayerResult, Position, Positions,
    pods::{self, Pod as Lease},
    retained,
    streams::{self, ReadLimit, StreamId, StreamSource, Totals},
    subscriptions,
};
use millrace_storage::{Read, StoreVersion, Versionstamp};

use super::leftovers;
use crate::{
    history::RetainedSeen,
    plan::{AUDIT, CLIENTS, GROUP_MEMBER, HOLDER},
    pod::{Mine, Pod},
    setup::STAYS,
};

const PAGE: ReadLimit = ReadLimit { entries: 50, bytes: 1_000_000 };
const MUCH_LATER_MS: u64 = 1_000_000_000_000;

/// Recovers all pods' sessions, reads every session to its end, and ends it; then nothing may be
/// left. After a failure it may be repeated.
pub(super) async fn look(checker: &Pod) -> LayerResult<()> {
    recover(checker).await?;
    let brokers = checker.brokers.clone();
    for broker in &brokers {
        // The session that sees everything comes last, because taking a session can publish its
        // will.
        for client in CLIENTS.into_iter().chain([GROUP_MEMBER, AUDIT]) {
            let mut mine = checker.attach(*broker, client, STAYS).await?;
            while checker.read_page(&mut mine, PAGE).await? {}
            checker.keep(mine);
        }
        count(checker, *broker).await?;
        note_retained(checker, *broker).await?;
    }
    claim(checker).await?;
    for broker in &brokers {
        for client in [AUDIT, GROUP_MEMBER].into_iter().chain(CLIENTS) {
            if let Some(mine) = checker.mine(*broker, client) {
                checker.detach(mine, true, Some(0)).await?;
            }
        }
    }
    checker.sweep_due_at(checker.world.now_ms() + MUCH_LATER_MS).await?;
    checker.free_claims(&checker.name).await?;
    for broker in brokers {
        checker.clean(broker).await?;
        forget_retained(checker, broker).await?;
    }
    forget_pods(checker).await?;
    leftovers::check(checker).await
}

/// Clears the retained messages, as an empty payload does.
async fn forget_retained(checker: &Pod, broker: BrokerId) -> LayerResult<()> {
    loop {
        let page = checker
            .read(async |tx| {
                let page = retained::all(tx, broker, None, 50, Read::Snapshot).await?;
                for item in &page.items {
                    retained::clear(tx, broker, &item.topic).await?;
                }
                Ok(page)
            })
            .await?;
        if page.items.is_empty() {
            return Ok(());
        }
    }
}

/// Removes the remaining leases and commit markers, as a sweep long after the last write would.
async fn forget_pods(checker: &Pod) -> LayerResult<()> {
    for lease in checker.read(async |tx| pods::list(tx).await).await? {
        checker.read(async |tx| pods::remove(tx, &lease).await).await?;
    }
    let mut from: Option<Bytes> = None;
    loop {
        let tidied = checker
            .read(async |tx| pods::remove_stale_rows(tx, StoreVersion::MAX, from.as_deref(), 10).await)
            .await?;
        match tidied {
            Some(last) => from = Some(last),
            None => return Ok(()),
        }
    }
}

async fn recover(checker: &Pod) -> LayerResult<()> {
    let leases = checker.read(async |tx| pods::list(tx).await).await?;
    let names = checker.history.borrow().pods.clone();
    for name in names.into_iter().filter(|name| name != HOLDER) {
        let known = leases.iter().find(|lease| lease.name == name.as_bytes());
        let lease = known.cloned().unwrap_or(Lease { name: name.into(), until_ms: 0 });
        checker.recover(&lease).await?;
    }
    Ok(())
}

/// Compares the counters of streams and subscribers with a count of the rows.
async fn count(checker: &Pod, broker: BrokerId) -> LayerResult<()> {
    let mut members: BTreeMap<StreamId, u64> = BTreeMap::new();
    let clients = [AUDIT, GROUP_MEMBER].into_iter().chain(CLIENTS);
    let sessions: Vec<Mine> = clients.filter_map(|client| checker.mine(broker, client)).collect();
    for subscribed in sessions.iter().flat_map(|mine| mine.subscriptions.values()) {
        *members.entry(subscribed.stream).or_default() += 1;
    }
    let streams = checker.read(async |tx| streams::list(tx, broker, None, 1_000).await).await?;
    for (stream, row) in streams {
        let name = String::from_utf8_lossy(&row.name).into_owned();
        let source = [StreamSource { stream, since: 0 }];
        let (totals, has, counted) = checker
            .read(async |tx| {
                let totals = streams::totals(tx, broker, stream).await?;
                let has =
                    streams::waiting(tx, broker, &source, Position::MIN, &Positions::default(), 1 << 30)
                        .await?
                        .totals;
                Ok((totals, has, subscriptions::subscribers(tx, broker, stream).await?))
            })
            .await?;
        let expected = members.remove(&stream).unwrap_or(0);
        let mut history = checker.history.borrow_mut();
        if totals != has {
            let Totals { entries, bytes } = totals;
            history.violated(format!("totals: {name} counts {entries} ({bytes} bytes) and has {has:?}"));
        }
        if counted != expected {
            history.violated(format!("subscribers: {name} counts {counted} and has {expected}"));
        }
    }
    for stream in members.keys() {
        checker
            .history
            .borrow_mut()
            .violated(format!("subscribers: a stream is gone that has some: {stream}"));
    }
    Ok(())
}

async fn note_retained(checker: &Pod, broker: BrokerId) -> LayerResult<()> {
    let found = checker.read(async |tx| checker.retained(tx, broker, "#", Read::Snapshot).await).await?;
    let stamp = Versionstamp([0xff; 10]);
    let filter = "#".into();
    checker.history.borrow_mut().retained.push(RetainedSeen { broker, filter, stamp, found });
    Ok(())
}

async fn claim(checker: &Pod) -> LayerResult<()> {
    let groups = checker.history.borrow().groups.all.clone();
    for group in groups {
        while checker.claim(&group).await? > 0 {}
        let has = checker.has_claimed(&group);
        let mut history = checker.history.borrow_mut();
        history.groups.left.extend(has.into_iter().map(|at| (group.broker, group.stream, at)));
    }
    Ok(())
}
