//! The plan: the components that a configuration describes. It makes every component and checks every rule without I/O,
//! so `validate` simply makes a plan and drops it.

use std::collections::BTreeSet;

use profbridge_identity::Rules;
use profbridge_model::TelemetryKind;

use crate::component::{Processor, Warning};
use crate::config::{
    Carries, ComponentId, Config, KnownComponents, Ordered, PipelineConfig, PipelineId, Problem, Problems, Reference,
    Section, Severity, check_references,
};
use crate::delivery::DynExporter;
use crate::receiver::Receiver;
use crate::registry::{Description, Factory, Registry, find};
use crate::service::ServiceSettings;
use crate::via;

/// A checked configuration, ready to start.
pub struct Plan {
    /// The settings of the process as a whole.
    pub service: ServiceSettings,
    pub(crate) receivers: Vec<(String, Box<dyn Receiver>)>,
    pub(crate) pipelines: Vec<PlannedPipeline>,
    pub(crate) exporters: Vec<(String, Box<dyn DynExporter>)>,
    /// The disabled exporters, each with the reason.
    pub disabled: Vec<(String, String)>,
    /// Questionable settings that do not prevent the start.
    pub warnings: Vec<Problem>,
}

pub(crate) struct PlannedPipeline {
    pub(crate) id: String,
    pub(crate) carries: Carries,
    pub(crate) receivers: Vec<String>,
    pub(crate) processors: Vec<(String, Box<dyn Processor>)>,
    pub(crate) exporters: Vec<String>,
}

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let pipelines: Vec<&str> = self.pipelines.iter().map(|pipeline| pipeline.id.as_str()).collect();
        f.debug_struct("Plan").field("pipelines", &pipelines).finish_non_exhaustive()
    }
}

impl Plan {
    /// Makes every component of the configuration and checks every rule.
    ///
    /// # Errors
    ///
    /// All problems with their positions, warnings included.
    pub fn new(config: &Config, registry: &Registry) -> Result<Self, Problems> {
        let mut maker = Maker { registry, identity: Rules::default(), problems: known_problems(config, registry) };
        let service = maker.ok_or_report(ServiceSettings::new(&config.service)).unwrap_or_default();
        maker.identity.clone_from(&service.identity);
        let receivers = maker.components(registry.receivers, &config.receivers);
        let exporters = maker.components(registry.exporters, &config.exporters);
        let mut pipelines: Vec<PlannedPipeline> =
            config.pipelines.iter().map(|(id, pipeline)| maker.pipeline(config, id, pipeline)).collect();
        maker.unused_processors(config);

        let disabled: Vec<(String, String)> =
            exporters.iter().filter_map(|(id, exporter)| Some((id.clone(), exporter.disabled()?))).collect();
        maker.without_exporters(config, &mut pipelines, &disabled);
        maker.check_circles(config, &pipelines, &receivers, &exporters);
        let warnings = Problems::check(maker.problems)?;

        let used = |named: fn(&PlannedPipeline) -> &Vec<String>| -> BTreeSet<String> {
            pipelines.iter().flat_map(|pipeline| named(pipeline).iter().cloned()).collect()
        };
        let used_receivers = used(|pipeline| &pipeline.receivers);
        let used_exporters = used(|pipeline| &pipeline.exporters);
        Ok(Self {
            service,
            receivers: receivers.into_iter().filter(|(id, _)| used_receivers.contains(id)).collect(),
            exporters: exporters.into_iter().filter(|(id, _)| used_exporters.contains(id)).collect(),
            pipelines,
            disabled,
            warnings,
        })
    }

    /// A plan of existing components.
    #[cfg(test)]
    pub(crate) fn from_components(
        service: ServiceSettings,
        receivers: Vec<(String, Box<dyn Receiver>)>,
        pipelines: Vec<PlannedPipeline>,
        exporters: Vec<(String, Box<dyn DynExporter>)>,
    ) -> Self {
        Self { service, receivers, pipelines, exporters, disabled: Vec::new(), warnings: Vec::new() }
    }
}

fn known_problems(config: &Config, registry: &Registry) -> Vec<Problem> {
    let receivers = kinds(registry.receivers);
    let processors = kinds(registry.processors);
    let exporters = kinds(registry.exporters);
    check_references(config, &KnownComponents { receivers: &receivers, processors: &processors, exporters: &exporters })
}

fn kinds<F>(factories: &[Factory<F>]) -> Vec<&'static str> {
    factories.iter().map(|factory| factory.description.kind).collect()
}

/// Formats kinds as a list: `profiles, Sentry envelopes`.
fn nouns(kinds: &[TelemetryKind]) -> String {
    kinds.iter().map(|kind| kind.noun()).collect::<Vec<_>>().join(", ")
}

/// Makes a component from its section.
type Create<T> = fn(&Section) -> Result<T, Problems>;

/// A component that a pipeline names.
struct NamedComponent<'a> {
    key_path: String,
    reference: &'a Reference,
    description: &'static Description,
    /// The component's section; `None` if it is not configured, which was already reported.
    section: Option<&'a Section>,
}

/// The components in one list of a pipeline. Unknown types were already reported.
fn resolve_components<'a, C>(
    pipeline: (&PipelineId, &str, &'a [Reference]),
    factories: &'static [Factory<C>],
    sections: &'a Ordered<ComponentId, Section>,
) -> Vec<NamedComponent<'a>> {
    let (id, list, references) = pipeline;
    let known = |(position, reference): (usize, &'a Reference)| {
        let description = &find(factories, &reference.id.kind)?.description;
        let key_path = format!("service.pipelines.{id}.{list}.{position}");
        Some(NamedComponent { key_path, reference, description, section: sections.get(&reference.id) })
    };
    references.iter().enumerate().filter_map(known).collect()
}

struct Maker<'a> {
    registry: &'a Registry,
    identity: Rules,
    problems: Vec<Problem>,
}

impl Maker<'_> {
    /// Returns the value, or collects its problems.
    fn ok_or_report<T>(&mut self, made: Result<T, Problems>) -> Option<T> {
        match made {
            Ok(value) => Some(value),
            Err(problems) => {
                self.problems.extend(problems);
                None
            }
        }
    }

    fn report(&mut self, of: &NamedComponent<'_>, message: String, hint: impl Into<String>, severity: Severity) {
        let (position, key_path) = (of.reference.position.clone(), of.key_path.clone());
        self.problems.push(Problem { position, key_path, message, hint: Some(hint.into()), severity });
    }

    /// The components of a list of sections, each with its id.
    fn components<T>(
        &mut self,
        factories: &'static [Factory<Create<T>>],
        sections: &Ordered<ComponentId, Section>,
    ) -> Vec<(String, T)> {
        let mut components = Vec::new();
        for (id, section) in sections.iter() {
            // Unknown types were already reported.
            let Some(factory) = find(factories, &id.kind) else { continue };
            components
                .extend(self.ok_or_report((factory.create)(section)).map(|component| (id.to_string(), component)));
        }
        components
    }

    fn pipeline(&mut self, config: &Config, id: &PipelineId, pipeline: &PipelineConfig) -> PlannedPipeline {
        let receivers =
            resolve_components((id, "receivers", &pipeline.receivers), self.registry.receivers, &config.receivers);
        let behind =
            resolve_components((id, "exporters", &pipeline.exporters), self.registry.exporters, &config.exporters);
        let between =
            resolve_components((id, "processors", &pipeline.processors), self.registry.processors, &config.processors);
        let kinds: Vec<&str> = pipeline.exporters.iter().map(|exporter| &*exporter.id.kind).collect();
        let profiles_come = self.may_enter(id, pipeline, TelemetryKind::Profiles);
        let mut processors = Vec::new();
        for used in &between {
            let factory = find(self.registry.processors, used.description.kind);
            let Some((factory, section)) = factory.zip(used.section) else { continue };
            let Some(mut processor) = self.ok_or_report((factory.create)(section, &self.identity)) else {
                continue;
            };
            if let Some(Warning { message, hint }) = processor.goes_to(&kinds, profiles_come) {
                self.report(used, format!("`{}`: {message}", used.reference.id), hint, Severity::Warning);
            }
            processors.push((used.reference.id.to_string(), processor));
        }
        self.check_order(&between);
        self.check_needs(id, pipeline, &behind);
        self.check_wants(id, pipeline, &between);
        self.check_kinds(id, &receivers, &behind);
        let ids = |references: &[Reference]| references.iter().map(|reference| reference.id.to_string()).collect();
        PlannedPipeline {
            id: id.to_string(),
            carries: id.carries(),
            receivers: ids(&pipeline.receivers),
            processors,
            exporters: ids(&pipeline.exporters),
        }
    }

    /// Checks the processors that no pipeline uses.
    fn unused_processors(&mut self, config: &Config) {
        for (id, section) in config.processors.iter() {
            let used = config.pipelines.iter().any(|(_, p)| p.processors.iter().any(|reference| reference.id == *id));
            if let Some(factory) = find(self.registry.processors, &id.kind).filter(|_| !used) {
                self.ok_or_report((factory.create)(section, &self.identity));
            }
        }
    }

    /// Checks that each processor may come after those named before it.
    fn check_order(&mut self, processors: &[NamedComponent<'_>]) {
        for (position, used) in processors.iter().enumerate() {
            let kind = used.description.kind;
            let in_the_way = |earlier: &Description| earlier.kind == kind || earlier.behind.contains(&kind);
            // Among several conflicts, picks the processor that belongs last, so that the hint resolves all of them.
            let mut conflict: Option<&NamedComponent<'_>> = None;
            for earlier in processors[..position].iter().filter(|earlier| in_the_way(earlier.description)) {
                let last = conflict.filter(|last| last.description.behind.contains(&earlier.description.kind));
                conflict = last.or(Some(earlier));
            }
            // Processors named twice were already reported.
            let Some(earlier) = conflict.filter(|earlier| earlier.reference.id != used.reference.id) else { continue };
            let (id, other) = (&used.reference.id, &earlier.reference.id);
            let (message, hint) = if earlier.description.kind == kind {
                (format!("`{id}` does again what `{other}` before it has done"), "name one of them".to_owned())
            } else {
                (format!("`{id}` cannot work behind `{other}`"), format!("name `{id}` before `{other}`"))
            };
            self.report(used, message, hint, Severity::Error);
        }
    }

    /// Checks that the pipeline has the processors that an exporter needs to send its telemetry.
    fn check_needs(&mut self, id: &PipelineId, pipeline: &PipelineConfig, exporters: &[NamedComponent<'_>]) {
        for used in exporters {
            for (kind, needed) in used.section.map_or(&[][..], used.description.needs) {
                let is_there = pipeline.processors.iter().any(|processor| processor.id.kind == *needed);
                if is_there || !used.description.takes.contains(kind) || !self.may_enter(id, pipeline, *kind) {
                    continue;
                }
                let (noun, name) = (kind.noun(), &used.reference.id);
                let message = format!("`{name}` takes {noun} only behind the processor `{needed}`");
                let hint = format!("add `{needed}` at the end of `processors` of this pipeline");
                self.report(used, message, hint, Severity::Error);
            }
        }
    }

    /// Whether telemetry of a kind may enter a pipeline. A receiver of unknown type may emit any kind.
    fn may_enter(&self, id: &PipelineId, pipeline: &PipelineConfig, kind: TelemetryKind) -> bool {
        let emits = |reference: &Reference| {
            let factory = find(self.registry.receivers, &reference.id.kind);
            factory.is_none_or(|factory| factory.description.emits.contains(&kind))
        };
        id.carries().includes(kind) && (pipeline.receivers.is_empty() || pipeline.receivers.iter().any(emits))
    }

    /// Checks that a kind that a processor requires can enter the pipeline. Envelopes may contain any kind.
    fn check_wants(&mut self, id: &PipelineId, pipeline: &PipelineConfig, processors: &[NamedComponent<'_>]) {
        for used in processors {
            for wanted in used.section.map_or(&[][..], used.description.wants) {
                if self.may_enter(id, pipeline, *wanted) || self.may_enter(id, pipeline, TelemetryKind::Envelopes) {
                    continue;
                }
                let (noun, name) = (wanted.noun(), &used.reference.id);
                let message = format!("`{name}` is configured to work by {noun}, and none come into this pipeline");
                let hint = format!(
                    "name a receiver that emits {noun}, in a pipeline that carries everything, which is one that is called \
                     neither `profiles` nor `traces`; or change the processor's section"
                );
                self.report(used, message, hint, Severity::Error);
            }
        }
    }

    /// Checks that the pipeline carries a kind that its receivers emit, and a kind that its exporters accept.
    fn check_kinds(&mut self, id: &PipelineId, receivers: &[NamedComponent<'_>], exporters: &[NamedComponent<'_>]) {
        let carries = id.carries();
        // Unsupported signals were already reported.
        if carries == Carries::Unsupported {
            return;
        }
        let emitted = receivers.iter().map(|used| (used, "emits", used.description.emits));
        let taken = exporters.iter().map(|used| (used, "takes", used.description.takes));
        for (used, verb, kinds) in emitted.chain(taken) {
            if kinds.iter().any(|kind| carries.includes(*kind)) {
                continue;
            }
            let name = &used.reference.id;
            let message = format!("`{name}` {verb} {}, which this pipeline does not carry", nouns(kinds));
            let hint = format!(
                "name it in a pipeline that carries everything, which is one that is not called `{}`; or delete it here",
                id.signal
            );
            self.report(used, message, hint, Severity::Error);
        }
    }

    /// Checks that no exporter or receiver sends to a receiver of this process, which would loop forever.
    fn check_circles(
        &mut self,
        config: &Config,
        pipelines: &[PlannedPipeline],
        receivers: &[(String, Box<dyn Receiver>)],
        exporters: &[(String, Box<dyn DynExporter>)],
    ) {
        let is_receiving = |name: &String| pipelines.iter().any(|pipeline| pipeline.receivers.contains(name));
        let is_exporting = |name: &String| pipelines.iter().any(|pipeline| pipeline.exporters.contains(name));
        let exports = config.exporters.iter().filter_map(|(id, section)| {
            let (name, exporter) = exporters.iter().find(|(name, _)| *name == id.to_string())?;
            is_exporting(name).then(|| (id, section, exporter.destinations()))
        });
        let forwards = config.receivers.iter().filter_map(|(id, section)| {
            let (name, receiver) = receivers.iter().find(|(name, _)| *name == id.to_string())?;
            is_receiving(name).then(|| (id, section, receiver.forwards_to()))
        });
        for (id, section, destinations) in exports.chain(forwards) {
            let leads_here = |listening: &String| destinations.iter().any(|to| via::leads_to(to, listening));
            let found = receivers
                .iter()
                .find(|(name, receiver)| is_receiving(name) && receiver.listens().iter().any(leads_here));
            let Some((receiver, _)) = found else { continue };
            let message = format!("`{id}` sends to the receiver `{receiver}` of this very process: a circle");
            let hint = "name the server that is behind this profbridge, or let the receiver listen elsewhere";
            self.problems.push(section.problem("", message, hint));
        }
    }

    /// Removes disabled exporters, and pipelines without other exporters.
    fn without_exporters(
        &mut self,
        config: &Config,
        pipelines: &mut Vec<PlannedPipeline>,
        disabled: &[(String, String)],
    ) {
        for pipeline in pipelines.iter_mut() {
            pipeline.exporters.retain(|id| !disabled.iter().any(|(off, _)| off == id));
        }
        let others_remain = pipelines.iter().any(|pipeline| !pipeline.exporters.is_empty());
        pipelines.retain(|pipeline| {
            if !pipeline.exporters.is_empty() {
                return true;
            }
            let written = config.pipelines.iter().find(|(id, _)| id.to_string() == pipeline.id);
            if let Some((id, written)) = written.filter(|(_, written)| !written.exporters.is_empty()) {
                let reasons: Vec<String> = disabled
                    .iter()
                    .filter(|(off, _)| written.exporters.iter().any(|reference| reference.id.to_string() == *off))
                    .map(|(off, why)| format!("`{off}` is switched off: {why}"))
                    .collect();
                let severity = if others_remain { Severity::Warning } else { Severity::Error };
                let message = format!("the pipeline `{id}` has nowhere to send to; {}", reasons.join("; "));
                let hint = "give one of its exporters what it needs, or name another".to_owned();
                let (position, key_path) = (written.position.clone(), format!("service.pipelines.{id}.exporters"));
                self.problems.push(Problem { position, key_path, message, hint: Some(hint), severity });
            }
            false
        });
    }
}

#[cfg(test)]
mod tests;
