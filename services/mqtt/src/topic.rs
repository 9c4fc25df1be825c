//! Topic names and topic filters (MQTT 5.0 section 4.7, shared subscriptions 4.8.2).

use crate::wire::{FIELD_BYTES_MAX, utf8};
use crate::{DecodeError, Version};

/// True for a topic that a client may publish to: not empty, at most 65,535 bytes, without
/// wildcards and U+0000.
#[inline]
pub fn is_valid_name(topic: &str) -> bool {
    //= [MQTT-4.7.3-1] v5 v3.1.1
    //= [MQTT-4.7.3-3] v5 v3.1.1
    !topic.is_empty() && topic.len() <= FIELD_BYTES_MAX && has_name_chars(topic)
}

/// Every PUBLISH runs this check, and nearly all topics are valid. Comparing blocks of a fixed size
/// without an early exit compiles to vector code.
#[inline]
pub(crate) fn has_name_chars(topic: &str) -> bool {
    const BLOCK: usize = 16;
    let bytes = topic.as_bytes();
    let Some(last) = bytes.last_chunk::<BLOCK>() else { return !any_bad(bytes) };
    // The last block overlaps the one before it, so that no shorter rest is left.
    let (blocks, _) = bytes.as_chunks::<BLOCK>();
    !blocks.iter().fold(any_bad(last), |bad, block| bad | any_bad(block))
}

#[inline]
fn any_bad(bytes: &[u8]) -> bool {
    //= [MQTT-4.7.0-1] v5
    //= [MQTT-4.7.1-1] v3.1.1
    //= [MQTT-4.7.3-2] v5 v3.1.1
    bytes.iter().fold(false, |bad, &b| bad | (b == 0) | (b == b'+') | (b == b'#'))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Filter<'a> {
    pub share: Option<&'a str>,
    /// The filter without `$share` and share name.
    pub filter: &'a str,
}

impl<'a> Filter<'a> {
    /// `None` when `text` breaks a rule of section 4.7 or 4.8.2.
    pub fn parse(text: &'a str) -> Option<Self> {
        //= [MQTT-4.7.3-3] v5 v3.1.1
        //= [MQTT-4.7.3-2] v5 v3.1.1
        if text.len() > FIELD_BYTES_MAX || text.as_bytes().contains(&0) {
            return None;
        }
        //= [MQTT-4.8.2-1] v5
        //= [MQTT-4.8.2-2] v5
        let (share, filter) = match text.strip_prefix("$share/") {
            None => (None, text),
            Some(rest) => {
                let (name, filter) = rest.split_once('/')?;
                if name.is_empty() || name.contains(['+', '#']) {
                    return None;
                }
                (Some(name), filter)
            }
        };
        is_valid_filter(filter.as_bytes()).then_some(Self { share, filter })
    }

    pub fn has_wildcard(&self) -> bool {
        self.filter.bytes().any(|b| b == b'+' || b == b'#')
    }
}

/// Levels of a topic or filter (section 4.7).
#[must_use]
pub fn levels(text: &[u8]) -> usize {
    1 + text.iter().filter(|byte| **byte == b'/').count()
}

/// Checks a filter of a SUBSCRIBE or UNSUBSCRIBE (section 4.7), the bytes of a valid string. In 5.0 a
/// shared subscription without share name or filter is a protocol error. 3.x has no shared
/// subscriptions, so `$share/g` is a normal filter there.
#[inline]
pub(crate) fn check_filter(bytes: &[u8], version: Version) -> Result<(), DecodeError> {
    if !is_valid_filter(bytes) {
        return Err(DecodeError::TopicFilter);
    }
    //= [MQTT-4.8.2-1] v5
    //= [MQTT-4.8.2-2] v5
    if version == Version::V5 && bytes.starts_with(b"$share/") && Filter::parse(utf8(bytes)?).is_none() {
        return Err(DecodeError::Protocol("a shared subscription without a share name or a filter"));
    }
    Ok(())
}

#[inline]
fn is_valid_filter(filter: &[u8]) -> bool {
    let begins_level = |at: usize| at == 0 || filter[at - 1] == b'/';
    let ends_level = |at: usize| filter.get(at + 1).is_none_or(|&next| next == b'/');
    let is_valid = |(at, byte): (usize, &u8)| match byte {
        //= [MQTT-4.7.1-1] v5
        //= [MQTT-4.7.1-2] v3.1.1
        b'#' => begins_level(at) && at + 1 == filter.len(),
        //= [MQTT-4.7.1-2] v5
        //= [MQTT-4.7.1-3] v3.1.1
        b'+' => begins_level(at) && ends_level(at),
        _ => true,
    };
    //= [MQTT-4.7.3-1] v5 v3.1.1
    !filter.is_empty() && filter.iter().enumerate().all(is_valid)
}

/// True for topics that only the server publishes to: below `$SYS`, except the topic on which mosquitto's bridges
/// publish whether they are connected.
//= [MQTT-4.7.2-1] v5 v3.1.1
pub fn is_reserved(topic: &str) -> bool {
    topic.as_bytes().first() == Some(&b'$')
        && matches("$SYS/#", topic)
        && !matches("$SYS/broker/connection/+/state", topic)
}

/// Matches by the plain definition of section 4.7, for tests and rare paths; publishing uses the
/// router's trie. `filter` has no `$share` and no share name.
pub fn matches(filter: &str, topic: &str) -> bool {
    //= [MQTT-4.7.2-1] v5 v3.1.1
    if topic.starts_with('$') && filter.starts_with(['+', '#']) {
        return false;
    }
    // Levels are compared byte by byte: case, empty levels and Unicode forms all count.
    //= [MQTT-4.7.3-4] v5 v3.1.1
    let (mut filter, mut topic) = (filter.split('/'), topic.split('/'));
    loop {
        match (filter.next(), topic.next()) {
            // Reached with no level left in the topic, too: `sport/#` matches `sport`.
            (Some("#"), _) | (None, None) => return true,
            (Some("+"), Some(_)) => {}
            (Some(wanted), Some(level)) if wanted == level => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests;
