//! Valid and invalid configurations.

use profbridge_engine::config::Section;
use profbridge_identity::Rules;
use profbridge_processor_link_spans::{Config, FACTORY};

/// Guarantees: bounds that would make it useless, or wait forever, are refused with their key.
#[test]
fn bounds_are_checked() {
    for (yaml, says) in [
        ("{span_wait: 11m}", "span_wait"),
        ("{profile_wait: 11m}", "profile_wait"),
        ("{max_bytes: 1KiB}", "max_bytes"),
        ("{max_index_bytes: 0}", "max_index_bytes"),
        ("{wait: 1s}", "unknown key `wait`"),
    ] {
        let section = Section::from_yaml(yaml).unwrap();
        let outcome = section.extract::<Config>().and_then(|config| config.check(&section));
        let said = outcome.err().map(|problems| problems.to_string()).unwrap_or_default();
        assert!(said.contains(says), "{yaml}: {said}");
    }
}

/// Guarantees: there is a warning if profiles are exported as OTLP without waiting for spans, and only then; without
/// profiles the one about `stateless` applies.
#[test]
fn profiles_that_do_not_wait_are_warned_of() {
    let said = |yaml: &str, exporters: &[&str]| {
        let section = Section::from_yaml(yaml).unwrap();
        let mut processor = (FACTORY.create)(&section, &Rules::default()).ok()?;
        processor.goes_to(exporters, true).map(|warning| warning.message)
    };
    let warns = |yaml: &str, exporter: &str| said(yaml, &["debug", exporter]).is_some();
    assert!(warns("{}", "otlp") && warns("{profile_wait: 0s}", "otlp_http"));
    assert!(warns("{}", "otlp_grpc") && warns("{}", "otlphttp"), "other names of the same");
    assert!(!warns("{}", "sentry") && !warns("{profile_wait: 5s}", "otlp") && !warns("{profile_wait: x}", "otlp"));
    assert_eq!(said("{}", &[]), None);
    let stateless = said("{stateless: true}", &["otlp"]).unwrap();
    assert!(stateless.starts_with("`stateless`"), "{stateless}");
}
