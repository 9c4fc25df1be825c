//! What is due without anybody asking: wills after their delay, sessions whose time is over, and the connections that an
//! earlier process left open.

use futures_util::future::join_all;
use millrace_layers::due::{self, SHARDS};
use millrace_layers::sessions::{self, OwnedSession, SessionId};
use millrace_layers::{Error, pods, subscriptions};
use millrace_storage::TransactionOption;

use super::apply::{Applier, is_hopeless};
use super::writer::Writer;

/// Sessions that one transaction ends; fewer when they are too much for it.
const SESSIONS: usize = 100;

/// Sessions that are taken before one that ends them looks whether it is full.
const TOGETHER: usize = 5;

/// Does what is due now.
pub(super) fn due(writer: &mut Writer<'_>) {
    let now_ms = writer.shared.clock.unix_now_ms();
    // One question for all: a store across a network takes its time for each.
    let asked = writer.shared.layers.run(async |tx| {
        let shards = (0..SHARDS).map(|shard| due::next_due(&tx, shard));
        join_all(shards).await.into_iter().collect::<Result<Vec<_>, _>>()
    });
    let Ok(next) = writer.wait(asked, &[]) else { return };
    let is_due = |(_, next): &(u8, Option<u64>)| next.is_some_and(|at_ms| at_ms <= now_ms);
    for (shard, _) in (0..SHARDS).zip(next).filter(is_due) {
        let mut sessions = SESSIONS;
        loop {
            let swept = writer.transact(&[], &async |applier| settle(applier, shard, now_ms, sessions).await);
            match swept {
                Ok((applied, stamp)) => {
                    writer.swept(applied, stamp);
                    if !is_still_due(writer, shard, now_ms) {
                        break;
                    }
                }
                Err(_) if sessions > 1 => sessions /= 2,
                Err(error) if is_hopeless(&error) && drop_first(writer, shard, now_ms, &error) => {
                    sessions = SESSIONS;
                }
                Err(error) => {
                    tracing::warn!(%error, "a will or an expired session waits");
                    break;
                }
            }
        }
    }
}

/// Drops what is due first in a shard, because it can never be written and all that is due behind it would wait. The
/// session itself stays until its client comes again. False when it could not be dropped now.
fn drop_first(writer: &mut Writer<'_>, shard: u8, now_ms: u64, why: &Error) -> bool {
    let dropped = writer.transact(&[], &async |applier| {
        applier.tx.set_option(TransactionOption::Cleanup);
        due::take_due(applier.tx, shard, now_ms, 1).await.map(|_| ())
    });
    if dropped.is_ok() {
        tracing::error!(error = %why, shard, "a job that is due is dropped: the store can never hold what it writes");
    }
    dropped.is_ok()
}

fn is_still_due(writer: &mut Writer<'_>, shard: u8, now_ms: u64) -> bool {
    let next = writer.shared.layers.run(async |tx| due::next_due(&tx, shard).await);
    writer.wait(next, &[]).is_ok_and(|next| next.is_some_and(|at_ms| at_ms <= now_ms))
}

/// Ends sessions until there are no more, or the transaction is full: a session may have a thousand filters.
async fn settle(applier: &Applier<'_>, shard: u8, now_ms: u64, sessions: usize) -> Result<(), Error> {
    applier.tx.set_option(TransactionOption::Cleanup);
    let mut settled = 0;
    while settled == 0 || settled < sessions && !applier.is_full() {
        let all = due::take_due(applier.tx, shard, now_ms, TOGETHER.min(sessions - settled)).await?;
        if all.is_empty() {
            break;
        }
        settled += all.len();
        settle_all(applier, all, now_ms).await?;
    }
    Ok(())
}

async fn settle_all(applier: &Applier<'_>, all: Vec<due::Due>, now_ms: u64) -> Result<(), Error> {
    applier.shared.open_all(all.iter().map(|due| due.broker))?;
    for due in all {
        let Some(broker) = applier.shared.open_by_id(due.broker)? else { continue };
        applier.catch_up(&[&broker]).await?;
        let id = SessionId { broker: broker.id, client: &due.client };
        let before = subscriptions::list(applier.tx, id).await?;
        let settled = sessions::settle(applier.tx, &due, now_ms).await?;
        if let Some(will) = settled.will {
            applier.will(&broker, &will).await?;
        }
        if settled.ended {
            applier.applied().count(&broker).ended += 1;
            applier.note_changes(&broker, before.iter().map(|subscription| &*subscription.filter)).await?;
        }
    }
    Ok(())
}

/// Ends the connections of an owner that is gone: their wills fire, and their sessions wait.
pub(super) fn abandoned(writer: &mut Writer<'_>, owner: &[u8]) {
    let mut last: Option<OwnedSession> = None;
    loop {
        let from = last.as_ref().map(|last| SessionId { broker: last.broker, client: &last.client });
        let page = writer.shared.layers.run(async |tx| sessions::of_owner(&tx, owner, from, SESSIONS).await);
        let mut page = match writer.wait(page, &[]) {
            Ok(page) => page,
            Err(error) => {
                return tracing::error!(%error, "sessions of an earlier run could not be read");
            }
        };
        if page.is_empty() {
            return;
        }
        abandon(writer, owner, &page);
        super::pods::renew(writer);
        last = page.pop();
    }
}

/// Together, or by halves when that is too much.
fn abandon(writer: &mut Writer<'_>, owner: &[u8], owned: &[OwnedSession]) {
    let swept = writer.transact(&[], &async |applier| {
        let now_ms = applier.shared.clock.unix_now_ms();
        applier.shared.open_all(owned.iter().map(|owned| owned.broker))?;
        for OwnedSession { broker, client } in owned {
            let Some(broker) = applier.shared.open_by_id(*broker)? else { continue };
            applier.catch_up(&[&broker]).await?;
            let id = SessionId { broker: broker.id, client };
            let before = subscriptions::list(applier.tx, id).await?;
            if owner != &*applier.shared.owner {
                // It may be alive.
                let record = sessions::get(applier.tx, id, millrace_storage::Read::Snapshot).await?;
                pods::tell(applier.tx, owner, id, record.map_or(0, |record| record.epoch))?;
            }
            applier.tell_abandoned(&broker, id, owner).await?;
            if let Some(will) = sessions::abandon(applier.tx, id, owner, now_ms).await? {
                applier.will(&broker, &will).await?;
            }
            applier.note_changes(&broker, before.iter().map(|subscription| &*subscription.filter)).await?;
        }
        Ok(())
    });
    match swept {
        Ok((applied, stamp)) => writer.swept(applied, stamp),
        Err(_) if owned.len() > 1 => {
            let (first, second) = owned.split_at(owned.len() / 2);
            abandon(writer, owner, first);
            abandon(writer, owner, second);
        }
        Err(error) => {
            tracing::error!(%error, "the connection of a session of an earlier run could not be ended");
        }
    }
}
