//! Makes the HTTP calls to tenants' services, on one thread.

use std::sync::OnceLock;
use std::thread::JoinHandle;

use millrace_outgoing::{Call, CallError, CallSettings, HttpClient, Response};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use super::service::spawn;
use crate::StartError;

pub(super) struct Calls {
    handle: Handle,
    settings: CallSettings,
    /// Created at the first call, because that reads the system's authorities.
    client: OnceLock<HttpClient>,
}

impl Calls {
    /// Dropping the result ends the thread and all calls in progress.
    pub(super) fn start(
        settings: &CallSettings,
        threads: &mut Vec<JoinHandle<()>>,
    ) -> Result<(Self, oneshot::Sender<()>), StartError> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = runtime.map_err(|error| StartError(format!("cannot start a thread: {error}")))?;
        let (stop, stopped) = oneshot::channel::<()>();
        let handle = runtime.handle().clone();
        let run = move || {
            let _ = runtime.block_on(stopped);
            // Does not wait for name lookups.
            runtime.shutdown_background();
        };
        threads.push(spawn("access-calls".into(), run)?);
        Ok((Self { handle, settings: settings.clone(), client: OnceLock::new() }, stop))
    }

    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(work);
    }

    pub(super) async fn call(&self, call: Call<'_>) -> Result<Response, CallError> {
        self.client.get_or_init(|| HttpClient::new(self.settings.clone())).call(call).await
    }
}
