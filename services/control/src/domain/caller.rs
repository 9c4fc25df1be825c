//! Who asks, and what they may do.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::secret::Hash;

/// What may be done in an organisation. Also the scopes of API tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum Permission {
    /// See the organisation, its members, invitations and tokens.
    #[serde(rename = "organisation:read")]
    OrganisationRead,
    /// Change them.
    #[serde(rename = "organisation:write")]
    OrganisationWrite,
    /// See brokers and their usage.
    #[serde(rename = "brokers:read")]
    BrokersRead,
    /// Make, change and delete brokers.
    #[serde(rename = "brokers:write")]
    BrokersWrite,
    /// See who may connect to brokers: credentials, groups, rules, issuers, authorities, webhooks.
    #[serde(rename = "access:read")]
    AccessRead,
    /// Change that.
    #[serde(rename = "access:write")]
    AccessWrite,
    /// See clients, sessions and retained messages.
    #[serde(rename = "clients:read")]
    ClientsRead,
    /// Disconnect clients, end sessions, clear retained messages.
    #[serde(rename = "clients:write")]
    ClientsWrite,
    /// Read the audit log.
    #[serde(rename = "audit:read")]
    AuditRead,
    /// Read messages as they are published, and make connect tokens that subscribe.
    #[serde(rename = "messages:read")]
    MessagesRead,
    /// Publish messages, and make connect tokens that publish.
    #[serde(rename = "messages:write")]
    MessagesWrite,
}

/// What somebody is in an organisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// May do everything.
    Owner,
    /// May do everything with brokers.
    Operator,
    /// May see everything.
    Viewer,
}

/// Who asks.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Who it is.
    pub(crate) who: Who,
    /// Where the request comes from.
    pub(crate) address: Option<IpAddr>,
    /// Its User-Agent.
    pub(crate) agent: Option<String>,
}

/// Who asks: a person or a program of an organisation.
#[derive(Clone, Debug)]
pub(crate) enum Who {
    Person {
        user: Uuid,
        email: String,
        sign_in: Hash,
    },
    Token {
        organisation: Uuid,
        id: Uuid,
        name: String,
        scopes: Vec<Permission>,
        /// The person who made it, or who made the token that made it.
        made_by: Option<Uuid>,
        /// How audit logs name that person.
        maker: Option<String>,
    },
}

impl Permission {
    /// All of them.
    pub(crate) const ALL: [Self; 11] = [
        Self::OrganisationRead,
        Self::OrganisationWrite,
        Self::BrokersRead,
        Self::BrokersWrite,
        Self::AccessRead,
        Self::AccessWrite,
        Self::ClientsRead,
        Self::ClientsWrite,
        Self::AuditRead,
        Self::MessagesRead,
        Self::MessagesWrite,
    ];

    /// Whether it lets somebody change something.
    #[must_use]
    pub fn is_write(self) -> bool {
        matches!(
            self,
            Self::OrganisationWrite
                | Self::BrokersWrite
                | Self::AccessWrite
                | Self::ClientsWrite
                | Self::MessagesWrite
        )
    }
}

impl Role {
    /// Whether somebody with this role may.
    #[must_use]
    pub fn may(self, permission: Permission) -> bool {
        match self {
            Self::Owner => true,
            Self::Operator => permission != Permission::OrganisationWrite,
            Self::Viewer => !permission.is_write(),
        }
    }
}

impl Caller {
    /// The person behind it: who asks, or who made the token that does.
    pub(crate) fn person(&self) -> Option<Uuid> {
        match &self.who {
            Who::Person { user, .. } => Some(*user),
            Who::Token { made_by, .. } => *made_by,
        }
    }

    /// Their id, which tells them from all others.
    pub(crate) fn id(&self) -> Uuid {
        match &self.who {
            Who::Person { user, .. } => *user,
            Who::Token { id, .. } => *id,
        }
    }
}
