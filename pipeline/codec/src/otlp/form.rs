//! The encoding and the framing of messages.

use serde::Deserialize;

/// The encoding of a message, with the names of the Collector's exporter `otlp_http`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub enum Encoding {
    /// Protobuf.
    #[default]
    #[serde(rename = "proto")]
    Protobuf,
    /// OTLP/JSON.
    #[serde(rename = "json")]
    Json,
}

/// The framing of a message in a file of several, as in those of the Collector's file exporter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Framing {
    /// No framing: a single message.
    #[default]
    None,
    /// The message's length in front.
    Length,
    /// A line break at the end, for uncompressed JSON.
    Line,
}

impl Framing {
    /// The framing of the Collector's file exporter (opentelemetry-collector-contrib
    /// `exporter/fileexporter/file_exporter.go`, `buildExportFunc`): lines for JSON, unless it is compressed.
    pub fn of_file(encoding: Encoding, compressed: bool) -> Self {
        match encoding {
            Encoding::Json if !compressed => Self::Line,
            Encoding::Json | Encoding::Protobuf => Self::Length,
        }
    }
}
