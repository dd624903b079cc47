//! The exporter's type.

use profbridge_engine::config::{Problems, Section};
use profbridge_engine::delivery::{DynExporter, deliver};
use profbridge_engine::registry::{Description, ExporterFactory, Needs};
use profbridge_model::TelemetryKind;

use crate::config::{Config, Format};
use crate::exporter::FileExporter;

/// The registry entry of the exporter `file`.
pub const FACTORY: ExporterFactory = ExporterFactory {
    description: Description::exporter(
        "file",
        "writes profiles and spans: Sentry envelopes into a folder, or OTLP requests into a file, as protobuf or JSON",
        TelemetryKind::ALL,
    )
    .needs(needs),
    create,
};

/// For Sentry's chunks, samples have to be grouped by process and window. Errors in the section are reported by
/// `create`.
fn needs(section: &Section) -> Needs {
    let is_sentry = Config::read(section).is_ok_and(|config| config.format == Format::Sentry);
    if is_sentry { &[(TelemetryKind::Profiles, "chunk")] } else { &[] }
}

fn create(section: &Section) -> Result<Box<dyn DynExporter>, Problems> {
    let settings = Config::read(section)?.check(section)?;
    let delivery = settings.delivery.clone();
    Ok(deliver(FileExporter::new(settings), delivery))
}
