//! Answers a command such as `millrace sessions`: by the running server, which has the data folder open, or by this process.

use std::fs;
use std::path::{Path, PathBuf};

use millrace_storage::{Embedded, OpenError, Options};

use super::open_folder::{AnswerError, OpenFolder, RowSink};
use super::request::{InspectRequest, SocketCall};
use super::socket;
use crate::permissions::other_owner;
use crate::user::own_name;

pub(super) enum DataSource {
    /// No server runs, so this process has the folder open.
    Stopped(Box<OpenFolder>),
    Running(PathBuf),
}

impl DataSource {
    pub(super) fn of(folder: &Path) -> Result<Self, AnswerError> {
        if is_missing(folder) {
            return Err(AnswerError::Failed(format!(
                "there is no data folder at {}: name it with --data-dir, as for `millrace serve`",
                folder.display()
            )));
        }
        // Opening the folder makes files, which the owner's server could not change later.
        if let Some(owner) = other_owner(folder) {
            return match socket::connect(folder) {
                Ok(_) => Ok(Self::Running(folder.into())),
                Err(_) => Err(AnswerError::Failed(format!(
                    "the data folder {} belongs to another user and no server runs on it: run this as that user, such as with \
                     `sudo -u '#{owner}'`, so that its files stay that user's",
                    folder.display()
                ))),
            };
        }
        match Embedded::open(folder, Options::default()) {
            Ok(embedded) => Ok(Self::Stopped(Box::new(OpenFolder::new(folder.into(), embedded, None)))),
            Err(OpenError::Locked(_)) => Ok(Self::Running(folder.into())),
            Err(error) => Err(refused(&error)),
        }
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(self, Self::Running(_))
    }

    /// Returns the key after which a list continues, if it reached its limit.
    pub(super) fn answer(
        &self,
        request: &InspectRequest,
        out: RowSink<'_>,
    ) -> Result<Option<String>, AnswerError> {
        let call = &SocketCall { by: own_name(), request: request.clone() };
        match self {
            Self::Stopped(opened) => opened.answer(call, out),
            Self::Running(folder) => socket::ask(folder, call, out),
        }
    }
}

/// Opening a missing or empty folder would make a new store.
pub(crate) fn is_missing(folder: &Path) -> bool {
    match fs::read_dir(folder) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

fn refused(error: &OpenError) -> AnswerError {
    let cause = std::error::Error::source(error).map_or_else(String::new, |cause| format!(" ({cause})"));
    let advice = match error {
        OpenError::NewerFormat { .. } => "use the version that wrote it",
        OpenError::NotAStore(_) => "name the data folder with --data-dir",
        OpenError::Partial(_) => "it lacks data, so name another one with --data-dir",
        OpenError::ReadOnly(_) => "run this as the user that the server runs as",
        OpenError::NoSpace(_) => "make room on the disk first",
        OpenError::Corrupt { .. } => "restore a backup with `millrace restore`; nothing was changed",
        _ => "look for errors of the disk in the system's log",
    };
    AnswerError::Failed(format!("{error}{cause}: {advice}"))
}
