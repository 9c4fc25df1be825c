//! The list of all attacks, and the limits that each must keep during and after its run.

mod handshakes;
mod http;
mod memory;
mod passwords;
mod readers;
mod resumed;
mod retained;
mod sessions;
mod store;
mod strangers;
mod subscriptions;

use super::ring::Ring;
use super::server::Setup;
use super::verdict::{AttackLimits, USUAL_LIMITS};
use crate::failure::Outcome;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// A tenant, or one of its devices.
    Tenant,
    /// Any client that can reach the port.
    Stranger,
}

impl By {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Tenant => "account",
            Self::Stranger => "stranger",
        }
    }
}

type AttackRun = fn(&Ring<'_>) -> Outcome<()>;

pub(super) struct Attack {
    pub(super) name: &'static str,
    pub(super) by: By,
    /// One sentence for `--list`.
    pub(super) what: &'static str,
    pub(super) setup: fn() -> Setup,
    pub(super) limits: AttackLimits,
    /// The attack belongs to the quick run of CI too.
    pub(super) is_short: bool,
    /// The attack can run beside others against one server, again and again.
    pub(super) is_for_soak: bool,
    pub(super) run: AttackRun,
}

impl Attack {
    const fn new(by: By, name: &'static str, what: &'static str, run: AttackRun) -> Self {
        let setup = Setup::default;
        Self { name, by, what, setup, limits: USUAL_LIMITS, is_short: false, is_for_soak: true, run }
    }

    const fn by_tenant(name: &'static str, what: &'static str, run: AttackRun) -> Self {
        Self::new(By::Tenant, name, what, run)
    }

    const fn by_stranger(name: &'static str, what: &'static str, run: AttackRun) -> Self {
        Self::new(By::Stranger, name, what, run)
    }

    const fn in_short_run(self) -> Self {
        Self { is_short: true, ..self }
    }

    /// The attack needs a server with settings of its own, so no other attack runs beside it.
    const fn with(self, setup: fn() -> Setup) -> Self {
        Self { setup, is_for_soak: false, ..self }
    }

    const fn not_in_soak(self) -> Self {
        Self { is_for_soak: false, ..self }
    }

    const fn limits(self, limits: AttackLimits) -> Self {
        Self { limits, ..self }
    }
}

pub(super) fn all() -> impl Iterator<Item = &'static Attack> {
    const ALL: &[&[Attack]] = &[
        subscriptions::ATTACKS,
        retained::ATTACKS,
        readers::ATTACKS,
        memory::ATTACKS,
        sessions::ATTACKS,
        resumed::ATTACKS,
        store::ATTACKS,
        passwords::ATTACKS,
        handshakes::ATTACKS,
        strangers::ATTACKS,
        http::ATTACKS,
    ];
    ALL.iter().flat_map(|attacks| attacks.iter())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_attack_has_a_name_of_its_own() {
        let names: HashSet<&str> = all().map(|attack| attack.name).collect();
        assert_eq!(names.len(), all().count());
    }
}
