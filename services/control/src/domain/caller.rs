//! The caller of an operation and its permissions.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::secret::Hash;

/// A permission in an organisation; also a scope of an API token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum Permission {
    /// Read the organisation, its members, invitations and tokens.
    #[serde(rename = "organisation:read")]
    OrganisationRead,
    /// Change the organisation, its members, invitations and tokens.
    #[serde(rename = "organisation:write")]
    OrganisationWrite,
    /// Read brokers and their usage.
    #[serde(rename = "brokers:read")]
    BrokersRead,
    /// Create, change and delete brokers.
    #[serde(rename = "brokers:write")]
    BrokersWrite,
    /// Read the access settings of brokers: credentials, groups, rules, issuers, authorities, webhooks.
    #[serde(rename = "access:read")]
    AccessRead,
    /// Change the access settings of brokers.
    #[serde(rename = "access:write")]
    AccessWrite,
    /// Read clients, sessions and retained messages.
    #[serde(rename = "clients:read")]
    ClientsRead,
    /// Disconnect clients, end sessions, clear retained messages.
    #[serde(rename = "clients:write")]
    ClientsWrite,
    /// Read the audit log.
    #[serde(rename = "audit:read")]
    AuditRead,
    /// Read messages as they are published, and create connect tokens that subscribe.
    #[serde(rename = "messages:read")]
    MessagesRead,
    /// Publish messages, and create connect tokens that publish.
    #[serde(rename = "messages:write")]
    MessagesWrite,
}

/// Role of a person in an organisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Has every permission.
    Owner,
    /// Has every permission over brokers.
    Operator,
    /// Has every permission to read.
    Viewer,
}

#[derive(Clone, Debug)]
pub struct Caller {
    pub(crate) who: Principal,
    pub(crate) address: Option<IpAddr>,
    pub(crate) agent: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) enum Principal {
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
        /// The person who created the token, directly or through another token.
        made_by: Option<Uuid>,
        maker_name: Option<String>,
    },
}

impl Permission {
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
    /// The person behind the caller: the caller, or the creator of the token.
    pub(crate) fn person(&self) -> Option<Uuid> {
        match &self.who {
            Principal::Person { user, .. } => Some(*user),
            Principal::Token { made_by, .. } => *made_by,
        }
    }

    /// The person behind the caller, or the organisation of a token that does not say who made it.
    pub(crate) fn account(&self) -> Uuid {
        match &self.who {
            Principal::Person { user, .. } => *user,
            Principal::Token { made_by, organisation, .. } => made_by.unwrap_or(*organisation),
        }
    }

    pub(crate) fn is_token_that_only_reads(&self) -> bool {
        matches!(&self.who, Principal::Token { scopes, .. } if !scopes.iter().any(|scope| scope.is_write()))
    }

    pub(crate) fn api_token(&self) -> Option<Uuid> {
        match &self.who {
            Principal::Person { .. } => None,
            Principal::Token { id, .. } => Some(*id),
        }
    }

    pub(crate) fn id(&self) -> Uuid {
        match &self.who {
            Principal::Person { user, .. } => *user,
            Principal::Token { id, .. } => *id,
        }
    }
}
