//! The configuration as a whole: components, pipelines, and problems found so far.

use std::fmt;
use std::sync::Arc;

use super::id::{BadId, ComponentId, PipelineId};
use super::key_path;
use super::node::{Entry, Node, NodeKind};
use super::ordered::Ordered;
use super::position::{Pos, SourcePosition};
use super::print;
use super::problem::{Problem, Problems, Severity};
use super::redact;
use super::section::Section;
use super::source::Merged;
use super::suggest;
use super::text::Sources;

/// The configuration as written. Each component interprets its own [`Section`].
#[derive(Clone)]
pub struct Config {
    /// The receivers.
    pub receivers: Ordered<ComponentId, Section>,
    /// The processors.
    pub processors: Ordered<ComponentId, Section>,
    /// The exporters.
    pub exporters: Ordered<ComponentId, Section>,
    /// `service.pipelines`.
    pub pipelines: Ordered<PipelineId, PipelineConfig>,
    /// `service`, without its pipelines, which are in `pipelines`.
    pub service: Section,
    /// `service.telemetry`.
    pub telemetry: Section,
    pub(super) sources: Arc<Sources>,
    pub(super) root: Arc<Node>,
    /// Problems that do not prevent further checks; `check_references` reports them too.
    pub(super) found: Vec<Problem>,
}

/// One pipeline.
#[derive(Clone, Debug)]
pub struct PipelineConfig {
    /// The receivers that the pipeline gets data from.
    pub receivers: Vec<Reference>,
    /// The processors of the pipeline, in order.
    pub processors: Vec<Reference>,
    /// The exporters of the pipeline; each gets all data.
    pub exporters: Vec<Reference>,
    /// Where the pipeline's key is.
    pub position: SourcePosition,
}

/// A reference to a component in a pipeline.
#[derive(Clone, Debug)]
pub struct Reference {
    /// The component.
    pub id: ComponentId,
    /// The position of the reference.
    pub position: SourcePosition,
}

/// The sections of the root. Other sections of the Collector are refused with advice.
const ROOT_KEYS: &[&str] = &["receivers", "processors", "exporters", "service"];
const FOREIGN_ROOT_KEYS: &[&str] = &["extensions", "connectors"];
const SERVICE_KEYS: &[&str] = &["allowed_hosts", "identity", "limits", "pipelines", "shutdown_timeout", "telemetry"];
const PIPELINE_KEYS: &[&str] = &["receivers", "processors", "exporters"];

impl Config {
    /// Interprets the merged tree as a configuration.
    pub(super) fn new(merged: Merged) -> Result<Self, Problems> {
        let Merged { sources, root, problems } = merged;
        let sources = Arc::new(sources);
        let Some(root) = root else {
            let nothing = Problem {
                position: sources.position(Pos::whole(0)),
                key_path: String::new(),
                message: "there is no configuration".to_owned(),
                hint: None,
                severity: Severity::Error,
            };
            return Err(Problems::new(problems).unwrap_or_else(|| nothing.into()));
        };
        let root = Arc::new(root);
        let mut reader = DocumentReader { sources: &sources, problems };
        let [receivers, processors, exporters] =
            ["receivers", "processors", "exporters"].map(|section| reader.components(&root, section));
        reader.unknown_keys(&root, &[], ROOT_KEYS, FOREIGN_ROOT_KEYS);
        let (pipelines, telemetry) = reader.service(&root);
        let found = reader.problems;
        let service = match root.entry("service") {
            Some(entry) => Section::new(&sources, &entry.value, &["service".to_owned()], entry.pos()),
            None => Section::defaults(),
        };
        Ok(Self { receivers, processors, exporters, pipelines, service, telemetry, sources, root, found })
    }

    /// The effective configuration as YAML: all sources merged, secrets masked, environment references left unexpanded.
    #[must_use]
    pub fn redacted_yaml(&self) -> String {
        print::redacted(&self.sources, &self.root)
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("receivers", &self.receivers)
            .field("processors", &self.processors)
            .field("exporters", &self.exporters)
            .field("pipelines", &self.pipelines)
            .finish_non_exhaustive()
    }
}

struct DocumentReader<'a> {
    sources: &'a Arc<Sources>,
    problems: Vec<Problem>,
}

impl DocumentReader<'_> {
    fn fault(&mut self, at: Pos, path: &[String], message: String, hint: Option<String>) {
        self.problems.push(Problem {
            position: self.sources.position(at),
            key_path: key_path::join(path),
            message,
            hint,
            severity: Severity::Error,
        });
    }

    fn bad_id(&mut self, at: Pos, path: &[String], what: &str, text: &str, bad: BadId) {
        let text = redact::without_inline_secrets(text);
        self.fault(at, path, format!("`{text}` names no {what}"), Some(bad.to_string()));
    }

    fn unknown_keys(&mut self, map: &Node, path: &[String], valid: &[&str], tolerated: &[&str]) {
        for entry in map.entries().unwrap_or_default() {
            let key = entry.key.as_str();
            if valid.contains(&key) || tolerated.contains(&key) {
                continue;
            }
            let hidden = redact::unknown_value(key, valid, &entry.value);
            self.problems.push(Problem {
                position: self.sources.position_hiding(entry.pos(), hidden),
                key_path: key_path::join(&below(path, key)),
                message: format!("unknown key `{}`", redact::without_inline_secrets(key)),
                hint: Some(suggest::hint(key, valid, "keys")),
                severity: Severity::Error,
            });
        }
    }

    /// The entries of the map `key`; if it is not a map, reports a problem and returns none.
    fn map<'n>(&mut self, parent: &'n Node, path: &[String], hint: &str) -> (Pos, &'n [Entry]) {
        let Some(entry) = path.last().and_then(|key| parent.entry(key)) else { return (Pos::whole(0), &[]) };
        let entries = entry.value.entries();
        if entries.is_none() {
            self.fault(entry.pos(), path, "expected a map here".to_owned(), Some(hint.to_owned()));
        }
        (entry.pos(), entries.unwrap_or_default())
    }

    fn components(&mut self, root: &Node, section: &str) -> Ordered<ComponentId, Section> {
        let path = [section.to_owned()];
        let hint = format!("write `{section}:` and below it, indented, `type:` or `type/name:` for each");
        let (_, entries) = self.map(root, &path, &hint);
        let what = section.trim_end_matches('s');
        let mut components = Ordered::default();
        for entry in entries {
            let path = below(&path, &entry.key);
            match entry.key.parse::<ComponentId>() {
                Ok(id) => {
                    let section = Section::new(self.sources, &entry.value, &path, entry.pos());
                    if !components.insert(id, section) {
                        let message = format!("this {what} is there twice, written with different spaces");
                        self.fault(entry.pos(), &path, message, None);
                    }
                }
                Err(bad) => self.bad_id(entry.pos(), &path, what, &entry.key, bad),
            }
        }
        components
    }

    fn service(&mut self, root: &Node) -> (Ordered<PipelineId, PipelineConfig>, Section) {
        let path = ["service".to_owned()];
        self.map(root, &path, "write `service:` and below it, indented, `pipelines:`");
        let Some(service) = root.entry("service") else { return (Ordered::default(), Section::defaults()) };
        self.unknown_keys(&service.value, &path, SERVICE_KEYS, &["extensions"]);
        let telemetry = match service.value.entry("telemetry") {
            Some(entry) => Section::new(self.sources, &entry.value, &below(&path, "telemetry"), entry.pos()),
            None => Section::defaults(),
        };
        let path = below(&path, "pipelines");
        let (_, entries) = self.map(&service.value, &path, "write `pipelines:` and below it, indented, `profiles:`");
        let mut pipelines = Ordered::default();
        for entry in entries {
            let path = below(&path, &entry.key);
            let id = match entry.key.parse::<PipelineId>() {
                Ok(id) => id,
                Err(bad) => {
                    self.bad_id(entry.pos(), &path, "pipeline", &entry.key, bad);
                    continue;
                }
            };
            let pipeline = self.pipeline(entry, &path);
            if !pipelines.insert(id, pipeline) {
                let message = "this pipeline is there twice, written with different spaces".to_owned();
                self.fault(entry.pos(), &path, message, None);
            }
        }
        (pipelines, telemetry)
    }

    fn pipeline(&mut self, entry: &Entry, path: &[String]) -> PipelineConfig {
        if entry.value.entries().is_none() {
            let hint = "write `receivers: [...]` and `exporters: [...]` below it, indented".to_owned();
            self.fault(entry.pos(), path, "expected a map here".to_owned(), Some(hint));
        }
        self.unknown_keys(&entry.value, path, PIPELINE_KEYS, &[]);
        let [receivers, processors, exporters] =
            ["receivers", "processors", "exporters"].map(|role| self.references(&entry.value, &below(path, role)));
        PipelineConfig { receivers, processors, exporters, position: self.sources.position(entry.pos()) }
    }

    fn references(&mut self, pipeline: &Node, path: &[String]) -> Vec<Reference> {
        let role = path.last().map_or("", String::as_str);
        let Some(entry) = pipeline.entry(role) else { return Vec::new() };
        let Some(items) = entry.value.items() else {
            let hint = format!("write `{role}: [name, name]`");
            self.fault(entry.pos(), path, "expected a list of names here".to_owned(), Some(hint));
            return Vec::new();
        };
        let mut references = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let path = below(path, &index.to_string());
            let what = role.trim_end_matches('s');
            match &item.kind {
                NodeKind::Scalar(scalar) if scalar.broken.is_some() => {}
                NodeKind::Scalar(scalar) => match scalar.text.parse() {
                    Ok(id) => references.push(Reference { id, position: self.sources.position(item.at) }),
                    Err(bad) => {
                        let shown =
                            if self.sources.is_sensitive(&path, item, scalar) { &scalar.raw } else { &scalar.text };
                        self.bad_id(item.at, &path, what, shown, bad);
                    }
                },
                NodeKind::Map(_) | NodeKind::Seq(_) => {
                    let hint = format!("write the name alone, `- name`, and the settings below the {what} itself");
                    self.fault(item.at, &path, format!("expected a name, of one of the {role}"), Some(hint));
                }
            }
        }
        references
    }
}

/// A path extended by one key.
pub(super) fn below(path: &[String], key: &str) -> Vec<String> {
    let mut path = path.to_vec();
    path.push(key.to_owned());
    path
}
