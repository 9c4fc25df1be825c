//! Steps of a client's session on this pod: attach, subscribe, detach.

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes};
use millrace_layers::{
    BrokerId, LayerError, LayerResult, Positions, pods,
    qos2::{self, Direction},
    retained,
    sessions::{self, Attach, Detach, Owned, PendingWill, SessionId},
    subscriptions::{self, StoredOptions},
};
use millrace_storage::{Read, Transaction};

use super::{Done, Mine, Pod};
use crate::{
    history::{Before, Found, MessageId, Retain, RetainedSeen, Subscribed, Tenure, Write, of_body},
    plan::{FILTERS, Plant},
};

/// Retained messages of a broker: more than there are topics.
const RETAINED_MAX: usize = 100;

#[derive(Clone, Copy)]
pub(crate) struct Connect {
    pub(crate) clean: bool,
    pub(crate) expiry_s: u32,
    pub(crate) will_s: Option<u32>,
}

impl Pod {
    pub(super) async fn connect(&self) -> Done {
        let (broker, client) = self.any_client();
        let will = [None, Some(0), Some(0), Some(2), Some(8)];
        let connect = Connect {
            clean: self.world.percent(8),
            expiry_s: self.world.pick(&[0, 4, 15, 3_600, 3_600, 3_600]),
            will_s: self.world.pick(&will),
        };
        let mine = self.attach(broker, client, connect).await?;
        self.keep(mine);
        Ok(())
    }

    pub(crate) async fn attach(
        &self,
        broker: BrokerId,
        client: &'static str,
        connect: Connect,
    ) -> LayerResult<Mine> {
        let (attempt, will) = self.begin_tenure(broker, client, connect);
        let id = SessionId { broker, client: client.as_bytes() };
        let (found, stamp) =
            self.transact(async |tx| self.take(tx, id, attempt, connect, will).await).await?;
        let stamp = stamp.ok_or(LayerError::Corrupt("commit"))?;
        let found = Found { stamp, ..found };
        let mut history = self.history.borrow_mut();
        history.count("sessions taken");
        if found.before.as_ref().is_some_and(|before| before.detached_at_ms == 0) {
            history.count("takeovers");
        }
        let subscriptions: BTreeMap<_, _> = found
            .subscriptions
            .iter()
            .map(|subscribed| (subscribed.filter.clone(), subscribed.clone()))
            .collect();
        let (life, epoch, cursor) = (found.life, found.epoch, found.cursor);
        let received = found.received.iter().copied().collect();
        history.attached(attempt, found);
        Ok(Mine { broker, client, attempt, life, epoch, cursor, subscriptions, received })
    }

    fn begin_tenure(&self, broker: BrokerId, client: &str, connect: Connect) -> (u64, Option<MessageId>) {
        let mut history = self.history.borrow_mut();
        let attempt = history.next();
        let will = connect.will_s.map(|delay_s| {
            let id = history.next();
            history.messages.add(id, broker, &format!("will/{client}"), 0, Retain::No);
            (id, delay_s)
        });
        let (clean, expiry_s) = (connect.clean, connect.expiry_s);
        let (client, pod) = (client.to_owned(), self.name.clone());
        let tenure = Tenure { broker, client, pod, clean, expiry_s, will, ..Tenure::default() };
        history.tenures.insert(attempt, tenure);
        (attempt, will.map(|(id, _)| id))
    }

    async fn take(
        &self,
        tx: &Transaction,
        id: SessionId<'_>,
        attempt: u64,
        connect: Connect,
        will: Option<MessageId>,
    ) -> LayerResult<Found> {
        let now_ms = self.world.now_ms();
        let before = sessions::get(tx, id, Read::Serializable).await?.map(before).transpose()?;
        let goes_on = before.as_ref().filter(|before| !connect.clean && !before.is_expired(now_ms));
        let life = goes_on.map_or(attempt, |before| before.life);
        let mut details = Vec::new();
        details.put_u64(life);
        details.put_u64(attempt);
        let will = will.zip(connect.will_s).map(|(message, delay_s)| PendingWill {
            delay_s,
            body: Bytes::copy_from_slice(&message.to_be_bytes()),
        });
        let request = Attach {
            owner: Bytes::copy_from_slice(self.name.as_bytes()),
            clean: connect.clean,
            expiry_s: connect.expiry_s,
            now_ms,
            will,
            details: Some(details.into()),
        };
        let taken = sessions::attach(tx, id, request).await?;
        if let Some((owner, epoch)) = &taken.replaced
            && owner != self.name.as_bytes()
        {
            pods::notify_lost(tx, owner, id, *epoch)?;
        }
        if let Some(will) = &taken.will {
            self.write(tx, will_id(will)?, 1).await?;
        }
        let received = qos2::list(tx, id, Direction::Inbound, Read::Serializable).await?;
        Ok(Found {
            stamp: millrace_storage::Versionstamp([0; 10]),
            epoch: taken.epoch,
            now_ms,
            present: taken.present,
            life,
            cursor: taken.record.cursor,
            before,
            subscriptions: taken.subscriptions.iter().map(subscribed).collect(),
            received: received.into_iter().map(|(id, _)| id).collect(),
        })
    }

    /// Fails if the session is no longer this pod's.
    pub(super) async fn fence<'t>(&self, tx: &'t Transaction, mine: &'t Mine) -> LayerResult<Owned<'t>> {
        let mut epoch = mine.epoch;
        if self.plant == Some(Plant::Fence) {
            let record = sessions::get(tx, mine.id(), Read::Snapshot).await?;
            epoch = record.map_or(epoch, |record| record.epoch);
        }
        sessions::fence(tx, mine.id(), epoch).await
    }

    pub(super) async fn subscribe(&self) -> Done {
        let Some(mine) = self.any_session() else { return Ok(()) };
        self.subscribe_to(mine, self.world.pick(&FILTERS)).await
    }

    pub(crate) async fn subscribe_to(&self, mut mine: Mine, filter: &'static str) -> Done {
        self.history.borrow_mut().changes(mine.attempt, filter);
        let done = self
            .transact(async |tx| {
                let owned = self.fence(tx, &mine).await?;
                let made =
                    subscriptions::subscribe(&owned, filter.as_bytes(), StoredOptions::default()).await?;
                let found = self.retained(tx, mine.broker, filter, Read::Serializable).await?;
                Ok((made, found))
            })
            .await;
        let ((made, found), stamp) = done.map_err(|error| self.change_failed(&mine, filter, error))?;
        let stamp = stamp.ok_or(LayerError::Corrupt("commit"))?;
        let subscribed = Subscribed { filter: filter.into(), stream: made.stream, since: made.since };
        let mut history = self.history.borrow_mut();
        history.count("subscriptions");
        history.changed(mine.attempt, filter, Some((subscribed.clone(), stamp)));
        if !filter.starts_with("$share/") {
            let (broker, filter) = (mine.broker, filter.to_owned());
            history.retained.push(RetainedSeen { broker, filter, stamp, found });
        }
        mine.subscriptions.insert(filter.into(), subscribed);
        self.keep(mine);
        Ok(())
    }

    pub(crate) async fn retained(
        &self,
        tx: &Transaction,
        broker: BrokerId,
        filter: &str,
        read: Read,
    ) -> LayerResult<BTreeMap<String, MessageId>> {
        let page = retained::matching(tx, broker, filter.as_bytes(), None, RETAINED_MAX, read).await?;
        let item = |item: retained::RetainedRow| {
            let id = of_body(&item.body).ok_or(LayerError::Corrupt("retained message"))?;
            Ok((String::from_utf8_lossy(&item.topic).into_owned(), id))
        };
        page.items.into_iter().map(item).collect()
    }

    pub(super) async fn unsubscribe(&self) -> Done {
        let Some(mut mine) = self.any_session() else { return Ok(()) };
        let filters: Vec<String> = mine.subscriptions.keys().cloned().collect();
        if filters.is_empty() {
            return Ok(());
        }
        let at = usize::try_from(self.world.below(filters.len() as u64)).unwrap_or(0);
        let filter = filters[at].as_str();
        self.history.borrow_mut().changes(mine.attempt, filter);
        let done = self
            .transact(async |tx| {
                let owned = self.fence(tx, &mine).await?;
                subscriptions::unsubscribe(&owned, filter.as_bytes()).await
            })
            .await;
        let (existed, _) = done.map_err(|error| self.change_failed(&mine, filter, error))?;
        let mut history = self.history.borrow_mut();
        if !existed {
            history.violated(format!("subscriptions: {} had lost {filter}", mine.client));
        }
        history.changed(mine.attempt, filter, None);
        mine.subscriptions.remove(filter);
        drop(history);
        self.keep(mine);
        Ok(())
    }

    fn change_failed(&self, mine: &Mine, filter: &str, error: LayerError) -> LayerError {
        if matches!(error, LayerError::Fenced { .. }) {
            self.history.borrow_mut().unchanged(mine.attempt, filter);
        }
        self.lost(mine, error)
    }

    pub(super) async fn disconnect(&self) -> Done {
        let Some(mine) = self.any_session() else { return Ok(()) };
        let (keep_will, expiry_s) = (self.world.percent(60), self.world.percent(15).then_some(0));
        self.detach(mine, keep_will, expiry_s).await
    }

    pub(crate) async fn detach(&self, mine: Mine, keep_will: bool, expiry_s: Option<u32>) -> Done {
        self.forget(mine.broker, mine.client);
        let written = {
            let mut history = self.history.borrow_mut();
            let tenure = history.tenure(mine.attempt);
            tenure.ends |= expiry_s.unwrap_or(tenure.expiry_s) == 0;
            tenure.farewell = (!keep_will).then_some(Write::InDoubt);
            history.writes_cursor(mine.attempt, mine.cursor)
        };
        let detached = self
            .transact(async |tx| {
                let owned = self.fence(tx, &mine).await?;
                sessions::checkpoint(&owned, mine.cursor, &Positions::default())?;
                let how = Detach { now_ms: self.world.now_ms(), expiry_s, keep_will: keep_will.into() };
                if let Some(will) = sessions::detach(owned, how).await? {
                    self.write(tx, will_id(&will)?, 1).await?;
                }
                Ok(())
            })
            .await;
        let write = match &detached {
            Ok(_) => Write::Done,
            Err(LayerError::Fenced { .. }) => Write::Refused,
            Err(_) => Write::InDoubt,
        };
        let mut history = self.history.borrow_mut();
        history.wrote_cursor(mine.attempt, written, write);
        if !keep_will {
            history.tenure(mine.attempt).farewell = Some(write);
        }
        drop(history);
        detached.map(|_| ()).map_err(|error| self.lost(&mine, error))
    }
}

pub(super) fn will_id(will: &[u8]) -> LayerResult<MessageId> {
    will.try_into().map(MessageId::from_be_bytes).map_err(|_| LayerError::Corrupt("will"))
}

fn subscribed(subscription: &subscriptions::StoredSubscription) -> Subscribed {
    Subscribed {
        filter: String::from_utf8_lossy(&subscription.filter).into_owned(),
        stream: subscription.stream,
        since: subscription.since,
    }
}

fn before(record: sessions::SessionRecord) -> LayerResult<Before> {
    let mut details = record.details;
    Ok(Before {
        life: details.try_get_u64()?,
        attempt: details.try_get_u64()?,
        epoch: record.epoch,
        cursor: record.cursor,
        expiry_s: record.expiry_s,
        detached_at_ms: record.detached_at_ms,
    })
}
