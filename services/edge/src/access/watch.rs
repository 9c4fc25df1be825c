//! Watches the store for changes of brokers' access records, and reads changed records again.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use futures_util::future::join_all;
use millrace_layers::{LayerError, accounts};
use millrace_storage::{Read, block_on};

use super::load;
use super::service::AccessContext;
use crate::broker::{Broker, chunks};
use crate::mailbox::Mail;

/// A change applies to connected clients within two seconds, including reading and notifying.
const LOOK_EVERY_US: u64 = 500_000;
const AT_ONCE: usize = 100;
/// A tenant's time decreases by this part with each look, so half of it counts for 11 seconds.
const FORGOTTEN_PART: u64 = 32;

pub(super) fn run(shared: &AccessContext, stopped: &Receiver<()>) {
    let now_us = || shared.clock.micros();
    let (mut reloads, mut next_us) = (Reloads::default(), now_us() + LOOK_EVERY_US);
    loop {
        let pause = Duration::from_micros(next_us.saturating_sub(now_us()));
        if stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        look(shared, &mut reloads);
        next_us = now_us() + LOOK_EVERY_US;
        reloads.run(next_us, now_us, |broker| reload(shared, broker));
    }
}

fn look(shared: &AccessContext, reloads: &mut Reloads) {
    for brokers in chunks(shared.brokers.each(), AT_ONCE) {
        let changes = block_on(join_all(brokers.iter().map(|broker| changes(shared, broker.id))));
        for (broker, changes) in brokers.iter().zip(changes) {
            match changes {
                Ok(changes) if broker.has_changed(changes) => reloads.add(broker.tenant(), broker.id),
                Ok(_) => {}
                Err(error) => log_unread(broker, &error),
            }
        }
    }
}

async fn changes(shared: &AccessContext, broker: u64) -> Result<u64, LayerError> {
    shared.store.run(async |tx| accounts::changes(&tx, broker, Read::Snapshot).await).await
}

fn reload(shared: &AccessContext, broker: u64) {
    // It may have been closed since the look.
    let Some(broker) = shared.brokers.peek(broker) else { return };
    match load(&shared.store, &broker) {
        Ok(records) => broker.set_records(records),
        Err(error) => return log_unread(&broker, &error),
    }
    shared.brokers.note_changed_webhooks(broker.id);
    for mailbox in &*shared.mailboxes {
        mailbox.post(Mail::AccessChanged(broker.clone()));
    }
}

fn log_unread(broker: &Broker, error: &LayerError) {
    tracing::warn!(%error, broker = &*broker.name, "the changes of access cannot be read: a broker's clients keep their permissions until the store answers");
}

/// Brokers whose records have changed. The tenant whose reloads took the least time lately is next, so that a tenant with
/// many changes or large records does not delay the changes of others.
#[derive(Default)]
struct Reloads {
    tenants: HashMap<Arc<str>, TenantReloads>,
}

#[derive(Default)]
struct TenantReloads {
    taken_us: u64,
    brokers: VecDeque<u64>,
}

impl Reloads {
    fn add(&mut self, tenant: Arc<str>, broker: u64) {
        let brokers = &mut self.tenants.entry(tenant).or_default().brokers;
        if !brokers.contains(&broker) {
            brokers.push_back(broker);
        }
    }

    /// Stops at `end_us`, because a tenant with few changes may have one by then. The other brokers wait for the next call.
    fn run(&mut self, end_us: u64, now_us: impl Fn() -> u64, mut reload: impl FnMut(u64)) {
        let waiting = self.tenants.iter().filter(|(_, own)| !own.brokers.is_empty());
        let mut order: BTreeSet<_> = waiting.map(|(tenant, own)| (own.taken_us, tenant.clone())).collect();
        let mut began_us = now_us();
        while began_us < end_us
            && let Some((_, tenant)) = order.pop_first()
        {
            let Some(own) = self.tenants.get_mut(&tenant) else { continue };
            own.brokers.pop_front().into_iter().for_each(&mut reload);
            let ended_us = now_us();
            own.taken_us += ended_us.saturating_sub(began_us);
            began_us = ended_us;
            if !own.brokers.is_empty() {
                order.insert((own.taken_us, tenant));
            }
        }
        self.tenants.retain(|_, own| {
            own.taken_us -= own.taken_us.div_ceil(FORGOTTEN_PART);
            own.taken_us > 0 || !own.brokers.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::iter::repeat_n;

    use super::*;

    const LARGE_US: u64 = 100_000;
    const SMALL_US: u64 = 1_000;

    /// The brokers that each look reloads. Every broker has changed at every look; a broker is a number and the time of
    /// its reload.
    fn reloaded(looks: usize, tenants: &[(&str, Vec<(u64, u64)>)]) -> Vec<Vec<u64>> {
        let (mut reloads, now_us) = (Reloads::default(), Cell::new(0));
        let took: HashMap<_, _> = tenants.iter().flat_map(|(_, brokers)| brokers.iter().copied()).collect();
        let mut look = || {
            for (tenant, brokers) in tenants {
                brokers.iter().for_each(|(broker, _)| reloads.add((*tenant).into(), *broker));
            }
            let mut done = Vec::new();
            reloads.run(
                now_us.get() + LOOK_EVERY_US,
                || now_us.get(),
                |broker| {
                    now_us.set(now_us.get() + took[&broker]);
                    done.push(broker);
                },
            );
            done
        };
        repeat_n((), looks).map(|()| look()).collect()
    }

    #[test]
    fn a_change_waits_for_one_reload_of_each_other_tenant_at_most() {
        let large = |first: u64| (first..first + 100).map(|broker| (broker, LARGE_US)).collect::<Vec<_>>();
        for (tenants, before) in [
            (vec![("eve", large(0)), ("zoe", vec![(1_000, SMALL_US)])], 1),
            (vec![("eve", large(0)), ("mallory", large(100)), ("zoe", vec![(1_000, SMALL_US)])], 2),
        ] {
            let looks = reloaded(100, &tenants);
            for (number, done) in looks.iter().enumerate() {
                let at = done.iter().position(|broker| *broker == 1_000);
                let before = if number == 0 { before } else { 0 };
                assert!(at.is_some_and(|at| at <= before), "look {number}: {done:?}");
            }
            let times = |broker: u64| looks.iter().flatten().filter(|one| **one == broker).count();
            let (fewest, most) = (times(99), times(0));
            assert!(fewest > 0 && most - fewest <= 1, "brokers of a tenant take turns: {fewest} to {most}");
        }
    }

    #[test]
    fn a_look_is_not_put_off_by_reloads_and_a_tenant_without_changes_is_forgotten() {
        let mut reloads = Reloads::default();
        let now_us = Cell::new(0);
        (0..100).for_each(|broker| reloads.add("eve".into(), broker));
        reloads.run(LOOK_EVERY_US, || now_us.get(), |_| now_us.set(now_us.get() + LARGE_US));
        assert_eq!((now_us.get(), reloads.tenants["eve"].brokers.len()), (LOOK_EVERY_US, 95));
        reloads.run(u64::MAX, || now_us.get(), |_| {});
        let mut looks = 0;
        while !reloads.tenants.is_empty() {
            reloads.run(u64::MAX, || now_us.get(), |_| panic!("nothing has changed"));
            looks += 1;
        }
        assert!((22..1_000).contains(&looks), "{looks}");
    }
}
