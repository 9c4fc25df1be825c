//! People: signing up, in and out, and what they see of themselves.

use millrace_layers::{accounts, documents::Document};
use millrace_storage::{Read, Transaction};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use utoipa::ToSchema;
use uuid::Uuid;

use super::audit::{Actor, ActorKind};
use super::change::Change;
use super::check::Fields;
use super::passkeys::{PasskeyAssertion, Purposed};
use super::second_factor::{Checked, Shown};
use super::sign_ups::Wanted;
use super::web_sessions::NewSession;
use super::{
    Caller, Control, Error, MailMessage, Once, RequestSource, Result, Role, SignUpBy, Who, invitations,
    machine, members, organisations, second_factor, setup, web_sessions, web_sessions::shortened,
};
use crate::secret::{self, Hash, Purpose, Secret};

const THERE_IS_AN_ACCOUNT: &str = "there is an account with this e-mail address: sign in";

/// Request for a new account.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SignUp {
    /// E-mail address, by which they sign in.
    #[schema(example = "ann@example.org", format = Email, max_length = 254)]
    pub email: String,
    /// At least 15 characters.
    #[schema(value_type = String, format = Password, min_length = 15, max_length = 1024)]
    pub password: Secret,
    /// Name of the person.
    #[schema(example = "Ann", min_length = 1, max_length = 100)]
    pub name: String,
    /// Name of their new organisation; theirs if it is left out. Of no meaning with an invitation.
    #[schema(min_length = 1, max_length = 100)]
    pub organisation: Option<String>,
    /// The secret of an invitation, or of the link that the first start prints.
    #[schema(value_type = Option<String>, format = Password)]
    pub token: Option<Secret>,
}

/// Request to sign in.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SignIn {
    /// E-mail address.
    pub email: String,
    /// Password.
    #[schema(value_type = String, format = Password)]
    pub password: Secret,
    /// The six digits that the device shows, or a recovery code: for an account with a second factor. It is sent when the answer without
    /// it was `second-factor-required`.
    #[schema(value_type = Option<String>, format = Password, example = "492039")]
    pub code: Option<Secret>,
    /// Instead of `code`: the answer of a passkey to the challenge in the answer `second-factor-required`.
    pub passkey: Option<PasskeyAssertion>,
}

/// A new password.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPassword {
    /// The password until now.
    #[schema(value_type = String, format = Password)]
    pub current: Secret,
    /// The new one: at least 15 characters.
    #[schema(value_type = String, format = Password, min_length = 15, max_length = 1024)]
    pub new: Secret,
}

/// A change of a person.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UserChange {
    /// Name of the person.
    #[schema(min_length = 1, max_length = 100)]
    pub name: String,
}

/// A person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct User {
    /// Their id.
    pub id: Uuid,
    /// E-mail address; null for the owner of this machine, who has none.
    pub email: Option<String>,
    /// Name of the person.
    pub name: String,
    /// When they signed up, in unix milliseconds.
    pub created_at_ms: u64,
}

/// A person and what they belong to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Me {
    /// The person.
    pub user: User,
    /// Their organisations.
    pub organisations: Vec<Membership>,
}

/// An organisation that a person belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Membership {
    /// Its id.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// Role of the person in it.
    pub role: Role,
}

#[derive(Debug)]
pub enum SignedUp {
    /// The account is made.
    In(Box<SignedIn>),
    /// The account is made when the link in this mail is opened.
    Asked(MailMessage),
}

#[derive(Debug)]
pub struct SignedIn {
    /// The secret of the web session, which the browser shows from now on.
    pub secret: Secret,
    /// The token that scripts of the page show with each change.
    pub csrf: Secret,
    pub expires_at_ms: u64,
    pub me: Me,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct UserRecord {
    pub(super) email: String,
    pub(super) name: String,
    /// PHC string of Argon2id; `None`: they sign in with a provider.
    pub(super) password: Option<Secret>,
    created_at_ms: u64,
    /// A web session of another epoch has ended.
    #[serde(default)]
    pub(super) epoch: u64,
}

/// A password that a caller has shown, by the PHC string that it matched.
pub(super) struct PasswordProof {
    field: &'static str,
    phc: Secret,
}

pub(super) struct Newcomer {
    pub(super) id: Uuid,
    pub(super) email: String,
    pub(super) name: String,
    /// PHC string of Argon2id.
    pub(super) password: Option<Secret>,
}

impl User {
    pub(super) fn known_as(&self) -> &str {
        self.email.as_deref().unwrap_or(&self.name)
    }
}

impl UserRecord {
    fn known_as(self) -> String {
        if self.email.is_empty() { self.name } else { self.email }
    }

    fn shown(self, id: Uuid) -> User {
        let email = Some(self.email).filter(|email| !email.is_empty());
        User { id, email, name: self.name, created_at_ms: self.created_at_ms }
    }
}

impl Control {
    pub async fn sign_up(&self, input: &SignUp, once: &Once, source: &RequestSource) -> Result<SignedUp> {
        self.may_sign_up(input.token.as_ref())?;
        let mut fields = Fields::default();
        let email = fields.email("email", &input.email);
        fields.password("password", &input.password);
        fields.name("name", &input.name);
        if let Some(name) = &input.organisation {
            fields.name("organisation", name);
        }
        fields.done()?;
        // A stranger without a token that opens something costs no estimate and no hash.
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
        if let Some(post) = self.post()
            && !opens_setup
        {
            let wanted = Wanted { newcomer, organisation: named, token: input.token.as_ref() };
            return Ok(SignedUp::Asked(self.request_sign_up(post, wanted).await?));
        }
        let actor = person(id, &newcomer.email, source.address);
        let made = self
            .change(actor, once, |change| async move {
                if let Some(token) = &input.token {
                    self.is_open_to(&change.tx, token, &newcomer.email, change.now_ms).await?;
                }
                create(&change, newcomer).await?;
                self.belong(&change, id, organisation, named, input.token.as_ref()).await?;
                Ok(id)
            })
            .await?;
        Ok(SignedUp::In(Box::new(self.start_signed_up(made, newcomer, &input.password, source).await?)))
    }

    /// Starts the web session of a sign-up. The same request may have come again when the account has another password or a second factor:
    /// then it begins none.
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
        // The hash that the first request has just stored is not computed again.
        let is_new = newcomer.password.as_ref().is_some_and(|own| own.expose() == phc.expose());
        if !is_new && !self.verify_password(Some(phc.expose().to_owned()), password).await? {
            return Err(is_there());
        }
        let session = &self.new_session(source)?;
        self.look(|tx| async move {
            let account = found(get(&tx, user, Read::Serializable).await?)?;
            if !is_hash_of(&account, phc.expose()) || second_factor::is_enabled(&tx, user).await? {
                return Err(is_there());
            }
            session.begin(&tx, user).await
        })
        .await?;
        self.welcome_person(user, session).await
    }

    /// Refuses a token that opens nothing for an e-mail address, before it is said whether the address has an account. Returns whether
    /// the token is the one of the first start.
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

    pub(super) fn may_sign_up(&self, token: Option<&Secret>) -> Result<()> {
        if token.is_some() || self.0.sign_up_by == SignUpBy::Anybody {
            return Ok(());
        }
        Err(Error::Forbidden(
            "accounts are made by invitation here: ask a member of your organisation for one".into(),
        ))
    }

    /// Gives a new person the organisation that they come for: by their token, or else one of their own with this name.
    pub(super) async fn belong(
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

    /// Signs somebody in.
    ///
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
            self.note_refused_sign_in(id, email, source, serde_json::json!({})).await?;
            return Err(wrong());
        };
        let session = &self.new_session(source)?;
        let agent = source.user_agent.as_deref().map(shortened);
        let actor = Actor { agent, ..person(id, email, source.address) };
        let checked = self
            .change(actor, &Once::unnamed()?, |change| async move {
                // The password or the address may have changed while the hash was computed.
                let account = get(&change.tx, id, Read::Serializable).await?.map(|account| account.value);
                if !account.is_some_and(|account| account.email == *email && is_hash_of(&account, phc)) {
                    return Ok(None);
                }
                let (code, passkey) = (input.code.as_ref(), input.passkey.as_ref());
                let shown = Shown { code, passkey, purpose: Purposed::SecondStep };
                let checked = self.take_factor(&change, id, shown).await?;
                if checked.passes() {
                    session.begin(&change.tx, id).await?;
                    let details = match checked {
                        Checked::Right => serde_json::json!({ "second_factor": true }),
                        Checked::Passkey => serde_json::json!({ "second_factor": true, "passkey": true }),
                        _ => serde_json::json!({}),
                    };
                    audit_as(&change, id, "sign_in", email, details).await?;
                } else if checked == Checked::Missing {
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
            Checked::Missing => self.second_step(id).await?,
            _ => None,
        };
        checked.at_sign_in(self.now_ms(), asked)?;
        self.welcome_person(id, session).await
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
        self.look(|tx| async move { session.begin(&tx, user).await }).await?;
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
        Ok(Caller { who: Who::Person { user, email, sign_in: hash }, address, agent: None })
    }

    /// The token that a script of the page must show with each change, so that no other site can make the browser do
    /// one.
    pub(crate) fn csrf(&self, sign_in: &Hash) -> Result<Secret> {
        Ok(secret::text_of(&self.hash(Purpose::Csrf, &[sign_in])?))
    }

    pub async fn sign_out(&self, caller: &Caller) -> Result<()> {
        let (user, sign_in) = person_of(caller)?;
        self.look(|tx| async move { web_sessions::end(&tx, user, sign_in).await }).await
    }

    pub async fn me(&self, caller: &Caller) -> Result<Me> {
        let (user, _) = person_of(caller)?;
        self.look(|tx| async move { me(&tx, user).await }).await
    }

    pub async fn change_me(&self, caller: &Caller, input: &UserChange, once: &Once) -> Result<User> {
        let (user, _) = person_of(caller)?;
        let mut fields = Fields::default();
        fields.name("name", &input.name);
        fields.done()?;
        self.change(caller.into(), once, |change| async move {
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
        let mut fields = Fields::default();
        fields.password("new", &input.new);
        fields.done()?;
        self.refuse_weak("new", &input.new, &[]).await?;
        let proof = &self.check_password(user, "current", &input.current).await?;
        let phc = &Secret::from(&*self.hash_password(&input.new).await?);
        self.change(caller.into(), &Once::unnamed()?, |change| async move {
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

impl Control {
    /// Checks the password of a person, which the request has in `field`. The hash takes long, so the transaction of the change has to
    /// check that [`PasswordProof::holds`].
    ///
    /// # Errors
    /// [`Error::Invalid`] for another password, [`Error::Conflict`] for a person without a password.
    pub(super) async fn check_password(
        &self,
        user: Uuid,
        field: &'static str,
        password: &Secret,
    ) -> Result<PasswordProof> {
        let record = self.look(|tx| async move { found(get(&tx, user, Read::Snapshot).await?) }).await?;
        let none = || Error::Conflict("you have no password here: you sign in with your provider".into());
        let phc = record.password.ok_or_else(none)?;
        match self.verify_password(Some(phc.expose().to_owned()), password).await? {
            true => Ok(PasswordProof { field, phc }),
            false => Err(not_the_password(field)),
        }
    }
}

impl PasswordProof {
    /// The caller's account, read in the transaction of a change. A reset may have committed while the password was hashed: then the
    /// password that was shown is a wrong one, or the caller's web session has ended.
    pub(super) async fn holds(&self, change: &Change, caller: &Caller) -> Result<UserRecord> {
        let (user, sign_in) = person_of(caller)?;
        web_sessions::still_there(&change.tx, sign_in, change.now_ms, Read::Serializable).await?;
        let record = found(get(&change.tx, user, Read::Serializable).await?)?;
        match is_hash_of(&record, self.phc.expose()) {
            true => Ok(record),
            false => Err(not_the_password(self.field)),
        }
    }
}

fn not_the_password(field: &str) -> Error {
    Error::field(field, "is not your password")
}

pub(super) fn person_of(caller: &Caller) -> Result<(Uuid, &Hash)> {
    match &caller.who {
        Who::Person { user, sign_in, .. } => Ok((*user, sign_in)),
        Who::Token { .. } => {
            Err(Error::Forbidden("this is for people: an API token is of an organisation".into()))
        }
    }
}

pub(super) async fn shown(tx: &Transaction, user: Uuid) -> Result<Option<User>> {
    Ok(get(tx, user, Read::Snapshot).await?.map(|record| record.value.shown(user)))
}

pub(super) async fn create(change: &Change, newcomer: &Newcomer) -> Result<()> {
    let (tx, email) = (&change.tx, &newcomer.email);
    if is_there_one_with(tx, email).await? {
        return Err(Error::Conflict(THERE_IS_AN_ACCOUNT.into()));
    }
    accounts::emails().put(tx, email.as_bytes(), &newcomer.id).await?;
    put_new(change, newcomer).await
}

pub(super) async fn put_new(change: &Change, newcomer: &Newcomer) -> Result<()> {
    let Newcomer { id, email, name, password } = newcomer;
    let (email, name, password) = (email.clone(), name.clone(), password.clone());
    let record = UserRecord { email, name, password, created_at_ms: change.now_ms, epoch: 0 };
    accounts::users().put(&change.tx, id.as_bytes(), &record).await?;
    Ok(())
}

pub(super) async fn is_there_one_with(tx: &Transaction, email: &str) -> Result<bool> {
    Ok(accounts::emails().get::<Uuid>(tx, email.as_bytes(), Read::Serializable).await?.is_some())
}

pub(super) async fn has_password(tx: &Transaction, user: Uuid) -> Result<bool> {
    Ok(found(get(tx, user, Read::Serializable).await?)?.password.is_some())
}

fn hash_of(record: &UserRecord) -> Option<String> {
    record.password.as_ref().map(|password| password.expose().to_owned())
}

fn is_hash_of(record: &UserRecord, phc: &str) -> bool {
    record.password.as_ref().is_some_and(|password| password.expose() == phc)
}

pub(super) async fn by_email(tx: &Transaction, email: &str) -> Result<Option<(Uuid, UserRecord)>> {
    let id = accounts::emails().get::<Uuid>(tx, email.as_bytes(), Read::Snapshot).await?;
    let Some(id) = id.map(|id| id.value) else { return Ok(None) };
    Ok(get(tx, id, Read::Snapshot).await?.map(|record| (id, record.value)))
}

pub(super) async fn get(tx: &Transaction, user: Uuid, read: Read) -> Result<Option<Document<UserRecord>>> {
    Ok(accounts::users().get(tx, user.as_bytes(), read).await?)
}

pub(super) fn found(record: Option<Document<UserRecord>>) -> Result<UserRecord> {
    record.map(|record| record.value).ok_or(Error::NotFound("person"))
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
