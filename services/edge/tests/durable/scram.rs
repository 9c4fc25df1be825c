//! SCRAM-SHA-256 as enhanced authentication of a managed broker's clients (MQTT 5.0 section 4.12).

use std::num::NonZeroU32;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use millrace_access::model::{Access, Action, CertificateUse, Credential};
use millrace_access::scram::{METHOD, verifier};
use millrace_mqtt::{
    Auth, ConnAck, Connect, Packet, PacketType, Properties, Property, QoS, ReasonCode, Version, Will,
};
use millrace_storage::Database;
use ring::{digest, hmac, pbkdf2};

use crate::access::{allow, bob, puback, put, refused, with_access};
use crate::common::{Client, Server, connect, disconnect, list, properties, publish, will};
use crate::tools::metric;

const CONTINUE: ReasonCode = ReasonCode::CONTINUE_AUTHENTICATION;
const ANEW: ReasonCode = ReasonCode::RE_AUTHENTICATE;

/// The client's side of an exchange (RFC 5802), with nothing of the server's code.
struct Scram {
    bare: String,
    password: &'static str,
    /// The server's signature, which proves that it knows the password.
    signature: Vec<u8>,
}

impl Scram {
    fn new(user: &str, password: &'static str) -> Self {
        Self { bare: format!("n={user},r=fyko+d2lbbFgONRv9qkxdawL"), password, signature: Vec::new() }
    }

    fn first(&self) -> Vec<u8> {
        format!("n,,{}", self.bare).into_bytes()
    }

    fn last(&mut self, challenge: &str) -> Vec<u8> {
        let [nonce, salt, rounds] = parts(challenge);
        let (salt, rounds) = (STANDARD.decode(salt).unwrap(), rounds.parse::<u32>().unwrap());
        let mut salted = [0; 32];
        let rounds = NonZeroU32::new(rounds).unwrap();
        let password = self.password.as_bytes();
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, rounds, &salt, password, &mut salted);
        let client_key = sign(&salted, b"Client Key");
        let stored_key = digest::digest(&digest::SHA256, &client_key);
        let without_proof = format!("c=biws,r={nonce}");
        let signed = format!("{},{challenge},{without_proof}", self.bare);
        let signature = sign(stored_key.as_ref(), signed.as_bytes());
        let proof: Vec<u8> = client_key.iter().zip(signature).map(|(key, mask)| key ^ mask).collect();
        self.signature = sign(&sign(&salted, b"Server Key"), signed.as_bytes());
        format!("{without_proof},p={}", STANDARD.encode(proof)).into_bytes()
    }

    fn believes(&self, last: &str) -> bool {
        last.strip_prefix("v=").is_some_and(|v| STANDARD.decode(v).unwrap() == self.signature)
    }
}

/// Nonce, salt and rounds of a challenge.
fn parts(challenge: &str) -> [&str; 3] {
    let mut parts = challenge.split(',');
    ["r=", "s=", "i="].map(|name| parts.next().unwrap().strip_prefix(name).unwrap())
}

fn sign(key: &[u8], message: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), message).as_ref().to_vec()
}

fn named(data: Option<&[u8]>) -> Properties<'static> {
    let method = [Property::AuthenticationMethod(METHOD)];
    properties(&method.into_iter().chain(data.map(Property::AuthenticationData)).collect::<Vec<_>>())
}

fn with(id: &'static str, data: Option<&[u8]>) -> Connect<'static> {
    Connect { properties: named(data), ..connect(Version::V5, id) }
}

fn auth(client: &mut Client, reason: ReasonCode, data: &[u8]) {
    client.send(&Packet::Auth(Auth { reason, properties: named(Some(data)) }));
}

/// The next packet is an AUTH with this reason: its data. It names the method.
fn recv_auth(client: &mut Client, reason: ReasonCode) -> String {
    let Packet::Auth(auth) = client.recv() else { panic!("no AUTH") };
    assert_eq!(auth.reason, reason);
    data(auth.properties)
}

fn data(properties: Properties<'_>) -> String {
    let told = list(properties);
    assert!(told.contains(&Property::AuthenticationMethod(METHOD)), "{told:?}");
    let data = told.iter().find_map(|property| match property {
        Property::AuthenticationData(data) => Some(data.to_vec()),
        _ => None,
    });
    String::from_utf8(data.unwrap()).unwrap()
}

/// Sends a CONNECT with the client's first message, and the proof when it is asked for one. The CONNACK, whatever it says.
fn log_in(
    server: &Server,
    mut scram: Scram,
    change: impl FnOnce(&mut Connect<'static>),
) -> (Client, ConnAck<'static>, Scram) {
    let mut client = Client::raw(server);
    let mut connect = with("c1", Some(&scram.first()));
    change(&mut connect);
    client.send(&Packet::Connect(connect));
    loop {
        match client.recv() {
            Packet::Auth(asked) => {
                assert_eq!(asked.reason, CONTINUE);
                let last = scram.last(&data(asked.properties));
                auth(&mut client, CONTINUE, &last);
            }
            Packet::ConnAck(connack) => return (client, connack, scram),
            other => panic!("{other:?}"),
        }
    }
}

/// The reason with which it is refused.
fn fails(server: &Server, scram: Scram, change: impl FnOnce(&mut Connect<'static>)) -> u8 {
    let (mut client, connack, _) = log_in(server, scram, change);
    assert_ne!(connack.reason.0, 0);
    client.expect_close();
    connack.reason.0
}

/// A client that has authenticated.
fn entered(server: &Server) -> Client {
    let (client, connack, _) = log_in(server, right(), |_| {});
    assert_eq!(connack.reason, ReasonCode::SUCCESS);
    client
}

/// A client that was challenged, and what it would answer.
fn challenged(server: &Server) -> (Client, Vec<u8>) {
    let (mut client, mut scram) = (Client::raw(server), right());
    client.send(&Packet::Connect(with("c1", Some(&scram.first()))));
    let challenge = recv_auth(&mut client, CONTINUE);
    let last = scram.last(&challenge);
    (client, last)
}

/// Authenticates a connected client anew; its AUTH, or why it is closed.
fn anew(client: &mut Client, mut scram: Scram) -> Result<(), ReasonCode> {
    auth(client, ANEW, &scram.first());
    loop {
        match client.recv() {
            Packet::Auth(asked) if asked.reason == CONTINUE => {
                let last = scram.last(&data(asked.properties));
                auth(client, CONTINUE, &last);
            }
            Packet::Auth(done) => {
                assert_eq!(done.reason, ReasonCode::SUCCESS);
                assert!(scram.believes(&data(done.properties)));
                return Ok(());
            }
            Packet::Disconnect(disconnect) => {
                client.expect_close();
                return Err(disconnect.reason);
            }
            other => panic!("{other:?}"),
        }
    }
}

fn right() -> Scram {
    Scram::new("bob", "right")
}

fn bob_with(rules: Vec<millrace_access::model::Rule>) -> Credential {
    Credential { scram: Some(verifier("right", [5; 16])), ..bob(rules) }
}

/// A broker with the user bob.
fn with_bob(access: &Access) -> (Database, u64) {
    let (database, id) = with_access(access);
    put(&database, id, &bob_with(vec![]));
    (database, id)
}

fn server() -> (Server, Database, u64) {
    let (database, id) = with_bob(&Access::default());
    (Server::on(&database, |_| {}), database, id)
}

#[test]
fn a_client_is_let_in_by_its_proof_and_believes_the_server() {
    //= [MQTT-4.12.0-2] [MQTT-4.12.0-5] [MQTT-3.15.2-1] v5
    let (database, id) = with_access(&Access { passwords: false, ..Access::default() });
    put(&database, id, &bob_with(vec![allow(Action::Publish, "of/%u")]));
    let server = Server::on(&database, |_| {});
    let (mut client, connack, scram) = log_in(&server, right(), |_| {});
    assert_eq!(connack.reason, ReasonCode::SUCCESS);
    assert!(scram.believes(&data(connack.properties)));
    assert_eq!((puback(&mut client, "of/bob"), puback(&mut client, "x")), (0x10, 0x87));
}

#[test]
fn a_client_without_data_is_asked_to_begin() {
    //= [MQTT-4.12.0-2] v5
    let (server, ..) = server();
    let (mut client, mut scram) = (Client::raw(&server), right());
    client.send(&Packet::Connect(with("c1", None)));
    assert_eq!(recv_auth(&mut client, CONTINUE), "");
    auth(&mut client, CONTINUE, &scram.first());
    let last = scram.last(&recv_auth(&mut client, CONTINUE));
    auth(&mut client, CONTINUE, &last);
    assert_eq!(client.recv_connack().reason, ReasonCode::SUCCESS);
    client.ping();
}

#[test]
fn a_user_that_does_not_exist_or_may_not_connect_fails_at_the_proof_like_a_wrong_password() {
    //= [MQTT-4.12.0-4] v5
    let (database, id) = with_bob(&Access::default());
    put(&database, id, &Credential { user: "off".into(), enabled: false, ..bob_with(vec![]) });
    put(&database, id, &Credential { user: "old".into(), ..bob(vec![]) });
    let (one, other) = (Server::on(&database, |_| {}), Server::on(&database, |_| {}));
    let challenge = |server: &Server, user: &str| {
        let mut client = Client::raw(server);
        client.send(&Packet::Connect(with("c1", Some(&Scram::new(user, "").first()))));
        recv_auth(&mut client, CONTINUE)
    };
    for user in ["bob", "eve", "off", "old"] {
        let (here, there) = (challenge(&one, user), challenge(&other, user));
        let ([nonce, salt, rounds], [other_nonce, other_salt, _]) = (parts(&here), parts(&there));
        assert_eq!((rounds, STANDARD.decode(salt).unwrap().len(), here.len()), ("100000", 16, there.len()));
        assert_eq!(salt, other_salt, "the salt of {user} is the same everywhere");
        assert_ne!(nonce, other_nonce);
    }
    for (user, password) in [("bob", "wrong"), ("eve", "right"), ("off", "right"), ("old", "right")] {
        assert_eq!(fails(&one, Scram::new(user, password), |_| {}), 0x87, "{user}");
    }
}

#[test]
fn a_user_name_beside_the_method_is_the_one_that_is_proven() {
    let (server, ..) = server();
    let user = |user: &'static str| move |connect: &mut Connect<'static>| connect.user_name = Some(user);
    for (named, reason) in [("bob", 0), ("", 0), ("eve", 0x87)] {
        let (_, connack, _) = log_in(&server, right(), user(named));
        assert_eq!(connack.reason.0, reason, "{named}");
    }
}

#[test]
fn a_method_that_the_broker_does_not_have_is_refused() {
    //= [MQTT-4.12.0-1] v5
    let (server, ..) = server();
    let method = |method| properties(&[Property::AuthenticationMethod(method)]);
    for other in ["SCRAM-SHA-1", "scram-sha-256", ""] {
        let connect = Connect { properties: method(other), ..connect(Version::V5, "c1") };
        assert_eq!(refused(&server, connect), 0x8C, "{other}");
    }
    let (database, _) = with_bob(&Access { scram: false, ..Access::default() });
    let off = Server::on(&database, |_| {});
    assert_eq!(refused(&off, with("c1", Some(&right().first()))), 0x8C);
    let unmanaged = Server::on(&Database::memory(), |_| {});
    assert_eq!(refused(&unmanaged, with("c1", Some(&right().first()))), 0x8C);
}

#[test]
fn the_certificate_that_the_broker_wants_is_wanted_of_who_knows_its_password_too() {
    for certificates in [CertificateUse::Required, CertificateUse::Additional] {
        let (database, _) = with_bob(&Access { certificates, ..Access::default() });
        let server = Server::on(&database, |_| {});
        assert_eq!(fails(&server, right(), |_| {}), 0x87, "{certificates:?}");
    }
}

#[test]
fn garbage_is_refused_at_each_step() {
    //= [MQTT-4.12.0-4] v5
    let (server, ..) = server();
    let long = [b"n,,n=bob,r=".as_slice(), &[b'x'; 5_000]].concat();
    let firsts: [&[u8]; 7] =
        [b"", b"\0", b"\xFF\xFE", b"n,,", b"p=tls-exporter,,n=bob,r=a", b"n,a=eve,n=bob,r=a", &long];
    for first in firsts {
        assert_eq!(refused(&server, with("c1", Some(first))), 0x87, "{first:.20?}");
    }
    for change in [
        |_: &[u8]| Vec::<u8>::new(),
        |last: &[u8]| last[..last.len() - 1].to_vec(),
        |last: &[u8]| [last, b"\0"].concat(),
        |last: &[u8]| [b"c=eSws".as_slice(), &last[6..]].concat(),
        |_: &[u8]| right().first(),
        |_: &[u8]| vec![0xFF; 3_000],
    ] {
        let (mut client, last) = challenged(&server);
        auth(&mut client, CONTINUE, &change(&last));
        assert_eq!(client.recv_connack().reason.0, 0x87);
        client.expect_close();
    }
}

#[test]
fn before_connack_nothing_but_auth_and_disconnect_is_taken() {
    //= [MQTT-3.1.2-30] [MQTT-4.12.0-3] v5
    let (server, ..) = server();
    let mut watcher = entered_as(&server, "watcher");
    watcher.subscribe("#", QoS::AtMostOnce);
    let other = properties(&[Property::AuthenticationMethod("OTHER")]);
    for packet in [
        Packet::Publish(publish("smuggled", b"x")),
        Packet::PingReq,
        Packet::Connect(with("c1", Some(&right().first()))),
        Packet::Connect(connect(Version::V5, "c2")),
        Packet::Auth(Auth { reason: ANEW, properties: named(Some(&right().first())) }),
        Packet::Auth(Auth { reason: ReasonCode::SUCCESS, properties: Properties::EMPTY }),
        Packet::Auth(Auth { reason: CONTINUE, properties: other }),
    ] {
        let (mut client, last) = challenged(&server);
        client.send(&packet);
        auth(&mut client, CONTINUE, &last);
        assert_eq!(client.recv_connack().reason.0, 0x82, "{packet:?}");
        client.expect_close();
    }
    // Bytes that are no packet, too.
    let (mut client, _) = challenged(&server);
    client.send_bytes(&[0xF0, 2, 0x55, 0]);
    assert_eq!(client.recv_connack().reason.0, 0x82);
    client.expect_close();
    watcher.expect_nothing();
}

/// As [`entered`], with a client id.
fn entered_as(server: &Server, id: &'static str) -> Client {
    let (client, connack, _) = log_in(server, right(), |connect| connect.client_id = id);
    assert_eq!(connack.reason, ReasonCode::SUCCESS);
    client
}

#[test]
fn who_sends_more_than_one_answer_at_once_is_let_in_once() {
    let (server, ..) = server();
    let (mut client, last) = challenged(&server);
    auth(&mut client, CONTINUE, &last);
    auth(&mut client, CONTINUE, &last);
    assert_eq!(client.recv_connack().reason, ReasonCode::SUCCESS);
    client.expect_disconnect(ReasonCode::PROTOCOL_ERROR);
}

#[test]
fn a_client_that_goes_in_the_middle_leaves_nothing() {
    let (server, ..) = server();
    let mut watcher = entered_as(&server, "watcher");
    watcher.subscribe("#", QoS::AtMostOnce);
    let with_will = || {
        let will = Some(Will { qos: QoS::AtLeastOnce, ..will("gone", b"x") });
        let mut client = Client::raw(&server);
        client.send(&Packet::Connect(Connect { will, ..with("c1", Some(&right().first())) }));
        recv_auth(&mut client, CONTINUE);
        client
    };
    with_will().disconnect_with(disconnect(ReasonCode(0x04)));
    with_will().cut();
    let mut client = with_will();
    drop(entered(&server));
    auth(&mut client, CONTINUE, b"garbage");
    assert_eq!(client.recv_connack().reason.0, 0x87);
    watcher.expect_nothing();
    assert_eq!(metric(&server, "millrace_connections_refused_total", "closed_by_peer"), 2);
}

#[test]
fn the_connect_timeout_is_that_of_the_whole_exchange_and_the_keep_alive_is_not_in_force() {
    let (database, _) = with_bob(&Access::default());
    let server = Server::on(&database, |config| config.limits.connect_timeout_s = 1);
    let (mut client, _) = challenged(&server);
    client.expect_close();
    let mut client = Client::raw(&server);
    client.send(&Packet::Connect(with("c1", None)));
    recv_auth(&mut client, CONTINUE);
    client.expect_close();
}

#[test]
fn an_exchange_takes_place_where_the_client_id_lives() {
    let (database, _) = with_bob(&Access::default());
    let server = Server::on(&database, |config| config.threads = 3);
    let ids = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let mut clients = ids.map(|id| entered_as(&server, id));
    clients[0].subscribe("t", QoS::AtLeastOnce);
    for client in &mut clients[1..] {
        assert_eq!(anew(client, right()), Ok(()));
        client.ping();
    }
    let mut second = entered_as(&server, "a");
    clients[0].expect_disconnect(ReasonCode::SESSION_TAKEN_OVER);
    second.ping();
}

#[test]
fn a_challenge_that_the_client_does_not_take_is_not_sent() {
    //= [MQTT-3.1.2-24] [MQTT-3.15.2-2] [MQTT-3.15.2-3] v5
    let (server, ..) = server();
    for packet_size_max in [20, 60, 110, 130, 150, 170, 190] {
        let (mut client, mut scram) = (Client::raw(&server), right());
        let first = scram.first();
        let asked = [
            Property::AuthenticationMethod(METHOD),
            Property::AuthenticationData(&first),
            Property::MaximumPacketSize(packet_size_max),
        ];
        let connect = Connect { properties: properties(&asked), ..connect(Version::V5, "c1") };
        client.send(&Packet::Connect(connect));
        while let Some(bytes) = client.recv_bytes() {
            assert!(bytes.len() <= packet_size_max as usize, "{bytes:02x?}");
            match bytes[0] >> 4 {
                kind if kind == PacketType::Auth as u8 => {
                    let frame = millrace_mqtt::frame(&bytes, u32::MAX).unwrap().unwrap();
                    let packet = millrace_mqtt::decode(frame.first, frame.body, Some(Version::V5)).unwrap();
                    let Packet::Auth(asked) = packet else { panic!("{packet:?}") };
                    let last = scram.last(&data(asked.properties));
                    auth(&mut client, CONTINUE, &last);
                }
                _ if bytes[3] == 0 => break,
                _ => assert_eq!(bytes[3], 0x95, "{bytes:02x?}"),
            }
        }
    }
}

#[test]
fn a_client_authenticates_anew_while_its_messages_go_on() {
    let (server, database, id) = server();
    let mut client = entered(&server);
    client.subscribe("t", QoS::AtMostOnce);
    let mut scram = right();
    auth(&mut client, ANEW, &scram.first());
    let last = scram.last(&recv_auth(&mut client, CONTINUE));
    client.send(&Packet::Publish(publish("t", b"x")));
    assert_eq!(client.recv_publish().payload, b"x");
    // Its rules are those of now.
    put(&database, id, &bob_with(vec![allow(Action::Publish, "u")]));
    auth(&mut client, CONTINUE, &last);
    assert!(scram.believes(&recv_auth(&mut client, ReasonCode::SUCCESS)));
    assert_eq!((puback(&mut client, "t"), puback(&mut client, "u")), (0x87, 0x10));
    // Again, and when asked to begin.
    assert_eq!(anew(&mut client, right()), Ok(()));
    client.send(&Packet::Auth(Auth { reason: ANEW, properties: named(None) }));
    assert_eq!(recv_auth(&mut client, CONTINUE), "");
    auth(&mut client, CONTINUE, &right().first());
    recv_auth(&mut client, CONTINUE);
}

#[test]
fn who_fails_to_authenticate_anew_is_disconnected() {
    //= [MQTT-4.12.1-2] v5
    let (server, database, id) = server();
    put(&database, id, &Credential { user: "ann".into(), ..bob_with(vec![]) });
    for scram in [Scram::new("bob", "wrong"), Scram::new("ann", "right"), Scram::new("eve", "right")] {
        assert_eq!(anew(&mut entered(&server), scram), Err(ReasonCode::NOT_AUTHORIZED));
    }
    let mut client = entered(&server);
    auth(&mut client, ANEW, b"\xFF");
    client.expect_disconnect(ReasonCode::NOT_AUTHORIZED);
    // So is who may not connect any more.
    let mut client = entered(&server);
    put(&database, id, &Credential { enabled: false, ..bob_with(vec![]) });
    auth(&mut client, ANEW, &right().first());
    while let Packet::Auth(_) = client.recv() {
        auth(&mut client, CONTINUE, b"");
    }
    client.expect_close();
}

#[test]
fn auth_out_of_turn_or_of_another_method_ends_the_connection() {
    //= [MQTT-4.12.0-7] [MQTT-4.12.1-1] [MQTT-4.12.0-6] v5
    let (server, database, id) = server();
    let closes = |mut client: Client, packets: &[Packet<'_>]| {
        packets.iter().for_each(|packet| client.send(packet));
        while let Packet::Auth(_) = client.recv() {}
        client.expect_close();
    };
    let first = || named(Some(&right().first()));
    let of = |reason, properties| Packet::Auth(Auth { reason, properties });
    let other = properties(&[Property::AuthenticationMethod("OTHER")]);
    closes(entered(&server), &[of(ANEW, other)]);
    closes(entered(&server), &[of(CONTINUE, first())]);
    closes(entered(&server), &[of(ReasonCode::SUCCESS, first())]);
    closes(entered(&server), &[of(ANEW, first()), of(ANEW, first())]);
    put(&database, id, &bob_with(vec![]));
    let plain =
        || Connect { user_name: Some("bob"), password: Some(b"right"), ..connect(Version::V5, "plain") };
    let client = Client::open(&server, plain());
    let told = list(client.connack.as_ref().unwrap().properties);
    assert!(!told.iter().any(|told| matches!(told, Property::AuthenticationMethod(_))));
    closes(client, &[of(ANEW, first())]);
}

#[test]
fn the_wills_of_clients_that_do_not_answer_take_a_bounded_memory() {
    let (database, _) = with_bob(&Access { scram: true, ..Access::default() });
    let server = Server::on(&database, |config| config.limits.input_memory_max = 1_000_000);
    let payload = vec![0; 60_000];
    let held = || metric(&server, "millrace_input_held_bytes", "");
    let ask = || {
        let mut client = Client::raw(&server);
        client.send(&Packet::Connect(Connect { will: Some(will("w", &payload)), ..with("", None) }));
        client
    };
    // A quarter of the memory is for clients that nobody knows yet.
    let mut asked: Vec<Client> = (0..4).map(|_| ask()).collect();
    asked.iter_mut().for_each(|client| assert_eq!(recv_auth(client, CONTINUE), ""));
    assert!((200_000..=250_000).contains(&held()), "{}", held());
    ask().expect_close();
    drop(asked);
    crate::tools::eventually(|| held() == 0, || format!("{} bytes held", held()));
}
