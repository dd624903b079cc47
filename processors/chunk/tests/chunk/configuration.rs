use profbridge_engine::config::Section;
use profbridge_processor_chunk::{Config, FACTORY};

fn problems(yaml: &str) -> Vec<String> {
    let section = Section::from_yaml(yaml).unwrap();
    match (FACTORY.create)(&section) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.as_slice().iter().map(|problem| problem.message.clone()).collect(),
    }
}

/// Guarantees: nothing written means the defaults, and every key can be written.
#[test]
fn every_key_has_a_default() {
    let all = "window: 60s\nlateness: 10s\nmax_observations: 100000\nmax_window_bytes: 16MiB\nmax_processes: 10000\n\
        max_bytes: 256MiB\nmax_dictionary_age: 10m\nmax_dictionary_bytes: 64MiB\nsession: 0s\n\
        identity: [container, host, instance]";
    let written = Section::from_yaml(all).unwrap().extract::<Config>().unwrap();
    assert_eq!(written, Config::default());
    assert_eq!(problems(all), [""; 0]);
    assert_eq!(problems(""), [""; 0]);
}

/// Guarantees: each rule that is broken is named, all of them at once.
#[test]
fn every_rule_is_checked() {
    let yaml = "window: 61s\nmax_observations: 0\nmax_window_bytes: 1\nmax_processes: 0\nmax_bytes: 0\n\
        max_dictionary_bytes: 3GiB\nsession: 1s\nidentity: []";
    let expected = [
        "a window is at most 60s",
        "must be at least 1",
        "must be at least 1",
        "must be at least 4KiB",
        "is less than max_window_bytes",
        "must be less than 2GiB",
        "a session is at least as long as a window, or 0s",
        "must name at least one of container, host, instance",
    ];
    let mut found = problems(yaml);
    let mut expected = expected.map(str::to_owned);
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    assert_eq!(problems("window: 20ms"), ["a window is at least 1s, or 0s"]);
    assert_eq!(problems("identity: [host, host]"), ["names something twice"]);
    assert_eq!(problems("windows: 5s"), ["unknown key `windows`"]);
    assert_eq!(problems("identity: [service]"), ["unknown value `service`"]);
}
