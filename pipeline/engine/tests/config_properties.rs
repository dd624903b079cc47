//! Properties that hold for every configuration text.

// Test helpers may panic like tests; clippy only recognises functions marked as tests.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;

use profbridge_engine::config::{self, ByteSize, Config, Duration, KnownComponents, Problems, Source};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde::Deserialize;

const KNOWN: KnownComponents<'_> =
    KnownComponents { receivers: &["otlp"], processors: &["chunk"], exporters: &["sentry"] };

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
struct Settings {
    text: String,
    number: u8,
    nested: BTreeMap<String, Vec<f64>>,
    timeout: Duration,
    size: ByteSize,
}

fn load(sources: &[Source]) -> Result<Config, Problems> {
    config::load(sources, &|name| (name.len() % 2 == 0).then(|| format!("value of {name}")))
}

fn text(text: impl Into<String>) -> Source {
    Source::Text { name: "any.yaml".into(), text: text.into() }
}

/// Applies every operation on a configuration.
fn exercise(sources: &[Source]) {
    match load(sources) {
        Err(problems) => assert!(!problems.to_string().is_empty()),
        Ok(config) => {
            let mut problems = config::check_references(&config, &KNOWN);
            let sections = config.receivers.iter().chain(config.processors.iter()).chain(config.exporters.iter());
            for (_, section) in sections {
                if let Err(found) = section.extract::<Settings>() {
                    problems.extend(found);
                }
                problems.push(section.problem("nested.0.\"a.b\"", "any", "any"));
            }
            if let Some(problems) = Problems::new(problems) {
                assert!(!problems.to_string().is_empty());
            }
            load(&[text(config.redacted_yaml())]).map(drop).unwrap_or_else(|problems| {
                let printed = config.redacted_yaml();
                assert!(printed == "{}\n", "what is printed does not read:\n{problems}\n{printed}");
            });
        }
    }
}

/// Words of YAML and of the configuration keys, so that random texts are not refused in their first line.
fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::sample::select(vec![
            "receivers", "exporters", "service", "pipelines", "profiles", "otlp", "sentry", "dsn", "headers", ": ", ":\n  ",
            ":\n    ", "\n", "\n- ", "- ", "{", "}", "[", "]", ", ", "\"", "'", "&a ", "*a", "<<", "!!str ", "!x ", "|\n", ">\n",
            "---\n", "# ", "\t", "~", "${env:AB}", "${env:ABC}", "${env:A:-b}", "$$", "${", "0123", "1.10", "?", "\r\n",
            "https://k@h/1", "\u{feff}", "\u{0}", "é", "\u{85}", "\u{2028}", "%YAML 1.2\n",
        ])
        .prop_map(str::to_owned),
        1 => "\\PC{0,6}",
    ]
}

proptest! {
    /// Guarantees: no text makes the loader panic, and the printed configuration can be loaded again.
    #[test]
    fn no_text_makes_it_panic(words in vec(word(), 0..40), other in any::<String>()) {
        exercise(&[text(words.concat())]);
        exercise(&[text(other.clone()), Source::Set(words.concat())]);
        exercise(&[text("receivers: {otlp: }"), Source::Set(format!("receivers.otlp.text={other}"))]);
    }

    /// Guarantees: a secret at a known secret place is never shown, whatever surrounds it.
    #[test]
    fn secrets_do_not_show(before in vec(word(), 0..8), after in vec(word(), 0..8), quoted in any::<bool>()) {
        let secret = if quoted { "\"zq9Xw7-Vk3\"" } else { "zq9Xw7-Vk3" };
        let yaml = format!("exporters:\n  sentry:\n    text: {}\n    dsn: {secret}\n    number: {}", before.concat(), after.concat());
        let shown = match load(&[text(yaml)]) {
            Err(problems) => problems.to_string(),
            Ok(config) => {
                let mut problems = config::check_references(&config, &KNOWN);
                for (_, section) in config.exporters.iter() {
                    problems.extend(section.extract::<Settings>().err().into_iter().flatten());
                }
                Problems::new(problems).map(|problems| problems.to_string()).unwrap_or_default()
            }
        };
        // After an open quote, bracket or block, the key would be part of another value.
        let opened = before.iter().any(|word| word.contains(['"', '\'', '|', '>', '#', '{', '[', '!', '&', '?', '%', '\u{0}']));
        prop_assert!(opened || !shown.contains("zq9Xw7-Vk3"), "{shown}");
    }

    /// Guarantees: of several files, each setting has the value of the last file that contains it, and assignments take
    /// precedence over files.
    #[test]
    fn the_last_one_wins(
        files in vec(btree_map("[a-d]", btree_map("[x-z]", 0_u16..1000, 0..4), 0..4), 1..5),
        set in prop::option::of(("[a-d]", "[x-z]", 0_u16..1000)),
    ) {
        let mut expected: BTreeMap<String, BTreeMap<String, u16>> = BTreeMap::new();
        let mut sources = Vec::new();
        for file in &files {
            let mut yaml = "receivers:\n  otlp:\n    base: {}\n".to_owned();
            for (key, map) in file {
                yaml.push_str(&format!("    {key}: {}\n", serde_json::to_string(map).unwrap()));
                expected.entry(key.clone()).or_default().extend(map.clone());
            }
            sources.push(text(yaml));
        }
        if let Some((key, inner, value)) = set {
            sources.push(Source::Set(format!("receivers.otlp.{key}.{inner}={value}")));
            expected.entry(key).or_default().insert(inner, value);
        }
        expected.insert("base".into(), BTreeMap::new());
        let config = load(&sources).unwrap();
        let section = config.receivers.get(&"otlp".parse().unwrap()).unwrap();
        prop_assert_eq!(section.extract::<BTreeMap<String, BTreeMap<String, u16>>>().unwrap(), expected);
    }
}
