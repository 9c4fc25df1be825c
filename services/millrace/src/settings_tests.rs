//! Precedence, the sentences for what is not allowed, and the rules about who may connect.

use super::*;

/// A file with this content, gone with the test.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("millrace-{}-{name}.toml", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn load_with(flags: &[&str], environment: &[(&str, &str)]) -> Result<(Settings, Vec<String>), String> {
    let args = ["millrace", "serve"].iter().chain(flags).map(OsString::from).collect();
    let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    load(args, environment).map_err(|failure| match failure {
        Failure::Usage(error) => error.to_string(),
        Failure::Settings(sentence) | Failure::Run(sentence) => sentence,
    })
}

fn settings(flags: &[&str], environment: &[(&str, &str)]) -> Settings {
    load_with(flags, environment).unwrap().0
}

#[test]
fn defaults_are_three_loopback_listeners_open_to_this_machine() {
    let settings = settings(&[], &[]);
    assert_eq!(settings.edge.mqtt_listen, ["127.0.0.1:1883".parse().unwrap()]);
    assert_eq!(settings.edge.ws_listen, ["127.0.0.1:8083".parse().unwrap()]);
    assert_eq!(settings.http_listen, Some("127.0.0.1:8080".parse().unwrap()));
    assert_eq!(settings.edge.limits, EdgeLimits::default());
    assert!(settings.edge.authentication.allow_anonymous);
    assert!(!settings.open_to_everybody);
}

#[test]
fn a_flag_beats_the_environment_beats_the_file_beats_the_default() {
    let file = File::new(
        "precedence",
        "packet_size_max = 1000\nthreads = 3\nmqtt_listen = [\"127.0.0.1:1\", \"[::1]:1\"]",
    );
    let path = file.0.to_str().unwrap();
    let environment = [("MILLRACE_PACKET_SIZE_MAX", "2000"), ("MILLRACE_THREADS", "4")];
    type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], u32, usize, usize);
    let cases: [Case; 5] = [
        (&[], &[], 1024 * 1024, 0, 1),
        (&["--config", path], &[], 1000, 3, 2),
        (&[], &[("MILLRACE_CONFIG", path)], 1000, 3, 2),
        (&["--config", path], &environment, 2000, 4, 2),
        (
            &["--config", path, "--packet-size-max", "3000", "--mqtt-listen=127.0.0.1:2"],
            &environment,
            3000,
            4,
            1,
        ),
    ];
    for (flags, environment, packet_size_max, threads, listeners) in cases {
        let settings = settings(flags, environment);
        assert_eq!(settings.edge.limits.packet_size_max, packet_size_max, "{flags:?} {environment:?}");
        assert_eq!(settings.edge.threads, threads, "{flags:?} {environment:?}");
        assert_eq!(settings.edge.mqtt_listen.len(), listeners, "{flags:?} {environment:?}");
    }
}

#[test]
fn every_setting_can_be_set_in_the_file_and_in_the_environment() {
    for name in names() {
        let sentence = load_with(&[], &[(&variable(&name), "\u{1}")]).map(|_| ());
        let path_or_command = ["data_dir", "password_file", "rules_file", "tls_dir", "secret_key_command"];
        assert_eq!(sentence.is_ok(), path_or_command.contains(&name.as_str()), "{name}: {sentence:?}");
    }
}

#[test]
fn what_is_not_allowed_is_said_with_key_value_and_what_is() {
    let cases = [
        (
            "packet_size_max = \"big\"",
            "packet_size_max = \"big\" is not allowed: a whole number from 64 to 268435460",
        ),
        ("receive_maximum = 0", "receive_maximum = \"0\" is not allowed: a whole number from 1 to 65535"),
        ("threads = 1.5", "threads = \"1.5\" is not allowed: a whole number from 0 to 1024"),
        (
            "server_reference = \"a  b\"",
            "server_reference = \"a  b\" is not allowed: names of servers with a space between them are allowed",
        ),
        ("log_format = \"xml\"", "log_format = \"xml\" is not allowed: text or json is allowed"),
        ("log_level = \"loud\"", "log_level = \"loud\" is not allowed"),
        (
            "mqtt_listen = \"here\"",
            "mqtt_listen = \"here\" is not allowed: an IP address with a port is allowed",
        ),
        ("mqtt_listen = [\"off\", \"127.0.0.1:1\"]", "mqtt_listen has \"off\" beside addresses"),
        (
            "gateway_from = [\"lb\"]",
            "gateway_from = \"lb\" is not allowed: an IP address or a network is allowed",
        ),
        (
            "allow_anonymous = \"maybe\"",
            "allow_anonymous = \"maybe\" is not allowed: true or false is allowed",
        ),
        ("mqtt_lisen = \"off\"", "unknown key \"mqtt_lisen\"; did you mean \"mqtt_listen\"?"),
        ("zzz = 1", "unknown key \"zzz\"; allowed are admin_listen, allow_anonymous, "),
        ("config = \"other.toml\"", "unknown key \"config\""),
        ("[limits]\npacket_size_max = 1", "unknown key \"limits\""),
        ("threads = ", "is not valid TOML"),
        (
            "packet_size_max = 8000001",
            "packet_size_max = 8000001 is too large: the store holds messages of at most",
        ),
        ("mqtt_listen = \"off\"\nws_listen = \"off\"", "no client could connect: leave one of them on"),
    ];
    for (number, (text, expected)) in cases.into_iter().enumerate() {
        let file = File::new(&format!("wrong-{number}"), text);
        let sentence = load_with(&["--config", file.0.to_str().unwrap()], &[]).unwrap_err();
        assert!(sentence.contains(expected), "{text}\n{sentence}");
    }
    let sentence = load_with(&[], &[("MILLRACE_THREADS", "many")]).unwrap_err();
    assert!(sentence.starts_with("environment variable MILLRACE_THREADS: threads = \"many\""), "{sentence}");
    let sentence = load_with(&["--config", "/nowhere/at/all.toml"], &[]).unwrap_err();
    assert!(sentence.contains("/nowhere/at/all.toml cannot be read"), "{sentence}");
}

#[test]
fn a_variable_that_is_no_setting_is_told_and_an_empty_one_is_unset() {
    let (settings, ignored) =
        load_with(&[], &[("MILLRACE_TREADS", "1"), ("MILLRACE_THREADS", ""), ("OTHER", "1")]).unwrap();
    assert_eq!((settings.edge.threads, ignored), (0, vec!["MILLRACE_TREADS".to_owned()]));
}

#[test]
fn nobody_unknown_is_let_in_from_outside_unless_that_was_said() {
    // Flags, then the result: (anonymous clients may connect, open to everybody), or a part of the
    // error.
    type Case<'a> = (&'a [&'a str], Result<(bool, bool), &'a str>);
    let cases: [Case; 21] = [
        (&[], Ok((true, false))),
        (&["--allow-anonymous"], Ok((true, false))),
        (&["--allow-anonymous=true"], Ok((true, false))),
        // Clients of brokers that were made with the API can still connect.
        (&["--allow-anonymous=false"], Ok((false, false))),
        (&["--allow-anonymous=false", "--mqtt-listen=0.0.0.0:1"], Ok((false, false))),
        (&["--allow-anonymous=false", "--data-dir=off"], Err("no client could connect: set --password-file")),
        (
            &["--allow-anonymous=false", "--http-listen=off"],
            Err("no client could connect: set --password-file"),
        ),
        (&["--password-file=p"], Ok((false, false))),
        (&["--password-file=p", "--allow-anonymous"], Ok((true, false))),
        (&["--mqtt-listen=127.8.0.1:1"], Ok((true, false))),
        (&["--mqtt-listen=[::1]:1"], Ok((true, false))),
        (&["--mqtt-listen=[::ffff:127.0.0.1]:1"], Ok((true, false))),
        (&["--mqtt-listen=0.0.0.0:1"], Err("0.0.0.0:1 can be reached by others")),
        (&["--gateway-listen=127.0.0.1:2"], Err("127.0.0.1:2 can be reached by others")),
        (&["--gateway-listen=127.0.0.1:2", "--password-file=p"], Ok((false, false))),
        (&["--mqtt-listen=[::]:1"], Err("[::]:1 can be reached by others")),
        (&["--mqtt-listen=127.0.0.1:1,10.0.0.1:1"], Err("Set --password-file FILE")),
        (&["--ws-listen=192.168.1.5:1"], Err("or --allow-anonymous to accept everybody")),
        (&["--ws-listen=0.0.0.0:1", "--allow-anonymous"], Ok((true, true))),
        (&["--ws-listen=0.0.0.0:1", "--password-file=p"], Ok((false, false))),
        (&["--http-listen=0.0.0.0:1"], Ok((true, false))),
    ];
    for (flags, expected) in cases {
        match (load_with(flags, &[]), expected) {
            (Ok((settings, _)), Ok((anonymous, open))) => {
                assert_eq!(settings.edge.authentication.allow_anonymous, anonymous, "{flags:?}");
                assert_eq!(settings.open_to_everybody, open, "{flags:?}");
            }
            (Err(sentence), Err(words)) => assert!(sentence.contains(words), "{flags:?}: {sentence}"),
            (found, _) => panic!("{flags:?}: {found:?}"),
        }
    }
}

#[test]
fn limits_that_do_not_fit_together_are_refused_with_the_least_that_would() {
    let refused = load_with(&["--outbound-hard-bytes=1000000"], &[]).map(|_| ());
    let sentence = refused.expect_err("a hard limit below the soft one");
    assert!(
        sentence.contains("outbound_hard_bytes = 1000000 is too small: it must be at least 10485760"),
        "{sentence}"
    );
    assert!(
        load_with(
            &["--outbound-hard-bytes=1000000", "--outbound-soft-bytes=100000", "--mailbox-bytes-max=100000"],
            &[]
        )
        .is_ok()
    );
}

#[test]
fn listeners_can_be_off() {
    let settings = settings(&["--ws-listen=off", "--http-listen", "off"], &[]);
    assert!(settings.edge.ws_listen.is_empty());
    assert_eq!(settings.http_listen, None);
}

#[test]
fn the_data_folder_is_found_where_the_server_with_the_same_settings_has_it() {
    let file = File::new("data-dir", "data_dir = \"/of/file\"\nthreads = 2\n");
    let path = file.0.to_str().unwrap();
    let at = |flag: Option<&str>, config: Option<&str>, environment: &[(&str, &str)]| {
        let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let found = data_dir(flag.map(PathBuf::from), config.map(PathBuf::from), environment);
        found.map(|path| path.display().to_string()).map_err(|failure| format!("{failure:?}"))
    };
    let both = [("MILLRACE_DATA_DIR", "/of/environment"), ("MILLRACE_CONFIG", path)];
    for (found, expected) in [
        (at(None, None, &[]), "./data"),
        (at(None, Some(path), &[]), "/of/file"),
        (at(None, None, &both[1..]), "/of/file"),
        (at(None, None, &[("MILLRACE_DATA_DIR", ""), both[1]]), "/of/file"),
        (at(None, None, &both), "/of/environment"),
        (at(Some("/of/flag"), Some("/nowhere"), &both), "/of/flag"),
    ] {
        assert_eq!(found.unwrap(), expected);
    }
    assert!(at(None, Some("/nowhere"), &[]).unwrap_err().contains("cannot be read"));
    assert!(at(Some("off"), None, &[]).unwrap_err().contains("data_dir is off"));
    let cluster = [("MILLRACE_STORE", "foundationdb")];
    assert!(at(None, None, &cluster).unwrap_err().contains("store is foundationdb"));
    assert_eq!(at(Some("/of/flag"), None, &cluster).unwrap(), "/of/flag");
}

#[test]
fn a_cluster_is_named_with_all_that_belongs_to_it_and_with_nothing_else() {
    let fdb = "--store=foundationdb";
    for (flags, refused) in [
        (
            &["--fdb-prefix=a"][..],
            "fdb_prefix is for a store that several processes share: set store to foundationdb",
        ),
        (&["--store=embedded", "--pod=a"], "pod is for a store that several processes share"),
        (&["--fdb-tls-ca=a", "--data-dir=off"], "fdb_tls_ca is for a store"),
        (&["--store=postgres"], "[possible values: embedded, foundationdb]"),
        (&[fdb, "--fdb-prefix=a/b"], "a name of 1 to 15 letters"),
        (&[fdb, "--pod=a b"], "a name of 1 to 100 printable"),
    ] {
        let sentence = load_with(flags, &[]).map(drop).unwrap_err();
        assert!(sentence.contains(refused), "{flags:?}: {sentence}");
    }
    if !cfg!(feature = "foundationdb") {
        let sentence = load_with(&[fdb], &[]).map(drop).unwrap_err();
        assert!(sentence.contains("cargo build --release -p millrace --features foundationdb"), "{sentence}");
        return;
    }
    for (flags, refused) in [
        (&["--data-dir=/d"][..], "leave data_dir out, or set store to embedded"),
        (&["--data-dir=off"], "leave data_dir out"),
        (&["--fdb-tls-key=k"], "fdb_tls_cert and fdb_tls_key belong together"),
    ] {
        let sentence = load_with(&[&[fdb], flags].concat(), &[]).map(drop).unwrap_err();
        assert!(sentence.contains(refused), "{flags:?}: {sentence}");
    }
    let StoreLocation::Cluster(cluster) = settings(&[fdb], &[]).store else { panic!("another store") };
    assert_eq!(
        (cluster.file.to_str(), &*cluster.prefix),
        (Some("/etc/foundationdb/fdb.cluster"), "millrace")
    );
    let said = ["--fdb-cluster-file=f", "--fdb-prefix=p", "--fdb-tls-cert=c", "--fdb-tls-key=k", "--pod=one"];
    let named = settings(&said, &[("MILLRACE_STORE", "foundationdb")]);
    assert_eq!(named.edge.pod.as_deref(), Some("one"));
    let StoreLocation::Cluster(cluster) = named.store else { panic!("another store") };
    assert_eq!((cluster.file.to_str(), &*cluster.prefix), (Some("f"), "p"));
    assert_eq!((cluster.tls_cert, cluster.tls_key), (Some("c".into()), Some("k".into())));
}

#[test]
fn a_process_among_several_has_a_name_of_its_own() {
    if cfg!(feature = "foundationdb") {
        let pod = || settings(&["--store=foundationdb"], &[]).edge.pod.unwrap();
        assert_ne!(pod(), pod());
    }
    assert_eq!(settings(&[], &[]).edge.pod, None);
}

#[test]
fn several_pods_in_one_process_are_for_a_data_folder() {
    for (flags, refused) in [
        (&["--pods=3", "--data-dir=off"][..], "data_dir is off: name a folder, or leave pods out"),
        (&["--pods=3", "--pod=a"], "pod is for a store that several processes share"),
        (&["--pods=0"], "a whole number from 1 to 16 is allowed"),
    ] {
        let sentence = load_with(flags, &[]).map(drop).unwrap_err();
        assert!(sentence.contains(refused), "{flags:?}: {sentence}");
    }
    if cfg!(feature = "foundationdb") {
        let sentence = load_with(&["--pods=3", "--store=foundationdb"], &[]).map(drop).unwrap_err();
        assert!(sentence.contains("start a process for each pod"), "{sentence}");
    }
    let edge = settings(&["--pods=3", "--nats=nats://a:4222"], &[]).edge;
    assert_eq!(edge.pod.as_deref(), Some("pod-1"));
    assert_eq!(edge.fabric.unwrap().pod_name, "pod-1");
}

#[test]
fn the_network_between_processes_is_refused_where_it_cannot_be() {
    for (flags, refused) in [
        (&["--nats=nats://a:4222"][..], "nats is for processes that share a store"),
        (&["--nats-region=eu"], "nats_region says how NATS is reached, but not where"),
        (&["--nats-password-file=p"], "nats_password_file says how NATS is reached"),
    ] {
        let sentence = load_with(flags, &[]).map(drop).unwrap_err();
        assert!(sentence.contains(refused), "{flags:?}: {sentence}");
    }
    if !cfg!(feature = "foundationdb") {
        return;
    }
    let shared = ["--store=foundationdb", "--pod=one", "--nats=nats://a:4222,nats://b:4222"];
    for (flags, refused) in [
        (&["--nats-tls-cert=c"][..], "nats_tls_cert and nats_tls_key belong together"),
        (&["--nats-user=u", "--nats-nkey=k"], "NATS authenticates a process in one way"),
        (&["--nats-user=u", "--nats-password-file=/nowhere"], "nats_password_file /nowhere cannot be read"),
    ] {
        let sentence = load_with(&[&shared, flags].concat(), &[]).map(drop).unwrap_err();
        assert!(sentence.contains(refused), "{flags:?}: {sentence}");
    }
    let fabric = settings(&[&shared[..], &["--nats-tls-ca=ca"]].concat(), &[]).edge.fabric.unwrap();
    assert_eq!((&*fabric.pod_name, &*fabric.region, fabric.servers.len()), ("one", "millrace", 2));
    assert!(fabric.tls.is_some_and(|tls| tls.ca.is_some() && tls.identity.is_none()));
}

#[test]
fn services_of_tenants_are_called_on_the_public_internet_alone_unless_it_is_said() {
    let calls = |flags: &[&str]| settings(flags, &[]).edge.outgoing;
    assert!(calls(&[]).allow.is_empty() && !calls(&[]).plain_http);
    let said = calls(&["--outgoing-allow=127.0.0.0/8,10.1.2.3", "--outgoing-http"]);
    assert_eq!(said.allow, ["127.0.0.0/8".parse().unwrap(), "10.1.2.3/32".parse().unwrap()]);
    assert!(said.plain_http);
    assert!(load_with(&["--outgoing-allow=localhost"], &[]).is_err());
}
