//! Maps with a fast hash. In tests they have the same order in each run.

#[cfg(test)]
type Hasher = foldhash::fast::FixedState;
#[cfg(not(test))]
type Hasher = foldhash::fast::RandomState;

pub(crate) type HashMap<K, V> = std::collections::HashMap<K, V, Hasher>;
pub(crate) type HashSet<K> = std::collections::HashSet<K, Hasher>;
