//! The lines of Node's frames, as Sentry's SDK says them.
//!
//! Its profiler has V8 count by `kCallerLineNumbers` (@sentry/node-cpu-profiler `bindings/cpu_profiler.cc`): the line
//! of a function's frame is not where the function was, but where its caller was when it called it, and where that is
//! not known (of the outermost one, or below a function without a source), the line on which the function begins (v8/v8
//! `src/profiler/profile-generator.cc`, `ProfileNode::line_number`). Frames of both then are the same ones for Sentry.
//! That takes a producer that says both lines; others say where functions begin, or it is not known which they say.

use hashbrown::HashMap;
use profbridge_model::{Dictionary, Line, Location, LocationId};

/// The numbers of frames whose line depends on the caller.
#[derive(Debug, Default)]
pub(super) struct Called {
    /// By location, the line of it, and the line that is written.
    numbers: HashMap<(LocationId, u32, u32), u32>,
    /// One of them, whatever is written.
    any: HashMap<(LocationId, u32), u32>,
}

impl Called {
    /// The memory that is allocated, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.numbers.allocation_size() + self.any.allocation_size()
    }

    pub(super) fn clear(&mut self) {
        self.numbers.clear();
        self.any.clear();
    }

    /// The number of a frame; `new` gives one that has none yet.
    pub(super) fn number(&mut self, location: LocationId, line: u32, lineno: u32, new: impl FnOnce() -> u32) -> u32 {
        let number = *self.numbers.entry((location, line, lineno)).or_insert_with(new);
        self.any.entry((location, line)).or_insert(number);
        number
    }

    /// The number of one of the frames of a line, if there is any.
    pub(super) fn any(&self, location: LocationId, line: u32) -> Option<u32> {
        self.any.get(&(location, line)).copied()
    }
}

/// Whether it is known where in its function a line is: the function's first line is said besides. Perf maps say the
/// first line, and its column, twice.
pub(super) fn is_executed(dictionary: &Dictionary, line: &Line) -> bool {
    line.column == 0 && first_line(dictionary, line) > 0
}

/// Whether a native frame is of a function that is none of V8's built-in ones. Those without a name may be.
pub(super) fn is_foreign(dictionary: &Dictionary, location: &Location) -> bool {
    let function = dictionary.lines(location).iter().find_map(|line| line.function);
    let name = function.map_or(&b""[..], |function| dictionary.string_bytes(dictionary.function(function).name));
    !name.is_empty() && !name.starts_with(b"Builtins_")
}

/// The line on which the function begins, 0 if it is not known.
pub(super) fn first_line(dictionary: &Dictionary, line: &Line) -> u32 {
    let first = line.function.map_or(0, |function| dictionary.function(function).start_line);
    u32::try_from(first).unwrap_or(0)
}

/// Whether the lines of a location's frames depend on who called them.
pub(super) fn depends(dictionary: &Dictionary, location: &Location) -> bool {
    dictionary.lines(location).iter().any(|line| is_executed(dictionary, line))
}

/// The line of a frame that was called at this line of another one.
pub(super) fn lineno(dictionary: &Dictionary, line: &Line, caller: Option<&Line>) -> u32 {
    let called_at = caller.and_then(|caller| u32::try_from(caller.line).ok()).filter(|line| *line > 0);
    called_at.unwrap_or_else(|| first_line(dictionary, line))
}
