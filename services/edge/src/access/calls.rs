//! The thread that calls services of tenants.

use std::sync::OnceLock;
use std::thread::JoinHandle;

use millrace_outgoing::{Answer, Call, Client, Error, Settings};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use super::desk::spawn;
use crate::StartError;

/// Makes calls, on a thread of its own.
pub(super) struct Calls {
    handle: Handle,
    settings: Settings,
    /// Made at the first call: it reads the authorities of the system.
    client: OnceLock<Client>,
}

impl Calls {
    /// Starts the thread. It ends when what is returned is dropped, with all that is under way.
    pub(super) fn start(
        settings: &Settings,
        threads: &mut Vec<JoinHandle<()>>,
    ) -> Result<(Self, oneshot::Sender<()>), StartError> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = runtime.map_err(|error| StartError(format!("cannot start a thread: {error}")))?;
        let (stop, stopped) = oneshot::channel::<()>();
        let handle = runtime.handle().clone();
        let run = move || {
            let _ = runtime.block_on(stopped);
            // Without waiting for names that are being resolved.
            runtime.shutdown_background();
        };
        threads.push(spawn("access-calls".into(), run)?);
        Ok((Self { handle, settings: settings.clone(), client: OnceLock::new() }, stop))
    }

    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(work);
    }

    pub(super) async fn call(&self, call: Call<'_>) -> Result<Answer, Error> {
        self.client.get_or_init(|| Client::new(self.settings.clone())).call(call).await
    }
}
