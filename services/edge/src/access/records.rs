//! Reads a broker's access records from the store. Brokers by the server's settings have none; all others are managed.

use millrace_access::bans::Bans;
use millrace_access::entry::{AccessRecords, BrokerAccess};
use millrace_access::model::{Access, Limits};
use millrace_access::scram::FakeKey;
use millrace_access::secrets::generated::HashKeys;
use millrace_layers::accounts::{self, ACCESS, keys};
use millrace_layers::documents::Collection;
use millrace_layers::{LayerError, Store, catalog};
use millrace_storage::{Read, Transaction, block_on};
use serde::de::DeserializeOwned;

use crate::authorization::{BrokerRecords, LoadedAccess};
use crate::broker::Broker;
use crate::random;

const PAGE: usize = 100;

/// Sets the broker's tenant, bans and whether it is over its spend cap, and returns its other records.
pub(crate) fn load(store: &Store, broker: &Broker) -> Result<BrokerRecords, LayerError> {
    let id = broker.id;
    let name = broker.name.as_bytes();
    let random = random::bytes().map_err(|_| LayerError::Corrupt("no random numbers from the system"))?;
    let read = store.run(async |tx| {
        let changes = accounts::changes(&tx, id, Read::Snapshot).await?;
        let bans = all(&accounts::bans(id), &tx).await?;
        let found = catalog::get(&tx, name, Read::Snapshot).await?.filter(|found| found.id == id);
        let Some(found) = found else {
            // The broker was deleted, so its remaining clients must be disconnected.
            let records = AccessRecords { is_closed: true, ..AccessRecords::default() };
            return Ok((Some((records, Vec::new(), random)), Limits::default(), true, bans, changes));
        };
        let details = found.details()?.value;
        broker.set_over_cap(details.is_over_cap);
        if let Some(tenant) = &details.organisation {
            broker.set_tenant(tenant);
        }
        let access = accounts::access(id).get::<Access>(&tx, ACCESS, Read::Snapshot).await?;
        let access = access.map(|document| document.value);
        let is_managed = details.is_managed(access.as_ref().map(|access| access.by_settings));
        let access = access.unwrap_or_default();
        let (limits, has_tenant) = (access.limits_in_force(), is_managed || details.organisation.is_some());
        if !is_managed && !details.suspended {
            return Ok((None, limits, has_tenant, bans, changes));
        }
        let records = AccessRecords {
            access,
            is_closed: details.suspended,
            groups: all(&accounts::groups(id), &tx).await?,
            issuers: all(&accounts::jwt_issuers(id), &tx).await?,
            authorities: all(&accounts::client_cas(id), &tx).await?,
        };
        // Unknown users get fake SCRAM verifiers of this key, which is `random` if the region has none yet.
        let decoy = keys::decoy(&tx, random).await?;
        let keys = keys::get(&tx, Read::Snapshot).await?;
        Ok((Some((records, keys, decoy)), limits, has_tenant, bans, changes))
    });
    let (found, limits, has_tenant, bans, changes) = block_on(read)?;
    let (bans, wrong) = Bans::new(bans);
    for invalid in wrong {
        tracing::warn!(broker = &*broker.name, %invalid, "a stored ban is invalid and bans nobody: delete it, and add it again");
    }
    broker.set_bans(bans);
    let access = found.map(|(records, keys, decoy)| {
        let hash_keys = HashKeys::new(keys.into_iter().map(|key| (key.id, key.key))).unwrap_or_default();
        let fake = FakeKey::of_broker(&decoy, id);
        LoadedAccess { access: ready(&broker.name, records), hash_keys, fake, changes }
    });
    Ok(BrokerRecords { access, limits, has_tenant, changes })
}

/// The control plane stores only valid records; an invalid one authenticates nobody.
fn ready(broker: &str, records: AccessRecords) -> BrokerAccess {
    match BrokerAccess::new(records) {
        Ok((access, wrong)) => {
            for invalid in wrong {
                tracing::warn!(broker, %invalid, "a stored record is invalid and authenticates nobody: save it again with a valid value");
            }
            access
        }
        Err(wrong) => {
            let wrong = wrong.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            tracing::warn!(
                broker,
                %wrong,
                "the stored rules of a broker are invalid, so all its clients are refused: save valid rules"
            );
            let records = AccessRecords { is_closed: true, ..AccessRecords::default() };
            BrokerAccess::new(records).map(|(access, _)| access).unwrap_or_default()
        }
    }
}

async fn all<T: DeserializeOwned>(collection: &Collection, tx: &Transaction) -> Result<Vec<T>, LayerError> {
    let (mut all, mut from) = (Vec::new(), None);
    loop {
        let page = collection.page::<T>(tx, from.as_deref(), PAGE, Read::Snapshot).await?;
        let more = page.more;
        for (id, document) in page.items {
            all.push(document.value);
            from = Some(id);
        }
        if !more {
            return Ok(all);
        }
    }
}
