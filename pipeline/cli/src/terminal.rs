//! Output for people: results on standard output, everything else on standard error.
//!
//! Names of files, functions, threads and services come from outside. They must not control the terminal or change the
//! direction of the text around them, so all output passes [`escaped`].

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is the one place that speaks to a terminal")]

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::logging;

/// The path that stands for standard input or output.
pub(crate) const STANDARD: &str = "-";

/// Set when a result could not be written.
static RESULT_IS_LOST: AtomicBool = AtomicBool::new(false);

/// How many bytes of a result the reader of standard output had read when it went away.
static READER_LEFT: OnceLock<u64> = OnceLock::new();

/// Prints a result; returns whether standard output accepted it. A reader that has gone away (`| head`) is no error; a
/// full disk is one.
pub(crate) fn result(text: impl Display) -> bool {
    let written = writeln!(io::stdout(), "{}", escaped(&text.to_string())).and_then(|()| io::stdout().flush());
    match &written {
        Err(error) if !is_reader_gone(error) && !RESULT_IS_LOST.swap(true, Ordering::Relaxed) => {
            say(format!("error: standard output: {error}"));
        }
        _ => {}
    }
    written.is_ok()
}

/// Whether an error means that the reader has gone away because it has seen enough.
pub(crate) fn is_reader_gone(error: &io::Error) -> bool {
    error.kind() == ErrorKind::BrokenPipe
}

/// Records that the reader of standard output went away after this many bytes.
pub(crate) fn reader_left(after: u64) {
    READER_LEFT.set(after).ok();
}

/// The message about a written result, or about a reader that did not want all of it.
pub(crate) fn written(path: &Path, wrote: impl FnOnce() -> String) -> String {
    match READER_LEFT.get() {
        Some(after) if path.as_os_str() == STANDARD => {
            format!("standard output: the reader closed it after {}", bytes(*after))
        }
        _ => wrote(),
    }
}

/// Whether a result could not be written.
pub(crate) fn result_is_lost() -> bool {
    RESULT_IS_LOST.load(Ordering::Relaxed)
}

/// Prints a message that is not the result, after all pending log lines.
pub(crate) fn say(text: impl Display) {
    logging::flush();
    writeln!(io::stderr(), "{}", escaped(&text.to_string())).ok();
}

/// Whether a character controls a terminal, or changes the order or visibility of the text around it: Unicode's
/// bidirectional controls (Unicode Standard Annex #9, table 4) and its line and paragraph separators.
pub(crate) fn is_unprintable(c: char) -> bool {
    let reorders = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || reorders || matches!(c, '\u{2028}' | '\u{2029}')
}

/// Multi-line text with unprintable characters replaced by their numbers: `\u{1b}`.
pub(crate) fn escaped(text: &str) -> Cow<'_, str> {
    escape(text, |c| is_unprintable(c) && c != '\n' && c != '\t')
}

/// A path for use within a line.
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

/// A line on the terminal that is overwritten as work proceeds; nothing if standard error is not a terminal.
#[derive(Debug)]
pub(crate) struct Progress {
    terminal: bool,
    /// The text on the line.
    shown: String,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self { terminal: io::stderr().is_terminal(), shown: String::new() }
    }

    pub(crate) fn show(&mut self, text: impl Display) {
        if self.terminal
            && let Some(line) = self.line(&text.to_string(), columns())
        {
            io::stderr().write_all(line.as_bytes()).ok();
        }
    }

    /// The output that shows a text on a terminal of this width; `None` if it is shown already. A line as wide as the
    /// terminal would wrap, and the next text would not overwrite all of it.
    fn line(&mut self, text: &str, columns: usize) -> Option<String> {
        let most = columns.saturating_sub(1);
        let text = cut(&escape(text, is_unprintable), most);
        if text == self.shown {
            return None;
        }
        let padding = self.shown.width().min(most).saturating_sub(text.width());
        let line = format!("\r{text}{:padding$}", "");
        self.shown = text;
        Some(line)
    }
}

/// The start of a text that fits into a number of columns.
pub(crate) fn cut(text: &str, columns: usize) -> String {
    let mut used = 0;
    let fits = |c: &char| {
        used += c.width().unwrap_or(0);
        used <= columns
    };
    text.chars().take_while(fits).collect()
}

/// Shortens a text to a number of columns. Cuts out the middle, since both ends distinguish functions.
pub(crate) fn shortened(text: &str, room: usize) -> String {
    if text.width() <= room || room < 3 {
        return cut(text, room);
    }
    let tail_room = (room - 1) / 2;
    let tail = cut(&text.chars().rev().collect::<String>(), tail_room);
    cut(text, room - 1 - tail_room) + "…" + &tail.chars().rev().collect::<String>()
}

/// The width of terminals that do not report it.
const USUAL_COLUMNS: usize = 80;

/// The width of the terminal on standard error, in columns.
fn columns() -> usize {
    if let Ok(size) = rustix::termios::tcgetwinsize(io::stderr())
        && size.ws_col > 0
    {
        return size.ws_col.into();
    }
    USUAL_COLUMNS
}

impl Drop for Progress {
    /// Clears the line for the next output.
    fn drop(&mut self) {
        if self.terminal
            && let Some(line) = self.line("", columns())
        {
            write!(io::stderr(), "{line}\r").ok();
        }
    }
}

/// A number with its noun, as in `1 stack` and `2 stacks`.
pub(crate) fn counted(count: u64, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

/// The name of a file without its folders.
pub(crate) fn base_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// A process and the number of others.
pub(crate) fn with_others(process: &str, others: usize) -> String {
    match others {
        0 => process.to_owned(),
        1 => format!("{process} and one more process"),
        more => format!("{process} and {more} more processes"),
    }
}

/// Formats a number of bytes.
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

    /// Guarantees: the progress line never wraps, whatever its text. An unchanged text is not written again, and
    /// nothing of a longer one remains.
    #[test]
    fn progress() {
        let mut progress = Progress { terminal: true, shown: String::new() };
        let long = "sampling app (pid 4711): 12 s of 60 s, 2424 samples, 12 threads, 101 Hz, 100.0 % complete";
        assert_eq!(progress.line(long, 80), Some(format!("\r{}", &long[..79])));
        assert_eq!(progress.line(long, 80), None);
        assert_eq!(progress.line("short", 80), Some(format!("\rshort{:74}", "")));
        assert_eq!(progress.line("漢字漢字", 8), Some("\r漢字漢".to_owned()));
        assert_eq!(progress.line("a\u{1b}", 8), Some("\ra\\u{1b}".to_owned()));
        assert_eq!(progress.line(long, 0), Some("\r".to_owned()));
        assert_eq!(progress.line("", 80), None);
    }

    /// Guarantees: no output controls the terminal or changes the text direction. Line ends stay, except within a path,
    /// and letters of all languages stay unchanged.
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
