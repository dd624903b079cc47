use profbridge_engine::config::{Problems, Section};
use profbridge_net::compression::Compression;

use crate::FACTORY;
use crate::config::{Config, FileRotation, Kept};

fn problems(yaml: &str) -> String {
    let outcome = (FACTORY.create)(&Section::from_yaml(yaml).unwrap());
    outcome.err().as_ref().map(Problems::to_string).unwrap_or_default()
}

/// Guarantees: the defaults are those of the README, and all of it is bounded.
#[test]
fn defaults() {
    let settings = |yaml: &str| {
        let section = Section::from_yaml(yaml).unwrap();
        Config::read(&section).unwrap().check(&section).unwrap()
    };
    let sentry = settings("path: out");
    assert_eq!(sentry.kept, Kept::Envelopes { files: 10_000, bytes: 1 << 30 });
    assert_eq!(sentry.compression, Compression::None);
    assert_eq!(sentry.chunk, profbridge_wire::sentry::chunk::Settings::default());
    let otlp = settings("{path: out/profiles.otlp, format: otlp, compression: zstd}");
    assert_eq!(otlp.kept, Kept::Frames(FileRotation { bytes: 100 << 20, backups: 100, asked_for: false }));
    assert_eq!((otlp.compression, otlp.original_payload), (Compression::ZSTD, false));
    assert_eq!(otlp.timeout, std::time::Duration::from_secs(30));
}

/// Guarantees: only envelopes need batches that were cut for a process and window.
#[test]
fn needs_chunks() {
    let needs = |yaml: &str| (FACTORY.description.needs)(&Section::from_yaml(yaml).unwrap()) == ["chunk"];
    assert!(needs("path: out") && needs("{path: out, format: sentry}"));
    assert!(!needs("{path: out, format: otlp}") && !needs("{path: out, format: proto}") && !needs("format: 7"));
}

/// Guarantees: what cannot work, or would have no effect, is refused with the rule.
#[test]
fn problems_name_the_rule() {
    for (yaml, rule) in [
        ("", "the key `path` is missing"),
        ("{path: out, format: json}", "unknown value `json`"),
        ("{path: out, rotation: {max_files: 0}}", "between 1 and 1000000"),
        ("{path: out, rotation: {max_size: 0}}", "nothing would be kept"),
        ("{path: out, rotation: {max_backups: 3}}", "there are no backups"),
        ("{path: out, rotation: {max_days: 3}}", "unknown key `max_days`"),
        ("{path: out, environment: a/b}", "Sentry takes no environment"),
        ("{path: out, max_gap: 0s}", "every pause would end a chunk"),
        ("{path: out, target_size: 1KiB}", "between 64KiB and 48MiB"),
        ("{path: out, lone_samples: keep}", "unknown value `keep`"),
        ("{path: out, format: otlp, rotation: {max_files: 3}}", "no number of files"),
        ("{path: out, format: otlp, environment: production}", "`format: otlp` has none of"),
        ("{path: out, original_payload: true}", "`format: sentry` has none"),
        ("{path: out/.., format: otlp}", "does not end in a file's name"),
    ] {
        let text = problems(yaml);
        assert!(text.contains(rule), "{yaml}: {text}");
    }
    assert!(problems("{format: otlp, rotation: {max_files: 3, max_size: 0}}").contains("3 errors"));
    let chunks = "{path: out, lone_samples: drop, prefer: cpu, in_app: {include: [shop]}, platform: python}";
    assert_eq!(problems(chunks), "");
}
