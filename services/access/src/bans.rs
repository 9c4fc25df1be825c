//! Answers at a CONNECT whether a client is banned: the [`Ban`]s of one broker, indexed by client
//! id, user and network.

use std::collections::HashMap;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::model::{Ban, Invalid, ban};

/// Each ban with its end in unix milliseconds.
#[derive(Debug, Default)]
pub struct Bans {
    clients: HashMap<Box<str>, u64>,
    users: HashMap<Box<str>, u64>,
    networks: Vec<(IpNet, u64)>,
}

/// The client to check; a field is `None` while it is unknown, and then no ban of that kind
/// applies.
#[derive(Clone, Copy, Debug, Default)]
pub struct BanQuery<'a> {
    pub client_id: Option<&'a str>,
    pub user: Option<&'a str>,
    pub address: Option<IpAddr>,
}

impl Bans {
    /// Returns invalid records, which ban nobody, apart.
    #[must_use]
    pub fn new(records: Vec<Ban>) -> (Self, Vec<Invalid>) {
        let (mut bans, mut wrong) = (Self::default(), Vec::new());
        for record in records {
            if let Err(found) = record.validate() {
                let field = |field| format!("bans[{:?}].{field}", record.name);
                wrong.extend(found.into_iter().map(|one| Invalid { field: field(one.field), ..one }));
                continue;
            }
            let until_ms = record.until_ms.unwrap_or(u64::MAX);
            let longer = |until: &mut u64| *until = until_ms.max(*until);
            if let Some(client_id) = record.client_id {
                longer(bans.clients.entry(client_id.into()).or_default());
            }
            if let Some(user) = record.user {
                longer(bans.users.entry(user.into()).or_default());
            }
            let network = record.address.as_deref().and_then(ban::network);
            bans.networks.extend(network.map(|network| (network, until_ms)));
        }
        (bans, wrong)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty() && self.users.is_empty() && self.networks.is_empty()
    }

    #[must_use]
    pub fn has_networks(&self) -> bool {
        !self.networks.is_empty()
    }

    #[must_use]
    pub fn is_banned(&self, client: BanQuery<'_>, now_ms: u64) -> bool {
        let lasts = |until: &u64| now_ms < *until;
        let is_in = |map: &HashMap<Box<str>, u64>, name| map.get(name).is_some_and(lasts);
        let is_at = |address: IpAddr| {
            let address = address.to_canonical();
            self.networks.iter().any(|(network, until)| network.contains(&address) && lasts(until))
        };
        client.client_id.is_some_and(|client_id| is_in(&self.clients, client_id))
            || client.user.is_some_and(|user| is_in(&self.users, user))
            || client.address.is_some_and(is_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::USER_BYTES_MAX;

    fn bans(records: &[Ban]) -> Bans {
        let (bans, wrong) = Bans::new(records.to_vec());
        assert_eq!(wrong, []);
        bans
    }

    fn of(client_id: Option<&str>, user: Option<&str>, address: Option<&str>) -> Ban {
        let own = |text: Option<&str>| text.map(str::to_owned);
        let (client_id, user, address) = (own(client_id), own(user), own(address));
        Ban { name: "b".into(), client_id, user, address, ..Ban::default() }
    }

    #[test]
    fn a_client_id_a_user_and_addresses_are_banned_and_nobody_else() {
        let bans = bans(&[
            of(Some("pump"), None, None),
            of(None, Some("eve"), None),
            of(None, None, Some("192.0.2.0/24")),
            of(None, None, Some("2001:db8::7")),
        ]);
        let client = |client_id| BanQuery { client_id: Some(client_id), ..BanQuery::default() };
        let user = |user| BanQuery { user: Some(user), ..BanQuery::default() };
        let at = |text: &str| BanQuery { address: Some(text.parse().unwrap()), ..BanQuery::default() };
        for banned in
            [client("pump"), user("eve"), at("192.0.2.9"), at("::ffff:192.0.2.9"), at("2001:db8::7")]
        {
            assert!(bans.is_banned(banned, 0), "{banned:?}");
        }
        for free in [client("eve"), user("pump"), client("pump2"), at("192.0.3.9"), at("2001:db8::8")] {
            assert!(!bans.is_banned(free, 0), "{free:?}");
        }
    }

    #[test]
    fn each_user_that_a_token_or_a_webhook_can_name_can_be_banned() {
        for user in ["mallory ", "mal\u{200B}lory", "..", &"x".repeat(USER_BYTES_MAX)] {
            let bans = bans(&[of(None, Some(user), None)]);
            assert!(bans.is_banned(BanQuery { user: Some(user), ..BanQuery::default() }, 0), "{user:?}");
            assert!(
                !bans.is_banned(BanQuery { user: Some("mallory"), ..BanQuery::default() }, 0),
                "{user:?}"
            );
        }
        let long = of(None, Some(&"x".repeat(USER_BYTES_MAX + 1)), None);
        assert!(long.validate().is_err() && of(None, Some(""), None).validate().is_err());
    }

    #[test]
    fn a_ban_ends_and_of_two_the_longer_one_counts() {
        let until = |until_ms| Ban { until_ms, ..of(Some("pump"), None, None) };
        let has = |bans: &Bans, now| {
            bans.is_banned(BanQuery { client_id: Some("pump"), ..BanQuery::default() }, now)
        };
        let one = bans(&[until(Some(5))]);
        assert!(has(&one, 4) && !has(&one, 5));
        assert!(has(&bans(&[until(None), until(Some(5))]), 6));
    }

    #[test]
    fn a_record_that_names_nobody_or_two_is_wrong_and_bans_nobody() {
        for wrong in [
            of(None, None, None),
            of(Some("a"), Some("b"), None),
            of(Some(""), None, None),
            of(None, None, Some("192.0.2.0/33")),
            Ban { reason: Some("x".repeat(257)), ..of(Some("a"), None, None) },
        ] {
            let (bans, found) = Bans::new(vec![wrong]);
            assert!(bans.is_empty() && !found.is_empty(), "{found:?}");
        }
    }
}
