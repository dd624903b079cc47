//! What is said to a person: results on standard output, everything else on standard error.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is the one place that speaks to a terminal")]

use std::fmt::Display;
use std::io::{IsTerminal, Write};

/// Writes a result. A reader that has gone away (`| head`) is no error.
pub(crate) fn result(text: impl Display) {
    writeln!(std::io::stdout(), "{text}").ok();
}

/// Says something that is not the result.
pub(crate) fn say(text: impl Display) {
    writeln!(std::io::stderr(), "{text}").ok();
}

/// A line on the terminal that is written over as work goes on; nothing where standard error is no terminal.
#[derive(Debug)]
pub(crate) struct Progress {
    terminal: bool,
    width: usize,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal(), width: 0 }
    }

    pub(crate) fn show(&mut self, text: impl Display) {
        if self.terminal {
            let text = text.to_string();
            let padding = self.width.saturating_sub(text.chars().count());
            write!(std::io::stderr(), "\r{text}{:padding$}", "").ok();
            self.width = text.chars().count();
        }
    }
}

impl Drop for Progress {
    /// Clears the line, so that what is said next starts on an empty one.
    fn drop(&mut self) {
        if self.terminal && self.width > 0 {
            write!(std::io::stderr(), "\r{:width$}\r", "", width = self.width).ok();
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
    /// Guarantees: sizes are shown in the largest unit that leaves a whole number in front.
    #[test]
    fn sizes() {
        let shown = [0, 1023, 1024, 1536, 5 << 20, 3 << 30].map(super::bytes);
        assert_eq!(shown, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "5.0 MiB", "3.0 GiB"]);
    }
}
