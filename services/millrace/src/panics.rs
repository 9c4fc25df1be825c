//! Ends the process after a panic of a thread that others rely on, so that the service manager
//! restarts it. A server without one of its event loops would look healthy from outside, and its
//! clients would wait for ever.

use std::any::Any;
use std::panic::PanicHookInfo;
use std::thread;

use tracing::error;

/// Exit code after a panic: internal error (sysexits.h).
const INTERNAL_ERROR: i32 = 70;
/// A panic of a task on a thread of these names ends only one request.
pub(crate) const HTTP: &str = "http";
pub(crate) const ADMIN: &str = "admin";
pub(crate) const API: &str = "api";
pub(crate) const API_LOW_PRIORITY: &str = "api-low";
pub(crate) const OPERATOR: &str = "operator";

/// Called once, after logging has started.
pub(crate) fn end_the_process() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = thread::current();
        let name = thread.name().unwrap_or("unnamed");
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let reason = reason(panic);
        let backtrace = std::backtrace::Backtrace::force_capture();
        // The loop that accepts connections runs on such a thread, too, but is no task.
        if tokio::task::try_id().is_some() && [HTTP, ADMIN, API, API_LOW_PRIORITY, OPERATOR].contains(&name) {
            return error!(place, %backtrace, "a request ended with a panic, which is a bug to report: {reason}");
        }
        // The code that starts these threads handles their panics.
        if millrace_storage::CAUGHT_THREADS.contains(&name) {
            return error!(thread = name, place, %backtrace, "a part of the server panicked, which is a bug to report: {reason}");
        }
        error!(
            thread = name,
            place,
            %backtrace,
            "the server ends, because one of its threads panicked, which is a bug: {reason}"
        );
        std::process::exit(INTERNAL_ERROR);
    }));
}

fn reason<'p>(panic: &'p PanicHookInfo<'_>) -> &'p str {
    let payload: &(dyn Any + Send) = panic.payload();
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no reason given")
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::logs::LogFormat;

    /// Names the thread that panics in a process of its own.
    const THREAD: &str = "MILLRACE_TEST_PANICS_ON";

    /// The panic is one of a task of the runtime.
    const IN_TASK: &str = "MILLRACE_TEST_PANICS_IN_TASK";

    /// The exit code of a process in which a thread of this name panics, and its log.
    fn ended(thread: &str, in_task: bool) -> (Option<i32>, String) {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "panics::tests::panics", "--ignored"])
            .env(THREAD, thread)
            .env(IN_TASK, in_task.to_string())
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    }

    #[test]
    #[ignore = "only in a process of its own"]
    fn panics() {
        crate::logs::start("info", LogFormat::Text, None);
        end_the_process();
        let name = std::env::var(THREAD).unwrap();
        let in_task = std::env::var(IN_TASK).unwrap() == "true";
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let there_is = || panic!("there is something");
        let thread = thread::Builder::new().name(name).spawn(move || {
            runtime.block_on(async move {
                if in_task { tokio::spawn(async move { there_is() }).await.is_err() } else { there_is() }
            })
        });
        assert_eq!(thread.unwrap().join().is_ok(), in_task);
    }

    #[test]
    fn a_panic_of_an_event_loop_ends_the_process_with_its_reason() {
        let (code, log) = ended("core-0", false);
        assert_eq!(code, Some(INTERNAL_ERROR), "{log}");
        for part in ["core-0", "there is something", "panics.rs"] {
            assert!(log.contains(part), "{part} is not in {log}");
        }
    }

    #[test]
    fn a_panic_of_a_request_ends_that_alone() {
        for name in [HTTP, ADMIN, API, API_LOW_PRIORITY, OPERATOR] {
            let (code, log) = ended(name, true);
            assert_eq!(code, Some(0), "{name}: {log}");
            assert!(log.contains("a request ended") && log.contains("there is something"), "{log}");
        }
    }

    #[test]
    fn a_panic_of_the_loop_that_accepts_connections_ends_the_process() {
        for name in [HTTP, ADMIN] {
            let (code, log) = ended(name, false);
            assert_eq!(code, Some(INTERNAL_ERROR), "{name}: {log}");
            assert!(log.contains("the server ends") && log.contains("there is something"), "{log}");
        }
    }

    #[test]
    fn a_panic_that_is_caught_does_not_end_the_process() {
        for name in millrace_storage::CAUGHT_THREADS {
            let (code, log) = ended(name, false);
            assert_eq!(code, Some(0), "{name}: {log}");
            assert!(log.contains(name) && log.contains("there is something"), "{log}");
        }
    }

    #[test]
    fn a_panic_of_the_upkeep_ends_the_process() {
        let (code, log) = ended(crate::http::UPKEEP, true);
        assert_eq!(code, Some(INTERNAL_ERROR), "{log}");
    }
}
