//! Prometheus' text form, version 0.0.4, in which the Collector serves its own counters too.
//!
//! Not OpenMetrics: that form puts `_total` behind the name of every counter, and the Collector's page has none there
//! (opentelemetry-collector `service/telemetry/otelconftelemetry/factory.go`, `WithoutTypeSuffix`). A dashboard made
//! for one would show nothing of the other.

use std::fmt::{Display, Write as _};

/// What a scraper that asks is told about the form.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The page while it is written.
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
    /// Describes a counter. Its name stands as it is given.
    pub(super) fn counter<'a>(&'a mut self, name: &'a str, help: &str) -> Family<'a> {
        self.family(name, help, "counter")
    }

    /// Describes a gauge.
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
            // What an operator named a component may hold anything.
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
        // Writing into a string does not fail.
        writeln!(self.text, " {value}").ok();
    }
}
