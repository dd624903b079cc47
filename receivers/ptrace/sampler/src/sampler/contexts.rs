//! What the threads of one process work on, as its program shows it.
//!
//! A record may be believed only if its thread stood still while it was read. Of a blocked thread its counters prove
//! that, a stopped thread is held. A thread that a perf event sampled runs on, and may work on something else by then,
//! even on what it worked on before: nothing tells. So a reader has to read its record before that (`reader.rs`), or
//! else only that counts which the kernel copied with its stack, as it does where variable and record lie near the end
//! of a thread's stack.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::context::{Block, Place, Reading, Schema, Variable, read};
use crate::message::Context;
use crate::process_files::ProcessFiles;
use crate::runtime::{Allowance, Bounded, Target};
use crate::stack_copy::StackPieces;

/// How many variables of one process are read.
const PLACES: usize = 4;

/// How often it is found out where the variables are, and where the threads' blocks are.
const CHECK: Duration = Duration::from_secs(1);

/// How much may be read for one stack: of each variable its place, its value and its record.
const ALLOWANCE: Allowance = Allowance { reads: 5 * PLACES as u32, bytes: PLACES * 1024 };

/// How much may be read to find out where the variables are.
const PLACES_ALLOWANCE: Allowance = Allowance { reads: 128, bytes: 1024 };

/// The variables of one process.
#[derive(Debug, Clone, Default)]
pub(super) struct Contexts {
    variables: Vec<Variable>,
    places: Vec<Place>,
    /// How records are read; `None` while the process does not say.
    schema: Option<Arc<Schema>>,
    /// Counts how often something else came to be read.
    generation: u64,
    checked: Option<Instant>,
}

/// Where a thread's blocks are, as they were found.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    found: [Block; PLACES],
    checked: Option<Instant>,
    generation: u64,
}

/// How far apart two readings of the same context may be for it to have held between them.
const MOST_BETWEEN: Duration = Duration::from_millis(100);

/// The contexts that were read of a thread, by time.
#[derive(Debug, Default)]
pub(super) struct ContextHistory {
    /// From when to when each held.
    stretches: Vec<(Instant, Instant, Worked)>,
}

/// What a thread worked on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Worked {
    pub(super) context: Option<Context>,
    /// A record was not valid.
    pub(super) torn: bool,
    /// Nothing proves what it was.
    pub(super) unproven: bool,
}

impl Worked {
    /// What was found is not believed after all.
    pub(super) fn disbelieve(&mut self) {
        if self.context.take().is_some() {
            self.unproven = true;
        }
    }
}

impl ContextHistory {
    /// Adds a context that held from `from` to `until`.
    pub(super) fn note(&mut self, from: Instant, until: Instant, worked: &Worked) {
        if !worked.torn && !worked.unproven {
            self.stretches.push((from, until, worked.clone()));
        }
    }

    /// Sorts what was added, before the first question.
    pub(super) fn sort(&mut self) {
        self.stretches.sort_by_key(|(from, ..)| *from);
    }

    /// The context at a moment between two readings: known if both agree and are at most [`MOST_BETWEEN`] apart.
    pub(super) fn around(&self, at: Instant) -> Option<&Worked> {
        let later = self.stretches.partition_point(|(from, ..)| *from <= at);
        let (_, until, worked) = self.stretches.get(later.checked_sub(1)?)?;
        let (from, _, same) = self.stretches.get(later)?;
        (worked == same && from.saturating_duration_since(*until) <= MOST_BETWEEN).then_some(worked)
    }

    /// Drops all readings but the last.
    pub(super) fn keep_last(&mut self) {
        self.stretches.drain(..self.stretches.len().saturating_sub(1));
    }
}

impl Contexts {
    pub(super) fn set_variables(&mut self, variables: &[Variable]) {
        if self.variables != variables {
            self.variables = variables.iter().take(PLACES).cloned().collect();
            self.checked = None;
        }
    }

    pub(super) fn set_schema(&mut self, schema: Option<Arc<Schema>>) {
        if self.schema != schema {
            self.schema = schema;
            self.generation += 1;
        }
    }

    /// A number that changes when threads that have not run have to be read again.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Finds out where the variables are, if it is time to.
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

    /// The schema, if there is anything to read.
    fn schema(&self) -> Option<&Schema> {
        self.schema.as_deref().filter(|_| !self.places.is_empty())
    }

    /// Whether there is anything to read.
    pub(super) fn is_read(&self) -> bool {
        self.schema().is_some()
    }

    /// Reads what a thread that stands still works on. `pointer` is its thread pointer.
    pub(super) fn of_standing(
        &self,
        pointer: u64,
        blocks: &mut Blocks,
        mut files: &ProcessFiles,
        now: Instant,
    ) -> Worked {
        let Some(schema) = self.schema() else { return Worked::default() };
        if pointer == 0 {
            return Worked { unproven: true, ..Worked::default() };
        }
        blocks.refresh(self.generation, now);
        let mut target = Bounded::new(&mut files, ALLOWANCE);
        let (context, torn) = find(schema, pointer, self.places.iter().zip(&mut blocks.found), &mut target);
        Worked { context, torn, unproven: false }
    }

    /// What a thread worked on when the kernel copied its stack, of which this is the copy.
    pub(super) fn of_copy(&self, pointer: u64, pieces: &StackPieces) -> Worked {
        let Some(schema) = self.schema() else { return Worked::default() };
        let (mut blocks, is_fixed) = ([0; PLACES], |place: &&Place| matches!(place, Place::Fixed(_)));
        let beyond = pointer == 0 || !self.places.iter().all(|place| is_fixed(&place));
        let mut target = Copied { pieces, beyond };
        let (context, torn) = find(schema, pointer, self.places.iter().filter(is_fixed).zip(&mut blocks), &mut target);
        // What is not in the copy looks like a record that cannot be read.
        let unproven = context.is_none() && target.beyond;
        Worked { context, torn: torn && !unproven, unproven }
    }
}

/// The first record that says something, and else whether one was torn.
fn find<'a>(
    schema: &Schema,
    pointer: u64,
    places: impl Iterator<Item = (&'a Place, &'a mut Block)>,
    target: &mut dyn Target,
) -> (Option<Context>, bool) {
    let mut torn = false;
    for (place, block) in places {
        let Some(variable) = place.of(pointer, block, target) else { continue };
        match read(variable, schema.wants_attributes(), target) {
            Reading::None => {}
            Reading::Torn => torn = true,
            Reading::Record(record) => match schema.context(&record) {
                None => {}
                context => return (context, false),
            },
        }
    }
    (None, torn)
}

impl Blocks {
    /// Forgets what was found before something else came to be read, or too long ago.
    fn refresh(&mut self, generation: u64, now: Instant) {
        let is_fresh = self.checked.is_some_and(|checked| now.saturating_duration_since(checked) < CHECK);
        if self.generation != generation || !is_fresh {
            *self = Self { found: [0; PLACES], checked: Some(now), generation };
        }
    }
}

/// What the kernel copied of a stack.
struct Copied<'a> {
    pieces: &'a StackPieces,
    /// Something was wanted that is not in the copy.
    beyond: bool,
}

impl Target for Copied<'_> {
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
        let there = self.pieces.copied_bytes(address, bytes);
        self.beyond |= !there;
        there
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: between two readings that agree and are near each other the context is theirs. Before the first,
    /// behind the last, between readings that differ or lie far apart, and beside one that is not believed, it is not
    /// known. The last reading counts for what follows.
    #[test]
    fn between_readings() {
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let of = |name: &str| {
            let context = Context { link: None, attributes: vec![(0, name.to_owned())] };
            Worked { context: Some(context), ..Worked::default() }
        };
        let mut history = ContextHistory::default();
        history.note(at(60), at(70), &of("a"));
        history.note(at(0), at(10), &of("a"));
        history.note(at(80), at(80), &of("b"));
        history.note(at(90), at(90), &Worked { torn: true, ..of("b") });
        history.note(at(200), at(200), &of("b"));
        history.sort();
        let known = [5, 30, 75, 85, 200].map(|moment| history.around(at(moment)).cloned());
        assert_eq!(known, [Some(of("a")), Some(of("a")), None, None, None]);
        history.keep_last();
        history.note(at(220), at(220), &of("b"));
        assert_eq!((history.around(at(210)), history.around(at(150))), (Some(&of("b")), None));
    }
}
