//! Reads for sessions with one cursor, and writes the cursor. Shared subscriptions are read by
//! claims instead, see `groups`.

use millrace_layers::{
    LayerError, LayerResult, Positions, sessions,
    streams::{self, ReadLimit, StreamBatch, StreamSource},
    subscriptions,
};

use super::{Done, Mine, Pod};
use crate::{
    history::{Reading, Subscribed, Write, of_body},
    plan::Plant,
};

impl Pod {
    pub(super) async fn read_and_checkpoint(&self) -> Done {
        let Some(mut mine) = self.any_session() else { return Ok(()) };
        for _ in 0..=self.world.below(3) {
            let entries = 1 + usize::try_from(self.world.below(20)).unwrap_or(0);
            if !self.read_page(&mut mine, ReadLimit { entries, bytes: 50_000 }).await? {
                break;
            }
        }
        self.keep(mine.clone());
        if self.world.percent(60) { self.checkpoint(mine).await } else { Ok(()) }
    }

    /// Reads up to `limit` from the cursor; returns whether there is more.
    pub(crate) async fn read_page(&self, mine: &mut Mine, limit: ReadLimit) -> LayerResult<bool> {
        let subscribed: Vec<Subscribed> =
            mine.subscriptions.values().filter(|of| !of.filter.starts_with("$share/")).cloned().collect();
        let sources: Vec<_> =
            subscribed.iter().map(|of| StreamSource { stream: of.stream, since: of.since }).collect();
        let (broker, from) = (mine.broker, mine.cursor);
        let batch = self.read(async |tx| streams::read(tx, broker, &sources, from, limit).await).await?;
        mine.cursor = batch.through;
        let more = batch.more;
        self.note(mine, from, subscribed, batch);
        Ok(more)
    }

    fn note(
        &self,
        mine: &Mine,
        from: millrace_layers::Position,
        sources: Vec<Subscribed>,
        batch: StreamBatch,
    ) {
        let mut history = self.history.borrow_mut();
        let mut entries = Vec::new();
        for entry in batch.entries {
            let id = of_body(&entry.body).filter(|id| history.messages.seen(*id, entry.position));
            match id {
                Some(id) => entries.push((entry.position, id)),
                None => history.violated(format!("bodies: {:?} is no message", entry.position)),
            }
        }
        let missed = batch.missed.iter().map(|(source, missed)| (*source, missed.at_most)).collect();
        let (attempt, through) = (mine.attempt, batch.through);
        for _ in &entries {
            history.count("messages read");
        }
        history.readings.push(Reading { attempt, from, through, sources, entries, missed });
    }

    /// Also trims the streams without other readers; with the planted fault [`Plant::Trim`], those with other readers too.
    async fn checkpoint(&self, mine: Mine) -> Done {
        let written = self.history.borrow_mut().writes_cursor(mine.attempt, mine.cursor);
        let done = self
            .transact(async |tx| {
                let owned = self.fence(tx, &mine).await?;
                sessions::checkpoint(&owned, mine.cursor, &Positions::default())?;
                for subscribed in
                    mine.subscriptions.values().filter(|subscribed| !subscribed.filter.starts_with("$share/"))
                {
                    let is_sole = subscriptions::is_sole(tx, mine.broker, subscribed.stream).await?;
                    if is_sole || self.plant == Some(Plant::Trim) {
                        streams::trim(tx, mine.broker, subscribed.stream, mine.cursor, None).await?;
                    }
                }
                Ok(())
            })
            .await;
        let write = match &done {
            Ok(_) => Write::Done,
            Err(LayerError::Fenced { .. }) => Write::Refused,
            Err(_) => Write::InDoubt,
        };
        self.history.borrow_mut().wrote_cursor(mine.attempt, written, write);
        done.map(|_| ()).map_err(|error| self.lost(&mine, error))
    }
}
