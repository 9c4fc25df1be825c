//! Brokers that go by the password file and the rules file: whose sessions they are, and what a change of the files does.

use std::path::{Path, PathBuf};

use millrace_access::files::passwords;
use millrace_access::secrets::chosen;
use millrace_edge::Config;
use millrace_mqtt::Version::V5;
use millrace_mqtt::{Connect, Property, QoS, ReasonCode, Will};
use millrace_storage::Database;

use crate::access::{connack, puback, refused};
use crate::common::{Client, Server, connect, properties, will};
use crate::steps::{is_present, lasting};
use crate::tools::{eventually, half_close, metric};

struct Files {
    folder: PathBuf,
    hash: String,
}

impl Files {
    /// Bob and eve have the password "secret".
    fn new(test: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
        std::fs::create_dir_all(&folder).unwrap();
        let files = Self { folder, hash: chosen::hash(b"secret", &[7; 16]).unwrap() };
        files.users(&["bob", "eve"]);
        files.rules("allow all * #");
        files
    }

    fn users(&self, users: &[&str]) {
        let add = |text: String, user: &&str| passwords::edit(&text, user, Some(&self.hash)).unwrap();
        std::fs::write(self.folder.join("users"), users.iter().fold(String::new(), add)).unwrap();
    }

    fn rules(&self, rules: &str) {
        std::fs::write(self.folder.join("rules"), rules).unwrap();
    }

    /// A server without a store, or on one.
    fn start(&self, database: Option<&Database>) -> Server {
        let change = |config: &mut Config| {
            config.authentication.password_file = Some(self.folder.join("users"));
            config.authentication.rules_file = Some(self.folder.join("rules"));
        };
        match database {
            Some(database) => Server::on(database, change),
            None => Server::with(change),
        }
    }
}

fn of<'a>(user: &'a str, connect: Connect<'a>) -> Connect<'a> {
    Connect { user_name: Some(user), password: Some(b"secret"), ..connect }
}

fn with_will(user: &str, delay_s: u32) -> Connect<'_> {
    let delay = properties(&[Property::WillDelayInterval(delay_s)]);
    let will = Will { properties: delay, ..will("alarm/x", b"gone") };
    of(user, Connect { will: Some(will), ..lasting(V5, user) })
}

fn wills(server: &Server) -> [u64; 2] {
    ["millrace_wills_published_total", "millrace_wills_refused_total"].map(|name| metric(server, name, ""))
}

#[test]
fn a_session_belongs_to_the_user_of_the_password_file_that_made_it() {
    let files = Files::new("owned sessions");
    for database in [None, Some(Database::memory())] {
        let server = files.start(database.as_ref());
        let others = || {
            for clean_start in [true, false] {
                let session = Connect { clean_start, ..lasting(V5, "c1") };
                assert_eq!(refused(&server, of("eve", session.clone())), 0x87);
                assert_eq!(refused(&server, session), 0x87, "anonymous");
            }
        };
        let mut client = Client::open(&server, of("bob", lasting(V5, "c1")));
        client.subscribe("t", QoS::AtLeastOnce);
        others();
        client.ping();
        half_close(client.stream());
        others();
        let client = Client::open(&server, of("bob", lasting(V5, "c1")));
        assert!(is_present(&client));
        client.disconnect();
        // When its user has ended it, the client id is free.
        Client::open(&server, of("bob", connect(V5, "c1"))).disconnect();
        let is_free = || connack(&server, of("eve", lasting(V5, "c1"))) == 0;
        eventually(is_free, || "the client id is not free".into());
    }
}

#[test]
fn a_session_without_an_owner_is_that_of_the_first_user_who_continues_it() {
    let (files, database) = (Files::new("sessions of before"), Database::memory());
    // Without a password file, and so as the row of an earlier version.
    let server = Server::on(&database, |_| {});
    half_close(Client::open(&server, of("bob", lasting(V5, "c1"))).stream());
    drop(server);
    let server = files.start(Some(&database));
    let client = Client::open(&server, of("bob", lasting(V5, "c1")));
    assert!(is_present(&client));
    half_close(client.stream());
    assert_eq!(refused(&server, of("eve", lasting(V5, "c1"))), 0x87);
}

#[test]
fn a_change_of_the_files_takes_the_right_to_a_will() {
    for (test, database) in [("wills", None), ("stored wills", Some(Database::memory()))] {
        let files = Files::new(test);
        let server = files.start(database.as_ref());
        let reload = |client: &mut Client, rules: &str| {
            files.rules(rules);
            server.edge.reload();
            let reason = if rules.starts_with("deny") { 0x87 } else { 0x10 };
            eventually(|| puback(client, "alarm/y") == reason, || "the rules do not count".into());
        };
        let mut eve = Client::open(&server, with_will("eve", 0));
        let deny = "deny publish eve alarm/#\nallow all * #";
        reload(&mut eve, deny);
        half_close(eve.stream());
        eventually(|| wills(&server) == [0, 1], || format!("{:?}", wills(&server)));
        let mut eve = Client::open(&server, of("eve", connect(V5, "other")));
        reload(&mut eve, "allow all * #");
        half_close(Client::open(&server, with_will("eve", 3)).stream());
        reload(&mut eve, deny);
        eventually(|| wills(&server) == [0, 2], || format!("{:?}", wills(&server)));
        let mut bob = Client::open(&server, with_will("bob", 0));
        half_close(Client::open(&server, Connect { client_id: "away", ..with_will("bob", 3) }).stream());
        files.users(&["eve"]);
        server.edge.reload();
        bob.expect_disconnect(ReasonCode::NOT_AUTHORIZED);
        eventually(|| wills(&server) == [0, 3], || format!("{:?}", wills(&server)));
        reload(&mut eve, "allow all * #");
        for (number, delay_s) in (1..).zip([0, 1]) {
            half_close(Client::open(&server, with_will("eve", delay_s)).stream());
            eventually(|| wills(&server) == [number, 3], || format!("{:?}", wills(&server)));
        }
    }
}
