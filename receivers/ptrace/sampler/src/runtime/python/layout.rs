//! Offsets of the fields of CPython's structures, on x86-64 in release builds.
//!
//! The offsets up to 3.12 are from the debug information of 3.8.18, 3.9.18, 3.10.13, 3.11.7 and 3.12.1
//! (`Include/internal/`, `Include/cpython/code.h`, `Include/cpython/pystate.h`).

/// Where the pointer to a thread's innermost frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Current {
    /// In the thread's state.
    Direct { frame: u32 },
    /// In the thread's state; there is also a chain of structures on the C stack, one for each call of the evaluation
    /// function.
    WithChain { frame: u32, chain: u32, previous: u32 },
    /// In the first structure of that chain.
    InChain { chain: u32, frame: u32, previous: u32 },
}

/// Offsets in a thread's state (`PyThreadState`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ThreadLayout {
    pub(super) next: u32,
    pub(super) current: Current,
    /// The thread pointer (`pthread_t`).
    pub(super) thread_id: u32,
    /// The id that `gettid` returns in the thread.
    pub(super) native_id: Option<u32>,
    /// The pointer to the current chunk of frames, followed by the pointer to its first unused byte.
    pub(super) chunk: Option<u32>,
}

impl ThreadLayout {
    /// The number of bytes read of a thread's state.
    pub(super) fn size(&self) -> usize {
        let current = match self.current {
            Current::Direct { frame } => frame,
            Current::WithChain { frame, chain, .. } => frame.max(chain),
            Current::InChain { chain, .. } => chain,
        };
        let last = current
            .max(self.next)
            .max(self.thread_id)
            .max(self.native_id.unwrap_or(0))
            .max(self.chunk.map_or(0, |chunk| chunk + 8));
        last as usize + 8
    }
}

/// How a frame stores its position in the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InstructionField {
    /// The offset of the last instruction, in units of this many bytes.
    Offset { at: u32, unit: u32 },
    /// The address of an instruction.
    Address { at: u32 },
}

/// How to find out which frames one call of the evaluation function executes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Calls {
    /// Each frame has its own call of the evaluation function.
    Each,
    /// The byte at this offset is not 0 in the outermost frame of a call. Another byte is the frame's owner.
    Marked { at: u32, owner: u32 },
    /// The outermost frame of a call is a local variable of the evaluation function and executes no code of the
    /// program. Its owner, the byte at this offset, identifies it.
    Owned { at: u32 },
}

/// Offsets in a frame (`PyFrameObject` up to 3.10, then `_PyInterpreterFrame`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameLayout {
    pub(super) code: u32,
    /// The global variables of the module that defines the function.
    pub(super) globals: u32,
    pub(super) previous: u32,
    pub(super) instruction: InstructionField,
    pub(super) calls: Calls,
    pub(super) size: u32,
}

/// Where the instructions of a code object are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Instructions {
    /// In a bytes object that a pointer at this offset refers to.
    Object { at: u32 },
    /// In the code object itself from this offset on, as many units of two bytes as its size says. If each thread has
    /// its own copy, `copies` is the offset of the pointer to the list of copies.
    Inside { at: u32, copies: Option<u32> },
}

/// The format of the line table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineFormat {
    /// `co_lnotab` (up to 3.9).
    Steps,
    /// `co_linetable` of 3.10.
    Ranges,
    /// The location table (from 3.11 on).
    Locations,
}

/// Offsets in a code object (`PyCodeObject`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CodeLayout {
    pub(super) first_line: u32,
    pub(super) file: u32,
    /// The qualified name if there is one.
    pub(super) name: u32,
    /// The name whose hash is always set, because variable names are compared with it.
    pub(super) hashed_name: u32,
    pub(super) table: u32,
    pub(super) lines: LineFormat,
    /// A number that is unique to this code object.
    pub(super) version: Option<u32>,
    pub(super) instructions: Instructions,
}

impl CodeLayout {
    /// The number of bytes read of a code object.
    pub(super) fn size(&self) -> usize {
        let instructions = match self.instructions {
            Instructions::Object { at } => at,
            Instructions::Inside { .. } => 0,
        };
        let names = self.name.max(self.hashed_name);
        let last = [self.first_line, self.file, names, self.table, self.version.unwrap_or(0), instructions];
        last.into_iter().max().unwrap_or(0) as usize + 8
    }
}

/// Offsets in objects in general, strings and bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ObjectLayout {
    pub(super) kind: u32,
    /// The reference counts in builds without the global lock: 32 bits for the owning thread, and a word for the
    /// others whose two lowest bits are flags. In a freed object both are 0 until its memory is used again.
    pub(super) references: Option<(u32, u32)>,
    /// The number of items, in objects of variable size.
    pub(super) items: u32,
    pub(super) bytes_data: u32,
    pub(super) text_length: u32,
    pub(super) text_state: u32,
    /// The number of bits below those of the character size.
    pub(super) text_interned_bits: u32,
    /// The offset of the characters in ASCII strings; in other strings they are two words later.
    pub(super) text_data: u32,
    pub(super) text_other_data: u32,
}

/// The format of a dictionary's key tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dicts {
    /// Up to 3.10: key tables store their sizes.
    Sized,
    /// From 3.11 on: key tables store the logarithms of their sizes.
    Logarithmic,
}

/// How to find the class of a method if its name does not contain it: up to 3.10.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MethodLayout {
    /// In a code object: the names of its variables.
    pub(super) variables: u32,
    /// In a frame: the value of the first variable.
    pub(super) first_variable: u32,
    /// In a function: its code object.
    pub(super) function_code: u32,
}

/// Where an instance of a Python class keeps its attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttributeStorage {
    /// In a dictionary that a pointer in the instance refers to (up to 3.10).
    Dictionary,
    /// In an array whose pointer is `values` bytes before the instance. If the pointer is 0, in a dictionary whose
    /// pointer is `dictionary` bytes before the instance (3.11).
    Before { values: u64, dictionary: u64 },
    /// In either of the two, whose pointer is this many bytes before the instance. An odd pointer refers to an array
    /// that starts one byte after it (3.12).
    Either { pointer: u64 },
    /// In an array that follows the instance, unless a pointer this many bytes before the instance refers to a
    /// dictionary (from 3.13 on).
    Behind { dictionary: u64 },
}

/// Offsets needed to find the names of threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NameLayout {
    /// In an interpreter: the dictionary of modules.
    pub(super) modules: u32,
    /// In a type: the keys that its instances share.
    pub(super) shared_keys: u64,
    pub(super) attributes: AttributeStorage,
}

/// All offsets of one version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PythonLayout {
    /// The first interpreter, as an offset in `_PyRuntime`.
    pub(super) interpreters: u32,
    pub(super) interpreter_next: u32,
    /// The first thread of an interpreter.
    pub(super) threads: u32,
    pub(super) thread: ThreadLayout,
    pub(super) frame: FrameLayout,
    pub(super) code: CodeLayout,
    pub(super) object: ObjectLayout,
    pub(super) dicts: Dicts,
    pub(super) method: Option<MethodLayout>,
    pub(super) names: NameLayout,
}

/// The object layout of all versions up to 3.11.
const OBJECTS: ObjectLayout = ObjectLayout {
    kind: 8,
    references: None,
    items: 16,
    bytes_data: 32,
    text_length: 16,
    text_state: 32,
    text_interned_bits: 2,
    text_data: 48,
    text_other_data: 72,
};

impl PythonLayout {
    /// The layout of a version before 3.13.
    pub(super) fn of_minor(minor: u8) -> Option<Self> {
        Some(match minor {
            8 => Self::of_objects(Current::Direct { frame: 24 }, 104, 1, LineFormat::Steps, (360, 16), (56, 872)),
            9 => Self::of_objects(Current::Direct { frame: 24 }, 104, 1, LineFormat::Steps, (360, 16), (856, 864)),
            10 => {
                let current = Current::WithChain { frame: 24, chain: 48, previous: 8 };
                Self::of_objects(current, 96, 2, LineFormat::Ranges, (352, 48), (856, 872))
            }
            11 => Self {
                interpreters: 40,
                interpreter_next: 0,
                threads: 16,
                thread: ThreadLayout {
                    next: 8,
                    current: Current::InChain { chain: 56, frame: 8, previous: 16 },
                    thread_id: 152,
                    native_id: Some(160),
                    chunk: Some(296),
                },
                frame: FrameLayout {
                    code: 32,
                    globals: 8,
                    previous: 48,
                    instruction: InstructionField::Address { at: 56 },
                    calls: Calls::Marked { at: 68, owner: 69 },
                    size: 80,
                },
                code: CodeLayout {
                    first_line: 72,
                    file: 112,
                    name: 128,
                    hashed_name: 120,
                    table: 136,
                    lines: LineFormat::Locations,
                    version: None,
                    instructions: Instructions::Inside { at: 184, copies: None },
                },
                object: OBJECTS,
                dicts: Dicts::Logarithmic,
                method: None,
                names: NameLayout {
                    modules: 888,
                    shared_keys: 872,
                    attributes: AttributeStorage::Before { values: 32, dictionary: 24 },
                },
            },
            12 => Self {
                interpreters: 40,
                interpreter_next: 0,
                threads: 72,
                thread: ThreadLayout {
                    next: 8,
                    current: Current::InChain { chain: 56, frame: 0, previous: 8 },
                    thread_id: 136,
                    native_id: Some(144),
                    chunk: Some(232),
                },
                frame: FrameLayout {
                    code: 0,
                    globals: 24,
                    previous: 8,
                    instruction: InstructionField::Address { at: 56 },
                    calls: Calls::Owned { at: 70 },
                    size: 80,
                },
                code: CodeLayout {
                    first_line: 68,
                    file: 112,
                    name: 128,
                    hashed_name: 120,
                    table: 136,
                    lines: LineFormat::Locations,
                    version: Some(92),
                    instructions: Instructions::Inside { at: 192, copies: None },
                },
                object: ObjectLayout { text_data: 40, text_other_data: 56, ..OBJECTS },
                dicts: Dicts::Logarithmic,
                method: None,
                names: NameLayout {
                    modules: 944,
                    shared_keys: 880,
                    attributes: AttributeStorage::Either { pointer: 24 },
                },
            },
            _ => return None,
        })
    }

    /// The layout of versions whose frames are objects. These versions differ in the size of the fields before the
    /// first variable, and in the offset of a function's code.
    fn of_objects(
        current: Current,
        instruction: u32,
        unit: u32,
        lines: LineFormat,
        (first_variable, function_code): (u32, u32),
        (modules, shared_keys): (u32, u64),
    ) -> Self {
        Self {
            interpreters: 32,
            interpreter_next: 0,
            threads: 8,
            thread: ThreadLayout { next: 8, current, thread_id: 176, native_id: None, chunk: None },
            frame: FrameLayout {
                code: 32,
                globals: 48,
                previous: 24,
                instruction: InstructionField::Offset { at: instruction, unit },
                calls: Calls::Each,
                size: 112,
            },
            code: CodeLayout {
                first_line: 40,
                file: 104,
                name: 112,
                hashed_name: 112,
                table: 120,
                lines,
                version: None,
                instructions: Instructions::Object { at: 48 },
            },
            object: OBJECTS,
            dicts: Dicts::Sized,
            method: Some(MethodLayout { variables: 72, first_variable, function_code }),
            names: NameLayout { modules, shared_keys, attributes: AttributeStorage::Dictionary },
        }
    }
}
