//! Erases the data of deleted brokers in transactions of bounded size, after their usage has moved to the ledger. The sweep calls
//! it. A server that stops in between continues at its next start; several servers may erase at the same time.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use millrace_layers::{BrokerId, catalog};
use tracing::warn;

use super::error::of_one_tenant;
use super::{Control, Result};
use crate::limits::{ERASE_AFTER_MS, ERASE_AGAIN_MS, ERASED_KEYS, SWEPT_ROWS};

/// Brokers whose usage a round settles although no step is left for their data.
const SETTLED_MAX: usize = 1_000;

/// How far the erasure has come, from round to round.
#[derive(Default)]
pub struct Erasures {
    /// The broker whose erasure the last round tried last. The next round begins behind it, so that large brokers delay no others.
    last: BrokerId,
    /// When the present pass over the list began. Brokers that are deleted later wait for the next pass, so that each pass ends.
    began_ms: u64,
    pub unfinished: HashMap<BrokerId, UnfinishedErasure>,
    /// Brokers that have nothing to erase until the time of their last pass, in unix milliseconds.
    waiting: HashMap<BrokerId, u64>,
    /// Brokers whose usage was settled in this pass, although no step was left for their data.
    settled: HashSet<BrokerId>,
}

/// Where a pass over the keys of a broker continues: a step from its first key would pass all removed rows.
pub struct UnfinishedErasure {
    from: Bytes,
    began_ms: u64,
}

impl Control {
    /// Erases in `steps_max` transactions at most, a fifth of them for one broker, and returns how many keys it removed. If
    /// any are left at the last of the deleted brokers, the next round begins with the first.
    pub async fn erase(&self, erasures: &mut Erasures, steps_max: usize) -> Result<usize> {
        let (mut from, mut erased, mut steps) = (erasures.last, 0, steps_max);
        let now_ms = self.now_ms();
        erasures.waiting.retain(|_, until_ms| now_ms < *until_ms);
        if from == 0 {
            erasures.began_ms = now_ms;
            erasures.settled.clear();
        }
        let mut settles = SETTLED_MAX;
        loop {
            let page =
                self.look(|tx| async move { Ok(catalog::condemned(&tx, from, SWEPT_ROWS).await?) }).await?;
            if page.is_empty() {
                if steps > 0 {
                    erasures.last = 0;
                }
                return Ok(erased);
            }
            for condemned in page {
                from = condemned.0;
                if steps > 0 {
                    erasures.last = from;
                } else if settles > 0 && self.is_due(condemned, erasures) && erasures.settled.insert(from) {
                    settles -= 1;
                    if let Err(error) = of_one_tenant(self.settle(from).await)? {
                        warn!(%error, broker = from, "the usage of a deleted broker could not be settled; the next pass tries again");
                    }
                }
                let steps = (&mut steps, steps_max.div_ceil(5));
                match of_one_tenant(self.erase_broker(condemned, erasures, steps).await)? {
                    Ok(keys) => erased += keys,
                    Err(error) => {
                        warn!(%error, broker = condemned.0, "a deleted broker could not be erased; the next round tries again");
                    }
                }
            }
        }
    }

    fn is_due(&self, (broker, since_ms): (BrokerId, u64), erasures: &Erasures) -> bool {
        since_ms + ERASE_AFTER_MS <= self.now_ms()
            && since_ms <= erasures.began_ms
            && !erasures.waiting.contains_key(&broker)
    }

    /// `steps`: transactions that are left in this round; `steps_max`: those for this broker. One that erases nothing counts too, so
    /// that many small brokers do not make a round long.
    async fn erase_broker(
        &self,
        (broker, since_ms): (BrokerId, u64),
        erasures: &mut Erasures,
        (steps, steps_max): (&mut usize, usize),
    ) -> Result<usize> {
        if *steps == 0 || !self.is_due((broker, since_ms), erasures) {
            return Ok(0);
        }
        let Erasures { unfinished, waiting, .. } = erasures;
        self.settle(broker).await?;
        let (mut all, least) = (0, steps.saturating_sub(steps_max));
        let began_ms = unfinished.get(&broker).map_or(self.now_ms(), |pass| pass.began_ms);
        loop {
            if *steps == least {
                return Ok(all);
            }
            let from = &unfinished.get(&broker).map(|pass| pass.from.clone());
            let step = self.write(|tx| {
                let from = from.clone();
                async move { Ok(catalog::erase(&tx, broker, from, ERASED_KEYS).await?) }
            });
            let (erased, next) = step.await?;
            *steps -= 1;
            all += erased;
            let Some(from) = next else { break };
            unfinished.insert(broker, UnfinishedErasure { from, began_ms });
        }
        unfinished.remove(&broker);
        // Servers that had the broker open may still write for a while, so a pass that begins after that comes last.
        if since_ms + ERASE_AGAIN_MS <= began_ms {
            self.write(|tx| async move { Ok(catalog::forget(&tx, broker)?) }).await?;
        } else {
            waiting.insert(broker, since_ms + ERASE_AGAIN_MS);
        }
        Ok(all)
    }
}
