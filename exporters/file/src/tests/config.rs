use profbridge_codec::otlp::{Encoding, Framing};
use profbridge_engine::config::Section;
use profbridge_model::TelemetryKind;
use profbridge_net::compression::Compression;

use crate::FACTORY;
use crate::config::{Config, FileRotation, StorageLimits};

/// Guarantees: the defaults are those of the README, and every resource has a limit.
#[test]
fn defaults() {
    let settings = |yaml: &str| {
        let section = Section::from_yaml(yaml).unwrap();
        Config::read(&section).unwrap().check(&section).unwrap()
    };
    let sentry = settings("path: out");
    assert_eq!(sentry.kept, StorageLimits::Envelopes { files: 10_000, bytes: 1 << 30 });
    assert_eq!(sentry.compression, Compression::None);
    assert_eq!(sentry.chunk, profbridge_wire::sentry::chunk::Settings::default());
    let otlp = settings("{path: out/profiles.otlp, format: otlp, compression: zstd}");
    let rotation = FileRotation { bytes: 100 << 20, backups: 100, asked_for: false };
    let appended = |encoding, framing| StorageLimits::Appended { rotation, encoding, framing };
    assert_eq!(otlp.kept, appended(Encoding::Protobuf, Framing::Length));
    assert_eq!(settings("{path: out.json, format: json}").kept, appended(Encoding::Json, Framing::Line));
    let compressed = settings("{path: out.json, format: json, compression: zstd}");
    assert_eq!(compressed.kept, appended(Encoding::Json, Framing::Length));
    assert_eq!((otlp.compression, otlp.original_payload), (Compression::ZSTD, false));
    assert_eq!(otlp.timeout, std::time::Duration::from_secs(30));
    let chunks = settings("{path: out, lone_samples: drop, prefer: cpu, in_app: {include: [shop]}, platform: python}");
    assert_eq!(chunks.chunk.platform.as_deref(), Some("python"));
}

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
