use proptest::prelude::*;

use super::software::{
    Assertion, BACKED_UP, BACKUP_ELIGIBLE, HAS_EXTENSIONS, PRESENT, SoftwareAuthenticator, VERIFIED,
    attestation, base64, bytes, int, item, map, text,
};
use super::*;
use crate::limits::{ATTESTATION_BYTES_MAX, CREDENTIAL_ID_BYTES_MAX};

const ORIGIN: &str = "https://console.example.org";

fn rp() -> RelyingParty {
    RelyingParty::of(ORIGIN).unwrap()
}

fn authenticator() -> SoftwareAuthenticator {
    SoftwareAuthenticator::new("console.example.org", ORIGIN)
}

fn challenge() -> String {
    base64(b"a challenge")
}

fn registered(authenticator: &SoftwareAuthenticator) -> Result<Registration, PasskeyRefusal> {
    let (client_data, attestation) = authenticator.register(&challenge());
    let client_data = ClientData::read(&client_data, Ceremony::Registration, &rp())?;
    assert_eq!(client_data.challenge, b"a challenge");
    Registration::read(&attestation, &rp())
}

fn verified(answer: &Assertion, key: &PublicKey) -> Result<PasskeyAuthentication, PasskeyRefusal> {
    let client_data = ClientData::read(&answer.client_data, Ceremony::Authentication, &rp())?;
    PasskeyAuthentication::verify(&client_data, &answer.authenticator_data, &answer.signature, key, &rp())
}

fn signed_in(
    authenticator: &SoftwareAuthenticator,
    key: &PublicKey,
) -> Result<PasskeyAuthentication, PasskeyRefusal> {
    verified(&authenticator.sign_in(&challenge()), key)
}

#[test]
fn a_passkey_of_each_algorithm_registers_and_signs_in() {
    for key in [authenticator().key, SoftwareAuthenticator::ed25519(), SoftwareAuthenticator::rsa()] {
        let mut authenticator = SoftwareAuthenticator::with_key(key, "console.example.org", ORIGIN);
        authenticator.counter = 7;
        let registered = registered(&authenticator).unwrap();
        assert_eq!((&registered.credential_id, registered.counter), (&authenticator.id, 7));
        authenticator.counter = 8;
        let stored = serde_json::to_string(&registered.key).unwrap();
        let key: PublicKey = serde_json::from_str(&stored).unwrap();
        let used = signed_in(&authenticator, &key).unwrap();
        assert!(used.counter == 8 && used.is_user_verified && !used.is_backup_eligible, "{used:?}");
        let other = self::registered(&self::authenticator()).unwrap().key;
        assert_eq!(signed_in(&authenticator, &other).unwrap_err(), PasskeyRefusal::Signature);
    }
}

/// A change of the authenticator, and the refusal that it causes.
type Fault = (fn(&mut SoftwareAuthenticator), PasskeyRefusal);

const FAULTS: [Fault; 11] = [
    (|it| it.origin = "https://evil.example.org".into(), PasskeyRefusal::Origin),
    (|it| it.origin = format!("{ORIGIN}:8443"), PasskeyRefusal::Origin),
    (|it| it.origin = "http://console.example.org".into(), PasskeyRefusal::Origin),
    (|it| it.rp_id = "example.org".into(), PasskeyRefusal::RpId),
    (|it| it.kind = Some("payment.get"), PasskeyRefusal::Type),
    (|it| it.more = r#","crossOrigin":true"#.into(), PasskeyRefusal::CrossOrigin),
    (|it| it.more = r#","topOrigin":"https://console.example.org""#.into(), PasskeyRefusal::CrossOrigin),
    (|it| it.more = r#","origin":"https://console.example.org""#.into(), PasskeyRefusal::ClientData),
    (|it| it.flags = VERIFIED, PasskeyRefusal::UserAbsent),
    (|it| it.flags = PRESENT | BACKED_UP, PasskeyRefusal::BackupState),
    (|it| it.trailing = vec![0], PasskeyRefusal::AuthenticatorData),
];

#[test]
fn each_fault_is_refused_at_registration_and_sign_in() {
    let right = authenticator();
    let key = registered(&right).unwrap().key;
    for (number, (plant, refusal)) in FAULTS.iter().enumerate() {
        let mut faulty = SoftwareAuthenticator::with_key(right.key.clone(), &rp().id, ORIGIN);
        plant(&mut faulty);
        assert_eq!(registered(&faulty).unwrap_err(), *refusal, "registration {number}");
        assert_eq!(signed_in(&faulty, &key).unwrap_err(), *refusal, "sign-in {number}");
    }
    // Each answer is for its own ceremony.
    let (client_data, _) = right.register(&challenge());
    let swapped = ClientData::read(&client_data, Ceremony::Authentication, &rp());
    assert_eq!(swapped.unwrap_err(), PasskeyRefusal::Type);
}

#[test]
fn every_changed_bit_of_a_signed_answer_is_refused() {
    let authenticator = authenticator();
    let key = registered(&authenticator).unwrap().key;
    let answer = authenticator.sign_in(&challenge());
    verified(&answer, &key).unwrap();
    let parts: [fn(&mut Assertion) -> &mut Vec<u8>; 3] =
        [|it| &mut it.client_data, |it| &mut it.authenticator_data, |it| &mut it.signature];
    for (number, part) in parts.iter().enumerate() {
        for bit in 0..part(&mut answer.clone()).len() * 8 {
            let mut changed = answer.clone();
            part(&mut changed)[bit / 8] ^= 1 << (bit % 8);
            assert!(verified(&changed, &key).is_err(), "part {number}, bit {bit}");
        }
        let mut shorter = answer.clone();
        part(&mut shorter).pop();
        assert!(verified(&shorter, &key).is_err(), "part {number}");
    }
}

#[test]
fn flags_are_those_of_the_authenticator() {
    let mut authenticator = authenticator();
    authenticator.flags = PRESENT | BACKUP_ELIGIBLE | BACKED_UP;
    let registered = registered(&authenticator).unwrap();
    assert!(registered.is_backup_eligible);
    let used = signed_in(&authenticator, &registered.key).unwrap();
    assert!(used.is_backup_eligible && !used.is_user_verified);
}

#[test]
fn outputs_of_extensions_are_skipped() {
    let mut authenticator = authenticator();
    authenticator.flags |= HAS_EXTENSIONS;
    authenticator.trailing = map(&[(text("credProps"), map(&[(text("rk"), vec![0xf5])]))]);
    let key = registered(&authenticator).unwrap().key;
    signed_in(&authenticator, &key).unwrap();
    authenticator.trailing = Vec::new();
    assert_eq!(registered(&authenticator).unwrap_err(), PasskeyRefusal::AuthenticatorData);
    assert_eq!(signed_in(&authenticator, &key).unwrap_err(), PasskeyRefusal::AuthenticatorData);
}

#[test]
fn an_attestation_that_was_not_asked_for_is_ignored() {
    let authenticator = authenticator();
    let statement = map(&[(text("alg"), int(-7)), (text("sig"), bytes(b"anything"))]);
    let packed = map(&[
        (text("fmt"), text("packed")),
        (text("attStmt"), statement),
        (text("authData"), bytes(&authenticator.registered_data())),
    ]);
    assert_eq!(Registration::read(&packed, &rp()).unwrap().credential_id, authenticator.id);
}

fn refused(attestation: &[u8]) -> PasskeyRefusal {
    Registration::read(attestation, &rp()).unwrap_err()
}

#[test]
fn garbage_deep_nesting_and_huge_lengths_are_refused() {
    let data = authenticator().registered_data();
    let of = |pairs: &[(&str, Vec<u8>)]| {
        map(&pairs.iter().map(|(key, value)| (text(key), value.clone())).collect::<Vec<_>>())
    };
    let right =
        |statement: Vec<u8>| of(&[("fmt", text("none")), ("attStmt", statement), ("authData", bytes(&data))]);
    assert!(Registration::read(&right(map(&[])), &rp()).is_ok());
    let nested = |kind: u8, depth: usize| [item(kind, 1).repeat(depth), vec![0]].concat();
    for wrong in [
        Vec::new(),
        vec![0xff],
        b"no CBOR at all".to_vec(),
        item(5, u64::MAX),
        item(4, u64::MAX),
        [item(2, u64::MAX), vec![0; 100]].concat(),
        [item(5, 1), text("fmt"), item(3, u64::MAX - 1)].concat(),
        right(nested(4, 20_000)),
        right(nested(5, 20_000)),
        right(nested(6, 20_000)),
        // Lists of lists, each with a length that would take all memory.
        right(item(4, u64::MAX >> 8).repeat(200)),
        of(&[("fmt", text("none")), ("attStmt", map(&[]))]),
        of(&[("fmt", text("none")), ("attStmt", map(&[])), ("authData", text("text"))]),
        of(&[
            ("fmt", text("none")),
            ("fmt", text("none")),
            ("attStmt", map(&[])),
            ("authData", bytes(&data)),
        ]),
        [right(map(&[])), vec![0]].concat(),
    ] {
        assert_eq!(refused(&wrong), PasskeyRefusal::Attestation, "{:02x?}", &wrong[..wrong.len().min(40)]);
    }
    for length in 0..data.len() {
        assert_ne!(
            Registration::read(&attestation(&data[..length]), &rp()).map(drop),
            Ok(()),
            "{length} bytes"
        );
    }
}

#[test]
fn a_credential_id_has_1_to_1023_bytes() {
    let mut authenticator = authenticator();
    for (length, is_read) in [
        (0, false),
        (1, true),
        (CREDENTIAL_ID_BYTES_MAX, true),
        (CREDENTIAL_ID_BYTES_MAX + 1, false),
        (65_535, false),
    ] {
        authenticator.id = vec![7; length];
        assert_eq!(registered(&authenticator).is_ok(), is_read, "{length}");
    }
}

#[test]
fn keys_of_other_algorithms_curves_and_sizes_are_refused() {
    let right = [
        (int(1), int(2)),
        (int(3), int(-7)),
        (int(-1), int(1)),
        (int(-2), bytes(&[1; 32])),
        (int(-3), bytes(&[2; 32])),
    ];
    assert!(PublicKey::read(&map(&right)).is_some());
    for (at, wrong) in [
        (0, int(1)),
        (1, int(-8)),
        (1, int(-35)),
        (1, text("ES256")),
        (2, int(2)),
        (3, bytes(&[1; 31])),
        (3, bytes(&[1; 33])),
        (4, vec![0xf5]),
    ] {
        let mut key = right.clone();
        key[at].1 = wrong;
        assert!(PublicKey::read(&map(&key)).is_none(), "{at}");
        key[at] = right[(at + 1) % 5].clone();
        assert!(PublicKey::read(&map(&key)).is_none(), "{at} is missing, and its neighbour is there twice");
    }
    for (modulus, exponent) in [(255, 3), (513, 3), (256, 0), (256, 5)] {
        let rsa = map(&[
            (int(1), int(3)),
            (int(3), int(-257)),
            (int(-1), bytes(&vec![0xff; modulus])),
            (int(-2), bytes(&vec![1; exponent])),
        ]);
        assert!(PublicKey::read(&rsa).is_none(), "{modulus} {exponent}");
    }
}

#[test]
fn a_point_that_is_not_on_the_curve_verifies_nothing() {
    let key = map(&[
        (int(1), int(2)),
        (int(3), int(-7)),
        (int(-1), int(1)),
        (int(-2), bytes(&[0xff; 32])),
        (int(-3), bytes(&[0xff; 32])),
    ]);
    let (key, _) = PublicKey::read(&key).unwrap();
    assert_eq!(signed_in(&authenticator(), &key).unwrap_err(), PasskeyRefusal::Signature);
}

#[test]
fn a_relying_party_is_the_host_of_a_url_on_which_browsers_offer_passkeys() {
    for (url, expected) in [
        ("https://Console.Example.org", Some(("console.example.org", "https://console.example.org"))),
        ("https://a.example:443", Some(("a.example", "https://a.example"))),
        ("https://a.example:8443", Some(("a.example", "https://a.example:8443"))),
        ("http://localhost:8080", Some(("localhost", "http://localhost:8080"))),
        ("http://127.0.0.1:8080", Some(("localhost", "http://localhost:8080"))),
        ("http://[::1]:8080", Some(("localhost", "http://localhost:8080"))),
        ("http://localhost:80", Some(("localhost", "http://localhost"))),
        ("http://a.example", None),
        ("https://192.0.2.7", None),
        ("http://192.0.2.7:8080", None),
        ("https://[2001:db8::1]", None),
        ("https://a.example@evil.example", None),
        ("https://bücher.example", None),
        ("https://a..example", None),
        ("localhost:8080", None),
        ("", None),
    ] {
        let found = RelyingParty::of(url);
        let found = found.as_ref().map(|rp| (rp.id.as_str(), rp.origin.as_str()));
        assert_eq!(found, expected, "{url}");
    }
}

/// CBOR of any shape, with lengths that are not always true.
fn cbor() -> impl Strategy<Value = Vec<u8>> {
    let leaf = prop_oneof![
        (0_u8..8, any::<u64>()).prop_map(|(kind, number)| item(kind, number)),
        any::<i64>().prop_map(|number| int(number.max(i64::MIN + 1))),
        prop::collection::vec(any::<u8>(), 0..80).prop_map(|some| bytes(&some)),
        "[a-zA-Z]{0,9}".prop_map(|some| text(&some)),
        any::<u8>().prop_map(|byte| vec![byte]),
    ];
    leaf.prop_recursive(6, 64, 6, |inner| {
        let key = prop_oneof![
            prop::sample::select(vec!["fmt", "attStmt", "authData"]).prop_map(text),
            (-4_i64..4).prop_map(int),
            inner.clone(),
        ];
        prop_oneof![
            prop::collection::vec((key, inner.clone()), 0..6).prop_map(|pairs| map(&pairs)),
            prop::collection::vec(inner, 0..6)
                .prop_map(|all| [item(4, all.len() as u64), all.concat()].concat()),
        ]
    })
}

proptest! {
    #[test]
    fn nothing_that_is_sent_makes_the_parsers_panic(
        some in prop::collection::vec(any::<u8>(), 0..1_500),
        shaped in cbor(),
        flags in any::<u8>(),
    ) {
        let rp = rp();
        let hash = sha256(rp.id.as_bytes());
        let credential = [&[0; 16][..], &[0, 2, 7, 7], &shaped].concat();
        for tail in [&some[..], &shaped, &credential] {
            let data = [&hash[..], &[flags], &[0; 4], tail].concat();
            let _ = Registration::read(&attestation(&data), &rp);
            let _ = AuthenticatorData::read_head(&data).map(|data| data.counter);
        }
        for whole in [&some, &shaped] {
            prop_assert!(whole.len() <= ATTESTATION_BYTES_MAX);
            let _ = Registration::read(whole, &rp);
            let _ = PublicKey::read(whole);
            let _ = ClientData::read(whole, Ceremony::Registration, &rp);
        }
    }

    #[test]
    fn a_right_answer_with_changed_bytes_never_makes_the_parsers_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let authenticator = SoftwareAuthenticator::with_key(SoftwareAuthenticator::ed25519(), "console.example.org", ORIGIN);
        let mut sent = attestation(&authenticator.registered_data());
        for (at, byte) in changes {
            let at = at.index(sent.len());
            sent[at] = byte;
        }
        let _ = Registration::read(&sent, &rp());
        sent.truncate(cut.index(sent.len()));
        prop_assert!(Registration::read(&sent, &rp()).is_err());
    }
}
