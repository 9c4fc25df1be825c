//! Makes the initial state of a simulated run: the brokers, and in each broker two sessions that stay.
//! The audit session subscribes to everything; the member joins every shared subscription, so
//! that its stream is never removed.

use millrace_layers::{LayerResult, streams};
use millrace_storage::Database;

use crate::{
    history::{Group, SharedHistory},
    plan::{AUDIT, BROKERS, GROUP_MEMBER, GROUPS, HOLDER},
    pod::{Connect, Pod},
    world::World,
};

/// A session that outlives every run; the expiry is in seconds.
pub(crate) const STAYS: Connect = Connect { clean: false, expiry_s: 3_600_000, will_s: None };

/// Can be repeated after a failure.
pub(crate) async fn setup(database: &Database, world: &World, history: &SharedHistory) -> LayerResult<()> {
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
    // A pod knows the brokers that the history had when the pod was made.
    let holder = Pod::new(HOLDER.into(), database, world, history, None);
    for broker in brokers {
        let audit = holder.attach(broker, AUDIT, STAYS).await?;
        holder.subscribe_to(audit, "#").await?;
        let member = holder.attach(broker, GROUP_MEMBER, STAYS).await?;
        for group in GROUPS {
            let member = holder.mine(broker, GROUP_MEMBER).unwrap_or_else(|| member.clone());
            holder.subscribe_to(member, group).await?;
        }
        note(&holder, broker).await?;
    }
    Ok(())
}

/// Divides the audit session's stream into two partitions, and records the groups.
async fn note(holder: &Pod, broker: u64) -> LayerResult<()> {
    let Some(audit) = holder.mine(broker, AUDIT) else { return Ok(()) };
    let all = audit.subscriptions["#"].stream;
    holder.read(async |tx| streams::set_partitions(tx, broker, all, 2).await).await?;
    let Some(member) = holder.mine(broker, GROUP_MEMBER) else { return Ok(()) };
    let mut history = holder.history.borrow_mut();
    history.wide.push((broker, all));
    for subscribed in member.subscriptions.values() {
        let since = history.tenure(member.attempt).complete_from[subscribed];
        let filter = subscribed.filter.splitn(3, '/').nth(2).unwrap_or_default().into();
        history.groups.all.push(Group { broker, stream: subscribed.stream, filter, since });
    }
    Ok(())
}
