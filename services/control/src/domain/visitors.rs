//! People who sign in with an OpenID Connect provider, and the provider's accounts that are connected to a person.
//!
//! A [`Visitor`] is a person as the provider describes them. An account is found by issuer and subject only, never by
//! e-mail address: another person may have created the account with that address.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use millrace_layers::accounts;
use millrace_storage::{Read, Transaction};
use serde::{Deserialize, Serialize};
use serde_json::json;
use subtle::ConstantTimeEq as _;
use utoipa::ToSchema;
use uuid::Uuid;

use super::accounts::{
    Newcomer, audit_as, audit_everywhere, create, found, get, has_password, is_there_one_with, person,
    person_of, shown,
};
use super::audit::Actor;
use super::change::Change;
use super::check::FieldErrors;
use super::passkeys::{PasskeyAssertion, Purposed};
use super::second_factor::PresentedFactor;
use super::web_sessions::shortened;
use super::{Caller, Control, Error, Once, RequestSource, Result, SignedIn, names, web_sessions};
use crate::limits::{IDENTITIES_MAX, NAME_CHARS_MAX, OIDC_S, RECENT_SIGN_IN_MS};
use crate::oidc::{Flow, Visitor};
use crate::secret::{self, Purpose, Secret};

/// An account of a provider with which a person signs in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Identity)]
pub struct LinkedIdentity {
    pub id: String,
    /// Issuer identifier of the provider.
    #[schema(example = "https://login.example.org")]
    pub issuer: String,
    /// Id of the account at the provider.
    pub subject: String,
    /// E-mail address of the account when it was connected; null: the provider gave none.
    pub email: Option<String>,
    /// Time of the confirmation, in unix milliseconds; null while the account waits for it.
    pub connected_at_ms: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct VisitorRecord {
    issuer: String,
    subject: String,
    email: Option<String>,
    connected_at_ms: u64,
}

/// Request to connect an account of the provider, with a proof that it comes from the person.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ConnectIdentity {
    /// The password of your account. It is needed unless you have signed in within the last 10 minutes.
    #[schema(value_type = Option<String>, format = Password, max_length = 1024)]
    pub password: Option<Secret>,
    /// With the password, if your account has a second factor: the six digits that the device shows, or a recovery code.
    #[schema(value_type = Option<String>, format = Password, example = "492039", max_length = 64)]
    pub code: Option<Secret>,
    /// Instead of `code`: the answer of a passkey to the challenge of POST /me/passkeys/challenge.
    pub passkey: Option<PasskeyAssertion>,
}

/// The content of a signed cookie: an account of the provider that `user` has yet to confirm.
#[derive(Serialize, Deserialize)]
struct VisitorLink {
    user: Uuid,
    visitor: Visitor,
    expires_at_ms: u64,
}

impl Control {
    /// A new visitor gets an account if the server is open to everybody, or with an invitation. A visitor with the
    /// e-mail address of an existing account does not get that account, because another person may have created it.
    ///
    /// `token`: the secret of an invitation, or of the first start.
    pub async fn welcome(
        &self,
        visitor: &Visitor,
        token: Option<&Secret>,
        source: &RequestSource,
    ) -> Result<SignedIn> {
        let (id, organisation) = (self.new_id()?, self.new_id()?);
        let known = self.look(|tx| async move { known_person(&tx, visitor).await }).await?;
        let new_name = || visitor.email.clone().unwrap_or_else(|| visitor.subject.clone());
        let (actor, known_by) = known.unwrap_or_else(|| (id, new_name()));
        let known_by = &known_by;
        let agent = source.user_agent.as_deref().map(shortened);
        let actor = Actor { agent, ..person(actor, known_by, source.address) };
        let session = &self.new_session(source)?;
        let user = self
            .change(actor, &Once::unnamed()?, |change| async move {
                let known = owner(&change.tx, visitor).await?;
                let user = match (known, token) {
                    (Some(user), Some(token)) => {
                        self.take_invitation(&change, token, user).await?;
                        user
                    }
                    (Some(user), None) => {
                        change.use_reserve();
                        user
                    }
                    (None, token) => {
                        self.admit_visitor(&change, id, organisation, visitor, token).await?;
                        id
                    }
                };
                connect(&change, user, visitor).await?;
                session.begin(&change.tx, user).await?;
                audit_as(&change, user, "sign_in", known_by, json!({ "provider": visitor.issuer })).await?;
                Ok(user)
            })
            .await?;
        self.welcome_person(user, session).await
    }

    async fn admit_visitor(
        &self,
        change: &Change,
        id: Uuid,
        organisation: Uuid,
        visitor: &Visitor,
        token: Option<&Secret>,
    ) -> Result<()> {
        self.may_sign_up(token)?;
        let Some(email) = &visitor.email else {
            let detail =
                "your provider does not say that an e-mail address is yours, and an account needs one";
            return Err(Error::Forbidden(detail.into()));
        };
        let mut fields = FieldErrors::default();
        let email = fields.email("email", email);
        fields.done()?;
        if let Some(token) = token {
            self.is_open_to(&change.tx, token, &email, change.now_ms).await?;
        }
        if is_there_one_with(&change.tx, &email).await? {
            let detail = "there is an account with your e-mail address: sign in with its password, then connect it with your provider";
            return Err(Error::Conflict(detail.into()));
        }
        let name = name(visitor.name.as_deref().unwrap_or_default(), &email);
        let newcomer = Newcomer { id, email, name: name.clone(), password: None };
        create(change, &newcomer).await?;
        self.join_organisation(change, id, organisation, &name, token).await
    }

    /// Refuses to connect an account of the provider on behalf of a web session alone: whoever has stolen the session
    /// would keep a way into the account.
    pub(crate) async fn may_connect(&self, caller: &Caller, input: &ConnectIdentity) -> Result<()> {
        let (user, sign_in) = person_of(caller)?;
        let since_ms = self.now_ms().saturating_sub(RECENT_SIGN_IN_MS);
        let (account, is_recent) = self
            .look(|tx| async move {
                let account = found(get(&tx, user, Read::Snapshot).await?)?;
                Ok((account, web_sessions::began_since(&tx, sign_in, since_ms).await?))
            })
            .await?;
        let proof = match (&account.password, &input.password) {
            (Some(_), Some(password)) => &self.check_password(user, "password", password).await?,
            _ if is_recent => return Ok(()),
            (Some(_), None) => {
                let what = "is missing: it is needed when you have signed in more than 10 minutes ago";
                return Err(Error::field("password", what));
            }
            (None, _) => {
                let what = "you have no password here: sign in with your provider again, and connect the account within 10 minutes";
                return Err(Error::Forbidden(what.into()));
            }
        };
        let checked = self
            .change(caller.into(), &Once::unnamed()?, |change| async move {
                proof.holds(&change, caller).await?;
                let (code, passkey) = (input.code.as_ref(), input.passkey.as_ref());
                let shown = PresentedFactor { code, passkey, purpose: Purposed::InSession(sign_in) };
                self.take_factor(&change, user, shown).await
            })
            .await?;
        self.refuse_wrong_factor(caller, user, checked).await
    }

    /// Signs that `user` has passed [`Self::may_connect`], for the browser's way to the provider and back. The permit
    /// is bound to the secret of that one journey.
    pub(crate) fn permit(&self, user: Uuid, journey: &Secret) -> Result<String> {
        let expires_at_ms = self.now_ms() + OIDC_S * 1_000;
        Ok(format!("{user}.{expires_at_ms}.{}", self.permit_hash(user, expires_at_ms, journey)?))
    }

    /// `None`: the permit is wrong or has expired.
    pub(crate) fn permitted(&self, permit: &str, journey: &Secret) -> Result<Option<Uuid>> {
        let mut parts = permit.splitn(3, '.');
        let (user, at, shown) = (parts.next(), parts.next(), parts.next().unwrap_or_default());
        let user = user.and_then(|user| Uuid::try_parse(user).ok());
        let (Some(user), Some(at)) = (user, at.and_then(|at| at.parse().ok())) else { return Ok(None) };
        let is_right: bool = self.permit_hash(user, at, journey)?.as_bytes().ct_eq(shown.as_bytes()).into();
        Ok(Some(user).filter(|_| is_right && self.now_ms() < at))
    }

    fn permit_hash(&self, user: Uuid, expires_at_ms: u64, journey: &Secret) -> Result<String> {
        let parts =
            [&b"permit"[..], user.as_bytes(), &expires_at_ms.to_be_bytes(), journey.expose().as_bytes()];
        Ok(secret::letters(&self.hash(Purpose::Link, &parts)?))
    }

    /// Returns the signed cookie that the browser keeps until `user` confirms the account.
    pub(crate) fn link(&self, user: Uuid, visitor: Visitor) -> Result<Secret> {
        let expires_at_ms = self.now_ms() + OIDC_S * 1_000;
        let link = serde_json::to_vec(&VisitorLink { user, visitor, expires_at_ms });
        let link = link.map_err(|_| Error::Internal("a link cannot be written"))?;
        let hash = self.hash(Purpose::Link, &[&link])?;
        Ok(format!("{}.{}", URL_SAFE_NO_PAD.encode(link), secret::letters(&hash)).as_str().into())
    }

    pub(crate) fn pending(&self, caller: &Caller, link: &Secret) -> Result<LinkedIdentity> {
        let visitor = self.linked(caller, link)?;
        Ok(LinkedIdentity { connected_at_ms: None, ..self.identity(&visitor, 0)? })
    }

    pub(crate) async fn confirm(&self, caller: &Caller, link: &Secret) -> Result<LinkedIdentity> {
        let visitor = &self.linked(caller, link)?;
        let (user, sign_in) = person_of(caller)?;
        self.change(caller.into(), &Once::unnamed()?, |change| async move {
            web_sessions::still_there(&change.tx, sign_in, change.now_ms, Read::Serializable).await?;
            match owner(&change.tx, visitor).await? {
                Some(other) if other != user => {
                    let detail = "somebody else signs in with this account of your provider";
                    return Err(Error::Conflict(detail.into()));
                }
                _ => connect(&change, user, visitor).await?,
            }
            audit_everywhere(&change, user, "person.connect", json!({ "provider": visitor.issuer })).await?;
            self.identity(visitor, change.now_ms)
        })
        .await
    }

    pub(crate) async fn identities(&self, caller: &Caller) -> Result<Vec<LinkedIdentity>> {
        let (user, _) = person_of(caller)?;
        let rows = self.look(|tx| async move { of_user(&tx, user, Read::Snapshot).await }).await?;
        rows.into_iter().map(|(_, record)| self.shown_identity(record)).collect()
    }

    pub(crate) async fn disconnect(&self, caller: &Caller, id: &str) -> Result<()> {
        let (user, sign_in) = person_of(caller)?;
        self.change(caller.into(), &Once::unnamed()?, |change| async move {
            change.use_reserve();
            let tx = &change.tx;
            web_sessions::still_there(tx, sign_in, change.now_ms, Read::Serializable).await?;
            let rows = of_user(tx, user, Read::Serializable).await?;
            let mut found = None;
            for (key, record) in &rows {
                if self.identity_id(&record.issuer, &record.subject)? == id {
                    found = Some((key, record));
                }
            }
            let (key, record) = found.ok_or(Error::NotFound("identity"))?;
            if rows.len() == 1 && !has_password(tx, user).await? {
                let detail = "you have no password and no other identity, so you could not sign in any more";
                return Err(Error::Conflict(detail.into()));
            }
            accounts::subjects().clear(tx, key).await?;
            accounts::subjects_of(user.as_bytes()).clear(tx, key).await?;
            audit_everywhere(&change, user, "person.disconnect", json!({ "provider": record.issuer })).await
        })
        .await
    }

    fn linked(&self, caller: &Caller, link: &Secret) -> Result<Visitor> {
        let missing = || Error::NotFound("identity that waits for you");
        let (text, shown) = link.expose().split_once('.').ok_or_else(missing)?;
        let text = URL_SAFE_NO_PAD.decode(text).map_err(|_| missing())?;
        let hash = secret::letters(&self.hash(Purpose::Link, &[&text])?);
        let link: VisitorLink = serde_json::from_slice(&text).map_err(|_| missing())?;
        let is_right: bool = hash.as_bytes().ct_eq(shown.as_bytes()).into();
        match is_right && link.user == person_of(caller)?.0 && self.now_ms() < link.expires_at_ms {
            true => Ok(link.visitor),
            false => Err(missing()),
        }
    }

    fn identity(&self, visitor: &Visitor, now_ms: u64) -> Result<LinkedIdentity> {
        let Visitor { issuer, subject, email, .. } = visitor.clone();
        self.shown_identity(VisitorRecord { issuer, subject, email, connected_at_ms: now_ms })
    }

    fn shown_identity(&self, record: VisitorRecord) -> Result<LinkedIdentity> {
        let id = self.identity_id(&record.issuer, &record.subject)?;
        let VisitorRecord { issuer, subject, email, connected_at_ms } = record;
        Ok(LinkedIdentity { id, issuer, subject, email, connected_at_ms: Some(connected_at_ms) })
    }

    fn identity_id(&self, issuer: &str, subject: &str) -> Result<String> {
        let hash = self.hash(Purpose::Identity, &[issuer.as_bytes(), subject.as_bytes()])?;
        Ok(secret::letters(&hash[..16]))
    }

    /// Derives the values of a sign-in from the secret in the browser's cookie.
    pub(crate) fn oidc_flow(&self, secret: &Secret) -> Result<Flow> {
        let of = |what: &[u8]| {
            Ok::<_, Error>(secret::text_of(&self.hash(Purpose::Oidc, &[what, secret.expose().as_bytes()])?))
        };
        Ok(Flow { state: of(b"state")?, nonce: of(b"nonce")?, verifier: of(b"verifier")? })
    }
}

impl Visitor {
    fn key(&self) -> Vec<u8> {
        [self.issuer.as_bytes(), b"\0", self.subject.as_bytes()].concat()
    }
}

pub(super) async fn disconnect_all(tx: &Transaction, user: Uuid) -> Result<()> {
    for (key, _) in of_user(tx, user, Read::Serializable).await? {
        accounts::subjects().clear(tx, &key).await?;
        accounts::subjects_of(user.as_bytes()).clear(tx, &key).await?;
    }
    Ok(())
}

async fn owner(tx: &Transaction, visitor: &Visitor) -> Result<Option<Uuid>> {
    let known = accounts::subjects().get::<Uuid>(tx, &visitor.key(), Read::Serializable).await?;
    Ok(known.map(|known| known.value))
}

/// The person who has connected the visitor's account, and the name by which audit logs know the person.
async fn known_person(tx: &Transaction, visitor: &Visitor) -> Result<Option<(Uuid, String)>> {
    let Some(user) = owner(tx, visitor).await? else { return Ok(None) };
    let user = shown(tx, user).await?;
    Ok(user.map(|user| (user.id, user.known_as().to_owned())))
}

/// An account that the person has already connected is no error.
async fn connect(change: &Change, user: Uuid, visitor: &Visitor) -> Result<()> {
    let (tx, key) = (&change.tx, visitor.key());
    let own = accounts::subjects_of(user.as_bytes());
    if own.get::<VisitorRecord>(tx, &key, Read::Serializable).await?.is_some() {
        return Ok(());
    }
    let count = own.page::<VisitorRecord>(tx, None, IDENTITIES_MAX, Read::Serializable).await?.items.len();
    super::check::room(count, IDENTITIES_MAX, "identities of yours")?;
    let Visitor { issuer, subject, email, .. } = visitor.clone();
    let record = VisitorRecord { issuer, subject, email, connected_at_ms: change.now_ms };
    own.put(tx, &key, &record).await?;
    accounts::subjects().put(tx, &key, &user).await?;
    Ok(())
}

async fn of_user(tx: &Transaction, user: Uuid, read: Read) -> Result<Vec<(Vec<u8>, VisitorRecord)>> {
    let own = accounts::subjects_of(user.as_bytes());
    let page = own.page::<VisitorRecord>(tx, None, IDENTITIES_MAX, read).await?;
    Ok(page.items.into_iter().map(|(key, record)| (key.to_vec(), record.value)).collect())
}

/// The visitor's name if it is valid here, otherwise the e-mail address.
fn name(said: &str, email: &str) -> String {
    let shown = |text: &str| {
        let text = text.chars().filter(|char| !char.is_control()).take(NAME_CHARS_MAX).collect::<String>();
        text.trim().to_owned()
    };
    Some(shown(said))
        .filter(|name| !name.is_empty() && names::check(name).is_ok())
        .unwrap_or_else(|| shown(email))
}
