//! The tasks of the fabric's thread.

mod joining;
mod keeping;
mod sending;

use std::pin::pin;
use std::sync::Arc;

use async_nats::{Client, ConnectOptions, ServerAddr};
use tokio::time::{Duration, timeout};

use crate::shared::Shared;

/// Returns the reason when the fabric ended by itself.
pub(crate) async fn run(
    shared: &Arc<Shared>,
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
        // The task continues at its present point, because it may hold a batch that the NATS client had no room for.
        shared.last.notify_one();
        let last = async {
            tokio::select! {
                _ = sending => {}
                () = shared.link.until(false) => {}
            }
        };
        // Messages that could not be sent by then are lost.
        let _ = timeout(Duration::from_millis(stop_ms), last).await;
    }
    ended
}

/// Returns at once: the connection is made in the background.
async fn connect(
    shared: &Arc<Shared>,
    servers: Vec<ServerAddr>,
    options: ConnectOptions,
) -> Result<Client, async_nats::ConnectError> {
    let (events, choices) = (shared.link.clone(), shared.link.clone());
    options
        .event_callback(move |event| {
            events.event(&event);
            std::future::ready(())
        })
        .reconnect_to_server_callback(move |pool, _| std::future::ready(choices.choose(&pool)))
        .connect(servers)
        .await
}
