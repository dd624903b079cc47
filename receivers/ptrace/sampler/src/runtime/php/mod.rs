//! PHP, 7.3 to 8.5, in builds without thread safety (NTS): on the command line, in FPM workers, in a web server.
//!
//! Its state is the variable `executor_globals`, which has the innermost frame. A native call of the evaluation
//! function (`execute_ex`) executes the frames of functions that call each other; functions that are native have frames
//! of their own. A thread-safe build (ZTS) has a state for each thread, and is refused.
//!
//! * A running thread is named by registers that GCC's builds keep (`merge::held`). Builds of other compilers keep
//!   none, so only threads that wait are named, and so it is mostly for functions that opcache's JIT compiled.
//! * Callers within a native call are believed if their code permits that they call the function. Closures, scripts and
//!   code given to `eval` may be freed at any time: what was read only after a sample proves nothing of it.
//! * Programs that are linked with PHP statically and export no symbols are not recognized.
//! * Run and recorded: 7.4, 8.2, 8.3, 8.4, 8.5. Known by their layout only: 7.3, 8.0, 8.1.

mod capture;
mod code;
mod layout;
mod place;
#[cfg(test)]
mod tests;
mod text;

use std::ops::Range;
use std::time::Instant;

use self::code::ZendFunctions;
pub(super) use self::place::Place;
use super::merge::Held;
use super::target::Target;
use super::{Captured, CodeReader, Found, FoundKind, Instance, Runtime, ThreadKey};
use crate::address_space::Module;
use crate::elf::SymbolNames;

/// The registers in which the evaluation function has the frame and the instruction that it executes (php-src
/// `Zend/zend_execute.c`, `ZEND_VM_FP_GLOBAL_REG` and `ZEND_VM_IP_GLOBAL_REG`): R14 and R15.
const REGISTERS: (u8, u8) = (14, 15);

/// PHP.
#[derive(Debug, Clone, Copy)]
pub struct Php;

impl Runtime for Php {
    fn symbols(&self) -> &'static SymbolNames {
        &place::SYMBOLS
    }

    fn detect(&self, module: &Module, path: &str, target: &mut dyn Target) -> Result<Option<Found>, String> {
        let found = Place::find(module, path, target)?;
        Ok(found.map(|place| Found { kind: FoundKind::Php(place) }))
    }
}

/// A PHP interpreter that is read.
#[derive(Debug)]
pub(super) struct Interpreter {
    place: Place,
    codes: ZendFunctions,
    scratch: capture::Scratch,
}

impl Interpreter {
    pub(super) fn new(place: Place) -> Self {
        let codes = ZendFunctions::new(place.layout, place.globals);
        Self { place, codes, scratch: capture::Scratch::default() }
    }
}

impl Instance for Interpreter {
    /// Reads the frames of the process, whichever thread this is: the native stack of the one that executes them has
    /// the evaluation function.
    fn capture(
        &mut self,
        _thread: ThreadKey,
        limit: usize,
        _now: Instant,
        target: &mut dyn Target,
        captured: &mut Captured,
    ) -> bool {
        capture::capture(&self.place.layout, self.place.globals, limit, target, &mut self.scratch, captured)
    }

    fn code(&mut self) -> Option<&mut dyn CodeReader> {
        Some(&mut self.codes)
    }

    fn is_fresh(&self, code: u64) -> bool {
        self.codes.is_fresh(code)
    }

    fn evaluation(&self) -> Option<Range<u64>> {
        Some(self.place.evaluation.clone()).filter(|range| !range.is_empty())
    }

    fn held(&self) -> Option<Held> {
        let registers = self.place.hybrid.then_some(REGISTERS);
        Some(Held { evaluation: self.place.evaluation.clone(), registers })
    }
}
