//! A will is published only while its client has the right to it: when its connection ends, and when a delayed will is due.

use millrace_access::model::{Access, Action, Ban, Credential, Effect, Group, Rule};
use millrace_layers::accounts;
use millrace_layers::incidents::{IncidentRecord, StoredIncidentKind};
use millrace_mqtt::Version::V5;
use millrace_mqtt::{Connect, Packet, Property, Publish, QoS, ReasonCode, Will};
use millrace_storage::{Database, Transaction};

use crate::access::{allow, bob, change, connect_as, issuer, puback, put, token, with_access};
use crate::common::{Client, Server, properties, publish, publish_qos, will};
use crate::limits::incidents_of;
use crate::steps::lasting;
use crate::tools::{eventually, half_close, metric};

fn set_up() -> (Database, u64) {
    let (database, id) = with_access(&Access { tokens: true, ..Access::default() });
    for user in ["bob", "eve"] {
        put(&database, id, &of(user, vec![]));
    }
    (database, id)
}

fn of(user: &str, rules: Vec<Rule>) -> Credential {
    Credential { user: user.into(), ..bob(rules) }
}

fn no_alarms() -> Vec<Rule> {
    vec![Rule::new(Effect::Deny, Action::Publish, "alarm/#"), allow(Action::All, "#")]
}

/// A session of this name and user that lasts, with a retained will to `alarm/NAME`.
fn with_will<'a>(user: &'a str, topic: &'a str, delay_s: u32) -> Connect<'a> {
    let delay = properties(&[Property::WillDelayInterval(delay_s)]);
    let will = Will { qos: QoS::AtLeastOnce, retain: true, properties: delay, ..will(topic, b"gone") };
    Connect { will: Some(will), user_name: Some(user), password: Some(b"right"), ..lasting(V5, user) }
}

/// Published and refused wills.
fn wills(server: &Server) -> [u64; 2] {
    ["millrace_wills_published_total", "millrace_wills_refused_total"].map(|name| metric(server, name, ""))
}

fn expect_wills(server: &Server, expected: [u64; 2]) {
    let are_there = || wills(server).iter().zip(expected).all(|(count, expected)| *count >= expected);
    eventually(are_there, || format!("{:?} wills", wills(server)));
    assert_eq!(wills(server), expected);
}

/// The topics of retained alarms. The store has then done what it was asked for before.
fn alarms(server: &Server) -> Vec<&'static str> {
    let mut reader = Client::open(server, Connect { client_id: "reader", ..connect_as("bob", "right") });
    reader.publish(Publish { retain: true, ..publish_qos(QoS::AtLeastOnce, 1, "mark", b"x") });
    reader.subscribe("alarm/#", QoS::AtMostOnce);
    reader.send(&Packet::Publish(publish("alarm/end", b"x")));
    let mut topics = Vec::new();
    loop {
        match reader.recv_publish().topic {
            "alarm/end" => break,
            topic => topics.push(topic),
        }
    }
    reader.disconnect();
    topics.sort_unstable();
    topics
}

#[test]
fn the_rules_of_the_moment_decide_about_the_will_of_a_connection_that_ends() {
    let (database, id) = set_up();
    let server = Server::on(&database, |_| {});
    let deny = |client: &mut Client| {
        put(&database, id, &of("eve", no_alarms()));
        eventually(|| puback(client, "alarm/y") == 0x87, || "the rule does not count".into());
    };
    let allow = |client: &mut Client| {
        put(&database, id, &of("eve", vec![]));
        eventually(|| puback(client, "alarm/y") == 0x10, || "the rule still counts".into());
    };
    for (number, delay_s) in (1..).zip([0, 60]) {
        let mut eve = Client::open(&server, with_will("eve", "alarm/eve", delay_s));
        deny(&mut eve);
        half_close(eve.stream());
        expect_wills(&server, [0, number]);
        allow(&mut Client::open(&server, connect_as("eve", "right")));
    }
    // A will that another connection of the client ends.
    let mut eve = Client::open(&server, with_will("eve", "alarm/eve", 0));
    deny(&mut eve);
    let will = Connect { will: None, ..with_will("eve", "", 0) };
    let mut again = Client::open(&server, will);
    eve.expect_disconnect(ReasonCode::SESSION_TAKEN_OVER);
    assert_eq!(alarms(&server), [""; 0]);
    expect_wills(&server, [0, 3]);
    let is_of_will =
        |noted: &IncidentRecord| noted.reason.contains("will") && noted.user.as_deref() == Some("eve");
    let noted = || incidents_of(&database, id, StoredIncidentKind::PublishRefused);
    eventually(|| noted().iter().any(is_of_will), || "no incident names the will".into());
    allow(&mut again);
    half_close(Client::open(&server, with_will("eve", "alarm/eve", 0)).stream());
    expect_wills(&server, [1, 3]);
    assert_eq!(alarms(&server), ["alarm/eve"]);
}

fn ban(database: &Database, id: u64, ban: &Ban) {
    change(database, id, &async |tx: &Transaction| {
        accounts::bans(id).put(tx, ban.name.as_bytes(), ban).await
    });
}

fn delete(database: &Database, id: u64, user: &str) {
    change(database, id, &async |tx: &Transaction| {
        accounts::credentials(id).clear(tx, user.as_bytes()).await?;
        Ok(1)
    });
}

#[test]
fn a_client_that_the_server_disconnects_for_lost_rights_leaves_no_will() {
    for delay_s in [0, 1] {
        let (database, id) = set_up();
        let mut server = Server::on(&database, |_| {});
        let users = ["off", "gone", "banned"];
        users.iter().for_each(|user| put(&database, id, &of(user, vec![])));
        let mut clients = users.map(|user| Client::open(&server, with_will(user, "alarm/x", delay_s)));
        put(&database, id, &Credential { enabled: false, ..of("off", vec![]) });
        delete(&database, id, "gone");
        ban(&database, id, &Ban { name: "b".into(), user: Some("banned".into()), ..Ban::default() });
        let reasons =
            [ReasonCode::NOT_AUTHORIZED, ReasonCode::NOT_AUTHORIZED, ReasonCode::ADMINISTRATIVE_ACTION];
        for (client, reason) in clients.iter_mut().zip(reasons) {
            client.expect_disconnect(reason);
        }
        // It is due later than the others were.
        half_close(Client::open(&server, with_will("eve", "alarm/eve", delay_s)).stream());
        expect_wills(&server, [1, 0]);
        assert_eq!(alarms(&server), ["alarm/eve"], "{delay_s}");
        drop(server);
        server = Server::on(&database, |_| {});
        assert_eq!(alarms(&server), ["alarm/eve"], "{delay_s}");
        assert_eq!(wills(&server), [0, 0]);
    }
}

#[test]
fn a_delayed_will_is_refused_when_its_client_has_lost_the_right_to_it_meanwhile() {
    const DELAY_S: u32 = 3;
    let (database, id) = set_up();
    change(&database, id, &async |tx: &Transaction| accounts::jwt_issuers(id).put(tx, b"i", &issuer()).await);
    let group = |rules: Vec<Rule>| {
        let group = Group { name: "g".into(), rules, ..Group::default() };
        change(&database, id, &async |tx: &Transaction| accounts::groups(id).put(tx, b"g", &group).await);
    };
    group(vec![]);
    let in_group = || Credential { group: Some("g".into()), ..of("group", vec![]) };
    let users = ["rules", "off", "gone", "banned", "named", "anew", "fine"];
    users.iter().for_each(|user| put(&database, id, &of(user, vec![])));
    put(&database, id, &in_group());
    put(&database, id, &of("token off", vec![]));
    let server = Server::on(&database, |_| {});
    let topics: Vec<String> =
        users.iter().chain(&["group", "token off", "token"]).map(|user| format!("alarm/{user}")).collect();
    let leave = |connect: Connect<'_>| {
        half_close(Client::open(&server, connect).stream());
    };
    for (user, topic) in users.iter().zip(&topics) {
        leave(with_will(user, topic, if *user == "anew" { 3_600 } else { DELAY_S }));
    }
    leave(with_will("group", &topics[7], DELAY_S));
    for (user, topic) in [("token off", &topics[8]), ("token", &topics[9])] {
        let token = token(user, 3_600);
        leave(Connect { password: Some(token.as_bytes()), ..with_will(user, topic, DELAY_S) });
    }
    put(&database, id, &of("rules", no_alarms()));
    put(&database, id, &of("anew", no_alarms()));
    for user in ["off", "token off"] {
        put(&database, id, &Credential { enabled: false, ..of(user, vec![]) });
    }
    delete(&database, id, "gone");
    ban(&database, id, &Ban { name: "user".into(), user: Some("banned".into()), ..Ban::default() });
    ban(&database, id, &Ban { name: "client".into(), client_id: Some("named".into()), ..Ban::default() });
    group(no_alarms());
    // The end of the session publishes the will before its delay has passed.
    Client::open(&server, Connect { will: None, clean_start: true, ..with_will("anew", "", 0) }).disconnect();
    expect_wills(&server, [2, 8]);
    assert_eq!(alarms(&server), ["alarm/fine", "alarm/token"]);
}
