//! Measures the steps of connections on their way to the CONNACK.

use std::collections::HashMap;
use std::net::IpAddr;

use millrace_transport::addresses::Address;

use super::Core;
use crate::metrics::{ConnectStep, ConnectTimes};

/// By slot. A connection leaves it with its CONNACK, so a connected client takes no memory here.
pub(super) type Measured = HashMap<u32, ConnectTimes, foldhash::fast::FixedState>;

impl Core {
    pub(super) fn measure_connect(&mut self, slot: u32, peer: IpAddr) {
        let now_us = self.process.clock.micros();
        let address = Address::of(peer).number();
        self.connects.times.insert(slot, ConnectTimes { accepted_us: now_us, step_us: now_us, address });
    }

    pub(super) fn end_connect_step(&mut self, slot: u32, step: ConnectStep) {
        let Some(times) = self.connects.times.get_mut(&slot) else { return };
        let now_us = self.process.clock.micros();
        let took_us = now_us.saturating_sub(times.step_us);
        times.step_us = now_us;
        self.process.core(self.index).connect_steps.of(step).note(took_us);
    }

    pub(super) fn end_connect(&mut self, slot: u32) {
        self.end_connect_step(slot, ConnectStep::Session);
        if let Some(times) = self.connects.times.remove(&slot) {
            let took_us = times.step_us.saturating_sub(times.accepted_us);
            self.process.core(self.index).connect_steps.of(ConnectStep::Connack).note(took_us);
        }
    }
}
