//! Attributes that a receiver adds to resources: `resource: {insert: {key: value}}`.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::problem::Problem;
use super::section::Section;

/// Bounds on the number of attributes, and on the length of a key and of a value in bytes, because all attributes may
/// be added to every resource.
const MAX_ATTRIBUTES: usize = 64;
const MAX_KEY: usize = 256;
const MAX_VALUE: usize = 4096;

/// Attributes that are added to resources without them. Values are kept as text, exactly as written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct InsertedAttributes(BTreeMap<String, String>);

impl InsertedAttributes {
    /// Checks the attributes and returns them sorted by key. `path` is their place in `section`.
    pub fn check(self, section: &Section, path: &str, problems: &mut Vec<Problem>) -> Vec<(String, String)> {
        if self.0.len() > MAX_ATTRIBUTES {
            let message = format!("at most {MAX_ATTRIBUTES} attributes can be inserted");
            problems.push(section.problem(path, message, ""));
        }
        for (key, value) in &self.0 {
            let quote = if key.contains('"') { '\'' } else { '"' };
            let mut broken = |message: String, hint: &str| {
                problems.push(section.problem(&format!("{path}.{quote}{key}{quote}"), message, hint));
            };
            if key.is_empty() || key.len() > MAX_KEY || key.contains(|c: char| c.is_control() || c.is_whitespace()) {
                let message = format!("the key of an attribute has 1 to {MAX_KEY} bytes and no spaces");
                broken(message, "such as host.id or deployment.environment.name");
            } else if key.starts_with("process.") || key.starts_with("thread.") {
                let message = "is of one process, and what is inserted is said of all that send here".to_owned();
                broken(message, "what can be said of all of them is host.id, host.name or deployment.environment.name");
            }
            if value.is_empty() {
                let hint = "a variable without a value needs a default, ${env:NAME:-value}; or leave the key out";
                broken("the value is empty".to_owned(), hint);
            } else if value.len() > MAX_VALUE || value.contains(char::is_control) {
                broken(format!("a value has at most {MAX_VALUE} bytes and no control characters"), "");
            }
        }
        self.0.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(yaml: &str) -> (Vec<(String, String)>, Vec<Problem>) {
        let section = Section::from_yaml(yaml).unwrap();
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Config {
            insert: InsertedAttributes,
        }
        let mut problems = Vec::new();
        let attributes = section.extract::<Config>().unwrap().insert.check(&section, "insert", &mut problems);
        (attributes, problems)
    }

    /// Guarantees: a key with dots remains one key, and a value remains the written text, whatever type YAML would give
    /// it.
    #[test]
    fn values_are_texts() {
        let (attributes, problems) = check("{insert: {host.id: 0123, b: true, a: 1.10, c: 'x y'}}");
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(attributes, [pair("a", "1.10"), pair("b", "true"), pair("c", "x y"), pair("host.id", "0123")]);
        assert_eq!(problems, []);
        assert_eq!(check("").0, []);
    }

    /// Guarantees: each broken rule is reported at its key.
    #[test]
    fn broken_rules_are_named() {
        for (yaml, key, says) in [
            ("{insert: {host.id: ''}}", "insert.\"host.id\"", "empty"),
            ("{insert: {'a b': x}}", "insert.\"a b\"", "no spaces"),
            ("{insert: {process.pid: 1}}", "insert.\"process.pid\"", "of one process"),
            ("{insert: {k: \"a\\tb\"}}", "insert.k", "control characters"),
        ] {
            let (_, problems) = check(yaml);
            let [problem] = &problems[..] else { panic!("{yaml}: {problems:?}") };
            assert_eq!(problem.key_path, key, "{yaml}");
            assert!(problem.message.contains(says), "{problem}");
        }
        let many: String = (0..65).map(|number| format!("k{number}: v, ")).collect();
        assert_eq!(check(&format!("{{insert: {{{many}}}}}")).1.len(), 1);
    }
}
