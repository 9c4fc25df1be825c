//! The key that checks a token's signature: a public key out of a PEM or a JWK, or a shared secret
//! out of the issuer's record. [`super::KeySet`] holds the keys of one issuer.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::hmac;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, SubjectPublicKeyInfoDer};
use serde::Deserialize;
use x509_parser::prelude::{FromDer as _, X509Certificate};
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

use crate::limits::{EXPONENT_BYTES_MAX, HS256_SECRET_BYTES_MIN};
use crate::model::{JwtAlgorithm, JwtKey};

/// An uncompressed point of P-256: the byte 4, then x and y.
const POINT_BYTES: usize = 65;
/// The shortest RSA key that RFC 7518 section 3.3 allows.
const RSA_BITS_MIN: usize = 2_048;
/// Longer keys take half a millisecond for each CONNECT.
const RSA_BITS_MAX: usize = 4_096;

#[derive(Clone)]
pub(super) enum VerifyingKey {
    Hs256(hmac::Key),
    Rs256(RsaPublicKeyComponents<Vec<u8>>),
    Es256([u8; POINT_BYTES]),
}

/// The members of a JWK that are used (RFC 7517 section 4, RFC 7518 section 6).
#[derive(Deserialize)]
pub(super) struct Jwk {
    kty: String,
    pub(super) kid: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl VerifyingKey {
    /// `None` when the record names a key set; an error is the field of [`JwtKey`] and what to
    /// change.
    pub(super) fn of(key: &JwtKey) -> Result<Option<Self>, (&'static str, &'static str)> {
        Ok(Some(match key {
            JwtKey::Secret { secret, base64 } => {
                let secret = if *base64 {
                    STANDARD
                        .decode(secret.expose())
                        .map_err(|_| ("secret", "is not base64: encode it again, or set base64 to false"))?
                } else {
                    secret.expose().as_bytes().to_vec()
                };
                if secret.len() < HS256_SECRET_BYTES_MIN {
                    return Err((
                        "secret",
                        "is shorter than the 32 bytes of an HS256 key: generate another (openssl rand -base64 32)",
                    ));
                }
                Self::Hs256(hmac::Key::new(hmac::HMAC_SHA256, &secret))
            }
            JwtKey::Pem { pem } => Self::from_pem(pem.as_bytes()).map_err(|what| ("pem", what))?,
            JwtKey::Jwks { .. } => return Ok(None),
        }))
    }

    fn from_pem(pem: &[u8]) -> Result<Self, &'static str> {
        const WRONG: &str =
            "has no public key that can be read: give a PUBLIC KEY (openssl pkey -pubout) or a CERTIFICATE";
        if let Ok(der) = SubjectPublicKeyInfoDer::from_pem_slice(pem) {
            let (_, info) = SubjectPublicKeyInfo::from_der(&der).map_err(|_| WRONG)?;
            return Self::from_info(&info);
        }
        let der = CertificateDer::from_pem_slice(pem).map_err(|_| WRONG)?;
        let (_, certificate) = X509Certificate::from_der(&der).map_err(|_| WRONG)?;
        Self::from_info(certificate.public_key())
    }

    fn from_info(info: &SubjectPublicKeyInfo<'_>) -> Result<Self, &'static str> {
        const KIND: &str =
            "has a key that is neither RSA of 2048 to 4096 bits nor EC on P-256: generate one of these";
        match info.parsed() {
            Ok(PublicKey::RSA(rsa)) => Self::rsa(rsa.modulus, rsa.exponent).ok_or(KIND),
            // A point of this size on another curve is accepted here and fails every signature
            // check.
            Ok(PublicKey::EC(point)) => point.data().try_into().map(Self::Es256).map_err(|_| KIND),
            _ => Err(KIND),
        }
    }

    pub(super) fn from_jwk(jwk: &Jwk) -> Option<Self> {
        if jwk.usage.as_deref().is_some_and(|usage| usage != "sig") {
            return None;
        }
        let bytes = |text: &Option<String>| URL_SAFE_NO_PAD.decode(text.as_deref()?).ok();
        match (jwk.kty.as_str(), jwk.alg.as_deref(), jwk.crv.as_deref()) {
            ("RSA", None | Some("RS256"), _) => Self::rsa(&bytes(&jwk.n)?, &bytes(&jwk.e)?),
            ("EC", None | Some("ES256"), Some("P-256")) => {
                let point = [&[4][..], &bytes(&jwk.x)?, &bytes(&jwk.y)?].concat();
                Some(Self::Es256(point.try_into().ok()?))
            }
            _ => None,
        }
    }

    fn rsa(n: &[u8], e: &[u8]) -> Option<Self> {
        let without_zeros =
            |bytes: &[u8]| bytes[bytes.iter().take_while(|byte| **byte == 0).count()..].to_vec();
        let (n, e) = (without_zeros(n), without_zeros(e));
        let bits = n.len() * 8 - n.first()?.leading_zeros() as usize;
        let fits = (RSA_BITS_MIN..=RSA_BITS_MAX).contains(&bits) && e.len() <= EXPONENT_BYTES_MAX;
        fits.then_some(Self::Rs256(RsaPublicKeyComponents { n, e }))
    }

    pub(super) fn bytes(&self) -> usize {
        let parts =
            if let Self::Rs256(RsaPublicKeyComponents { n, e }) = self { n.len() + e.len() } else { 0 };
        size_of::<Self>() + parts
    }

    pub(super) fn algorithm(&self) -> JwtAlgorithm {
        match self {
            Self::Hs256(_) => JwtAlgorithm::Hs256,
            Self::Rs256(_) => JwtAlgorithm::Rs256,
            Self::Es256(_) => JwtAlgorithm::Es256,
        }
    }

    pub(super) fn verify(&self, signed: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Hs256(key) => hmac::verify(key, signed, signature).is_ok(),
            Self::Rs256(key) => key.verify(&RSA_PKCS1_2048_8192_SHA256, signed, signature).is_ok(),
            Self::Es256(point) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(signed, signature).is_ok()
            }
        }
    }
}
