//! PHP, 7.3 to 8.5, in builds without thread safety (NTS): on the command line, in FPM workers, in a web server.
//!
//! PHP's state is the variable `executor_globals`, which points to the innermost frame. One native call of the
//! evaluation function (`execute_ex`) executes the frames of functions that call each other; native functions have
//! frames of their own. A thread-safe build (ZTS) has a state for each thread, and is rejected.
//!
//! * The functions of a running thread are found by callee-saved registers in builds with GCC (`merge::held`). Builds
//!   with other compilers do not use such registers, so functions are known only of waiting threads; the same mostly
//!   holds for functions compiled by opcache's JIT.
//! * Callers within a native call are accepted if their code can call the function. Closures, scripts and code passed
//!   to `eval` may be freed at any time, so such code proves nothing about a sample taken before it was read.
//! * Programs that are statically linked with PHP and export no symbols are not recognized.
//! * Tested with recordings: 7.4, 8.2, 8.3, 8.4, 8.5. Not tested: 7.3, 8.0, 8.1.

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
pub(super) use self::place::{PhpPlace, SYMBOLS};
use super::merge::Held;
use super::target::TargetMemory;
use super::{Captured, CodeReader, Instance, ThreadKey};

/// The registers in which the evaluation function keeps the frame and the instruction it is executing (php-src
/// `Zend/zend_execute.c`, `ZEND_VM_FP_GLOBAL_REG` and `ZEND_VM_IP_GLOBAL_REG`): R14 and R15.
const REGISTERS: (u8, u8) = (14, 15);

/// The reader of a PHP interpreter.
#[derive(Debug)]
pub(super) struct PhpReader {
    place: PhpPlace,
    codes: ZendFunctions,
    scratch: capture::FrameWindow,
}

impl PhpReader {
    pub(super) fn new(place: PhpPlace) -> Self {
        let codes = ZendFunctions::new(place.layout, place.globals);
        Self { place, codes, scratch: capture::FrameWindow::default() }
    }
}

impl Instance for PhpReader {
    /// Reads the frames of the process, no matter for which thread: only the thread that executes them has the
    /// evaluation function on its native stack.
    fn capture(
        &mut self,
        _thread: ThreadKey,
        limit: usize,
        _now: Instant,
        target: &mut dyn TargetMemory,
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
