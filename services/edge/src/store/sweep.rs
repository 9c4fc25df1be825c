//! What is due without anybody asking: wills after their delay, sessions whose time is over, and the connections that an
//! earlier process left open.

use millrace_layers::Error;
use millrace_layers::due::{self, SHARDS};
use millrace_layers::sessions::{self, SessionId};
use millrace_layers::subscriptions;

use super::apply::{Applied, Applier};
use super::load::OWNER;
use super::writer::Writer;

/// Sessions that one transaction ends.
const SESSIONS: usize = 100;

/// Does what is due now.
pub(super) fn due(writer: &mut Writer<'_>) {
    let now_ms = writer.shared.clock.unix_now_ms();
    for shard in 0..SHARDS {
        while is_due(writer, shard, now_ms) {
            let swept = writer.transact(&async |applier| settle(applier, shard, now_ms).await);
            match swept {
                Ok((applied, stamp)) => writer.swept(applied, stamp),
                Err(error) => return tracing::warn!(%error, "wills and expired sessions wait"),
            }
        }
    }
}

fn is_due(writer: &Writer<'_>, shard: u8, now_ms: u64) -> bool {
    let next = writer.shared.layers.run(async |tx| due::next_due(&tx, shard).await);
    millrace_storage::block_on(next).is_ok_and(|next| next.is_some_and(|at_ms| at_ms <= now_ms))
}

async fn settle(applier: &mut Applier<'_>, shard: u8, now_ms: u64) -> Result<(), Error> {
    let broker = applier.shared.broker.clone();
    for due in due::take_due(applier.tx, shard, now_ms, SESSIONS).await? {
        if due.broker != broker.id {
            continue;
        }
        let id = SessionId { broker: broker.id, client: &due.client };
        let before = subscriptions::list(applier.tx, id).await?;
        let settled = sessions::settle(applier.tx, &due, now_ms).await?;
        if let Some(will) = settled.will {
            applier.will(&broker, &will).await?;
        }
        if settled.ended {
            applier.applied.ended += 1;
            applier.note_changes(&broker, before.iter().map(|subscription| &*subscription.filter)).await?;
        }
    }
    Ok(())
}

/// Ends the connections that were open when an earlier process ended: their wills fire, and their sessions wait.
pub(super) fn abandoned(writer: &mut Writer<'_>) {
    loop {
        let swept = writer.transact(&async |applier| {
            let broker = applier.shared.broker.clone();
            let now_ms = applier.shared.clock.unix_now_ms();
            for session in sessions::of_owner(applier.tx, OWNER, None, SESSIONS).await? {
                let before = subscriptions::list(applier.tx, session.id()).await?;
                if let Some(will) = sessions::abandon(applier.tx, session.id(), OWNER, now_ms).await? {
                    applier.will(&broker, &will).await?;
                }
                applier
                    .note_changes(&broker, before.iter().map(|subscription| &*subscription.filter))
                    .await?;
                applier.applied.ended += 1;
            }
            Ok(())
        });
        match swept {
            Ok((applied, stamp)) => {
                let found = applied.ended;
                // They are counted after this.
                writer.swept(Applied { ended: 0, ..applied }, stamp);
                if found < SESSIONS {
                    return;
                }
            }
            Err(error) => return tracing::error!(%error, "sessions of an earlier run could not be ended"),
        }
    }
}
