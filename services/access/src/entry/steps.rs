//! The state machine that authenticates one CONNECT: it names each step, and the caller carries the
//! step out and returns with the result.

use std::sync::Arc;

use rustls_pki_types::CertificateDer;

use super::{AccessRefusal, BrokerAccess, Grant, Method, ProvenCertificate, ProvenIdentity};
use crate::jwt::{self, Identity, Issuer, JsonWebToken, KeySet};
use crate::limits::USER_BYTES_MAX;
use crate::model::{CertificateUse, Credential};
use crate::secrets::generated::HashKeys;
use crate::secrets::password::{PasswordCheck, check};
use crate::x509::CertificateId;
use crate::{webhook, x509};

#[derive(Clone, Copy, Default)]
pub struct PresentedCredentials<'a> {
    /// The client id of the CONNECT, or the one that the server assigned.
    pub client_id: &'a str,
    pub user: Option<&'a str>,
    pub password: Option<&'a [u8]>,
    /// In DER; the TLS handshake has proven that the client has the certificate's key.
    pub certificate: Option<&'a [u8]>,
}

pub trait KeySets {
    fn get(&self, url: &str) -> Option<Arc<KeySet>>;
}

#[derive(Debug)]
pub enum AuthenticationStep<'a> {
    /// Read the credential of this user name for [`ConnectAuthentication::credential`].
    Credential(Box<str>),
    /// Check the password against these hashes with [`crate::secrets::chosen::verify`] for
    /// [`ConnectAuthentication::password_checked`].
    Hash(Vec<&'a str>),
    /// No key set of these issuers has the token's key. If [`jwt::Refresh`] allows a fetch now,
    /// fetch and begin again; otherwise refuse.
    Keys(Vec<&'a Issuer>),
    /// Call the webhook for [`ConnectAuthentication::webhook`], and name the user of the client's
    /// certificate in the request.
    Webhook(Option<Box<str>>),
    Accept(Box<(ProvenIdentity, Grant)>),
    Refuse(AccessRefusal),
}

#[derive(Debug, Default)]
pub struct ConnectAuthentication {
    /// The identity found so far, while its user's credential is being read.
    identity: Option<ProvenIdentity>,
    /// The user that the client's certificate names, while another method decides.
    certificate_user: Option<Box<str>>,
    certificate: Option<Box<ProvenCertificate>>,
    client_id: Box<str>,
}

impl ConnectAuthentication {
    pub fn begin<'a>(
        &mut self,
        broker: &'a BrokerAccess,
        presented: PresentedCredentials<'_>,
        keys: &dyn KeySets,
        now_ms: u64,
    ) -> AuthenticationStep<'a> {
        if broker.is_closed {
            return AuthenticationStep::Refuse(AccessRefusal::NoMethod);
        }
        self.client_id = presented.client_id.into();
        match self.certificate(broker, presented, now_ms) {
            Ok(Some(identity)) => return self.identified(identity),
            Ok(None) => {}
            Err(refusal) => return AuthenticationStep::Refuse(refusal),
        }
        if let Some(step) = self.token(broker, presented, keys, now_ms) {
            return step;
        }
        if presented.user.is_some_and(|user| user.len() > USER_BYTES_MAX) {
            return AuthenticationStep::Refuse(AccessRefusal::LongUserName);
        }
        let access = &broker.access;
        match presented.user.filter(|user| !user.is_empty()) {
            Some(user) if access.passwords => AuthenticationStep::Credential(user.into()),
            _ if access.webhook.is_some() => AuthenticationStep::Webhook(self.certificate_user.clone()),
            None if access.anonymous && presented.password.is_none_or(<[u8]>::is_empty) => {
                self.identity = Some(ProvenIdentity::new(Method::Anonymous, None));
                self.decide(broker, None, now_ms)
            }
            None => AuthenticationStep::Refuse(AccessRefusal::Anonymous),
            Some(_) => AuthenticationStep::Refuse(AccessRefusal::NoMethod),
        }
    }

    /// Continues with the credential of the user name that [`AuthenticationStep::Credential`] named;
    /// `None` if there is none.
    pub fn credential<'a>(
        &mut self,
        broker: &BrokerAccess,
        credential: Option<&'a Credential>,
        presented: PresentedCredentials<'_>,
        keys: &HashKeys,
        now_ms: u64,
    ) -> AuthenticationStep<'a> {
        if self.identity.is_some() {
            return self.decide(broker, credential, now_ms);
        }
        if credential.is_none() && broker.access.webhook.is_some() {
            return AuthenticationStep::Webhook(self.certificate_user.clone());
        }
        match check(credential, presented.password.unwrap_or_default(), keys, now_ms) {
            PasswordCheck::Right => self.password_checked(broker, credential, true, now_ms),
            PasswordCheck::Wrong => AuthenticationStep::Refuse(AccessRefusal::Password),
            PasswordCheck::Slow(hashes) => AuthenticationStep::Hash(hashes.into_vec()),
        }
    }

    pub fn password_checked<'a>(
        &mut self,
        broker: &BrokerAccess,
        credential: Option<&Credential>,
        is_right: bool,
        now_ms: u64,
    ) -> AuthenticationStep<'a> {
        let Some(credential) = credential.filter(|_| is_right) else {
            return AuthenticationStep::Refuse(AccessRefusal::Password);
        };
        self.accept_password(broker, credential, now_ms)
    }

    /// Starts with a client that proved by SCRAM that it knows the password of `credential`. A
    /// certificate that names the user still decides. The password of `presented` is
    /// ignored.
    pub fn proven_by_scram<'a>(
        &mut self,
        broker: &BrokerAccess,
        credential: &Credential,
        presented: PresentedCredentials<'_>,
        now_ms: u64,
    ) -> AuthenticationStep<'a> {
        if broker.is_closed || !broker.access.scram {
            return AuthenticationStep::Refuse(AccessRefusal::NoMethod);
        }
        self.client_id = presented.client_id.into();
        let presented = PresentedCredentials { user: Some(&credential.user), password: None, ..presented };
        match self.certificate(broker, presented, now_ms) {
            Ok(Some(identity)) => {
                self.identity = Some(identity);
                self.decide(broker, Some(credential), now_ms)
            }
            Ok(None) => self.accept_password(broker, credential, now_ms),
            Err(refusal) => AuthenticationStep::Refuse(refusal),
        }
    }

    fn accept_password<'a>(
        &mut self,
        broker: &BrokerAccess,
        credential: &Credential,
        now_ms: u64,
    ) -> AuthenticationStep<'a> {
        let user = Some(credential.user.as_str().into());
        let identity = ProvenIdentity::new(Method::Password, user);
        self.identity = Some(ProvenIdentity { since_ms: Some(credential.created_at_ms), ..identity });
        self.decide(broker, Some(credential), now_ms)
    }

    pub fn webhook<'a>(
        &mut self,
        broker: &BrokerAccess,
        presented: PresentedCredentials<'_>,
        answer: webhook::WebhookAnswer,
        now_ms: u64,
    ) -> AuthenticationStep<'a> {
        let allowed = match answer {
            webhook::WebhookAnswer::Allowed(allowed) => allowed,
            webhook::WebhookAnswer::Refused => return AuthenticationStep::Refuse(AccessRefusal::Webhook),
            webhook::WebhookAnswer::Failed(what) => {
                return AuthenticationStep::Refuse(AccessRefusal::WebhookFailed(what));
            }
        };
        let named = self.certificate_user.take().or(presented.user.map(Into::into));
        let group = broker.access.webhook.as_ref().and_then(|webhook| webhook.group.as_deref());
        let user = allowed.user.or(named).filter(|user| !user.is_empty());
        let identity = ProvenIdentity {
            rules: allowed.rules.map(Arc::new),
            group: allowed.group.or(group.map(Into::into)),
            until_ms: allowed.expires_at_ms,
            ..ProvenIdentity::new(Method::Webhook, user)
        };
        if identity.user.is_none() {
            self.identity = Some(identity);
            return self.decide(broker, None, now_ms);
        }
        self.identified(identity)
    }

    /// The user that the certificate names; `None`: another method decides.
    fn certificate(
        &mut self,
        broker: &BrokerAccess,
        presented: PresentedCredentials<'_>,
        now_ms: u64,
    ) -> Result<Option<ProvenIdentity>, AccessRefusal> {
        let required = match broker.access.certificates {
            CertificateUse::Off => return Ok(None),
            CertificateUse::Accepted => false,
            CertificateUse::Required | CertificateUse::Additional => true,
        };
        let Some(der) = presented.certificate else {
            return if required { Err(AccessRefusal::NoCertificate) } else { Ok(None) };
        };
        let chain = [CertificateDer::from(der)];
        let mut refused = x509::CertificateRefusal::UnknownIssuer;
        for authority in &broker.authorities {
            let verified = authority.verify(&chain, now_ms / 1_000);
            let id = verified.as_ref().ok().and_then(|_| CertificateId::of(&chain[0]));
            self.certificate = id.map(|id| {
                let record = authority.record();
                let authority = (record.name.as_str().into(), record.created_at_ms);
                Box::new(ProvenCertificate { id, authority })
            });
            match verified {
                Ok(user) if broker.access.certificates == CertificateUse::Additional => {
                    self.certificate_user = Some(user);
                    return Ok(None);
                }
                Ok(user) if presented.user.is_some_and(|name| !name.is_empty() && *name != *user) => {
                    return Err(AccessRefusal::OtherUser);
                }
                Ok(user) => {
                    let record = authority.record();
                    let method = Method::Certificate(record.name.as_str().into());
                    return Ok(Some(ProvenIdentity {
                        group: record.group.as_deref().map(Into::into),
                        since_ms: Some(record.created_at_ms),
                        ..ProvenIdentity::new(method, Some(user))
                    }));
                }
                // The refusal of the authority that issued the certificate explains more than
                // "unknown issuer".
                Err(x509::CertificateRefusal::UnknownIssuer) => {}
                Err(refusal) => refused = refusal,
            }
        }
        if required || refused != x509::CertificateRefusal::UnknownIssuer {
            Err(AccessRefusal::Certificate(refused))
        } else {
            Ok(None)
        }
    }

    /// `None`: another method decides, because the broker accepts no tokens, or no issuer of it could have issued this password.
    fn token<'a>(
        &mut self,
        broker: &'a BrokerAccess,
        presented: PresentedCredentials<'_>,
        keys: &dyn KeySets,
        now_ms: u64,
    ) -> Option<AuthenticationStep<'a>> {
        let password = presented
            .password
            .filter(|password| broker.access.tokens && JsonWebToken::is_likely(password))?;
        let token = match JsonWebToken::parse(password) {
            Ok(token) => token,
            Err(refusal) => return Some(AuthenticationStep::Refuse(AccessRefusal::Token(refusal))),
        };
        let (mut refused, mut lack) = (None, Vec::new());
        for issuer in broker.issuers.iter().filter(|issuer| issuer.may_have_issued(&token)) {
            let fetched = issuer.key_set_url().and_then(|url| keys.get(url));
            let verified = match issuer.keys().or(fetched.as_deref()) {
                Some(keys) => issuer.verify(&token, keys, now_ms / 1_000),
                None => Err(jwt::TokenRefusal::UnknownKey),
            };
            match verified.and_then(|identity| {
                identity.check_client(presented.user, presented.client_id)?;
                Ok(identity)
            }) {
                Ok(identity) => return Some(self.identified(of_token(issuer, identity))),
                Err(jwt::TokenRefusal::UnknownKey) if issuer.key_set_url().is_some() => lack.push(issuer),
                Err(refusal) => refused = Some(refusal),
            }
        }
        let lack = (!lack.is_empty()).then_some(AuthenticationStep::Keys(lack));
        lack.or(refused.map(|refusal| AuthenticationStep::Refuse(AccessRefusal::Token(refusal))))
    }

    fn identified<'a>(&mut self, identity: ProvenIdentity) -> AuthenticationStep<'a> {
        let user = identity.user.clone().unwrap_or_default();
        self.identity = Some(identity);
        AuthenticationStep::Credential(user)
    }

    /// The last step: accepts the client that was found, if its credential and its group allow it.
    fn decide<'a>(
        &mut self,
        broker: &BrokerAccess,
        credential: Option<&Credential>,
        now_ms: u64,
    ) -> AuthenticationStep<'a> {
        let Some(mut identity) = self.identity.take() else {
            return AuthenticationStep::Refuse(AccessRefusal::NoMethod);
        };
        identity.certificate = self.certificate.take();
        match broker.review(&identity, credential, &self.client_id, now_ms) {
            Ok(grant) => AuthenticationStep::Accept(Box::new((identity, grant))),
            Err(refusal) => AuthenticationStep::Refuse(refusal),
        }
    }
}

fn of_token(issuer: &Issuer, claimed: Identity) -> ProvenIdentity {
    let record = issuer.record();
    let leeway_s = u64::from(record.leeway_s);
    let end_ms = claimed.expires_at_s.saturating_add(leeway_s).saturating_mul(1_000);
    let method = Method::Token(record.name.as_str().into());
    ProvenIdentity {
        rules: claimed.rules.map(Arc::new),
        group: record.group.as_deref().map(Into::into),
        until_ms: record.disconnect_at_expiry.then_some(end_ms),
        since_ms: Some(record.created_at_ms),
        ..ProvenIdentity::new(method, Some(claimed.user))
    }
}
