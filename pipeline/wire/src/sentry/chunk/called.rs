//! The line numbers of Node's frames, in the form that Sentry's SDK sends.
//!
//! The SDK's profiler uses V8's mode `kCallerLineNumbers` (@sentry/node-cpu-profiler `bindings/cpu_profiler.cc`): the
//! line of a frame is not the executing line of its function, but the line in its caller that called it. If that line
//! is unknown (for the outermost function, or below a function without a source), the frame has the function's first
//! line (v8/v8 `src/profiler/profile-generator.cc`, `ProfileNode::line_number`). With the same rule here, Sentry sees
//! identical frames. The rule requires a producer that sends both the executing line and the first line; other
//! producers send the function's first line, or it is unknown which one they send.

use hashbrown::HashMap;
use profbridge_model::{Dictionary, Line, Location, LocationId};

/// The numbers of frames whose line depends on the caller.
#[derive(Debug, Default)]
pub(super) struct Called {
    /// The numbers by location, line index and written line number.
    numbers: HashMap<(LocationId, u32, u32), u32>,
    /// Any one of these numbers, by location and line index.
    any: HashMap<(LocationId, u32), u32>,
}

impl Called {
    /// Heap size in bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        self.numbers.allocation_size() + self.any.allocation_size()
    }

    pub(super) fn clear(&mut self) {
        self.numbers.clear();
        self.any.clear();
    }

    /// The number of a frame. If there is none yet, `new` assigns one.
    pub(super) fn number(&mut self, location: LocationId, line: u32, lineno: u32, new: impl FnOnce() -> u32) -> u32 {
        let number = *self.numbers.entry((location, line, lineno)).or_insert_with(new);
        self.any.entry((location, line)).or_insert(number);
        number
    }

    /// The number of any frame of a line, if there is one.
    pub(super) fn any(&self, location: LocationId, line: u32) -> Option<u32> {
        self.any.get(&(location, line)).copied()
    }
}

/// Whether a line is the executing one: the function's first line is then known too. Perf maps only contain the first
/// line, which they repeat with its column.
pub(super) fn is_executed(dictionary: &Dictionary, line: &Line) -> bool {
    line.column == 0 && first_line(dictionary, line) > 0
}

/// Whether a native frame is not a V8 built-in function. Functions without a name count as possible built-ins.
pub(super) fn is_foreign(dictionary: &Dictionary, location: &Location) -> bool {
    let function = dictionary.lines(location).iter().find_map(|line| line.function);
    let name = function.map_or(&b""[..], |function| dictionary.string_bytes(dictionary.function(function).name));
    !name.is_empty() && !name.starts_with(b"Builtins_")
}

/// The function's first line, 0 if unknown.
pub(super) fn first_line(dictionary: &Dictionary, line: &Line) -> u32 {
    let first = line.function.map_or(0, |function| dictionary.function(function).start_line);
    u32::try_from(first).unwrap_or(0)
}

/// Whether the line numbers of a location's frames depend on their callers.
pub(super) fn depends(dictionary: &Dictionary, location: &Location) -> bool {
    dictionary.lines(location).iter().any(|line| is_executed(dictionary, line))
}

/// The line number of a frame whose caller is at this line.
pub(super) fn lineno(dictionary: &Dictionary, line: &Line, caller: Option<&Line>) -> u32 {
    let called_at = caller.and_then(|caller| u32::try_from(caller.line).ok()).filter(|line| *line > 0);
    called_at.unwrap_or_else(|| first_line(dictionary, line))
}
