//! The exporter's types. The Collector has one exporter for each protocol, and each has an older and a newer name; all
//! four work here, so that a section can be taken over as it is.

use std::time::Duration;

use profbridge_engine::config::{Problems, Section};
use profbridge_engine::delivery::{DeliverySettings, DynExporter, deliver};
use profbridge_engine::registry::{Description, ExporterFactory};
use profbridge_model::TelemetryKind;

use crate::config::{Config, Protocol};
use crate::exporter::OtlpExporter;
use crate::settings::Settings;

/// `otlp`: gRPC, or what `protocol` says.
pub const FACTORY: ExporterFactory = ExporterFactory {
    description: Description::exporter(
        "otlp",
        "sends profiles and spans to an OTLP receiver, over gRPC or (`protocol: http/protobuf`) HTTP",
        // Of envelopes, what was read of them.
        TelemetryKind::ALL,
    ),
    create: |section| create(section, Protocol::Grpc),
};

/// `otlp_grpc`: the same by the Collector's newer name.
pub const OTLP_GRPC: ExporterFactory =
    ExporterFactory { description: FACTORY.description.named("otlp_grpc", "the same as `otlp`"), ..FACTORY };

/// `otlp_http`: HTTP, or what `protocol` says.
pub const OTLP_HTTP: ExporterFactory = ExporterFactory {
    description: FACTORY.description.named("otlp_http", "sends profiles and spans to an OTLP receiver over HTTP"),
    create: |section| create(section, Protocol::Http),
};

/// `otlphttp`: the same by the Collector's older name.
pub const OTLPHTTP: ExporterFactory =
    ExporterFactory { description: FACTORY.description.named("otlphttp", "the same as `otlp_http`"), ..OTLP_HTTP };

/// All types of this crate.
pub const FACTORIES: [ExporterFactory; 4] = [FACTORY, OTLP_GRPC, OTLP_HTTP, OTLPHTTP];

fn create(section: &Section, protocol: Protocol) -> Result<Box<dyn DynExporter>, Problems> {
    let config: Config = section.extract()?;
    // The exporter bounds each of its requests itself. A second clock of the same length around them would sometimes
    // be the first to end, and forget that an answer has begun to come, or which parts of a request were sent.
    let delivery =
        DeliverySettings { queue: config.sending_queue, retry: config.retry_on_failure, timeout: Duration::ZERO };
    let settings = Settings::check(config, protocol, section)?;
    Ok(deliver(OtlpExporter::new(settings), delivery))
}
