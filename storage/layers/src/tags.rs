//! The kinds of keys, all in one place so that no two are the same. The table in README.md says what each has.

/// The first element of keys that belong to no broker. No broker has it as its id.
pub(crate) const REGION: u64 = 0;

pub(crate) const SESSION: &[u8] = b"s";
pub(crate) const CURSOR: &[u8] = b"c";
pub(crate) const WILL: &[u8] = b"w";
pub(crate) const WILL_CHUNK: &[u8] = b"wc";
pub(crate) const OWNER: &[u8] = b"o";

pub(crate) const SUBSCRIPTION: &[u8] = b"u";
pub(crate) const EXACT: &[u8] = b"x";
pub(crate) const WILDCARD: &[u8] = b"xw";
pub(crate) const BUCKET: &[u8] = b"xv";
pub(crate) const CHANGE: &[u8] = b"xl";
pub(crate) const CHANGES: &[u8] = b"xn";
pub(crate) const COUNT: &[u8] = b"n";

pub(crate) const STREAM: &[u8] = b"t";
pub(crate) const TOTALS: &[u8] = b"tn";
pub(crate) const ENTRY: &[u8] = b"e";
pub(crate) const HOLDERS: &[u8] = b"bh";
pub(crate) const BODY: &[u8] = b"b";
pub(crate) const DROPPED: &[u8] = b"td";
pub(crate) const GROUP: &[u8] = b"g";
pub(crate) const HEAD: &[u8] = b"gh";
pub(crate) const FREE: &[u8] = b"gf";
pub(crate) const CLAIMS: &[u8] = b"gc";

pub(crate) const RETAINED: &[u8] = b"r";
pub(crate) const RETAINED_CHUNK: &[u8] = b"rc";

pub(crate) const INBOUND: &[u8] = b"qi";
pub(crate) const OUTBOUND: &[u8] = b"qo";

pub(crate) const DUE: &[u8] = b"d";
pub(crate) const BROKER: &[u8] = b"k";
pub(crate) const BROKER_ID: &[u8] = b"ki";
pub(crate) const LAST_BROKER: &[u8] = b"kn";
pub(crate) const USAGE: &[u8] = b"y";
pub(crate) const POD: &[u8] = b"p";
pub(crate) const NOTICE: &[u8] = b"pn";
pub(crate) const MARK: &[u8] = b"pm";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_kinds_have_the_same_tag() {
        let mut tags = vec![
            SESSION,
            CURSOR,
            WILL,
            WILL_CHUNK,
            OWNER,
            SUBSCRIPTION,
            EXACT,
            WILDCARD,
            BUCKET,
            CHANGE,
            CHANGES,
            COUNT,
            STREAM,
            TOTALS,
            ENTRY,
            HOLDERS,
            BODY,
            DROPPED,
            GROUP,
            HEAD,
            FREE,
            CLAIMS,
            RETAINED,
            RETAINED_CHUNK,
            INBOUND,
            OUTBOUND,
            DUE,
            BROKER,
            BROKER_ID,
            LAST_BROKER,
            USAGE,
            POD,
            NOTICE,
            MARK,
        ];
        let count = tags.len();
        tags.sort_unstable();
        tags.dedup();
        assert_eq!(tags.len(), count);
    }
}
