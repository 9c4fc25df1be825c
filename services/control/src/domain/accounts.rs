//! Operations on accounts of people: sign up, in and out, and read or change one's own account.

mod password_proof;
mod record;
mod shapes;

use millrace_layers::accounts;
use millrace_storage::{Read, Transaction};
use std::net::IpAddr;
use std::sync::Arc;
use uuid::Uuid;

use super::audit::{Actor, ActorKind};
use super::change::Change;
use super::check::FieldErrors;
use super::passkeys::Purposed;
use super::post::Post;
use super::second_factor::{FactorCheck, PresentedFactor};
use super::sign_ups::SignUpRequest;
use super::web_sessions::NewSession;
use super::{
    Caller, Control, Error, Once, Principal, RequestSource, Result, Role, SignUpBy, invitations, machine,
    members, organisations, second_factor, setup, web_sessions, web_sessions::shortened,
};
use crate::secret::{self, Hash, Purpose, Secret};
pub(super) use record::{
    Newcomer, UserRecord, by_email, create, found, get, has_password, is_there_one_with, put_unindexed, shown,
};
use record::{hash_of, still_has_hash};
pub use shapes::{Me, Membership, NewPassword, SignIn, SignUp, SignedIn, SignedUp, User, UserChange};

const THERE_IS_AN_ACCOUNT: &str = "there is an account with this e-mail address: sign in";

impl User {
    pub(super) fn known_as(&self) -> &str {
        self.email.as_deref().unwrap_or(&self.name)
    }
}

impl Control {
    /// Makes an account and signs the person in, or mails a link that does so ([`SignedUp::Asked`]).
    pub async fn sign_up(&self, input: &SignUp, once: &Once, source: &RequestSource) -> Result<SignedUp> {
        self.may_sign_up(input.token.as_ref())?;
        let mut fields = FieldErrors::default();
        let email = fields.email("email", &input.email);
        fields.password("password", &input.password);
        fields.name("name", &input.name);
        if let Some(name) = &input.organisation {
            fields.name("organisation", name);
        }
        fields.done()?;
        // The token is checked first, so that a request with a wrong one makes the server estimate and hash no password.
        let opens_setup = match &input.token {
            Some(token) => {
                let (email, now_ms) = (&email, self.now_ms());
                self.look(|tx| async move { self.is_open_to(&tx, token, email, now_ms).await }).await?
            }
            None => false,
        };
        self.refuse_weak("password", &input.password, &[&input.email, &input.name]).await?;
        let password = Some(Secret::from(&*self.hash_password(&input.password).await?));
        let (id, organisation) = (self.new_id()?, self.new_id()?);
        let newcomer = &Newcomer { id, email, name: input.name.clone(), password };
        let named = input.organisation.as_ref().unwrap_or(&input.name);
        if let Some(post) = self.confirms_sign_up(input.token.as_ref())?
            && !opens_setup
        {
            let wanted = SignUpRequest { newcomer, organisation: named, invitation: input.token.as_ref() };
            return Ok(SignedUp::Asked(self.request_sign_up(post, wanted).await?));
        }
        let actor = person(id, &newcomer.email, source.address);
        let made = self
            .change(actor, once, |change| async move {
                if let Some(token) = &input.token {
                    self.is_open_to(&change.tx, token, &newcomer.email, change.now_ms).await?;
                }
                create(&change, newcomer).await?;
                self.join_organisation(&change, id, organisation, named, input.token.as_ref()).await?;
                Ok(id)
            })
            .await?;
        Ok(SignedUp::In(Box::new(self.start_signed_up(made, newcomer, &input.password, source).await?)))
    }

    /// Begins the session of a new account. A repetition of the sign-up request may come after the account has got another password
    /// or a second factor; then it begins no session.
    async fn start_signed_up(
        &self,
        user: Uuid,
        newcomer: &Newcomer,
        password: &Secret,
        source: &RequestSource,
    ) -> Result<SignedIn> {
        let is_there = || Error::Conflict(THERE_IS_AN_ACCOUNT.into());
        let stored = self.look(|tx| async move { get(&tx, user, Read::Snapshot).await }).await?;
        let phc = &stored.and_then(|account| account.value.password).ok_or_else(is_there)?;
        // If this request has stored the hash, the password needs no check.
        let is_new = newcomer.password.as_ref().is_some_and(|own| own.expose() == phc.expose());
        if !is_new && !self.verify_password(Some(phc.expose().to_owned()), password).await? {
            return Err(is_there());
        }
        let session = &self.new_session(source)?;
        self.write(|tx| async move {
            let account = found(get(&tx, user, Read::Serializable).await?)?;
            if !still_has_hash(&account, phc.expose()) || second_factor::is_enabled(&tx, user).await? {
                return Err(is_there());
            }
            session.begin(&tx, user).await
        })
        .await?;
        self.welcome_person(user, session).await
    }

    /// Refuses a token that is neither an invitation of this e-mail address nor the setup token of the first start. It does so before
    /// any answer depends on whether the address has an account. Returns true for the setup token.
    pub(super) async fn is_open_to(
        &self,
        tx: &Transaction,
        token: &Secret,
        email: &str,
        now_ms: u64,
    ) -> Result<bool> {
        if self.is_setup(tx, token, now_ms).await? {
            return Ok(true);
        }
        invitations::find(tx, &self.invitation_hash(token)?, Some(email), now_ms).await?;
        Ok(false)
    }

    /// How a sign-up is confirmed: by the mail that this returns, or not at all (`None`). A server without mail accepts an invitation
    /// alone, because the inviting member has passed it on to the person.
    fn confirms_sign_up(&self, token: Option<&Secret>) -> Result<Option<&Post>> {
        match self.0.sign_up_by {
            SignUpBy::Confirmed if token.is_none() => {
                let starting = || Error::Conflict("the server is starting: try again".into());
                self.post_or_printer().ok_or_else(starting).map(Some)
            }
            _ => Ok(self.post()),
        }
    }

    pub(super) fn may_sign_up(&self, token: Option<&Secret>) -> Result<()> {
        if token.is_some() || self.0.sign_up_by != SignUpBy::Invitation {
            return Ok(());
        }
        Err(Error::Forbidden(
            "accounts are made by invitation here: ask a member of your organisation for one".into(),
        ))
    }

    /// Makes a new person a member of the organisation that their token is for, or of a new one with this name.
    pub(super) async fn join_organisation(
        &self,
        change: &Change,
        user: Uuid,
        organisation: Uuid,
        name: &str,
        token: Option<&Secret>,
    ) -> Result<()> {
        let Some(token) = token else {
            return organisations::create(change, organisation, name, user).await;
        };
        if self.take_setup(change, token).await? {
            let organisation = match machine::organisation(&change.tx).await? {
                Some(own) => {
                    members::add(change, own, user, Role::Owner).await?;
                    own
                }
                None => {
                    organisations::create(change, organisation, name, user).await?;
                    organisation
                }
            };
            return setup::adopt(change, organisation).await;
        }
        self.take_invitation(change, token, user).await.map(drop)
    }

    /// # Errors
    /// [`Error::Unauthenticated`] for a wrong password and for an unknown person, after the same time. [`Error::CodeNeeded`],
    /// [`Error::CodeWrong`] and [`Error::TooManyCodes`] only with the right password.
    pub async fn sign_in(&self, input: &SignIn, source: &RequestSource) -> Result<SignedIn> {
        let email = &input.email.to_lowercase();
        let found = self.look(|tx| async move { by_email(&tx, email).await }).await?;
        let phc = found.as_ref().and_then(|(_, record)| hash_of(record));
        let right = self.verify_password(phc.clone(), &input.password).await?;
        let wrong = || Error::Unauthenticated("the e-mail address or the password is not right");
        let Some((id, _)) = found else { return Err(wrong()) };
        let Some(phc) = &phc.filter(|_| right) else {
            self.note_later(id, email, source).await?;
            return Err(wrong());
        };
        let session = &self.new_session(source)?;
        let agent = source.user_agent.as_deref().map(shortened);
        let actor = Actor { agent, ..person(id, email, source.address) };
        let checked = self
            .change(actor, &Once::unnamed()?, |change| async move {
                change.use_reserve();
                // The password or the address may have changed while the hash was computed.
                let account = get(&change.tx, id, Read::Serializable).await?.map(|account| account.value);
                if !account.is_some_and(|account| account.email == *email && still_has_hash(&account, phc)) {
                    return Ok(None);
                }
                let (code, passkey) = (input.code.as_ref(), input.passkey.as_ref());
                let shown = PresentedFactor { code, passkey, purpose: Purposed::SecondStep };
                let checked = self.take_factor(&change, id, shown).await?;
                if checked.passes() {
                    session.begin(&change.tx, id).await?;
                    let details = match checked {
                        FactorCheck::Right => serde_json::json!({ "second_factor": true }),
                        FactorCheck::Passkey => serde_json::json!({ "second_factor": true, "passkey": true }),
                        _ => serde_json::json!({}),
                    };
                    audit_as(&change, id, "sign_in", email, details).await?;
                } else if checked == FactorCheck::Missing {
                    // The password is right, so its owner must be able to see that somebody has it.
                    audit_everywhere(&change, id, "sign_in.ask_code", serde_json::json!({})).await?;
                }
                Ok(Some(checked))
            })
            .await?;
        let Some(checked) = checked else {
            self.note_refused_sign_in(id, email, source, serde_json::json!({})).await?;
            return Err(wrong());
        };
        if checked.is_refusal() {
            let details = serde_json::json!({ "second_factor": true, "passkey": input.passkey.is_some() });
            self.note_refused_sign_in(id, email, source, details).await?;
        }
        let asked = match checked {
            FactorCheck::Missing => self.second_step(id).await?,
            _ => None,
        };
        checked.at_sign_in(self.now_ms(), asked)?;
        self.welcome_person(id, session).await
    }

    /// Like [`Self::note_refused_sign_in`], and the answer does not wait for it unless many such writes are under way, so that
    /// its time does not reveal whether the account exists.
    async fn note_later(&self, user: Uuid, email: &str, source: &RequestSource) -> Result<()> {
        let Ok(permit) = Arc::clone(&self.0.late_audit_entries).try_acquire_owned() else {
            return self.note_refused_sign_in(user, email, source, serde_json::json!({})).await;
        };
        let (control, email, source) = (self.clone(), email.to_owned(), source.clone());
        tokio::spawn(async move {
            let _until_it_is_written = permit;
            let noted = control.note_refused_sign_in(user, &email, &source, serde_json::json!({})).await;
            if let Err(error) = noted {
                tracing::warn!(%error, "a refused sign-in is missing in the audit log");
            }
        });
        Ok(())
    }

    /// Writes into the audit logs of a person and their organisations that a sign-in was refused; the API limits how
    /// often that happens.
    pub(super) async fn note_refused_sign_in(
        &self,
        user: Uuid,
        email: &str,
        source: &RequestSource,
        details: serde_json::Value,
    ) -> Result<()> {
        let agent = source.user_agent.as_deref().map(shortened);
        let nobody = Actor { agent, ..Actor::new(ActorKind::Nobody, email, source.address) };
        let details = &details;
        self.change(nobody, &Once::unnamed()?, |change| async move {
            audit_as(&change, user, "sign_in.refuse", email, details.clone()).await
        })
        .await
    }

    pub(super) async fn start(&self, user: Uuid, source: &RequestSource) -> Result<SignedIn> {
        let session = &self.new_session(source)?;
        self.write(|tx| async move { session.begin_within_reserve(&tx, user).await }).await?;
        self.welcome_person(user, session).await
    }

    pub(super) async fn welcome_person(&self, user: Uuid, session: &NewSession) -> Result<SignedIn> {
        let me = self.look(|tx| async move { me(&tx, user).await }).await?;
        let NewSession { secret, hash, expires_at_ms, .. } = session;
        let (secret, csrf) = (secret.clone(), self.csrf(hash)?);
        Ok(SignedIn { secret, csrf, expires_at_ms: *expires_at_ms, me })
    }

    pub async fn signed_in(&self, secret: &Secret, address: Option<IpAddr>) -> Result<Caller> {
        let (hash, now_ms) = (self.sign_in_hash(secret)?, self.now_ms());
        let found = self
            .look(|tx| async move {
                let found = web_sessions::find(&tx, &hash, now_ms, Read::Snapshot).await?;
                Ok(found.map(|(session, account)| (session.user, account.known_as())))
            })
            .await?;
        let (user, email) =
            found.ok_or(Error::Unauthenticated("you are not signed in any more: sign in again"))?;
        Ok(Caller { who: Principal::Person { user, email, sign_in: hash }, address, agent: None })
    }

    /// The token that a script of the page must show with each change, so that no other site can make the browser do
    /// one.
    pub(crate) fn csrf(&self, sign_in: &Hash) -> Result<Secret> {
        Ok(secret::text_of(&self.hash(Purpose::Csrf, &[sign_in])?))
    }

    pub async fn sign_out(&self, caller: &Caller) -> Result<()> {
        let (user, sign_in) = person_of(caller)?;
        self.write(|tx| async move { web_sessions::end(&tx, user, sign_in).await }).await
    }

    pub async fn me(&self, caller: &Caller) -> Result<Me> {
        let (user, _) = person_of(caller)?;
        self.look(|tx| async move { me(&tx, user).await }).await
    }

    pub async fn change_me(&self, caller: &Caller, input: &UserChange, once: &Once) -> Result<User> {
        let (user, sign_in) = person_of(caller)?;
        let mut fields = FieldErrors::default();
        fields.name("name", &input.name);
        fields.done()?;
        self.change(caller.into(), once, |change| async move {
            web_sessions::still_there(&change.tx, sign_in, change.now_ms, Read::Serializable).await?;
            let mut record = found(get(&change.tx, user, Read::Serializable).await?)?;
            record.name.clone_from(&input.name);
            accounts::users().put(&change.tx, user.as_bytes(), &record).await?;
            audit_everywhere(&change, user, "person.change", serde_json::json!({})).await?;
            Ok(record.shown(user))
        })
        .await
    }

    /// Changes the caller's password, and signs them out everywhere else.
    pub async fn change_password(&self, caller: &Caller, input: &NewPassword) -> Result<()> {
        let (user, sign_in) = person_of(caller)?;
        let mut fields = FieldErrors::default();
        fields.password("new", &input.new);
        fields.done()?;
        let account = self.look(|tx| async move { found(get(&tx, user, Read::Snapshot).await?) }).await?;
        self.refuse_weak("new", &input.new, &[&account.email, &account.name]).await?;
        let proof = &self.check_password(user, "current", &input.current).await?;
        let phc = &Secret::from(&*self.hash_password(&input.new).await?);
        self.change(caller.into(), &Once::unnamed()?, |change| async move {
            change.use_reserve();
            let mut record = proof.holds(&change, caller).await?;
            record.password = Some(phc.clone());
            accounts::users().put(&change.tx, user.as_bytes(), &record).await?;
            web_sessions::end_all(&change.tx, user, Some(sign_in)).await?;
            second_factor::clear_wrong_codes(&change, user).await?;
            audit_everywhere(&change, user, "person.change_password", serde_json::json!({})).await
        })
        .await
    }
}

pub(super) fn person_of(caller: &Caller) -> Result<(Uuid, &Hash)> {
    match &caller.who {
        Principal::Person { user, sign_in, .. } => Ok((*user, sign_in)),
        Principal::Token { .. } => Err(Error::Forbidden(
            "only a person can do this, because an API token belongs to an organisation: sign in".into(),
        )),
    }
}

async fn me(tx: &Transaction, user: Uuid) -> Result<Me> {
    let shown = found(get(tx, user, Read::Snapshot).await?)?.shown(user);
    let mut all = Vec::new();
    for (id, role) in members::of_user(tx, user, Read::Snapshot).await? {
        if let Some(organisation) = organisations::find(tx, id, Read::Snapshot).await? {
            all.push(Membership { id, name: organisation.value.name, role });
        }
    }
    Ok(Me { user: shown, organisations: all })
}

/// An entry in a person's own log, and in the logs of all their organisations.
pub(super) async fn audit_everywhere(
    change: &Change,
    user: Uuid,
    action: &str,
    details: serde_json::Value,
) -> Result<()> {
    let target = shown(&change.tx, user).await?;
    audit_as(change, user, action, target.as_ref().map_or("", User::known_as), details).await
}

pub(super) async fn audit_as(
    change: &Change,
    user: Uuid,
    action: &str,
    target: &str,
    details: serde_json::Value,
) -> Result<()> {
    for (organisation, _) in members::of_user(&change.tx, user, Read::Snapshot).await? {
        change.audit(organisation, action, target, details.clone())?;
    }
    change.audit_of_person(user, action, target, details)
}

pub(super) fn person(user: Uuid, email: &str, address: Option<IpAddr>) -> Actor {
    Actor { id: Some(user), ..Actor::new(ActorKind::Person, email, address) }
}
