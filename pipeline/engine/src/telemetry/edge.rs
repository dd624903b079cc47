//! The counters of a component, in each unit.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use profbridge_model::{Losses, Quantities, Reason};

use crate::balance::Held;

/// The kind of a component, used as the label `kind` of its metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ComponentKind {
    /// A receiver.
    Receiver,
    /// A processor of one pipeline.
    Processor,
    /// A whole pipeline: from its entrance to its exporters.
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

/// Counts the quantities that a component received, emitted, added, lost and holds. Cheap to clone; clones share the
/// counters.
#[derive(Debug, Clone)]
pub struct Edge {
    counters: Arc<EdgeCounters>,
}

#[derive(Debug)]
struct EdgeCounters {
    kind: ComponentKind,
    component: String,
    pipeline: String,
    totals: Mutex<EdgeTotals>,
    summary: Mutex<Option<String>>,
}

/// A snapshot of the counters of an [`Edge`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EdgeTotals {
    /// Received.
    pub inbound: Quantities,
    /// Handed on.
    pub outbound: Quantities,
    /// Added by a rule, such as closing samples.
    pub synthesized: Quantities,
    /// Lost, by reason.
    pub dropped: Losses,
    /// Currently held.
    pub held: Held,
    /// The violation of the conservation law, which is a bug.
    pub unaccounted: Quantities,
    /// Counts of events that are not losses.
    pub notes: Vec<(&'static str, u64)>,
    /// Current values of gauges.
    pub levels: Vec<(&'static str, u64)>,
}

impl Edge {
    pub(super) fn new(kind: ComponentKind, component: &str, pipeline: &str) -> Self {
        let (component, pipeline) = (component.to_owned(), pipeline.to_owned());
        let counters = EdgeCounters { kind, component, pipeline, totals: Mutex::default(), summary: Mutex::default() };
        Self { counters: Arc::new(counters) }
    }

    /// The kind of the component.
    pub fn kind(&self) -> ComponentKind {
        self.counters.kind
    }

    /// The component's id.
    pub fn component(&self) -> &str {
        &self.counters.component
    }

    /// The pipeline it belongs to; empty if pipelines share the component.
    pub fn pipeline(&self) -> &str {
        &self.counters.pipeline
    }

    fn counted(&self) -> MutexGuard<'_, EdgeTotals> {
        self.counters.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts received data.
    pub fn add_in(&self, quantities: Quantities) {
        self.counted().inbound += quantities;
    }

    /// Counts data that was handed on.
    pub fn add_out(&self, quantities: Quantities) {
        self.counted().outbound += quantities;
    }

    /// Counts data that was added by a rule.
    pub fn add_synthesized(&self, quantities: Quantities) {
        self.counted().synthesized += quantities;
    }

    /// Counts a violation of the conservation law.
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

    /// Counts events that are not losses.
    pub fn note_all(&self, notes: &[(&'static str, u64)]) {
        let mut counted = self.counted();
        for &(name, count) in notes {
            match counted.notes.iter_mut().find(|(known, _)| *known == name) {
                Some((_, total)) => *total += count,
                None => counted.notes.push((name, count)),
            }
        }
    }

    /// Stores the component's summary of the last minute.
    pub(crate) fn set_summary(&self, summary: String) {
        *self.counters.summary.lock().unwrap_or_else(PoisonError::into_inner) = Some(summary);
    }

    /// The component's last summary, if any.
    pub(crate) fn summary(&self) -> Option<String> {
        self.counters.summary.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets a gauge.
    pub fn set_level(&self, name: &'static str, level: u64) {
        let mut counted = self.counted();
        match counted.levels.iter_mut().find(|(known, _)| *known == name) {
            Some((_, before)) => *before = level,
            None => counted.levels.push((name, level)),
        }
    }

    /// Sets the held data.
    pub fn set_held(&self, held: Held) {
        self.counted().held = held;
    }

    /// Adds to the held data.
    pub(crate) fn hold(&self, more: Held) {
        let mut counted = self.counted();
        counted.held.quantities += more.quantities;
        counted.held.bytes += more.bytes;
    }

    /// Subtracts from the held data.
    pub(crate) fn release(&self, less: Held) {
        let mut counted = self.counted();
        counted.held.quantities = counted.held.quantities.saturating_sub(less.quantities);
        counted.held.bytes = counted.held.bytes.saturating_sub(less.bytes);
    }

    /// A snapshot of the counters.
    pub fn totals(&self) -> EdgeTotals {
        self.counted().clone()
    }
}
