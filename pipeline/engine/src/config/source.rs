//! The sources of a configuration, and how they become one tree.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::expand::Env;
use super::key_path;
use super::layer::Merger;
use super::node::{Entry, Node, NodeKind};
use super::position::Pos;
use super::problem::{Problem, Severity};
use super::redact;
use super::text::{SourceText, Sources};
use super::yaml::{self, YamlFault};

/// One source of a configuration; later sources take precedence.
#[derive(Clone, PartialEq, Eq)]
pub enum Source {
    /// A YAML file.
    File(PathBuf),
    /// YAML in memory, such as built-in defaults.
    Text {
        /// The source's name in problems.
        name: String,
        /// The YAML.
        text: String,
    },
    /// One assignment `key.path=value` as given to `--set`; the value is YAML, keys with a dot are quoted.
    Set(String),
}

impl std::fmt::Debug for Source {
    /// Shows where the source is, not its content, which may be a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Text { name, .. } => f.debug_struct("Text").field("name", name).finish_non_exhaustive(),
            Self::Set(_) => f.debug_tuple("Set").finish_non_exhaustive(),
        }
    }
}

/// Maximum length of a source in bytes: a thousand times a real configuration.
const MAX_SOURCE_BYTES: usize = 1024 * 1024;

/// The hint for an empty configuration.
pub(super) const MINIMAL: &str = "a minimal configuration is\n\
    receivers:\n\
    \x20 otlp:\n\
    exporters:\n\
    \x20 debug:\n\
    service:\n\
    \x20 pipelines:\n\
    \x20   profiles:\n\
    \x20     receivers: [otlp]\n\
    \x20     exporters: [debug]";

/// The merged tree, and the problems found while reading and merging.
pub(super) struct Merged {
    pub(super) sources: Sources,
    /// The tree; `None` when a source could not be read to its end.
    pub(super) root: Option<Node>,
    pub(super) problems: Vec<Problem>,
}

struct SourceReader<'a> {
    env: Env<'a>,
    sources: Sources,
    faults: Vec<YamlFault>,
    complete: bool,
    merger: Merger,
}

pub(super) fn read_sources(list: &[Source], env: Env<'_>) -> Merged {
    let mut reading = SourceReader {
        env,
        sources: Sources::default(),
        faults: Vec::new(),
        complete: true,
        merger: Merger::default(),
    };
    for source in list {
        reading.source(source);
    }
    if list.is_empty() {
        reading.fault(Pos::whole(0), "no configuration is given", MINIMAL);
    }
    reading.finish()
}

impl SourceReader<'_> {
    fn source(&mut self, source: &Source) {
        let index = u32::try_from(self.sources.all.len()).unwrap_or(u32::MAX);
        match source {
            Source::File(path) => {
                let text = read_file(path);
                let name = path.display().to_string();
                match text {
                    Ok(text) => self.document(index, name, text),
                    Err((message, hint)) => {
                        self.sources.all.push(SourceText::new(name, String::new()));
                        self.fault(Pos::whole(index), &message, &hint);
                    }
                }
            }
            Source::Text { name, text } => self.document(index, name.clone(), text.clone()),
            Source::Set(text) => self.assignment(index, text),
        }
    }

    fn document(&mut self, index: u32, name: String, text: String) {
        // A byte order mark is not part of the text (YAML 1.2.2, 5.2).
        let text = text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text);
        if text.len() > MAX_SOURCE_BYTES {
            self.sources.all.push(SourceText::new(name, String::new()));
            self.fault(Pos::whole(index), "this is too long for a configuration", &limit_hint());
            return;
        }
        let parsed = yaml::parse(&text, 0, index, self.env);
        let mut source = SourceText::new(name, text);
        self.faults.extend(parsed.faults);
        self.complete &= parsed.complete;
        let root = parsed.root;
        // A text that is not a configuration has no secrets that the tree could show, only guessed ones.
        if parsed.complete && matches!(root.kind, NodeKind::Map(_)) {
            source.find_secrets(index, &root, &parsed.dropped);
        }
        let name = source.name.clone();
        self.sources.all.push(source);
        if !parsed.complete {
            return;
        }
        match &root.kind {
            NodeKind::Map(_) => self.merger.add(name, &root),
            _ if root.is_null() => self.fault(Pos::whole(index), "the configuration is empty", MINIMAL),
            _ => self.fault(root.at, "a configuration is a map of sections", MINIMAL),
        }
    }

    fn assignment(&mut self, index: u32, text: &str) {
        let text: String = text.to_owned();
        let mut source = SourceText::new("--set", text.clone());
        let position = |start: usize, end: usize| Pos {
            source: index,
            start: u32::try_from(start).unwrap_or(u32::MAX),
            end: u32::try_from(end).unwrap_or(u32::MAX),
        };
        let form = "write `--set key.path=value`, with quotes around a key that has a dot: \
                    `--set 'exporters.\"otlp/b.c\".timeout=5s'`";
        if text.len() > MAX_SOURCE_BYTES {
            self.sources.all.push(SourceText::new("--set", String::new()));
            self.fault(Pos::whole(index), "this is too long for a configuration", &limit_hint());
            return;
        }
        let (path, end) = match key_path::parse(&text, Some('=')) {
            Ok((path, end)) if end < text.len() => (path, end),
            Ok(_) => {
                self.sources.all.push(source);
                self.fault(position(0, text.len()), "an assignment needs a `=`", form);
                return;
            }
            Err(bad) => {
                self.sources.all.push(source);
                self.fault(position(bad.at, bad.at), bad.message, form);
                return;
            }
        };
        let parsed = yaml::parse(&text, end + 1, index, self.env);
        self.complete &= parsed.complete;
        self.faults.extend(parsed.faults);
        let mut root = parsed.root;
        for key in path.iter().rev() {
            let entry = Entry { key: key.clone(), at: vec![position(0, end)], value: Arc::new(root) };
            root = Node { at: position(0, end), kind: NodeKind::Map(vec![entry]) };
        }
        if parsed.complete {
            source.find_secrets(index, &root, &parsed.dropped);
            self.merger.add(source.name.clone(), &root);
        }
        self.sources.all.push(source);
    }

    /// Reports a problem that prevents further checks, because there is no tree.
    fn fault(&mut self, at: Pos, message: &str, hint: &str) {
        self.complete = false;
        self.faults.push(YamlFault { at, first: None, message: message.to_owned(), hint: hint.to_owned() });
    }

    fn finish(self) -> Merged {
        let Self { sources, faults, complete, merger, .. } = self;
        let problems = faults.iter().map(|fault| problem(&sources, fault)).collect();
        let root = if complete { merger.finish() } else { None };
        Merged { sources, root, problems }
    }
}

fn problem(sources: &Sources, fault: &YamlFault) -> Problem {
    let hint = match fault.first {
        Some(first) => format!("{} {}; delete one of them", fault.hint, sources.lines(first, first.end)),
        None => fault.hint.clone(),
    };
    let mut message = fault.message.clone();
    if let Some(source) = sources.all.get(fault.at.source as usize).filter(|_| !fault.at.is_whole()) {
        let line = source.line_of(fault.at.start);
        let text = source.text.lines().nth(line).unwrap_or_default();
        message = redact::scrub_line(&message, text, &source.masks_of(line));
    }
    let position = sources.position(fault.at);
    Problem { position, key_path: String::new(), message, hint: Some(hint), severity: Severity::Error }
}

fn limit_hint() -> String {
    format!("at most {} MiB", MAX_SOURCE_BYTES / (1024 * 1024))
}

fn read_file(path: &Path) -> Result<String, (String, String)> {
    let cannot = |error: std::io::Error| {
        (format!("cannot read the configuration: {error}"), "check the path given with `--config`".to_owned())
    };
    let file = std::fs::File::open(path).map_err(cannot)?;
    let mut bytes = Vec::new();
    let limit = u64::try_from(MAX_SOURCE_BYTES).unwrap_or(u64::MAX).saturating_add(4);
    file.take(limit).read_to_end(&mut bytes).map_err(cannot)?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
        (format!("line {line} is not UTF-8"), "save the file as UTF-8".to_owned())
    })
}
