//! Runs the connection to NATS on the fabric's thread: `joining` subscribes and passes received
//! messages to the core, `sending` publishes the frames of the outbox, and `keeping` runs the
//! timers and handles changes of the connection.

mod joining;
mod keeping;
mod sending;

use std::pin::pin;
use std::sync::Arc;

use async_nats::{Client, ConnectOptions, ServerAddr};
use tokio::time::{Duration, timeout};

use crate::state::FabricContext;

/// Runs until the user stops the fabric, and then sends what is still queued; or until a task
/// fails, and then the error is the reason.
pub(crate) async fn run(
    shared: &Arc<FabricContext>,
    servers: Vec<ServerAddr>,
    options: ConnectOptions,
) -> Result<(), String> {
    let client = connect(shared, servers, options).await.map_err(|error| error.to_string())?;
    let mut sending = pin!(sending::run(shared, &client));
    let ended = tokio::select! {
        result = &mut sending => return result,
        result = joining::run(shared, &client) => result,
        () = keeping::run(shared, &client) => Ok(()),
        () = shared.failed.notified() => Err("a task panicked".into()),
        () = shared.stop.notified() => Ok(()),
    };
    if shared.link.is_connected() {
        let stop_ms = shared.limits.stop_ms.into();
        // The future of `sending` continues and sends the rest, because it may hold a batch that the
        // NATS client had no room for.
        shared.must_finish.notify_one();
        let send_rest = async {
            tokio::select! {
                _ = sending => {}
                () = shared.link.until(false) => {}
            }
        };
        // Messages that are not sent within `stop_ms` are lost.
        let _ = timeout(Duration::from_millis(stop_ms), send_rest).await;
    }
    ended
}

/// Returns before NATS answers. The client connects in the background, and asks `shared.link` for
/// the server of each attempt.
async fn connect(
    shared: &Arc<FabricContext>,
    servers: Vec<ServerAddr>,
    options: ConnectOptions,
) -> Result<Client, async_nats::ConnectError> {
    let (on_event, on_reconnect) = (shared.link.clone(), shared.link.clone());
    options
        .event_callback(move |event| {
            on_event.event(&event);
            std::future::ready(())
        })
        .reconnect_to_server_callback(move |pool, _| std::future::ready(on_reconnect.choose(&pool)))
        .connect(servers)
        .await
}
