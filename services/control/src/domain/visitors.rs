//! People who sign in with a provider: the account that is theirs, which may be a new one.

use millrace_layers::accounts;
use millrace_storage::Read;
use serde_json::json;
use uuid::Uuid;

use super::accounts::{Newcomer, create, is_there_one_with, person, person_of};
use super::change::Change;
use super::check::Fields;
use super::{Caller, Control, Error, Once, Result, SignedIn, Source, members};
use crate::limits::NAME_CHARS_MAX;
use crate::oidc::Flow;
use crate::secret::{self, Purpose, Secret};

/// Somebody, as a provider says.
#[derive(Clone, Debug)]
pub struct Visitor {
    /// The provider.
    pub issuer: String,
    /// What tells them from all others there, for ever.
    pub subject: String,
    /// Their e-mail address, when the provider does not say that it may be another's.
    pub email: Option<String>,
    /// What they are called.
    pub name: Option<String>,
}

/// What somebody goes to the provider for.
#[derive(Clone, Debug)]
pub enum Errand {
    /// To sign in; with the secret of an invitation, or of the first start, to join with it.
    SignIn(Option<Secret>),
    /// To sign in that way, too, from now on.
    Connect(Caller),
}

impl Control {
    /// Signs somebody in whom a provider knows. Who was not here before gets an account, where accounts are not by invitation, or with one.
    /// An account with their e-mail address is not taken for theirs: who made it may be somebody else.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn welcome(&self, visitor: &Visitor, errand: &Errand, source: &Source) -> Result<SignedIn> {
        let key = &[visitor.issuer.as_bytes(), b"\0", visitor.subject.as_bytes()].concat();
        let (id, organisation) = (self.new_id()?, self.new_id()?);
        let known_by = visitor.email.as_deref().unwrap_or(&visitor.subject);
        let actor = match errand {
            Errand::Connect(caller) => caller.into(),
            Errand::SignIn(_) => person(id, known_by, source.address),
        };
        let user = self
            .change(actor, &Once::unnamed()?, |change| async move {
                let subjects = accounts::subjects();
                let known = subjects.get::<Uuid>(&change.tx, key, Read::Serializable).await?;
                let known = known.map(|known| known.value);
                let user = match (known, errand) {
                    (Some(user), Errand::Connect(caller)) if user != person_of(caller)?.0 => {
                        let detail =
                            "somebody else signs in with this account of your provider: sign out there first";
                        return Err(Error::Conflict(detail.into()));
                    }
                    (Some(user), Errand::SignIn(Some(token))) => {
                        self.take_invitation(&change, token, user).await?;
                        user
                    }
                    (Some(user), _) => user,
                    (None, Errand::Connect(caller)) => person_of(caller)?.0,
                    (None, Errand::SignIn(token)) => {
                        self.admit_visitor(&change, id, organisation, visitor, token.as_ref()).await?;
                        id
                    }
                };
                if known.is_none() {
                    subjects.put(&change.tx, key, &user).await?;
                }
                let action = if matches!(errand, Errand::Connect(_)) { "person.connect" } else { "sign_in" };
                for (organisation, _) in members::of_user(&change.tx, user, Read::Snapshot).await? {
                    change.audit(organisation, action, known_by, json!({ "provider": visitor.issuer }))?;
                }
                Ok(user)
            })
            .await?;
        self.start(user, source).await
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
        let mut fields = Fields::default();
        let email = fields.email("email", email);
        fields.done()?;
        if is_there_one_with(&change.tx, &email).await? {
            let detail = "there is an account with your e-mail address: sign in with its password, then connect it with your provider";
            return Err(Error::Conflict(detail.into()));
        }
        let name = name(visitor.name.as_deref().unwrap_or_default(), &email);
        let newcomer = Newcomer { id, email, name: name.clone(), password: None };
        create(change, &newcomer).await?;
        self.belong(change, id, organisation, &name, token).await
    }

    /// What the two requests of a browser share that has this secret.
    pub(crate) fn oidc_flow(&self, secret: &Secret) -> Result<Flow> {
        let of = |what: &[u8]| {
            Ok::<_, Error>(secret::text_of(&self.hash(Purpose::Oidc, &[what, secret.expose().as_bytes()])?))
        };
        Ok(Flow { state: of(b"state")?, nonce: of(b"nonce")?, verifier: of(b"verifier")? })
    }
}

/// What somebody is called, in the form of a name here.
fn name(said: &str, email: &str) -> String {
    let shown = |text: &str| {
        let text = text.chars().filter(|char| !char.is_control()).take(NAME_CHARS_MAX).collect::<String>();
        text.trim().to_owned()
    };
    Some(shown(said)).filter(|name| !name.is_empty()).unwrap_or_else(|| shown(email))
}
