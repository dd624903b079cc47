//! Holds the components' pages against the code and against `config.yaml`: the same keys with the same defaults.

use std::path::PathBuf;

use crate::reference_configuration::{components, defaults, keys_of_code, shown, values};

fn page(folder: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(folder).join("README.md")).unwrap()
}

/// What stands in backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// A row of a table of keys.
struct Row {
    /// The paths of its keys, in its component.
    keys: Vec<String>,
    /// The cell of the default, in tables that have one.
    default: Option<String>,
    text: String,
}

/// The rows of all tables of keys. The head of a table says what its keys stand under.
fn rows(page: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut table: Option<(String, bool)> = None;
    for line in page.lines() {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        match (&table, cells.get(1)) {
            (_, None) => table = None,
            (None, Some(head)) if head.starts_with("key") => {
                let under = match *head {
                    "key" | "key of the receiver" => String::new(),
                    "key of a target" => "targets.app.".to_owned(),
                    _ => format!("{}.", quoted(head)[0]),
                };
                table = Some((under, cells[2] == "default"));
            }
            (Some((under, has_default)), Some(names)) if !names.starts_with('-') => rows.push(Row {
                keys: quoted(names).iter().map(|name| format!("{under}{name}")).collect(),
                default: has_default.then(|| cells[2].to_owned()),
                text: line.to_owned(),
            }),
            _ => {}
        }
    }
    rows
}

/// Guarantees: each key on a component's page is one of the code, each key of the code is on the page (or named in the
/// row of what it belongs to, or said to be another page's), and a default on the page is the one in `config.yaml`,
/// which other tests hold against the code.
#[test]
fn tables_have_every_key_and_its_default() {
    let mut wrong = Vec::new();
    for (component, folder) in components() {
        let rows = rows(&page(&folder));
        // Its keys stand in a configuration, see below.
        if rows.is_empty() {
            continue;
        }
        wrong.extend(wrong_rows(&component, &folder, &rows));
        for key in keys_of_code().iter().filter_map(|known| known.strip_prefix(&format!("{component}."))) {
            let name = key.rsplit('.').next().unwrap();
            let is_there = rows.iter().any(|row| {
                row.keys.iter().any(|above| {
                    let below = key.strip_prefix(&**above).is_some_and(|rest| rest.starts_with('.'));
                    let elsewhere = row.text.contains("as for") || row.text.contains("as in");
                    above == key
                        || above.starts_with(&format!("{key}."))
                        || below && (elsewhere || quoted(&row.text).contains(&name))
                })
            });
            if !is_there {
                wrong.push(format!("{folder}: {key} is not there"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Guarantees: the page of what all exporters have in common has their keys, with the defaults in `config.yaml`.
#[test]
fn keys_of_all_exporters() {
    let rows = rows(&page("exporters"));
    let wrong = wrong_rows("exporters.sentry", "exporters", &rows);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let there: Vec<_> = rows.iter().flat_map(|row| &row.keys).map(|key| format!("exporters.sentry.{key}")).collect();
    for section in ["sending_queue", "retry_on_failure"] {
        let below = format!("exporters.sentry.{section}.");
        let mut keys = keys_of_code().iter().filter(|key| key.starts_with(&below));
        assert!(keys.clone().count() > 0 && keys.all(|key| there.contains(key)), "{section}: {there:?}");
    }
}

/// What is wrong with the rows of a page: keys that the code does not know, and defaults that are others.
fn wrong_rows(component: &str, folder: &str, rows: &[Row]) -> Vec<String> {
    let (shown, by_default) = (shown(), defaults());
    let mut wrong = Vec::new();
    let path = |key: &str| format!("{component}.{key}");
    for row in rows {
        for (position, key) in row.keys.iter().enumerate() {
            if !keys_of_code().contains(&path(key)) {
                wrong.push(format!("{folder}: the code does not know {key}"));
            }
            let (Some(default), Some(value)) = (&row.default, shown.get(&path(key))) else { continue };
            if let Some(other) = default.strip_prefix("as in the exporter ") {
                let same = by_default.get(&format!("exporters.{}.{key}", quoted(other)[0]));
                if by_default.contains_key(&path(key)) && same != Some(value) {
                    wrong.push(format!("{folder}: {key} is not {default}"));
                }
                continue;
            }
            let defaults = quoted(default);
            let agrees = match defaults.len() {
                // Said in words: required, empty, by something else. Then no value can stand there.
                0 => {
                    value.is_empty()
                        || is_nothing(value)
                        || default == "required"
                        || !by_default.contains_key(&path(key))
                }
                // Several keys and one default for each, or one key whose default depends on another.
                count if count == row.keys.len() && count > 1 => defaults[position].trim_matches(['[', ']']) == *value,
                _ => defaults.iter().any(|default| default.trim_matches(['[', ']']) == *value),
            };
            if !agrees {
                wrong.push(format!("{folder}: {key} is {default} there and `{value}` in config.yaml"));
            }
        }
    }
    wrong
}

/// Whether a value is as good as none.
fn is_nothing(value: &str) -> bool {
    matches!(value, "[]" | "{}") || value.starts_with("${env:")
}

/// Guarantees: the configuration on the page of a component without a table of keys has every key with the default that
/// `config.yaml` shows.
#[test]
fn configurations_have_every_key_and_its_default() {
    let shown = shown();
    for (component, folder) in components() {
        let page = page(&folder);
        if !rows(&page).is_empty() {
            continue;
        }
        let (_, yaml) = page.split_once("```yaml\n").unwrap();
        let (yaml, _) = yaml.split_once("```").unwrap();
        let of_component = |values: std::collections::BTreeMap<String, String>| {
            values.into_iter().filter(|(path, _)| path.starts_with(&format!("{component}."))).collect::<Vec<_>>()
        };
        assert_eq!(of_component(values(yaml.to_owned())), of_component(shown.clone()), "{folder}");
    }
}
