//! Descriptions of parameters that mean the same in all operations.

use utoipa::openapi::RefOr;
use utoipa::openapi::path::Operation;

const PARAMETERS: &[(&str, &str)] = &[
    ("broker", "Name of the broker."),
    ("claim_token", "Id of the claim token."),
    ("client_id", "Only what concerns the client with this id."),
    ("code", "The code for which the provider gives tokens. It is absent when the provider refused."),
    ("cursor", "`next_cursor` of the previous page."),
    ("error_description", "The provider's reason for a refusal."),
    ("identity", "Id of the connected account."),
    ("invitation", "Id of the invitation."),
    ("kind", "Only incidents of this kind."),
    ("limit", "Maximum number of rows."),
    ("name", "Name of the group, issuer, client CA, ban or webhook."),
    ("organisation", "Id of the organisation."),
    ("passkey", "Id of the passkey."),
    ("search", "Beginning of the user name of a credential, or of the client id of a session."),
    ("session", "Id of the web session."),
    ("token", "Id of the API token."),
    ("topic", "The topic, without wildcards."),
    ("user", "User name of the credential."),
];

/// Describes the parameters whose declarations say nothing.
pub(super) fn describe(operation: &mut Operation) {
    for parameter in operation.parameters.iter_mut().flatten() {
        let RefOr::T(parameter) = parameter else { continue };
        let known = PARAMETERS.iter().find(|(name, _)| *name == parameter.name);
        if let (None, Some((_, text))) = (&parameter.description, known) {
            parameter.description = Some((*text).into());
        }
    }
}
