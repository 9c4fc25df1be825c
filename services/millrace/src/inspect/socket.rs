//! The connection to a running server: a socket in its data folder that only the server's user can
//! open.
//!
//! A request is one line of JSON. The answer is rows, a line each, then `end` or `failed`, so that
//! the client notices a truncated answer. HTTP would need a runtime and a client library. Reading
//! the store blocks, so each request has a thread of its own.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, BufRead, BufReader, BufWriter, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use millrace_storage::Embedded;
use serde::{Deserialize, Serialize};
use tracing::{debug, error, info};

use super::open_folder::{AnswerError, OpenFolder, RowSink};
use super::request::SocketCall;
use super::rows::InspectRow;
use crate::running::LiveChanges;

const NAME: &str = "admin.sock";

/// Name of the socket until it is renamed, in a folder that no other user can open.
const MAKING: &str = "admin.new";

/// Bytes of the longest path of a socket that the system accepts.
const PATH_BYTES_MAX: usize = 107;

const REQUEST_BYTES_MAX: u64 = 1 << 20;

/// Requests served at one time; any further request gets an error.
const REQUESTS_MAX: usize = 8;

const REQUEST_WITHIN: Duration = Duration::from_secs(10);

/// A page of a list must arrive within this time.
const READ_WITHIN: Duration = Duration::from_secs(600);

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Row(InspectRow),
    /// A list continues after this key.
    End {
        after: Option<String>,
    },
    Failed(String),
}

/// Dropping it removes the socket.
pub(crate) struct InspectSocket {
    folder: PathBuf,
    shared: Arc<SocketState>,
    thread: Option<JoinHandle<()>>,
}

struct SocketState {
    opened: OpenFolder,
    stopping: AtomicBool,
    requests: AtomicUsize,
}

impl InspectSocket {
    /// Answers requests on threads of its own; this process must have `folder` open.
    pub(crate) fn open(folder: &Path, embedded: Embedded, live: Arc<dyn LiveChanges>) -> io::Result<Self> {
        let listener = bind(folder)?;
        let opened = OpenFolder::new(folder.into(), embedded, Some(live));
        let shared =
            Arc::new(SocketState { opened, stopping: AtomicBool::new(false), requests: AtomicUsize::new(0) });
        let listening = shared.clone();
        let thread = std::thread::Builder::new()
            .name("admin-socket".into())
            .spawn(move || listen(&listener, &listening))?;
        Ok(Self { folder: folder.into(), shared, thread: Some(thread) })
    }
}

impl Drop for InspectSocket {
    /// Unfinished answers end with their next row.
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        let woken = connect(&self.folder).is_ok();
        let _ = fs::remove_file(self.folder.join(NAME));
        if woken && let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A short path to a file of an open folder, because the folder's own path may be too long for a
/// socket.
fn reachable(folder: &Path, name: &str) -> io::Result<(PathBuf, Option<File>)> {
    let path = folder.join(name);
    if path.as_os_str().len() <= PATH_BYTES_MAX {
        return Ok((path, None));
    }
    let open = File::open(folder)?;
    Ok((format!("/proc/self/fd/{}/{name}", open.as_raw_fd()).into(), Some(open)))
}

/// Replaces the socket of an earlier server: the lock of the folder proves that no other server
/// runs.
fn bind(folder: &Path) -> io::Result<UnixListener> {
    let making = folder.join(MAKING);
    if let Err(error) = fs::remove_dir_all(&making)
        && error.kind() != ErrorKind::NotFound
    {
        return Err(error);
    }
    DirBuilder::new().mode(0o700).create(&making)?;
    let (path, _open) = reachable(folder, &format!("{MAKING}/{NAME}"))?;
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(making.join(NAME), Permissions::from_mode(0o600))?;
    fs::rename(making.join(NAME), folder.join(NAME))?;
    fs::remove_dir(&making)?;
    Ok(listener)
}

fn listen(listener: &UnixListener, shared: &Arc<SocketState>) {
    for stream in listener.incoming() {
        if shared.stopping.load(Ordering::SeqCst) {
            return;
        }
        match stream {
            Ok(stream) => serve(stream, shared),
            Err(error) => {
                error!(%error, "the admin socket cannot accept a connection, and tries again in a second");
                // The error, such as too many open files, may pass.
                std::thread::park_timeout(Duration::from_secs(1));
            }
        }
    }
}

/// Answers one connection on a thread of its own; over the limit, answers an error and closes.
fn serve(stream: UnixStream, shared: &Arc<SocketState>) {
    let others = shared.requests.fetch_add(1, Ordering::SeqCst);
    let slot = RequestSlot(shared.clone());
    if others >= REQUESTS_MAX {
        let busy = Line::Failed("the server answers other requests: try again later".into());
        // The answer fits into the buffer of a new connection.
        let _ = write(&mut &stream, &busy);
        return;
    }
    let thread = std::thread::Builder::new().name("admin-request".into());
    let spawned = thread.spawn(move || {
        if let Err(error) = converse(&stream, &slot.0) {
            debug!(%error, "the answer to a request on the admin socket broke off");
        }
    });
    if let Err(error) = spawned {
        error!(%error, "a request on the admin socket was dropped, because no thread could be started: check the limit of threads, and repeat the command");
    }
}

/// A request that is being answered; a panic releases it, too.
struct RequestSlot(Arc<SocketState>);

impl Drop for RequestSlot {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::SeqCst);
    }
}

fn converse(stream: &UnixStream, shared: &SocketState) -> io::Result<()> {
    stream.set_read_timeout(Some(REQUEST_WITHIN))?;
    stream.set_write_timeout(Some(READ_WITHIN))?;
    let mut line = String::new();
    BufReader::new(stream.take(REQUEST_BYTES_MAX)).read_line(&mut line)?;
    let mut out = BufWriter::new(stream);
    let last = match serde_json::from_str::<SocketCall>(&line) {
        Err(error) => Line::Failed(format!(
            "the server does not understand the request ({error}): use the `millrace` of the server's version"
        )),
        Ok(call) => match answer(&call, shared, &mut out) {
            Ok(after) => Line::End { after },
            Err(AnswerError::Failed(sentence)) => Line::Failed(sentence),
            Err(AnswerError::NobodyReads) => return Ok(()),
        },
    };
    write(&mut out, &last)?;
    out.flush()
}

fn answer(
    call: &SocketCall,
    shared: &SocketState,
    out: &mut impl Write,
) -> Result<Option<String>, AnswerError> {
    let SocketCall { by, request } = call;
    if request.is_harmless() {
        debug!(by, ?request, "asked through the admin socket");
    } else {
        info!(by, ?request, "asked through the admin socket");
    }
    shared.opened.answer(call, &mut |row| {
        if shared.stopping.load(Ordering::SeqCst) {
            return Err(AnswerError::Failed(
                "the server is stopping: run this again when it has stopped".into(),
            ));
        }
        // Progress is written at once, because late progress is useless.
        let is_progress = matches!(row, InspectRow::BackupProgress { .. });
        let written = write(out, &Line::Row(row));
        let written = if is_progress { written.and_then(|()| out.flush()) } else { written };
        written.map_err(|_| AnswerError::NobodyReads)
    })
}

fn write(out: &mut impl Write, line: &Line) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}

pub(super) fn connect(folder: &Path) -> io::Result<UnixStream> {
    let (path, _open) = reachable(folder, NAME)?;
    UnixStream::connect(path)
}

/// Sends a request to the running server and passes the rows to `out`; returns the key after which
/// a list continues.
pub(super) fn ask(folder: &Path, call: &SocketCall, out: RowSink<'_>) -> Result<Option<String>, AnswerError> {
    let stream = connect(folder).map_err(|error| unreachable(folder, &error))?;
    let lost = |error: io::Error| {
        AnswerError::Failed(format!(
            "the server closed the connection ({error}): see its log, and run this again"
        ))
    };
    let mut line = serde_json::to_vec(call).map_err(|error| lost(error.into()))?;
    line.push(b'\n');
    // Ignored: a busy server answers without reading the request, and its answer says more than
    // this error.
    let _ = (&stream).write_all(&line);
    for line in BufReader::new(stream).lines() {
        let line = serde_json::from_str(&line.map_err(lost)?).map_err(|error| {
            AnswerError::Failed(format!(
                "the answer cannot be read ({error}): use the `millrace` of the server's version"
            ))
        })?;
        match line {
            Line::Row(row) => out(row)?,
            Line::End { after } => return Ok(after),
            Line::Failed(sentence) => return Err(AnswerError::Failed(sentence)),
        }
    }
    Err(AnswerError::Failed(
        "the server closed the connection before its answer was complete: see its log, and run this again"
            .into(),
    ))
}

fn unreachable(folder: &Path, error: &io::Error) -> AnswerError {
    let socket = folder.join(NAME);
    let (folder, socket) = (folder.display(), socket.display());
    AnswerError::Failed(match error.kind() {
        ErrorKind::PermissionDenied => {
            format!(
                "the server's socket {socket} belongs to another user: run this as the user that the server runs as"
            )
        }
        _ => format!(
            "the data folder {folder} is in use by another process that does not answer at {socket} ({error}): it is starting or \
             stopping, or another command; try again, or stop it"
        ),
    })
}

#[cfg(test)]
#[path = "socket_tests.rs"]
mod tests;
