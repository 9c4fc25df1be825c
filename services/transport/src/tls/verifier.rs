use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

/// Certificates that a client may send besides its own: the search for a chain may try all orders of them.
const INTERMEDIATES_MAX: usize = 4;
/// Bytes of the longest certificate chain; the session holds it while the client is connected.
const CHAIN_BYTES_MAX: usize = 16 * 1024;

/// Verifies that a client has the key of its certificate; a client may come without one. With
/// `authorities` a certificate of one of these is required; otherwise the edge checks the issuer
/// later, with the authorities of the client's broker.
#[derive(Debug)]
pub(super) struct Verifier {
    pub(super) provider: Arc<CryptoProvider>,
    pub(super) authorities: Option<Arc<dyn ClientCertVerifier>>,
}

impl ClientCertVerifier for Verifier {
    fn client_auth_mandatory(&self) -> bool {
        self.authorities.is_some()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.authorities.as_ref().map_or(&[], |authorities| authorities.root_hint_subjects())
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let bytes: usize = end_entity.len() + intermediates.iter().map(|one| one.len()).sum::<usize>();
        if bytes > CHAIN_BYTES_MAX || intermediates.len() > INTERMEDIATES_MAX {
            return Err(CertificateError::BadEncoding.into());
        }
        match &self.authorities {
            Some(authorities) => authorities.verify_client_cert(end_entity, intermediates, now),
            None => Ok(ClientCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
