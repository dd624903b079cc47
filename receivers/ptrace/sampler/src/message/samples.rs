//! Batches of samples.

use serde::{Deserialize, Serialize};

use super::{Context, Mode, ProcessId};

/// Samples of one process, with the tables that they refer to.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Batch {
    /// The process.
    pub process: ProcessId,
    /// The time between two ticks at the configured rate, in nanoseconds. If the rate was lowered, this stays the same
    /// and the weights grow.
    pub period_nano: u64,
    /// The meaning of [`Sample::weight_nano`].
    pub mode: Mode,
    /// The threads that samples refer to.
    pub threads: Vec<Thread>,
    /// The locations that stacks refer to.
    pub locations: Vec<Location>,
    /// The stacks that samples refer to.
    pub stacks: Vec<Stack>,
    /// The trace contexts of threads that samples refer to.
    pub contexts: Vec<Context>,
    /// The samples, in ascending order of time for each thread.
    pub samples: Vec<Sample>,
}

impl Batch {
    /// A batch with the same process, period and mode, and without samples.
    pub(crate) fn emptied(&self) -> Self {
        let Self { process, period_nano, mode, threads: _, locations: _, stacks: _, contexts: _, samples: _ } = *self;
        Self { process, period_nano, mode, ..Self::default() }
    }
}

/// A thread.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Thread {
    /// The thread id in the sampler's PID namespace.
    pub id: u32,
    /// The thread id in the process's own PID namespace, as `gettid` returns it there.
    pub namespace_id: u32,
    /// The thread's name: the one that an interpreter gives it, such as Python's `threading`, or else the kernel's
    /// (`/proc/PID/task/TID/comm`, at most 15 bytes).
    pub name: String,
    /// The thread pointer (on x86-64 the base of FS): glibc's `pthread_t`, which Python uses as a thread's `ident`. 0
    /// if unknown: the thread was never stopped and its C library is not glibc.
    pub pointer: u64,
}

/// The kernel's half of the address space (Documentation/arch/x86/x86_64/mm.rst).
const KERNEL: u64 = 0xffff_8000_0000_0000;

/// A place in the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Location {
    /// In machine code.
    Native {
        /// The mapping, by [`Mapping::index`](super::Mapping::index); `None` for code outside of any file (compiled at
        /// run time).
        mapping: Option<u32>,
        /// The address in the file (ELF virtual address); without a mapping, the address in the process or in the
        /// kernel. For a caller, the address is in the call instruction instead of the return address after it.
        address: u64,
    },
    /// In machine code outside of any file, in a process that has a perf map.
    Compiled {
        /// The address in the process, as in [`Self::Native`].
        address: u64,
        /// The length of the perf map at that time, in bytes. Later entries may name code that has replaced the code at
        /// this address.
        map_length: u32,
    },
    /// In a program that an interpreter runs.
    Interpreted {
        /// The function, by its number within the process ([`Event::Functions`](super::Event::Functions)).
        function: u32,
        /// The line; 0 if unknown.
        line: u32,
    },
}

impl Default for Location {
    fn default() -> Self {
        Self::Native { mapping: None, address: 0 }
    }
}

impl Location {
    /// A frame for time in which the thread ran, but no sample shows where.
    pub const NOT_SAMPLED: Self = Self::outside(1);
    /// A frame for time in which the thread ran in the kernel, where no samples are permitted.
    pub const KERNEL_NOT_VISIBLE: Self = Self::outside(2);
    /// A frame for time in which the thread waited for a processor.
    pub const WAITING_FOR_PROCESSOR: Self = Self::outside(3);
    /// A frame for time in which the thread must have been blocked, although no examination found it blocked.
    pub const WAITING_NOT_SEEN: Self = Self::outside(4);

    /// A frame for time between the end of one sampler process and the start of the next. Only owners add it.
    pub const NO_SAMPLER: Self = Self::outside(5);
    /// A frame for time in which a signal or a debugger had stopped the thread.
    pub const STOPPED: Self = Self::outside(6);

    /// A frame in place of unknown callers: when they were read from memory, the thread had already continued.
    pub const CALLERS_NOT_KNOWN: Self = Self::outside(7);

    const fn outside(number: u64) -> Self {
        Self::Native { mapping: None, address: 1 << 63 | number }
    }

    /// A location in the kernel.
    #[must_use]
    pub const fn kernel(address: u64) -> Self {
        Self::Native { mapping: None, address: address | KERNEL }
    }

    /// The mapping, for machine code in a file.
    #[must_use]
    pub const fn mapping(self) -> Option<u32> {
        match self {
            Self::Native { mapping, .. } => mapping,
            Self::Compiled { .. } | Self::Interpreted { .. } => None,
        }
    }

    /// The address of machine code; 0 for an interpreted function.
    #[must_use]
    pub const fn address(self) -> u64 {
        match self {
            Self::Native { address, .. } | Self::Compiled { address, .. } => address,
            Self::Interpreted { .. } => 0,
        }
    }

    /// Whether this location is in a program that an interpreter runs.
    #[must_use]
    pub const fn is_interpreted(self) -> bool {
        matches!(self, Self::Interpreted { .. })
    }

    /// Whether this location is in the kernel.
    #[must_use]
    pub fn is_kernel(self) -> bool {
        matches!(self, Self::Native { mapping: None, address: KERNEL.. })
    }

    /// Whether this location is in machine code that was generated at run time.
    #[must_use]
    pub fn is_generated(self) -> bool {
        matches!(self, Self::Native { mapping: None, address: ..0x8000_0000_0000 } | Self::Compiled { .. })
    }

    /// The same location; for machine code generated at run time, with the current length of the perf map, if there is
    /// one.
    #[must_use]
    pub fn with_map(self, map_length: u32) -> Self {
        let is_compiled = self.is_generated() && map_length > 0;
        if is_compiled { Self::Compiled { address: self.address(), map_length } } else { self }
    }

    /// The length of the perf map at that time, in bytes; 0 without a perf map.
    #[must_use]
    pub const fn map_length(self) -> u32 {
        match self {
            Self::Compiled { map_length, .. } => map_length,
            Self::Native { .. } | Self::Interpreted { .. } => 0,
        }
    }

    /// The description of a location that is not a place in code; `None` for all others. Such locations have addresses
    /// that no code can have on x86-64.
    pub fn explanation(self) -> Option<&'static str> {
        match self {
            Self::NOT_SAMPLED => Some("[processor time not sampled]"),
            Self::KERNEL_NOT_VISIBLE => Some("[kernel, not visible]"),
            Self::WAITING_FOR_PROCESSOR => Some("[waiting for a processor]"),
            Self::WAITING_NOT_SEEN => Some("[waiting, not seen]"),
            Self::NO_SAMPLER => Some("[no sampler process]"),
            Self::CALLERS_NOT_KNOWN => Some("[callers not known]"),
            Self::STOPPED => Some("[stopped]"),
            _ => None,
        }
    }
}

/// A function of a program that an interpreter runs, as the interpreter describes it in its memory. The program chooses
/// the name and file freely, so they are for display only.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Function {
    /// The kind of interpreter.
    pub kind: FunctionKind,
    /// The function's name, qualified by the class or outer function if the interpreter stores that. At most
    /// [`crate::runtime::MAX_NAME`] bytes.
    pub name: String,
    /// The name under which the module that defines the function was imported; empty if the interpreter stores none
    /// (only Python does). At most [`crate::runtime::MAX_NAME`] bytes.
    pub module: String,
    /// The file as the interpreter names it; empty if unknown. At most [`crate::runtime::MAX_FILE`] bytes.
    pub file: String,
    /// The function's first line; 0 if unknown.
    pub line: u32,
}

impl Function {
    /// The total length of name, module and file, in bytes.
    pub fn text(&self) -> usize {
        self.name.len() + self.module.len() + self.file.len()
    }
}

/// The kinds of interpreters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FunctionKind {
    /// CPython.
    CPython,
    /// PHP (the Zend engine).
    Php,
    /// V8: Node.
    V8,
    /// Ruby (CRuby).
    Ruby,
}

impl FunctionKind {
    /// The number of kinds.
    pub const COUNT: usize = Self::Ruby as usize + 1;

    /// The type of frames of this kind: `profile.frame.type` of OpenTelemetry's semantic conventions.
    pub fn frame_type(self) -> &'static str {
        match self {
            Self::CPython => "cpython",
            Self::Php => "php",
            Self::V8 => "v8js",
            Self::Ruby => "ruby",
        }
    }
}

/// A call stack.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Stack {
    /// How much of the stack is known.
    pub trust: Trust,
    /// The locations of the stack, as indices into [`Batch::locations`], leaf first.
    pub locations: Vec<u32>,
}

/// How much of a stack is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Trust {
    /// The stack reaches the thread's first function, and every step followed an unwinding rule.
    #[default]
    Complete,
    /// The stack reaches the thread's first function, but interpreter functions are missing: nothing proves that they
    /// were the same when the sample was taken. One frame replaces them ([`Location::CALLERS_NOT_KNOWN`]).
    MissingCallers,
    /// The stack ends early, but its frames are right.
    Truncated,
    /// At least one step was a guess (a scan of the stack for return addresses after call instructions).
    Guessed,
}

/// A sample: a thread had this stack for some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Sample {
    /// The thread, as an index into [`Batch::threads`].
    pub thread: u32,
    /// The stack, as an index into [`Batch::stacks`].
    pub stack: u32,
    /// The thread's trace context, as an index into [`Batch::contexts`]; `None` if the program publishes none, or if
    /// nothing proves which one it was at that moment.
    pub context: Option<u32>,
    /// The beginning of the time that the sample covers, in nanoseconds since the Unix epoch: the end of the previous
    /// sample, at most one period before the stack was taken, unless it was taken late. Successive equal blocked stacks
    /// become one sample, which begins with the first of them.
    pub time_unix_nano: u64,
    /// The length of the covered time, in nanoseconds. For a running thread this is processor time.
    pub weight_nano: u64,
    /// How often the thread was found with this stack.
    pub observations: u32,
    /// Whether the thread was blocked. A blocked thread was not stopped for the sample, unless unwinding needed an
    /// unknown register.
    pub blocked: bool,
}
