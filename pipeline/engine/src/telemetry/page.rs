//! The Prometheus text format, version 0.0.4, which the Collector uses for its own metrics too.
//!
//! The page is not in OpenMetrics format: that format appends `_total` to the name of every counter, and the
//! Collector's page does not (opentelemetry-collector `service/telemetry/otelconftelemetry/factory.go`,
//! `WithoutTypeSuffix`). A dashboard for one of them would find no data of the other.

use std::fmt::{Display, Write as _};

/// The content type of the page.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A page that is being written.
#[derive(Debug, Default)]
pub(super) struct Page {
    text: String,
}

/// The series of one metric.
#[derive(Debug)]
pub(super) struct Family<'a> {
    text: &'a mut String,
    name: &'a str,
}

impl Page {
    /// Starts a counter. Its name is used unchanged.
    pub(super) fn counter<'a>(&'a mut self, name: &'a str, help: &str) -> Family<'a> {
        self.family(name, help, "counter")
    }

    /// Starts a gauge.
    pub(super) fn gauge<'a>(&'a mut self, name: &'a str, help: &str) -> Family<'a> {
        self.family(name, help, "gauge")
    }

    fn family<'a>(&'a mut self, name: &'a str, help: &str, kind: &str) -> Family<'a> {
        for part in ["# HELP ", name, " ", help, "\n# TYPE ", name, " ", kind, "\n"] {
            self.text.push_str(part);
        }
        Family { text: &mut self.text, name }
    }

    /// The whole page.
    pub(super) fn finish(self) -> String {
        self.text
    }
}

impl Family<'_> {
    /// Writes one series.
    pub(super) fn put(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(self.name);
        for (position, (key, value)) in labels.iter().enumerate() {
            self.text.push(if position == 0 { '{' } else { ',' });
            self.text.push_str(key);
            self.text.push_str("=\"");
            // A component's name may contain any character.
            for character in value.chars() {
                match character {
                    '\\' => self.text.push_str("\\\\"),
                    '"' => self.text.push_str("\\\""),
                    '\n' => self.text.push_str("\\n"),
                    other => self.text.push(other),
                }
            }
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        // Writing to a string cannot fail.
        writeln!(self.text, " {value}").ok();
    }
}
