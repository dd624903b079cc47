//! CRuby, 3.0 to 3.4.
//!
//! The virtual machine has all threads, a thread has the execution context of its current fiber, and the context has a
//! stack of control frames. The offsets of the fields are in a table by minor version (`layout`). If a library hides
//! its symbols, its data is found by a search (`search`). Objects are moved and freed by a garbage collector, so the
//! type of every object is checked when it is read (`objects`).
//!
//! * Tested: 3.0.2, 3.1.7, 3.2.3, 3.3.8 and 3.4.11, of Debian and Ubuntu. Not tested: ractors, and threads without a
//!   native thread of their own (`RUBY_MN_THREADS`).
//! * Up to 3.2 class names are in hash tables that are not read, so methods have no class name in front.
//! * A `rescue` has a frame in addition to that of its method; from 3.4 on Ruby's backtraces show one frame for both.
//! * Code compiled by YJIT is named while its thread waits, but not while it runs.
//! * Code that is evaluated and freed within one or two sampling periods is unknown if its thread is running.

mod capture;
mod code;
mod layout;
mod lines;
mod methods;
mod objects;
mod place;
mod search;
mod sequences;
#[cfg(test)]
mod tests;
mod threads;

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::capture::Saved;
use self::code::Sequences;
pub(super) use self::place::{RubyPlace, SYMBOLS};
use self::search::{ExecutorCode, Executors};
use self::threads::RubyThreads;
use super::target::TargetMemory;
use super::{Captured, CodeReader, Instance, MAX_FRAMES, ThreadKey};

/// The first and the longest pause before a failed attempt is repeated: the interpreter may be starting.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(10));
/// The shortest pause between two reads of code.
const PAUSE_OF_CODE: Duration = Duration::from_secs(5);

/// A failed attempt that is repeated after growing pauses.
#[derive(Debug, Clone, Copy)]
struct Attempts {
    due: Instant,
    pause: Duration,
}

impl Attempts {
    fn new(pause: Duration) -> Self {
        Self { due: Instant::now(), pause }
    }

    fn postpone(&mut self, now: Instant) {
        self.due = now + self.pause;
        self.pause = (self.pause * 2).min(PAUSE.1);
    }
}

/// The reader of a Ruby interpreter.
#[derive(Debug)]
pub(super) struct RubyReader {
    place: RubyPlace,
    /// The number of the next slice of variables to be searched.
    slice: u64,
    searches: Attempts,
    threads: RubyThreads,
    /// The code that executes Ruby, and when a failed read of it is repeated.
    code: Option<Arc<ExecutorCode>>,
    readings: Attempts,
    /// The functions that execute Ruby, and when they are looked for next.
    executors: Option<Executors>,
    comparisons: Attempts,
    codes: Sequences,
    scratch: capture::ContextBuffers,
}

impl RubyReader {
    pub(super) fn new(place: RubyPlace) -> Self {
        Self {
            slice: 0,
            searches: Attempts::new(PAUSE.0),
            threads: RubyThreads::default(),
            code: place.code.clone(),
            readings: Attempts::new(PAUSE_OF_CODE),
            executors: None,
            comparisons: Attempts::new(PAUSE.0),
            codes: Sequences::new(place.layout.clone(), place.located),
            scratch: capture::ContextBuffers::default(),
            place,
        }
    }

    /// Searches for missing data, one slice of variables in each call.
    fn locate(&mut self, now: Instant, target: &mut dyn TargetMemory) {
        if self.codes.located.is_whole() || now < self.searches.due {
            return;
        }
        search::search_slice(&self.place, self.slice, &mut self.codes.located, target);
        self.slice += 1;
        if self.slice == search::SLICES {
            self.slice = 0;
            self.searches.postpone(now);
        }
    }

    /// Reads the code that executes Ruby, once captured frames show where it is.
    fn read_code(&mut self, captured: &Captured, now: Instant, target: &mut dyn TargetMemory) {
        if self.code.is_none() && self.place.object.is_some() && now >= self.readings.due {
            self.readings.postpone(now);
            self.code = search::code(&self.place, captured, target).map(Arc::new);
        }
    }

    /// Finds the functions that execute Ruby, by the tags on a thread's native stack.
    fn learn(&mut self, now: Instant, target: &mut dyn TargetMemory) {
        let Some(code) = self.code.as_ref().filter(|_| self.executors.is_none() && now >= self.comparisons.due) else {
            return;
        };
        for saved in [Saved::Builtin, Saved::Library] {
            self.scratch.read_marks(saved, target);
            self.executors = search::executors(code, saved, &self.scratch.marks);
            if let Some(executors) = &self.executors {
                self.codes.frame_in_register = executors.in_registers;
                return;
            }
        }
        self.comparisons.postpone(now);
    }
}

impl Instance for RubyReader {
    fn capture(
        &mut self,
        thread: ThreadKey,
        limit: usize,
        now: Instant,
        target: &mut dyn TargetMemory,
        captured: &mut Captured,
    ) -> bool {
        captured.clear();
        // Slow work is done only for threads that are not stopped.
        let is_stopped = limit < MAX_FRAMES;
        if !is_stopped {
            self.locate(now, target);
        }
        let machine = self.codes.located.machine;
        if machine == 0 {
            return false;
        }
        let layout = &self.place.layout;
        let context = self.threads.context(layout, machine, thread, now, target);
        let Some(context) = context else { return false };
        if !capture::capture(layout, context, limit, target, &mut self.scratch, captured) {
            return false;
        }
        if !is_stopped {
            self.read_code(captured, now, target);
        }
        self.learn(now, target);
        if let Some(executors) = &self.executors {
            captured.nested = executors.core != executors.outer;
            self.scratch.read_marks(executors.saved, target);
            self.scratch.anchor(|mark| executors.has_set(mark), captured);
        }
        true
    }

    fn code(&mut self) -> Option<&mut dyn CodeReader> {
        Some(&mut self.codes)
    }

    fn is_fresh(&self, code: u64) -> bool {
        self.codes.is_fresh(code)
    }

    fn registers(&self) -> Option<(u8, u8)> {
        self.executors.as_ref().filter(|executors| executors.in_registers).map(|_| (14, 15))
    }

    fn evaluation(&self) -> Option<Range<u64>> {
        self.executors.as_ref().map(|executors| executors.core.clone())
    }
}
