//! `millrace dev-certs`: certificates for a gateway on a developer's machine. Never use them for
//! anything that others can reach, because the keys of both certificate authorities are beside
//! them.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::Args;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use crate::failure::Failure;

/// Names in every server certificate; `.test` is reserved (RFC 6761 section 6.2).
const HOSTS: [&str; 5] = ["localhost", "local.test", "*.local.test", "127.0.0.1", "::1"];

/// Apple's systems take no server certificate that is valid for more than 825 days.
const VALID: Duration = Duration::from_secs(800 * 24 * 3600);

/// Makes a certificate authority with a server certificate (ca, tls), and one with a client
/// certificate (client-ca, client), each as .crt and .key.
#[derive(Debug, Args)]
pub(crate) struct DevCertsArgs {
    /// Folder for the files, created when it is missing.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Another host name or address of the server, beside localhost, *.local.test, 127.0.0.1 and
    /// ::1.
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
    /// Common name of the client certificate.
    #[arg(long, value_name = "NAME", default_value = "device-1")]
    client: String,
    /// Replace existing files.
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(args: &DevCertsArgs) -> Result<(), Failure> {
    let files = generate(&args.hosts, &args.client)
        .map_err(|error| Failure::Settings(format!("no certificates can be made of that: {error}")))?;
    let there: Vec<_> =
        files.iter().map(|(name, _)| *name).filter(|name| args.out.join(name).exists()).collect();
    if !args.force && !there.is_empty() {
        return Err(Failure::Run(format!(
            "{} has {} already: replace all files with --force, or choose another folder",
            args.out.display(),
            there.join(", ")
        )));
    }
    let written = fs::create_dir_all(&args.out)
        .and_then(|()| files.iter().try_for_each(|(name, text)| write(&args.out.join(name), text)));
    written.map_err(|error| Failure::Run(format!("{} cannot be written to: {error}", args.out.display())))?;
    let out = args.out.display();
    let _ = writeln!(
        std::io::stderr(),
        "Certificates for development are in {out}: servers trust client-ca.crt, clients trust ca.crt."
    );
    Ok(())
}

type CertificateFiles = Vec<(&'static str, String)>;

fn generate(hosts: &[String], client: &str) -> Result<CertificateFiles, rcgen::Error> {
    let mut files = CertificateFiles::new();
    let servers = authority("Millrace development CA", "ca.crt", "ca.key", &mut files)?;
    let hosts: Vec<_> = HOSTS.iter().map(|host| (*host).to_owned()).chain(hosts.iter().cloned()).collect();
    let mut server = params("Millrace development server", hosts)?;
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    signed(&server, &servers, "tls.crt", "tls.key", &mut files)?;

    let clients = authority("Millrace development client CA", "client-ca.crt", "client-ca.key", &mut files)?;
    let mut device = params(client, Vec::new())?;
    device.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    signed(&device, &clients, "client.crt", "client.key", &mut files)?;
    Ok(files)
}

#[allow(clippy::disallowed_methods, reason = "a certificate begins now")]
fn params(name: &str, hosts: Vec<String>) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(hosts)?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    let now = SystemTime::now();
    // Valid since an hour, because clocks differ between machines.
    params.not_before = (now - Duration::from_secs(3600)).into();
    params.not_after = (now + VALID).into();
    Ok(params)
}

fn authority(
    name: &str,
    certificate: &'static str,
    key: &'static str,
    files: &mut CertificateFiles,
) -> Result<Issuer<'static, KeyPair>, rcgen::Error> {
    let mut params = params(name, Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let pair = KeyPair::generate()?;
    files.push((certificate, params.self_signed(&pair)?.pem()));
    files.push((key, pair.serialize_pem()));
    Ok(Issuer::new(params, pair))
}

fn signed(
    params: &CertificateParams,
    issuer: &Issuer<'_, KeyPair>,
    certificate: &'static str,
    key: &'static str,
    files: &mut CertificateFiles,
) -> Result<(), rcgen::Error> {
    let pair = KeyPair::generate()?;
    files.push((certificate, params.signed_by(&pair, issuer)?.pem()));
    files.push((key, pair.serialize_pem()));
    Ok(())
}

/// Replaces the file as a whole; the mode lets only the owner read a key.
fn write(file: &Path, text: &str) -> std::io::Result<()> {
    let is_key = file.extension().is_some_and(|extension| extension == "key");
    let new = file.with_extension(if is_key { "key.new" } else { "crt.new" });
    let mode = if is_key { 0o600 } else { 0o644 };
    let _ = fs::remove_file(&new);
    OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?.write_all(text.as_bytes())?;
    fs::rename(&new, file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn args(out: &Path, force: bool) -> DevCertsArgs {
        DevCertsArgs { out: out.to_owned(), hosts: vec!["acme.example".into()], client: "ann".into(), force }
    }

    #[test]
    fn keys_are_private_and_nothing_is_replaced_unless_that_was_said() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("new/certs");
        run(&args(&out, false)).unwrap();
        let read = || -> Vec<_> {
            let mut files: Vec<_> = fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().path()).collect();
            files.sort();
            files.into_iter().map(|path| (fs::read_to_string(&path).unwrap(), path)).collect()
        };
        let first = read();
        assert_eq!(first.len(), 8);
        for (text, path) in &first {
            let is_key = text.starts_with("-----BEGIN PRIVATE KEY-----");
            assert_eq!(is_key, path.extension().unwrap() == "key", "{}", path.display());
            let mode = fs::metadata(path).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode == 0o600, is_key, "{}", path.display());
        }
        let Err(Failure::Run(sentence)) = run(&args(&out, false)) else { panic!("replaced") };
        assert!(sentence.contains("ca.crt, ca.key") && sentence.contains("--force"), "{sentence}");
        assert_eq!(read(), first);
        run(&args(&out, true)).unwrap();
        assert!(read().iter().zip(&first).all(|(new, old)| new.0 != old.0));
    }

    #[test]
    fn a_name_that_no_certificate_can_have_is_refused() {
        assert!(generate(&["sm\u{f8}rrebr\u{f8}d".into()], "ann").is_err());
    }
}
