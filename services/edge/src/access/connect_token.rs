//! Authenticates clients with a connect token. The token carries everything, so only the region's keys are read, even for an
//! unmanaged broker.

use std::sync::Arc;

use millrace_access::connect_token::ConnectTokenClaims;
pub(crate) use millrace_access::connect_token::is_likely;
use millrace_access::entry::{AccessRefusal, BrokerAccess};
use millrace_access::secrets::generated::HashKeys;
use millrace_layers::accounts::keys;
use millrace_storage::{Read, block_on};

use super::AuthenticationRequest;
use super::service::AccessContext;
use crate::authorization::{Denied, Granted};

pub(super) fn check(shared: &AccessContext, request: &AuthenticationRequest) -> Result<Granted, Denied> {
    let loaded = request.broker.access();
    let keys = match &loaded {
        Some(loaded) => loaded.hash_keys.clone(),
        None => region_keys(shared)?,
    };
    let now_ms = shared.clock.unix_now_ms();
    let credentials = request.credentials();
    let token = ConnectTokenClaims::open(&keys, credentials.password.unwrap_or_default());
    let token = token.map_err(AccessRefusal::ConnectToken)?;
    let identity = token.identity(request.broker.id, credentials, now_ms)?;
    let not_managed = BrokerAccess::default();
    let access = loaded.as_ref().map_or(&not_managed, |loaded| &loaded.access);
    let grant = access.review(&identity, None, credentials.client_id, now_ms)?;
    let changes = loaded.as_ref().map_or(0, |loaded| loaded.changes);
    Ok(Granted { identity: Arc::new(identity), grant, changes, anew: None })
}

fn region_keys(shared: &AccessContext) -> Result<HashKeys, Denied> {
    let keys = block_on(shared.store.run(async |tx| keys::get(&tx, Read::Snapshot).await));
    let keys = keys.map_err(|error| {
        tracing::error!(%error, "the keys of the region cannot be read: clients with a connect token are refused and may try again");
        Denied::Unread
    })?;
    Ok(HashKeys::new(keys.into_iter().map(|key| (key.id, key.key))).unwrap_or_default())
}
