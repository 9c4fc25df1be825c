//! What a client may publish and subscribe to.
//!
//! A client has several lists of rules: of its token, its credential, its group, its broker. They are read as one list, in that
//! order. **The first rule that applies decides.** When none applies the answer is no, unless there is no rule at all: then
//! everything is allowed.
//!
//! A publish is judged by its topic: a rule of the action applies when its filter matches. What an `allow` rule lets, it lets
//! up to its QoS, and with RETAIN only when it says so; that rules out what goes beyond, it does not hand on to the next rule.
//!
//! A subscription is judged as a whole, for messages are not looked at again when they are delivered. An `allow` rule applies
//! to it when its filter covers it (`a/#` covers `a/b/+`), a `deny` rule as soon as there is a topic that both match. So after a
//! `deny` of `private/#` a subscription to `#` is refused, even when an `allow` of `#` follows: nobody reads around a `deny` with
//! a wider filter. Nor around a QoS: an earlier `allow` rule that some of its topics match takes the whole subscription down to its
//! QoS.
//!
//! A client id or user name that is empty, starts with `$` or has one of `/ + #` in it could stand for other topics than a
//! placeholder means. To such a client an `allow` rule with that placeholder never applies, and a `deny` rule with it
//! always does. To a client without user name no rule with `%u` applies.

mod compiled;
mod explain;
mod filter;
mod permissions;

pub use compiled::RuleList;
pub(crate) use compiled::{Compiled, Who};
pub use explain::{Asked, Explained, Place, explain};
pub use permissions::{Client, Permissions, Refusal};

#[cfg(test)]
mod tests;
