//! Transactions whose answer is lost are looked for, as `services/edge/src/store/once.rs` does it: each attempt leaves a mark of its own
//! under the pod's name, and the next one looks for it.

use std::cell::RefCell;

use millrace_layers::{Error, Result, pods};
use millrace_storage::{Transaction, Versionstamp};

use super::Pod;
use crate::plan::Plant;

impl Pod {
    /// Runs `body` until it is committed, and once. Returns what it returned then, and its place in commit order.
    pub(super) async fn transact<T>(
        &self,
        body: impl AsyncFn(&Transaction) -> Result<T>,
    ) -> Result<(T, Option<Versionstamp>)> {
        self.mark.set(self.mark.get() + 1);
        let first = u128::from(self.publisher) << 64 | u128::from(self.mark.get()) << 16;
        let attempts: RefCell<Vec<T>> = RefCell::default();
        let (attempts, body) = (&attempts, &body);
        let run = self.store.database().run_committed(|tx, attempt| async move {
            if attempt.maybe_committed {
                self.history.borrow_mut().count("commits in doubt");
            }
            if attempt.maybe_committed && self.plant != Some(Plant::Marks) {
                let marked = pods::marked(&tx, self.name.as_bytes()).await?;
                let found = marked.and_then(|(number, stamp)| {
                    let at = usize::try_from(number.checked_sub(first)?).ok()?;
                    (at < attempts.borrow().len()).then_some((at, stamp))
                });
                if found.is_some() {
                    self.history.borrow_mut().count("commits found again");
                    return Ok(found);
                }
            }
            let output = body(&tx).await?;
            let number = {
                let mut all = attempts.borrow_mut();
                all.push(output);
                first + all.len() as u128 - 1
            };
            pods::mark(&tx, self.name.as_bytes(), number)?;
            Ok::<_, Error>(None)
        });
        let (found, committed) = run.await?;
        let (at, stamp) = match found {
            Some((at, stamp)) => (at, Some(stamp)),
            None => (attempts.borrow().len() - 1, committed.versionstamp),
        };
        Ok((attempts.borrow_mut().swap_remove(at), stamp))
    }
}
