//! The counters at the edge of a component, in each unit.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use profbridge_model::{Losses, Quantities, Reason, Unit};

use super::ComponentKind;
use crate::component::Held;

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
    inbound: AtomicQuantities,
    outbound: AtomicQuantities,
    synthesized: AtomicQuantities,
    unaccounted: AtomicQuantities,
    dropped: [AtomicQuantities; Reason::ALL.len()],
    held: AtomicQuantities,
    held_bytes: AtomicU64,
    notes: Mutex<Vec<(&'static str, u64)>>,
    levels: Mutex<Vec<(&'static str, u64)>>,
    said: Mutex<Option<String>>,
}

/// [`Quantities`] that many threads count in, each unit by itself.
#[derive(Debug)]
struct AtomicQuantities([AtomicU64; Unit::ALL.len()]);

impl AtomicQuantities {
    const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; Unit::ALL.len()])
    }

    fn add(&self, more: Quantities) {
        // A batch of profiles has one unit, and so costs one write.
        for (unit, number) in more.iter() {
            self.0[unit as usize].fetch_add(number, Ordering::Relaxed);
        }
    }

    fn sub(&self, less: Quantities) {
        for (unit, number) in less.iter() {
            self.0[unit as usize].fetch_sub(number, Ordering::Relaxed);
        }
    }

    fn set(&self, quantities: Quantities) {
        for unit in Unit::ALL {
            self.0[unit as usize].store(quantities.get(unit), Ordering::Relaxed);
        }
    }

    fn load(&self) -> Quantities {
        Quantities::of(|unit| self.0[unit as usize].load(Ordering::Relaxed))
    }
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
        let counters = Counters {
            kind,
            component: component.to_owned(),
            pipeline: pipeline.to_owned(),
            inbound: AtomicQuantities::new(),
            outbound: AtomicQuantities::new(),
            synthesized: AtomicQuantities::new(),
            unaccounted: AtomicQuantities::new(),
            dropped: [const { AtomicQuantities::new() }; Reason::ALL.len()],
            held: AtomicQuantities::new(),
            held_bytes: AtomicU64::new(0),
            notes: Mutex::default(),
            levels: Mutex::default(),
            said: Mutex::default(),
        };
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

    /// Counts what was handed in.
    pub fn add_in(&self, quantities: Quantities) {
        self.counters.inbound.add(quantities);
    }

    /// Counts what was handed on.
    pub fn add_out(&self, quantities: Quantities) {
        self.counters.outbound.add(quantities);
    }

    /// Counts what a rule added.
    pub fn add_synthesized(&self, quantities: Quantities) {
        self.counters.synthesized.add(quantities);
    }

    /// Counts by how much the component broke the law of conservation.
    pub fn add_unaccounted(&self, quantities: Quantities) {
        self.counters.unaccounted.add(quantities);
    }

    /// Counts a loss.
    pub fn drop(&self, reason: Reason, quantities: Quantities) {
        self.counters.dropped[reason as usize].add(quantities);
    }

    /// Counts losses.
    pub fn drop_all(&self, losses: &Losses) {
        for loss in losses.iter() {
            self.drop(loss.reason, loss.quantities);
        }
    }

    /// Counts things that are no loss.
    pub fn note_all(&self, notes: &[(&'static str, u64)]) {
        if notes.is_empty() {
            return;
        }
        let mut known = self.counters.notes.lock().unwrap_or_else(PoisonError::into_inner);
        for &(name, count) in notes {
            match known.iter_mut().find(|(known, _)| *known == name) {
                Some((_, total)) => *total += count,
                None => known.push((name, count)),
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
        let mut known = self.counters.levels.lock().unwrap_or_else(PoisonError::into_inner);
        match known.iter_mut().find(|(known, _)| *known == name) {
            Some((_, before)) => *before = level,
            None => known.push((name, level)),
        }
    }

    /// Says what is held now.
    pub fn set_held(&self, held: Held) {
        self.counters.held.set(held.quantities);
        self.counters.held_bytes.store(held.bytes, Ordering::Relaxed);
    }

    /// Counts more as held.
    pub(crate) fn hold(&self, more: Held) {
        self.counters.held.add(more.quantities);
        self.counters.held_bytes.fetch_add(more.bytes, Ordering::Relaxed);
    }

    /// Counts what was held as no longer held.
    pub(crate) fn release(&self, less: Held) {
        self.counters.held.sub(less.quantities);
        self.counters.held_bytes.fetch_sub(less.bytes, Ordering::Relaxed);
    }

    /// The counters as they stand.
    pub fn totals(&self) -> EdgeTotals {
        let counters = &*self.counters;
        let mut dropped = Losses::default();
        for &reason in Reason::ALL {
            dropped.add(reason, counters.dropped[reason as usize].load());
        }
        EdgeTotals {
            inbound: counters.inbound.load(),
            outbound: counters.outbound.load(),
            synthesized: counters.synthesized.load(),
            dropped,
            held: Held { quantities: counters.held.load(), bytes: counters.held_bytes.load(Ordering::Relaxed) },
            unaccounted: counters.unaccounted.load(),
            notes: counters.notes.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            levels: counters.levels.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}
