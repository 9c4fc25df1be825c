//! Bugs that a test switches on in the writer, to show that the simulation (`store/simulation`) finds them. Builds without tests have none.

#[allow(dead_code, reason = "a test switches each on")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriterBug {
    /// A transaction with an unknown outcome counts as failed.
    ForgetsDoubt,
    /// A transaction with an unknown outcome is repeated without a look at the commit marker.
    RepeatsUnknown,
    /// A job of a replaced owner is written under the session's present epoch.
    SkipsFence,
    /// Publishers get a positive acknowledgement although the store refused the message.
    AcknowledgesRefused,
    /// If the store refuses the write that detaches a session, the writer does not repeat the write.
    ForgetsDetach,
    /// Later messages of a publisher overtake a refused one.
    LetsPass,
    /// A checkpoint trims a stream that other sessions read.
    TrimsOthers,
    /// A message is stored for the filters in memory only, although other pods may have changed them.
    IgnoresOthersFilters,
    /// Each commit marks the filters in memory as up to date, although the transaction watched only those of one topic.
    TrustsUnwatched,
    /// A commit marks the filters as up to date through its own version, although other pods may commit later in that version.
    TrustsWholeVersion,
    /// A claimed message that no member took is not given back.
    ForgetsClaims,
    /// A message that a member of a shared subscription had no room for counts as acknowledged.
    SettlesRefused,
    /// A dead pod's lease is removed before its sessions are recovered.
    RemovesLeaseEarly,
    /// Among the messages of a replaced owner, only those with QoS 2 are fenced off.
    FencesQos2Only,
    /// A message of a replaced owner that nothing else fences is stored however late it is.
    TrustsStalled,
    /// When a session ends, its shared messages go to other members, although their packet ids are on the way to the store.
    ReassignsBegun,
}

#[cfg(not(test))]
#[inline]
pub(super) const fn has_bug(_: WriterBug) -> bool {
    false
}

#[cfg(test)]
thread_local! {
    static SWITCHED_ON: std::cell::Cell<Option<WriterBug>> = const { std::cell::Cell::new(None) };
}

#[cfg(test)]
pub(super) fn has_bug(bug: WriterBug) -> bool {
    SWITCHED_ON.get() == Some(bug)
}

#[cfg(test)]
pub(super) fn switch_on(bug: Option<WriterBug>) {
    SWITCHED_ON.set(bug);
}
