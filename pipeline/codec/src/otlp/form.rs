//! What the bytes of a message are.

use serde::Deserialize;

/// How a message is written, in the words of the Collector's exporter `otlp_http`.
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

/// What stands around a message in a file of several, as in those of the Collector's file exporter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Framing {
    /// Nothing: it stands alone.
    #[default]
    None,
    /// Its length in front.
    Length,
    /// The end of a line behind it, for JSON that is not compressed.
    Line,
}

impl Framing {
    /// What the Collector's file exporter puts around messages (opentelemetry-collector-contrib
    /// `exporter/fileexporter/file_exporter.go`, `buildExportFunc`): JSON stands on lines, unless it is compressed.
    pub fn of_file(encoding: Encoding, compressed: bool) -> Self {
        match encoding {
            Encoding::Json if !compressed => Self::Line,
            Encoding::Json | Encoding::Protobuf => Self::Length,
        }
    }
}
