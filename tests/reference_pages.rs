//! Compares the components' pages with the code and with `config.yaml`: the same keys with the same defaults.

use std::path::PathBuf;

use crate::reference_configuration::{components, defaults, keys_of_code, shown, values};

fn page(folder: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(folder).join("README.md")).unwrap()
}

/// The texts in backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

struct KeyTableRow {
    /// The paths of its keys in the component.
    keys: Vec<String>,
    /// The cell with the default, if the table has one.
    default: Option<String>,
    text: String,
}

/// The rows of all tables of keys. The heading of a table names the parent of its keys.
fn rows(page: &str) -> Vec<KeyTableRow> {
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
            (Some((under, has_default)), Some(names)) if !names.starts_with('-') => rows.push(KeyTableRow {
                keys: quoted(names).iter().map(|name| format!("{under}{name}")).collect(),
                default: has_default.then(|| cells[2].to_owned()),
                text: line.to_owned(),
            }),
            _ => {}
        }
    }
    rows
}

/// Guarantees: each key on a component's page exists in the code, each key of the code is on the page (or in the row of
/// its parent, or on a page that is named), and each default equals the one in `config.yaml`, which other tests compare
/// with the code.
#[test]
fn tables_have_every_key_and_its_default() {
    let mut wrong = Vec::new();
    for (component, folder) in components() {
        let rows = rows(&page(&folder));
        // Components without a table have a configuration with all keys, which is tested below.
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

/// Guarantees: the page on common settings of exporters has all their keys, with the defaults in `config.yaml`.
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

/// The errors in the rows of a page: unknown keys and wrong defaults.
fn wrong_rows(component: &str, folder: &str, rows: &[KeyTableRow]) -> Vec<String> {
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
                // A default in words (required, empty, depends on something else) allows no value.
                0 => {
                    value.is_empty()
                        || is_nothing(value)
                        || default == "required"
                        || !by_default.contains_key(&path(key))
                }
                // Several keys with one default each, or one key whose default depends on another.
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

/// Whether a value means nothing.
fn is_nothing(value: &str) -> bool {
    matches!(value, "[]" | "{}") || value.starts_with("${env:")
}

/// Guarantees: if a component's page has no table of keys, the configuration on it has every key with the default of
/// `config.yaml`.
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
