use profbridge_engine::config::{Section, Source, load};
use profbridge_identity::Rules;
use profbridge_processor_chunk::FACTORY;

fn problems(yaml: &str) -> Vec<String> {
    let section = Section::from_yaml(yaml).unwrap();
    match (FACTORY.create)(&section, &Rules::default()) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.as_slice().iter().map(|problem| problem.message.clone()).collect(),
    }
}

/// Guarantees: all broken rules are reported at once.
#[test]
fn every_rule_is_checked() {
    let yaml = "max_observations: 0\nmax_window_bytes: 1\nmax_processes: 0\nmax_bytes: 0\n\
        max_dictionary_bytes: 3GiB";
    let expected = [
        "must be at least 1",
        "must be at least 1",
        "must be at least 4KiB",
        "is less than max_window_bytes",
        "must be less than 2GiB",
    ];
    let mut found = problems(yaml);
    let mut expected = expected.map(str::to_owned);
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    assert_eq!(problems("latenes: 5s"), ["unknown key `latenes`"]);
}

/// Guarantees: for a key that moved to `service.identity`, the error at the old key names the new path and the value to
/// write there. All other problems are reported with it.
#[test]
fn moved_keys_say_where_they_went() {
    let written =
        "processors:\n  chunk/a:\n    window: 30s\n    session: 1h\n    identity: [instance, host]\n    latenes: 1s\n";
    let env = |name: &str| (name == "SECRET").then(|| "7m".to_owned());
    let problems = |text: String| {
        let config = load(&[Source::Text { name: "c.yaml".to_owned(), text }], &env).unwrap();
        let section = config.processors.iter().next().unwrap().1.clone();
        (FACTORY.create)(&section, &Rules::default()).err().unwrap().into_vec()
    };
    let text: Vec<_> = problems(written.to_owned())
        .into_iter()
        .map(|p| format!("{}:{}: {}; {}", p.position.line, p.key_path, p.message, p.hint.unwrap_or_default()))
        .collect();
    let expected =
        [("window", "window", "30s"), ("session", "session", "1h"), ("identity", "attributes", "[instance, host]")];
    for (line, (old, new, value)) in (3..).zip(expected) {
        let path = format!("{line}:processors.chunk/a.{old}: `{old}` has moved to `service.identity.{new}`; ");
        let hint = format!("delete it here and write `identity: {{{new}: {value}}}` under `service:`");
        assert!(text.contains(&(path.clone() + &hint)), "{path}{hint}: {text:#?}");
    }
    assert_eq!(text.len(), 4);
    assert!(text.iter().any(|text| text.starts_with("6:") && text.contains("unknown key `latenes`")), "{text:#?}");
    // Values from the environment are not shown, and values that are not text are not repeated.
    let hidden = problems(written.replace("30s", "${env:SECRET}").replace("1h", "{a: b}"));
    let hints: Vec<_> = hidden.iter().filter_map(|problem| problem.hint.as_deref()).collect();
    assert!(!hints.concat().contains("7m"), "{hints:?}");
    assert!(hints.iter().any(|hint| hint.contains("identity: {session: ...}")), "{hints:?}");
}
