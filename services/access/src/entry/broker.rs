//! The access records of one broker, compiled for authentication and authorization.

use std::collections::HashMap;
use std::sync::Arc;

use super::shared_rules::SharedRules;
use super::{AccessRefusal, Grant, Method, ProvenIdentity};
use crate::jwt::Issuer;
use crate::limits::AUTHORITIES_MAX;
use crate::model::{Access, CertificateUse, ClientCa, Credential, Group, Invalid, JwtIssuer};
use crate::rules::{Permissions, RuleList};
use crate::x509::{self, Authority};

#[derive(Clone, Debug, Default)]
pub struct AccessRecords {
    pub access: Access,
    /// The broker is suspended or deleted, so every client is refused.
    pub is_closed: bool,
    pub groups: Vec<Group>,
    pub issuers: Vec<JwtIssuer>,
    pub authorities: Vec<ClientCa>,
}

#[derive(Debug, Default)]
pub struct BrokerAccess {
    pub(super) access: Access,
    pub(super) is_closed: bool,
    rules: Arc<RuleList>,
    groups: HashMap<String, Arc<RuleList>>,
    of_credentials: SharedRules,
    pub(super) issuers: Vec<Issuer>,
    pub(super) authorities: Vec<Authority>,
}

impl BrokerAccess {
    /// Also returns the invalid records, named in front of the field; they authenticate nobody. The control plane stores
    /// no more issuers and authorities than are taken here.
    ///
    /// # Errors
    /// The broker's own rules are invalid, so every client must be refused.
    pub fn new(records: AccessRecords) -> Result<(Self, Vec<Invalid>), Vec<Invalid>> {
        let rules = Arc::new(RuleList::compile(&records.access.rules)?);
        let mut wrong = Vec::new();
        let mut groups = HashMap::new();
        for group in records.groups {
            let list = collect_invalid(&mut wrong, "groups", &group.name, RuleList::compile(&group.rules));
            groups.extend(list.map(|list| (group.name, Arc::new(list))));
        }
        let mut issuers = Vec::new();
        for record in records.issuers.into_iter().filter(|record| record.enabled).take(AUTHORITIES_MAX) {
            let name = record.name.clone();
            issuers.extend(collect_invalid(&mut wrong, "issuers", &name, Issuer::new(record)));
        }
        let mut authorities = Vec::new();
        for record in records.authorities.into_iter().filter(|record| record.enabled).take(AUTHORITIES_MAX) {
            let name = record.name.clone();
            authorities.extend(collect_invalid(&mut wrong, "authorities", &name, Authority::new(record)));
        }
        let is_closed = records.is_closed;
        let (access, of_credentials) = (records.access, SharedRules::default());
        Ok((Self { access, is_closed, rules, groups, of_credentials, issuers, authorities }, wrong))
    }

    #[must_use]
    pub fn access(&self) -> &Access {
        &self.access
    }

    #[must_use]
    pub fn issuers(&self) -> &[Issuer] {
        &self.issuers
    }

    /// Derives the rules of a client that was accepted with `identity`, unless the record that accepted it was made anew
    /// since (`since_ms`); `credential` is that of its user name. An error says why the client must be disconnected.
    pub fn review(
        &self,
        identity: &ProvenIdentity,
        credential: Option<&Credential>,
        client_id: &str,
        now_ms: u64,
    ) -> Result<Grant, AccessRefusal> {
        if self.is_closed || !self.has(identity) {
            return Err(AccessRefusal::MethodRemoved);
        }
        let counts = !matches!(identity.method, Method::ConnectToken { .. });
        if counts && credential.is_some_and(|credential| !credential.is_active(now_ms)) {
            return Err(AccessRefusal::Disabled);
        }
        if identity.method == Method::Password
            && credential.is_none_or(|credential| identity.since_ms != Some(credential.created_at_ms))
        {
            return Err(AccessRefusal::MethodRemoved);
        }
        let bound = credential.and_then(|credential| credential.client_id.as_deref());
        if bound.is_some_and(|bound| bound != client_id) {
            return Err(AccessRefusal::OtherClient);
        }
        self.check_certificate(identity)?;
        if identity.until_ms.is_some_and(|until_ms| until_ms <= now_ms) {
            return Err(AccessRefusal::Expired);
        }
        if matches!(identity.method, Method::ConnectToken { .. }) {
            let permissions = Permissions::with_own(identity.rules.clone(), []);
            return Ok(Grant { permissions, until_ms: identity.until_ms });
        }
        let ends = [identity.until_ms, credential.and_then(|credential| credential.expires_at_ms)];
        let permissions = self.permissions(identity, credential)?;
        Ok(Grant { permissions, until_ms: ends.into_iter().flatten().min() })
    }

    /// The rules alone, for the will of a client that is gone.
    pub fn permissions(
        &self,
        identity: &ProvenIdentity,
        credential: Option<&Credential>,
    ) -> Result<Permissions, AccessRefusal> {
        let own = credential.map(|credential| &credential.rules).filter(|rules| !rules.is_empty());
        let own = own.map(|rules| RuleList::compile(rules)).transpose().map_err(|_| AccessRefusal::Rules)?;
        let own = own.map(|list| self.of_credentials.share(list));
        let group =
            credential.and_then(|credential| credential.group.as_deref()).or(identity.group.as_deref());
        let group =
            group.map(|name| self.groups.get(name).cloned().ok_or_else(|| AccessRefusal::Group(name.into())));
        let others = own.into_iter().chain(group.transpose()?).chain([self.rules.clone()]);
        Ok(Permissions::with_own(identity.rules.clone(), others))
    }

    fn check_certificate(&self, identity: &ProvenIdentity) -> Result<(), AccessRefusal> {
        let is_demanded = match self.access.certificates {
            CertificateUse::Off => return Ok(()),
            CertificateUse::Accepted => false,
            CertificateUse::Required | CertificateUse::Additional => {
                !matches!(identity.method, Method::ConnectToken { .. })
            }
        };
        let Some(certificate) = &identity.certificate else {
            return if is_demanded { Err(AccessRefusal::NoCertificate) } else { Ok(()) };
        };
        let (name, since_ms) = &certificate.authority;
        match self.authority(name, Some(*since_ms)) {
            Some(authority) if authority.revokes(&certificate.id) => {
                Err(AccessRefusal::Certificate(x509::CertificateRefusal::Revoked))
            }
            None if is_demanded => Err(AccessRefusal::MethodRemoved),
            _ => Ok(()),
        }
    }

    /// The authority with this name, if it is the one that was created at this time.
    fn authority(&self, name: &str, since_ms: Option<u64>) -> Option<&Authority> {
        let is_its = |one: &ClientCa| one.name == name && since_ms == Some(one.created_at_ms);
        self.authorities.iter().find(|authority| is_its(authority.record()))
    }

    fn has(&self, identity: &ProvenIdentity) -> bool {
        let access = &self.access;
        match &identity.method {
            Method::Anonymous => access.anonymous,
            Method::Password => access.passwords || access.scram,
            Method::Token(name) => {
                let is_its =
                    |one: &JwtIssuer| *one.name == **name && identity.since_ms == Some(one.created_at_ms);
                access.tokens && self.issuers.iter().any(|one| is_its(one.record()))
            }
            Method::Certificate(name) => {
                let is_used =
                    matches!(access.certificates, CertificateUse::Accepted | CertificateUse::Required);
                is_used && self.authority(name, identity.since_ms).is_some()
            }
            Method::Webhook => access.webhook.is_some(),
            Method::ConnectToken { .. } => true,
        }
    }
}

fn collect_invalid<T>(
    wrong: &mut Vec<Invalid>,
    kind: &str,
    name: &str,
    made: Result<T, Vec<Invalid>>,
) -> Option<T> {
    let note = |invalid: Invalid| Invalid { field: format!("{kind}[{name:?}].{}", invalid.field), ..invalid };
    made.map_err(|found| wrong.extend(found.into_iter().map(note))).ok()
}
