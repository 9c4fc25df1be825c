//! Authentication of clients by each method, from CONNECT to the answer, and the rules that they
//! get.

use std::collections::HashMap;
use std::sync::Arc;

use millrace_mqtt::QoS;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use super::*;
use crate::jwt::KeySet;
use crate::model::{
    Access, Action, CertificateUse, ClientCa, Credential, Effect, Group, JwtAlgorithm, JwtIssuer, JwtKey,
    Rule, Secret, WebhookAuth,
};
use crate::rules::ClientIdentity;
use crate::secrets::chosen;
use crate::secrets::generated::HashKeys;
use crate::webhook::{WebhookAnswer, WebhookGrant};

/// 2026-06-01.
const NOW_MS: u64 = 1_780_272_000_000;
const TOKEN_SECRET: &str = "a secret of 32 bytes or more than";

struct NoKeys;

impl KeySets for NoKeys {
    fn get(&self, _: &str) -> Option<Arc<KeySet>> {
        None
    }
}

/// A broker, its users, and the answer of its webhook.
struct World {
    broker: BrokerAccess,
    credentials: HashMap<String, Credential>,
    keys: HashKeys,
    webhook_answer: WebhookAnswer,
}

impl World {
    fn new(records: AccessRecords) -> Self {
        let (broker, wrong) = BrokerAccess::new(records).unwrap();
        assert_eq!(wrong, []);
        let keys = HashKeys::new([(1, [1; 32])]).unwrap();
        Self { broker, credentials: HashMap::new(), keys, webhook_answer: WebhookAnswer::Refused }
    }

    fn with(access: Access) -> Self {
        Self::new(AccessRecords { access, ..AccessRecords::default() })
    }

    fn user(mut self, credential: Credential) -> Self {
        self.credentials.insert(credential.user.clone(), credential);
        self
    }

    fn bob(self) -> Self {
        let secret = Some(self.keys.hash(b"right"));
        self.user(Credential { user: "bob".into(), secret, ..Credential::default() })
    }

    fn connect(&self, presented: PresentedCredentials<'_>) -> Result<(ProvenIdentity, Grant), AccessRefusal> {
        let mut entry = ConnectAuthentication::default();
        let mut step = entry.begin(&self.broker, presented, &NoKeys, NOW_MS);
        let mut credential = None;
        loop {
            step = match step {
                AuthenticationStep::Credential(user) => {
                    credential = self.credentials.get(&*user);
                    entry.credential(&self.broker, credential, presented, &self.keys, NOW_MS)
                }
                AuthenticationStep::Hash(hashes) => {
                    let password = presented.password.unwrap_or_default();
                    let is_right = hashes.iter().any(|hash| chosen::verify(hash, password));
                    entry.password_checked(&self.broker, credential, is_right, NOW_MS)
                }
                AuthenticationStep::Webhook(_) => {
                    entry.webhook(&self.broker, presented, self.webhook_answer.clone(), NOW_MS)
                }
                AuthenticationStep::Keys(_) => return Err(AccessRefusal::NoKeys),
                AuthenticationStep::Accept(accepted) => return Ok(*accepted),
                AuthenticationStep::Refuse(refusal) => return Err(refusal),
            }
        }
    }

    fn method(&self, presented: PresentedCredentials<'_>) -> Result<Method, AccessRefusal> {
        self.connect(presented).map(|(identity, _)| identity.method)
    }
}

fn presented<'a>(user: Option<&'a str>, password: Option<&'a str>) -> PresentedCredentials<'a> {
    PresentedCredentials { client_id: "c1", user, password: password.map(str::as_bytes), certificate: None }
}

fn allow(filter: &str) -> Rule {
    Rule::new(Effect::Allow, Action::All, filter)
}

#[test]
fn a_client_authenticates_with_its_password() {
    let world = World::with(Access::default()).bob();
    let phc = chosen::cheap(b"mine");
    let world = world.user(Credential {
        user: "ann".into(),
        secret: Some(Secret::Chosen { phc: phc.into() }),
        ..Credential::default()
    });
    let world = world.user(Credential { user: "off".into(), enabled: false, ..world_credential("off") });
    for (user, password, expected) in [
        (Some("bob"), Some("right"), Ok(Method::Password)),
        (Some("bob"), Some("wrong"), Err(AccessRefusal::Password)),
        (Some("bob"), None, Err(AccessRefusal::Password)),
        (Some("ann"), Some("mine"), Ok(Method::Password)),
        (Some("ann"), Some("right"), Err(AccessRefusal::Password)),
        (Some("off"), Some("right"), Err(AccessRefusal::Password)),
        (Some("eve"), Some("right"), Err(AccessRefusal::Password)),
        (Some(""), Some("right"), Err(AccessRefusal::Anonymous)),
        (None, Some("right"), Err(AccessRefusal::Anonymous)),
        (None, None, Err(AccessRefusal::Anonymous)),
    ] {
        assert_eq!(world.method(presented(user, password)), expected, "{user:?} {password:?}");
    }
}

fn world_credential(user: &str) -> Credential {
    let keys = HashKeys::new([(1, [1; 32])]).unwrap();
    Credential { user: user.into(), secret: Some(keys.hash(b"right")), ..Credential::default() }
}

#[test]
fn a_client_without_credentials_is_anonymous_if_the_broker_allows_it() {
    let world =
        World::with(Access { anonymous: true, passwords: false, scram: false, ..Access::default() }).bob();
    assert_eq!(world.method(presented(None, None)), Ok(Method::Anonymous));
    for presented in [presented(Some("bob"), Some("right")), presented(Some("bob"), None)] {
        assert_eq!(world.method(presented), Err(AccessRefusal::NoMethod));
    }
    assert_eq!(world.method(presented(None, Some("x"))), Err(AccessRefusal::Anonymous));
}

/// A token of [`issuer`] that expires in an hour.
fn token(claims: serde_json::Value) -> String {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let mut claims = claims;
    claims["exp"] = (NOW_MS / 1_000 + 3_600).into();
    let signed = format!(
        "{}.{}",
        URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256"}"#),
        URL_SAFE_NO_PAD.encode(claims.to_string())
    );
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, TOKEN_SECRET.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(ring::hmac::sign(&key, signed.as_bytes())))
}

fn issuer() -> JwtIssuer {
    JwtIssuer {
        name: "issuer".into(),
        algorithms: vec![JwtAlgorithm::Hs256],
        key: JwtKey::Secret { secret: TOKEN_SECRET.into(), base64: false },
        leeway_s: 0,
        ..JwtIssuer::default()
    }
}

#[test]
fn a_token_is_valid_until_it_expires() {
    let access = Access { tokens: true, ..Access::default() };
    let world =
        World::new(AccessRecords { access, issuers: vec![issuer()], ..AccessRecords::default() }).bob();
    let good = token(serde_json::json!({ "sub": "bob" }));
    let (identity, grant) = world.connect(presented(None, Some(&good))).unwrap();
    assert_eq!(
        (identity.method.clone(), identity.user.as_deref()),
        (Method::Token("issuer".into()), Some("bob"))
    );
    assert_eq!(grant.until_ms, Some(NOW_MS + 3_600_000));
    assert_eq!(
        world.broker.review(&identity, None, "c1", NOW_MS + 3_600_000).err(),
        Some(AccessRefusal::Expired)
    );
    assert_eq!(
        world.method(presented(Some("eve"), Some(&good))),
        Err(AccessRefusal::Token(jwt::TokenRefusal::Client))
    );
    let forged = good.clone() + "A";
    assert!(matches!(world.method(presented(None, Some(&forged))), Err(AccessRefusal::Token(_))));
    // The broker still accepts passwords.
    assert_eq!(world.method(presented(Some("bob"), Some("right"))), Ok(Method::Password));
    let off = World::with(Access::default()).bob();
    assert_eq!(off.method(presented(Some("bob"), Some(&good))), Err(AccessRefusal::Password));
}

#[test]
fn a_token_whose_key_is_not_there_waits_for_keys() {
    let key = JwtKey::Jwks { url: "https://issuer.test/keys".into() };
    let keyed = JwtIssuer { key, algorithms: vec![JwtAlgorithm::Es256], ..issuer() };
    let access = Access { tokens: true, ..Access::default() };
    let world = World::new(AccessRecords { access, issuers: vec![keyed], ..AccessRecords::default() });
    let token = token(serde_json::json!({ "sub": "bob" }));
    assert_eq!(world.method(presented(None, Some(&token))), Err(AccessRefusal::NoKeys));
    assert!(AccessRefusal::NoKeys.is_temporary() && !AccessRefusal::Password.is_temporary());
}

/// An authority, and a certificate that it has issued to a user.
fn certificates(user: &str) -> (ClientCa, Vec<u8>) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    let mut client = CertificateParams::default();
    client.distinguished_name.push(DnType::CommonName, user);
    let issuer = Issuer::from_params(&params, &key);
    let der = client.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap().der().to_vec();
    (ClientCa { name: "factory".into(), pem, group: Some("made".into()), ..ClientCa::default() }, der)
}

#[test]
fn a_certificate_is_off_accepted_required_or_additional() {
    let ((authority, ours), (_, theirs)) = (certificates("pump"), certificates("pump"));
    let group = Group { name: "made".into(), ..Group::default() };
    let password = presented(Some("bob"), Some("right"));
    let with = |der| PresentedCredentials { certificate: Some(der), ..presented(None, None) };
    let both = |der| PresentedCredentials { certificate: Some(der), ..password };
    let unknown = || Err(AccessRefusal::Certificate(x509::CertificateRefusal::UnknownIssuer));
    let made = || Ok(Method::Certificate("factory".into()));
    let bob = || Ok(Method::Password);
    for (certificates, expected) in [
        (CertificateUse::Off, [Err(AccessRefusal::Anonymous), bob(), bob(), bob()]),
        (CertificateUse::Accepted, [made(), Err(AccessRefusal::OtherUser), bob(), bob()]),
        (
            CertificateUse::Required,
            [made(), Err(AccessRefusal::OtherUser), unknown(), Err(AccessRefusal::NoCertificate)],
        ),
        (
            CertificateUse::Additional,
            [Err(AccessRefusal::Anonymous), bob(), unknown(), Err(AccessRefusal::NoCertificate)],
        ),
    ] {
        let (groups, authorities) = (vec![group.clone()], vec![authority.clone()]);
        let access = Access { certificates, ..Access::default() };
        let world =
            World::new(AccessRecords { access, groups, authorities, ..AccessRecords::default() }).bob();
        let methods = [with(&ours), both(&ours), both(&theirs), password].map(|one| world.method(one));
        assert_eq!(methods, expected, "{certificates:?}");
    }
}

#[test]
fn scram_does_not_replace_the_certificate_that_the_broker_requires() {
    let ((authority, bobs), (_, theirs)) = (certificates("bob"), certificates("bob"));
    let (other, pumps) = certificates("pump");
    let other = ClientCa { name: "other".into(), ..other };
    let group = Group { name: "made".into(), ..Group::default() };
    let by = |name: &str| Ok(Method::Certificate(name.into()));
    let password = || Ok(Method::Password);
    let (none, unknown) = (
        || Err(AccessRefusal::NoCertificate),
        || Err(AccessRefusal::Certificate(x509::CertificateRefusal::UnknownIssuer)),
    );
    let differs = || Err(AccessRefusal::OtherUser);
    for (certificates, expected) in [
        (CertificateUse::Off, [password(), password(), password(), password()]),
        (CertificateUse::Accepted, [by("factory"), differs(), password(), password()]),
        (CertificateUse::Required, [by("factory"), differs(), unknown(), none()]),
        (CertificateUse::Additional, [password(), password(), unknown(), none()]),
    ] {
        let (groups, authorities) = (vec![group.clone()], vec![authority.clone(), other.clone()]);
        let access = Access { certificates, passwords: false, ..Access::default() };
        let world = World::new(AccessRecords { access, groups, authorities, ..AccessRecords::default() });
        let bob = world_credential("bob");
        let proven = [Some(&*bobs), Some(&*pumps), Some(&*theirs), None].map(|certificate| {
            match ConnectAuthentication::default().proven_by_scram(
                &world.broker,
                &bob,
                PresentedCredentials { certificate, ..PresentedCredentials::default() },
                NOW_MS,
            ) {
                AuthenticationStep::Accept(accepted) => Ok(accepted.0.method),
                AuthenticationStep::Refuse(refusal) => Err(refusal),
                step => panic!("{step:?}"),
            }
        });
        assert_eq!(proven, expected, "{certificates:?}");
    }
    let off = World::with(Access { scram: false, ..Access::default() });
    let step = ConnectAuthentication::default().proven_by_scram(
        &off.broker,
        &world_credential("bob"),
        PresentedCredentials::default(),
        NOW_MS,
    );
    assert!(matches!(step, AuthenticationStep::Refuse(AccessRefusal::NoMethod)), "{step:?}");
}

#[test]
fn the_webhook_decides_about_unknown_clients() {
    let webhook = WebhookAuth { url: "https://who.test".into(), ..WebhookAuth::default() };
    let mut world = World::with(Access { webhook: Some(webhook), ..Access::default() }).bob();
    let (bob, eve) = (presented(Some("bob"), Some("wrong")), presented(Some("eve"), Some("x")));
    assert_eq!(world.method(bob), Err(AccessRefusal::Password));
    assert_eq!(world.method(eve), Err(AccessRefusal::Webhook));
    world.webhook_answer = WebhookAnswer::Failed("down");
    assert_eq!(world.method(eve), Err(AccessRefusal::WebhookFailed("down")));
    world.webhook_answer = WebhookAnswer::Allowed(Box::new(WebhookGrant {
        expires_at_ms: Some(NOW_MS + 5),
        ..WebhookGrant::default()
    }));
    let (identity, grant) = world.connect(eve).unwrap();
    assert_eq!((identity.method, identity.user.as_deref()), (Method::Webhook, Some("eve")));
    assert_eq!(grant.until_ms, Some(NOW_MS + 5));
    assert_eq!(world.connect(presented(None, None)).unwrap().0.user, None);
    world.webhook_answer = WebhookAnswer::Allowed(Box::new(WebhookGrant {
        user: Some("bob".into()),
        ..WebhookGrant::default()
    }));
    assert_eq!(world.connect(eve).unwrap().0.user.as_deref(), Some("bob"));
    let long = "x".repeat(USER_BYTES_MAX + 1);
    assert_eq!(world.method(presented(Some(&long), None)), Err(AccessRefusal::LongUserName));
}

#[test]
fn an_empty_list_of_rules_in_a_token_or_an_answer_allows_nothing() {
    let client = ClientIdentity { user: Some("eve"), id: "c1" };
    for broker in [vec![], vec![allow("b")]] {
        let access = Access { webhook: Some(WebhookAuth::default()), ..Access::default() };
        let access = Access { tokens: true, rules: broker.clone(), ..access };
        let mut issuer = issuer();
        issuer.claims.rules = Some("acl".into());
        let records = AccessRecords { access, issuers: vec![issuer], ..AccessRecords::default() };
        let mut world = World::new(records);
        for rules in [None, Some(vec![]), Some(vec![allow("a")])] {
            let list = rules.as_deref().map(|rules| RuleList::compile(rules).unwrap());
            let answer = WebhookGrant { rules: list, ..WebhookGrant::default() };
            world.webhook_answer = WebhookAnswer::Allowed(Box::new(answer));
            let mut claims = serde_json::json!({ "sub": "eve" });
            if let Some(rules) = &rules {
                claims["acl"] = serde_json::to_value(rules).unwrap();
            }
            for password in [token(claims), "asked".into()] {
                let (_, grant) = world.connect(presented(Some("eve"), Some(&password))).unwrap();
                let may = |topic| grant.permissions.publish(client, topic, false, QoS::AtMostOnce).is_ok();
                let is_free = rules.is_none() && broker.is_empty();
                let own = rules.iter().flatten().count() > 0;
                let expected = (is_free || own, is_free || !broker.is_empty(), is_free);
                assert_eq!((may("a"), may("b"), may("c")), expected, "{broker:?} {rules:?}");
                let granted = grant.permissions.subscribe(client, "#", QoS::AtMostOnce);
                assert_eq!(granted.is_ok(), is_free, "{broker:?} {rules:?}");
            }
        }
    }
}

#[test]
fn rules_are_those_of_credential_group_and_broker_as_they_are_now() {
    let may = |grant: &Grant, topic: &str| {
        let client = ClientIdentity { user: Some("bob"), id: "c1" };
        grant.permissions.publish(client, topic, false, QoS::AtMostOnce).is_ok()
    };
    let group = |rules| Group { name: "g".into(), rules, ..Group::default() };
    let broker = |groups, rules| {
        let access = Access { rules, ..Access::default() };
        BrokerAccess::new(AccessRecords { access, groups, ..AccessRecords::default() }).unwrap().0
    };
    let before = broker(vec![group(vec![allow("group/#")])], vec![allow("broker/#")]);
    let credential =
        Credential { group: Some("g".into()), rules: vec![allow("own/%u")], ..world_credential("bob") };
    let identity =
        ProvenIdentity { since_ms: Some(0), ..ProvenIdentity::new(Method::Password, Some("bob".into())) };
    let grant = before.review(&identity, Some(&credential), "c1", NOW_MS).unwrap();
    for (topic, allowed) in [("own/bob", true), ("group/x", true), ("broker/x", true), ("x", false)] {
        assert_eq!(may(&grant, topic), allowed, "{topic}");
    }
    let after = broker(vec![group(vec![Rule::new(Effect::Deny, Action::All, "broker/#")])], vec![allow("#")]);
    let grant = after.review(&identity, Some(&credential), "c1", NOW_MS).unwrap();
    assert!(may(&grant, "x") && !may(&grant, "broker/x"));

    let review = |broker: &BrokerAccess, credential| broker.review(&identity, credential, "c1", NOW_MS).err();
    assert_eq!(review(&broker(vec![], vec![]), Some(&credential)), Some(AccessRefusal::Group("g".into())));
    let off = Credential { enabled: false, ..credential.clone() };
    assert_eq!(review(&after, Some(&off)), Some(AccessRefusal::Disabled));
    assert_eq!(review(&after, None), Some(AccessRefusal::MethodRemoved));
    let wrong = Credential { rules: vec![allow("a#")], ..credential.clone() };
    assert_eq!(review(&after, Some(&wrong)), Some(AccessRefusal::Rules));
    let access = Access { passwords: false, scram: false, ..Access::default() };
    let closed = BrokerAccess::new(AccessRecords { access, ..AccessRecords::default() }).unwrap().0;
    assert_eq!(review(&closed, Some(&credential)), Some(AccessRefusal::MethodRemoved));
}

#[test]
fn a_record_made_anew_under_the_same_name_admits_no_client_of_the_deleted_one() {
    let (authority, pump) = certificates("pump");
    let access = Access { tokens: true, certificates: CertificateUse::Accepted, ..Access::default() };
    let group = Group { name: "made".into(), ..Group::default() };
    let world = |created_at_ms, leeway_s| {
        let issuers = vec![JwtIssuer { created_at_ms, leeway_s, ..issuer() }];
        let authorities = vec![ClientCa { created_at_ms, ..authority.clone() }];
        let (access, groups) = (access.clone(), vec![group.clone()]);
        World::new(AccessRecords { access, groups, issuers, authorities, ..AccessRecords::default() })
            .user(Credential { created_at_ms, ..world_credential("bob") })
    };
    // Earlier versions stored records without a time.
    for created_at_ms in [0, 7] {
        let (before, changed, anew) = (world(created_at_ms, 0), world(created_at_ms, 5), world(8, 0));
        let (bob, token) =
            (presented(Some("bob"), Some("right")), token(serde_json::json!({ "sub": "bob" })));
        let certified = PresentedCredentials { certificate: Some(&pump), ..presented(None, None) };
        for presented in [bob, presented(None, Some(&token)), certified] {
            let (identity, _) = before.connect(presented).unwrap();
            let review = |world: &World| {
                let credential = identity.user.as_deref().and_then(|user| world.credentials.get(user));
                world.broker.review(&identity, credential, "c1", NOW_MS).err()
            };
            assert_eq!(review(&changed), None, "{identity:?}");
            assert_eq!(review(&anew), Some(AccessRefusal::MethodRemoved), "{identity:?}");
        }
    }
}

#[test]
fn a_connected_client_without_a_certificate_leaves_once_the_broker_demands_one() {
    let (authority, pump) = certificates("pump");
    let world = |certificates| {
        let access = Access { certificates, ..Access::default() };
        let (groups, authorities) =
            (vec![Group { name: "made".into(), ..Group::default() }], vec![authority.clone()]);
        World::new(AccessRecords { access, groups, authorities, ..AccessRecords::default() })
            .user(world_credential("bob"))
    };
    let bob = presented(Some("bob"), Some("right"));
    for (certificate, admitted) in [(None, false), (Some(&*pump), true)] {
        let presented = PresentedCredentials { certificate, ..bob };
        let before = world(if admitted { CertificateUse::Additional } else { CertificateUse::Off });
        let (identity, _) = before.connect(presented).unwrap();
        let after = world(CertificateUse::Additional);
        let review =
            |world: &World| world.broker.review(&identity, world.credentials.get("bob"), "c1", NOW_MS).err();
        assert_eq!(review(&after), (!admitted).then_some(AccessRefusal::NoCertificate));
        let mut without = world(CertificateUse::Additional);
        without.broker.authorities.clear();
        let refusal = if admitted { AccessRefusal::MethodRemoved } else { AccessRefusal::NoCertificate };
        assert_eq!(review(&without), Some(refusal), "its authority was deleted");
        assert_eq!(review(&world(CertificateUse::Off)), None);
    }
}

#[test]
fn the_clients_of_one_credential_have_its_rules_in_memory_once() {
    let rules = vec![allow(&"a".repeat(4_000)); 4];
    let credential = Credential { rules, ..world_credential("bob") };
    let world = World::with(Access::default());
    let identity =
        ProvenIdentity { since_ms: Some(0), ..ProvenIdentity::new(Method::Password, Some("bob".into())) };
    let mut grants = Vec::with_capacity(100);
    let used = allocation_counter::measure(|| {
        for _ in 0..100 {
            grants.push(world.broker.review(&identity, Some(&credential), "c1", NOW_MS).unwrap());
        }
    });
    assert!(used.bytes_current < 32_000, "{} bytes", used.bytes_current);
}

#[test]
fn stored_rules_of_an_earlier_version_are_in_force_whatever_their_length() {
    let rules = vec![allow(&"a".repeat(60_000)); 20];
    let credential = Credential { rules: rules.clone(), ..world_credential("bob") };
    assert!(credential.validate().is_err());
    let groups = vec![Group { name: "g".into(), rules: rules.clone(), ..Group::default() }];
    let access = Access { rules, ..Access::default() };
    let records = AccessRecords { access, groups, ..AccessRecords::default() };
    assert_eq!(
        World::new(records).user(credential).method(presented(Some("bob"), None)),
        Err(AccessRefusal::Password)
    );
}

#[test]
fn an_invalid_record_authenticates_nobody_and_affects_no_other_record() {
    let group = |name: &str, filter: &str| Group {
        name: name.into(),
        rules: vec![allow(filter)],
        ..Group::default()
    };
    let bad = JwtIssuer { key: JwtKey::Pem { pem: "x".into() }, ..issuer() };
    let records = AccessRecords {
        groups: vec![group("good", "a"), group("bad", "a#")],
        issuers: vec![bad, issuer(), JwtIssuer { enabled: false, ..issuer() }],
        authorities: vec![ClientCa { name: "ca".into(), ..ClientCa::default() }],
        ..AccessRecords::default()
    };
    let (broker, wrong) = BrokerAccess::new(records).unwrap();
    let fields: Vec<_> = wrong.iter().map(|invalid| invalid.field.as_str()).collect();
    let expected = [
        "groups[\"bad\"].rules[0].filter",
        "issuers[\"issuer\"].algorithms[0]",
        "issuers[\"issuer\"].key.pem",
        "authorities[\"ca\"].pem",
    ];
    assert_eq!(fields, expected);
    assert_eq!(broker.issuers().len(), 1);
    let access = Access { rules: vec![allow("a#")], ..Access::default() };
    assert!(BrokerAccess::new(AccessRecords { access, ..AccessRecords::default() }).is_err());
}

#[test]
fn a_credential_bound_to_a_client_id_is_refused_under_another() {
    let bound = |client_id: &str| Credential { client_id: Some(client_id.into()), ..world_credential("bob") };
    for (client_id, expected) in [("c1", Ok(Method::Password)), ("c2", Err(AccessRefusal::OtherClient))] {
        let world = World::with(Access::default()).user(bound(client_id));
        assert_eq!(world.method(presented(Some("bob"), Some("right"))), expected);
        let presented = PresentedCredentials { client_id: "c1", ..PresentedCredentials::default() };
        let scram = World::with(Access { scram: true, ..Access::default() });
        let step = ConnectAuthentication::default().proven_by_scram(
            &scram.broker,
            &bound(client_id),
            presented,
            NOW_MS,
        );
        assert_eq!(matches!(step, AuthenticationStep::Accept(_)), expected.is_ok(), "{step:?}");
    }
    let world = World::with(Access::default()).user(bound("c1"));
    let (identity, _) = world.connect(presented(Some("bob"), Some("right"))).unwrap();
    let review = |now| world.broker.review(&identity, Some(&bound(now)), "c1", NOW_MS).err();
    assert_eq!((review("c1"), review("c2")), (None, Some(AccessRefusal::OtherClient)), "a connected client");
}
