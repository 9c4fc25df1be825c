//! Erases the data of deleted brokers in transactions of bounded size, after their usage has moved to the ledger. The sweep calls
//! it. A server that stops in between continues at its next start; several servers may erase at the same time.

use millrace_layers::{BrokerId, catalog};

use super::{Control, Result};
use crate::limits::{ERASE_AFTER_MS, ERASE_AGAIN_MS, ERASED_KEYS, SWEPT_ROWS};

impl Control {
    /// Returns how many keys it removed.
    pub async fn erase(&self) -> Result<usize> {
        let (mut from, mut erased) = (0, 0);
        loop {
            let page =
                self.look(|tx| async move { Ok(catalog::condemned(&tx, from, SWEPT_ROWS).await?) }).await?;
            let Some((last, _)) = page.last() else { return Ok(erased) };
            from = *last;
            for (broker, since_ms) in page {
                erased += self.erase_broker(broker, since_ms).await?;
            }
        }
    }

    async fn erase_broker(&self, broker: BrokerId, since_ms: u64) -> Result<usize> {
        if self.now_ms() < since_ms + ERASE_AFTER_MS {
            return Ok(0);
        }
        self.settle(broker).await?;
        let (mut all, mut from) = (0, None);
        loop {
            let some = self.write(|tx| {
                let from = from.clone();
                async move { Ok(catalog::erase(&tx, broker, from, ERASED_KEYS).await?) }
            });
            let (erased, next) = some.await?;
            all += erased;
            if next.is_none() {
                break;
            }
            from = next;
        }
        // Servers that had the broker open may still write for a while, so its erasure is repeated until then.
        if since_ms + ERASE_AGAIN_MS <= self.now_ms() {
            self.write(|tx| async move { Ok(catalog::forget(&tx, broker)?) }).await?;
        }
        Ok(all)
    }
}
