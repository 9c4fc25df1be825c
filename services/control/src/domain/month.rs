//! The calendar month (UTC) of a time, because spend caps count by month.

const DAY_MS: u64 = 86_400_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Month {
    pub(super) from_ms: u64,
    /// Exclusive.
    pub(super) to_ms: u64,
}

pub(super) fn of(at_ms: u64) -> Month {
    let mut from_ms = 0;
    // A few hundred steps, because clocks show a time near today.
    for year in 1970_u64.. {
        for month in 1..=12 {
            let to_ms = from_ms + days(year, month) * DAY_MS;
            if at_ms < to_ms {
                return Month { from_ms, to_ms };
            }
            from_ms = to_ms;
        }
    }
    Month { from_ms, to_ms: u64::MAX }
}

fn days(year: u64, month: u64) -> u64 {
    let is_leap = year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    match month {
        2 => 28 + u64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_month_ends_where_the_next_one_begins() {
        // The first of February and March of 2024, of March 2100, and of December 2026, as `date` has them.
        for (from_s, to_s) in
            [(1_706_745_600, 1_709_251_200), (4_105_123_200, 4_107_542_400), (1_796_083_200, 1_798_761_600)]
        {
            let month = Month { from_ms: from_s * 1_000, to_ms: to_s * 1_000 };
            assert_eq!(of(month.from_ms), month);
            assert_eq!(of(month.to_ms - 1), month);
            assert_eq!(of(month.to_ms).from_ms, month.to_ms);
        }
    }
}
