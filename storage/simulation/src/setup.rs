//! The initial state: brokers, and in each a session that sees all messages, and one that keeps the
//! groups alive.

use millrace_layers::{LayerResult, streams};
use millrace_storage::Database;

use crate::{
    history::{Group, Shared},
    plan::{AUDIT, BROKERS, GROUPS, HOLDER, KEEPER},
    pod::{Connect, Pod},
    world::World,
};

pub(crate) const STAYS: Connect = Connect { clean: false, expiry_s: 3_600_000, will_s: None };

/// May be repeated after a failure.
pub(crate) async fn setup(database: &Database, world: &World, history: &Shared) -> LayerResult<()> {
    let maker = Pod::new(HOLDER.into(), database, world, history, None);
    let mut brokers = Vec::new();
    for name in BROKERS {
        brokers.push(maker.store.ensure_broker(name.as_bytes()).await?.id);
    }
    {
        let mut history = history.borrow_mut();
        history.brokers.clone_from(&brokers);
        history.groups.all.clear();
        history.wide.clear();
    }
    let holder = Pod::new(HOLDER.into(), database, world, history, None);
    for broker in brokers {
        let audit = holder.attach(broker, AUDIT, STAYS).await?;
        holder.subscribe_to(audit, "#").await?;
        let keeper = holder.attach(broker, KEEPER, STAYS).await?;
        for group in GROUPS {
            let keeper = holder.mine(broker, KEEPER).unwrap_or_else(|| keeper.clone());
            holder.subscribe_to(keeper, group).await?;
        }
        note(&holder, broker).await?;
    }
    Ok(())
}

/// Widens the stream of the session that sees everything, and records the groups.
async fn note(holder: &Pod, broker: u64) -> LayerResult<()> {
    let Some(audit) = holder.mine(broker, AUDIT) else { return Ok(()) };
    let all = audit.subscriptions["#"].stream;
    holder.read(async |tx| streams::set_partitions(tx, broker, all, 2).await).await?;
    let Some(keeper) = holder.mine(broker, KEEPER) else { return Ok(()) };
    let mut history = holder.history.borrow_mut();
    history.wide.push((broker, all));
    for subscribed in keeper.subscriptions.values() {
        let since = history.tenure(keeper.attempt).complete_from[subscribed];
        let filter = subscribed.filter.splitn(3, '/').nth(2).unwrap_or_default().into();
        history.groups.all.push(Group { broker, stream: subscribed.stream, filter, since });
    }
    Ok(())
}
