//! Requests and answers about people and their sign-ins, as the API shows them.

use super::super::passkeys::PasskeyAssertion;
use super::super::{MailMessage, Role};
use crate::secret::Secret;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SignUp {
    /// E-mail address, by which they sign in.
    #[schema(example = "ann@example.org", format = Email, max_length = 254)]
    pub email: String,
    /// At least 15 characters.
    #[schema(value_type = String, format = Password, min_length = 15, max_length = 1024)]
    pub password: Secret,
    #[schema(example = "Ann", min_length = 1, max_length = 100)]
    pub name: String,
    /// Name of their new organisation; theirs if it is left out. It has no meaning with an invitation.
    #[schema(min_length = 1, max_length = 100)]
    pub organisation: Option<String>,
    /// The secret of an invitation, or of the link that the first start prints.
    #[schema(value_type = Option<String>, format = Password)]
    pub token: Option<Secret>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SignIn {
    pub email: String,
    #[schema(value_type = String, format = Password)]
    pub password: Secret,
    /// The six digits that the device shows, or a recovery code: for an account with a second factor. It is sent when the answer without
    /// it was `second-factor-required`.
    #[schema(value_type = Option<String>, format = Password, example = "492039")]
    pub code: Option<Secret>,
    /// Instead of `code`: the answer of a passkey to the challenge in the answer `second-factor-required`.
    pub passkey: Option<PasskeyAssertion>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPassword {
    #[schema(value_type = String, format = Password)]
    pub current: Secret,
    /// The new one: at least 15 characters.
    #[schema(value_type = String, format = Password, min_length = 15, max_length = 1024)]
    pub new: Secret,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UserChange {
    #[schema(min_length = 1, max_length = 100)]
    pub name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct User {
    pub id: Uuid,
    /// E-mail address; null for the owner of this machine, who has none.
    pub email: Option<String>,
    pub name: String,
    /// When they signed up, in unix milliseconds.
    pub created_at_ms: u64,
}

/// A person and what they belong to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Me {
    pub user: User,
    pub organisations: Vec<Membership>,
}

/// An organisation that a person belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Membership {
    pub id: Uuid,
    pub name: String,
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
