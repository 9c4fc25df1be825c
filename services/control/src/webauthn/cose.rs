//! The parts of an answer that are in CBOR: the attestation object, and the public key in COSE (RFC 9052, RFC 9053).
//!
//! The decoder stops at 256 levels and reserves memory for 256 elements of a list at most, whatever length the input names.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use cbor4ii::core::Value;
use cbor4ii::core::dec::{Decode as _, Read as _};
use cbor4ii::core::utils::SliceReader;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::{Deserialize, Serialize};

const ES256: i128 = -7;
const EDDSA: i128 = -8;
const RS256: i128 = -257;

/// COSE numbers of the algorithms that are offered, the preferred one first.
pub(crate) const ALGORITHMS: [i32; 3] = [-7, -8, -257];

/// Bytes of an RSA modulus: 2048 to 4096 bits.
const RSA_BYTES: std::ops::RangeInclusive<usize> = 256..=512;
const RSA_EXPONENT_BYTES_MAX: usize = 4;

/// The public key of a passkey as it is stored; numbers and points are in Base64.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "algorithm")]
pub(crate) enum PublicKey {
    #[serde(rename = "ES256")]
    Es256 { point: String },
    #[serde(rename = "EdDSA")]
    Ed25519 { point: String },
    #[serde(rename = "RS256")]
    Rs256 { modulus: String, exponent: String },
}

impl PublicKey {
    /// Reads a `COSE_Key` at the start of the bytes, and returns what follows it.
    pub(super) fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (map, rest) = map(bytes)?;
        let number = |label| match at(&map, &Value::Integer(label))? {
            Value::Integer(number) => Some(*number),
            _ => None,
        };
        let bytes = |label| match at(&map, &Value::Integer(label))? {
            Value::Bytes(bytes) => Some(bytes.as_slice()),
            _ => None,
        };
        let coordinate = |label| bytes(label).filter(|bytes| bytes.len() == 32);
        let key = match (number(1)?, number(3)?) {
            (2, ES256) if number(-1)? == 1 => {
                Self::Es256 { point: text(&[&[4], coordinate(-2)?, coordinate(-3)?].concat()) }
            }
            (1, EDDSA) if number(-1)? == 6 => Self::Ed25519 { point: text(coordinate(-2)?) },
            (3, RS256) => {
                let (modulus, exponent) = (without_zeros(bytes(-1)?), without_zeros(bytes(-2)?));
                if !RSA_BYTES.contains(&modulus.len())
                    || !(1..=RSA_EXPONENT_BYTES_MAX).contains(&exponent.len())
                {
                    return None;
                }
                Self::Rs256 { modulus: text(modulus), exponent: text(exponent) }
            }
            _ => return None,
        };
        Some((key, rest))
    }

    pub(super) fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        self.verified(message, signature).is_some()
    }

    fn verified(&self, message: &[u8], signature: &[u8]) -> Option<()> {
        let bytes = |text: &String| URL_SAFE_NO_PAD.decode(text).ok();
        let verified = match self {
            Self::Es256 { point } => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, bytes(point)?).verify(message, signature)
            }
            Self::Ed25519 { point } => {
                UnparsedPublicKey::new(&ED25519, bytes(point)?).verify(message, signature)
            }
            Self::Rs256 { modulus, exponent } => {
                let key = RsaPublicKeyComponents { n: bytes(modulus)?, e: bytes(exponent)? };
                key.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
            }
        };
        verified.ok()
    }
}

/// The authenticator data in an attestation object (WebAuthn Level 3 section 6.5.4).
pub(super) fn authenticator_data_of(attestation_object: &[u8]) -> Option<Vec<u8>> {
    let (map, rest) = map(attestation_object)?;
    let field = |name: &str| at(&map, &Value::Text(name.into()));
    match (field("fmt")?, field("attStmt")?, field("authData")?) {
        (Value::Text(_), Value::Map(_), Value::Bytes(data)) if rest.is_empty() => Some(data.clone()),
        _ => None,
    }
}

pub(super) fn skip_map(bytes: &[u8]) -> Option<&[u8]> {
    map(bytes).map(|(_, rest)| rest)
}

type Pairs = Vec<(Value, Value)>;

fn map(bytes: &[u8]) -> Option<(Pairs, &[u8])> {
    let mut reader = SliceReader::new(bytes);
    let Value::Map(map) = Value::decode(&mut reader).ok()? else { return None };
    let left = reader.fill(usize::MAX).ok()?.as_ref().len();
    Some((map, &bytes[bytes.len() - left..]))
}

/// A value of a map; `None` also for a key that is there twice, because other readers could take the other value.
fn at<'a>(map: &'a Pairs, key: &Value) -> Option<&'a Value> {
    let mut found = map.iter().filter(|(other, _)| other == key);
    found.next().filter(|_| found.next().is_none()).map(|(_, value)| value)
}

fn without_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    &number[zeros..]
}

fn text(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
