//! Reads the trace contexts of the threads of one process, as published by its program.
//!
//! A record is valid only if its thread did not run while the record was read. Of a blocked thread its counters prove
//! that, and a stopped thread cannot run. But a thread that a perf event sampled continues, and may have another
//! context by the time it is read, without any sign of that. So either a reader reads the record before the thread
//! continues (`reader.rs`), or only records are used that the kernel copied with the stack, which happens if variable
//! and record are near the end of the thread's stack.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::context::{AttributeSelection, Block, Place, RecordReading, Variable, read};
use crate::message::Context;
use crate::process_files::ProcessFiles;
use crate::runtime::{Allowance, Bounded, TargetMemory};
use crate::sampler::history::History;
use crate::stack_copy::StackPieces;

/// How many variables of one process are read.
const PLACES: usize = 4;

/// How often the addresses of the variables and of the threads' blocks of thread-local data are looked up again.
const CHECK: Duration = Duration::from_secs(1);

/// The read limit for one stack: for each variable its address, its value and its record.
const ALLOWANCE: Allowance = Allowance { reads: 5 * PLACES as u32, bytes: PLACES * 1024 };

/// The read limit for finding the variables.
const PLACES_ALLOWANCE: Allowance = Allowance { reads: 128, bytes: 1024 };

/// The variables through which one process publishes contexts.
#[derive(Debug, Clone, Default)]
pub(super) struct ProcessContexts {
    variables: Vec<Variable>,
    places: Vec<Place>,
    /// The schema of the records; `None` until the process publishes one.
    schema: Option<Arc<AttributeSelection>>,
    /// Counts changes of the schema and of the variables' addresses.
    generation: u64,
    checked: Option<Instant>,
}

/// The addresses of a thread's blocks of thread-local data, as last found.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    found: [Block; PLACES],
    checked: Option<Instant>,
    generation: u64,
}

/// The trace contexts that a thread had over time.
#[derive(Debug, Default)]
pub(super) struct ContextHistory(History<TraceContextReading>);

/// The trace context of a thread, or why it is unknown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct TraceContextReading {
    pub(super) context: Option<Context>,
    /// Whether a record was not valid.
    pub(super) torn: bool,
    /// Whether a context was discarded because nothing proves that it is right.
    pub(super) unproven: bool,
}

impl TraceContextReading {
    /// Discards the context, because it is not proven.
    pub(super) fn disbelieve(&mut self) {
        if self.context.take().is_some() {
            self.unproven = true;
        }
    }
}

impl ContextHistory {
    /// Adds a context that was valid from `from` to `until`.
    pub(super) fn note(&mut self, from: Instant, until: Instant, worked: &TraceContextReading) {
        if !worked.torn && !worked.unproven {
            self.0.note(from, until, worked.clone());
        }
    }

    /// Sorts the readings; required before [`ContextHistory::around`].
    pub(super) fn sort(&mut self) {
        self.0.sort();
    }

    /// The context at a moment between two readings: known if both are equal and near in time.
    pub(super) fn around(&self, at: Instant) -> Option<&TraceContextReading> {
        self.0.around(at).and_then(|[before, after]| (before == after).then_some(before))
    }

    /// Drops all readings but the last.
    pub(super) fn keep_last(&mut self) {
        self.0.keep_last();
    }
}

impl ProcessContexts {
    pub(super) fn set_variables(&mut self, variables: &[Variable]) {
        if self.variables != variables {
            self.variables = variables.iter().take(PLACES).cloned().collect();
            self.checked = None;
        }
    }

    pub(super) fn set_schema(&mut self, schema: Option<Arc<AttributeSelection>>) {
        if self.schema != schema {
            self.schema = schema;
            self.generation += 1;
        }
    }

    /// A number that changes when threads have to be read again even if they have not run since.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Looks up the addresses of the variables, if that is due.
    pub(super) fn check(&mut self, mut files: &ProcessFiles, now: Instant) {
        let is_due = self.checked.is_none_or(|checked| now.saturating_duration_since(checked) >= CHECK);
        if !is_due || (self.variables.is_empty() && self.places.is_empty()) || self.schema.is_none() {
            return;
        }
        self.checked = Some(now);
        let mut target = Bounded::new(&mut files, PLACES_ALLOWANCE);
        let places: Vec<Place> = self.variables.iter().filter_map(|variable| variable.place(&mut target)).collect();
        if places != self.places {
            self.places = places;
            self.generation += 1;
        }
    }

    /// The schema of the records; `None` if there is nothing to read.
    fn schema(&self) -> Option<&AttributeSelection> {
        self.schema.as_deref().filter(|_| !self.places.is_empty())
    }

    /// Whether the process publishes contexts that have to be read.
    pub(super) fn is_read(&self) -> bool {
        self.schema().is_some()
    }

    /// Reads the context of a thread that does not run meanwhile. `pointer` is its thread pointer.
    pub(super) fn of_standing(
        &self,
        pointer: u64,
        blocks: &mut Blocks,
        mut files: &ProcessFiles,
        now: Instant,
    ) -> TraceContextReading {
        let Some(schema) = self.schema() else { return TraceContextReading::default() };
        if pointer == 0 {
            return TraceContextReading { unproven: true, ..TraceContextReading::default() };
        }
        blocks.refresh(self.generation, now);
        let mut target = Bounded::new(&mut files, ALLOWANCE);
        let (context, torn) = find(schema, pointer, self.places.iter().zip(&mut blocks.found), &mut target);
        TraceContextReading { context, torn, unproven: false }
    }

    /// The context of a thread when the kernel made this copy of its stack.
    pub(super) fn of_copy(&self, pointer: u64, pieces: &StackPieces) -> TraceContextReading {
        let Some(schema) = self.schema() else { return TraceContextReading::default() };
        let (mut blocks, is_fixed) = ([0; PLACES], |place: &&Place| matches!(place, Place::Fixed(_)));
        let has_missing_bytes = pointer == 0 || !self.places.iter().all(|place| is_fixed(&place));
        let mut target = Copied { pieces, has_missing_bytes };
        let (context, torn) = find(schema, pointer, self.places.iter().filter(is_fixed).zip(&mut blocks), &mut target);
        // A record that is partly outside of the copy looks unreadable.
        let unproven = context.is_none() && target.has_missing_bytes;
        TraceContextReading { context, torn: torn && !unproven, unproven }
    }
}

/// The first record with a context; if there is none, whether a record was torn.
fn find<'a>(
    schema: &AttributeSelection,
    pointer: u64,
    places: impl Iterator<Item = (&'a Place, &'a mut Block)>,
    target: &mut dyn TargetMemory,
) -> (Option<Context>, bool) {
    let mut torn = false;
    for (place, block) in places {
        let Some(variable) = place.address(pointer, block, target) else { continue };
        match read(variable, schema.wants_attributes(), target) {
            RecordReading::None => {}
            RecordReading::Torn => torn = true,
            RecordReading::Record(record) => match schema.context(&record) {
                None => {}
                context => return (context, false),
            },
        }
    }
    (None, torn)
}

impl Blocks {
    /// Drops the addresses if they are outdated.
    fn refresh(&mut self, generation: u64, now: Instant) {
        let is_fresh = self.checked.is_some_and(|checked| now.saturating_duration_since(checked) < CHECK);
        if self.generation != generation || !is_fresh {
            *self = Self { found: [0; PLACES], checked: Some(now), generation };
        }
    }
}

/// The part of a stack that the kernel copied.
struct Copied<'a> {
    pieces: &'a StackPieces,
    /// Whether bytes were requested that are not in the copy.
    has_missing_bytes: bool,
}

impl TargetMemory for Copied<'_> {
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
        let there = self.pieces.copied_bytes(address, bytes);
        self.has_missing_bytes |= !there;
        there
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: the context between two readings is known if both are equal and near in time. It is unknown before
    /// the first reading, after the last, between readings that differ or are far apart, and next to an invalid one.
    /// The last reading is kept for the next batch.
    #[test]
    fn between_readings() {
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let of = |name: &str| {
            let context = Context { link: None, attributes: vec![(0, name.to_owned())] };
            TraceContextReading { context: Some(context), ..TraceContextReading::default() }
        };
        let mut history = ContextHistory::default();
        history.note(at(60), at(70), &of("a"));
        history.note(at(0), at(10), &of("a"));
        history.note(at(80), at(80), &of("b"));
        history.note(at(90), at(90), &TraceContextReading { torn: true, ..of("b") });
        history.note(at(200), at(200), &of("b"));
        history.sort();
        let known = [5, 30, 75, 85, 200].map(|moment| history.around(at(moment)).cloned());
        assert_eq!(known, [Some(of("a")), Some(of("a")), None, None, None]);
        history.keep_last();
        history.note(at(220), at(220), &of("b"));
        assert_eq!((history.around(at(210)), history.around(at(150))), (Some(&of("b")), None));
    }
}
