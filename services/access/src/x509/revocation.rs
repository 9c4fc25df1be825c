//! The revocation lists of an authority, searched without reading them whole at each CONNECT.
//!
//! webpki verifies a list's signature and compares all its entries each time. So webpki checks only the first chain that meets a
//! list; afterwards the list remembers the key that signed it, and finds serial numbers by binary search.

use std::sync::OnceLock;

use rustls_pki_types::CertificateRevocationListDer;
use rustls_pki_types::pem::PemObject as _;
use webpki::{BorrowedCertRevocationList, CertRevocationList, Error, VerifiedPath};

use super::CertificateId;

/// Longest serial number of a list with an index: up to this length, the byte before a serial number is its length (X.690 section
/// 8.1.3.4).
const SERIAL_BYTES_MAX: usize = 127;

#[derive(Debug)]
pub(super) struct RevocationList {
    /// As it was signed: a parsed list takes seven times as much memory, and any tenant may have long ones.
    der: CertificateRevocationListDer<'static>,
    issuer: Box<[u8]>,
    /// Offsets of the serial numbers in `der`, in their order.
    by_serial: Option<Box<[u32]>>,
    /// The list covers all certificates of its issuer. If it covers only some, webpki decides which.
    is_whole: bool,
    /// The public key that has verified the signature.
    signer: OnceLock<Box<[u8]>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RevocationStatus {
    NotRevoked,
    Revoked,
    /// webpki must decide.
    Unknown,
}

/// Reads the lists of a PEM text. `None`: a list or an entry is damaged.
pub(super) fn lists(pem: &str) -> Option<Vec<RevocationList>> {
    CertificateRevocationListDer::pem_slice_iter(pem.as_bytes())
        .map(|list| RevocationList::new(list.ok()?))
        .collect()
}

impl RevocationList {
    fn new(der: CertificateRevocationListDer<'static>) -> Option<Self> {
        let borrowed = BorrowedCertRevocationList::from_der(&der).ok()?;
        let serials = borrowed.into_iter().map(|entry| entry.map(|entry| entry.serial_number));
        let mut serials = serials.collect::<Result<Vec<_>, _>>().ok()?;
        serials.sort_unstable();
        let offset = |serial: &&[u8]| {
            let offset = serial.as_ptr().addr().checked_sub(der.as_ptr().addr())?;
            u32::try_from(offset).ok().filter(|_| serial.len() <= SERIAL_BYTES_MAX)
        };
        let by_serial = serials.iter().map(offset).collect::<Option<Box<[u32]>>>();
        let list = CertRevocationList::from(borrowed);
        let is_whole = list.issuing_distribution_point().is_none();
        let issuer = list.issuer().into();
        Some(Self { der, issuer, by_serial, is_whole, signer: OnceLock::new() })
    }

    pub(super) fn parsed(&self) -> Result<CertRevocationList<'_>, Error> {
        BorrowedCertRevocationList::from_der(&self.der).map(Into::into)
    }

    #[cfg(test)]
    pub(super) fn is_in_use(&self) -> bool {
        self.index().is_some() && self.signer.get().is_some()
    }

    fn serial_at(&self, offset: u32) -> &[u8] {
        let offset = offset as usize;
        let length =
            offset.checked_sub(1).and_then(|before| self.der.get(before)).copied().unwrap_or_default();
        self.der.get(offset..offset + usize::from(length)).unwrap_or_default()
    }

    fn find(&self, by_serial: &[u32], serial: &[u8]) -> bool {
        by_serial.binary_search_by(|offset| self.serial_at(*offset).cmp(serial)).is_ok()
    }

    /// Whether the list names the certificate, without regard to the key that signed the list.
    pub(super) fn names(&self, certificate: &CertificateId) -> bool {
        let names = |by_serial: &[u32]| self.find(by_serial, &certificate.serial);
        self.issuer == certificate.issuer && self.by_serial.as_deref().is_some_and(names)
    }

    fn index(&self) -> Option<&[u32]> {
        self.by_serial.as_deref().filter(|_| self.is_whole)
    }

    fn status(&self, serial: &[u8], issuer_key: &[u8]) -> RevocationStatus {
        let Some(by_serial) = self.index() else { return RevocationStatus::Unknown };
        if self.signer.get().is_none_or(|signer| **signer != *issuer_key) {
            return RevocationStatus::Unknown;
        }
        if self.find(by_serial, serial) { RevocationStatus::Revoked } else { RevocationStatus::NotRevoked }
    }
}

/// The status of a chain whose signatures are verified.
pub(super) fn status(lists: &[RevocationList], path: &VerifiedPath<'_>) -> RevocationStatus {
    let mut worst = RevocationStatus::NotRevoked;
    each_certificate(lists, path, |list, serial, issuer_key| {
        worst = match (worst, list.status(serial, issuer_key)) {
            (RevocationStatus::Unknown, _) | (_, RevocationStatus::Unknown) => RevocationStatus::Unknown,
            (RevocationStatus::Revoked, _) | (_, RevocationStatus::Revoked) => RevocationStatus::Revoked,
            _ => RevocationStatus::NotRevoked,
        };
    });
    worst
}

/// Call it after webpki has checked the chain with these lists: it has then verified the first list of each issuer.
pub(super) fn remember_signers(lists: &[RevocationList], path: &VerifiedPath<'_>) {
    each_certificate(lists, path, |list, _, issuer_key| {
        let _ = list.signer.set(issuer_key.into());
    });
}

/// Calls `act` for each certificate of the chain with the list that webpki would use, the serial number and the issuer's key.
fn each_certificate(
    lists: &[RevocationList],
    path: &VerifiedPath<'_>,
    mut act: impl FnMut(&RevocationList, &[u8], &[u8]),
) {
    if lists.is_empty() {
        return;
    }
    let leaf = path.end_entity();
    let mut certificates = vec![(leaf.serial(), leaf.issuer())];
    let mut issuer_keys = Vec::new();
    for issuer in path.intermediate_certificates() {
        issuer_keys.push(issuer.subject_public_key_info());
        certificates.push((issuer.serial(), issuer.issuer()));
    }
    let issuer_keys = issuer_keys.iter().map(|key| content(key));
    let issuer_keys = issuer_keys.chain([path.anchor().subject_public_key_info.as_ref()]);
    for ((serial, issuer), issuer_key) in certificates.into_iter().zip(issuer_keys) {
        if let Some(list) = lists.iter().find(|list| *list.issuer == *issuer) {
            act(list, serial, issuer_key);
        }
    }
}

/// A DER value without tag and length: trust anchors hold their keys like this.
fn content(der: &[u8]) -> &[u8] {
    let header = match der.get(1) {
        Some(0x81) => 3,
        Some(0x82) => 4,
        _ => 2,
    };
    der.get(header..).unwrap_or_default()
}
