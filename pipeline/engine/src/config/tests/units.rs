use super::{messages, settings};
use crate::config::{BadByteSize, BadDuration, ByteSize, Duration};

/// Guarantees: durations are parsed exactly, in all units and combinations, and print as text that parses to the same
/// duration.
#[test]
fn durations_are_read_exactly() {
    for (written, nanos) in [
        ("0s", 0),
        ("500ms", 500_000_000),
        ("5s", 5_000_000_000),
        ("1m30s", 90_000_000_000),
        ("1.5h", 5_400_000_000_000),
        ("1h1m1s1ms1us1ns", 3_661_001_001_001),
        ("0.25s", 250_000_000),
        ("3\u{b5}s", 3_000),
        ("876000h", 3_153_600_000_000_000_000),
    ] {
        let duration: Duration = written.parse().unwrap();
        assert_eq!(duration.get().as_nanos(), nanos, "{written}");
        assert_eq!(duration.to_string().parse::<Duration>().unwrap(), duration, "{duration}");
    }
    for (bad, why) in [
        ("5", BadDuration::NoUnit(5)),
        ("", BadDuration::Syntax),
        ("s", BadDuration::Syntax),
        ("5 parsecs", BadDuration::Syntax),
        ("1m30", BadDuration::Syntax),
        ("1..5s", BadDuration::Syntax),
        ("1.s", BadDuration::Syntax),
        (".5s", BadDuration::Syntax),
        ("-1s", BadDuration::Negative),
        ("900000h", BadDuration::TooLong),
        ("99999999999999999999h", BadDuration::TooLong),
        ("9999999999999999999s", BadDuration::TooLong),
    ] {
        assert_eq!(bad.parse::<Duration>(), Err(why), "{bad:?}");
    }
}

/// Guarantees: sizes are parsed exactly, and powers of 1000 and of 1024 are distinguished.
#[test]
fn sizes_are_read_exactly() {
    for (written, bytes) in [
        ("0", 0),
        ("4096", 4096),
        ("64MiB", 64 << 20),
        ("64 mib", 64 << 20),
        ("10MB", 10_000_000),
        ("1kB", 1000),
        ("1KiB", 1024),
        ("2GiB", 2 << 30),
        ("3GB", 3_000_000_000),
        ("7B", 7),
    ] {
        let size: ByteSize = written.parse().unwrap();
        assert_eq!(size.get(), bytes, "{written}");
        assert_eq!(size.to_string().parse::<ByteSize>().unwrap(), size, "{size}");
    }
    for bad in ["", "MiB", "1.5MiB", "-1", "1TB", "0x10", "1_000", "é"] {
        assert_eq!(bad.parse::<ByteSize>(), Err(BadByteSize::Syntax), "{bad:?}");
    }
    for bad in ["16777216GiB", "18446744073709551615", "99999999999999999999"] {
        assert_eq!(bad.parse::<ByteSize>(), Err(BadByteSize::TooLarge), "{bad:?}");
    }
}

/// Guarantees: in a configuration a bare number is a valid size and an invalid duration.
#[test]
fn bare_numbers_are_sizes_only() {
    assert_eq!(settings::<Vec<ByteSize>>("[4096, '4096', 1MB]").unwrap()[1], ByteSize::new(4096));
    let problems = settings::<Vec<Duration>>("[5s, 5]").unwrap_err();
    assert_eq!(messages(&problems), ["a duration needs a unit"]);
    assert_eq!(problems.as_slice()[0].hint.as_deref(), Some("write `5s` for seconds or `5ms` for milliseconds"));
}

/// Guarantees: a duration converts to nanoseconds exactly, and saturates if it does not fit into 64 bits.
#[test]
fn nanoseconds() {
    assert_eq!(Duration::from_millis(1500).nanos(), 1_500_000_000);
    assert_eq!(Duration::from_secs(u64::MAX / 1_000_000_000).nanos(), 18_446_744_073_000_000_000);
    assert_eq!(Duration::from_secs(18_446_744_074).nanos(), u64::MAX);
}
