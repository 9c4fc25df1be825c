//! Sends the frames of the outbox to NATS.

use std::time::Duration;

use async_nats::client::PublishErrorKind;
use async_nats::{Client, PublishError, Subject};
use bytes::Bytes;

use crate::address::Echo;
use crate::limits::ROUND_FRAMES_MAX;
use crate::linger::Linger;
use crate::outbox::{Destination, FabricOutbox, Outgoing};
use crate::state::FabricContext;

/// Sends until the NATS client ends, or until the fabric stops.
pub(super) async fn run(shared: &FabricContext, client: &Client) -> Result<(), String> {
    let linger = Linger::new(Duration::from_micros(shared.limits.linger_us.into()));
    let mut linger = linger.map_err(|error| error.to_string())?;
    let mut is_drained = true;
    loop {
        tokio::select! {
            biased;
            () = shared.must_finish.notified() => return finish(shared, client).await,
            () = shared.must_move.notified() => {
                change_server(shared, client).await;
                continue;
            }
            () = shared.outbox.wait() => {}
        }
        linger.wait().await.map_err(|error| error.to_string())?;
        let publish = async |outgoing| publish(shared, client, outgoing).await;
        is_drained = send_some(&shared.outbox, is_drained, ROUND_FRAMES_MAX, publish).await?;
        if is_drained {
            linger.start();
        }
    }
}

/// Returns false if `frames_max` frames have left, so that the queue may not be empty.
async fn send_some<E>(
    outbox: &FabricOutbox,
    was_drained: bool,
    frames_max: u32,
    mut publish: impl AsyncFnMut(Outgoing) -> Result<(), E>,
) -> Result<bool, E> {
    // While frames wait, messages gather in open batches: a batch of each message would fill the queue.
    if was_drained {
        outbox.close_batches();
    }
    for _ in 0..frames_max {
        let Some(outgoing) = outbox.pop() else { return Ok(true) };
        publish(outgoing).await?;
    }
    Ok(false)
}

async fn finish(shared: &FabricContext, client: &Client) -> Result<(), String> {
    shared.outbox.close_batches();
    shared.core().bye();
    while let Some(outgoing) = shared.outbox.pop() {
        publish(shared, client, outgoing).await?;
    }
    until_received(shared, client).await
}

/// Waits until the server has everything, because closing earlier would lose it.
async fn until_received(shared: &FabricContext, client: &Client) -> Result<(), String> {
    let number = echo(shared, client).await.map_err(|error| error.to_string())?;
    shared.link.until_echoed(number).await;
    Ok(())
}

/// Sends a probe to a subject without a listener. The server's reply gives the round-trip time, and
/// proves that the server has everything sent before.
pub(super) async fn echo(shared: &FabricContext, client: &Client) -> Result<u64, PublishError> {
    let number = shared.link.echo();
    let reply = shared.subjects.echo(&Echo::Nobody(number));
    client.publish_with_reply(shared.subjects.nobody(), reply, Bytes::new()).await?;
    Ok(number)
}

/// Moves to another server, once the present one has everything.
async fn change_server(shared: &FabricContext, client: &Client) {
    tokio::select! {
        _ = until_received(shared, client) => {}
        () = shared.link.until(false) => return,
    }
    if client.force_reconnect().await.is_err() {
        tracing::warn!(
            "could not leave a NATS server that asks its clients to go; it will close the connection"
        );
    }
}

/// Fails when the NATS client has ended.
async fn publish(shared: &FabricContext, client: &Client, outgoing: Outgoing) -> Result<(), String> {
    let Outgoing { destination, numbers, probe, part, .. } = outgoing;
    let subject = match destination {
        Destination::To(to) => shared.subjects.of(to),
        Destination::Control => shared.subjects.control(),
        Destination::ControlOf(pod) => shared.subjects.control_of(pod),
    };
    let reply = match (destination, probe) {
        (Destination::To(to), Some(probe)) => Some(shared.subjects.echo(&Echo::Probe(to, probe))),
        _ => None,
    };
    let counts = &shared.counts;
    let is_first = part.is_none_or(|(index, _)| index == 0);
    let count = numbers.filter(|_| is_first).map_or(0, |numbers| numbers.count);
    match numbers {
        Some(numbers) if numbers.count > 0 => counts.batches_sent.add(usize::from(is_first)),
        Some(_) => counts.heartbeats_sent.add(1),
        None => {}
    }
    counts.parts_sent.add(usize::from(part.is_some()));
    let payload = outgoing.payload(shared.subjects.own());
    let result = publish_frame(shared, client, subject.into(), reply.map(Subject::from), payload).await;
    match result {
        Err(error) if error.kind() == PublishErrorKind::MaxPayloadExceeded => {
            counts.dropped_too_large.add(count as usize);
            Ok(())
        }
        result => result.map_err(|error| error.to_string()),
    }
}

async fn publish_frame(
    shared: &FabricContext,
    client: &Client,
    subject: Subject,
    reply: Option<Subject>,
    payload: Bytes,
) -> Result<(), PublishError> {
    shared.counts.bytes_sent.add(payload.len());
    match reply {
        Some(reply) => client.publish_with_reply(subject, reply, payload).await,
        None => client.publish(subject, payload).await,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::address::{PodId, To};
    use crate::limits::FabricLimits;

    #[test]
    fn a_round_ends_while_other_threads_keep_the_queue_filled() {
        let outbox = FabricOutbox::new(PodId(1), FabricLimits::default(), Arc::default());
        outbox.connected(0, false, 1 << 20);
        let fill = || {
            let _ = outbox.send(To::Broker(1), &[&[0; 1000]]);
            outbox.close_batches();
        };
        fill();
        let mut frames = 0;
        let round = send_some(&outbox, true, 10, async |_| {
            fill();
            frames += 1;
            if frames > 1_000 { Err("the round does not end") } else { Ok(()) }
        });
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert_eq!(runtime.block_on(round), Ok(false));
        assert_eq!(frames, 10);
    }

    #[test]
    fn receivers_beyond_the_frames_of_a_round_have_batches_of_many_messages() {
        let outbox = FabricOutbox::new(PodId(1), FabricLimits::default(), Arc::default());
        outbox.connected(0, false, 1 << 20);
        let (mut is_drained, mut frames, mut messages) = (true, 0, 0);
        let mut rounds_since_drained = 0;
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for _ in 0..100 {
            for broker in 0..30 {
                let _ = outbox.send(To::Broker(broker), &[b"message"]);
            }
            let round = send_some(&outbox, is_drained, 10, async |outgoing| {
                frames += 1;
                messages += outgoing.numbers.map_or(0, |numbers| numbers.count);
                Ok::<_, ()>(())
            });
            is_drained = runtime.block_on(round).unwrap();
            rounds_since_drained = if is_drained { 0 } else { rounds_since_drained + 1 };
            assert!(rounds_since_drained <= 3, "messages wait in open batches");
        }
        assert!(messages > 2 * frames, "{messages} messages in {frames} batches");
    }
}
