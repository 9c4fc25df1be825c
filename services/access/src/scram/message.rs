//! Parsers of the client's messages (RFC 5802 section 7), whose nonce, binding and proof the exchange checks.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::ScramRefusal;
use crate::limits::{SCRAM_MESSAGE_BYTES_MAX, USER_BYTES_MAX};

/// `client-first-message`: `n,,n=user,r=nonce`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct First {
    /// The client's final message must repeat the header.
    pub(super) gs2_header: Box<str>,
    pub(super) bare: Box<str>,
    pub(super) user: Box<str>,
    pub(super) nonce: Box<str>,
}

/// `client-final-message`: `c=biws,r=nonce,p=proof`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Final<'a> {
    pub(super) without_proof: &'a str,
    pub(super) binding: Vec<u8>,
    pub(super) nonce: &'a str,
    pub(super) proof: [u8; 32],
}

impl First {
    pub(super) fn parse(message: &[u8]) -> Result<Self, ScramRefusal> {
        let message = text(message)?;
        let (flag, rest) = message.split_once(',').ok_or(ScramRefusal::Malformed)?;
        let (identity, bare) = rest.split_once(',').ok_or(ScramRefusal::Malformed)?;
        match (flag, identity) {
            ("n" | "y", "") => {}
            _ if flag.starts_with("p=") || identity.starts_with("a=") => {
                return Err(ScramRefusal::Unsupported);
            }
            _ => return Err(ScramRefusal::Malformed),
        }
        let mut attributes = bare.split(',');
        let mut next = || attributes.next().ok_or(ScramRefusal::Malformed);
        let user = match next()? {
            mandatory if mandatory.starts_with("m=") => return Err(ScramRefusal::Unsupported),
            user => unescape(value(user, "n=")?)?,
        };
        let nonce = value(next()?, "r=")?;
        let is_printable = |byte: u8| matches!(byte, 0x21..=0x7E);
        if nonce.is_empty() || !nonce.bytes().all(is_printable) || user.len() > USER_BYTES_MAX {
            return Err(ScramRefusal::Malformed);
        }
        Ok(Self {
            gs2_header: message[..message.len() - bare.len()].into(),
            bare: bare.into(),
            user: user.into(),
            nonce: nonce.into(),
        })
    }
}

impl<'a> Final<'a> {
    pub(super) fn parse(message: &'a [u8]) -> Result<Self, ScramRefusal> {
        let message = text(message)?;
        let (without_proof, proof) = message.rsplit_once(",p=").ok_or(ScramRefusal::Malformed)?;
        let mut attributes = without_proof.split(',');
        let mut next = || attributes.next().ok_or(ScramRefusal::Malformed);
        let binding = decode(value(next()?, "c=")?)?;
        let nonce = value(next()?, "r=")?;
        let proof = decode(proof)?.try_into().map_err(|_| ScramRefusal::Malformed)?;
        Ok(Self { without_proof, binding, nonce, proof })
    }
}

fn text(message: &[u8]) -> Result<&str, ScramRefusal> {
    let message = std::str::from_utf8(message).map_err(|_| ScramRefusal::Malformed)?;
    if message.len() > SCRAM_MESSAGE_BYTES_MAX || message.contains('\0') {
        return Err(ScramRefusal::Malformed);
    }
    Ok(message)
}

fn value<'a>(attribute: &'a str, name: &str) -> Result<&'a str, ScramRefusal> {
    attribute.strip_prefix(name).ok_or(ScramRefusal::Malformed)
}

fn decode(base64: &str) -> Result<Vec<u8>, ScramRefusal> {
    STANDARD.decode(base64).map_err(|_| ScramRefusal::Malformed)
}

/// Decodes a `saslname`: `=2C` is a comma, `=3D` an equals sign.
fn unescape(name: &str) -> Result<String, ScramRefusal> {
    let mut parts = name.split('=');
    let mut user = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (sign, rest) = match part.split_at_checked(2) {
            Some(("2C", rest)) => (',', rest),
            Some(("3D", rest)) => ('=', rest),
            _ => return Err(ScramRefusal::Malformed),
        };
        user.push(sign);
        user.push_str(rest);
    }
    Ok(user)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_message_says_user_and_nonce() {
        for (message, header, user) in [
            ("n,,n=user,r=a%b", "n,,", "user"),
            ("y,,n=user,r=a%b", "y,,", "user"),
            ("n,,n=a=2Cb=3Dc=3D,r=a%b,x=ignored", "n,,", "a,b=c="),
            ("n,,n=,r=a%b", "n,,", ""),
            ("n,,n=José,r=a%b", "n,,", "José"),
        ] {
            let first = First::parse(message.as_bytes()).unwrap();
            assert_eq!((&*first.gs2_header, &*first.user, &*first.nonce), (header, user, "a%b"), "{message}");
            assert_eq!(format!("{}{}", first.gs2_header, first.bare), message);
        }
    }

    #[test]
    fn a_wrong_first_message_is_refused() {
        let long = format!("n,,n={},r=a", "u".repeat(300));
        for (message, refusal) in [
            ("", ScramRefusal::Malformed),
            ("n,,", ScramRefusal::Malformed),
            ("n,n=user,r=a", ScramRefusal::Malformed),
            ("x,,n=user,r=a", ScramRefusal::Malformed),
            ("n,,r=a,n=user", ScramRefusal::Malformed),
            ("n,,n=user", ScramRefusal::Malformed),
            ("n,,n=user,r=", ScramRefusal::Malformed),
            ("n,,n=user,r=a b", ScramRefusal::Malformed),
            ("n,,n=us=er,r=a", ScramRefusal::Malformed),
            ("n,,n=us=2,r=a", ScramRefusal::Malformed),
            ("n,,n=us\0er,r=a", ScramRefusal::Malformed),
            (&long, ScramRefusal::Malformed),
            ("p=tls-exporter,,n=user,r=a", ScramRefusal::Unsupported),
            ("n,a=admin,n=user,r=a", ScramRefusal::Unsupported),
            ("n,,m=x,n=user,r=a", ScramRefusal::Unsupported),
        ] {
            assert_eq!(First::parse(message.as_bytes()), Err(refusal), "{message:.40}");
        }
        assert_eq!(First::parse(b"n,,n=\xFF,r=a"), Err(ScramRefusal::Malformed));
    }

    #[test]
    fn a_wrong_last_message_is_refused() {
        let proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        assert!(Final::parse(format!("c=biws,r=ab,x=y,p={proof}").as_bytes()).is_ok());
        for message in [
            String::new(),
            "c=biws,r=ab".into(),
            format!("r=ab,c=biws,p={proof}"),
            format!("c=biws,p={proof}"),
            format!("c=b,r=ab,p={proof}"),
            "c=biws,r=ab,p=AAAA".into(),
            "c=biws,r=ab,p=%".into(),
        ] {
            assert_eq!(Final::parse(message.as_bytes()), Err(ScramRefusal::Malformed), "{message}");
        }
    }
}
