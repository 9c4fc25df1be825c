//! `millrace passwd` adds, changes or deletes one user of a password file. `millrace_access` hashes
//! passwords and writes the lines, and the edge reads the file with it.

use std::fs::Permissions;
use std::io::{IsTerminal, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use clap::Args;
use millrace_access::files::passwords;
use millrace_access::secrets::chosen;

use crate::failure::Failure;

/// Longest password, bytes: the limit of a CONNECT packet.
const PASSWORD_BYTES_MAX: usize = 65_535;

/// Asks for the password twice on the terminal, or reads its one line from standard input when that
/// is not a terminal.
#[derive(Debug, Args)]
pub(crate) struct PasswdArgs {
    /// The password file; created when there is none.
    file: PathBuf,
    /// The user's name.
    user: String,
    /// Delete the user.
    #[arg(long, conflicts_with = "stdin")]
    delete: bool,
    /// Read the password from standard input even when that is a terminal.
    #[arg(long)]
    stdin: bool,
}

pub(crate) fn run(args: &PasswdArgs) -> Result<(), Failure> {
    // Resolves a link, so that the link stays a link.
    let file = std::fs::canonicalize(&args.file).unwrap_or_else(|_| args.file.clone());
    let hash = match args.delete {
        true => None,
        false => {
            // Checks the file and the user name before asking for a password.
            edit(&read(&file, false)?, &args.user, None)?;
            Some(hash(&password(args)?)?)
        }
    };
    change(&file, &args.user, hash.as_deref())?;
    let what = if args.delete { "deleted from" } else { "written to" };
    let _ = writeln!(std::io::stderr(), "User {} {what} {}.", args.user, file.display());
    Ok(())
}

/// Adds or changes a user; without a hash, deletes the user.
fn change(file: &Path, user: &str, hash: Option<&str>) -> Result<(), Failure> {
    // Held while the file is read and replaced, so that two commands at once do not lose one's change. Some network file systems cannot
    // lock a folder: there the change is made without the lock.
    let lock = std::fs::File::open(folder_of(file));
    let _ = lock.as_ref().map(std::fs::File::lock);
    let text = read(file, hash.is_none())?;
    let edited = edit(&text, user, hash)?;
    if hash.is_none() && edited == text {
        return Err(Failure::Run(format!("{} has no user {user}", file.display())));
    }
    replace(file, &edited).map_err(|error| failed(file, "cannot be written", &error))
}

fn read(file: &Path, must_exist: bool) -> Result<String, Failure> {
    match std::fs::read_to_string(file) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !must_exist => Ok(String::new()),
        Err(error) => Err(failed(file, "cannot be read", &error)),
    }
}

fn edit(text: &str, user: &str, hash: Option<&str>) -> Result<String, Failure> {
    passwords::edit(text, user, hash)
        .map_err(|error| Failure::Settings(format!("the user \"{user}\" is not allowed: {error}")))
}

fn failed(file: &Path, what: &str, error: &std::io::Error) -> Failure {
    Failure::Run(format!("{} {what}: {error}", file.display()))
}

fn folder_of(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

fn hash(password: &str) -> Result<String, Failure> {
    let mut salt = [0; chosen::SALT_BYTES];
    getrandom::fill(&mut salt)
        .map_err(|error| Failure::Run(format!("no random numbers from the system: {error}")))?;
    chosen::hash(password.as_bytes(), &salt).map_err(|error| Failure::Run(error.to_string()))
}

fn password(args: &PasswdArgs) -> Result<String, Failure> {
    let no_password = |error: std::io::Error| Failure::Run(format!("the password cannot be read: {error}"));
    let password = if args.stdin || !std::io::stdin().is_terminal() {
        let mut text = String::new();
        // Two bytes more for the end of the line.
        std::io::stdin()
            .take(PASSWORD_BYTES_MAX as u64 + 2)
            .read_to_string(&mut text)
            .map_err(no_password)?;
        one_line(&text).map_err(Failure::Settings)?.to_owned()
    } else {
        let first =
            rpassword::prompt_password(format!("Password for {}: ", args.user)).map_err(no_password)?;
        if rpassword::prompt_password("Again: ").map_err(no_password)? != first {
            return Err(Failure::Settings("the two passwords are not the same; nothing was changed".into()));
        }
        first
    };
    if password.is_empty() || password.len() > PASSWORD_BYTES_MAX {
        return Err(Failure::Settings(format!("a password of 1 to {PASSWORD_BYTES_MAX} bytes is allowed")));
    }
    Ok(password)
}

fn one_line(text: &str) -> Result<&str, String> {
    let line = text.strip_suffix('\n').unwrap_or(text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.contains('\n') {
        return Err("standard input has more than one line: the password is one line".into());
    }
    Ok(line)
}

/// Replaces the file as a whole, so that no reader sees a part. An existing file keeps its owner,
/// group and mode, because a server of another user may read it; a new file is for its owner alone.
fn replace(file: &Path, text: &str) -> std::io::Result<()> {
    let name = file.file_name().ok_or(std::io::ErrorKind::InvalidInput)?;
    let folder = folder_of(file);
    let temporary = folder.join(format!(".{}.{}", name.to_string_lossy(), std::process::id()));
    let write = || {
        let mut new =
            std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        new.write_all(text.as_bytes())?;
        // `file` has no links left to follow, so one that is found here was made meanwhile by somebody else.
        match std::fs::symlink_metadata(file) {
            Ok(old) if !old.is_file() => {
                return Err(std::io::Error::other("it is not a regular file: name another one"));
            }
            Ok(old) => keep_access(&new, &old)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        new.sync_all()?;
        std::fs::rename(&temporary, file)?;
        std::fs::File::open(folder)?.sync_all()
    };
    let written = write();
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

/// Gives `new` the owner, group and mode of `old`. The mode comes last, because a change of the
/// owner clears bits of it.
fn keep_access(new: &std::fs::File, old: &std::fs::Metadata) -> std::io::Result<()> {
    let own = new.metadata()?;
    let changed = |old: u32, own: u32| (old != own).then_some(old);
    let (owner, group) = (changed(old.uid(), own.uid()), changed(old.gid(), own.gid()));
    if owner.is_some() || group.is_some() {
        fchown(new, owner, group).map_err(|error| {
            let what = format!(
                "its owner and group {}:{} cannot be kept ({error}); run this as root, or as its owner and a member of its group",
                old.uid(),
                old.gid()
            );
            std::io::Error::new(error.kind(), what)
        })?;
    }
    // Without set-user-id: the owner of the folder could have put any file there.
    new.set_permissions(Permissions::from_mode(old.mode() & 0o777))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_from_standard_input_is_one_line() {
        for (text, line) in [("pw", "pw"), ("pw\n", "pw"), ("pw\r\n", "pw"), (" p w \n", " p w ")] {
            assert_eq!(one_line(text), Ok(line), "{text:?}");
        }
        assert!(one_line("a\nb\n").is_err());
    }

    #[test]
    fn changes_at_once_are_all_there() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("users");
        let users: Vec<_> = (0..20).map(|number| format!("dev-{number}")).collect();
        let hash = hash("pw").unwrap();
        std::thread::scope(|scope| {
            for user in &users {
                scope.spawn(|| change(&file, user, Some(&hash)).unwrap());
            }
        });
        let text = std::fs::read_to_string(&file).unwrap();
        for user in &users {
            assert!(text.lines().any(|line| line.starts_with(&format!("{user}:"))), "{user} is lost: {text}");
        }
        assert!(change(&file, "nobody", None).is_err());
        change(&file, "dev-7", None).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap().lines().count(), 19);
    }

    fn access(file: &Path) -> (u32, u32, u32) {
        let metadata = std::fs::metadata(file).unwrap();
        (metadata.uid(), metadata.gid(), metadata.permissions().mode() & 0o7777)
    }

    #[test]
    fn a_new_file_is_private_and_a_replaced_one_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("users");
        replace(&file, "first").unwrap();
        assert_eq!(access(&file).2, 0o600);
        for mode in [0o640, 0o444, 0o660] {
            std::fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            replace(&file, "new").unwrap();
            assert_eq!((std::fs::read_to_string(&file).unwrap().as_str(), access(&file).2), ("new", mode));
        }
        std::fs::set_permissions(&file, Permissions::from_mode(0o6750)).unwrap();
        replace(&file, "new").unwrap();
        assert_eq!(access(&file).2, 0o750, "no program of the owner comes from a file of users");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    }

    #[test]
    fn a_link_that_takes_the_place_of_the_file_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (file, other) = (folder.path().join("users"), folder.path().join("other"));
        std::fs::write(&other, "other").unwrap();
        std::os::unix::fs::symlink(&other, &file).unwrap();
        assert!(replace(&file, "new").is_err());
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "other");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2);
    }

    /// Only root can give a file away, so without root nothing can be tested here.
    #[test]
    fn a_replaced_file_keeps_its_owner() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: the owner of a replaced file, because only root can give files away");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("users");
        std::fs::write(&file, "old").unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        if let Err(error) = std::os::unix::fs::chown(&file, Some(65_533), Some(65_532)) {
            eprintln!(
                "SKIPPED: the owner of a replaced file, because this root cannot give files away: {error}"
            );
            return;
        }
        replace(&file, "new").unwrap();
        assert_eq!(access(&file), (65_533, 65_532, 0o640));
    }
}
