//! Credentials and TLS: accepted ones connect, refused ones are explained.

use std::fs;
use std::path::{Path, PathBuf};

use millrace_fabric::{Credentials, Fabric, FabricSettings, NatsTls, To};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use crate::support::{Pod, Server, know_each_other, needs_nats};

const BROKER: To = To::Broker(7);

/// An authority, a server's certificate for 127.0.0.1, one for another name, and one for pods, in
/// files.
struct Certificates(TempDir);

impl Certificates {
    fn make() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for authority in ["ca", "other-ca"] {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new([]).unwrap();
            params.distinguished_name.push(DnType::CommonName, authority);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let certificate = params.self_signed(&key).unwrap();
            fs::write(folder.path().join(authority), certificate.pem()).unwrap();
            if authority == "ca" {
                let issuer = Issuer::new(params, key);
                for (file, name) in
                    [("server", "127.0.0.1"), ("other-server", "nats.example"), ("pod", "pod")]
                {
                    let key = KeyPair::generate().unwrap();
                    let params = CertificateParams::new([name.to_owned()]).unwrap();
                    let certificate = params.signed_by(&key, &issuer).unwrap();
                    fs::write(folder.path().join(file), certificate.pem()).unwrap();
                    fs::write(folder.path().join(format!("{file}.key")), key.serialize_pem()).unwrap();
                }
            }
        }
        Self(folder)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    fn server(&self, name: &str, verify: bool) -> String {
        let file = |file: &str| self.path(file).display().to_string();
        format!(
            "tls {{ cert_file: {:?}, key_file: {:?}, ca_file: {:?}, verify: {verify} }}",
            file(name),
            file(&format!("{name}.key")),
            file("ca"),
        )
    }

    fn tls(&self, ca: &str, identity: bool) -> NatsTls {
        let identity = identity.then(|| (self.path("pod"), self.path("pod.key")));
        NatsTls { ca: Some(self.path(ca)), identity }
    }
}

fn password(password: &str) -> Credentials {
    Credentials::Password { user: "pod".into(), password: password.into() }
}

/// Two pods with these settings reach each other.
#[track_caller]
fn works(server: &Server, change: impl Fn(&mut FabricSettings)) {
    let pods: [Pod; 2] = std::array::from_fn(|_| Pod::start_with(&server.url(), &change));
    know_each_other(&pods.each_ref());
    let [a, b] = pods;
    b.join(BROKER);
    a.send_all(BROKER, 0..1000, 1000);
    a.until_accounted(&b, BROKER, 1000);
    b.seen(|seen| assert_eq!(seen.gaps, []));
}

/// A pod with these settings does not come in, and says why.
#[track_caller]
fn fails(server: &Server, change: impl FnOnce(&mut FabricSettings), why: &str) {
    let pod = Pod::start_with(&server.url(), change);
    let said = pod.wait("to say why", |seen| {
        let problem = seen.health.last()?.problem.clone()?;
        (!problem.contains("not reached yet")).then_some(problem)
    });
    assert!(said.contains(why), "{said}");
    assert!(!pod.fabric.health().connected);
}

#[test]
fn user_and_password() {
    needs_nats!();
    let server = Server::start("authorization { user: pod, password: secret }");
    works(&server, |settings| settings.credentials = password("secret"));
    let refused = "it refused this pod: check user and password";
    fails(&server, |settings| settings.credentials = password("wrong"), refused);
    fails(&server, |_| {}, refused);
}

#[test]
fn token() {
    needs_nats!();
    let server = Server::start("authorization { token: secret }");
    works(&server, |settings| settings.credentials = Credentials::Token("secret".into()));
    fails(&server, |settings| settings.credentials = Credentials::Token("x".into()), "it refused this pod");
}

#[test]
fn nkey() {
    needs_nats!();
    // The pair that the documentation of NATS shows.
    let server = Server::start(
        "authorization { users: [ { nkey: UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4 } ] }",
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pod.nk");
    fs::write(&file, "# for tests\nSUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY\n").unwrap();
    works(&server, |settings| settings.credentials = Credentials::NkeyFile(file.clone()));
}

#[test]
fn tls_and_password() {
    needs_nats!();
    let certificates = Certificates::make();
    let authorization = "authorization { user: pod, password: secret }";
    let server = Server::start(&format!("{}\n{authorization}", certificates.server("server", false)));
    works(&server, |settings| {
        settings.credentials = password("secret");
        settings.tls = Some(certificates.tls("ca", false));
    });
    fails(
        &server,
        |settings| {
            settings.credentials = password("wrong");
            settings.tls = Some(certificates.tls("ca", false));
        },
        "it refused this pod",
    );
    let other = |settings: &mut FabricSettings| settings.tls = Some(certificates.tls("other-ca", false));
    fails(&server, other, "its certificate is not signed by a known authority");
    let named = Server::start(&certificates.server("other-server", false));
    let right = |settings: &mut FabricSettings| settings.tls = Some(certificates.tls("ca", false));
    fails(&named, right, "its certificate is not for this host name");
}

#[test]
fn tls_with_certificates_on_both_sides() {
    needs_nats!();
    let certificates = Certificates::make();
    let server = Server::start(&certificates.server("server", true));
    works(&server, |settings| settings.tls = Some(certificates.tls("ca", true)));
    let without = |settings: &mut FabricSettings| settings.tls = Some(certificates.tls("ca", false));
    fails(&server, without, "it may ask for a certificate of this pod");
}

#[test]
fn a_server_without_tls_is_not_spoken_to_when_tls_is_set() {
    needs_nats!();
    let certificates = Certificates::make();
    let server = Server::start("");
    fails(&server, |settings| settings.tls = Some(certificates.tls("ca", false)), "127.0.0.1");
}

#[test]
fn a_missing_permission_of_the_user_is_named() {
    needs_nats!();
    let permissions = "{ publish: \"mr.other.>\", subscribe: \"mr.other.>\" }";
    let server = Server::start(&format!(
        "authorization {{ users: [ {{ user: pod, password: secret, permissions: {permissions} }} ] }}"
    ));
    let pod = Pod::start_with(&server.url(), |settings| {
        settings.credentials = password("secret");
        // It may not ask the server whether all was taken.
        settings.limits.stop_ms = 100;
    });
    let said = pod.wait("to say what is missing", |seen| {
        seen.health
            .iter()
            .rev()
            .filter_map(|health| health.problem.clone())
            .find(|problem| problem.contains("allow"))
    });
    assert!(said.contains("allow this user to publish and subscribe to mr.test.>"), "{said}");
    works(&server, |settings| {
        settings.credentials = password("secret");
        settings.region = "other".into();
    });
}

#[test]
fn settings_that_cannot_work_are_refused_at_the_start() {
    struct Nobody;
    impl millrace_fabric::Sink for Nobody {
        fn receive(&self, _: &millrace_fabric::MessageBatch) {}
        fn gap(&self, _: &millrace_fabric::Gap) {}
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "nothing of use").unwrap();
    let missing = Path::new("/does/not/exist");
    let refused = |change: &dyn Fn(&mut FabricSettings)| {
        let mut settings = FabricSettings::new("nats://127.0.0.1:1", "test");
        change(&mut settings);
        let error = Fabric::start(settings, std::sync::Arc::new(Nobody)).err().expect("an error");
        error.to_string()
    };
    let ca = |path: &Path| Some(NatsTls { ca: Some(path.into()), identity: None });
    for (said, expected) in [
        (refused(&|settings| settings.servers.clear()), "no NATS server is named"),
        (refused(&|settings| settings.servers = vec!["http://x".into()]), "is not an address of a NATS"),
        (refused(&|settings| settings.servers = vec!["ws://x:1".into()]), "is not an address of a NATS"),
        (refused(&|settings| settings.servers = vec!["nats://me:pw@x:1".into()]), "set them as credentials"),
        (refused(&|settings| settings.region = "a.b".into()), "is no name for a region"),
        (refused(&|settings| settings.pod_name = "x".repeat(129)), "is no name for a pod"),
        (refused(&|settings| settings.limits.heartbeat_ms = 0), "must be more than 0"),
        (refused(&|settings| settings.tls = ca(missing)), "/does/not/exist"),
        (refused(&|settings| settings.tls = ca(&file)), "it has no certificate"),
        (
            refused(&|settings| settings.credentials = Credentials::NkeyFile(file.clone())),
            "no line with a seed",
        ),
        (
            refused(&|settings| settings.credentials = Credentials::CredsFile(file.clone())),
            "credentials file",
        ),
    ] {
        assert!(said.contains(expected), "{said}");
        assert!(!said.contains("pw"), "{said}");
    }
}
