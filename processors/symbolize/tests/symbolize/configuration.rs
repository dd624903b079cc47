use profbridge_engine::config::Section;
use profbridge_processor_symbolize::FACTORY;

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
    let yaml = "timeout: 61s\ndebug_folders: [debug]\nhost_names: ['']\ncache_size: 1MiB\nmax_bytes: 1";
    let expected = [
        "a batch waits at most 60s",
        "a folder is not an absolute path",
        "a name is empty",
        "must be at least 4KiB",
        "must be at least 4MiB",
    ];
    let mut found = problems(yaml);
    found.sort();
    assert_eq!(found, expected);
    assert_eq!(problems("unknown: 1").len(), 1);
}
