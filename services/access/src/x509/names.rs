use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::CertificateRefusal;
use crate::limits::USER_BYTES_MAX;
use crate::model::CertificateUser;

/// Reads the user name from a certificate whose issuer has been checked. Its key must be one for signatures, by which a
/// client proves that it has the key.
pub(super) fn user(der: &[u8], kind: CertificateUser) -> Result<Box<str>, CertificateRefusal> {
    let (_, certificate) = X509Certificate::from_der(der).map_err(|_| CertificateRefusal::Malformed)?;
    let usage = certificate.key_usage().map_err(|_| CertificateRefusal::Malformed)?;
    if usage.is_some_and(|usage| !usage.value.digital_signature()) {
        return Err(CertificateRefusal::Purpose);
    }
    let name = match kind {
        CertificateUser::CommonName => {
            let first = certificate.subject().iter_common_name().next();
            first.and_then(|name| name.as_str().ok())
        }
        _ => {
            let names = certificate.subject_alternative_name().map_err(|_| CertificateRefusal::Malformed)?;
            let mut names = names.iter().flat_map(|names| &names.value.general_names);
            names.find_map(|name| match (kind, name) {
                (CertificateUser::SanDns, GeneralName::DNSName(name))
                | (CertificateUser::SanUri, GeneralName::URI(name))
                | (CertificateUser::SanEmail, GeneralName::RFC822Name(name)) => Some(*name),
                _ => None,
            })
        }
    };
    name.filter(|name| is_usable(name)).map(Into::into).ok_or(CertificateRefusal::NoUser)
}

fn is_usable(name: &str) -> bool {
    !name.is_empty() && name.len() <= USER_BYTES_MAX && !name.contains(char::is_control)
}
