use profbridge_engine::config::Section;
use profbridge_model::TelemetryKind;

use crate::FACTORY;

/// Guarantees: only envelopes need batches that are split by process and window, and grouped spans. All formats accept
/// spans.
#[test]
fn needs_chunks() {
    let wanted = [(TelemetryKind::Profiles, "chunk")];
    let needs = |yaml: &str| (FACTORY.description.needs)(&Section::from_yaml(yaml).unwrap()) == wanted;
    assert_eq!(FACTORY.description.takes, TelemetryKind::ALL);
    assert!(needs("path: out") && needs("{path: out, format: sentry}"));
    assert!(
        !needs("{path: out, format: otlp}")
            && !needs("{path: out, format: json}")
            && !needs("{path: out, format: proto}")
            && !needs("format: 7")
    );
}
