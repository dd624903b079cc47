//! Tests of the configuration, one file per topic. The exact texts of problems are tested in `tests/config.rs`.

mod extract;
mod ids;
mod loading;
mod printing;
mod secrets;
mod units;

use super::{Config, Problems, Source, load};

/// A configuration from one text, with a small environment.
fn config(yaml: &str) -> Config {
    from(&[text(yaml)]).unwrap()
}

fn from(sources: &[Source]) -> Result<Config, Problems> {
    load(sources, &|name| match name {
        "HOST" => Some("localhost".to_owned()),
        "PORT" => Some("4317".to_owned()),
        "EMPTY" => Some(String::new()),
        "KEY" => Some("s3cr3t".to_owned()),
        _ => None,
    })
}

fn text(yaml: &str) -> Source {
    Source::Text { name: "test.yaml".to_owned(), text: yaml.to_owned() }
}

/// The settings under `receivers.x` of a configuration.
fn settings<T: serde::de::DeserializeOwned>(yaml: &str) -> Result<T, Problems> {
    let indented = yaml.lines().map(|line| format!("    {line}\n")).collect::<String>();
    let config = config(&format!("receivers:\n  x:\n{indented}"));
    let section = config.receivers.get(&"x".parse().unwrap()).unwrap();
    section.extract()
}

/// The messages of the problems, without positions.
fn messages(problems: &Problems) -> Vec<&str> {
    problems.as_slice().iter().map(|problem| problem.message.as_str()).collect()
}
