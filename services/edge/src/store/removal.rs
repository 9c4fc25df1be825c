//! Removes what nobody needs any more from the store: streams of filters without subscribers, entries of streams that are gone, old
//! changes of filters, and bodies of long messages, which streams share, once no stream has an entry with them.

use std::collections::{HashSet, VecDeque};

use millrace_layers::streams::{DroppedFrom, StreamId};
use millrace_layers::{LayerError, Position, Store, index, resized, streams, subscriptions};
use millrace_storage::block_on;

/// Rows of a step: a few milliseconds.
const ROWS: usize = 100;
/// Only one of this many rounds, once an hour, checks all filters of a broker, because filters rarely stay without subscribers.
const FILTERS_EVERY: u64 = 60;

/// Goes through all brokers in turn, in steps of one transaction, because sessions wait for reads meanwhile.
pub(super) struct Removal {
    brokers: VecDeque<(u64, RemovalStage)>,
    rows: usize,
    /// Only where several pods share the store: a single writer knows the last subscriber of a filter.
    with_filters: bool,
    rounds: u64,
}

#[derive(Clone)]
enum RemovalStage {
    Filters(Option<StreamId>),
    Dropped(DroppedFrom),
    Changes(Position),
    Bodies(BodiesFrom),
}

/// Where the walk over bodies continues. It ends at the version at which it began: otherwise a broker with many new long
/// messages would keep its own streams from their next removal.
#[derive(Clone, Copy)]
struct BodiesFrom {
    from: Position,
    /// `None` before the first step.
    until: Option<Position>,
}

impl BodiesFrom {
    const BEGIN: Self = Self { from: Position::MIN, until: None };
}

impl Default for RemovalStage {
    fn default() -> Self {
        Self::Dropped(DroppedFrom::default())
    }
}

impl Removal {
    pub(super) fn new(is_shared: bool) -> Self {
        Self { brokers: VecDeque::new(), rows: ROWS, with_filters: is_shared, rounds: 0 }
    }

    pub(super) fn is_done(&self) -> bool {
        self.brokers.is_empty()
    }

    /// Adds the brokers that are not on their way already: one with very many rows does not delay the others.
    pub(super) fn start(&mut self, brokers: impl Iterator<Item = u64>) {
        let queued: HashSet<u64> = self.brokers.iter().map(|(broker, _)| *broker).collect();
        let others = brokers.filter(|broker| !queued.contains(broker));
        self.rounds += 1;
        let with_filters = self.with_filters && self.rounds.is_multiple_of(FILTERS_EVERY);
        let first = if with_filters { RemovalStage::Filters(None) } else { RemovalStage::default() };
        self.brokers.extend(others.map(|broker| (broker, first.clone())));
    }

    pub(super) fn step(&mut self, layers: &Store) {
        let Some((broker, stage)) = self.brokers.pop_front() else { return };
        match self.remove_some(layers, broker, &stage) {
            Ok(next) => self.brokers.extend(next.map(|next| (broker, next))),
            Err(error) => {
                tracing::warn!(%error, "rows that nobody needs could not be removed from the store; a later round tries again");
            }
        }
    }

    /// Returns where the next step begins, or `None` when the broker is done.
    fn remove_some(
        &mut self,
        layers: &Store,
        broker: u64,
        stage: &RemovalStage,
    ) -> Result<Option<RemovalStage>, LayerError> {
        let rows = self.rows;
        // A step that fails is repeated with fewer rows.
        let again = Some(stage.clone());
        Ok(match stage {
            RemovalStage::Filters(from) => {
                let run =
                    layers.run_piece(rows, async |tx| subscriptions::sweep(&tx, broker, *from, rows).await);
                resized(block_on(run), &mut self.rows, ROWS)?.map_or(again, |swept| {
                    Some(
                        swept
                            .next
                            .map_or_else(RemovalStage::default, |next| RemovalStage::Filters(Some(next))),
                    )
                })
            }
            RemovalStage::Dropped(from) => {
                let run =
                    layers.run_piece(rows, async |tx| streams::sweep_dropped(&tx, broker, from, rows).await);
                resized(block_on(run), &mut self.rows, ROWS)?.map_or(again, |swept| {
                    Some(swept.next.map_or(RemovalStage::Changes(Position::MIN), RemovalStage::Dropped))
                })
            }
            RemovalStage::Changes(from) => {
                let run =
                    layers.run_piece(rows, async |tx| index::trim_changes(&tx, broker, *from, rows).await);
                resized(block_on(run), &mut self.rows, ROWS)?.map_or(again, |(removed, next)| {
                    Some(if removed < rows {
                        RemovalStage::Bodies(BodiesFrom::BEGIN)
                    } else {
                        RemovalStage::Changes(next)
                    })
                })
            }
            RemovalStage::Bodies(BodiesFrom { from, until }) => {
                let run = layers.run_piece(rows, async |tx| {
                    let now = Position::end_of(tx.read_version().await?);
                    let swept = streams::sweep_bodies(&tx, broker, *from, rows).await?;
                    Ok((swept, until.unwrap_or(now)))
                });
                resized(block_on(run), &mut self.rows, ROWS)?.map_or(again, |(swept, until)| {
                    let next = swept.next.filter(|next| *next < until);
                    next.map(|from| RemovalStage::Bodies(BodiesFrom { from, until: Some(until) }))
                })
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use millrace_layers::sessions::{Attach, SessionId, fence};
    use millrace_layers::streams::{NewEntry, StreamRef};
    use millrace_layers::subscriptions::StoredOptions;
    use millrace_storage::Database;

    use super::*;

    /// Subscribes to filters and unsubscribes; returns the broker.
    async fn with_dropped_streams(layers: &Store, name: &[u8], count: usize) -> Result<u64, LayerError> {
        let broker = layers.ensure_broker(name).await?.id;
        let id = SessionId { broker, client: b"ann" };
        let (owner, expiry_s, now_ms) = (Bytes::from_static(b"pod"), 60, 1);
        let attach = Attach { owner, clean: true, expiry_s, now_ms, will: None, details: None };
        let epoch = layers.attach(id, &attach).await?.epoch;
        for number in 0..count {
            let filter = format!("a/{number}");
            let options = StoredOptions { bits: 1, identifier: 0 };
            layers.subscribe(id, epoch, filter.as_bytes(), options).await?;
            layers.unsubscribe(id, epoch, filter.as_bytes()).await?;
        }
        Ok(broker)
    }

    fn has_dropped_streams(layers: &Store, broker: u64) -> bool {
        let all = DroppedFrom::default();
        let removed = layers.run(|tx| {
            let all = all.clone();
            async move {
                // Removed in a transaction of its own, which does not commit.
                let swept = streams::sweep_dropped(&tx, broker, &all, 1).await?;
                Err::<(), _>(LayerError::Contended(swept.removed as u32))
            }
        });
        !matches!(block_on(removed), Err(LayerError::Contended(0)))
    }

    #[test]
    fn brokers_take_turns_in_steps_of_bounded_size() {
        let layers = Store::new(Database::memory());
        let many = block_on(with_dropped_streams(&layers, b"many", 5 * ROWS)).unwrap();
        let few = block_on(with_dropped_streams(&layers, b"few", 3)).unwrap();
        let mut removal = Removal::new(false);
        removal.start([many, few].into_iter());
        (0..2).for_each(|_| removal.step(&layers));
        assert!(has_dropped_streams(&layers, many) && !has_dropped_streams(&layers, few));
        let mut steps = 2;
        while !removal.is_done() {
            removal.step(&layers);
            steps += 1;
        }
        assert!(!has_dropped_streams(&layers, many));
        assert!((10..20).contains(&steps), "{steps} steps");
    }

    /// Stores bodies that two streams share, so that they are stored apart.
    async fn add_bodies(layers: &Store, broker: u64, count: usize) -> Result<(), LayerError> {
        let streams = [1, 2].map(|stream| StreamRef { stream, partition: 0 });
        let body = Bytes::from(vec![7; 2_000]);
        for _ in 0..count {
            layers.append(broker, &streams, NewEntry { number: 0, now_ms: 1, body: &body }).await?;
        }
        Ok(())
    }

    #[test]
    fn a_broker_with_many_bodies_neither_delays_others_nor_runs_for_ever() {
        let layers = Store::new(Database::memory());
        let few = block_on(with_dropped_streams(&layers, b"few", 0)).unwrap();
        let many = block_on(layers.ensure_broker(b"many")).unwrap().id;
        block_on(add_bodies(&layers, many, 3 * ROWS)).unwrap();
        let mut removal = Removal::new(false);
        removal.start([many, few].into_iter());
        // Two rounds of both brokers; the second one finds bodies.
        (0..6).for_each(|_| removal.step(&layers));
        assert_eq!(removal.brokers.len(), 1, "the small one is done");
        block_on(with_dropped_streams(&layers, b"few", 3)).unwrap();
        removal.start([many, few].into_iter());
        (0..2).for_each(|_| removal.step(&layers));
        assert!(!has_dropped_streams(&layers, few));
        // Bodies that come during the walk belong to the next one.
        let mut steps = 0;
        while removal.brokers.iter().any(|(broker, _)| *broker == many) {
            block_on(add_bodies(&layers, many, ROWS)).unwrap();
            removal.step(&layers);
            steps += 1;
            assert!(steps < 10, "the walk does not end");
        }
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "transactions that overlap")]
    fn a_filter_that_all_left_at_once_is_removed_among_pods() {
        let database = Database::memory();
        let layers = Store::new(database.clone());
        let broker = block_on(layers.ensure_broker(b"default")).unwrap().id;
        let sessions = (0..600).map(|number| format!("ann {number}")).collect::<Vec<_>>();
        let options = StoredOptions { bits: 1, identifier: 0 };
        let epochs: Vec<u64> = (sessions.iter())
            .map(|client| {
                let (owner, id) =
                    (Bytes::from_static(b"pod"), SessionId { broker, client: client.as_bytes() });
                let attach =
                    Attach { owner, clean: true, expiry_s: 60, now_ms: 1, will: None, details: None };
                let epoch = block_on(layers.attach(id, &attach)).unwrap().epoch;
                block_on(layers.subscribe(id, epoch, b"a/+", options)).unwrap();
                epoch
            })
            .collect();
        // Three pods: in each of their transactions 200 sessions leave, and none sees the others.
        let all: Vec<_> = sessions.iter().zip(epochs).collect();
        let leaves: Vec<_> = (all.chunks(200))
            .map(|chunk| {
                let tx = database.begin_unretried();
                for (client, epoch) in chunk {
                    let id = SessionId { broker, client: client.as_bytes() };
                    let left = block_on(async {
                        let owned = fence(&tx, id, *epoch).await?;
                        subscriptions::unsubscribe(&owned, b"a/+").await
                    });
                    left.unwrap();
                }
                tx
            })
            .collect();
        for tx in leaves {
            block_on(tx.commit()).unwrap();
        }
        let filters =
            || block_on(layers.run(async |tx| streams::list(&tx, broker, None, 10).await)).unwrap().len();
        assert_eq!(filters(), 1, "nobody knew that it was the last");
        let mut removal = Removal::new(true);
        for _ in 0..FILTERS_EVERY {
            removal.start([broker].into_iter());
            while !removal.is_done() {
                removal.step(&layers);
            }
        }
        assert_eq!(filters(), 0);
    }
}
