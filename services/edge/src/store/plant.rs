//! Faults that a test plants in the writer, to show that the simulation finds them. A build without tests has none.

#[allow(dead_code, reason = "each is planted by a test")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plant {
    /// A transaction with an unknown outcome counts as failed.
    ForgetsDoubt,
    /// A transaction with an unknown outcome is repeated without a look at the commit marker.
    RepeatsUnknown,
    /// A job of a replaced owner is written under the session's present epoch.
    SkipsFence,
    /// Publishers get a positive acknowledgement although the store refused the message.
    AcknowledgesRefused,
    /// The end of a connection that the store refused is not tried again.
    ForgetsEnds,
    /// Later messages of a publisher pass one that was refused.
    LetsPass,
    /// A checkpoint trims a stream that other sessions read.
    TrimsOthers,
    /// A message is stored for the filters in memory only, although other pods may have changed them.
    IgnoresOthersFilters,
    /// After any commit the filters in memory count as those of its version.
    TrustsUnwatched,
    /// After a commit that watched the filters, those in memory count as those of its whole version.
    TrustsWholeVersion,
    /// A claimed message that no member took is not given back.
    ForgetsClaims,
    /// A dead pod's lease is removed before its sessions are recovered.
    RemovesLeaseEarly,
    /// Among the messages of a replaced owner, only those with QoS 2 are fenced off.
    FencesQos2Only,
    /// The imitated event loop gives messages to other members whose packet ids are on their way to the store.
    PassesOnBegun,
}

#[cfg(not(test))]
#[inline]
pub(super) const fn is_planted(_: Plant) -> bool {
    false
}

#[cfg(test)]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Plant>> = const { std::cell::Cell::new(None) };
}

#[cfg(test)]
pub(super) fn is_planted(plant: Plant) -> bool {
    PLANTED.get() == Some(plant)
}

#[cfg(test)]
pub(super) fn plant(plant: Option<Plant>) {
    PLANTED.set(plant);
}
