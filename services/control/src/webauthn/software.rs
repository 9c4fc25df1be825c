//! An authenticator in software, for tests: it holds one key, signs with it, and makes the faults that a test asks for.

#![allow(dead_code, reason = "each of the two test programs uses a part")]

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
};

pub(crate) const PRESENT: u8 = 1;
pub(crate) const VERIFIED: u8 = 1 << 2;
pub(crate) const BACKUP_ELIGIBLE: u8 = 1 << 3;
pub(crate) const BACKED_UP: u8 = 1 << 4;
const HAS_CREDENTIAL: u8 = 1 << 6;
pub(crate) const HAS_EXTENSIONS: u8 = 1 << 7;

/// An RSA key of 2048 bits, because ring makes none.
const RSA_KEY: &str = "\
MIIEvAIBADANBgkqhkiG9w0BAQEFAASCBKYwggSiAgEAAoIBAQCePo3bsrkyTU4nl6xVZHtx3A34S2OLW9DY0M0ozg\
BlstnTTMvVuvxIWlquivoorU3ObETtx77ytr51dkEUPy0tqbZdfeuSR/WGxOWPklSZtgRUmtGO4wPcZUiKP4NUaD1r\
y6LJX4ssCgkZP4w44C+NQBUO62NuGdwAhss4Kn9vtpXpoFpdz3wakoohURX6AVkrx5930tTYeyK0wWQXHUW8/nwEZT\
t5CMCjiGYBlewAerQWBsByhNeDRQcMYkq6JID86gbQh03IzHR+DwWiDJBr1KLqWPYFh0Hil32sml1OACD4dyYFzQCs\
YqINojWgZEnYJrfDRkT4CKg8UmI63PCrAgMBAAECggEASn1jxaGR8A3X1mddZi0Qtv5BTToft8AWxZk0mhqusTDJvN\
+PrCKDE4QE39jn/THnSF5K7Ct0xUgky6JI7ED5AV+8SrI1q/xXpYMWFMlrLZgy3airMLnIXX0H8pwHNDqFfzKyhFyH\
ZMmsksgJN9TATZt2zjkb6v4dQ9ov21aV+n2Yg/LqKBgEQRB4rTIKJFLfqEU4eSFTG7EkO44vRjzdV9mOpWCp2N4Ke5\
HiEML+EoT2UuRC9pmEraZS3/lLTZW1q2+QFLUHlq//LJYLRfORMPcxHNnl0OWLJEwh7KQHJNF8Ts1FY7yuXvLRcihh\
A03GigRHehMoJqmPpVIiFU5/IQKBgQDYVLL32yWT0gIgnY0u3I8pnCtfodVdXI2AxDzc3wZud0JatIVPJ4ooQmjZXZ\
LDiTp1tygQczp6Vx1KbotgZtLkcpHJI8ynYTWPhjZEVY0zWgvHAp3h9GHWaQ2JLpw353Bn4uZ3PpE9M/B0oTPNJO8u\
m+zbdZl+bTXAhn6Rz0/riQKBgQC7QxQR+eQbsLNiDJBPWq2vJRZPWcR4/GYwkEFBhvROpQYt5qR260crJRdFUgilAm\
/JEXWRHucXDzgldCoaSChXo5xfj/mQjKtXpQl3fphdaeATpvrNm8gQhxItPtw9ylV+TBrDcvTHmyfntd84kiviXGqT\
RrL7Ek2M2qPfOpHpkwKBgB10MsXSXaRptIZyTRWzS/6zV6h2pVFH17BPh6Xe68ZAkJU+/OORE5t1p0bpGaFr3rzGSj\
srJSwhDkjjEjD27wHRo43KRQQJFTzMXjkhmM8EFJRtA8gO+P8zYHdsFDL8XO6YEx7rMuUtXDDU/fORcstayX373gE7\
p1TmOvdpTY1ZAoGADH9/mWuKM+bpMgQQpZsxuFzLTmR5XnHKCDe4gz0UlSMidHHOTDmLuG9zTCcbeJffChZmOFdNqR\
ZU8vr7zGFAgAjlaONdDq60yNa0+Qqz9JgaYnVki9B329KH/gkR/fXBGvrNVnoXqDLMyQQ0b7whvavZWRcA3wzrrBjz\
kvR/xI0CgYApYxS/qYF7Cb830d7XEwgS0f4Zu6YIKiyJ8gkMpcI17f4Zt9fEFqtAmo+kPx2CWf6dVvfQtV7wZeHAY7\
vmvcLauwnmcgYNcPveVYFOsKPOSHNAyU37ZEDSlJz8KJgZs8h3RmsU1E8spjaT1H6d6SWImS8lplGKapabN7zQ7QaC\
4A==";

#[allow(clippy::large_enum_variant, reason = "a test has few")]
pub(crate) enum KeyOf {
    Es256(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    Rs256(RsaKeyPair),
}

/// A credential in an authenticator, and the page on which it is used.
pub(crate) struct SoftwareAuthenticator {
    pub(crate) key: Arc<KeyOf>,
    pub(crate) id: Vec<u8>,
    pub(crate) counter: u32,
    pub(crate) flags: u8,
    pub(crate) rp_id: String,
    pub(crate) origin: String,
    /// More fields of the client data, such as `,"crossOrigin":true`.
    pub(crate) more: String,
    /// Overrides the `type` of the client data.
    pub(crate) kind: Option<&'static str>,
    /// Bytes that follow the authenticator data.
    pub(crate) trailing: Vec<u8>,
}

#[derive(Clone)]
pub(crate) struct Assertion {
    pub(crate) client_data: Vec<u8>,
    pub(crate) authenticator_data: Vec<u8>,
    pub(crate) signature: Vec<u8>,
}

impl SoftwareAuthenticator {
    pub(crate) fn new(rp_id: &str, origin: &str) -> Self {
        let pkcs8 =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new()).unwrap();
        let key =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8.as_ref(), &SystemRandom::new());
        Self::with_key(Arc::new(KeyOf::Es256(key.unwrap())), rp_id, origin)
    }

    pub(crate) fn with_key(key: Arc<KeyOf>, rp_id: &str, origin: &str) -> Self {
        let mut id = vec![0; 32];
        getrandom::fill(&mut id).unwrap();
        Self {
            key,
            id,
            counter: 0,
            flags: PRESENT | VERIFIED,
            rp_id: rp_id.into(),
            origin: origin.into(),
            more: String::new(),
            kind: None,
            trailing: Vec::new(),
        }
    }

    pub(crate) fn ed25519() -> Arc<KeyOf> {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Arc::new(KeyOf::Ed25519(Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap()))
    }

    pub(crate) fn rsa() -> Arc<KeyOf> {
        let pkcs8 = STANDARD.decode(RSA_KEY).unwrap();
        Arc::new(KeyOf::Rs256(RsaKeyPair::from_pkcs8(&pkcs8).unwrap()))
    }

    pub(crate) fn client_data(&self, kind: &str, challenge: &str) -> Vec<u8> {
        let (kind, origin, more) = (self.kind.unwrap_or(kind), &self.origin, &self.more);
        format!(r#"{{"type":"{kind}","challenge":"{challenge}","origin":"{origin}"{more}}}"#).into_bytes()
    }

    /// The fixed part of the authenticator data: hash of the rp id, flags, counter.
    fn head(&self, flags: u8) -> Vec<u8> {
        let hash = digest(&SHA256, self.rp_id.as_bytes());
        [hash.as_ref(), &[flags], &self.counter.to_be_bytes()].concat()
    }

    /// The public key in COSE (RFC 9053): 1 is the key type, 3 the algorithm, the negative numbers are curve and coordinates or modulus
    /// and exponent.
    pub(crate) fn cose_key(&self) -> Vec<u8> {
        match &*self.key {
            KeyOf::Es256(key) => {
                let point = key.public_key().as_ref();
                map(&[
                    (int(1), int(2)),
                    (int(3), int(-7)),
                    (int(-1), int(1)),
                    (int(-2), bytes(&point[1..33])),
                    (int(-3), bytes(&point[33..])),
                ])
            }
            KeyOf::Ed25519(key) => map(&[
                (int(1), int(1)),
                (int(3), int(-8)),
                (int(-1), int(6)),
                (int(-2), bytes(key.public_key().as_ref())),
            ]),
            KeyOf::Rs256(key) => {
                let public = ring::signature::RsaPublicKeyComponents::<Vec<u8>>::from(key.public_key());
                map(&[
                    (int(1), int(3)),
                    (int(3), int(-257)),
                    (int(-1), bytes(&public.n)),
                    (int(-2), bytes(&public.e)),
                ])
            }
        }
    }

    pub(crate) fn registered_data(&self) -> Vec<u8> {
        let length = u16::try_from(self.id.len()).unwrap().to_be_bytes();
        let head = self.head(self.flags | HAS_CREDENTIAL);
        [&head[..], &[0; 16], &length, &self.id, &self.cose_key(), &self.trailing].concat()
    }

    /// The client data and the attestation object of a registration.
    pub(crate) fn register(&self, challenge: &str) -> (Vec<u8>, Vec<u8>) {
        (self.client_data("webauthn.create", challenge), attestation(&self.registered_data()))
    }

    pub(crate) fn sign_in(&self, challenge: &str) -> Assertion {
        let client_data = self.client_data("webauthn.get", challenge);
        let authenticator_data = [self.head(self.flags), self.trailing.clone()].concat();
        let hash = digest(&SHA256, &client_data);
        let signature = self.sign(&[&authenticator_data, hash.as_ref()].concat());
        Assertion { client_data, authenticator_data, signature }
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &*self.key {
            KeyOf::Es256(key) => key.sign(&random, message).unwrap().as_ref().to_vec(),
            KeyOf::Ed25519(key) => key.sign(message).as_ref().to_vec(),
            KeyOf::Rs256(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).unwrap();
                signature
            }
        }
    }
}

pub(crate) fn attestation(authenticator_data: &[u8]) -> Vec<u8> {
    map(&[
        (text("fmt"), text("none")),
        (text("attStmt"), map(&[])),
        (text("authData"), bytes(authenticator_data)),
    ])
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The head of a CBOR item: its major type and its value or length (RFC 8949 section 3).
pub(crate) fn item(kind: u8, number: u64) -> Vec<u8> {
    let kind = kind << 5;
    match number {
        0..24 => vec![kind | u8::try_from(number).unwrap()],
        24..0x100 => vec![kind | 24, u8::try_from(number).unwrap()],
        0x100..0x1_0000 => [&[kind | 25][..], &u16::try_from(number).unwrap().to_be_bytes()].concat(),
        _ => [&[kind | 27][..], &number.to_be_bytes()].concat(),
    }
}

pub(crate) fn int(number: i64) -> Vec<u8> {
    match u64::try_from(number) {
        Ok(number) => item(0, number),
        Err(_) => item(1, number.unsigned_abs() - 1),
    }
}

pub(crate) fn bytes(bytes: &[u8]) -> Vec<u8> {
    [item(2, bytes.len() as u64), bytes.to_vec()].concat()
}

pub(crate) fn text(text: &str) -> Vec<u8> {
    [item(3, text.len() as u64), text.as_bytes().to_vec()].concat()
}

pub(crate) fn map(pairs: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let pairs_of = pairs.iter().flat_map(|(key, value)| key.iter().chain(value).copied());
    item(5, pairs.len() as u64).into_iter().chain(pairs_of).collect()
}
