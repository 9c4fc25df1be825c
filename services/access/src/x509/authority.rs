//! Checks client certificates against one authority of a tenant.

use std::cell::Cell;

use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, TrustAnchor, UnixTime};
use webpki::{
    ALL_VERIFICATION_ALGS, EndEntityCert, Error, KeyUsage, RevocationOptions, RevocationOptionsBuilder,
    UnknownStatusPolicy, VerifiedPath, anchor_from_trusted_cert,
};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::revocation::{self, RevocationList, RevocationStatus};
use super::{CertificateId, CertificateRefusal, names};
use crate::limits::{AUTHORITY_CERTIFICATES_MAX, CLIENT_CERTIFICATES_MAX, SAME_SUBJECT_MAX};
use crate::model::{ClientCa, Invalid};

#[derive(Debug)]
pub struct Authority {
    record: ClientCa,
    /// The roots of the record, or all its certificates if none is a root.
    anchors: Vec<Anchor>,
    /// Certificates of the record that a chain may go through, with the subject of each at the same index.
    intermediates: Vec<CertificateDer<'static>>,
    subjects: Vec<Box<[u8]>>,
    certificates_beyond_limits: usize,
    revoked: Vec<RevocationList>,
}

/// A further check of a chain whose signatures are verified.
type CheckPath<'c> = dyn Fn(&VerifiedPath<'_>) -> Result<(), Error> + 'c;

/// A trust anchor with its dates, because webpki does not check the dates of anchors.
#[derive(Debug)]
struct Anchor {
    trusted: TrustAnchor<'static>,
    from_s: i64,
    until_s: i64,
}

impl Authority {
    pub fn new(mut record: ClientCa) -> Result<Self, Vec<Invalid>> {
        record.validate()?;
        let invalid =
            |field: &str, what: &str| vec![Invalid { field: field.to_owned(), what: what.to_owned() }];
        let certificates = chain(record.pem.as_bytes()).ok_or_else(|| {
            invalid("pem", "has a certificate that is not PEM: copy it again, with its BEGIN and END lines")
        })?;
        let (mut anchors, mut intermediates, mut subjects) = (Vec::new(), Vec::new(), Vec::new());
        let mut certificates_beyond_limits = 0;
        for der in certificates {
            let (anchor, is_root) = anchor(&der).map_err(|what| invalid("pem", what))?;
            anchors.push((anchor, is_root));
            let subject = subject(&der).unwrap_or_default();
            if subjects.len() == AUTHORITY_CERTIFICATES_MAX || count(&subjects, &subject) == SAME_SUBJECT_MAX
            {
                certificates_beyond_limits += 1;
            } else {
                intermediates.push(der);
                subjects.push(subject);
            }
        }
        let has_root = anchors.iter().any(|(_, is_root)| *is_root);
        let anchors =
            anchors.into_iter().filter(|(_, is_root)| *is_root || !has_root).map(|(anchor, _)| anchor);
        let anchors = anchors.collect();
        let revoked = revocation::lists(&record.revoked.take().unwrap_or_default()).ok_or_else(|| {
            invalid(
                "revoked",
                "has a revocation list that cannot be read: export it again as PEM (openssl crl)",
            )
        })?;
        Ok(Self { record, anchors, intermediates, subjects, certificates_beyond_limits, revoked })
    }

    /// Lists whose signer is known, so that their indexes decide.
    #[cfg(test)]
    pub(super) fn lists_in_use(&self) -> usize {
        self.revoked.iter().filter(|list| list.is_in_use()).count()
    }

    #[must_use]
    pub fn record(&self) -> &ClientCa {
        &self.record
    }

    /// Call it before a record is stored, because with too many certificates the check of a client could try very many chains; a
    /// record that is already stored works with its first certificates.
    pub fn check_size(&self) -> Result<(), Vec<Invalid>> {
        if self.certificates_beyond_limits == 0 {
            return Ok(());
        }
        let what = format!(
            "has more than {AUTHORITY_CERTIFICATES_MAX} certificates, or more than {SAME_SUBJECT_MAX} of one subject: leave out \
             {} that sign no devices",
            self.certificates_beyond_limits
        );
        Err(vec![Invalid { field: "pem".into(), what }])
    }

    /// Returns the user name; `chain` begins with the client's own certificate, and `now_s` is unix
    /// seconds.
    pub fn verify(&self, chain: &[CertificateDer<'_>], now_s: u64) -> Result<Box<str>, CertificateRefusal> {
        let (der, more) = chain.split_first().ok_or(CertificateRefusal::Malformed)?;
        if chain.len() > CLIENT_CERTIFICATES_MAX {
            return Err(CertificateRefusal::Malformed);
        }
        let certificate = EndEntityCert::try_from(der).map_err(|error| refusal(&error))?;
        let anchors = self.anchors_at(now_s);
        if anchors.is_empty() {
            return Err(CertificateRefusal::Expired);
        }
        let intermediates = self.with_those_of_client(more)?;
        let verify = |revocation: Option<RevocationOptions<'_>>, check: &CheckPath<'_>| {
            let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(now_s));
            let usage = KeyUsage::client_auth();
            certificate
                .verify_for_usage(
                    ALL_VERIFICATION_ALGS,
                    &anchors,
                    &intermediates,
                    now,
                    usage,
                    revocation,
                    Some(check),
                )
                .map(|_| ())
        };
        self.with_revocation(verify).map_err(|error| refusal(&error))?;
        names::user(der, self.record.user)
    }

    /// Whether a revocation list names this certificate, which [`Self::verify`] has accepted earlier.
    #[must_use]
    pub fn revokes(&self, certificate: &CertificateId) -> bool {
        self.revoked.iter().any(|list| list.names(certificate))
    }

    /// Verifies by the indexes of the lists, and by the lists themselves while an index is not in use.
    fn with_revocation(
        &self,
        verify: impl Fn(Option<RevocationOptions<'_>>, &CheckPath<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let is_unknown = Cell::new(false);
        let verified = verify(None, &|path| match revocation::status(&self.revoked, path) {
            RevocationStatus::NotRevoked => Ok(()),
            RevocationStatus::Revoked => Err(Error::CertRevoked),
            RevocationStatus::Unknown => {
                is_unknown.set(true);
                Err(Error::UnknownRevocationStatus)
            }
        });
        if verified.is_ok() || !is_unknown.get() {
            return verified;
        }
        let lists = self.revoked.iter().map(RevocationList::parsed).collect::<Result<Vec<_>, _>>()?;
        let lists: Vec<_> = lists.iter().collect();
        let options = RevocationOptionsBuilder::new(&lists).ok();
        let options = options.map(|options| options.with_status_policy(UnknownStatusPolicy::Allow).build());
        verify(options, &|path| {
            revocation::remember_signers(&self.revoked, path);
            Ok(())
        })
    }

    fn with_those_of_client<'c>(
        &'c self,
        more: &'c [CertificateDer<'_>],
    ) -> Result<Vec<CertificateDer<'c>>, CertificateRefusal> {
        let (mut all, mut subjects) = (self.intermediates.clone(), self.subjects.clone());
        for der in more.iter().filter(|der| !self.intermediates.contains(der)) {
            let subject = subject(der).ok_or(CertificateRefusal::Malformed)?;
            if count(&subjects, &subject) == SAME_SUBJECT_MAX {
                return Err(CertificateRefusal::Malformed);
            }
            subjects.push(subject);
            all.push(der.clone());
        }
        Ok(all)
    }

    fn anchors_at(&self, now_s: u64) -> Vec<TrustAnchor<'_>> {
        let now_s = i64::try_from(now_s).unwrap_or(i64::MAX);
        let valid = self.anchors.iter().filter(|anchor| (anchor.from_s..=anchor.until_s).contains(&now_s));
        valid.map(|anchor| anchor.trusted.clone()).collect()
    }
}

fn subject(der: &CertificateDer<'_>) -> Option<Box<[u8]>> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    Some(certificate.subject().as_raw().into())
}

fn count(subjects: &[Box<[u8]>], subject: &[u8]) -> usize {
    subjects.iter().filter(|other| ***other == *subject).count()
}

#[must_use]
pub fn chain(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().ok()
}

fn anchor(der: &CertificateDer<'_>) -> Result<(Anchor, bool), &'static str> {
    const WRONG: &str = "has a certificate that cannot be read: export it again as PEM (openssl x509)";
    let (_, certificate) = X509Certificate::from_der(der).map_err(|_| WRONG)?;
    // Without this check, whoever has a device's key could issue certificates for others.
    let signs = certificate.key_usage().map_err(|_| WRONG)?.is_none_or(|usage| usage.value.key_cert_sign());
    if !certificate.is_ca() || !signs {
        return Err(
            "has a certificate that may not issue others: give certificates of an authority (CA:TRUE, keyCertSign)",
        );
    }
    let trusted = anchor_from_trusted_cert(der).map_err(|_| WRONG)?.to_owned();
    let validity = certificate.validity();
    let (from_s, until_s) = (validity.not_before.timestamp(), validity.not_after.timestamp());
    let is_root = certificate.subject().as_raw() == certificate.issuer().as_raw();
    Ok((Anchor { trusted, from_s, until_s }, is_root))
}

fn refusal(error: &Error) -> CertificateRefusal {
    match error {
        Error::UnsupportedCertVersion => CertificateRefusal::Version,
        Error::CertExpired { .. } => CertificateRefusal::Expired,
        Error::CertNotValidYet { .. } => CertificateRefusal::NotYet,
        Error::CertRevoked => CertificateRefusal::Revoked,
        Error::InvalidCrlSignatureForPublicKey | Error::IssuerNotCrlSigner => {
            CertificateRefusal::RevocationList
        }
        Error::RequiredEkuNotFoundContext(_) | Error::EmptyEkuExtension | Error::CaUsedAsEndEntity => {
            CertificateRefusal::Purpose
        }
        Error::UnknownIssuer
        | Error::InvalidSignatureForPublicKey
        | Error::EndEntityUsedAsCa
        | Error::NameConstraintViolation
        | Error::PathLenConstraintViolated => CertificateRefusal::UnknownIssuer,
        _ => CertificateRefusal::Malformed,
    }
}
