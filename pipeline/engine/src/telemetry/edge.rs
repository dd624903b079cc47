//! The counters at the edge of a component, in observations.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use profbridge_model::{Losses, Reason};

use super::Kind;
use crate::component::Held;

/// What went into a component, came out, was added, lost and is held. Cheap to clone; clones share the counters.
#[derive(Debug, Clone)]
pub struct Edge {
    counters: Arc<Counters>,
}

#[derive(Debug)]
struct Counters {
    kind: Kind,
    component: String,
    pipeline: String,
    inbound: AtomicU64,
    outbound: AtomicU64,
    synthesized: AtomicU64,
    unaccounted: AtomicU64,
    dropped: [AtomicU64; Reason::ALL.len()],
    held_observations: AtomicU64,
    held_bytes: AtomicU64,
    notes: Mutex<Vec<(&'static str, u64)>>,
    levels: Mutex<Vec<(&'static str, u64)>>,
}

/// The counters of an [`Edge`] at one time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EdgeTotals {
    /// Observations handed in.
    pub inbound: u64,
    /// Observations handed on.
    pub outbound: u64,
    /// Observations that a rule added.
    pub synthesized: u64,
    /// Observations lost, by reason.
    pub dropped: Losses,
    /// What is held.
    pub held: Held,
    /// Observations by which the component broke the law of conservation: a defect.
    pub unaccounted: u64,
    /// Things worth counting that are no loss.
    pub notes: Vec<(&'static str, u64)>,
    /// What rises and falls, as it stands.
    pub levels: Vec<(&'static str, u64)>,
}

impl Edge {
    pub(super) fn new(kind: Kind, component: &str, pipeline: &str) -> Self {
        let counters = Counters {
            kind,
            component: component.to_owned(),
            pipeline: pipeline.to_owned(),
            inbound: AtomicU64::new(0),
            outbound: AtomicU64::new(0),
            synthesized: AtomicU64::new(0),
            unaccounted: AtomicU64::new(0),
            dropped: [const { AtomicU64::new(0) }; Reason::ALL.len()],
            held_observations: AtomicU64::new(0),
            held_bytes: AtomicU64::new(0),
            notes: Mutex::default(),
            levels: Mutex::default(),
        };
        Self { counters: Arc::new(counters) }
    }

    /// What the component is.
    pub fn kind(&self) -> Kind {
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

    /// Counts observations handed in.
    pub fn add_in(&self, observations: u64) {
        self.counters.inbound.fetch_add(observations, Ordering::Relaxed);
    }

    /// Counts observations handed on.
    pub fn add_out(&self, observations: u64) {
        self.counters.outbound.fetch_add(observations, Ordering::Relaxed);
    }

    /// Counts observations that a rule added.
    pub fn add_synthesized(&self, observations: u64) {
        self.counters.synthesized.fetch_add(observations, Ordering::Relaxed);
    }

    /// Counts observations by which the component broke the law of conservation.
    pub fn add_unaccounted(&self, observations: u64) {
        self.counters.unaccounted.fetch_add(observations, Ordering::Relaxed);
    }

    /// Counts a loss.
    pub fn drop(&self, reason: Reason, observations: u64) {
        self.counters.dropped[reason as usize].fetch_add(observations, Ordering::Relaxed);
    }

    /// Counts losses.
    pub fn drop_all(&self, losses: &Losses) {
        for loss in losses.iter() {
            self.drop(loss.reason, loss.observations);
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
        self.counters.held_observations.store(held.observations, Ordering::Relaxed);
        self.counters.held_bytes.store(held.bytes, Ordering::Relaxed);
    }

    /// Counts more as held.
    pub(crate) fn hold(&self, more: Held) {
        self.counters.held_observations.fetch_add(more.observations, Ordering::Relaxed);
        self.counters.held_bytes.fetch_add(more.bytes, Ordering::Relaxed);
    }

    /// Counts what was held as no longer held.
    pub(crate) fn release(&self, less: Held) {
        self.counters.held_observations.fetch_sub(less.observations, Ordering::Relaxed);
        self.counters.held_bytes.fetch_sub(less.bytes, Ordering::Relaxed);
    }

    /// The counters as they stand.
    pub fn totals(&self) -> EdgeTotals {
        let counters = &*self.counters;
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut dropped = Losses::default();
        for &reason in Reason::ALL {
            dropped.add(reason, load(&counters.dropped[reason as usize]));
        }
        EdgeTotals {
            inbound: load(&counters.inbound),
            outbound: load(&counters.outbound),
            synthesized: load(&counters.synthesized),
            dropped,
            held: Held { observations: load(&counters.held_observations), bytes: load(&counters.held_bytes) },
            unaccounted: load(&counters.unaccounted),
            notes: counters.notes.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            levels: counters.levels.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}
