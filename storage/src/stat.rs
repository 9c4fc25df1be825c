//! Numbers about an engine for `/metrics`: names, kinds and values, so that other crates need not
//! know the engine.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatKind {
    Counter,
    Gauge,
}

impl StatKind {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
        }
    }
}

/// One number; numbers of the same name differ in their labels and are adjacent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stat {
    /// Name, with its base unit at the end: seconds, bytes, or a ratio of 1.
    pub name: &'static str,
    /// Labels as in `reason="busy"`, or nothing.
    pub labels: &'static str,
    pub help: &'static str,
    pub kind: StatKind,
    /// In the unit of the name.
    pub value: f64,
}

impl Stat {
    /// Counters count whole microseconds or thousandths; this converts them to the base unit of a
    /// metric.
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn new(
        name: &'static str,
        labels: &'static str,
        help: &'static str,
        kind: StatKind,
        kept: u64,
    ) -> Self {
        let scale = match name {
            name if name.ends_with("_seconds") || name.ends_with("_seconds_total") => 1e6,
            name if name.ends_with("_ratio") => 1e3,
            _ => 1.0,
        };
        Self { name, labels, help, kind, value: kept as f64 / scale }
    }
}

#[derive(Debug, Default)]
pub(crate) struct StoreCount(AtomicU64);

impl StoreCount {
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    #[cfg(feature = "foundationdb")]
    pub(crate) fn subtract(&self, n: u64) {
        self.0.fetch_sub(n, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Takes a line per counter: field, kind, name, labels, help.
macro_rules! stats {
    ($(#[$doc:meta])* $set:ident { $($field:ident: $kind:ident $name:literal [$($label:literal)?] $help:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        pub(crate) struct $set { $(pub(crate) $field: $crate::stat::StoreCount,)* }

        impl $set {
            pub(crate) fn list(&self) -> Vec<$crate::stat::Stat> {
                vec![$($crate::stat::Stat::new(
                    $name,
                    concat!($($label)?),
                    $help,
                    $crate::stat::StatKind::$kind,
                    self.$field.get(),
                ),)*]
            }
        }
    };
}
pub(crate) use stats;
