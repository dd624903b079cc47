//! Moments as the calendar and a clock on the wall show them.

/// A moment in UTC, in the Gregorian calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Utc {
    /// The year, from 1970 on.
    pub year: u64,
    /// The month, from 1 to 12.
    pub month: u64,
    /// The day of the month, from 1 on.
    pub day: u64,
    /// The hour, from 0 to 23.
    pub hour: u64,
    /// The minute, from 0 to 59.
    pub minute: u64,
    /// The second, from 0 to 59: Unix time knows no leap seconds.
    pub second: u64,
    /// The nanosecond within the second.
    pub nano: u64,
}

impl Utc {
    /// The moment this many nanoseconds after the Unix epoch.
    ///
    /// Years begin in March here, so that the leap day is a year's last (Howard Hinnant, "chrono-Compatible Low-Level
    /// Date Algorithms", `civil_from_days`).
    pub fn from_unix_nano(unix_nano: u64) -> Self {
        const ERA: u64 = 146_097;
        let (seconds, nano) = (unix_nano / 1_000_000_000, unix_nano % 1_000_000_000);
        let (day, second) = (seconds / 86_400 + 719_468, seconds % 86_400);
        let (era, day) = (day / ERA, day % ERA);
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let march_month = (5 * day + 2) / 153;
        let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
        Self {
            year: era * 400 + year + u64::from(month <= 2),
            month,
            day: day - (153 * march_month + 2) / 5 + 1,
            hour: second / 3600,
            minute: second / 60 % 60,
            second: second % 60,
            nano,
        }
    }

    /// The moment in the form of RFC 3339, with so many digits of the second's fraction, at most nine; the rest is cut
    /// off.
    pub fn rfc3339(self, digits: usize) -> String {
        let Self { year, month, day, hour, minute, second, nano } = self;
        let fraction = format!("{nano:09}");
        let fraction = &fraction[..digits.min(9)];
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction}Z")
    }
}
