use profbridge_engine::config::Section;
use profbridge_processor_symbolize::{Config, FACTORY};

fn problems(yaml: &str) -> Vec<String> {
    let section = Section::from_yaml(yaml).unwrap();
    match (FACTORY.create)(&section, &Default::default()) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.as_slice().iter().map(|problem| problem.message.clone()).collect(),
    }
}

/// Guarantees: nothing written means the defaults, and every key can be written.
#[test]
fn every_key_has_a_default() {
    let all = "timeout: 5s\nprocesses: true\nhost_names: []\ndebug_folders: [/usr/lib/debug]\ndwarf: true\n\
        demangle: true\nfuse: false\ncache_size: 128MiB\nmax_bytes: 64MiB";
    assert_eq!(Section::from_yaml(all).unwrap().extract::<Config>().unwrap(), Config::default());
    assert_eq!(problems(all), [""; 0]);
    assert_eq!(problems(""), [""; 0]);
}

/// Guarantees: each rule that is broken is named, all of them at once.
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
