//! Formats figures and names.

use unicode_width::UnicodeWidthStr;

use crate::terminal;

/// The longest name shown, in columns.
const LONGEST: usize = 90;

/// The longest chain of calls shown with all functions, in columns.
const LONGEST_CHAIN: usize = 60;

/// Formats nanoseconds as seconds.
pub(super) fn seconds(nano: u64) -> String {
    format!("{:.2} s", nano as f64 / 1e9)
}

/// A percentage with a fixed width.
pub(super) fn percent(part: u64, whole: u64) -> String {
    format!("{:>5.1} %", if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 })
}

/// A name shortened to fit a line.
pub(super) fn shortened(name: &str) -> String {
    terminal::shortened(name, LONGEST)
}

/// The functions of a chain of calls, the outermost first. Of long chains the middle is left out.
pub(super) fn chain(names: &[String]) -> String {
    let all = names.join(" > ");
    match names {
        [first, _, .., before, last] if all.width() > LONGEST_CHAIN => {
            shortened(&format!("{first} > … > {before} > {last}"))
        }
        _ => shortened(&all),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: figures have one format, and nothing divides by zero.
    #[test]
    fn figures() {
        assert_eq!([0, 1_500_000_000].map(seconds), ["0.00 s", "1.50 s"]);
        assert_eq!(
            [(1, 3), (1, 1), (0, 0)].map(|(part, whole)| percent(part, whole)),
            [" 33.3 %", "100.0 %", "  0.0 %"]
        );
    }

    /// Guarantees: a long name keeps both ends and no character is cut in half.
    #[test]
    fn names() {
        assert_eq!(shortened("short"), "short");
        let long = shortened(&format!("start{}end", "é".repeat(500)));
        assert_eq!(long.chars().count(), LONGEST);
        assert!(long.starts_with("starté") && long.ends_with("éend") && long.contains('…'));
    }
}
