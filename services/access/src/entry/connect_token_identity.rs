//! Derives the [`ProvenIdentity`] of a client from the claims of a connect token that was opened with the right key.

use std::sync::Arc;

use super::{AccessRefusal, Method, PresentedCredentials, ProvenIdentity};
use crate::connect_token::{ConnectTokenClaims, ConnectTokenRefusal};
use crate::rules::RuleList;

impl ConnectTokenClaims {
    pub fn identity(
        &self,
        broker: u64,
        presented: PresentedCredentials<'_>,
        now_ms: u64,
    ) -> Result<ProvenIdentity, AccessRefusal> {
        let refuse = |why| Err(AccessRefusal::ConnectToken(why));
        if self.broker != broker {
            return refuse(ConnectTokenRefusal::Broker);
        }
        if self.expires_at_ms <= now_ms {
            return refuse(ConnectTokenRefusal::Expired);
        }
        let is_user = presented.user.is_none_or(|user| user.is_empty() || user == self.user);
        if !is_user || presented.client_id != self.client_id {
            return refuse(ConnectTokenRefusal::Client);
        }
        let rules = RuleList::compile(&self.rules).map_err(|_| AccessRefusal::Rules)?;
        // An empty rule list would allow everything.
        if rules.is_empty() {
            return Err(AccessRefusal::Rules);
        }
        let method = Method::ConnectToken { may_share: self.may_share };
        let identity = ProvenIdentity::new(method, Some(self.user.as_str().into()));
        Ok(ProvenIdentity { rules: Some(Arc::new(rules)), until_ms: Some(self.expires_at_ms), ..identity })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect_token::tests::token;

    #[test]
    fn a_token_is_for_one_client_of_one_broker_until_it_expires() {
        let presented =
            |user, client_id| PresentedCredentials { user, client_id, ..PresentedCredentials::default() };
        let identity = token().identity(7, presented(None, "page-1"), 999).unwrap();
        assert_eq!((identity.user.as_deref(), identity.until_ms), (Some("console:ann"), Some(1_000)));
        let why = |broker, user, client_id, now_ms| {
            token().identity(broker, presented(user, client_id), now_ms).err()
        };
        for (broker, user, client_id, now_ms, refusal) in [
            (8, None, "page-1", 999, ConnectTokenRefusal::Broker),
            (7, None, "page-1", 1_000, ConnectTokenRefusal::Expired),
            (7, None, "pump", 999, ConnectTokenRefusal::Client),
            (7, Some("bob"), "page-1", 999, ConnectTokenRefusal::Client),
        ] {
            assert_eq!(why(broker, user, client_id, now_ms), Some(AccessRefusal::ConnectToken(refusal)));
        }
        let free = ConnectTokenClaims { rules: Vec::new(), ..token() };
        assert_eq!(free.identity(7, presented(None, "page-1"), 0).err(), Some(AccessRefusal::Rules));
    }
}
