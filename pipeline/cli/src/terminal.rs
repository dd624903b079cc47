//! What is said to a person: results on standard output, everything else on standard error.
//!
//! Names of files, functions, threads and services come from outside. Nothing in them may command a terminal or turn
//! the text around them about, so whatever is said passes [`escaped`].

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is the one place that speaks to a terminal")]

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// The path that stands for standard input or output.
pub(crate) const STANDARD: &str = "-";

/// Set once a result could not be written.
static RESULT_IS_LOST: AtomicBool = AtomicBool::new(false);

/// Writes a result. A reader that has gone away (`| head`) is no error; a disk that is full is one.
pub(crate) fn result(text: impl Display) {
    let written = writeln!(io::stdout(), "{}", escaped(&text.to_string())).and_then(|()| io::stdout().flush());
    if let Err(error) = written
        && error.kind() != ErrorKind::BrokenPipe
        && !RESULT_IS_LOST.swap(true, Ordering::Relaxed)
    {
        say(format!("error: standard output: {error}"));
    }
}

/// Whether a result could not be written.
pub(crate) fn result_is_lost() -> bool {
    RESULT_IS_LOST.load(Ordering::Relaxed)
}

/// Says something that is not the result.
pub(crate) fn say(text: impl Display) {
    writeln!(io::stderr(), "{}", escaped(&text.to_string())).ok();
}

/// Whether a character commands a terminal (controls), or changes the order or the visibility of what stands around
/// it: Unicode's bidirectional controls (Unicode Standard Annex #9, table 4) and its line and paragraph separators.
pub(crate) fn is_unprintable(c: char) -> bool {
    let reorders = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || reorders || matches!(c, '\u{2028}' | '\u{2029}')
}

/// Text of several lines with every unprintable character as its number: `\u{1b}`.
pub(crate) fn escaped(text: &str) -> Cow<'_, str> {
    escape(text, |c| is_unprintable(c) && c != '\n' && c != '\t')
}

/// A path as it is shown within a line.
pub(crate) fn shown(path: &Path) -> String {
    if path.as_os_str() == STANDARD {
        return "`-`".to_owned();
    }
    escape(&path.to_string_lossy(), is_unprintable).into_owned()
}

fn escape(text: &str, bad: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&bad) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if bad(c) { out.extend(c.escape_unicode()) } else { out.push(c) }
    }
    Cow::Owned(out)
}

/// A line on the terminal that is written over as work goes on; nothing where standard error is no terminal.
#[derive(Debug)]
pub(crate) struct Progress {
    terminal: bool,
    width: usize,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self { terminal: io::stderr().is_terminal(), width: 0 }
    }

    pub(crate) fn show(&mut self, text: impl Display) {
        if self.terminal {
            let text = escape(&text.to_string(), is_unprintable).into_owned();
            let padding = self.width.saturating_sub(text.chars().count());
            write!(io::stderr(), "\r{text}{:padding$}", "").ok();
            self.width = text.chars().count();
        }
    }
}

impl Drop for Progress {
    /// Clears the line, so that what is said next starts on an empty one.
    fn drop(&mut self) {
        if self.terminal && self.width > 0 {
            write!(io::stderr(), "\r{:width$}\r", "", width = self.width).ok();
        }
    }
}

/// A number of bytes as a person reads it.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = "B";
    for larger in UNITS {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    if unit == "B" { format!("{count} B") } else { format!("{value:.1} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: sizes are shown in the largest unit that leaves a whole number in front.
    #[test]
    fn sizes() {
        let shown = [0, 1023, 1024, 1536, 5 << 20, 3 << 30].map(bytes);
        assert_eq!(shown, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "5.0 MiB", "3.0 GiB"]);
    }

    /// Guarantees: nothing that is shown commands the terminal or turns text about; lines stay lines, except within a
    /// path; what every language writes stays as it is.
    #[test]
    fn escapes() {
        assert_eq!(escaped("a\tb\nc é 漢 \u{5d0}\u{5d1}"), "a\tb\nc é 漢 \u{5d0}\u{5d1}");
        assert_eq!(escaped("\u{1b}[2J\r\u{9b}1m"), "\\u{1b}[2J\\u{d}\\u{9b}1m");
        for c in "\u{61c}\u{200e}\u{200f}\u{202a}\u{202e}\u{2066}\u{2069}\u{2028}\u{2029}\u{7f}\0".chars() {
            assert_eq!(escaped(&format!("gpj{c}exe")), format!("gpj{}exe", c.escape_unicode()));
        }
        assert_eq!(shown(Path::new("a\nerror: b")), "a\\u{a}error: b");
    }
}
