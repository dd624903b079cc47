//! The exporter's type.

use profbridge_engine::config::{Problems, Section};
use profbridge_engine::delivery::{DynExporter, deliver};
use profbridge_engine::registry::ExporterFactory;

use crate::config::{Config, Format};
use crate::exporter::FileExporter;

/// `file`.
pub const FACTORY: ExporterFactory = ExporterFactory {
    kind: "file",
    summary: "writes Sentry envelopes into a folder, or OTLP requests into a file",
    needs_chunks,
    create,
};

/// Sentry's chunks are of one process and window. A section that cannot be read is reported when it is created.
fn needs_chunks(section: &Section) -> bool {
    section.extract::<Config>().is_ok_and(|config| config.format == Format::Sentry)
}

fn create(section: &Section) -> Result<Box<dyn DynExporter>, Problems> {
    let config: Config = section.extract()?;
    let settings = config.check(section)?;
    let delivery = settings.delivery.clone();
    Ok(deliver(FileExporter::new(settings), delivery))
}
