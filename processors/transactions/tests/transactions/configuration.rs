use profbridge_engine::config::Section;
use profbridge_processor_transactions::FACTORY;

fn problems(yaml: &str) -> Vec<String> {
    let section = Section::from_yaml(yaml).unwrap();
    match (FACTORY.create)(&section, &Default::default()) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.as_slice().iter().map(|problem| problem.message.clone()).collect(),
    }
}

/// Guarantees: all broken rules are reported together.
#[test]
fn every_rule_is_checked() {
    let mut found = problems("wait: 11m\norphan_wait: 1s\nmax_spans: 0\nmax_bytes: 1");
    found.sort();
    assert_eq!(found, ["is shorter than wait", "must be at least 1", "must be at least 4KiB", "must be at most 10m"]);
    assert_eq!(problems("wiat: 5s"), ["unknown key `wiat`"]);
}
