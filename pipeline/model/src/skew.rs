//! Detects wrong times: before such profiles existed, or far from their arrival.

/// A day, in nanoseconds.
pub const DAY: u64 = 86_400 * 1_000_000_000;

/// The first moment of 2000, in nanoseconds since the Unix epoch.
const YEAR_2000: u64 = 946_684_800 * 1_000_000_000;

/// Whether an event's time must be wrong: before 2000, or more than a day from its arrival, both in nanoseconds since
/// the Unix epoch.
pub fn is_wrong(time_unix_nano: u64, arrival_unix_nano: u64) -> bool {
    time_unix_nano < YEAR_2000 || time_unix_nano.abs_diff(arrival_unix_nano) > DAY
}
