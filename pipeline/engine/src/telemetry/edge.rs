//! The counters at the edge of a component, in each unit.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use profbridge_model::{Losses, Quantities, Reason};

use crate::balance::Held;

/// What a component is, as the label `kind` of its metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ComponentKind {
    /// A receiver.
    Receiver,
    /// A processor of one pipeline.
    Processor,
    /// A pipeline as a whole: from its entrance to its exporters.
    Pipeline,
    /// An exporter.
    Exporter,
}

impl ComponentKind {
    /// The kind's name as a label.
    pub fn as_str(self) -> &'static str {
        match self {
            ComponentKind::Receiver => "receiver",
            ComponentKind::Processor => "processor",
            ComponentKind::Pipeline => "pipeline",
            ComponentKind::Exporter => "exporter",
        }
    }
}

/// What went into a component, came out, was added, lost and is held. Cheap to clone; clones share the counters.
#[derive(Debug, Clone)]
pub struct Edge {
    counters: Arc<Counters>,
}

#[derive(Debug)]
struct Counters {
    kind: ComponentKind,
    component: String,
    pipeline: String,
    totals: Mutex<EdgeTotals>,
    said: Mutex<Option<String>>,
}

/// The counters of an [`Edge`] at one time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EdgeTotals {
    /// What was handed in.
    pub inbound: Quantities,
    /// What was handed on.
    pub outbound: Quantities,
    /// What a rule added.
    pub synthesized: Quantities,
    /// What was lost, by reason.
    pub dropped: Losses,
    /// What is held.
    pub held: Held,
    /// By how much the component broke the law of conservation: a defect.
    pub unaccounted: Quantities,
    /// Things worth counting that are no loss.
    pub notes: Vec<(&'static str, u64)>,
    /// What rises and falls, as it stands.
    pub levels: Vec<(&'static str, u64)>,
}

impl Edge {
    pub(super) fn new(kind: ComponentKind, component: &str, pipeline: &str) -> Self {
        let (component, pipeline) = (component.to_owned(), pipeline.to_owned());
        let counters = Counters { kind, component, pipeline, totals: Mutex::default(), said: Mutex::default() };
        Self { counters: Arc::new(counters) }
    }

    /// What the component is.
    pub fn kind(&self) -> ComponentKind {
        self.counters.kind
    }

    /// The component's id.
    pub fn component(&self) -> &str {
        &self.counters.component
    }

    /// The pipeline it belongs to; empty where pipelines share it.
    pub fn pipeline(&self) -> &str {
        &self.counters.pipeline
    }

    fn counted(&self) -> MutexGuard<'_, EdgeTotals> {
        self.counters.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts what was handed in.
    pub fn add_in(&self, quantities: Quantities) {
        self.counted().inbound += quantities;
    }

    /// Counts what was handed on.
    pub fn add_out(&self, quantities: Quantities) {
        self.counted().outbound += quantities;
    }

    /// Counts what a rule added.
    pub fn add_synthesized(&self, quantities: Quantities) {
        self.counted().synthesized += quantities;
    }

    /// Counts by how much the component broke the law of conservation.
    pub fn add_unaccounted(&self, quantities: Quantities) {
        self.counted().unaccounted += quantities;
    }

    /// Counts a loss.
    pub fn drop(&self, reason: Reason, quantities: Quantities) {
        self.counted().dropped.add(reason, quantities);
    }

    /// Counts losses.
    pub fn drop_all(&self, losses: &Losses) {
        self.counted().dropped.merge(losses);
    }

    /// Counts things that are no loss.
    pub fn note_all(&self, notes: &[(&'static str, u64)]) {
        let mut counted = self.counted();
        for &(name, count) in notes {
            match counted.notes.iter_mut().find(|(known, _)| *known == name) {
                Some((_, total)) => *total += count,
                None => counted.notes.push((name, count)),
            }
        }
    }

    /// Keeps what the component has to say of the last minute.
    pub(crate) fn say(&self, said: String) {
        *self.counters.said.lock().unwrap_or_else(PoisonError::into_inner) = Some(said);
    }

    /// What the component had to say last, if anything.
    pub(crate) fn said(&self) -> Option<String> {
        self.counters.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Says how high something stands now that rises and falls.
    pub fn set_level(&self, name: &'static str, level: u64) {
        let mut counted = self.counted();
        match counted.levels.iter_mut().find(|(known, _)| *known == name) {
            Some((_, before)) => *before = level,
            None => counted.levels.push((name, level)),
        }
    }

    /// Says what is held now.
    pub fn set_held(&self, held: Held) {
        self.counted().held = held;
    }

    /// Counts more as held.
    pub(crate) fn hold(&self, more: Held) {
        let mut counted = self.counted();
        counted.held.quantities += more.quantities;
        counted.held.bytes += more.bytes;
    }

    /// Counts what was held as no longer held.
    pub(crate) fn release(&self, less: Held) {
        let mut counted = self.counted();
        counted.held.quantities = counted.held.quantities.saturating_sub(less.quantities);
        counted.held.bytes = counted.held.bytes.saturating_sub(less.bytes);
    }

    /// The counters as they stand.
    pub fn totals(&self) -> EdgeTotals {
        self.counted().clone()
    }
}
