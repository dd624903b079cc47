//! Sections, good and bad.

use profbridge_engine::config::Section;
use profbridge_processor_link_spans::Config;

/// Guarantees: bounds that would make it useless or hold for ever are refused with their key.
#[test]
fn bounds_are_checked() {
    for (yaml, says) in [
        ("{span_wait: 11m}", "span_wait"),
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
