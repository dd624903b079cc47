//! Compares the rules of the specifications (`tests/conformance/rules.txt`) with the tests of all crates: every rule
//! has a test or a reason why it needs none, and every rule named by a test exists.
//!
//! A test names its rules in lines of its doc comment: `/// rule: otlp#http-json, otlp#http-type`. The sources are read
//! as text, so that tests of other systems and tests in macros such as `proptest!` are found too.
//!
//! `cargo test -p profbridge-relay-rules --test conformance -- --nocapture table` prints each rule with its tests.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may fail like one, and the table is printed")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

const NOT_APPLICABLE: &str = "not applicable, because ";

struct Specification {
    name: String,
    title: String,
    rules: Vec<Rule>,
}

struct Rule {
    /// `specification#rule`.
    id: String,
    text: String,
    not_applicable: Option<String>,
}

/// Parses `rules.txt`. A line that is neither a specification nor a rule becomes a fault.
fn read_rules(text: &str, faults: &mut Vec<String>) -> Vec<Specification> {
    let mut specifications: Vec<Specification> = Vec::new();
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    for (number, line) in lines {
        let heading = line.strip_prefix('[').and_then(|line| line.split_once("] "));
        if let Some((name, title)) = heading {
            specifications.push(Specification { name: name.into(), title: title.into(), rules: Vec::new() });
            continue;
        }
        let read = specifications.last_mut().is_some_and(|specification| read_rule_line(specification, line));
        if !read {
            faults.push(format!("rules.txt, line {number}: neither a specification nor a rule: {line}"));
        }
    }
    specifications
}

/// Parses a line as the beginning of a rule or, if it is indented, as the continuation of the last one.
fn read_rule_line(specification: &mut Specification, line: &str) -> bool {
    let Some(more) = line.strip_prefix("  ") else {
        let Some((id, text)) = line.split_once(": ").filter(|(id, _)| is_id(id)) else { return false };
        let id = format!("{}#{id}", specification.name);
        specification.rules.push(Rule { id, text: text.into(), not_applicable: None });
        return true;
    };
    let Some(rule) = specification.rules.last_mut() else { return false };
    match (more.strip_prefix(NOT_APPLICABLE), &mut rule.not_applicable) {
        (Some(reason), None) => rule.not_applicable = Some(reason.into()),
        (_, Some(reason)) => *reason = format!("{reason} {more}"),
        (None, None) => rule.text = format!("{} {more}", rule.text),
    }
    true
}

fn is_id(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

/// Adds the tests of one source to the rules that they name. A `rule:` line that is not on a test becomes a fault.
fn read_source(path: &str, source: &str, tests: &mut BTreeMap<String, Vec<String>>, faults: &mut Vec<String>) {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    for (at, line) in lines.iter().enumerate() {
        let comment = line.strip_prefix("//").map(|comment| comment.trim_start_matches(['/', '!']).trim_start());
        let Some(ids) = comment.and_then(|comment| comment.strip_prefix("rule:")) else { continue };
        let Some(test) = test_below(&lines, at).filter(|_| line.starts_with("/// rule: ")) else {
            faults.push(format!("{path}:{}: not the doc comment of a test that runs: {line}", at + 1));
            continue;
        };
        let test = format!("{path}::{test}");
        for id in ids.split(',').map(str::trim) {
            let of_rule = tests.entry(id.into()).or_default();
            if of_rule.contains(&test) {
                faults.push(format!("{test} names {id} twice"));
            }
            of_rule.push(test.clone());
        }
    }
}

/// The name of the function whose comments and attributes include a line, if it is a test that is not ignored.
fn test_below<'a>(lines: &[&'a str], at: usize) -> Option<&'a str> {
    let is_above = |line: &&&str| line.starts_with("#[") || line.starts_with("//");
    let above = lines[..at].iter().rev().take_while(is_above);
    let below: Vec<_> = lines[at..].iter().take_while(is_above).collect();
    let head = lines.get(at + below.len())?;
    let (name, _) = head.split_once("fn ")?.1.split_once('(')?;
    let attributes: Vec<_> = above.chain(below).filter(|line| line.starts_with("#[")).collect();
    let is_test = attributes.iter().any(|line| **line == "#[test]" || line.starts_with("#[tokio::test"));
    let is_ignored = attributes.iter().any(|line| line.starts_with("#[ignore"));
    (is_test && !is_ignored).then_some(name)
}

/// Finds rules without a test or a reason, rules with both, and tests that name unknown rules.
fn compare(specifications: &[Specification], tests: &BTreeMap<String, Vec<String>>, faults: &mut Vec<String>) {
    let mut known = BTreeSet::new();
    for rule in specifications.iter().flat_map(|specification| &specification.rules) {
        let id = &rule.id;
        if !known.insert(id) {
            faults.push(format!("{id} is twice in rules.txt"));
        }
        match (&rule.not_applicable, tests.get(id)) {
            (None, None) => {
                faults.push(format!("{id} has neither a test with `/// rule: {id}` nor \"{NOT_APPLICABLE}...\""));
            }
            (Some(_), Some(tests)) => faults.push(format!("{id} is not applicable, but tested by {tests:?}")),
            _ => {}
        }
    }
    for (id, tests) in tests.iter().filter(|(id, _)| !known.contains(id)) {
        faults.push(format!("{id} is no rule in rules.txt, but named by {tests:?}"));
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// Finds the Rust files below a folder, except in build directories.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let (path, name) = (entry.path(), entry.file_name());
        let is_folder = entry.file_type().unwrap().is_dir();
        if is_folder && name != "target" && !name.to_string_lossy().starts_with('.') {
            sources(&path, found);
        } else if !is_folder && path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Returns all specifications, the tests of each rule, and the faults of both.
fn everything() -> (Vec<Specification>, BTreeMap<String, Vec<String>>, Vec<String>) {
    let mut faults = Vec::new();
    let specifications = read_rules(&read("tests/conformance/rules.txt"), &mut faults);
    let (mut tests, mut paths) = (BTreeMap::new(), Vec::new());
    sources(&root(), &mut paths);
    paths.sort();
    for path in paths {
        let name = path.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/");
        read_source(&name, &std::fs::read_to_string(&path).unwrap(), &mut tests, &mut faults);
    }
    compare(&specifications, &tests, &mut faults);
    (specifications, tests, faults)
}

/// Each rule with its tests, as Markdown.
fn table_of(specifications: &[Specification], tests: &BTreeMap<String, Vec<String>>) -> String {
    let mut table = String::new();
    let (mut tested, mut not_applicable) = (0, 0);
    for Specification { name, title, rules } in specifications {
        writeln!(table, "\n## {title} (`{name}`)\n").unwrap();
        for Rule { id, text, not_applicable: reason } in rules {
            writeln!(table, "* `{id}`: {text}").unwrap();
            for test in tests.get(id).into_iter().flatten() {
                writeln!(table, "  * `{test}`").unwrap();
            }
            if let Some(reason) = reason {
                writeln!(table, "  * {NOT_APPLICABLE}{reason}").unwrap();
            }
            *(if reason.is_some() { &mut not_applicable } else { &mut tested }) += 1;
        }
    }
    writeln!(table, "\nTested: {tested}, not applicable: {not_applicable}.").unwrap();
    table
}

/// Guarantees: every rule has a test or a reason why it needs none, and tests only name existing rules.
#[test]
fn every_rule_has_its_test() {
    let (specifications, tests, faults) = everything();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let rules = specifications.iter().map(|specification| specification.rules.len()).sum::<usize>();
    assert!(rules > 400 && tests.len() > 300, "{rules} rules, {} of them tested", tests.len());
}

/// Guarantees: each rule is printed with its tests.
#[test]
fn table() {
    let (specifications, tests, _) = everything();
    println!("{}", table_of(&specifications, &tests));
}

/// Guarantees: the page only names existing rules, and names every specification and each difference between a
/// specification and the observed behaviour.
#[test]
fn the_page_names_rules() {
    let page = read("CONFORMANCE.md");
    let named: BTreeSet<&str> = page.split('`').skip(1).step_by(2).collect();
    let (specifications, _, _) = everything();
    let rules = specifications.iter().flat_map(|specification| &specification.rules);
    let known: BTreeSet<&str> = rules.map(|rule| rule.id.as_str()).collect();
    for id in named.iter().filter(|text| text.split_once('#').is_some_and(|(name, rule)| is_id(name) && is_id(rule))) {
        assert!(known.contains(id), "CONFORMANCE.md names {id}, which is no rule");
    }
    for id in known.iter().filter(|id| id.starts_with("differences#")) {
        assert!(named.contains(id), "CONFORMANCE.md does not explain {id}");
    }
    for Specification { name, .. } in &specifications {
        assert!(named.contains(name.as_str()), "CONFORMANCE.md does not say what {name} is");
    }
}
