//! Makes webhook events of clients. They go to the store like messages, and to nobody else.

use std::sync::Arc;

use serde_json::{Value, json};

use super::clients::version;
use super::{ConnectionEnd, Core};
use crate::broker::Broker;
use crate::jobs;
use crate::jobs::Write;
use crate::webhooks::EventKind;

impl Core {
    pub(super) fn queue_connect_event(&mut self, slot: u32, broker: &Arc<Broker>, present: bool) {
        if !broker.streams.has_webhooks() {
            return;
        }
        let mut data = self.who_is(slot);
        let connection = &self.connections[slot as usize];
        data["protocol"] = version(connection.protocol.version()).into();
        data["keep_alive_s"] = connection.protocol.keep_alive_s().into();
        data["session_present"] = present.into();
        let forwarded = connection.origin.as_ref().and_then(|origin| origin.address);
        let address = forwarded.or_else(|| connection.stream.peer_addr().ok());
        data["address"] = address.map(|address| address.to_string()).into();
        self.queue_event(broker, EventKind::Connect, &data);
    }

    /// Called before the session is detached.
    pub(super) fn queue_disconnect_event(&mut self, slot: u32, ended: ConnectionEnd) {
        let session = self.connections[slot as usize].session;
        let broker = self.sessions[session as usize].broker.clone();
        if !broker.streams.has_webhooks() {
            return;
        }
        let mut data = self.who_is(slot);
        data["reason"] = reason(ended).into();
        if let ConnectionEnd::Error(code) = ended {
            data["reason_code"] = code.0.into();
        }
        self.queue_event(&broker, EventKind::Disconnect, &data);
    }

    fn who_is(&self, slot: u32) -> Value {
        let connection = &self.connections[slot as usize];
        let session = &self.sessions[connection.session as usize].session;
        json!({ "client_id": &**session.client_id(), "user": connection.who.user() })
    }

    pub(super) fn queue_event(&mut self, broker: &Arc<Broker>, kind: EventKind, data: &Value) {
        let routes = self.routes_to(broker, kind.topic());
        if routes.stored.webhooks.is_empty() {
            return;
        }
        let publish = jobs::PublishWrite {
            message: kind.message(data),
            routes,
            from: None,
            publisher: 0,
            retains: false,
            reserved: None,
            waits_for_commit: false,
            fence: None,
            skip_if: None,
            queued_us: 0,
        };
        self.queue_job(Write::Publish(publish));
    }
}

pub(super) fn reason(ended: ConnectionEnd) -> &'static str {
    match ended {
        ConnectionEnd::Client => "client",
        ConnectionEnd::Lost | ConnectionEnd::WebSocketClosed(_) => "lost",
        ConnectionEnd::TakenOver => "taken_over",
        ConnectionEnd::KeepAlive => "keep_alive",
        ConnectionEnd::Shutdown | ConnectionEnd::Drained => "server_shutting_down",
        ConnectionEnd::Slow => "outbound_limit",
        ConnectionEnd::Kicked => "kicked",
        ConnectionEnd::Banned => "banned",
        ConnectionEnd::Error(_) | ConnectionEnd::Frame(_) => "error",
    }
}
