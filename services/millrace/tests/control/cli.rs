//! The commands that use the API, of the built program, against a running server.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

/// A person at a terminal, with a folder for their settings.
pub(super) struct Terminal {
    settings: tempfile::TempDir,
}

/// The output of a command.
#[derive(Debug)]
pub(super) struct Said {
    code: Option<i32>,
    pub(super) out: String,
    pub(super) err: String,
}

impl Said {
    #[track_caller]
    pub(super) fn well(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    /// Expects one sentence that contains `words`.
    #[track_caller]
    pub(super) fn badly(self, code: i32, words: &str) {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(self.err.contains(words) && self.out.is_empty(), "{self:?}");
    }

    /// The objects of a `--json` answer.
    #[track_caller]
    pub(super) fn json(self) -> Vec<Value> {
        self.well().out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Terminal {
    pub(super) fn new() -> Self {
        Self { settings: tempfile::tempdir().unwrap() }
    }

    /// Runs a command; spaces separate its arguments.
    pub(super) fn run(&self, command: &str) -> Said {
        self.run_with(command, "", &[])
    }

    pub(super) fn run_with(&self, command: &str, input: &str, variables: &[(&str, &str)]) -> Said {
        self.run_to(command, input, variables, Stdio::piped())
    }

    fn run_to(&self, command: &str, input: &str, variables: &[(&str, &str)], out: Stdio) -> Said {
        let mut program = Command::new(env!("CARGO_BIN_EXE_millrace"));
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("MILLRACE_"))
        {
            program.env_remove(name);
        }
        program.args(command.split(' ')).envs(variables.iter().copied());
        program.env("XDG_CONFIG_HOME", self.settings.path());
        program.stdin(Stdio::piped()).stdout(out).stderr(Stdio::piped());
        let mut child = program.spawn().unwrap();
        // A command that reads no input may have ended already.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let ended = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Said { code: ended.status.code(), out: text(ended.stdout), err: text(ended.stderr) }
    }
}

/// A server whose first person is logged in.
pub(super) fn logged_in() -> (tempfile::TempDir, Server, Terminal) {
    let data = tempfile::tempdir().unwrap();
    let mut server = Server::start(data.path());
    server.first_person();
    let ann = Terminal::new();
    let login = format!("login --url http://{} --email ann@example.org", server.http);
    ann.run_with(&login, &format!("{PASSWORD}\n"), &[]).well();
    (data, server, ann)
}

/// A client of the broker `default`; the channel reports the end of its connection.
fn connected(server: &Server, id: &str) -> std::sync::mpsc::Receiver<()> {
    let (ended, is_ended) = std::sync::mpsc::sync_channel(1);
    let (there, is_there) = std::sync::mpsc::sync_channel(1);
    let options = MqttOptions::new(id, "127.0.0.1", server.mqtt);
    std::thread::spawn(move || {
        let (_client, mut connection) = Client::new(options, 10);
        for event in connection.iter() {
            match event {
                Ok(Event::Incoming(Packet::ConnAck(_))) => there.send(()).unwrap(),
                Ok(_) => {}
                Err(_) => break,
            }
        }
        // The test may be over.
        let _ = ended.send(());
    });
    is_there.recv().unwrap();
    is_ended
}

#[test]
fn what_is_prepared_for_the_broker_of_the_settings_is_in_force_once_it_is_managed() {
    let (_data, server, ann) = logged_in();
    let is_accepted = |user: Option<(&str, &str)>| {
        let id = user.map_or("anonymous", |(user, _)| user);
        let mut options = MqttOptions::new(id, "127.0.0.1", server.mqtt);
        if let Some((user, password)) = user {
            options.set_credentials(user, password);
        }
        let (_client, mut connection) = Client::new(options, 10);
        matches!(connection.recv(), Ok(Ok(Event::Incoming(Packet::ConnAck(_)))))
    };
    let made = ann.run("credentials create pump --broker default --json").json().remove(0);
    let said = ann.run("credentials create valve --broker default").well();
    assert!(
        said.err.contains("millrace brokers manage default") && !said.out.contains("mosquitto"),
        "{said:?}"
    );
    ann.run("rules add allow publish a --broker default").badly(1, "millrace brokers manage default");
    assert!(ann.run("rules list --broker default").well().err.contains("rules file"));
    ann.run("limits set broker.connections=50 --broker default").well();
    let shown = ann.run("brokers show default --json").json().remove(0);
    assert_eq!((&shown["access_by_settings"], &shown["anonymous_allowed"]), (&json!(true), &json!(true)));
    assert!(is_accepted(None), "by the settings");

    ann.run("brokers manage default").badly(1, "add --yes");
    ann.run("brokers manage default --yes").well();
    let shown = ann.run("brokers show default --json").json().remove(0);
    assert_eq!((&shown["access_by_settings"], &shown["anonymous_allowed"]), (&json!(false), &json!(false)));
    // The server reads the change a moment later.
    assert!((0..20_000).any(|_| !is_accepted(None)), "anonymous clients still get in");
    assert!(is_accepted(Some(("pump", made["secret"].as_str().unwrap()))));
    ann.run("rules add allow publish a --broker default").well();
    assert!(ann.run("brokers manage default --yes").well().err.contains("already"));
}

#[test]
fn brokers_credentials_and_rules_are_made_shown_changed_and_deleted() {
    let (_data, server, ann) = logged_in();
    let made = ann.run("brokers create Plant --json").json().remove(0);
    let name = made["name"].as_str().unwrap();
    let spare = ann.run("brokers create Spare").well().out;
    let port = format!("-p {} -u ", server.mqtt);
    assert!(spare.contains("mosquitto_pub -h 127.0.0.1") && spare.contains(&port), "{spare}");
    assert!(spare.contains(&format!("mqtt://127.0.0.1:{}\n", server.mqtt)), "{spare}");
    ann.run("brokers delete Spare --yes").well();
    let table = ann.run("brokers list").well().out;
    assert!(table.starts_with("NAME") && table.contains(name) && table.contains("default"), "{table}");
    ann.run("credentials list").badly(2, "say which with its name");
    assert_eq!(ann.run("brokers show Plant --json").json()[0]["name"], name);
    let changed = ann.run(&format!("brokers update {name} --called Works --json")).json();
    assert_eq!(changed[0]["display_name"], "Works");

    let made = ann.run("credentials create pump-7 --broker Works").well();
    assert!(made.out.contains("secret") && made.err.contains("shown only now"), "{made:?}");
    // The line connects as it is printed.
    let line = made.out.lines().find(|line| line.contains("mosquitto_pub")).unwrap();
    let after = |option: &str| line.split_once(option).unwrap().1.split(' ').next().unwrap().to_owned();
    assert_eq!(after(" -u "), format!("{name}/pump-7"));
    let mut options = MqttOptions::new("pump", "127.0.0.1", after(" -p ").parse::<u16>().unwrap());
    options.set_credentials(after(" -u "), after(" -P "));
    let (_client, mut connection) = Client::new(options, 10);
    let first = connection.recv();
    assert!(matches!(first, Ok(Ok(Event::Incoming(Packet::ConnAck(_))))), "{first:?}");
    ann.run("credentials create pump-7 --broker Works").badly(1, "");
    let own =
        ann.run_with("credentials create pump-8 --password --broker Works --json", "of the factory\n", &[]);
    assert_eq!(own.json()[0]["secret"], Value::Null);
    let all = ann.run("credentials list --broker Works --json").json();
    assert_eq!(all.iter().map(|one| &one["user"]).collect::<Vec<_>>(), ["pump-7", "pump-8"]);
    assert!(all.iter().all(|one| one.get("secret").is_none()));
    let off = ann.run("credentials update pump-7 --enabled false --broker Works --json").json();
    assert_eq!((&off[0]["enabled"], &off[0]["user"]), (&json!(false), &json!("pump-7")));
    assert!(ann.run("credentials rotate pump-7 --broker Works --json").json()[0]["secret"].is_string());
    let overlap = ann.run("credentials rotate pump-7 --overlap-s 60 --broker Works --json").json().remove(0);
    ann.run("credentials rotate pump-7 --overlap-s 90 --broker Works").badly(1, "keep \"previous\"");
    let lost = ann.run("credentials rotate pump-7 --keep previous --broker Works --json").json().remove(0);
    assert_eq!(lost["previous_secret_until_ms"], overlap["previous_secret_until_ms"]);
    assert_ne!(lost["secret"], overlap["secret"]);
    ann.run("credentials delete pump-7 --broker Works").badly(1, "add --yes");
    ann.run("credentials delete pump-7 --yes --broker Works").well();
    ann.run("credentials show pump-7 --broker Works").badly(1, "credential");

    let many = ann.run("credentials create --count 3 --prefix p- --from 9 --broker Works --json").json();
    assert_eq!(many.iter().map(|one| &one["user"]).collect::<Vec<_>>(), ["p-9", "p-10", "p-11"]);
    assert!(many.iter().all(|one| one["secret"].is_string() && one["client_id"] == one["user"]));
    assert_eq!(many[0]["username"], format!("{name}/p-9"));
    let any = ann.run("credentials create --count 1 --prefix q- --unbound --broker Works --json").json();
    assert_eq!(any[0]["client_id"], Value::Null);
    let file =
        ann.run_with("credentials create --file - --broker Works --json", "f-1\nf-2, c-2\n", &[]).json();
    assert_eq!((&file[0]["client_id"], &file[1]["client_id"]), (&Value::Null, &json!("c-2")));
    ann.run("credentials create --count 2 --prefix p- --from 8 --broker Works").badly(1, "\"p-9\"");
    ann.run("credentials create --count 2 --broker Works").badly(2, "--prefix");
    ann.run("credentials create --broker Works").badly(2, "--file");

    let token = ann.run("claim-tokens create line-2 --prefix valve- --uses 1 --broker Works --json").json();
    let secret = token[0]["secret"].as_str().unwrap();
    let device = Terminal::new();
    let claim = format!("claim valve-1 --url http://{} --json", server.http);
    let claimed = device.run_with(&claim, &format!("{secret}\n"), &[]).json();
    assert_eq!(claimed[0]["username"], format!("{}/valve-1", claimed[0]["broker"].as_str().unwrap()));
    assert!(claimed[0]["password"].is_string(), "{claimed:?}");
    let used = device.run_with(&claim, &format!("{secret}\n"), &[]);
    assert!(!used.err.contains("log in"), "{used:?}");
    used.badly(1, "used up");
    let listed = ann.run("claim-tokens list --broker Works").well();
    assert!(listed.out.contains("valve-") && !listed.out.contains(secret), "{listed:?}");
    let id = token[0]["id"].as_str().unwrap();
    ann.run(&format!("claim-tokens delete {id} --yes --broker Works")).well();
    ann.run(&format!("claim-tokens delete {id} --yes --broker Works")).badly(1, "claim token");

    ann.run("rules add allow publish up/%c/# --broker Works").well();
    ann.run("rules add deny all secret/# --before 1 --broker Works").well();
    let filters = |rules: Vec<Value>| rules.iter().map(|one| one["filter"].clone()).collect::<Vec<_>>();
    assert_eq!(filters(ann.run("rules list --broker Works --json").json()), ["secret/#", "up/%c/#"]);
    assert_eq!(filters(ann.run("rules delete 1 --yes --broker Works --json").json()), ["up/%c/#"]);
    ann.run("rules delete 9 --yes --broker Works").badly(1, "there is no rule 9");
    ann.run("rules add allow publish a/#/b --broker Works").badly(1, "rules[1].filter");

    let test = |asked: &str| ann.run(&format!("access test {asked} --broker Works --json")).json().remove(0);
    let allowed = test("p-9 publish up/p-9/heat --user p-9 --qos 1");
    assert_eq!((&allowed["allowed"], &allowed["rule"]["filter"]), (&json!(true), &json!("up/%c/#")));
    assert_eq!(test("p-9 publish up/p-10/heat --user p-9 --retain")["allowed"], false);
    ann.run("access test p-9 subscribe a/#/b --user p-9 --broker Works").badly(1, "topic");
    let mut settings = ann.run("access show --broker Works --json").json().remove(0);
    settings["tokens"] = json!(true);
    let set = ann.run_with("access set --broker Works --json", &settings.to_string(), &[]).json();
    assert_eq!((&set[0]["tokens"], &set[0]["rules"]), (&json!(true), &settings["rules"]));
    ann.run_with("access set --broker Works", "{ \"tokens\": 1 }", &[]).badly(1, "tokens");

    let minutes = ann.run("metrics --step minute --broker Works --json").json();
    assert!(minutes.len() >= 59 && minutes.iter().all(|one| one.get("values").is_some()), "{minutes:?}");
    let table = ann.run("metrics --step hour --broker Works").well().out;
    assert!(table.starts_with("FROM") && table.contains("DELIVERY P99 MS"), "{table}");
    ann.run("metrics --from 5 --to 4 --broker Works").badly(1, "from");
    assert_eq!(ann.run("regions --json").json().len(), 1);
    assert!(ann.run("plans").well().err.contains("There is no plan"));
    assert!(ann.run("prices").well().err.contains("costs nothing"));

    ann.run("brokers delete Works --yes").well();
    ann.run("brokers show Works").badly(1, "there is no broker \"Works\"");
    let log = ann.run("audit --limit 1").well();
    assert!(log.out.contains("broker.delete") && log.err.contains("There are more"), "{log:?}");
}

#[test]
fn a_new_login_leaves_the_claim_tokens_of_the_former_one_and_a_logout_says_that_they_end() {
    let (_data, server, ann) = logged_in();
    let create = "claim-tokens create a --uses 1 --broker default --json --prefix";
    let made = |prefix: &str| {
        let made = ann.run(&format!("{create} {prefix}")).json();
        format!("{}\n", made[0]["secret"].as_str().unwrap())
    };
    let login = format!("login --url http://{} --email ann@example.org", server.http);
    let login = || ann.run_with(&login, &format!("{PASSWORD}\n"), &[]).well().err;
    let claim = |user: &str, secret: &str| {
        ann.run_with(&format!("claim {user} --url http://{}", server.http), secret, &[])
    };
    let first = made("a-");
    let said = login();
    assert!(said.contains("1 claim token that it made would end"), "{said}");
    claim("a-1", &first).well();
    let second = made("b-");
    let said = ann.run("logout").well().err;
    assert!(said.starts_with("1 claim token that this login made"), "{said}");
    claim("b-1", &second).badly(1, "claim token");
    login();
    // The former login had no claim token with uses left, so its API token is deleted.
    let said = login();
    assert!(!said.contains("claim token"), "{said}");
    assert_eq!(ann.run("tokens list --json").json().len(), 2);
}

/// Returns the address of a proxy that loses the first answers, after the server has performed the
/// requests.
fn forgetful(server: &Server, lost: usize) -> std::net::SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, upstream) = (listener.local_addr().unwrap(), server.http.clone());
    std::thread::spawn(move || {
        for (number, client) in listener.incoming().enumerate() {
            let (mut client, mut server) = (client.unwrap(), TcpStream::connect(&upstream).unwrap());
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            if number < lost {
                server.read_exact(&mut [0]).unwrap();
                client.shutdown(std::net::Shutdown::Both).unwrap();
                continue;
            }
            std::thread::spawn(move || std::io::copy(&mut server, &mut client));
        }
    });
    address
}

#[test]
fn passwords_whose_answer_was_lost_or_not_written_are_shown_again() {
    let (_data, server, ann) = logged_in();
    let url = format!("--url http://{}", forgetful(&server, 2));
    let token = ann.run("claim-tokens create a --prefix valve- --uses 2 --broker default --json").json();
    let secret = format!("{}\n", token[0]["secret"].as_str().unwrap());
    let claimed = ann.run_with(&format!("claim valve-1 {url} --json"), &secret, &[]);
    assert!(claimed.err.contains("tried again"), "{claimed:?}");
    assert!(claimed.json()[0]["password"].is_string());
    let key = |said: &Said| {
        let key = said.err.split("--idempotency-key ").nth(1).unwrap_or_else(|| panic!("{said:?}"));
        key.split('`').next().unwrap().to_owned()
    };
    let full = || Stdio::from(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    let claim = format!("claim valve-2 --url http://{} --json", server.http);
    let unseen = ann.run_to(&claim, &secret, &[], full());
    assert_eq!(unseen.code, Some(1), "{unseen:?}");
    let again = format!("{claim} --idempotency-key {}", key(&unseen));
    assert!(ann.run_with(&again, &secret, &[]).json()[0]["password"].is_string());
    ann.run_with(&format!("{claim} --idempotency-key short"), &secret, &[]).badly(2, "32");

    let (reader, closed) = std::io::pipe().unwrap();
    drop(reader);
    let create = "credentials create --count 1100 --prefix p- --broker default --json";
    for (out, from) in [(full(), ""), (closed.into(), " --from 5000")] {
        let create = format!("{create}{from}");
        let unseen = ann.run_to(&create, "", &[], out);
        assert_eq!(unseen.code, Some(1), "{unseen:?}");
        assert!(unseen.err.contains("0 of 1100 credentials were shown"), "{unseen:?}");
        let seen = ann.run(&format!("{create} --idempotency-key {}", key(&unseen))).json();
        assert!(seen.len() == 1_100 && seen.iter().all(|one| one["secret"].is_string()));
    }
}

#[test]
fn clients_are_listed_disconnected_banned_and_sent_away_with_their_broker() {
    let (_data, server, ann) = logged_in();
    let (pump, tank) = (connected(&server, "pump"), connected(&server, "tank"));
    let all = ann.run("clients list --json").json();
    assert_eq!(all.iter().map(|one| &one["client_id"]).collect::<Vec<_>>(), ["pump", "tank"]);
    let page = ann.run("clients list --limit 1").well();
    assert!(
        page.out.contains("pump") && !page.out.contains("tank") && page.err.contains("There are more"),
        "{page:?}"
    );
    assert_eq!(ann.run("clients list --search ta --json").json()[0]["method"], "anonymous");
    assert!(ann.run("clients show pump").well().out.contains("keep_alive_s"));
    ann.run("clients disconnect pump").well();
    pump.recv().unwrap();
    ann.run("clients disconnect pump").badly(1, "client");
    ann.run("clients ban out --client tank --reason too-loud").well();
    tank.recv().unwrap();
    assert_eq!(ann.run("clients bans --json").json()[0]["reason"], "too-loud");
    ann.run("clients ban other --client a --user b").badly(2, "cannot be used with");
    ann.run("clients unban out").well();

    let tank = connected_at_last(&server, "tank");
    ann.run("brokers suspend default").well();
    tank.recv().unwrap();
    ann.run("brokers resume default").well();
    let tank = connected_at_last(&server, "tank");
    ann.run("brokers delete default --yes").well();
    tank.recv().unwrap();
}

/// As [`connected`], as soon as the server accepts the client again.
fn connected_at_last(server: &Server, id: &str) -> std::sync::mpsc::Receiver<()> {
    let is_let_in = || {
        let (_client, mut connection) = Client::new(MqttOptions::new(id, "127.0.0.1", server.mqtt), 10);
        matches!(connection.recv(), Ok(Ok(Event::Incoming(Packet::ConnAck(_)))))
    };
    while !is_let_in() {
        // The pod checks twice a second.
        std::thread::park_timeout(std::time::Duration::from_millis(50));
    }
    connected(server, id)
}

#[test]
fn the_rest_is_read_by_the_same_few_shapes() {
    let (_data, server, ann) = logged_in();
    let subscribe = |client: &Client| client.subscribe("plant/#", QoS::AtLeastOnce).unwrap();
    client(&server, "reader", subscribe, |packet| matches!(packet, Packet::SubAck(_)));
    let publish = |client: &Client| client.publish("plant/1", QoS::AtLeastOnce, true, "21.5").unwrap();
    client(&server, "writer", publish, |packet| matches!(packet, Packet::PubAck(_)));
    let usage = ann.run("usage").well().out;
    assert!(usage.contains("total.used.messages_in") && usage.contains(" min\n"), "{usage}");
    assert_eq!(ann.run("sessions list --api --json").json()[0]["client_id"], "reader");
    assert!(ann.run("sessions show reader --api").well().out.contains("plant/#"));
    ann.run("sessions purge reader --api --yes").well();
    assert!(ann.run("retained list plant/+ --api").well().out.contains("plant/1"));
    assert_eq!(ann.run("retained show plant/1 --api --json").json()[0]["payload"], "21.5");
    ann.run("retained purge plant/1 --api --yes").well();
    let hook = r#"{ "url": "https://hook.example", "events": ["connect"] }"#;
    ann.run_with("webhooks put one", hook, &[]).well();
    ann.run_with("webhooks put one", hook, &[]).well();
    ann.run_with("webhooks put one", "{}", &[]).badly(1, "");
    assert_eq!(ann.run("webhooks list --json").json()[0]["url"], "https://hook.example");
    ann.run("webhooks delete one --yes").well();
}

#[test]
fn a_login_is_for_its_user_alone_and_ends_with_a_logout() {
    let (_data, server, ann) = logged_in();
    let kept = ann.settings.path().join("millrace/login.json");
    assert_eq!(std::fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o600);
    let stored: Value = serde_json::from_slice(&std::fs::read(&kept).unwrap()).unwrap();
    let login = &stored["profiles"]["default"];
    let of = |name: &str| login[name].as_str().unwrap().to_owned();
    let variables =
        [("url", "MILLRACE_URL"), ("organisation", "MILLRACE_ORGANISATION"), ("token", "MILLRACE_TOKEN")]
            .map(|(field, name)| (name, of(field)));
    let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();

    let eve = Terminal::new();
    eve.run("brokers list").badly(1, "millrace login --url URL");
    eve.run_with("brokers list", "", &variables).well();
    let with_token = format!("login --url {} --organisation {} --token", of("url"), of("organisation"));
    eve.run_with(&with_token, &of("token"), &[]).well();
    eve.run("brokers list").well();
    eve.run_with(&with_token, "mlr_wrong", &[]).badly(1, "log in");
    eve.run_with("brokers list", "", &[variables[0], variables[1], ("MILLRACE_TOKEN", "a\nb")])
        .badly(2, "log in again");
    let wrong = format!("login --url http://{} --email ann@example.org", server.http);
    eve.run_with(&wrong, "another sentence\n", &[]).badly(1, "password");
    eve.run("login --url http://a.example --email a@b.example").badly(2, "without TLS");
    eve.run("brokers list --url http://127.0.0.1:1").badly(1, "not logged in");
    let nobody = [("MILLRACE_URL", "http://127.0.0.1:1"), variables[1], variables[2]];
    eve.run_with("brokers list", "", &nobody).badly(1, "cannot be reached");

    ann.run("logout").well();
    assert!(!kept.exists());
    ann.run("logout").badly(1, "not logged in");
    eve.run("brokers list").badly(1, "log in");
}

#[test]
fn a_person_has_profiles_for_several_organisations() {
    let (_data, server, ann) = logged_in();
    let url = format!("http://{}", server.http);
    let other = ann.run("tokens create other --scopes brokers:read --json").json().remove(0);
    let organisation = ann.run("organisations show --json").json()[0]["id"].as_str().unwrap().to_owned();
    let login = format!("login --url {url} --organisation {organisation} --token --profile reader");
    let said = ann.run_with(&login, other["secret"].as_str().unwrap(), &[]).well();
    assert!(said.err.contains("--profile reader"), "{said:?}");

    let current = |terminal: &Terminal| {
        let all = terminal.run("profiles list --json").json();
        let names: Vec<_> = all.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect();
        assert!(!all.iter().any(|one| one.to_string().contains("mlr_")), "{all:?}");
        (names, all.iter().find(|one| one["current"] == true).map(|one| one["name"].clone()))
    };
    let both = vec!["default".to_owned(), "reader".to_owned()];
    assert_eq!(current(&ann), (both.clone(), Some(json!("default"))));
    // The token of the profile may only read.
    ann.run("brokers create Plant").well();
    ann.run("brokers list --profile reader").well();
    ann.run("brokers create Other --profile reader").badly(1, "brokers:write");
    let reader = [("MILLRACE_PROFILE", "reader")];
    ann.run_with("brokers create Other", "", &reader).badly(1, "brokers:write");
    ann.run_with("brokers create Other --profile default", "", &reader).well();
    ann.run("brokers list --profile nobody").badly(1, "default, reader");
    ann.run("profiles use nobody").badly(1, "default, reader");
    ann.run("profiles use reader").well();
    assert_eq!(current(&ann), (both, Some(json!("reader"))));
    ann.run("brokers create Third").badly(1, "brokers:write");
    ann.run("profiles remove reader").well();
    assert_eq!(current(&ann), (vec!["default".to_owned()], None));
    ann.run("brokers list").badly(1, "millrace profiles use");
    ann.run("brokers list --profile default").well();
}

#[test]
fn an_organisation_is_exported_without_secrets() {
    let (_data, _server, ann) = logged_in();
    ann.run("brokers create Plant").well();
    ann.run("credentials create pump-7 --broker Plant").well();
    let lines = ann.run("organisations export").json();
    let of = |kind: &str| lines.iter().filter(|line| line["kind"] == kind).count();
    assert_eq!((of("organisation"), of("member"), of("credential"), of("end")), (1, 1, 1, 1), "{lines:?}");
    assert!(of("broker") >= 1 && of("audit_entry") >= 2, "{lines:?}");
    assert_eq!(lines.last().unwrap()["kind"], "end");
}

#[test]
fn a_login_that_cannot_be_stored_leaves_no_token() {
    let (_data, server, ann) = logged_in();
    let tokens = || ann.run("tokens list --json").json().len();
    let before = tokens();
    let bob = Terminal::new();
    std::fs::create_dir_all(bob.settings.path().join("millrace/login.new")).unwrap();
    let login = format!("login --url http://{} --email ann@example.org", server.http);
    bob.run_with(&login, &format!("{PASSWORD}\n"), &[]).badly(1, "cannot be written");
    assert_eq!(tokens(), before);
}

#[test]
fn a_login_expires_and_the_audit_log_names_who_used_it() {
    let (_data, server, ann) = logged_in();
    let token = ann.run("tokens list --json").json().remove(0);
    let lasts_ms = token["expires_at_ms"].as_u64().unwrap() - token["created_at_ms"].as_u64().unwrap();
    assert_eq!(lasts_ms.div_ceil(86_400_000), 90);
    ann.run("brokers create Plant").well();
    let log = ann.run("audit --json").json();
    let made = log.iter().find(|entry| entry["action"] == "broker.create").unwrap();
    assert_eq!(made["actor"]["made_by"], "ann@example.org");
    assert!(made["actor"]["agent"].as_str().unwrap().starts_with("millrace/"), "{made}");
    let login = format!("login --url http://{} --email ann@example.org --days 0", server.http);
    ann.run_with(&login, &format!("{PASSWORD}\n"), &[]).badly(2, "from 1 to 365");
}

#[test]
fn people_parts_limits_and_caps_are_managed() {
    let (_data, _server, ann) = logged_in();
    assert_eq!(ann.run("members list --json").json()[0]["email"], "ann@example.org");
    let invited = ann.run("invitations create bob@example.org --role viewer --json").json().remove(0);
    assert_eq!(ann.run("invitations list --json").json()[0]["id"], invited["id"]);
    ann.run(&format!("invitations delete {}", invited["id"].as_str().unwrap())).well();
    ann.run("members update ann@example.org --role viewer").badly(1, "last owner");
    ann.run("members remove eve@example.org --yes").badly(1, "millrace members list");
    let made = ann.run("tokens create ci --scopes brokers:read,audit:read --days 7 --json").json().remove(0);
    assert!(made["secret"].as_str().unwrap().starts_with("mlr_"), "{made}");
    ann.run(&format!("tokens delete {} --yes", made["id"].as_str().unwrap())).well();
    let renamed = ann.run("organisations update --name Works --json").json();
    assert_eq!(
        (&renamed[0]["name"], &ann.run("organisations show --json").json()[0]["name"]),
        (&json!("Works"), &json!("Works"))
    );

    let rules = r#"{"rules":[{"effect":"allow","action":"publish","filter":"a"}]}"#;
    ann.run_with("groups put pumps --broker default", rules, &[]).well();
    assert_eq!(ann.run("groups show pumps --broker default --json").json()[0]["rules"][0]["filter"], "a");
    ann.run("groups delete pumps --yes --broker default").well();
    assert_eq!(ann.run("issuers list --broker default --json").json(), Vec::<Value>::new());
    ann.run("cas show none --broker default").badly(1, "client CA");
    let set =
        ann.run("limits set broker.connections=50 client.subscriptions=7 --broker default --json").json();
    assert_eq!((&set[0]["broker.connections"], &set[0]["client.subscriptions"]), (&json!(50), &json!(7)));
    ann.run("limits set connections=1 --broker default").badly(2, "is not a limit");
    ann.run("caps set 1000000 --action continue --all").well();
    assert_eq!(ann.run("caps show --all --json").json()[0]["monthly_micros"], 1_000_000);
    ann.run("caps delete --all --yes").well();
    assert!(ann.run("metrics --broker default --json").json()[0]["connections"].is_u64());
    ann.run("incidents list --broker default").well();
    let shown = ann.run("limits show --broker default").well().out;
    assert!(shown.contains("the server's own"), "{shown}");
}

type Fields = &'static [(&'static str, &'static str)];

/// Each line: a command, its standard input, and what its `--json` answer has, field by field.
const VERBS: &[(&str, &str, Fields)] = &[
    (
        "credentials create a --scram --client-id a-1 --expires 7",
        "",
        &[("scram", "true"), ("client_id", "\"a-1\"")],
    ),
    (
        "credentials update a --client-id a-2 --expires 0",
        "",
        &[("client_id", "\"a-2\""), ("expires_at_ms", "null")],
    ),
    ("credentials update a --client-id  --enabled false", "", &[("client_id", "null"), ("enabled", "false")]),
    ("credentials rotate a --scram false", "", &[("scram", "false")]),
    ("credentials rotate a --overlap-s 60", "", &[("user", "\"a\"")]),
    ("credentials rotate a --keep previous", "", &[("user", "\"a\"")]),
    ("credentials rotate a --keep current --overlap-s 60", "", &[("user", "\"a\"")]),
    ("credentials rotate a", "", &[("previous_secret_until_ms", "null")]),
    ("credentials show a", "", &[("scram", "false"), ("enabled", "false")]),
    ("rules add allow publish up/# --qos-max 1 --no-retain", "", &[("qos_max", "1"), ("retain", "false")]),
    (
        "rules add allow publish own/# --qos-max 1 --credential a",
        "",
        &[("filter", "\"own/#\""), ("qos_max", "1"), ("number", "1")],
    ),
    ("rules list --credential a", "", &[("filter", "\"own/#\"")]),
    ("credentials show a", "", &[("enabled", "false"), ("client_id", "null")]),
    ("rules delete 1 --yes --credential a", "", &[]),
    ("connect-tokens create --publish up/# --client-id page-1", "", &[("client_id", "\"page-1\"")]),
    ("credentials create --count 1 --prefix s- --scram", "", &[("scram", "true"), ("user", "\"s-1\"")]),
    ("webhooks put orders", r#"{"url":"https://example.com/hook","events":["connect"],"enabled":true}"#, &[]),
    ("webhooks list", "", &[("name", "\"orders\""), ("enabled", "true")]),
    ("webhooks show orders", "", &[("url", "\"https://example.com/hook\"")]),
    ("webhooks rotate-key orders --overlap-s 60", "", &[("key_number", "1")]),
    ("webhooks status orders", "", &[("queued_events", "0")]),
    ("webhooks deliveries orders", "", &[]),
    ("webhooks dead-letters orders", "", &[]),
    ("webhooks retry orders", "", &[]),
    ("webhooks delete orders --yes", "", &[]),
    ("issuers list", "", &[]),
    ("cas list", "", &[]),
    ("groups list", "", &[]),
    ("claim-tokens list", "", &[]),
    ("sessions list --api", "", &[]),
    ("clients list", "", &[]),
    ("incidents list", "", &[]),
    ("usage", "", &[]),
];

#[test]
fn each_verb_of_a_broker_sends_what_its_flags_say() {
    let (_data, _server, ann) = logged_in();
    ann.run("brokers create Plant").well();
    for (command, input, fields) in VERBS {
        let answer = ann.run_with(&format!("{command} --broker Plant --json"), input, &[]).json();
        for (name, value) in *fields {
            assert_eq!(answer[0][*name].to_string(), **value, "{command}: {answer:?}");
        }
    }
    let made = ann.run("credentials create b --expires 7 --broker Plant --json").json().remove(0);
    let lasts = made["expires_at_ms"].as_u64().unwrap() - made["created_at_ms"].as_u64().unwrap();
    // Both clocks are this machine's.
    assert!((6 * 86_400_000..8 * 86_400_000).contains(&lasts), "{made}");
    ann.run("credentials create --count 2 --prefix p- --expires 7 --broker Plant").badly(2, "--expires");
    for limit in ["--no-retain", "--qos-max 1"] {
        let denied = ann.run(&format!("rules add deny publish up/# {limit} --broker Plant"));
        denied.badly(2, "limit an allow rule");
    }
}

#[test]
fn a_message_goes_from_pub_to_sub() {
    let (_data, _server, ann) = logged_in();
    ann.run("pub a/b kept --retain --broker default").well();
    let shown = ann.run("sub a/# --retained --count 1 --broker default").well();
    assert_eq!(shown.out, "a/b kept\n");
    ann.run_with("pub a/c --retain --broker default", "of\u{1b} standard input", &[]).well();
    let shown = ann.run("sub a/c --retained --count 1 --json --broker default").json();
    assert_eq!((&shown[0]["topic"], &shown[0]["retain"]), (&json!("a/c"), &json!(true)));
    ann.run("pub a/# x --broker default").badly(1, "");
    let properties = "--content-type text/plain --response-topic b --correlation-data 7 --message-expiry-s 600 \
                      --user-property unit=C=1 --user-property unit=F";
    ann.run(&format!("pub a/d 21 --retain {properties} --broker default")).well();
    let shown = ann.run("sub a/d --retained --count 1 --json --broker default").json().remove(0);
    let properties = &shown["properties"];
    assert_eq!(properties["content_type"], "text/plain", "{shown}");
    assert_eq!(properties["response_topic"], "b");
    assert_eq!(properties["correlation_data_base64"], "Nw==");
    let user = json!([{ "name": "unit", "value": "C=1" }, { "name": "unit", "value": "F" }]);
    assert_eq!(properties["user_properties"], user);
    assert!(properties["message_expiry_s"].as_u64().is_some_and(|left| (1..=600).contains(&left)), "{shown}");
    ann.run("pub a b --user-property unit --broker default").badly(2, "--user-property");
}

#[test]
fn operators_read_the_audit_log_of_the_region() {
    let (_data, server, ann) = logged_in();
    let log = format!("region-audit --admin http://{}", server.admin);
    ann.run(&log).well();
    let admin = format!("--admin http://{}", server.admin);
    ann.run(&format!("region-plans put small broker.connections=1000 {admin}")).well();
    let entries = ann.run(&format!("{log} --action plan. --json")).json();
    assert_eq!((entries.len(), &entries[0]["target"]), (1, &json!("small")), "{entries:?}");
    ann.run(&format!("{log} --action nothing.")).well();
    let made = ann.run("tokens create Terraform --scopes brokers:read --json").json().remove(0);
    let shown = ann.run("audit --action token.create --limit 1").well().out;
    assert!(shown.contains(&format!("Terraform ({})", made["id"].as_str().unwrap())), "{shown}");
}

#[test]
fn a_login_asks_for_the_code_of_a_second_factor_and_operators_make_links_for_new_passwords() {
    let data = tempfile::tempdir().unwrap();
    let mut server = Server::start(data.path());
    let (ann, _) = server.first_person();
    let begun = server.ask(&ann, "POST", "/me/second-factor", &json!({ "password": PASSWORD }));
    let secret = totp_rs::Secret::try_from_base32(begun.body["secret"].as_str().unwrap()).unwrap();
    let device = totp_rs::Builder::new().with_secret(secret).build_noncompliant();
    // The step may end while the request is on its way.
    let confirmed = (0..10).map(|_| {
        let now_s = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
        let code = json!({ "code": device.generate(now_s).to_string() });
        server.ask(&ann, "POST", "/me/second-factor/confirm", &code)
    });
    let confirmed = { confirmed }.find(|answer| answer.status == 200).unwrap();
    let recovery = |number: usize| confirmed.body["recovery_codes"][number].as_str().unwrap().to_owned();

    let terminal = Terminal::new();
    let login = format!("login --url http://{} --email ann@example.org", server.http);
    terminal.run_with(&login, &format!("{PASSWORD}\n"), &[]).badly(2, "Code of the second factor");
    terminal.run_with(&login, &format!("{PASSWORD}\nwrong\n"), &[]).badly(1, "the code is not right");
    terminal.run_with(&login, &format!("{PASSWORD}\n{}\n", recovery(0)), &[]).well();
    terminal.run("brokers list").well();

    let reset = format!("accounts reset-link --admin http://{}", server.admin);
    terminal.run(&format!("{reset} eve@example.org")).badly(1, "no such account");
    let said = terminal.run(&format!("{reset} ann@example.org")).well();
    let base = format!("http://{}/reset-password#token=", server.http);
    let token = said.out.trim().strip_prefix(&base).unwrap_or_else(|| panic!("{said:?}"));
    let new = "another sentence that nobody knows";
    let answer = server.ask(
        &Browser::default(),
        "POST",
        "/password-reset/confirm",
        &json!({ "token": token, "password": new }),
    );
    assert_eq!(answer.status, 204, "{}", answer.body);
    terminal.run_with(&login, &format!("{new}\n{}\n", recovery(1)), &[]).well();
}

#[test]
fn a_token_needs_no_more_permissions_than_its_commands() {
    let (_data, server, ann) = logged_in();
    let organisation = ann.run("organisations show --json").json()[0]["id"].as_str().unwrap().to_owned();
    let name = ann.run("brokers create Plant --json").json()[0]["name"].as_str().unwrap().to_owned();
    let login = |organisation: &str, profile: &str, scopes: &str| {
        let made = ann.run(&format!("tokens create {profile} --scopes {scopes} --json")).json().remove(0);
        let login = format!(
            "login --url http://{} --organisation {organisation} --token --profile {profile}",
            server.http
        );
        ann.run_with(&login, made["secret"].as_str().unwrap(), &[])
    };
    login(&organisation, "publisher", "messages:write").well();
    ann.run(&format!("pub a b --broker {name} --profile publisher")).well();
    ann.run("pub a b --broker Plant --profile publisher").badly(1, "broker");
    ann.run("pub a b --broker Plant").well();
    ann.run("pub a b --broker nowhere").badly(1, "millrace brokers list");
    login("00000000-0000-4000-8000-000000000000", "lost", "messages:write").badly(1, &organisation);

    // Only an object that is not there is made.
    login(&organisation, "writer", "access:write").well();
    let rules = r#"{"rules":[]}"#;
    ann.run_with("groups put pumps --broker default", rules, &[]).well();
    ann.run_with("groups put pumps --broker default --profile writer", rules, &[]).badly(1, "access:read");
}

#[test]
fn a_secret_that_cannot_be_shown_is_a_failure() {
    let (_data, _server, ann) = logged_in();
    for create in
        ["tokens create ci --scopes brokers:read", "invitations create bob@example.org --role viewer"]
    {
        let (reader, closed) = std::io::pipe().unwrap();
        drop(reader);
        let unseen = ann.run_to(create, "", &[], closed.into());
        assert_eq!(unseen.code, Some(1), "{unseen:?}");
    }
}
