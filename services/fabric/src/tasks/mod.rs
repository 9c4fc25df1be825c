//! What the fabric's thread does.

mod joining;
mod keeping;
mod sending;

use std::sync::Arc;

use async_nats::{Client, ConnectOptions, ServerAddr};
use tokio::time::{Duration, timeout};

use crate::shared::Shared;

/// Runs the fabric until it is stopped. Says why it ended if nobody stopped it.
pub(crate) async fn run(
    shared: &Arc<Shared>,
    servers: Vec<ServerAddr>,
    options: ConnectOptions,
) -> Result<(), String> {
    let client = connect(shared, servers, options).await.map_err(|error| error.to_string())?;
    let ended = tokio::select! {
        result = sending::run(shared, &client) => result,
        result = joining::run(shared, &client) => result,
        () = keeping::run(shared, &client) => Ok(()),
        () = shared.failed.notified() => Err("a task panicked".into()),
        () = shared.stop.notified() => Ok(()),
    };
    if shared.link.is_connected() {
        let stop_ms = shared.limits.stop_ms.into();
        // What could not be sent by then is lost; the others notice.
        let _ = timeout(Duration::from_millis(stop_ms), sending::last(shared, &client)).await;
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
