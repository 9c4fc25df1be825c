//! Certificates that rcgen made, good ones and ones that are wrong in every way.

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CrlDistributionPoint,
    CrlIssuingDistributionPoint, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SanType, SerialNumber, date_time_ymd,
};
use rustls_pki_types::CertificateDer;

use super::*;
use crate::limits::{AUTHORITY_CERTIFICATES_MAX, CLIENT_CERTIFICATES_MAX, SAME_SUBJECT_MAX};
use crate::model::{CertificateUser, ClientCa};

/// 2026-06-01.
const NOW_S: u64 = 1_780_272_000;

struct Ca {
    params: CertificateParams,
    key: KeyPair,
    pem: String,
}

fn ca_params(name: &str) -> CertificateParams {
    let mut params = params(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = date_time_ymd(2026, 1, 1);
    params.not_after = date_time_ymd(2027, 1, 1);
    params
}

fn with_serial(mut params: CertificateParams, serial: u64) -> CertificateParams {
    params.serial_number = Some(serial.into());
    params
}

impl Ca {
    fn root(name: &str) -> Self {
        Self::of(ca_params(name))
    }

    fn of(params: CertificateParams) -> Self {
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { params, key, pem }
    }

    fn intermediate(&self, name: &str) -> Self {
        let (params, key) = (ca_params(name), KeyPair::generate().unwrap());
        let pem = params.signed_by(&key, &self.issuer()).unwrap().pem();
        Self { params, key, pem }
    }

    fn issuer(&self) -> Issuer<'_, &KeyPair> {
        Issuer::from_params(&self.params, &self.key)
    }

    fn issue(&self, params: &CertificateParams) -> CertificateDer<'static> {
        params.signed_by(&KeyPair::generate().unwrap(), &self.issuer()).unwrap().into()
    }

    fn revokes(&self, serial: u64) -> String {
        self.revokes_all(serial..=serial)
    }

    fn revokes_all(&self, serials: impl IntoIterator<Item = u64>) -> String {
        self.list(serials.into_iter().map(SerialNumber::from), None)
    }

    fn list(
        &self,
        serials: impl Iterator<Item = SerialNumber>,
        issuing_distribution_point: Option<CrlIssuingDistributionPoint>,
    ) -> String {
        let revoked = serials.map(|serial_number| RevokedCertParams {
            serial_number,
            revocation_time: date_time_ymd(2026, 2, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2026, 2, 1),
            next_update: date_time_ymd(2026, 3, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer()).unwrap().pem().unwrap()
    }

    fn record(&self) -> ClientCa {
        ClientCa { name: "factory".into(), pem: self.pem.clone(), ..ClientCa::default() }
    }
}

fn verify(record: ClientCa, certificate: &CertificateDer<'_>) -> Result<Box<str>, CertificateRefusal> {
    Authority::new(record).unwrap().verify(std::slice::from_ref(certificate), NOW_S)
}

#[test]
fn a_certificate_of_the_authority_names_its_user() {
    let ca = Ca::root("root");
    assert_eq!(verify(ca.record(), &ca.issue(&params("pump-7"))).as_deref(), Ok("pump-7"));
    let mut for_clients = params("pump-8");
    for_clients.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    for_clients.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    assert_eq!(verify(ca.record(), &ca.issue(&for_clients)).as_deref(), Ok("pump-8"));
}

#[test]
fn a_certificate_of_somebody_else_is_refused() {
    let (ca, other, namesake) = (Ca::root("root"), Ca::root("other"), Ca::root("root"));
    for stranger in [&other, &namesake] {
        assert_eq!(
            verify(ca.record(), &stranger.issue(&params("pump"))),
            Err(CertificateRefusal::UnknownIssuer)
        );
    }
    let own = params("pump").self_signed(&KeyPair::generate().unwrap()).unwrap();
    assert_eq!(verify(ca.record(), own.der()), Err(CertificateRefusal::UnknownIssuer));
    // A certificate that the authority issued to a client is no authority.
    let client = Ca { params: params("pump"), key: KeyPair::generate().unwrap(), pem: String::new() };
    let certificate = client.params.signed_by(&client.key, &ca.issuer()).unwrap();
    let chain = [client.issue(&params("eve")), certificate.der().clone()];
    assert_eq!(
        Authority::new(ca.record()).unwrap().verify(&chain, NOW_S),
        Err(CertificateRefusal::UnknownIssuer)
    );
}

#[test]
fn a_certificate_counts_between_its_dates() {
    let ca = Ca::root("root");
    let dated = |from: i32, until: i32| {
        let mut params = params("pump");
        params.not_before = date_time_ymd(from, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        ca.issue(&params)
    };
    for (from, until, expected) in [
        (2020, 2030, Ok("pump")),
        (2020, 2026, Err(CertificateRefusal::Expired)),
        (2027, 2030, Err(CertificateRefusal::NotYet)),
    ] {
        let user = verify(ca.record(), &dated(from, until));
        assert_eq!(user.as_deref().map_err(|refusal| *refusal), expected, "{from}");
    }
}

#[test]
fn an_authority_counts_between_its_dates() {
    let mut old = ca_params("root");
    old.not_before = date_time_ymd(2020, 1, 1);
    old.not_after = date_time_ymd(2026, 5, 1);
    let old = Ca::of(old);
    assert_eq!(verify(old.record(), &old.issue(&params("pump"))), Err(CertificateRefusal::Expired));
}

#[test]
fn an_intermediate_authority_is_the_tenants_or_shown_by_the_client() {
    let root = Ca::root("root");
    let middle = root.intermediate("middle");
    let client = middle.issue(&params("pump"));
    assert_eq!(verify(root.record(), &client), Err(CertificateRefusal::UnknownIssuer));
    let both = ClientCa { pem: root.pem.clone() + &middle.pem, ..root.record() };
    assert_eq!(verify(both, &client).as_deref(), Ok("pump"));
    let shown = [client.clone(), chain(middle.pem.as_bytes()).unwrap().remove(0)];
    let authority = Authority::new(root.record()).unwrap();
    assert_eq!(authority.verify(&shown, NOW_S).as_deref(), Ok("pump"));
    // The tenant trusts the intermediate one alone.
    assert_eq!(verify(middle.record(), &client).as_deref(), Ok("pump"));
    assert_eq!(verify(middle.record(), &root.issue(&params("pump"))), Err(CertificateRefusal::UnknownIssuer));
}

#[test]
fn a_revoked_certificate_is_refused_also_when_the_list_is_old() {
    let ca = Ca::root("root");
    let serial = |serial: u64| with_serial(params("pump"), serial);
    let record = ClientCa { revoked: Some(ca.revokes(7)), ..ca.record() };
    assert_eq!(verify(record.clone(), &ca.issue(&serial(7))), Err(CertificateRefusal::Revoked));
    assert_eq!(verify(record, &ca.issue(&serial(8))).as_deref(), Ok("pump"));
    // A list of a namesake with another key.
    let record = ClientCa { revoked: Some(Ca::root("root").revokes(7)), ..ca.record() };
    assert_eq!(verify(record, &ca.issue(&serial(8))), Err(CertificateRefusal::RevocationList));
}

/// Checks each certificate several times: webpki decides first, the index of the list afterwards.
#[test]
fn a_list_names_the_certificates_that_it_revokes_whatever_it_covers() {
    let (ca, other) = (Ca::root("root"), Ca::root("other"));
    let of_some = CrlIssuingDistributionPoint {
        distribution_point: CrlDistributionPoint { uris: vec!["http://a.test/crl".into()] },
        scope: None,
    };
    let scoped = ca.list([SerialNumber::from(7)].into_iter(), Some(of_some));
    for revoked in [ca.revokes(7), scoped] {
        let authority = Authority::new(ClientCa { revoked: Some(revoked), ..ca.record() }).unwrap();
        let revokes = |ca: &Ca, serial| {
            let certificate = ca.issue(&with_serial(params("pump"), serial));
            authority.revokes(&CertificateId::of(&certificate).unwrap())
        };
        assert_eq!([revokes(&ca, 7), revokes(&ca, 8), revokes(&other, 7)], [true, false, false]);
    }
}

fn statuses(authority: &Authority, certificates: &[CertificateDer<'_>]) -> Vec<bool> {
    let verify = |certificate| authority.verify(std::slice::from_ref(certificate), NOW_S);
    let refused = |certificate| match verify(certificate) {
        Ok(_) => false,
        Err(CertificateRefusal::Revoked) => true,
        Err(other) => panic!("{other}"),
    };
    let first: Vec<bool> = certificates.iter().map(refused).collect();
    for _ in 0..2 {
        assert_eq!(certificates.iter().map(refused).collect::<Vec<_>>(), first);
    }
    first
}

#[test]
fn an_index_finds_the_same_serial_numbers_as_the_list() {
    let ca = Ca::root("root");
    let serials = [&[1][..], &[2], &[0x7F], &[0x80], &[0xFF, 1], &[1, 0, 0], &[9; 19], &[0x7F; 20]];
    let issue = |serial: &&[u8]| {
        let mut params = params("pump");
        params.serial_number = Some(SerialNumber::from_slice(serial));
        ca.issue(&params)
    };
    let certificates: Vec<_> = serials.iter().map(issue).collect();
    // Each set of the serial numbers is once on the list, in both orders.
    for set in 0..1_u32 << serials.len() {
        let on_list = |number: &usize| set >> number & 1 == 1;
        let mut listed: Vec<_> =
            (0..serials.len()).filter(on_list).map(|n| SerialNumber::from_slice(serials[n])).collect();
        if set % 2 == 1 {
            listed.reverse();
        }
        let record = ClientCa { revoked: Some(ca.list(listed.into_iter(), None)), ..ca.record() };
        let expected: Vec<bool> = (0..serials.len()).map(|number| on_list(&number)).collect();
        assert_eq!(statuses(&Authority::new(record).unwrap(), &certificates), expected, "{set:b}");
    }
}

#[test]
fn the_first_list_of_an_issuer_decides_and_a_list_of_some_certificates_alone_by_its_scope() {
    let ca = Ca::root("root");
    let issue = |serial| ca.issue(&with_serial(params("pump"), serial));
    let certificates = [issue(7), issue(8)];
    let record = ClientCa { revoked: Some(ca.revokes(7) + &ca.revokes(8)), ..ca.record() };
    assert_eq!(statuses(&Authority::new(record).unwrap(), &certificates), [true, false]);
    let of = |scope| {
        let point = CrlDistributionPoint { uris: vec!["http://a.test/crl".into()] };
        let point = CrlIssuingDistributionPoint { distribution_point: point, scope: Some(scope) };
        let list = ca.list([SerialNumber::from(7)].into_iter(), Some(point));
        Authority::new(ClientCa { revoked: Some(list), ..ca.record() }).unwrap()
    };
    assert_eq!(statuses(&of(rcgen::CrlScope::UserCertsOnly), &certificates), [true, false]);
    assert_eq!(statuses(&of(rcgen::CrlScope::CaCertsOnly), &certificates), [false, false]);
}

#[test]
fn a_list_counts_for_the_key_alone_that_signed_it() {
    let (ca, namesake) = (Ca::root("root"), Ca::root("root"));
    let record =
        ClientCa { pem: ca.pem.clone() + &namesake.pem, revoked: Some(ca.revokes(7)), ..ca.record() };
    let authority = Authority::new(record).unwrap();
    let verify = |certificate: CertificateDer<'_>| authority.verify(&[certificate], NOW_S);
    let issue = |ca: &Ca, serial| ca.issue(&with_serial(params("pump"), serial));
    for _ in 0..3 {
        assert_eq!(verify(issue(&ca, 8)).as_deref(), Ok("pump"));
        assert_eq!(verify(issue(&ca, 7)), Err(CertificateRefusal::Revoked));
        assert!(verify(issue(&namesake, 8)).is_err());
    }
}

#[test]
fn an_index_decides_about_certificates_of_an_intermediate_authority_too() {
    let root = Ca::root("root");
    let middle = root.intermediate("middle");
    let issue = |serial| middle.issue(&with_serial(params("pump"), serial));
    let revoked = Some(root.revokes(7) + &middle.revokes(7));
    let record = ClientCa { pem: root.pem.clone() + &middle.pem, revoked, ..root.record() };
    let authority = Authority::new(record).unwrap();
    assert_eq!(statuses(&authority, &[issue(7), issue(8)]), [true, false]);
    assert_eq!(authority.lists_in_use(), 2);
}

#[test]
fn a_long_revocation_list_takes_no_more_memory_than_its_text() {
    let ca = Ca::root("root");
    let record = ClientCa { revoked: Some(ca.revokes_all(1..=5_000)), ..ca.record() };
    let mut authority = None;
    let used = allocation_counter::measure(|| authority = Some(Authority::new(record).unwrap()));
    // The text was allocated before, and is freed.
    assert!(used.bytes_current < 0, "{} bytes more than the text", used.bytes_current);
}

#[test]
fn an_intermediate_authority_can_be_revoked_with_all_that_it_issued() {
    let root = Ca::root("root");
    let middle_params = with_serial(ca_params("middle"), 9);
    let key = KeyPair::generate().unwrap();
    let pem = middle_params.signed_by(&key, &root.issuer()).unwrap().pem();
    let middle = Ca { params: middle_params, key, pem };
    let pem = root.pem.clone() + &middle.pem;
    let record = ClientCa { pem, revoked: Some(root.revokes(9)), ..root.record() };
    assert_eq!(verify(record, &middle.issue(&params("pump"))), Err(CertificateRefusal::Revoked));
}

#[test]
fn a_certificate_for_something_else_is_refused() {
    let ca = Ca::root("root");
    let mut server = params("pump");
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let mut encryption = params("pump");
    encryption.key_usages = vec![KeyUsagePurpose::KeyEncipherment];
    for params in [server, encryption, ca_params("pump")] {
        assert_eq!(verify(ca.record(), &ca.issue(&params)), Err(CertificateRefusal::Purpose));
    }
}

#[test]
fn the_user_stands_where_the_record_says() {
    let ca = Ca::root("root");
    let mut named = params("common");
    named.subject_alt_names = vec![
        SanType::IpAddress([127, 0, 0, 1].into()),
        SanType::Rfc822Name("pump@test".try_into().unwrap()),
        SanType::DnsName("pump.test".try_into().unwrap()),
        SanType::URI("spiffe://test/pump".try_into().unwrap()),
        SanType::DnsName("other.test".try_into().unwrap()),
    ];
    for (user, expected) in [
        (CertificateUser::CommonName, "common"),
        (CertificateUser::SanDns, "pump.test"),
        (CertificateUser::SanUri, "spiffe://test/pump"),
        (CertificateUser::SanEmail, "pump@test"),
    ] {
        let record = ClientCa { user, ..ca.record() };
        assert_eq!(verify(record.clone(), &ca.issue(&named)).as_deref(), Ok(expected));
        let mut unnamed = params("");
        unnamed.distinguished_name = DistinguishedName::new();
        assert_eq!(verify(record, &ca.issue(&unnamed)), Err(CertificateRefusal::NoUser), "{user:?}");
    }
    for name in ["", "a\nb", &"x".repeat(300)] {
        assert_eq!(
            verify(ca.record(), &ca.issue(&params(name))),
            Err(CertificateRefusal::NoUser),
            "{name:.3}"
        );
    }
}

#[test]
fn other_bytes_than_a_certificate_are_refused() {
    let ca = Ca::root("root");
    let good = ca.issue(&params("pump"));
    for wrong in [&b""[..], b"x", &good[..good.len() - 1]] {
        assert_eq!(verify(ca.record(), &CertificateDer::from(wrong)), Err(CertificateRefusal::Malformed));
    }
    assert_eq!(Authority::new(ca.record()).unwrap().verify(&[], NOW_S), Err(CertificateRefusal::Malformed));
}

#[test]
fn a_record_with_something_else_in_it_is_named() {
    let ca = Ca::root("root");
    let field = |record: ClientCa| Authority::new(record).unwrap_err()[0].field.clone();
    let client = params("pump").self_signed(&KeyPair::generate().unwrap()).unwrap().pem();
    let begin = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for pem in [client, ca.pem.clone() + begin, begin.replace("AAAA", "%%%%")] {
        assert_eq!(field(ClientCa { pem, ..ca.record() }), "pem");
    }
    let list = "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n";
    assert_eq!(field(ClientCa { revoked: Some(list.into()), ..ca.record() }), "revoked");
}

#[test]
fn neither_an_authority_nor_a_client_brings_so_many_certificates_that_chains_are_tried_for_minutes() {
    let ca = Ca::root("root");
    let mut record = ca.record();
    for number in 1..AUTHORITY_CERTIFICATES_MAX {
        record.pem += &ca.intermediate(&format!("line-{number}")).pem;
    }
    assert!(Authority::new(record.clone()).unwrap().check_size().is_ok());
    record.pem += &ca.intermediate("one more").pem;
    let wrong = Authority::new(record).unwrap().check_size().unwrap_err();
    assert_eq!((&*wrong[0].field, wrong.len()), ("pem", 1));

    let mut chain = vec![ca.issue(&params("pump-7"))];
    let between = |number: usize| ca.issue(&ca_params(&format!("between-{number}")));
    chain.extend((1..CLIENT_CERTIFICATES_MAX).map(between));
    let authority = Authority::new(ca.record()).unwrap();
    assert_eq!(authority.verify(&chain, NOW_S).as_deref(), Ok("pump-7"));
    chain.push(between(0));
    assert_eq!(authority.verify(&chain, NOW_S), Err(CertificateRefusal::Malformed));
}

#[test]
fn subjects_that_issue_each_other_with_many_keys_are_refused() {
    let (one, two) = (Ca::root("one"), Ca::root("two"));
    let mut record = Ca::root("unrelated").record();
    for _ in 0..SAME_SUBJECT_MAX {
        record.pem += &one.intermediate("two").pem;
        record.pem += &two.intermediate("one").pem;
    }
    // The search ends, although no chain leads to the root.
    let own = Ca::of(ca_params("two")).issue(&params("pump"));
    assert_eq!(verify(record.clone(), &own), Err(CertificateRefusal::UnknownIssuer));
    let authority = Authority::new(record.clone()).unwrap();
    let with_more = [own, one.issue(&ca_params("two"))];
    assert_eq!(authority.verify(&with_more, NOW_S), Err(CertificateRefusal::Malformed));
    assert!(authority.check_size().is_ok());
    record.pem += &one.intermediate("two").pem;
    let authority = Authority::new(record).unwrap();
    assert_eq!(authority.check_size().unwrap_err()[0].field, "pem");
    // A stored record of that size continues without the last one.
    assert_eq!(authority.verify(&with_more[..1], NOW_S), Err(CertificateRefusal::UnknownIssuer));
}
