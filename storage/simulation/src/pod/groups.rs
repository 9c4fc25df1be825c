//! Shared subscriptions: claims for the members on this pod, acknowledgements, releases.

use std::collections::{BTreeMap, BTreeSet};

use millrace_layers::{
    LayerError, LayerResult, Position,
    streams::{self, Claimed, ReadLimit, StreamSource},
};

use super::{Claims, Done, Pod};
use crate::{
    history::{Group, of_body},
    plan::Plant,
};

const CLAIM: ReadLimit = ReadLimit { entries: 6, bytes: 50_000 };

impl Pod {
    pub(super) async fn work_for_groups(&self) -> Done {
        let groups = self.history.borrow().groups.all.clone();
        let at = usize::try_from(self.world.below(groups.len() as u64)).unwrap_or(0);
        match self.world.below(5) {
            0 | 1 => self.claim(&groups[at]).await.map(|_| ()),
            2 | 3 => self.settle(&groups[at]).await,
            _ => self.keep_some(&groups[at]).await,
        }
    }

    /// Returns the number of messages.
    pub(crate) async fn claim(&self, group: &Group) -> LayerResult<usize> {
        let began = self.history.borrow_mut().next();
        let pod = self.name.as_bytes();
        let claimed = self
            .read(async |tx| {
                // A planted fault, which the checks must find: reads without a claim.
                if self.plant == Some(Plant::Claims) {
                    let progress = streams::progress(tx, group.broker, group.stream).await?;
                    let sources = [StreamSource { stream: group.stream, since: 0 }];
                    let batch = streams::read(tx, group.broker, &sources, progress.cursor, CLAIM).await?;
                    return Ok(Claimed { entries: batch.entries, more: false });
                }
                streams::claim(tx, group.broker, group.stream, pod, CLAIM).await
            })
            .await?;
        let places: Vec<Position> = claimed.entries.iter().map(|entry| entry.position).collect();
        let mut history = self.history.borrow_mut();
        for entry in &claimed.entries {
            history.count("messages claimed");
            if of_body(&entry.body).is_none_or(|id| !history.messages.seen(id, entry.position)) {
                history.violated(format!("bodies: {:?} is no message", entry.position));
            }
        }
        history.claimed(&self.name, group, began, &places);
        let mut claims = self.claims.borrow_mut();
        claims.entry((group.broker, group.stream)).or_default().outstanding.extend(&places);
        Ok(places.len())
    }

    /// The claimed messages that it has not released.
    pub(crate) fn has_claimed(&self, group: &Group) -> Vec<Position> {
        let claims = self.claims.borrow();
        let claims = claims.get(&(group.broker, group.stream));
        claims.into_iter().flat_map(|claims| claims.outstanding.iter().copied()).collect()
    }

    /// Acknowledges, gives back or keeps each claimed message of a group, by chance.
    async fn settle(&self, group: &Group) -> Done {
        let key = (group.broker, group.stream);
        let Claims { outstanding, mut acknowledged } =
            self.claims.borrow_mut().remove(&key).unwrap_or_default();
        let (mut kept, mut given_back) = (Vec::new(), Vec::new());
        for at in outstanding {
            match self.world.below(4) {
                0 | 1 => {
                    acknowledged.insert(at);
                }
                2 => given_back.push(at),
                _ => kept.push(at),
            }
        }
        let acknowledged: Vec<Position> = acknowledged.into_iter().collect();
        let known = self.history.borrow_mut().lets_go(&self.name, group, &acknowledged, &given_back);
        let pod = self.name.as_bytes();
        let done = self
            .read(async |tx| {
                streams::settle(tx, group.broker, group.stream, pod, &kept, &acknowledged, true).await
            })
            .await;
        match done {
            Ok(left) => {
                self.history.borrow_mut().end_release(&self.name, group, &known);
                self.hold(group, left.outstanding, Vec::new());
                Ok(())
            }
            Err(error) => {
                self.hold(group, kept, acknowledged);
                Err(error)
            }
        }
    }

    fn hold(&self, group: &Group, outstanding: Vec<Position>, acknowledged: Vec<Position>) {
        let claims = Claims {
            outstanding: outstanding.into_iter().collect(),
            acknowledged: acknowledged.into_iter().collect(),
        };
        self.claims.borrow_mut().insert((group.broker, group.stream), claims);
    }

    /// Takes some claimed messages into the session of a member, so that the group need not redeliver them.
    async fn keep_some(&self, group: &Group) -> Done {
        let key = (group.broker, group.stream);
        let some: Vec<Position> = {
            let claims = self.claims.borrow();
            let outstanding = claims.get(&key).map(|claims| &claims.outstanding);
            outstanding.into_iter().flatten().copied().filter(|_| self.world.percent(40)).collect()
        };
        if some.is_empty() {
            return Ok(());
        }
        let known = self.history.borrow_mut().lets_go(&self.name, group, &some, &[]);
        let pod = self.name.as_bytes();
        let of_stream = BTreeMap::from([(key, some.clone())]);
        let kept = self.transact(async |tx| streams::keep(tx, pod, &of_stream).await).await;
        let some: BTreeSet<Position> = some.into_iter().collect();
        if let Some(claims) = self.claims.borrow_mut().get_mut(&key) {
            claims.outstanding.retain(|at| !some.contains(at));
        }
        if kept?.0 {
            self.history.borrow_mut().end_release(&self.name, group, &known);
            return Ok(());
        }
        // Another pod has one of them, because this pod was taken for dead.
        let rest = self.claims.borrow_mut().remove(&key).unwrap_or_default();
        let rest: Vec<Position> = rest.outstanding.into_iter().collect();
        self.history.borrow_mut().lets_go(&self.name, group, &[], &rest);
        Err(LayerError::Fenced { epoch: 0 })
    }
}
