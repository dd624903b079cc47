//! CPython, 3.8 to 3.14, with and without the global lock.
//!
//! Python's state begins at the symbol `_PyRuntime`: interpreters, their threads, and the innermost frame of each
//! thread. Up to 3.12 the offsets of fields are in a table here; from 3.13 on the interpreter exports them (`layout`,
//! `debug_offsets`). Fields are stable within a minor release (python/cpython issue 106597), so other releases are
//! rejected.
//!
//! * Up to 3.10, functions of a module share equal instructions; the code object on the stack distinguishes them. While
//!   a thread is stopped, at most 64 of its frames are read.
//! * The stack of a greenlet (greenlet 2.0 and later) ends at the function of greenlet that started it: frames outside
//!   of that function belong to another greenlet.
//! * Without the global lock objects have larger heads, and from 3.14 on each thread executes a copy of a function's
//!   instructions (`copies`). Tested with 3.13.5 and 3.14.0, also with `-X tlbc=0` and `-X gil=1`.
//! * Not tested: the experimental compiler (JIT), and the interpreter built with tail calls.

mod belongs;
mod capture;
mod code;
mod code_object;
mod copies;
mod debug_offsets;
mod dict;
mod layout;
mod lines;
mod place;
#[cfg(test)]
mod tests;
mod text;
mod thread_names;
mod threads;

use std::ops::Range;
use std::time::Instant;

use self::code::CodeObjects;
use self::layout::{Calls, InstructionField};
pub(super) use self::place::{PythonPlace, SYMBOLS};
use self::thread_names::ThreadNames;
use self::threads::InterpreterThreads;
use super::target::TargetMemory;
use super::{Captured, CodeReader, Instance, MAX_FRAMES, ThreadKey};

/// The reader of a Python interpreter.
#[derive(Debug)]
pub(super) struct PythonReader {
    place: PythonPlace,
    states: InterpreterThreads,
    names: ThreadNames,
    codes: CodeObjects,
    scratch: capture::FrameBuffers,
}

impl PythonReader {
    pub(super) fn new(place: PythonPlace) -> Self {
        Self {
            codes: CodeObjects::new(place.layout),
            place,
            states: InterpreterThreads::default(),
            names: ThreadNames::default(),
            scratch: capture::FrameBuffers::default(),
        }
    }
}

impl Instance for PythonReader {
    fn capture(
        &mut self,
        thread: ThreadKey,
        limit: usize,
        now: Instant,
        target: &mut dyn TargetMemory,
        captured: &mut Captured,
    ) -> bool {
        captured.clear();
        let Self { place, states, scratch, .. } = self;
        states.forget_ended(place, thread, target);
        // A thread may have several states: one for each sub-interpreter, and one made by C code that enters an
        // interpreter.
        for again in [false, true] {
            // While the thread is stopped, do not search again for states that are known but may be outdated.
            let may_walk = limit == MAX_FRAMES || !states.knows(place, thread);
            if again && !(may_walk && states.walk_for(thread, place, now, target)) {
                return false;
            }
            let mut outdated = false;
            for state in states.of_thread(place, thread) {
                match capture::capture(&place.layout, state, limit, target, scratch, captured) {
                    capture::CaptureResult::Frames => return true,
                    capture::CaptureResult::Idle => {}
                    capture::CaptureResult::Outdated => outdated = true,
                }
            }
            if outdated {
                states.forget(place, thread);
            }
        }
        false
    }

    fn thread_name(
        &mut self,
        thread: ThreadKey,
        is_first: bool,
        now: Instant,
        target: &mut dyn TargetMemory,
    ) -> Option<String> {
        let Self { place, states, names, .. } = self;
        states.forget_ended(place, thread, target);
        if !states.knows(place, thread) {
            states.walk_for(thread, place, now, target);
        }
        let ident = states.of_thread(place, thread).next()?.thread_id;
        // Without `threading`, the first thread gets the name that `threading` would give it.
        names.name(place, ident, now, target).or_else(|| is_first.then(|| "MainThread".to_owned()))
    }

    fn code(&mut self) -> Option<&mut dyn CodeReader> {
        Some(&mut self.codes)
    }

    fn is_fresh(&self, code: u64) -> bool {
        self.codes.is_fresh(code)
    }

    fn instruction_in_frame(&self) -> Option<u64> {
        match self.place.layout.frame.instruction {
            InstructionField::Address { at } => Some(u64::from(at)),
            InstructionField::Offset { .. } => None,
        }
    }

    fn has_calls_of_one(&self) -> bool {
        self.place.layout.frame.calls == Calls::Each
    }

    fn evaluation(&self) -> Option<Range<u64>> {
        self.place.evaluation.clone()
    }

    fn proves_by_itself(&self) -> bool {
        true
    }
}
