//! Profiles: the logins of one user to several services or organisations, in one file that only the
//! user can read.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::login::{self, Login};
use super::print::{Printer, TableColumns, say};
use super::site::ListAnswer;
use crate::failure::Failure;

/// Profile of the first login without a name.
const DEFAULT: &str = "default";
const PROFILES: TableColumns =
    &[("NAME", "name"), ("CURRENT", "current"), ("URL", "url"), ("ORGANISATION", "organisation")];

#[derive(Debug, Args)]
pub(crate) struct ProfilesArgs {
    #[command(subcommand)]
    what: ProfilesCommand,
}

#[derive(Debug, Subcommand)]
enum ProfilesCommand {
    /// List the profiles.
    List {
        /// Write one JSON object a line.
        #[arg(long)]
        json: bool,
    },
    /// Use a profile from now on, in commands that name none.
    Use {
        /// Its name.
        profile: String,
    },
    /// Remove a profile, and revoke its token.
    Remove {
        /// Its name.
        profile: String,
    },
}

#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Profiles {
    /// The profile of commands that name none.
    pub(super) current: Option<String>,
    profiles: BTreeMap<String, Login>,
}

/// Earlier versions stored one login without a name.
#[derive(Deserialize)]
#[serde(untagged)]
enum StoredProfiles {
    Profiles(Profiles),
    Login(Login),
}

pub(crate) fn profiles(args: ProfilesArgs) -> Result<(), Failure> {
    let file = ProfilesFile::find()?;
    let mut all = file.read()?;
    match args.what {
        ProfilesCommand::List { json } => {
            let row = |(name, login): (&String, &Login)| {
                let is_current = all.current.as_ref() == Some(name);
                json!({
                    "name": name, "current": is_current, "url": login.url, "organisation": login.organisation,
                })
            };
            let rows = all.profiles.iter().map(row).collect();
            let list = ListAnswer::whole(rows);
            Printer { json }.list(PROFILES, &list, "There are no profiles; `millrace login` makes one.")
        }
        ProfilesCommand::Use { profile } => {
            all.get(&profile)?;
            all.current = Some(profile.clone());
            file.write(&all)?;
            say(&format!("Commands use the profile \"{profile}\" now."));
            Ok(())
        }
        ProfilesCommand::Remove { profile } => login::remove(&file, all, &profile),
    }
}

impl Profiles {
    /// The profile of a command: that of its flag, else of MILLRACE_PROFILE, else the current one.
    /// `None`: there is none.
    pub(super) fn chosen(&self, flag: Option<&str>) -> Option<String> {
        let named = flag.map(str::to_owned).or_else(|| variable("MILLRACE_PROFILE"));
        named.or_else(|| self.current.clone())
    }

    /// The name under which a login is stored.
    pub(super) fn name(&self, flag: Option<&str>) -> Result<String, Failure> {
        let name = self.chosen(flag).unwrap_or_else(|| DEFAULT.into());
        let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '@');
        if (1..=64).contains(&name.chars().count()) && name.chars().all(is_plain) {
            return Ok(name);
        }
        Err(Failure::Settings(format!(
            "\"{name}\" is not a name for a profile: use up to 64 letters, digits, and - _ . @"
        )))
    }

    pub(super) fn get(&self, name: &str) -> Result<&Login, Failure> {
        self.profiles.get(name).ok_or_else(|| {
            let names: Vec<_> = self.profiles.keys().map(String::as_str).collect();
            let others = match names.is_empty() {
                true => String::new(),
                false => format!(", only {}", names.join(", ")),
            };
            Failure::Run(format!(
                "there is no profile \"{name}\"{others}; `millrace login --profile {name}` makes it"
            ))
        })
    }

    /// Returns the former login of this name. The first profile is the current one.
    pub(super) fn put(&mut self, name: &str, login: Login) -> Option<Login> {
        self.current.get_or_insert_with(|| name.into());
        self.profiles.insert(name.into(), login)
    }

    pub(super) fn remove(&mut self, name: &str) -> Option<Login> {
        self.current.take_if(|current| current == name);
        self.profiles.remove(name)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.profiles.is_empty()
    }
}

pub(super) struct ProfilesFile(PathBuf);

impl ProfilesFile {
    pub(super) fn find() -> Result<Self, Failure> {
        let set = |name: &str| {
            std::env::var_os(name).filter(|value: &OsString| !value.is_empty()).map(PathBuf::from)
        };
        let folder = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")));
        let folder = folder.ok_or_else(|| {
            Failure::Run(
                "logins have no folder, because neither HOME nor XDG_CONFIG_HOME is set: set one of them"
                    .into(),
            )
        })?;
        Ok(Self(folder.join("millrace").join("login.json")))
    }

    pub(super) fn path(&self) -> std::path::Display<'_> {
        self.0.display()
    }

    pub(super) fn read(&self) -> Result<Profiles, Failure> {
        let cannot = |why: String| {
            Failure::Run(format!("{} cannot be read: {why}; remove it and log in again", self.path()))
        };
        let bytes = match fs::read(&self.0) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Profiles::default()),
            Err(error) => return Err(cannot(error.to_string())),
        };
        match serde_json::from_slice(&bytes).map_err(|error| cannot(error.to_string()))? {
            StoredProfiles::Profiles(profiles) => Ok(profiles),
            StoredProfiles::Login(login) => {
                let mut profiles = Profiles::default();
                profiles.put(DEFAULT, login);
                Ok(profiles)
            }
        }
    }

    /// Removes the file when there is no profile.
    pub(super) fn write(&self, profiles: &Profiles) -> Result<(), Failure> {
        let new = self.0.with_extension("new");
        let write = || {
            if profiles.is_empty() {
                return fs::remove_file(&self.0).or_else(|error| match error.kind() {
                    ErrorKind::NotFound => Ok(()),
                    _ => Err(error),
                });
            }
            let folder = self.0.parent().ok_or(ErrorKind::InvalidInput)?;
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            // A leftover file keeps its own permissions.
            let _ = fs::remove_file(&new);
            let mut out = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
            out.write_all(&serde_json::to_vec_pretty(profiles)?)?;
            out.sync_all()?;
            fs::rename(&new, &self.0)
        };
        write().map_err(|error| Failure::Run(format!("{} cannot be written: {error}", self.path())))
    }
}

pub(super) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn login(token: &str) -> Login {
        Login { url: "https://a".into(), organisation: "o".into(), token: token.into(), token_id: None }
    }

    #[test]
    fn profiles_are_for_their_user_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = ProfilesFile(folder.path().join("millrace/login.json"));
        let mut all = file.read().ok().unwrap();
        assert!(all.is_empty());
        assert_eq!(all.put("one", login("1")), None);
        assert_eq!(all.put("two", login("2")), None);
        assert_eq!(all.put("two", login("3")), Some(login("2")));
        file.write(&all).ok().unwrap();
        assert_eq!(fs::metadata(&file.0).unwrap().permissions().mode() & 0o777, 0o600);
        let mut all = file.read().ok().unwrap();
        assert_eq!(all.get("two").ok(), Some(&login("3")));
        assert_eq!(all.current.as_deref(), Some("one"), "the first profile stays the current one");
        assert!(all.get("three").is_err());
        assert_eq!(all.remove("one"), Some(login("1")));
        assert_eq!((all.current.as_deref(), all.chosen(Some("x")).as_deref()), (None, Some("x")));
        all.remove("two");
        file.write(&all).ok().unwrap();
        assert!(!file.0.exists(), "a file without profiles is removed");
    }

    #[test]
    fn the_login_of_an_earlier_version_is_the_default_profile() {
        let folder = tempfile::tempdir().unwrap();
        let file = ProfilesFile(folder.path().join("login.json"));
        fs::write(&file.0, serde_json::to_vec(&login("old")).unwrap()).unwrap();
        let all = file.read().ok().unwrap();
        assert_eq!((all.current.as_deref(), all.get(DEFAULT).ok()), (Some(DEFAULT), Some(&login("old"))));
    }

    #[test]
    fn a_profile_has_a_plain_name() {
        let all = Profiles::default();
        for name in ["a", "plant-7.test@eu", "Büro"] {
            assert_eq!(all.name(Some(name)).ok().as_deref(), Some(name));
        }
        for name in ["", "a b", "a/b", "a\nb"] {
            assert!(all.name(Some(name)).is_err(), "{name:?}");
        }
        assert_eq!(all.name(None).ok().as_deref(), Some(DEFAULT));
    }
}
