//! Logs the user in to a service. The login is an API token, stored where only the user can read
//! it.

use http::{Method, header};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::args::{ApiArgs, LoginArgs, LogoutArgs};
use super::client::{ApiAnswer, ApiClient, Ask, CSRF_TOKEN, LOG_IN_HINT};
use super::input;
use super::print::{Printer, say};
use super::profiles::{Profiles, ProfilesFile, variable};
use super::site::{Site, part};
use crate::clock::now_ms;
use crate::failure::Failure;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Login {
    pub(super) url: String,
    pub(super) organisation: String,
    pub(super) token: String,
    /// `None` for a token that the user brought.
    pub(super) token_id: Option<String>,
}

const DAY_MS: u64 = 86_400_000;

/// Scopes of the login's token; each as far as its owner has it.
const SCOPES: [&str; 11] = [
    "organisation:read",
    "organisation:write",
    "messages:read",
    "messages:write",
    "brokers:read",
    "brokers:write",
    "access:read",
    "access:write",
    "clients:read",
    "clients:write",
    "audit:read",
];

pub(crate) fn login(args: &LoginArgs) -> Result<(), Failure> {
    let url = checked(&args.url, args.insecure)?;
    let file = ProfilesFile::find()?;
    let mut profiles = file.read()?;
    let name = profiles.name(args.profile.as_deref())?;
    let login = match (&args.organisation, args.token) {
        (Some(organisation), true) => {
            let token = variable("MILLRACE_TOKEN").map_or_else(|| input::secret("API token"), Ok)?;
            let login = Login { url, organisation: organisation.clone(), token, token_id: None };
            login.check()?;
            login
        }
        _ => sign_in(&url, args)?,
    };
    let said = format!("Logged in to {}; {} keeps the token.", login.url, file.path());
    let former = profiles.put(&name, login.clone());
    if let Err(failure) = file.write(&profiles) {
        // Nobody has the new token.
        if let (Some(id), Err(Failure::Run(why))) = (&login.token_id, give_up(&login)) {
            say(&format!("The API token \"{id}\" is still good: {why}; delete it in the console."));
        }
        return Err(failure);
    }
    if let Some(former) = former {
        end_former(&former);
    }
    say(&said);
    if profiles.current.as_ref() != Some(&name) {
        say(&format!("Use it with --profile {name}, or always: `millrace profiles use {name}`."));
    }
    Ok(())
}

pub(crate) fn logout(args: &LogoutArgs) -> Result<(), Failure> {
    let file = ProfilesFile::find()?;
    let profiles = file.read()?;
    let name = profiles.chosen(args.profile.as_deref());
    let name = name.ok_or_else(|| {
        Failure::Run("you are not logged in, so there is no token to revoke; `millrace profiles list` shows the logins".into())
    })?;
    remove(&file, profiles, &name)
}

/// Revokes the token of a profile, and removes the profile.
pub(super) fn remove(file: &ProfilesFile, mut profiles: Profiles, name: &str) -> Result<(), Failure> {
    let login = profiles.get(name)?.clone();
    if let Ok(count @ 1..) = open_claim_tokens(&login) {
        say(&format!("{} that this login made can add no more devices.", claim_tokens(count)));
    }
    let given_up = give_up(&login);
    profiles.remove(name);
    file.write(&profiles)?;
    given_up.map_err(|failure| match failure {
        Failure::Run(why) => Failure::Run(format!(
            "you are logged out here, but the API token \"{}\" is still good: {why}; delete it in the console",
            login.token_id.unwrap_or_default()
        )),
        other => other,
    })?;
    say("Logged out.");
    Ok(())
}

/// Opens a session, which serves only to make a token.
fn sign_in(url: &str, args: &LoginArgs) -> Result<Login, Failure> {
    let email = args.email.clone().map_or_else(|| input::answer("E-mail address", "--email"), Ok)?;
    let password = input::secret("Password")?;
    let mut client = ApiClient::new(url)?;
    let session = with_code(&client, json!({ "email": email, "password": password }))?;
    let cookie = session.cookie.as_deref().and_then(|cookie| cookie.split(';').next()).unwrap_or_default();
    client.who.push((header::COOKIE, cookie.to_owned()));
    client.who.push((CSRF_TOKEN, session.body["csrf_token"].as_str().unwrap_or_default().to_owned()));
    let made = organisation(&session.body, args.organisation.as_deref()).and_then(|organisation| {
        let name = format!("millrace on {}", rustix::system::uname().nodename().to_string_lossy());
        let name: String = name.chars().take(100).collect();
        let expires_at_ms = now_ms() + u64::from(args.days) * DAY_MS;
        let new = json!({ "name": name, "scopes": SCOPES, "expires_at_ms": expires_at_ms });
        let made = client.ask(&Ask::once(format!("/organisations/{organisation}/tokens"), new)?)?;
        Ok((organisation, made.body))
    });
    let signed_out = client.ask(&Ask::new(Method::POST, "/sign-out", None));
    let (organisation, made) = made?;
    // The token is made, so it is kept even if the session continues.
    if let Err(Failure::Run(why)) = signed_out {
        say(&format!("The session that made the token could not be ended, and ends by itself: {why}."));
    }
    let text = |name: &str| made[name].as_str().map(str::to_owned);
    let token = text("secret").ok_or_else(|| {
        Failure::Run(
            "the answer of the service has no token: is this `millrace` older or newer than the service?"
                .into(),
        )
    })?;
    Ok(Login { url: url.into(), organisation, token, token_id: text("id") })
}

/// Asks for the code of the second factor when the account has one.
fn with_code(client: &ApiClient, mut body: Value) -> Result<ApiAnswer, Failure> {
    match client.try_ask(&Ask::new(Method::POST, "/sign-in", Some(body.clone()))) {
        Err(refused) if refused.kind.as_deref() == Some("second-factor-required") => {
            body["code"] = input::secret("Code of the second factor")?.into();
            client.ask(&Ask::new(Method::POST, "/sign-in", Some(body)))
        }
        other => other.map_err(|refused| refused.failure),
    }
}

fn organisation(session: &Value, wanted: Option<&str>) -> Result<String, Failure> {
    let all: Vec<_> = session["organisations"].as_array().into_iter().flatten().collect();
    let is_it = |one: &&&Value| wanted.is_none_or(|wanted| one["id"] == wanted || one["name"] == wanted);
    let found: Vec<_> = all.iter().filter(is_it).collect();
    match &found[..] {
        [one] => Ok(one["id"].as_str().unwrap_or_default().to_owned()),
        [] => Err(Failure::Run(
            "you belong to no organisation of that id or name: leave --organisation out, or ask a member to invite you".into(),
        )),
        several => {
            let names: Vec<_> =
                several.iter().map(|one| format!("{} ({})", one["id"], one["name"])).collect();
            Err(Failure::Settings(format!(
                "you belong to several organisations; say which with --organisation: {}",
                names.join(", ")
            )))
        }
    }
}

/// Deletes the API token of a former login, unless devices still need claim tokens that end with
/// it.
fn end_former(former: &Login) {
    let Some(id) = &former.token_id else { return };
    match open_claim_tokens(former) {
        Ok(0) => {
            // Ignored, because the service of the former login may no longer exist.
            let _ = give_up(former);
        }
        Ok(count) => say(&format!(
            "The API token \"{id}\" of the former login stays, because {} that it made would end with it. Delete it in the console when they are used up.",
            claim_tokens(count)
        )),
        // The token has expired, so nothing is left to do.
        Err(Failure::Run(why)) if why.ends_with(LOG_IN_HINT) => {}
        Err(Failure::Run(why)) => say(&format!(
            "The API token \"{id}\" of the former login stays, because its claim tokens could not be listed: {why}."
        )),
        Err(_) => {}
    }
}

fn claim_tokens(count: usize) -> String {
    if count == 1 { "1 claim token".into() } else { format!("{count} claim tokens") }
}

/// Number of this login's claim tokens that can add more devices.
fn open_claim_tokens(login: &Login) -> Result<usize, Failure> {
    let Some(id) = &login.token_id else { return Ok(0) };
    let site = Site::of(login.clone(), Printer { json: false })?;
    let is_open = |token: &&Value| {
        let number = |name: &str| token[name].as_u64().unwrap_or_default();
        token["api_token"] == **id
            && number("uses") < number("uses_max")
            && number("expires_at_ms") > now_ms()
    };
    let mut count = 0;
    for broker in site.list("/brokers", "", usize::MAX)?.rows {
        let path = format!("/brokers/{}/claim-tokens", part(broker["name"].as_str().unwrap_or_default()));
        count += site.list(&path, "", usize::MAX)?.rows.iter().filter(is_open).count();
    }
    Ok(count)
}

fn give_up(login: &Login) -> Result<(), Failure> {
    let Some(id) = &login.token_id else { return Ok(()) };
    let path = format!("/organisations/{}/tokens/{id}", login.organisation);
    login.client()?.ask(&Ask::new(Method::DELETE, path, None)).map(drop)
}

impl Login {
    /// Takes the flags, else the environment, else the chosen profile. A profile named by a flag
    /// goes before the environment.
    pub(super) fn find(args: &ApiArgs) -> Result<Self, Failure> {
        let has_profile = args.profile.is_some();
        let is_complete = ["MILLRACE_URL", "MILLRACE_ORGANISATION", "MILLRACE_TOKEN"]
            .iter()
            .all(|name| variable(name).is_some());
        // The environment goes before a profile that the environment names; a service may have no home folder.
        let reads_profile = has_profile || !is_complete;
        let profiles = if reads_profile { ProfilesFile::find()?.read()? } else { Profiles::default() };
        let chosen = profiles.chosen(args.profile.as_deref()).filter(|_| reads_profile);
        let stored = chosen.map(|name| profiles.get(&name)).transpose()?;
        let given = |flag: &Option<String>, name, stored: Option<&String>| {
            let set = || variable(name).filter(|_| !has_profile);
            flag.clone().or_else(set).or_else(|| stored.cloned())
        };
        let url = given(&args.url, "MILLRACE_URL", stored.map(|stored| &stored.url));
        // A stored token is sent to its own service only.
        let own =
            stored.filter(|stored| url.as_deref().is_none_or(|url| url.trim_end_matches('/') == stored.url));
        let organisation =
            given(&args.organisation, "MILLRACE_ORGANISATION", own.map(|stored| &stored.organisation));
        let token = given(&None, "MILLRACE_TOKEN", own.map(|stored| &stored.token));
        match (url, organisation, token) {
            (Some(url), Some(organisation), Some(token)) => {
                Ok(Self { url: checked(&url, true)?, organisation, token, token_id: None })
            }
            _ => Err(Failure::Run(
                "you are not logged in: run `millrace login --url URL`, choose a login with `millrace profiles use NAME`, or set MILLRACE_URL, MILLRACE_ORGANISATION and MILLRACE_TOKEN"
                    .into(),
            )),
        }
    }

    /// Asks for the token itself, which every token may read.
    fn check(&self) -> Result<(), Failure> {
        let own = self.client()?.ask(&Ask::get("/token"))?.body;
        match own["organisation"].as_str() {
            Some(id) if id.eq_ignore_ascii_case(&self.organisation) => Ok(()),
            Some(id) => Err(Failure::Run(format!(
                "the token is of another organisation than {}: log in with --organisation {id}, or with a token of that organisation",
                self.organisation
            ))),
            None => Err(Failure::Run(
                "the answer of the service does not name the token's organisation: check that the URL is that of a Millrace server, and not older than this `millrace`".into(),
            )),
        }
    }

    pub(super) fn client(&self) -> Result<ApiClient, Failure> {
        let mut client = ApiClient::new(&self.url)?;
        client.who.push((header::AUTHORIZATION, format!("Bearer {}", self.token)));
        Ok(client)
    }
}

/// Returns a scheme and a host. The token gives full access, so the host needs TLS or must be this
/// machine.
pub(super) fn checked(url: &str, insecure: bool) -> Result<String, Failure> {
    let url = crate::values::public_url(url)
        .map_err(|what| Failure::Settings(format!("\"{url}\" is not an address of a service: {what}")))?;
    let host = url.strip_prefix("http://").map(|host| host.rsplit_once(':').map_or(host, |(host, _)| host));
    let is_here = |host: &str| {
        let host = host.trim_matches(['[', ']']);
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    };
    if insecure || host.is_none_or(is_here) {
        return Ok(url);
    }
    Err(Failure::Settings(format!(
        "{url} is without TLS: who listens on the way would have your password and token; use https://, or add --insecure"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_goes_over_tls_or_stays_on_this_machine() {
        for url in ["https://a.example", "http://127.0.0.1:8080/", "http://[::1]:80", "http://localhost"] {
            assert!(checked(url, false).is_ok(), "{url}");
        }
        for url in ["http://a.example", "http://192.0.2.1:8080", "http://127.0.0.1.example", "a.example"] {
            assert!(checked(url, false).is_err(), "{url}");
        }
        assert_eq!(checked("http://a.example/", true).ok().as_deref(), Some("http://a.example"));
    }

    #[test]
    fn of_several_organisations_one_must_be_named() {
        let session = json!({ "organisations": [{ "id": "1", "name": "A" }, { "id": "2", "name": "B" }] });
        assert!(organisation(&session, None).is_err() && organisation(&session, Some("C")).is_err());
        assert_eq!(organisation(&session, Some("B")).ok().as_deref(), Some("2"));
    }
}
