//! Erasing what deleted brokers had, in transactions of bounded size. A server that stops in between goes on at its next start, and
//! several may do it at once.

use millrace_layers::{BrokerId, catalog};

use super::{Control, Result};
use crate::limits::{ERASE_AFTER_MS, ERASE_AGAIN_MS, ERASED_KEYS, SWEPT_ROWS};

impl Control {
    /// Erases all that deleted brokers have. Returns how many keys there were.
    ///
    /// # Errors
    /// The store's.
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
        let mut all = 0;
        loop {
            let erased =
                self.look(|tx| async move { Ok(catalog::erase(&tx, broker, ERASED_KEYS).await?) }).await?;
            all += erased;
            if erased < ERASED_KEYS {
                break;
            }
        }
        // Pods that had it open may write a little longer, so it is looked at again until then.
        if since_ms + ERASE_AGAIN_MS <= self.now_ms() {
            self.look(|tx| async move { Ok(catalog::forget(&tx, broker)?) }).await?;
        }
        Ok(all)
    }
}
