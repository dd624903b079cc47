//! A time as a part of a file's name.

/// Nanoseconds since the Unix epoch as `20260131T235959.123Z`, in UTC: sorts as the times do, and is a name on every
/// file system.
pub(crate) fn compact(unix_nano: u64) -> String {
    let millis = unix_nano / 1_000_000;
    let (day, millis) = (millis / 86_400_000, millis % 86_400_000);
    let (year, month, day) = civil(day);
    let seconds = millis / 1000;
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}.{:03}Z", millis % 1000)
}

/// Whether a text has the form that [`compact`] writes.
pub(crate) fn is_compact(text: &str) -> bool {
    let form = b"ddddddddTdddddd.dddZ";
    text.len() == 20
        && text.bytes().zip(form).all(|(c, &form)| if form == b'd' { c.is_ascii_digit() } else { c == form })
}

/// The date of a day since 1970-01-01, in the Gregorian calendar. Years begin in March here, so that the leap day is
/// a year's last (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`).
fn civil(day: u64) -> (u64, u64, u64) {
    const ERA: u64 = 146_097;
    let day = day + 719_468;
    let (era, day) = (day / ERA, day % ERA);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, date)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: times come out as the calendar has them, leap days and the last representable time included.
    #[test]
    fn times() {
        for (seconds, expected) in [
            (0, "19700101T000000.000Z"),
            (951_782_400, "20000229T000000.000Z"),
            (951_868_799, "20000229T235959.000Z"),
            (951_868_800, "20000301T000000.000Z"),
            (1_767_225_599, "20251231T235959.000Z"),
            (4_107_542_400, "21000301T000000.000Z"),
        ] {
            assert_eq!(compact(seconds * 1_000_000_000), expected);
            assert!(is_compact(expected));
        }
        assert_eq!(compact(1_234_567_890_123_456_789), "20090213T233130.123Z");
        assert_eq!(compact(u64::MAX), "25540721T233433.709Z");
        assert!(!is_compact("20000229T23595a.000Z") && !is_compact("") && !is_compact("20000229x235959.000Z"));
    }
}
