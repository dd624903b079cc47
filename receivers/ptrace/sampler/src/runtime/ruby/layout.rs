//! Offsets of the fields of Ruby's structures, in bytes, on x86-64.
//!
//! Ruby does not export them, so this is a table by minor version. The offsets are those of `rbspy-ruby-structs` 0.55,
//! which come from the headers of every release (checked with `offset_of!` for all releases of 3.0 to 3.4; within a
//! minor version they are equal). The offsets in classes are those of open-telemetry/opentelemetry-ebpf-profiler
//! `interpreter/ruby/ruby.go`. Offsets that are the same in all versions are constants at their use.

/// The offset of the thread pointer in a thread. From 3.1 on the thread's id follows the pointer, but in a forked
/// process it is the parent's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ThreadPointer {
    /// In the thread itself (3.0 and 3.1).
    Direct { at: u32 },
    /// In the native thread that currently executes the thread (3.2 and later).
    Native { thread: u32, at: u32 },
}

/// Offsets and flags for the name of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClassLayout {
    /// The name, including all enclosing modules.
    pub(super) path: u32,
    /// In a singleton class: the object to which the class belongs.
    pub(super) attached: u32,
    /// The flag of singleton classes.
    pub(super) singleton: u64,
}

/// The offsets of a minor version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RubyLayout {
    /// In a ractor: the list of its threads, and the link to the next ractor.
    pub(super) ractor_threads: u32,
    pub(super) ractor_node: u32,
    /// In a thread: its execution context, and its thread pointer.
    pub(super) thread_context: u32,
    pub(super) thread_pointer: ThreadPointer,
    /// In an execution context: its thread.
    pub(super) context_thread: u32,
    /// The size of a control frame.
    pub(super) frame: u32,
    /// In an instruction sequence's body: the descriptions of instructions, their count, the index of their positions,
    /// and the sequence of the surrounding method.
    pub(super) info: u32,
    pub(super) info_size: u32,
    pub(super) info_index: u32,
    pub(super) method_sequence: u32,
    /// The size of a description of an instruction.
    pub(super) info_entry: u32,
    /// Whether strings have a length field even if their bytes are stored inside (3.2 and later).
    pub(super) string_length: bool,
    /// Offsets in classes, from 3.3 on; before, names are in a hash table.
    pub(super) class: Option<ClassLayout>,
    /// The greatest id of an operator; operators have ids without scope bits.
    pub(super) last_operator: u64,
}

impl RubyLayout {
    /// The layout of a minor version, if it is supported.
    pub(super) fn of_version(major: u8, minor: u8) -> Option<Self> {
        const SINGLETON: [u64; 2] = [1 << 12, 1 << 13];
        let old = Self {
            ractor_threads: 304,
            ractor_node: 568,
            thread_context: 40,
            thread_pointer: ThreadPointer::Direct { at: 80 },
            context_thread: 48,
            frame: 64,
            info: 120,
            info_size: 136,
            info_index: 144,
            method_sequence: 176,
            info_entry: 12,
            string_length: false,
            class: None,
            last_operator: 169,
        };
        let new = |singleton| Self {
            ractor_threads: 256,
            ractor_node: 432,
            thread_context: 48,
            thread_pointer: ThreadPointer::Native { thread: 40, at: 16 },
            frame: 56,
            info: 112,
            info_size: 128,
            info_index: 136,
            method_sequence: 168,
            string_length: true,
            class: Some(ClassLayout { path: 32 + 120, attached: 32 + 96, singleton }),
            ..old.clone()
        };
        Some(match (major, minor) {
            (3, 0) => Self { context_thread: 56, frame: 56, info_entry: 8, last_operator: 168, ..old },
            (3, 1) => old,
            (3, 2) => Self {
                ractor_threads: 304,
                ractor_node: 568,
                thread_pointer: ThreadPointer::Native { thread: 40, at: 8 },
                frame: 64,
                class: None,
                ..new(SINGLETON[0])
            },
            (3, 3) => new(SINGLETON[0]),
            (3, 4) => Self { last_operator: 170, ..new(SINGLETON[1]) },
            _ => return None,
        })
    }
}
