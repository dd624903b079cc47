use profbridge_engine::config::Section;
use profbridge_processor_dedup::FACTORY;

fn problems(yaml: &str) -> Vec<String> {
    let section = Section::from_yaml(yaml).unwrap();
    match (FACTORY.create)(&section, &Default::default()) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.as_slice().iter().map(|problem| problem.message.clone()).collect(),
    }
}

/// Guarantees: each broken rule is reported, all of them at once.
#[test]
fn every_rule_is_checked() {
    let yaml = "window: 11m\nmax_observations: 0\nmax_bytes: 1\nresend_memory: 0s\nmax_resend_entries: 0";
    let expected = [
        "a window is at most 10m",
        "must be at least 1",
        "must be at least 1",
        "must be at least 4KiB",
        "must not be 0s",
    ];
    let mut found = problems(yaml);
    found.sort();
    assert_eq!(found, expected);
    assert_eq!(problems("resends: keep\nresend_memory: 0s"), [""; 0]);
    assert_eq!(problems("resends: perhaps"), ["unknown value `perhaps`"]);
}
