//! Holds `CONFORMANCE.md` against the tree: whoever renames a file, a function or a test, or takes one away, has to say
//! what keeps the rule now.
//!
//! A reference is a text in backquotes that begins with a folder of the tree: a file, or `file::name` for a function,
//! type or test in it.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// The folders that a reference may begin with.
const FOLDERS: [&str; 6] = ["pipeline/", "receivers/", "processors/", "exporters/", "tests/", "examples/"];

/// A row says in its last cell that a test holds the rule, or begins like one of these.
const WITHOUT_TEST: [&str; 2] = ["not applicable: ", "open: "];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn document() -> String {
    std::fs::read_to_string(root().join("CONFORMANCE.md")).unwrap()
}

/// The references in a text.
fn references(text: &str) -> impl Iterator<Item = &str> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted.filter(|quoted| FOLDERS.iter().any(|folder| quoted.starts_with(folder)))
}

/// The rows of all tables with their four cells: place, rule, how, test.
fn rows(document: &str) -> Vec<[&str; 4]> {
    let lines = document.lines().filter(|line| line.starts_with("| ") && line.matches(" | ").count() == 3);
    let cells = lines.map(|line| {
        let mut cells = line.trim_start_matches("| ").trim_end_matches(" |").split(" | ");
        std::array::from_fn(|_| cells.next().unwrap())
    });
    cells.filter(|cells| cells[0] != "Place" && !cells[0].starts_with("---")).collect()
}

/// Whether a source defines a name: a function, method, type, constant or field.
fn defines(source: &str, name: &str) -> bool {
    ["fn ", "struct ", "enum ", "const ", "static ", "trait ", "mod ", "type "].iter().any(|keyword| {
        let definition = format!("{keyword}{name}");
        let mut places = source.match_indices(&definition);
        places.any(|(at, found)| !source[at + found.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    })
}

/// Whether a source has a test of a name: a function with a test's attribute among the lines above it.
fn has_test(source: &str, name: &str) -> bool {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let head = format!("fn {name}(");
    (0..lines.len()).filter(|&at| lines[at].contains(&head)).any(|at| {
        let mut above = lines[..at].iter().rev().take_while(|line| line.starts_with("#[") || line.starts_with("//"));
        above.any(|line| *line == "#[test]" || line.starts_with("#[tokio::test"))
    })
}

fn source(path: &str) -> Option<String> {
    std::fs::read_to_string(root().join(path)).ok()
}

/// Guarantees: every file that is named exists, and so does every name in it.
#[test]
fn what_is_named_exists() {
    let document = document();
    let mut missing = Vec::new();
    for reference in references(&document) {
        let found = match reference.split_once("::") {
            Some((path, name)) => source(path).is_some_and(|source| defines(&source, name)),
            None => root().join(reference).exists(),
        };
        if !found {
            missing.push(reference);
        }
    }
    assert!(missing.is_empty(), "not in the tree: {missing:#?}");
    assert!(references(&document).count() > 100, "references are found");
}

/// Guarantees: every row names a test, or says why there is none; every test that is named is one.
#[test]
fn every_row_has_its_test() {
    let document = document();
    let rows = rows(&document);
    assert!(rows.len() > 100, "{} rows", rows.len());
    for [place, rule, _, test] in rows {
        if WITHOUT_TEST.iter().any(|start| test.strip_prefix(start).is_some_and(|reason| reason.len() > 3)) {
            continue;
        }
        assert!(references(test).next().is_some(), "{place}, {rule}: no test, and no word why: {test}");
        for reference in references(test) {
            let test = reference.split_once("::").map(|(path, name)| (source(path), name));
            let found = test.is_some_and(|(source, name)| source.is_some_and(|source| has_test(&source, name)));
            assert!(found, "{place}, {rule}: {reference} is no test");
        }
    }
}

/// Guarantees: the summary at the top counts the rows below it.
#[test]
fn the_summary_counts() {
    let document = document();
    let mut counted = BTreeMap::from([("tested", 0), ("not applicable", 0), ("open", 0)]);
    for [_, _, _, test] in rows(&document) {
        let state = WITHOUT_TEST
            .iter()
            .find(|start| test.starts_with(**start))
            .map_or("tested", |start| &start[..start.len() - 2]);
        *counted.get_mut(state).unwrap() += 1;
    }
    for (state, count) in counted {
        assert!(document.contains(&format!("**{count}** {state}")), "{count} rows are {state}");
    }
}

/// Guarantees: the checks above find what they are there to find.
#[test]
fn faults_are_found() {
    let source = "/// Guarantees: x.\n#[test]\nfn a_test() {}\n\nfn helper(x: u8) {}\nstruct Thing;\n";
    assert!(has_test(source, "a_test") && !has_test(source, "helper") && !has_test(source, "test"));
    assert!(defines(source, "helper") && defines(source, "Thing") && !defines(source, "help") && !defines(source, "x"));
    let document =
        "| Place | Rule | How | Test |\n| --- | --- | --- | --- |\n| a | `b` | `tests/main.rs` | open: later |\n";
    assert_eq!(rows(document), [["a", "`b`", "`tests/main.rs`", "open: later"]]);
    assert_eq!(references(document).collect::<Vec<_>>(), ["tests/main.rs"]);
}
