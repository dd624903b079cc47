//! Checks that need the whole configuration but no component: every reference has its component, every component is
//! referenced, and no section exists only in the Collector.

use super::collector;
use super::document::{Config, PipelineConfig, Reference, below};
use super::id::{Carries, ComponentId, PipelineId};
use super::key_path;
use super::node::Entry;
use super::ordered::Ordered;
use super::position::{Pos, SourcePosition};
use super::problem::{Problem, Severity};
use super::section::Section;
use super::source::MINIMAL;
use super::suggest;

/// The component types of this program.
#[derive(Clone, Copy, Debug)]
pub struct KnownComponents<'a> {
    /// Types of receivers.
    pub receivers: &'a [&'a str],
    /// Types of processors.
    pub processors: &'a [&'a str],
    /// Types of exporters.
    pub exporters: &'a [&'a str],
}

/// Returns all problems of the configuration as a whole, in the order of the sources. The configuration is usable if
/// none of them is an error. Unused components are warnings.
///
/// The result includes problems that [`super::load`] found without having to stop: unknown sections, unset environment
/// variables, duplicate keys.
#[must_use]
pub fn check_references(config: &Config, known: &KnownComponents<'_>) -> Vec<Problem> {
    let mut check = Check { config, known, problems: config.found.clone() };
    check.report_foreign_section("extensions", "extension");
    check.report_foreign_section("connectors", "connector");
    check.service_extensions();
    for role in Role::ALL {
        check.components(role);
    }
    check.pipelines();
    super::problem::Problems::new(check.problems).map_or_else(Vec::new, super::problem::Problems::into_vec)
}

/// The three lists of a pipeline.
#[derive(Clone, Copy)]
enum Role {
    Receiver,
    Processor,
    Exporter,
}

impl Role {
    const ALL: [Self; 3] = [Self::Receiver, Self::Processor, Self::Exporter];

    fn word(self) -> &'static str {
        match self {
            Self::Receiver => "receiver",
            Self::Processor => "processor",
            Self::Exporter => "exporter",
        }
    }

    fn section(self) -> &'static str {
        match self {
            Self::Receiver => "receivers",
            Self::Processor => "processors",
            Self::Exporter => "exporters",
        }
    }

    fn list(self, pipeline: &PipelineConfig) -> &[Reference] {
        match self {
            Self::Receiver => &pipeline.receivers,
            Self::Processor => &pipeline.processors,
            Self::Exporter => &pipeline.exporters,
        }
    }

    /// Describes where a pipeline names a component, for the advice to delete the name.
    fn mention(self, pipeline: &PipelineId, Reference { id, position }: &Reference) -> String {
        let (section, SourcePosition { file, line, .. }) = (self.section(), position);
        format!("and `{id}` from `service.pipelines.{pipeline}.{section}` ({file}:{line})")
    }
}

struct Check<'a> {
    config: &'a Config,
    known: &'a KnownComponents<'a>,
    problems: Vec<Problem>,
}

impl<'a> Check<'a> {
    fn report(&mut self, position: SourcePosition, path: &[&str], message: String, hint: String, severity: Severity) {
        let path: Vec<String> = path.iter().map(|key| (*key).to_owned()).collect();
        let key_path = key_path::join(&path);
        self.problems.push(Problem { position, key_path, message, hint: Some(hint), severity });
    }

    fn defined(&self, role: Role) -> &'a Ordered<ComponentId, Section> {
        match role {
            Role::Receiver => &self.config.receivers,
            Role::Processor => &self.config.processors,
            Role::Exporter => &self.config.exporters,
        }
    }

    fn types(&self, role: Role) -> &'a [&'a str] {
        match role {
            Role::Receiver => self.known.receivers,
            Role::Processor => self.known.processors,
            Role::Exporter => self.known.exporters,
        }
    }

    fn supports(id: &PipelineId) -> bool {
        id.carries() != Carries::Unsupported
    }

    fn named(&self, role: Role, id: &ComponentId) -> Vec<(&'a PipelineId, &'a Reference)> {
        let mut found = Vec::new();
        for (pipeline, config) in self.config.pipelines.iter() {
            found.extend(
                role.list(config).iter().filter(|reference| reference.id == *id).map(|reference| (pipeline, reference)),
            );
        }
        found
    }

    /// Returns "lines 3-7" of an entry, for every source that contains it.
    fn lines(&self, entry: &Entry) -> String {
        let position = |at: &Pos| {
            let lines = self.config.sources.lines(*at, entry.value.extent(at.source).max(at.end));
            format!("{lines} of {}", self.config.sources.position(*at).file)
        };
        entry.at.iter().map(position).collect::<Vec<_>>().join(" and ")
    }

    /// Returns advice on what to delete: an entry, and the references to it. References in pipelines that must be
    /// deleted entirely are not listed.
    fn deletion(&self, entry: &Entry, roles: &[Role], id: &ComponentId) -> String {
        let mut lines = vec![format!("delete {}", self.lines(entry))];
        for role in roles {
            let named = self.named(*role, id).into_iter().filter(|(id, _)| Self::supports(id));
            lines.extend(named.map(|(pipeline, reference)| role.mention(pipeline, reference)));
        }
        lines.join("\n")
    }

    /// Reports a root section that the Collector has and this program does not.
    fn report_foreign_section(&mut self, section: &str, word: &str) {
        let Some(entry) = self.config.root.entry(section) else { return };
        let position = self.config.sources.position(entry.pos());
        let mut hint = vec![format!("delete {}", self.lines(entry))];
        if section == "connectors" {
            for connector in entry.value.entries().unwrap_or_default() {
                let Ok(id) = connector.key.parse() else { continue };
                for role in [Role::Receiver, Role::Exporter] {
                    let named = self.named(role, &id).into_iter();
                    hint.extend(named.map(|(pipeline, reference)| role.mention(pipeline, reference)));
                }
            }
        }
        let message = format!("there are no {word}s here");
        self.report(position, &[section], message, hint.join("\n"), Severity::Error);
    }

    fn service_extensions(&mut self) {
        let service = self.config.root.entry("service");
        let Some(entry) = service.and_then(|service| service.value.entry("extensions")) else { return };
        let position = self.config.sources.position(entry.pos());
        let hint = format!("delete {}; health and metrics are served without them", self.lines(entry));
        let path = ["service", "extensions"];
        self.report(position, &path, "there are no extensions here".to_owned(), hint, Severity::Error);
    }

    fn components(&mut self, role: Role) {
        let (word, section) = (role.word(), role.section());
        for id in self.defined(role).keys() {
            let text = id.to_string();
            let map = self.config.root.entry(section).map(|entry| &entry.value);
            let entry = map.and_then(|map| map.entries()).and_then(|all| {
                all.iter().find(|entry| entry.key.parse::<ComponentId>().is_ok_and(|other| other == *id))
            });
            let Some(entry) = entry else { continue };
            let position = self.config.sources.position(entry.pos());
            let types = self.types(role);
            if !types.contains(&id.kind.as_str()) {
                let mut hint = self.deletion(entry, &[role], id);
                let near = suggest::nearest(&id.kind, types.iter().copied());
                match (collector::replacement(section, &id.kind), near) {
                    (Some(instead), _) => hint = format!("{instead}; {hint}"),
                    (None, Some(near)) => hint = format!("did you mean `{near}`? otherwise {hint}"),
                    (None, None) => hint.push_str(&format!("\n{section} there are: {}", list(types))),
                }
                let message = format!("there is no {word} of the type `{}`", id.kind);
                self.report(position, &[section, &text], message, hint, Severity::Error);
            } else if self.named(role, id).is_empty() && self.pipelines_are_sound() {
                let hint = "name it in a pipeline, or delete it".to_owned();
                let message = format!("the {word} `{text}` is in no pipeline");
                self.report(position, &[section, &text], message, hint, Severity::Warning);
            }
        }
    }

    /// Whether all pipelines could be read. Otherwise it is unknown which components are unused.
    fn pipelines_are_sound(&self) -> bool {
        !self.config.pipelines.is_empty()
            && !self.config.found.iter().any(|problem| problem.key_path.starts_with("service."))
    }

    fn pipelines(&mut self) {
        let config = self.config;
        if config.pipelines.is_empty() {
            let pipelines = config.root.entry("service").map(|service| (service, service.value.entry("pipelines")));
            // If the section itself is wrong, that was reported already.
            if pipelines.is_some_and(|(service, pipelines)| {
                let is_map = |entry: &Entry| entry.value.entries().is_some();
                !is_map(service) || pipelines.is_some_and(|entry| entry.value.entries().is_none_or(|e| !e.is_empty()))
            }) {
                return;
            }
            let at = pipelines
                .map_or(Pos::whole(config.root.at.source), |(service, pipelines)| pipelines.unwrap_or(service).pos());
            let position = config.sources.position(at);
            let message = "there are no pipelines, so nothing would run".to_owned();
            self.report(position, &["service", "pipelines"], message, MINIMAL.to_owned(), Severity::Error);
        }
        for (id, pipeline) in config.pipelines.iter() {
            let name = id.to_string();
            let path = ["service", "pipelines", name.as_str()];
            if !Self::supports(id) {
                let signals = list(&Carries::signals());
                let full = path.map(str::to_owned);
                let parent = config.root.find(&full[..2]);
                let entry = parent.and_then(|parent| parent.entries()).and_then(|all| {
                    all.iter().find(|entry| entry.key.parse::<PipelineId>().is_ok_and(|other| other == *id))
                });
                let delete = entry.map_or_else(String::new, |entry| format!("delete {}; ", self.lines(entry)));
                let hint = format!("{delete}pipelines can carry {signals}, or everything under any other name");
                let message = format!("no component here carries {}", id.signal);
                self.report(pipeline.position.clone(), &path, message, hint, Severity::Error);
                continue;
            }
            for role in Role::ALL {
                let list = role.list(pipeline);
                if list.is_empty() && !matches!(role, Role::Processor) {
                    self.empty(role, pipeline.position.clone(), &path);
                }
                self.references(role, list, &path);
            }
        }
    }

    fn empty(&mut self, role: Role, position: SourcePosition, path: &[&str]) {
        let (word, section) = (role.word(), role.section());
        // A list with unreadable items was reported already.
        let full: Vec<String> = path.iter().map(|key| (*key).to_owned()).collect();
        let list = self.config.root.find(&below(&full, section));
        let pipeline = self.config.root.find(&full);
        if pipeline.is_none_or(|node| node.entries().is_none())
            || list.is_some_and(|node| node.items().is_none_or(|items| !items.is_empty()))
        {
            return;
        }
        let example = self.defined(role).keys().next().map_or("name".to_owned(), ToString::to_string);
        let hint = format!("add `{section}: [{example}]`");
        self.report(position, path, format!("this pipeline has no {word}"), hint, Severity::Error);
    }

    fn references(&mut self, role: Role, list: &[Reference], path: &[&str]) {
        let (word, section) = (role.word(), role.section());
        for (index, reference) in list.iter().enumerate() {
            let position = index.to_string();
            let path: Vec<&str> = path.iter().copied().chain([section, &position]).collect();
            let position = reference.position.clone();
            let id = &reference.id;
            if list[..index].iter().any(|earlier| earlier.id == *id) {
                let message = format!("the {word} `{id}` is named twice in this pipeline");
                let hint = "name it once; a second one needs a name of its own: `type/name`".to_owned();
                self.report(position, &path, message, hint, Severity::Error);
                continue;
            }
            if self.defined(role).contains(id) || self.is_connector(role, id) {
                continue;
            }
            let message = format!("the {word} `{id}` is not defined");
            let names: Vec<String> = self.defined(role).keys().map(ToString::to_string).collect();
            let hint = match suggest::nearest(&id.to_string(), names.iter().map(String::as_str)) {
                Some(near) => format!("did you mean `{near}`?"),
                None if self.types(role).contains(&id.kind.as_str()) => {
                    format!("add `{id}:` under `{section}:`; with nothing behind it, it has its defaults")
                }
                None => {
                    let types = self.types(role);
                    format!("delete it here; {section} there are: {}", self::list(types))
                }
            };
            self.report(position, &path, message, hint, Severity::Error);
        }
    }

    /// Whether the name is that of a connector. A connector is refused once, with all places that name it.
    fn is_connector(&self, role: Role, id: &ComponentId) -> bool {
        !matches!(role, Role::Processor)
            && self.config.root.entry("connectors").and_then(|all| all.value.entries()).is_some_and(|all| {
                all.iter().any(|entry| entry.key.parse::<ComponentId>().is_ok_and(|other| other == *id))
            })
    }
}

fn list(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}
