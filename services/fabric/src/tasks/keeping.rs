//! Runs the timers, and handles changes of the connection. Sending, which is another task, moves to another server on
//! `must_move`.

use std::time::Duration;

use async_nats::Client;
use async_nats::connection::State;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::clock::Millis;
use crate::state::FabricContext;

use super::sending;

const TICK: Duration = Duration::from_millis(100);
const ECHO_EVERY_MS: Millis = 5000;
/// How long passing a probe to the NATS client may take.
const ECHO_WAIT: Duration = Duration::from_millis(50);
/// Milliseconds within which pods leave a server that asks its clients to go; each pod picks a
/// random moment.
const MOVE_MS_MAX: Millis = 2000;

pub(super) async fn run(shared: &FabricContext, client: &Client) {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut echo_at = 0;
    let mut move_at = None;
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                shared.link.check(client.connection_state() == State::Connected);
                shared.core().tick(shared.now());
            }
            () = shared.link.changed.notified() => {}
        }
        let changes = shared.link.take_changes();
        let now = shared.now();
        for connected in changes.transitions {
            if connected {
                shared.core().connected(now, client.max_payload());
                (echo_at, move_at) = (now, None);
            } else {
                shared.core().disconnected(now);
            }
        }
        if changes.is_lame_duck {
            move_at.get_or_insert_with(|| now + fastrand::u64(..MOVE_MS_MAX));
        }
        if let Some(health) = changes.health {
            match health.connected {
                true => tracing::info!(%health, "the network between pods is up"),
                false => {
                    tracing::warn!(%health, "the network between pods is down: other pods get only stored messages, within a second");
                }
            }
            shared.sink.health_changed(&health);
        }
        if !shared.link.is_connected() {
            continue;
        }
        if move_at.take_if(|at| *at <= now).is_some() {
            shared.must_move.notify_one();
        }
        if echo_at <= now {
            echo_at = now + ECHO_EVERY_MS;
            // A failure costs only one measurement.
            let _ = timeout(ECHO_WAIT, sending::echo(shared, client)).await;
        }
    }
}
