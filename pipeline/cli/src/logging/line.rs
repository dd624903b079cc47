//! Formats a line: time, level, message, fields.

use std::fmt::{Debug, Display, Write};

use tracing::field::{Field, Visit};
use tracing::{Event, Level};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use crate::terminal::is_unprintable;

/// Formats a line with the current time.
pub(super) fn format_line(level: Level, colors: bool, content: impl FnOnce(&mut String)) -> String {
    let mut line = String::with_capacity(160);
    let (dim, color, end) = match (colors, level) {
        (false, _) => ("", "", ""),
        (true, Level::ERROR) => ("\x1b[2m", "\x1b[31m", "\x1b[0m"),
        (true, Level::WARN) => ("\x1b[2m", "\x1b[33m", "\x1b[0m"),
        (true, Level::INFO) => ("\x1b[2m", "\x1b[32m", "\x1b[0m"),
        (true, Level::DEBUG) => ("\x1b[2m", "\x1b[34m", "\x1b[0m"),
        (true, Level::TRACE) => ("\x1b[2m", "\x1b[35m", "\x1b[0m"),
    };
    line.push_str(dim);
    // Writing into memory does not fail.
    SystemTime.format_time(&mut Writer::new(&mut line)).ok();
    write!(line, "{end} {color}{:>5}{end} ", level.as_str()).ok();
    content(&mut line);
    line.push('\n');
    line
}

/// Appends an event's message and fields.
pub(super) fn fields(text: &mut String, colors: bool, event: &Event<'_>) {
    event.record(&mut FieldWriter { text, colors });
}

struct FieldWriter<'a> {
    text: &'a mut String,
    colors: bool,
}

impl FieldWriter<'_> {
    fn put(&mut self, field: &Field, value: std::fmt::Arguments<'_>) {
        if !self.text.is_empty() {
            self.text.push(' ');
        }
        let name = field.name();
        if name != "message" {
            let name = name.strip_prefix("r#").unwrap_or(name);
            let (italic, dim, end) = if self.colors { ("\x1b[3m", "\x1b[2m", "\x1b[0m") } else { ("", "", "") };
            write!(self.text, "{italic}{name}{end}{dim}={end}").ok();
        }
        EscapingWriter(self.text).write_fmt(value).ok();
    }
}

impl Visit for FieldWriter<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.put(field, format_args!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            return self.put(field, format_args!("{value}"));
        }
        self.put(field, format_args!("\"{}\"", Quoted(value)));
    }
}

/// Escapes control characters and line ends.
struct EscapingWriter<'a>(&'a mut String);

impl Write for EscapingWriter<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for c in text.chars() {
            if is_unprintable(c) { self.0.extend(c.escape_default()) } else { self.0.push(c) }
        }
        Ok(())
    }
}

/// Quotes text without escaping it, since the log escapes all text anyway.
struct Quoted<'a>(&'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for c in self.0.chars() {
            if matches!(c, '"' | '\\') {
                f.write_char('\\')?;
            }
            f.write_char(c)?;
        }
        Ok(())
    }
}
