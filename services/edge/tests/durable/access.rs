//! Brokers whose access is in the store: which clients the server authenticates, what their rules allow, and what a change of the
//! records does to connected clients.

use std::net::{SocketAddr, TcpStream};

use millrace_access::connect_token::ConnectTokenClaims;
use millrace_access::model::{
    Access, Action, BrokerLimits, CertificateUse, ClientCa, Credential, Effect, Group, JwtAlgorithm,
    JwtIssuer, JwtKey, Limits, Rule, Secret,
};
use millrace_access::secrets::chosen;
use millrace_access::secrets::generated::HashKeys;
use millrace_layers::accounts::{self, ACCESS, keys};
use millrace_layers::catalog::Details;
use millrace_layers::incidents::StoredIncidentKind;
use millrace_layers::{LayerError, Store, catalog};
use millrace_mqtt::{Connect, Packet, Properties, QoS, ReasonCode, SubscribeOptions, Version};
use millrace_storage::{Database, Read, Transaction, block_on};

use crate::common::{Client, Server, connect, publish_qos};
use crate::limits::incidents_of;
use crate::steps::{is_present, lasting};
use crate::tools::{eventually, metric};

pub(crate) const KEY: [u8; 32] = [7; 32];
const TOKEN_SECRET: &str = "a secret of 32 bytes or more than";

/// A store whose broker `default` has this access record, and the broker's id.
pub(crate) fn with_access(access: &Access) -> (Database, u64) {
    let database = Database::memory();
    let store = Store::new(database.clone());
    let id = block_on(store.ensure_broker(catalog::DEFAULT)).unwrap().id;
    let written = store.run(async |tx| {
        keys::ensure(&tx, KEY).await?;
        accounts::access(id).put(&tx, ACCESS, access).await
    });
    block_on(written).unwrap();
    (database, id)
}

/// Changes records of a broker, as the control plane does.
pub(crate) fn change(
    database: &Database,
    id: u64,
    body: &impl AsyncFn(&Transaction) -> millrace_layers::LayerResult<u64>,
) {
    let store = Store::new(database.clone());
    let changed = store.run(async |tx| {
        body(&tx).await?;
        accounts::touch(&tx, id)
    });
    block_on(changed).unwrap();
}

pub(crate) fn put(database: &Database, id: u64, credential: &Credential) {
    change(database, id, &async |tx: &Transaction| {
        accounts::credentials(id).put(tx, credential.user.as_bytes(), credential).await
    });
}

pub(crate) fn bob(rules: Vec<Rule>) -> Credential {
    let secret = HashKeys::new([(1, KEY)]).unwrap().hash(b"right");
    Credential { user: "bob".into(), secret: Some(secret), rules, ..Credential::default() }
}

pub(crate) fn allow(action: Action, filter: &str) -> Rule {
    Rule::new(Effect::Allow, action, filter)
}

pub(crate) fn connect_as<'a>(user: &'a str, password: &'a str) -> Connect<'a> {
    Connect { user_name: Some(user), password: Some(password.as_bytes()), ..connect(Version::V5, "c1") }
}

pub(crate) fn refused(server: &Server, connect: Connect<'_>) -> u8 {
    Client::refused(server, connect).reason.0
}

/// The reason code of the CONNACK, 0 included.
pub(crate) fn connack(server: &Server, connect: Connect<'_>) -> u8 {
    let mut client = Client::raw(server);
    client.send(&Packet::Connect(connect));
    client.recv_connack().reason.0
}

/// Publishes with QoS 1 and returns the reason code of the PUBACK.
pub(crate) fn puback(client: &mut Client, topic: &'static str) -> u8 {
    client.publish(publish_qos(QoS::AtLeastOnce, 1, topic, b"x")).0
}

#[test]
fn a_credential_authenticates_and_the_rules_of_client_and_group_both_count() {
    let (database, id) = with_access(&Access::default());
    let down = Rule { qos_max: 0, ..allow(Action::Subscribe, "down/%c/#") };
    put(&database, id, &Credential { group: Some("g".into()), ..bob(vec![allow(Action::Publish, "up/%c")]) });
    change(&database, id, &async |tx: &Transaction| {
        let group = Group { name: "g".into(), rules: vec![down.clone()], ..Group::default() };
        accounts::groups(id).put(tx, b"g", &group).await
    });
    let server = Server::on(&database, |_| {});
    for (wrong, reason, code) in [
        (connect_as("bob", "wrong"), 0x86, 4),
        (connect_as("eve", "right"), 0x86, 4),
        // Without a user name: not authorized.
        (connect(Version::V5, "c1"), 0x87, 5),
    ] {
        assert_eq!(refused(&server, wrong.clone()), reason);
        for version in [Version::V31, Version::V311] {
            assert_eq!(refused(&server, Connect { version, ..wrong.clone() }), code);
        }
    }
    let mut client = Client::open(&server, connect_as("bob", "right"));
    assert_eq!((puback(&mut client, "up/c1"), puback(&mut client, "up/c2")), (0x10, 0x87));
    let options = SubscribeOptions { qos: QoS::AtLeastOnce, ..SubscribeOptions::default() };
    let granted = client.subscribe_all(&[("down/c1/x", options), ("down/#", options)], Properties::EMPTY);
    assert_eq!(granted.reasons, [0x00, 0x87]);
}

#[test]
fn a_broker_named_in_the_user_name_is_no_part_of_the_users_name() {
    let (database, id) = with_access(&Access::default());
    put(&database, id, &bob(vec![allow(Action::Publish, "of/%u")]));
    let server = Server::on(&database, |_| {});
    let mut client = Client::open(&server, connect_as("default/bob", "right"));
    assert_eq!((puback(&mut client, "of/bob"), puback(&mut client, "of/default/bob")), (0x10, 0x87));
    assert_eq!(refused(&server, connect_as("default/bob", "wrong")), 0x86);
    assert_eq!(refused(&server, connect_as("default/default/bob", "right")), 0x86);
    assert_eq!(refused(&server, connect_as("default/", "right")), 0x87, "no user name is left");
}

#[test]
fn a_chosen_password_authenticates() {
    let (database, id) = with_access(&Access::default());
    let phc = chosen::hash(b"hunter2", &[1; 16]).unwrap();
    put(&database, id, &Credential { secret: Some(Secret::Chosen { phc: phc.into() }), ..bob(vec![]) });
    let server = Server::on(&database, |_| {});
    // The second round is answered from the cache of checked passwords.
    for _ in 0..2 {
        Client::open(&server, connect_as("bob", "hunter2")).disconnect();
        assert_eq!(refused(&server, connect_as("bob", "hunter3")), 0x86);
    }
}

#[test]
fn a_change_of_a_credential_reaches_connected_clients() {
    let (database, id) = with_access(&Access::default());
    put(&database, id, &bob(vec![]));
    let server = Server::on(&database, |_| {});
    let mut client = Client::open(&server, connect_as("bob", "right"));
    assert_eq!(puback(&mut client, "a"), 0x10);
    put(&database, id, &bob(vec![allow(Action::Publish, "b")]));
    eventually(|| puback(&mut client, "a") == 0x87, || "the new rule does not count".into());
    assert_eq!(puback(&mut client, "b"), 0x10);
    // Disabled, it is disconnected, and does not come back.
    put(&database, id, &Credential { enabled: false, ..bob(vec![]) });
    client.expect_disconnect(ReasonCode::NOT_AUTHORIZED);
    assert_eq!(refused(&server, connect_as("bob", "right")), 0x86);
}

/// The server looks for changes twice a second, so it sees neither record missing.
#[test]
fn a_credential_or_issuer_that_is_made_anew_at_once_ends_the_clients_of_the_deleted_one() {
    let (database, id) = with_access(&Access { tokens: true, ..Access::default() });
    let put_issuer = |created_at_ms| {
        change(&database, id, &async |tx: &Transaction| {
            accounts::jwt_issuers(id).put(tx, b"i", &JwtIssuer { created_at_ms, ..issuer() }).await
        });
    };
    put(&database, id, &bob(vec![]));
    put_issuer(1);
    let server = Server::on(&database, |_| {});
    let token = token("ann", 60);
    let mut of_credential = Client::open(&server, connect_as("bob", "right"));
    let mut of_issuer = Client::open(&server, Connect { client_id: "c2", ..connect_as("ann", &token) });
    put(&database, id, &bob(vec![allow(Action::Publish, "b")]));
    eventually(|| puback(&mut of_credential, "a") == 0x87, || "the new rule does not count".into());
    assert_eq!((puback(&mut of_credential, "b"), puback(&mut of_issuer, "b")), (0x10, 0x10));
    put(&database, id, &Credential { created_at_ms: 5, ..bob(vec![]) });
    of_credential.expect_disconnect(ReasonCode::NOT_AUTHORIZED);
    assert_eq!(puback(&mut of_issuer, "b"), 0x10);
    put_issuer(5);
    of_issuer.expect_disconnect(ReasonCode::NOT_AUTHORIZED);
    Client::open(&server, connect_as("bob", "right")).disconnect();
    Client::open(&server, connect_as("ann", &token)).disconnect();
}

#[test]
fn the_first_access_record_of_a_broker_ends_the_settings_for_it() {
    let database = Database::memory();
    let store = Store::new(database.clone());
    let id = block_on(store.ensure_broker(catalog::DEFAULT)).unwrap().id;
    let server = Server::on(&database, |_| {});
    let mut admitted_by_settings = Client::connect(&server, Version::V5, "c1");
    change(&database, id, &async |tx: &Transaction| {
        accounts::access(id).put(tx, ACCESS, &Access::default()).await
    });
    admitted_by_settings.expect_disconnect(ReasonCode::NOT_AUTHORIZED);
    assert_eq!(refused(&server, connect(Version::V5, "c1")), 0x87);
}

/// Returns after `waiting` earlier CONNECTs of bob have come to the password checks. The thread that authenticates takes the newest and
/// the oldest CONNECT of a user in turn, so each two of these, which it refuses at once, let it take one that waits.
fn pass_bobs_connects(server: &Server, waiting: u64) {
    for _ in 0..2 * (waiting + 1) {
        assert_ne!(connack(server, Connect { password: None, ..connect_as("bob", "") }), 0);
    }
}

/// Counts depend on the order of events, so that a slow machine does not change them.
#[test]
fn a_right_password_waits_for_few_wrong_ones_and_closed_connections_are_not_checked() {
    const GUESSES: u64 = 300;
    let (database, id) = with_access(&Access::default());
    put(&database, id, &Credential { user: "ann".into(), ..bob(vec![]) });
    let phc = chosen::hash(b"right", &[1; 16]).unwrap();
    put(&database, id, &Credential { secret: Some(Secret::Chosen { phc: phc.into() }), ..bob(vec![]) });
    let server = Server::on(&database, |_| {});
    let checks = |result: &str| metric(&server, "millrace_password_checks_total", result);
    let received = || metric(&server, "millrace_received_bytes_total", "");
    let mut pinging = Client::open(&server, Connect { client_id: "pinging", ..connect_as("ann", "right") });
    let waiting = || metric(&server, "millrace_password_checks_waiting", "");
    let mut guessing = Vec::new();
    for number in 0..GUESSES {
        let mut client = Client::raw(&server);
        client.send(&Packet::Connect(connect_as("bob", &format!("guess {number:03}"))));
        guessing.push(client);
    }
    let under_way = std::thread::available_parallelism().map_or(1, |threads| threads.get() as u64);
    let come = || checks("wrong") + waiting() + under_way;
    eventually(|| come() >= GUESSES, || format!("{} of {GUESSES} guesses have come", come()));
    pass_bobs_connects(&server, under_way);
    let read = received();
    let mut client = Client::raw(&server);
    client.send(&Packet::Connect(connect_as("bob", "right")));
    eventually(|| received() > read, || "the right password is not read".into());
    pinging.ping();
    pass_bobs_connects(&server, 1);
    let (queued, mut meanwhile) = (checks("wrong"), 0);
    let is_checked = || {
        let wrong = checks("wrong");
        let is_checked = checks("right") == 1;
        meanwhile = if is_checked { meanwhile } else { wrong - queued };
        is_checked
    };
    eventually(is_checked, || "the right password is not checked".into());
    assert!(meanwhile < 30, "{meanwhile} wrong passwords were checked before it");
    assert_eq!(client.recv_connack().reason.0, 0);
    drop(guessing);
    let open = || metric(&server, "millrace_connections_open", "");
    eventually(|| open() == 2, || format!("{} connections are open", open()));
    pinging.ping();
    let wrong = checks("wrong");
    eventually(|| waiting() == 0, || format!("{} wait", waiting()));
    let done = || checks("wrong") + checks("cancelled");
    eventually(|| done() >= GUESSES, || format!("{} guesses were checked or cancelled", done()));
    let checked = checks("wrong") - wrong;
    assert!(checked <= under_way, "{checked} passwords of closed connections were checked");
}

/// A store whose broker `default` existed before its organisation, so that the server's settings still admit its clients.
fn adopted() -> (Database, u64) {
    let database = Database::memory();
    let store = Store::new(database.clone());
    let id = block_on(store.ensure_broker(catalog::DEFAULT)).unwrap().id;
    block_on(store.run(async |tx| keys::ensure(&tx, KEY).await)).unwrap();
    describe(&database, id, &adopted_details());
    (database, id)
}

fn adopted_details() -> Details {
    Details { organisation: Some("ours".into()), by_settings: true, ..Details::default() }
}

fn describe(database: &Database, id: u64, details: &Details) {
    change(database, id, &async |tx: &Transaction| {
        let broker = catalog::get(tx, catalog::DEFAULT, Read::Serializable).await?;
        catalog::describe(tx, &broker.ok_or(LayerError::Corrupt("broker"))?, details).await
    });
}

pub(crate) fn set_access(database: &Database, id: u64, access: &Access) {
    change(database, id, &async |tx: &Transaction| accounts::access(id).put(tx, ACCESS, access).await);
}

/// If somebody signs up and gets the broker, the clients that the server's settings admit must not be locked out.
#[test]
fn the_settings_admit_clients_of_an_adopted_broker_until_its_access_is_set() {
    let (database, id) = adopted();
    let server = Server::on(&database, |_| {});
    let mut ann = Client::connect(&server, Version::V5, "ann");
    describe(&database, id, &Details { suspended: true, ..adopted_details() });
    ann.expect_disconnect(ReasonCode::NOT_AUTHORIZED);
    describe(&database, id, &adopted_details());
    let is_back = || connack(&server, connect(Version::V5, "bob")) == 0;
    eventually(is_back, || "it is still suspended".into());
    set_access(&database, id, &Access::default());
    let is_closed = || connack(&server, connect(Version::V5, "bob")) == 0x87;
    eventually(is_closed, || "anonymous clients are still admitted".into());
}

#[test]
fn new_records_disconnect_nobody_while_the_settings_decide() {
    let (database, id) = adopted();
    let server = Server::on(&database, |_| {});
    let mut ann = Client::connect(&server, Version::V5, "ann");
    put(&database, id, &bob(vec![]));
    change(&database, id, &async |tx: &Transaction| {
        let group = Group { name: "g".into(), ..Group::default() };
        accounts::groups(id).put(tx, b"g", &group).await
    });
    let broker = BrokerLimits { connections: Some(1), ..BrokerLimits::default() };
    let limits = Limits { broker, ..Limits::default() };
    let limited = Access { by_settings: true, limits, ..Access::default() };
    set_access(&database, id, &limited);
    let is_full = || connack(&server, connect(Version::V5, "eve")) == ReasonCode::QUOTA_EXCEEDED.0;
    eventually(is_full, || "the limit is not in force".into());
    assert_eq!(puback(&mut ann, "a"), 0x10, "no rule of the record counts");

    set_access(&database, id, &Access { by_settings: false, ..limited });
    ann.expect_disconnect(ReasonCode::NOT_AUTHORIZED);
    assert_eq!(refused(&server, connect(Version::V5, "ann")), 0x87);
    Client::open(&server, connect_as("bob", "right")).disconnect();
}

/// Earlier versions stored no `by_settings`: any access record ended the settings for its broker.
#[test]
fn an_access_record_of_an_earlier_version_still_decides() {
    let (database, id) = adopted();
    assert!(!serde_json::to_string(&Access::default()).unwrap().contains("by_settings"));
    set_access(&database, id, &Access::default());
    put(&database, id, &bob(vec![]));
    let server = Server::on(&database, |_| {});
    assert_eq!(refused(&server, connect(Version::V5, "c1")), 0x87);
    Client::open(&server, connect_as("bob", "right")).disconnect();
}

#[test]
fn a_connect_that_the_settings_refuse_leaves_an_incident() {
    let (database, id) = adopted();
    let server = Server::on(&database, |config| config.authentication.allow_anonymous = false);
    assert_eq!(refused(&server, connect(Version::V5, "nobody")), 0x87);
    assert_eq!(refused(&server, connect_as("bob", "right")), 0x86);
    let all = || incidents_of(&database, id, StoredIncidentKind::ConnectRefused);
    eventually(|| all().len() == 2, || format!("{:?}", all()));
    let reason = |client: &str| {
        let all = all();
        let found = all.iter().find(|one| one.client_id.as_deref() == Some(client));
        found.map(|one| (one.user.clone(), one.reason.clone())).unwrap()
    };
    let (user, why) = reason("nobody");
    assert!(user.is_none() && why.contains("no anonymous clients"), "{why}");
    let (user, why) = reason("c1");
    assert!(user.as_deref() == Some("bob") && why.contains("password file"), "{why}");
}

/// A JWT that expires in `lasts_s` seconds.
#[allow(clippy::disallowed_methods)]
pub(crate) fn signed_token(
    header: &str,
    user: &str,
    lasts_s: u64,
    sign: impl FnOnce(&[u8]) -> Vec<u8>,
) -> String {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let now = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap();
    let claims = format!(r#"{{"sub":"{user}","exp":{}}}"#, now.as_secs().saturating_add(lasts_s));
    let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
    let signature = sign(signed.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

pub(crate) fn token(user: &str, lasts_s: u64) -> String {
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, TOKEN_SECRET.as_bytes());
    let sign = |signed: &[u8]| ring::hmac::sign(&key, signed).as_ref().to_vec();
    signed_token(r#"{"alg":"HS256"}"#, user, lasts_s, sign)
}

pub(crate) fn issuer() -> JwtIssuer {
    JwtIssuer {
        name: "i".into(),
        algorithms: vec![JwtAlgorithm::Hs256],
        key: JwtKey::Secret { secret: TOKEN_SECRET.into(), base64: false },
        leeway_s: 0,
        ..JwtIssuer::default()
    }
}

#[test]
fn a_token_authenticates_until_it_expires() {
    let (database, id) = with_access(&Access { tokens: true, ..Access::default() });
    change(&database, id, &async |tx: &Transaction| accounts::jwt_issuers(id).put(tx, b"i", &issuer()).await);
    let server = Server::on(&database, |_| {});
    let (long, short, endless) = (token("ann", 60), token("ann", 2), token("ann", u64::MAX));
    assert_eq!(refused(&server, connect_as("eve", &long)), 0x87);
    Client::open(&server, connect_as("ann", &long)).disconnect();
    let mut patient = Client::open(&server, connect_as("ann", &endless));
    assert_eq!(puback(&mut patient, "a"), 0x10);
    patient.disconnect();
    let mut client = Client::open(&server, connect_as("", &short));
    client.expect_disconnect(ReasonCode::MAXIMUM_CONNECT_TIME);
    assert_eq!(refused(&server, connect_as("", &short)), 0x87);
}

/// A new CA, and a client certificate that it signed, in PEM.
pub(crate) fn certificate(user: &str) -> (ClientCa, String) {
    let (authority, certificate, _) = certificate_and_list(user);
    (authority, certificate)
}

/// The list revokes the certificate.
fn certificate_and_list(user: &str) -> (ClientCa, String, String) {
    const SERIAL: u64 = 7;
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    let mut client = rcgen::CertificateParams::default();
    client.distinguished_name.push(rcgen::DnType::CommonName, user);
    client.serial_number = Some(SERIAL.into());
    let issuer = rcgen::Issuer::from_params(&params, &key);
    let certificate = client.signed_by(&rcgen::KeyPair::generate().unwrap(), &issuer).unwrap().pem();
    let day = rcgen::date_time_ymd(2026, 2, 1);
    let revoked = rcgen::RevokedCertParams {
        serial_number: SERIAL.into(),
        revocation_time: day,
        reason_code: None,
        invalidity_date: None,
    };
    let list = rcgen::CertificateRevocationListParams {
        this_update: day,
        next_update: rcgen::date_time_ymd(2026, 3, 1),
        crl_number: 1.into(),
        issuing_distribution_point: None,
        revoked_certs: vec![revoked],
        key_identifier_method: rcgen::KeyIdMethod::Sha256,
    };
    let list = list.signed_by(&issuer).unwrap().pem().unwrap();
    (ClientCa { name: "factory".into(), pem, ..ClientCa::default() }, certificate, list)
}

/// Connects as the gateway does, with the client's certificate in the PROXY v2 header. Returns the reason code of the CONNACK, too.
pub(crate) fn through_gateway(server: &Server, pem: &str) -> (Client, u8) {
    let pem = percent_encoding::utf8_percent_encode(pem, percent_encoding::NON_ALPHANUMERIC).to_string();
    let mut body = vec![192, 0, 2, 1, 10, 0, 0, 1, 0xD4, 0x31, 0x22, 0xB3];
    // Our own PROXY types, see `millrace_transport`.
    for (kind, value) in [(0xE0, "00ff"), (0xE3, &*pem)] {
        body.push(kind);
        body.extend(u16::try_from(value.len()).unwrap().to_be_bytes());
        body.extend(value.as_bytes());
    }
    let length = u16::try_from(body.len()).unwrap().to_be_bytes();
    let mut client = Client::over(TcpStream::connect(server.gateway()).unwrap());
    client.send_bytes(&[b"\r\n\r\n\0\r\nQUIT\n\x21\x11", &length[..], &body].concat());
    client.send(&Packet::Connect(connect(Version::V5, "c1")));
    let reason = client.recv_connack().reason.0;
    (client, reason)
}

#[test]
fn a_certificate_of_the_brokers_ca_authenticates() {
    let access = Access {
        certificates: CertificateUse::Required,
        rules: vec![allow(Action::Publish, "of/%u")],
        ..Access::default()
    };
    let (database, id) = with_access(&access);
    let ((authority, ours), (_, theirs)) = (certificate("pump-7"), certificate("pump-7"));
    change(&database, id, &async |tx: &Transaction| {
        accounts::client_cas(id).put(tx, b"factory", &authority).await
    });
    let server = Server::on(&database, |config| {
        config.gateway_listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
        config.gateway_from = vec!["127.0.0.1/32".parse().unwrap()];
    });
    let (mut client, reason) = through_gateway(&server, &ours);
    assert_eq!(reason, 0);
    assert_eq!((puback(&mut client, "of/pump-7"), puback(&mut client, "of/bob")), (0x10, 0x87));
    assert_eq!(through_gateway(&server, &theirs).1, 0x87);
    assert_eq!(refused(&server, connect_as("bob", "right")), 0x87, "without a certificate");
}

#[test]
fn a_connected_client_whose_certificate_is_revoked_leaves() {
    let access = Access { certificates: CertificateUse::Required, ..Access::default() };
    let (database, id) = with_access(&access);
    let (mut authority, pem, list) = certificate_and_list("pump-7");
    let put = |authority: &ClientCa| {
        change(&database, id, &async |tx: &Transaction| {
            accounts::client_cas(id).put(tx, b"factory", authority).await
        });
    };
    put(&authority);
    let server = Server::on(&database, |config| {
        config.gateway_listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
        config.gateway_from = vec!["127.0.0.1/32".parse().unwrap()];
    });
    let (mut client, reason) = through_gateway(&server, &pem);
    assert_eq!(reason, 0);
    authority.revoked = Some(list);
    put(&authority);
    client.expect_disconnect(ReasonCode::NOT_AUTHORIZED);
    assert_eq!(through_gateway(&server, &pem).1, 0x87);
}

#[test]
fn a_session_belongs_to_the_user_that_made_it_while_it_lives() {
    let (database, id) = with_access(&Access::default());
    put(&database, id, &bob(vec![]));
    put(&database, id, &Credential { user: "eve".into(), ..bob(vec![]) });
    let server = Server::on(&database, |_| {});
    let of = |user, clean_start| Connect {
        user_name: Some(user),
        password: Some(b"right"),
        clean_start,
        ..lasting(Version::V5, "c1")
    };
    // A session that ends with its connection.
    let mut client = Client::open(&server, connect_as("bob", "right"));
    assert_eq!(refused(&server, connect_as("eve", "right")), 0x87);
    client.ping();
    client.disconnect();
    // A persistent session, online and then offline.
    let mut client = Client::open(&server, of("bob", true));
    client.subscribe("t", QoS::AtLeastOnce);
    for clean_start in [true, false] {
        assert_eq!(refused(&server, of("eve", clean_start)), 0x87);
    }
    client.ping();
    drop(client);
    for clean_start in [true, false] {
        assert_eq!(refused(&server, of("eve", clean_start)), 0x87);
    }
    assert!(is_present(&Client::open(&server, of("bob", false))));
    // When its user has ended it, the client id is free.
    Client::open(&server, connect_as("bob", "right")).disconnect();
    eventually(|| connack(&server, of("eve", true)) == 0, || "the client id is not free".into());
}

#[test]
fn a_connect_token_neither_keeps_a_session_nor_takes_over_one() {
    let (database, id) = with_access(&Access { anonymous: true, ..Access::default() });
    put(&database, id, &bob(vec![]));
    let server = Server::on(&database, |_| {});
    let token = ConnectTokenClaims {
        broker: id,
        user: "console:eve".into(),
        client_id: "c1".into(),
        rules: vec![allow(Action::Subscribe, "#")],
        expires_at_ms: 4_000_000_000_000,
        may_share: false,
    };
    let token = token.seal(&HashKeys::new([(1, KEY)]).unwrap()).unwrap();
    let page = |clean_start| Connect {
        user_name: Some("console:eve"),
        password: Some(token.as_bytes()),
        clean_start,
        ..lasting(Version::V5, "c1")
    };
    let mut visitor = Client::open(&server, page(true));
    visitor.subscribe("t", QoS::AtMostOnce);
    // A device takes its client id back from a page that is connected, and gets a session of its own.
    let device = Connect { user_name: Some("bob"), password: Some(b"right"), ..lasting(Version::V5, "c1") };
    let device = Client::open(&server, device);
    visitor.expect_disconnect(ReasonCode::SESSION_TAKEN_OVER);
    assert!(!is_present(&device));
    for clean_start in [true, false] {
        assert_eq!(refused(&server, page(clean_start)), 0x87);
    }
    drop(device);
    Client::open(&server, connect_as("bob", "right")).disconnect();

    // Any client may take over a session without a user, online or offline, but a page with a connect token may not.
    eventually(|| connack(&server, lasting(Version::V5, "c1")) == 0, || "bob keeps the client id".into());
    let mut nobody = Client::open(&server, lasting(Version::V5, "c1"));
    assert_eq!(refused(&server, page(true)), 0x87);
    nobody.ping();
    drop(nobody);
    for clean_start in [true, false] {
        assert_eq!(refused(&server, page(clean_start)), 0x87);
    }
}

#[test]
fn a_page_with_a_connect_token_yields_to_a_device_on_another_pod() {
    let (database, id) = with_access(&Access { anonymous: true, ..Access::default() });
    put(&database, id, &bob(vec![]));
    let pods = ["one", "two"].map(|name| Server::on(&database, |config| config.pod = Some(name.into())));
    let page = |user: &str| {
        let token = ConnectTokenClaims {
            broker: id,
            user: user.into(),
            client_id: "c1".into(),
            rules: vec![allow(Action::Subscribe, "#")],
            expires_at_ms: 4_000_000_000_000,
            may_share: false,
        };
        token.seal(&HashKeys::new([(1, KEY)]).unwrap()).unwrap()
    };
    let (eve, ann) = (page("console:eve"), page("console:ann"));
    let with =
        |token: &'static str| Connect { password: Some(token.as_bytes()), ..connect(Version::V5, "c1") };
    let (eve, ann) = (with(eve.leak()), with(ann.leak()));
    let mut visitor = Client::open(&pods[0], eve.clone());
    assert_eq!(refused(&pods[1], ann), 0x87, "another page");
    let mut again = Client::open(&pods[1], eve);
    visitor.expect_disconnect(ReasonCode::SESSION_TAKEN_OVER);
    again.subscribe("t", QoS::AtMostOnce);
    let device = Connect { user_name: Some("bob"), password: Some(b"right"), ..lasting(Version::V5, "c1") };
    let device = Client::open(&pods[0], device);
    again.expect_disconnect(ReasonCode::SESSION_TAKEN_OVER);
    assert!(!is_present(&device));
}

#[test]
fn a_credential_that_is_bound_to_a_client_id_disconnects_the_others() {
    let (database, id) = with_access(&Access::default());
    put(&database, id, &bob(vec![]));
    let server = Server::on(&database, |_| {});
    let [mut free, mut only] = ["free", "only"]
        .map(|client_id| Client::open(&server, Connect { client_id, ..connect_as("bob", "right") }));
    put(&database, id, &Credential { client_id: Some("only".into()), ..bob(vec![]) });
    free.expect_disconnect(ReasonCode::NOT_AUTHORIZED);
    only.ping();
}

#[test]
fn only_some_connect_tokens_take_messages_from_the_members_of_a_shared_subscription() {
    let (database, id) = with_access(&Access { anonymous: true, ..Access::default() });
    let server = Server::on(&database, |_| {});
    for may_share in [false, true] {
        let token = ConnectTokenClaims {
            broker: id,
            user: "console:eve".into(),
            client_id: "page".into(),
            rules: vec![allow(Action::Subscribe, "#")],
            expires_at_ms: 4_000_000_000_000,
            may_share,
        };
        let token = token.seal(&HashKeys::new([(1, KEY)]).unwrap()).unwrap();
        let password = Some(token.as_bytes());
        let page = Connect { user_name: Some("console:eve"), password, ..connect(Version::V5, "page") };
        let mut page = Client::open(&server, page);
        let filters =
            [("$share/workers/jobs/#", SubscribeOptions::default()), ("jobs/#", SubscribeOptions::default())];
        let refused = if may_share { 0 } else { ReasonCode::NOT_AUTHORIZED.0 };
        assert_eq!(page.subscribe_all(&filters, Properties::EMPTY).reasons, [refused, 0]);
    }
}
