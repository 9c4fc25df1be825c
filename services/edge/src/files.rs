//! Divides the files that the process may open among its parts: each connection is one.

use millrace_transport::addresses::AddressLimits;

use crate::limits::{
    CONNECTIONS_PER_ADDRESS_MAX, EdgeLimits, FILES_PER_ADDRESS_DIVISOR, FILES_RESERVED_DIVISOR,
    FILES_RESERVED_MIN,
};

fn open_files_max() -> Option<u64> {
    rlimit::Resource::NOFILE.get_soft().ok()
}

/// Files that MQTT connections leave to the store, the HTTP ports, listeners and outgoing
/// connections. A failed accept only waits, but the store refuses all writes when it cannot open a
/// file.
pub fn reserved_files() -> u64 {
    open_files_max().map_or(u64::MAX, reserved)
}

fn reserved(open_files_max: u64) -> u64 {
    (open_files_max / FILES_RESERVED_DIVISOR).max(FILES_RESERVED_MIN).min(open_files_max / 2)
}

pub(crate) fn limited(mut limits: EdgeLimits) -> EdgeLimits {
    let files = open_files_max().map_or(u64::MAX, |files| files - reserved(files));
    limits.connections_max = limits.connections_max.min(u32::try_from(files).unwrap_or(u32::MAX));
    limits
}

pub(crate) fn address_limits(limits: &EdgeLimits) -> AddressLimits {
    AddressLimits {
        connections_max: match limits.connections_per_address_max {
            0 => connections_per_address(open_files_max()),
            said => said,
        },
        cost_per_second_max: limits.connects_per_address_per_second_max,
        burst: limits.connects_per_address_burst,
    }
}

fn connections_per_address(open_files_max: Option<u64>) -> u32 {
    let share = open_files_max.map(|files| (files / FILES_PER_ADDRESS_DIVISOR).max(1));
    let share = share.and_then(|share| u32::try_from(share).ok()).unwrap_or(u32::MAX);
    share.min(CONNECTIONS_PER_ADDRESS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_grows_with_the_files_and_leaves_half_of_a_few() {
        for (files, kept) in [(0, 0), (64, 32), (400, 200), (1_024, 256), (20_000, 1_250), (1 << 20, 1 << 16)]
        {
            assert_eq!(reserved(files), kept, "of {files}");
        }
    }
}
