use std::collections::BTreeMap;

use millrace_layers::Position;

use super::StreamKey;

/// Messages of shared subscriptions that members have acknowledged or given back, and streams that got a member.
#[derive(Default)]
pub(crate) struct SharedMessages {
    pub(crate) settled: Vec<(StreamKey, Position)>,
    /// The member has left.
    pub(crate) returned: Vec<(StreamKey, Position)>,
    /// The member stays, but had no room for the message.
    pub(crate) refused: Vec<(StreamKey, Position)>,
    pub(crate) joined: Vec<StreamKey>,
    /// Another pod has given messages back.
    pub(crate) grown: Vec<StreamKey>,
}

impl SharedMessages {
    pub(crate) fn messages(&self) -> usize {
        self.settled.len() + self.returned.len() + self.refused.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.messages() == 0 && self.joined.is_empty() && self.grown.is_empty()
    }

    /// Whether only other pods have something to say.
    pub(crate) fn is_of_others(&self) -> bool {
        self.messages() == 0 && self.joined.is_empty()
    }

    pub(crate) fn streams(&self) -> impl Iterator<Item = StreamKey> {
        let messages = self.settled.iter().chain(&self.returned).chain(&self.refused);
        messages.map(|(stream, _)| *stream).chain(self.joined.iter().chain(&self.grown).copied())
    }

    /// Splits by broker, because jobs are in order only within their broker.
    pub(super) fn by_broker(self) -> BTreeMap<u64, Self> {
        let mut all: BTreeMap<u64, Self> = BTreeMap::new();
        for settled in self.settled {
            all.entry(settled.0.0).or_default().settled.push(settled);
        }
        for returned in self.returned {
            all.entry(returned.0.0).or_default().returned.push(returned);
        }
        for refused in self.refused {
            all.entry(refused.0.0).or_default().refused.push(refused);
        }
        for joined in self.joined {
            all.entry(joined.0).or_default().joined.push(joined);
        }
        for grown in self.grown {
            all.entry(grown.0).or_default().grown.push(grown);
        }
        all
    }
}
