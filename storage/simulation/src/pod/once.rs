//! Checks whether a transaction with a lost answer was committed, as the edge does.

use millrace_layers::{LayerError, LayerResult, pods};
use millrace_storage::{Transaction, Versionstamp};

use super::Pod;
use crate::plan::Plant;

impl Pod {
    /// Runs `body` until it is committed exactly once; returns its result and its position in
    /// commit order.
    pub(super) async fn transact<T>(
        &self,
        body: impl AsyncFn(&Transaction) -> LayerResult<T>,
    ) -> LayerResult<(T, Option<Versionstamp>)> {
        let attempts = self.marks.borrow_mut().attempts();
        let run = self.store.database().run_committed(|tx, attempt| {
            let (attempts, body) = (&attempts, &body);
            async move {
                // Each commit writes the number of its attempt into the pod's commit marker, which
                // shows here whether an earlier attempt committed.
                if attempt.maybe_committed {
                    self.history.borrow_mut().count("commits in doubt");
                    if self.plant != Some(Plant::MarkerNumbers)
                        && let Some(stamp) = attempts.find(&tx, self.name.as_bytes()).await?
                    {
                        self.history.borrow_mut().count("commits found again");
                        return Ok(Some(stamp));
                    }
                }
                // Must come first: the transaction cannot read filters that it changes itself.
                self.catch_up_all(&tx).await?;
                let number = attempts.push(body(&tx).await?);
                pods::write_marker(&tx, self.name.as_bytes(), number)?;
                Ok::<_, LayerError>(None)
            }
        });
        let (found, committed) = run.await?;
        let output = attempts.into_committed().ok_or(LayerError::Corrupt("mark"))?;
        Ok((output, found.or(committed.versionstamp)))
    }
}
