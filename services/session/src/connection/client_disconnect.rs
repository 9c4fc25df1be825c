//! Handles a DISCONNECT of the client (MQTT 5.0 section 3.14).

use millrace_mqtt::{Disconnect, Property, ReasonCode};

use super::Connection;
use crate::{Out, Session, SessionEffect, SessionSettings};

impl Connection {
    pub(super) fn client_disconnects<'a>(
        &mut self,
        disconnect: &Disconnect<'_>,
        session: &mut Session,
        settings: &SessionSettings,
        out: &mut impl Out,
    ) -> SessionEffect<'a> {
        //= [MQTT-3.14.2-1] v5
        if !disconnect.reason.is_legal_in_disconnect_of_client() {
            let what = "DISCONNECT with a reason code that only a server sends";
            return self.close(ReasonCode::PROTOCOL_ERROR, what, out);
        }
        for property in disconnect.properties.iter() {
            match property {
                Property::SessionExpiryInterval(_) if session.expiry_s == 0 && self.has_requested_expiry => {}
                Property::SessionExpiryInterval(seconds) => {
                    if session.expiry_s == 0 && seconds > 0 {
                        let what = "a session expiry in DISCONNECT where CONNECT had none";
                        return self.close(ReasonCode::PROTOCOL_ERROR, what, out);
                    }
                    session.expiry_s = seconds.min(settings.session_expiry_max_s);
                }
                Property::ServerReference(_) => {
                    return self.close(ReasonCode::PROTOCOL_ERROR, "a server reference from a client", out);
                }
                _ => {}
            }
        }
        //= [MQTT-3.14.4-3] [MQTT-3.1.2-10] v5
        //= [MQTT-3.14.4-3] [MQTT-3.1.2-10] v3.1.1
        SessionEffect::Disconnect { with_will: disconnect.reason != ReasonCode::SUCCESS }
    }
}
