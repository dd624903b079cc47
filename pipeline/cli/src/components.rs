//! The components in this binary.

use profbridge_engine::registry::{Description, Factory, Registry};

/// Every receiver, processor and exporter.
pub(crate) const REGISTRY: Registry = Registry {
    receivers: &[
        profbridge_receiver_otlp::FACTORY,
        profbridge_receiver_pprof::FACTORY,
        profbridge_receiver_ptrace::FACTORY,
        profbridge_receiver_sentry::FACTORY,
    ],
    processors: &[
        profbridge_processor_sample::FACTORY,
        profbridge_processor_dedup::FACTORY,
        profbridge_processor_link_spans::FACTORY,
        profbridge_processor_symbolize::FACTORY,
        profbridge_processor_chunk::FACTORY,
        profbridge_processor_transactions::FACTORY,
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

/// The components as YAML, in the format of the Collector's `components` command.
pub(crate) fn listing() -> String {
    let mut text = format!("version: {}\n", env!("CARGO_PKG_VERSION"));
    list(&mut text, "receivers", REGISTRY.receivers);
    list(&mut text, "processors", REGISTRY.processors);
    list(&mut text, "exporters", REGISTRY.exporters);
    text
}

fn list<C>(text: &mut String, title: &str, factories: &[Factory<C>]) {
    text.push_str(title);
    text.push_str(":\n");
    for Description { kind, summary, .. } in factories.iter().map(|factory| factory.description) {
        text.push_str(&format!("  - name: {kind}\n    does: {summary}\n"));
    }
}

#[cfg(test)]
mod tests {
    use profbridge_engine::config::Section;

    use super::*;

    /// Guarantees: component types that a description refers to exist, which the engine cannot check, and each
    /// component processes some kind of telemetry.
    #[test]
    fn descriptions_are_sound() {
        let processors: Vec<Description> = REGISTRY.processors.iter().map(|factory| factory.description).collect();
        let exporters: Vec<Description> = REGISTRY.exporters.iter().map(|factory| factory.description).collect();
        let is_processor = |kind: &&str| processors.iter().any(|known| known.kind == *kind);
        for description in processors.iter().chain(&exporters) {
            assert!(description.behind.iter().all(is_processor), "{description:?}");
            let mut needs = (description.needs)(&Section::defaults()).iter();
            assert!(needs.all(|(_, needed)| is_processor(needed)), "{description:?}");
            assert!(!description.takes.is_empty(), "{description:?}");
        }
        assert!(processors.iter().all(|processor| !processor.emits.is_empty()));
        assert!(REGISTRY.receivers.iter().all(|factory| !factory.description.emits.is_empty()));
    }
}
