use std::sync::Arc;

use hashbrown::HashMap;

use crate::settings::ALIASED_TOPIC_BYTES_MAX;

/// Topic aliases of one connection, both ways (MQTT 5.0 section 3.3.2.3.4). They end with the connection.
#[derive(Debug, Default)]
pub(crate) struct Aliases {
    /// The index is alias - 1.
    inbound: Vec<Option<Arc<str>>>,
    inbound_bytes: usize,
    outbound: HashMap<Arc<str>, u16, foldhash::fast::FixedState>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutboundAlias {
    /// The client knows the alias, so the topic name is left out; with `Set` both are sent.
    Known(u16),
    Set(u16),
    Plain,
}

impl Aliases {
    /// `alias` must be from 1 to Topic Alias Maximum.
    pub(crate) fn set_inbound(&mut self, alias: u16, topic: &str) {
        let index = usize::from(alias) - 1;
        if self.inbound.len() <= index {
            self.inbound.resize(index + 1, None);
        }
        let old = self.inbound[index].replace(topic.into());
        self.inbound_bytes += topic.len();
        self.inbound_bytes -= old.map_or(0, |old| old.len());
    }

    pub(crate) fn inbound_bytes(&self) -> usize {
        self.inbound_bytes
    }

    pub(crate) fn inbound(&self, alias: u16) -> Option<Arc<str>> {
        self.inbound.get(usize::from(alias).checked_sub(1)?)?.clone()
    }

    pub(crate) fn outbound_topic(&self, alias: u16) -> Option<Arc<str>> {
        self.outbound.iter().find(|(_, number)| **number == alias).map(|(topic, _)| topic.clone())
    }

    pub(crate) fn outbound(&mut self, topic: &Arc<str>, alias_max: u16) -> OutboundAlias {
        if let Some(alias) = self.outbound.get(topic) {
            return OutboundAlias::Known(*alias);
        }
        let next = self.outbound.len() + 1;
        match u16::try_from(next) {
            Ok(alias) if alias <= alias_max && topic.len() <= ALIASED_TOPIC_BYTES_MAX => {
                self.outbound.insert(topic.clone(), alias);
                OutboundAlias::Set(alias)
            }
            _ => OutboundAlias::Plain,
        }
    }

    /// Only for the alias that was set last: its number is the next one again.
    pub(crate) fn unset(&mut self, topic: &Arc<str>) {
        self.outbound.remove(topic);
    }
}
