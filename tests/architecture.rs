//! Compares `ARCHITECTURE.md` and the links of all pages with the source tree: files, tests and sections that are named
//! exist, and crates depend on each other as documented.

#![allow(clippy::unwrap_used, reason = "a test may fail like one")]

use std::path::{Path, PathBuf};

/// A text in backquotes that begins with one of these is a file or a folder, or `file::name` for a function in it.
const FOLDERS: [&str; 6] = ["pipeline/", "receivers/", "processors/", "exporters/", "tests/", "examples/"];

/// The maximum sizes in bytes that people still read completely: of `ARCHITECTURE.md`, of all decisions, and of one
/// decision.
const MOST_BYTES: (usize, usize, usize) = (15 << 10, 15 << 10, 2 << 10);

/// The maximum size of all pages in bytes.
const MOST_BYTES_OF_PAGES: usize = 250_000;

/// The crates on which other crates may depend, with their own dependencies. Components may depend on all of these, but
/// not on components.
const KNOWN: [(&str, &[&str]); 11] = [
    ("pipeline/model", &[]),
    ("pipeline/heap", &[]),
    ("pipeline/net", &[]),
    ("pipeline/symbolizer", &[]),
    ("receivers/ptrace/sampler", &[]),
    ("pipeline/identity", &["model"]),
    ("pipeline/windows", &["model"]),
    ("pipeline/wire", &["model"]),
    ("pipeline/engine", &["heap", "identity", "model", "net"]),
    ("pipeline/codec", &["engine", "model", "net", "wire"]),
    ("pipeline/debuginfod", &["engine", "net", "symbolizer"]),
];

/// Crates that only compute, without side effects.
const PURE: [&str; 4] = ["pipeline/model", "pipeline/identity", "pipeline/windows", "pipeline/wire"];

/// Dependencies with side effects.
const WORLD: [&str; 7] = ["tokio", "hyper", "tonic", "rustls", "rustix", "nix", "libc"];

/// The crates with `unsafe`.
const UNSAFE: [&str; 2] = ["pipeline/heap", "receivers/ptrace/sampler"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// The pages below a folder, by path from the root.
fn pages(folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            pages(&path, found);
        } else if name.ends_with(".md") {
            found.push(path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned());
        }
    }
}

fn decisions() -> Vec<String> {
    let mut found = Vec::new();
    pages(&root().join("pipeline/decisions"), &mut found);
    found
}

/// The anchors of a page's sections.
fn sections(page: &str) -> Vec<String> {
    let outside_of_code = page.split("```").step_by(2);
    let titles = outside_of_code.flat_map(str::lines).filter(|line| line.starts_with('#'));
    let name = |title: &str| {
        let kept = title.trim_start_matches('#').trim().to_lowercase();
        let kept = kept.chars().filter(|&c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    titles.map(name).collect()
}

/// Guarantees: the page and the decisions are short enough to read; every file, test and function that they name
/// exists.
#[test]
fn short_and_true() {
    let decisions = decisions();
    let (page, all, one) = MOST_BYTES;
    assert!(read("ARCHITECTURE.md").len() <= page);
    assert!(decisions.iter().all(|path| read(path).len() <= one));
    assert!(decisions.iter().map(|path| read(path).len()).sum::<usize>() <= all);
    let mut missing = Vec::new();
    for page in decisions.iter().map(String::as_str).chain(["ARCHITECTURE.md"]) {
        let text = read(page);
        for named in text.split('`').skip(1).step_by(2).filter(|text| FOLDERS.iter().any(|it| text.starts_with(it))) {
            let (path, name) = named.split_once("::").unwrap_or((named, ""));
            let path = path.trim_end_matches("/*");
            let defined = |name: &str| name.is_empty() || read(path).contains(&format!("fn {name}("));
            if !root().join(path).exists() || !defined(name) {
                missing.push(format!("{page}: {named}"));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// Guarantees: all pages together can be read in a day, and none has lines too long for an editor.
#[test]
fn pages_are_short() {
    let mut all = Vec::new();
    pages(&root(), &mut all);
    let texts: Vec<(&String, String)> = all.iter().map(|page| (page, read(page))).collect();
    assert!(texts.iter().map(|(_, text)| text.len()).sum::<usize>() <= MOST_BYTES_OF_PAGES);
    let mut long = Vec::new();
    for (page, text) in &texts {
        let lines = text.lines().zip(1..).filter(|(line, _)| line.chars().count() > 120);
        long.extend(lines.map(|(_, number)| format!("{page}:{number}")));
    }
    assert!(long.is_empty(), "{long:#?}");
}

/// Guarantees: every link from a page into the tree leads to an existing file or folder, and to an existing section.
#[test]
fn links_lead_somewhere() {
    let mut all = Vec::new();
    pages(&root(), &mut all);
    let mut broken = Vec::new();
    for page in &all {
        let text = read(page);
        let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for link in links.filter(|link| !link.contains("://") && !link.contains(char::is_whitespace)) {
            let (file, section) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => root().join(page),
                file => root().join(page).parent().unwrap().join(file),
            };
            let has_section = || sections(&std::fs::read_to_string(&target).unwrap()).iter().any(|it| it == section);
            if !target.exists() || !section.is_empty() && !has_section() {
                broken.push(format!("{page}: {link}"));
            }
        }
    }
    assert!(all.len() > 30 && broken.is_empty(), "{broken:#?}");
}

/// Guarantees: crates only depend on each other as in the table of crates; those that only compute have no dependency
/// with side effects; and only two crates may have `unsafe`.
#[test]
fn crates_know_what_they_may() {
    let workspace = read("Cargo.toml");
    assert!(workspace.contains("unsafe_code = \"forbid\""));
    let (_, members) = workspace.split_once("members = [").unwrap();
    let members: Vec<&str> = members.split(']').next().unwrap().split('"').skip(1).step_by(2).collect();
    assert!(KNOWN.iter().all(|(path, _)| members.contains(path)));
    let mut wrong = Vec::new();
    for &path in &members {
        let manifest = read(&format!("{path}/Cargo.toml"));
        if manifest.contains("[lints]\nworkspace = true") == UNSAFE.contains(&path) {
            wrong.push(format!("{path}: has lints of its own, or none"));
        }
        let mut section = "";
        for line in manifest.lines() {
            section = if line.starts_with('[') { line } else { section };
            let dependency = line.split(['.', ' ', '=']).next().unwrap();
            if !section.ends_with("dependencies]") || section.contains("dev-") || dependency.is_empty() {
                continue;
            }
            let known = KNOWN.iter().find(|(of, _)| *of == path).map(|(_, known)| *known);
            let is_component =
                |name: &str| ["receiver-", "processor-", "exporter-"].iter().any(|it| name.starts_with(it));
            let is_fine = match dependency.strip_prefix("profbridge-") {
                None => !PURE.contains(&path) || !WORLD.contains(&dependency),
                Some(ours) => match known {
                    Some(known) => known.contains(&ours),
                    None => path == "pipeline/cli" || path == "pipeline/bench" || !is_component(ours),
                },
            };
            if !is_fine {
                wrong.push(format!("{path}: must not know {dependency}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
