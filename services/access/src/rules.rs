//! Authorization: whether a client can publish to a topic or subscribe to a filter.
//!
//! The rule lists of a client's token, credential, group and broker are read as one list, in that
//! order. **The first rule that applies decides.** When none applies the request is denied, unless
//! there is no rule at all: then everything is allowed.
//!
//! A rule applies to a publish when its filter matches the topic. An `allow` rule permits QoS up to
//! its own, and RETAIN only if it says so. A publish beyond that is denied; later rules are not
//! consulted.
//!
//! A subscription is judged as a whole, because messages are not checked again at delivery. An
//! `allow` rule applies when its filter covers the subscription (`a/#` covers `a/b/+`). A `deny`
//! rule applies as soon as some topic matches both, so that a wider filter cannot bypass it: after
//! `deny private/#` a subscription to `#` is refused, even if `allow #` follows. An `allow` rule
//! that matches only some of the topics does not decide, but its QoS is the most that a later rule
//! can grant.
//!
//! A client id or user name that is empty, starts with `$` or contains `/`, `+` or `#` could make a
//! placeholder match other topics than intended. For such a client an `allow` rule with that
//! placeholder never applies, and a `deny` rule with it always does. Rules with `%u` never apply to
//! a client without user name.

mod compiled;
mod explain;
mod filter;
mod permissions;

pub use compiled::RuleList;
pub(crate) use compiled::{CompiledRule, RuleSubject};
pub use explain::{ExplainedRequest, Explanation, RulePosition, explain};
pub use permissions::{ClientIdentity, Permissions, RuleRefusal};

#[cfg(test)]
mod tests;
