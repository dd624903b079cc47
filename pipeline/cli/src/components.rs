//! The components in this binary.

use profbridge_engine::registry::Registry;

/// Every receiver, processor and exporter.
pub(crate) const REGISTRY: Registry = Registry {
    receivers: &[
        profbridge_receiver_otlp::FACTORY,
        #[cfg(target_os = "linux")]
        profbridge_receiver_ptrace::FACTORY,
    ],
    processors: &[
        profbridge_processor_dedup::FACTORY,
        profbridge_processor_symbolize::FACTORY,
        profbridge_processor_chunk::FACTORY,
    ],
    exporters: &[
        profbridge_exporter_sentry::FACTORY,
        profbridge_exporter_otlp::FACTORY,
        profbridge_exporter_otlp::OTLP_GRPC,
        profbridge_exporter_otlp::OTLP_HTTP,
        profbridge_exporter_otlp::OTLPHTTP,
        profbridge_exporter_file::FACTORY,
        profbridge_exporter_debug::FACTORY,
    ],
};

/// The components as YAML, as the Collector's `components` prints them.
pub(crate) fn listing() -> String {
    let mut text = format!("version: {}\n", env!("CARGO_PKG_VERSION"));
    let mut list = |title: &str, entries: &mut dyn Iterator<Item = (&'static str, &'static str)>| {
        text.push_str(title);
        text.push_str(":\n");
        for (kind, summary) in entries {
            text.push_str(&format!("  - name: {kind}\n    does: {summary}\n"));
        }
    };
    list("receivers", &mut REGISTRY.receivers.iter().map(|factory| (factory.kind, factory.summary)));
    list("processors", &mut REGISTRY.processors.iter().map(|factory| (factory.kind, factory.summary)));
    list("exporters", &mut REGISTRY.exporters.iter().map(|factory| (factory.kind, factory.summary)));
    text
}
