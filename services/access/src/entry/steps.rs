//! One CONNECT on its way.

use std::sync::Arc;

use rustls_pki_types::CertificateDer;

use super::{BrokerAccess, Grant, Method, Refusal, Standing};
use crate::jwt::{self, Identity, Issuer, KeySet, Token};
use crate::model::{CertificateUse, Credential};
use crate::secrets::generated::HashKeys;
use crate::secrets::password::{Answer, check};
use crate::{webhook, x509};

/// What a client shows.
#[derive(Clone, Copy, Default)]
pub struct Shown<'a> {
    /// The client id that it asks for, or gets.
    pub client_id: &'a str,
    /// User name of CONNECT.
    pub user: Option<&'a str>,
    /// Password of CONNECT.
    pub password: Option<&'a [u8]>,
    /// Its certificate (DER). That it has the key is proven.
    pub certificate: Option<&'a [u8]>,
}

/// The key sets that were fetched, by their URLs.
pub trait KeySets {
    /// The key set of a URL, if it was fetched.
    fn get(&self, url: &str) -> Option<Arc<KeySet>>;
}

/// What is needed next.
#[derive(Debug)]
pub enum Step<'a> {
    /// The credential of this user name: [`Entry::credential`].
    Credential(Box<str>),
    /// Whether [`crate::secrets::chosen::verify`] says of one of these hashes that the password is right: [`Entry::hashed`].
    Hash(Vec<&'a str>),
    /// A key of one of these issuers that is not there: when it may be fetched now ([`jwt::Refresh`]), begin anew after that; else
    /// refuse.
    Keys(Vec<&'a Issuer>),
    /// The answer of the webhook: [`Entry::webhook`]. With the user that the client's certificate names.
    Webhook(Option<Box<str>>),
    /// It may enter.
    Accept(Box<(Standing, Grant)>),
    /// It may not.
    Refuse(Refusal),
}

/// A CONNECT that is not decided yet.
#[derive(Debug, Default)]
pub struct Entry {
    /// Who it is, but for the credential of the user name.
    standing: Option<Standing>,
    /// The user that its certificate names, when that does not decide.
    certificate_user: Option<Box<str>>,
    /// The client id that it asks for, or gets.
    client_id: Box<str>,
}

impl Entry {
    /// A client wants to enter.
    pub fn begin<'a>(
        &mut self,
        broker: &'a BrokerAccess,
        shown: Shown<'_>,
        keys: &dyn KeySets,
        now_ms: u64,
    ) -> Step<'a> {
        if broker.is_closed {
            return Step::Refuse(Refusal::NoMethod);
        }
        self.client_id = shown.client_id.into();
        match self.certificate(broker, shown, now_ms) {
            Ok(Some(standing)) => return self.identified(standing),
            Ok(None) => {}
            Err(refusal) => return Step::Refuse(refusal),
        }
        if let Some(step) = self.token(broker, shown, keys, now_ms) {
            return step;
        }
        let access = &broker.access;
        match shown.user.filter(|user| !user.is_empty()) {
            Some(user) if access.passwords => Step::Credential(user.into()),
            _ if access.webhook.is_some() => Step::Webhook(self.certificate_user.clone()),
            None if access.anonymous && shown.password.is_none_or(<[u8]>::is_empty) => {
                let standing = Standing {
                    method: Method::Anonymous,
                    user: None,
                    rules: None,
                    group: None,
                    until_ms: None,
                };
                self.standing = Some(standing);
                self.decide(broker, None, now_ms)
            }
            None => Step::Refuse(Refusal::Anonymous),
            Some(_) => Step::Refuse(Refusal::NoMethod),
        }
    }

    /// The credential was read; `None`: there is none.
    pub fn credential<'a>(
        &mut self,
        broker: &BrokerAccess,
        credential: Option<&'a Credential>,
        shown: Shown<'_>,
        keys: &HashKeys,
        now_ms: u64,
    ) -> Step<'a> {
        if self.standing.is_some() {
            return self.decide(broker, credential, now_ms);
        }
        if credential.is_none() && broker.access.webhook.is_some() {
            return Step::Webhook(self.certificate_user.clone());
        }
        match check(credential, shown.password.unwrap_or_default(), keys, now_ms) {
            Answer::Right => self.hashed(broker, credential, true, now_ms),
            Answer::Wrong => Step::Refuse(Refusal::Password),
            Answer::Slow(hashes) => Step::Hash(hashes.into_vec()),
        }
    }

    /// The password was hashed.
    pub fn hashed<'a>(
        &mut self,
        broker: &BrokerAccess,
        credential: Option<&Credential>,
        is_right: bool,
        now_ms: u64,
    ) -> Step<'a> {
        let Some(credential) = credential.filter(|_| is_right) else {
            return Step::Refuse(Refusal::Password);
        };
        self.known(broker, credential, now_ms)
    }

    /// SCRAM is over: the client knows the password of a credential. Begin with this when a client authenticates that way. Its
    /// certificate counts all the same, and decides when it says who the client is. Of `shown`, only the client id and the certificate
    /// count.
    pub fn proven<'a>(
        &mut self,
        broker: &BrokerAccess,
        credential: &Credential,
        shown: Shown<'_>,
        now_ms: u64,
    ) -> Step<'a> {
        if broker.is_closed || !broker.access.scram {
            return Step::Refuse(Refusal::NoMethod);
        }
        self.client_id = shown.client_id.into();
        let shown = Shown { user: Some(&credential.user), password: None, ..shown };
        match self.certificate(broker, shown, now_ms) {
            Ok(Some(standing)) => {
                self.standing = Some(standing);
                self.decide(broker, Some(credential), now_ms)
            }
            Ok(None) => self.known(broker, credential, now_ms),
            Err(refusal) => Step::Refuse(refusal),
        }
    }

    /// The client knows the password of a credential.
    fn known<'a>(&mut self, broker: &BrokerAccess, credential: &Credential, now_ms: u64) -> Step<'a> {
        let user = Some(credential.user.as_str().into());
        self.standing =
            Some(Standing { method: Method::Password, user, rules: None, group: None, until_ms: None });
        self.decide(broker, Some(credential), now_ms)
    }

    /// The webhook has answered. A client that it lets in may have a credential, too.
    pub fn webhook<'a>(
        &mut self,
        broker: &BrokerAccess,
        shown: Shown<'_>,
        answer: webhook::Answer,
        now_ms: u64,
    ) -> Step<'a> {
        let allowed = match answer {
            webhook::Answer::Allowed(allowed) => allowed,
            webhook::Answer::Refused => return Step::Refuse(Refusal::Webhook),
            webhook::Answer::Failed(what) => return Step::Refuse(Refusal::WebhookFailed(what)),
        };
        let named = self.certificate_user.take().or(shown.user.map(Into::into));
        let group = broker.access.webhook.as_ref().and_then(|webhook| webhook.group.as_deref());
        let standing = Standing {
            method: Method::Webhook,
            user: allowed.user.or(named).filter(|user| !user.is_empty()),
            rules: allowed.rules.map(Arc::new),
            group: allowed.group.or(group.map(Into::into)),
            until_ms: allowed.expires_at_ms,
        };
        if standing.user.is_none() {
            self.standing = Some(standing);
            return self.decide(broker, None, now_ms);
        }
        self.identified(standing)
    }

    /// Who it is, when its certificate decides that.
    fn certificate(
        &mut self,
        broker: &BrokerAccess,
        shown: Shown<'_>,
        now_ms: u64,
    ) -> Result<Option<Standing>, Refusal> {
        let required = match broker.access.certificates {
            CertificateUse::Off => return Ok(None),
            CertificateUse::Accepted => false,
            CertificateUse::Required | CertificateUse::Additional => true,
        };
        let Some(der) = shown.certificate else {
            return if required { Err(Refusal::NoCertificate) } else { Ok(None) };
        };
        let chain = [CertificateDer::from(der)];
        let mut refused = x509::Refusal::UnknownIssuer;
        for authority in &broker.authorities {
            match authority.verify(&chain, now_ms / 1_000) {
                Ok(user) if broker.access.certificates == CertificateUse::Additional => {
                    self.certificate_user = Some(user);
                    return Ok(None);
                }
                Ok(user) if shown.user.is_some_and(|name| !name.is_empty() && *name != *user) => {
                    return Err(Refusal::OtherUser);
                }
                Ok(user) => {
                    let record = authority.record();
                    return Ok(Some(Standing {
                        method: Method::Certificate(record.name.as_str().into()),
                        user: Some(user),
                        rules: None,
                        group: record.group.as_deref().map(Into::into),
                        until_ms: None,
                    }));
                }
                // What one's own authority says is of more use than that others are not it.
                Err(x509::Refusal::UnknownIssuer) => {}
                Err(refusal) => refused = refusal,
            }
        }
        if required || refused != x509::Refusal::UnknownIssuer {
            Err(Refusal::Certificate(refused))
        } else {
            Ok(None)
        }
    }

    /// What follows of a token; `None` when there is none that some issuer could have issued.
    fn token<'a>(
        &mut self,
        broker: &'a BrokerAccess,
        shown: Shown<'_>,
        keys: &dyn KeySets,
        now_ms: u64,
    ) -> Option<Step<'a>> {
        let password =
            shown.password.filter(|password| broker.access.tokens && Token::is_likely(password))?;
        let token = match Token::parse(password) {
            Ok(token) => token,
            Err(refusal) => return Some(Step::Refuse(Refusal::Token(refusal))),
        };
        let (mut refused, mut lack) = (None, Vec::new());
        for issuer in broker.issuers.iter().filter(|issuer| issuer.may_have_issued(&token)) {
            let fetched = issuer.key_set_url().and_then(|url| keys.get(url));
            let verified = match issuer.keys().or(fetched.as_deref()) {
                Some(keys) => issuer.verify(&token, keys, now_ms / 1_000),
                None => Err(jwt::Refusal::UnknownKey),
            };
            match verified.and_then(|identity| {
                identity.check_client(shown.user, shown.client_id)?;
                Ok(identity)
            }) {
                Ok(identity) => return Some(self.identified(of_token(issuer, identity))),
                Err(jwt::Refusal::UnknownKey) if issuer.key_set_url().is_some() => lack.push(issuer),
                Err(refusal) => refused = Some(refusal),
            }
        }
        let lack = (!lack.is_empty()).then_some(Step::Keys(lack));
        lack.or(refused.map(|refusal| Step::Refuse(Refusal::Token(refusal))))
    }

    /// It is known who it is; its user may have a credential that says more.
    fn identified<'a>(&mut self, standing: Standing) -> Step<'a> {
        let user = standing.user.clone().unwrap_or_default();
        self.standing = Some(standing);
        Step::Credential(user)
    }

    fn decide<'a>(
        &mut self,
        broker: &BrokerAccess,
        credential: Option<&Credential>,
        now_ms: u64,
    ) -> Step<'a> {
        let Some(standing) = self.standing.take() else { return Step::Refuse(Refusal::NoMethod) };
        let bound = credential.and_then(|credential| credential.client_id.as_deref());
        if bound.is_some_and(|client_id| *client_id != *self.client_id) {
            return Step::Refuse(Refusal::OtherClient);
        }
        match broker.review(&standing, credential, now_ms) {
            Ok(grant) => Step::Accept(Box::new((standing, grant))),
            Err(refusal) => Step::Refuse(refusal),
        }
    }
}

fn of_token(issuer: &Issuer, identity: Identity) -> Standing {
    let record = issuer.record();
    let leeway_s = u64::from(record.leeway_s);
    let end_ms = identity.expires_at_s.saturating_add(leeway_s).saturating_mul(1_000);
    Standing {
        method: Method::Token(record.name.as_str().into()),
        user: Some(identity.user),
        rules: identity.rules.map(Arc::new),
        group: record.group.as_deref().map(Into::into),
        until_ms: record.disconnect_at_expiry.then_some(end_ms),
    }
}
