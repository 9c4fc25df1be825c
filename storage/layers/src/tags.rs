//! The tags of keys, all in one file so that no two are the same. They are stored, so they never change; README.md has the
//! table of keys.

/// First element of keys that belong to no broker.
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
pub(crate) const LOSSES: &[u8] = b"tl";
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
pub(crate) const CONDEMNED: &[u8] = b"ke";
pub(crate) const USAGE: &[u8] = b"y";
pub(crate) const SHARE: &[u8] = b"ys";
pub(crate) const INCIDENT: &[u8] = b"yi";
pub(crate) const USAGE_WINDOW: &[u8] = b"yw";
pub(crate) const USAGE_LEVEL: &[u8] = b"yl";
pub(crate) const USAGE_PRESENCE: &[u8] = b"yp";
pub(crate) const USAGE_FLUSH: &[u8] = b"yf";
pub(crate) const HISTORY: &[u8] = b"yh";
pub(crate) const POD: &[u8] = b"p";
pub(crate) const NOTICE: &[u8] = b"pn";
pub(crate) const MARK: &[u8] = b"pm";

pub(crate) const ORGANISATION: &[u8] = b"a";
pub(crate) const USER: &[u8] = b"au";
pub(crate) const EMAIL: &[u8] = b"ae";
pub(crate) const SUBJECT: &[u8] = b"ao";
pub(crate) const SUBJECT_OF: &[u8] = b"aos";
pub(crate) const MEMBER: &[u8] = b"am";
pub(crate) const MEMBERSHIP: &[u8] = b"aum";
pub(crate) const SIGN_IN: &[u8] = b"as";
pub(crate) const SIGN_IN_OF: &[u8] = b"aus";
pub(crate) const INVITATION: &[u8] = b"ai";
pub(crate) const INVITATION_HASH: &[u8] = b"aih";
pub(crate) const TOKEN: &[u8] = b"at";
pub(crate) const TOKEN_HASH: &[u8] = b"ath";
pub(crate) const BROKER_OF: &[u8] = b"ab";
pub(crate) const AUDIT: &[u8] = b"al";
pub(crate) const RECEIPT: &[u8] = b"aq";
pub(crate) const EXPIRING: &[u8] = b"ax";
pub(crate) const SETTING: &[u8] = b"aw";
pub(crate) const SPEND_CAP: &[u8] = b"ap";
pub(crate) const FORMER_BROKER: &[u8] = b"af";
pub(crate) const FORMER_BROKER_OF: &[u8] = b"afo";
pub(crate) const LEDGER: &[u8] = b"afl";
pub(crate) const PLAN: &[u8] = b"apl";
pub(crate) const SIGN_UP: &[u8] = b"ay";
pub(crate) const SECOND_FACTOR: &[u8] = b"a2";
pub(crate) const PASSKEY_OWNER: &[u8] = b"a2p";
pub(crate) const SPENT_CHALLENGE: &[u8] = b"a2c";
pub(crate) const ACCOUNT_LINK: &[u8] = b"ayl";
pub(crate) const FORMER_ORGANISATION: &[u8] = b"afg";

pub(crate) const CREDENTIAL: &[u8] = b"ac";
pub(crate) const CREDENTIAL_COUNT: &[u8] = b"acn";
pub(crate) const CREDENTIAL_RULES: &[u8] = b"acr";
pub(crate) const ACCESS: &[u8] = b"ar";
pub(crate) const ACCESS_CHANGES: &[u8] = b"av";
pub(crate) const DOCUMENT_CHUNK: &[u8] = b"az";
pub(crate) const ACCESS_GROUP: &[u8] = b"ag";
pub(crate) const CLIENT_CA: &[u8] = b"aa";
pub(crate) const JWT_ISSUER: &[u8] = b"aj";
pub(crate) const WEBHOOK: &[u8] = b"ah";
pub(crate) const BAN: &[u8] = b"an";
pub(crate) const CLAIM_TOKEN: &[u8] = b"ak";
pub(crate) const CLAIM_TOKEN_HASH: &[u8] = b"akh";

pub(crate) const WEBHOOK_STATE: &[u8] = b"h";
pub(crate) const WEBHOOK_SOURCE: &[u8] = b"hu";
pub(crate) const DEAD_LETTER: &[u8] = b"hd";
pub(crate) const DEAD_LETTER_CHUNK: &[u8] = b"hdc";
pub(crate) const WEBHOOK_AGAIN: &[u8] = b"hr";
pub(crate) const WEBHOOK_QUEUED: &[u8] = b"hq";
pub(crate) const WEBHOOK_LOG: &[u8] = b"hl";

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
            LOSSES,
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
            SHARE,
            INCIDENT,
            USAGE_WINDOW,
            USAGE_LEVEL,
            USAGE_PRESENCE,
            USAGE_FLUSH,
            HISTORY,
            SPEND_CAP,
            FORMER_BROKER,
            FORMER_BROKER_OF,
            LEDGER,
            FORMER_ORGANISATION,
            SIGN_UP,
            SECOND_FACTOR,
            PASSKEY_OWNER,
            SPENT_CHALLENGE,
            ACCOUNT_LINK,
            PLAN,
            POD,
            NOTICE,
            MARK,
            CONDEMNED,
            ORGANISATION,
            USER,
            EMAIL,
            SUBJECT,
            SUBJECT_OF,
            MEMBER,
            MEMBERSHIP,
            SIGN_IN,
            SIGN_IN_OF,
            INVITATION,
            INVITATION_HASH,
            TOKEN,
            TOKEN_HASH,
            BROKER_OF,
            AUDIT,
            RECEIPT,
            EXPIRING,
            SETTING,
            CREDENTIAL,
            CREDENTIAL_COUNT,
            CREDENTIAL_RULES,
            ACCESS,
            ACCESS_CHANGES,
            DOCUMENT_CHUNK,
            ACCESS_GROUP,
            CLIENT_CA,
            JWT_ISSUER,
            WEBHOOK,
            WEBHOOK_STATE,
            WEBHOOK_SOURCE,
            DEAD_LETTER,
            DEAD_LETTER_CHUNK,
            WEBHOOK_AGAIN,
            WEBHOOK_QUEUED,
            WEBHOOK_LOG,
            BAN,
            CLAIM_TOKEN,
            CLAIM_TOKEN_HASH,
        ];
        let count = tags.len();
        tags.sort_unstable();
        tags.dedup();
        assert_eq!(tags.len(), count);
    }
}
