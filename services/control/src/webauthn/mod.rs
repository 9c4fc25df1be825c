//! Web Authentication (WebAuthn Level 3): verifies the answers of passkeys.
//!
//! A registration brings client data and an attestation object, and gives the credential with its public key. A sign-in brings client
//! data, authenticator data and a signature, which the stored key verifies. The caller checks the challenge, the signature counter and
//! the user handle. This module must not know the store, accounts or the clock.

mod authenticator_data;
mod cose;
#[cfg(test)]
mod software;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use axum::http::Uri;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use serde::Deserialize;

use authenticator_data::AuthenticatorData;
pub(crate) use cose::{ALGORITHMS, PublicKey};

/// The server as browsers and authenticators know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RelyingParty {
    /// RP ID: the host name, to which a passkey is bound.
    pub(crate) id: String,
    /// Origin of the only pages whose answers are accepted.
    pub(crate) origin: String,
}

/// The purpose of an answer, which is the `type` of its client data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ceremony {
    Registration,
    Authentication,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PasskeyRefusal {
    #[error("the client data cannot be read")]
    ClientData,
    #[error("the answer is for another purpose")]
    Type,
    #[error("the answer comes from a page of another origin")]
    Origin,
    #[error("the answer comes from a page within a page of another origin")]
    CrossOrigin,
    #[error("the authenticator data cannot be read")]
    AuthenticatorData,
    #[error("the passkey belongs to another server")]
    RpId,
    #[error("nobody was present at the authenticator")]
    UserAbsent,
    #[error("the authenticator has not verified its user")]
    UserNotVerified,
    #[error("the authenticator says that a passkey that cannot be synced is synced")]
    BackupState,
    #[error("the attestation object cannot be read")]
    Attestation,
    #[error("the public key is none of the algorithms that were offered, or cannot be read")]
    PublicKey,
    #[error("the signature is not right")]
    Signature,
}

/// The client data of an answer, whose type and origin are right.
#[derive(Debug)]
pub(crate) struct ClientData {
    pub(crate) challenge: Vec<u8>,
    hash: [u8; 32],
}

#[derive(Debug)]
pub(crate) struct Registration {
    pub(crate) credential_id: Vec<u8>,
    pub(crate) key: PublicKey,
    pub(crate) counter: u32,
    pub(crate) is_backup_eligible: bool,
}

/// A use of a credential, whose signature is right.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PasskeyAuthentication {
    pub(crate) counter: u32,
    pub(crate) is_user_verified: bool,
    pub(crate) is_backup_eligible: bool,
}

impl RelyingParty {
    /// `None`: browsers offer no passkeys on pages of this URL, because it is without TLS, or its host is an address. For a loopback
    /// address the host is `localhost`, because an RP ID is a name.
    pub(crate) fn of(url: &str) -> Option<Self> {
        let url: Uri = url.to_lowercase().parse().ok()?;
        let (scheme, authority) = (url.scheme_str()?, url.authority()?);
        let host = match authority.host().trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(address) if address.is_loopback() => "localhost",
            Ok(_) => return None,
            Err(_) => authority.host(),
        };
        let is_label = |label: &str| {
            !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        let is_local = host == "localhost" || host.ends_with(".localhost");
        let is_offered = scheme == "https" || scheme == "http" && is_local;
        if !is_offered || authority.as_str().contains('@') || !host.split('.').all(is_label) {
            return None;
        }
        let usual = if scheme == "https" { 443 } else { 80 };
        // Browsers leave the usual port out of an origin.
        let port = authority.port_u16().filter(|port| *port != usual);
        let port = port.map_or_else(String::new, |port| format!(":{port}"));
        Some(Self { id: host.to_owned(), origin: format!("{scheme}://{host}{port}") })
    }
}

impl ClientData {
    /// Reads `CollectedClientData` (section 5.8.1), and checks its type and origin.
    pub(crate) fn read(json: &[u8], ceremony: Ceremony, rp: &RelyingParty) -> Result<Self, PasskeyRefusal> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct CollectedClientData {
            r#type: String,
            challenge: String,
            origin: String,
            #[serde(default)]
            cross_origin: bool,
            top_origin: Option<String>,
        }
        let collected: CollectedClientData =
            serde_json::from_slice(json).map_err(|_| PasskeyRefusal::ClientData)?;
        let expected = match ceremony {
            Ceremony::Registration => "webauthn.create",
            Ceremony::Authentication => "webauthn.get",
        };
        if collected.r#type != expected {
            return Err(PasskeyRefusal::Type);
        }
        if collected.origin != rp.origin {
            return Err(PasskeyRefusal::Origin);
        }
        if collected.cross_origin || collected.top_origin.is_some() {
            return Err(PasskeyRefusal::CrossOrigin);
        }
        let challenge =
            URL_SAFE_NO_PAD.decode(collected.challenge).map_err(|_| PasskeyRefusal::ClientData)?;
        Ok(Self { challenge, hash: sha256(json) })
    }
}

impl Registration {
    /// Reads an attestation object (section 6.5). The attestation statement is ignored: it names the model of the
    /// authenticator, and this server accepts all models.
    pub(crate) fn read(attestation_object: &[u8], rp: &RelyingParty) -> Result<Self, PasskeyRefusal> {
        let bytes = cose::authenticator_data_of(attestation_object).ok_or(PasskeyRefusal::Attestation)?;
        let data = AuthenticatorData::read(&bytes)?;
        data.check(rp)?;
        let (counter, is_backup_eligible) = (data.counter, data.is_backup_eligible());
        let credential = data.credential.ok_or(PasskeyRefusal::AuthenticatorData)?;
        Ok(Self { credential_id: credential.id.to_vec(), key: credential.key, counter, is_backup_eligible })
    }
}

impl PasskeyAuthentication {
    /// Verifies an assertion (section 7.2).
    pub(crate) fn verify(
        client_data: &ClientData,
        authenticator_data: &[u8],
        signature: &[u8],
        key: &PublicKey,
        rp: &RelyingParty,
    ) -> Result<Self, PasskeyRefusal> {
        let data = AuthenticatorData::read_head(authenticator_data)?;
        data.check(rp)?;
        let signed = [authenticator_data, &client_data.hash].concat();
        if !key.verify(&signed, signature) {
            return Err(PasskeyRefusal::Signature);
        }
        Ok(Self {
            counter: data.counter,
            is_user_verified: data.is_user_verified(),
            is_backup_eligible: data.is_backup_eligible(),
        })
    }
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, bytes).as_ref());
    hash
}
