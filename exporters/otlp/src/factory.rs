//! The types of this exporter. The Collector has one exporter per protocol, each with an older and a newer name. All
//! four work here, so a section can be copied from a Collector's configuration.

use std::time::Duration;

use profbridge_engine::config::{Problems, Section};
use profbridge_engine::delivery::{DeliverySettings, DynExporter, deliver};
use profbridge_engine::registry::{Description, ExporterFactory};
use profbridge_model::TelemetryKind;

use crate::config::{Config, Protocol};
use crate::exporter::OtlpExporter;
use crate::settings::Settings;

/// `otlp`: gRPC, unless `protocol` says otherwise.
pub const FACTORY: ExporterFactory = ExporterFactory {
    description: Description::exporter(
        "otlp",
        "sends profiles and spans to an OTLP receiver, over gRPC or (`protocol: http/protobuf`) HTTP",
        // From envelopes, only the profiles and spans that were parsed.
        TelemetryKind::ALL,
    ),
    create: |section| create(section, Protocol::Grpc),
};

/// `otlp_grpc`: the Collector's newer name for `otlp`.
pub const OTLP_GRPC: ExporterFactory =
    ExporterFactory { description: FACTORY.description.named("otlp_grpc", "the same as `otlp`"), ..FACTORY };

/// `otlp_http`: HTTP, unless `protocol` says otherwise.
pub const OTLP_HTTP: ExporterFactory = ExporterFactory {
    description: FACTORY.description.named("otlp_http", "sends profiles and spans to an OTLP receiver over HTTP"),
    create: |section| create(section, Protocol::Http),
};

/// `otlphttp`: the Collector's older name for `otlp_http`.
pub const OTLPHTTP: ExporterFactory =
    ExporterFactory { description: FACTORY.description.named("otlphttp", "the same as `otlp_http`"), ..OTLP_HTTP };

/// All types of this crate.
pub const FACTORIES: [ExporterFactory; 4] = [FACTORY, OTLP_GRPC, OTLP_HTTP, OTLPHTTP];

fn create(section: &Section, protocol: Protocol) -> Result<Box<dyn DynExporter>, Problems> {
    let (settings, delivery) = section.extract_checked(|config: Config, section| {
        // The exporter limits the time of each request itself. A second timeout of the same length around it could fire
        // first, and lose the information that an answer has begun or which parts were sent.
        let delivery =
            DeliverySettings { queue: config.sending_queue, retry: config.retry_on_failure, timeout: Duration::ZERO };
        Ok((Settings::check(config, protocol, section)?, delivery))
    })?;
    Ok(deliver(OtlpExporter::new(settings), delivery))
}
