//! Offsets of the fields of PHP's structures, on x86-64, in builds without thread safety.
//!
//! PHP does not export its layout, so this is a table by minor version. Sources: php-src `Zend/zend_globals.h`
//! (`_zend_executor_globals`), `Zend/zend_compile.h` (`_zend_execute_data`, `_zend_op_array`,
//! `_zend_internal_function`, `_zend_op`), `Zend/zend_types.h` (`_zend_string`), `Zend/zend_generators.h`; determined
//! by `offsetof` for 8.2 and 8.4, from the memory of programs for 7.4, 8.3 and 8.5, and for 7.3, 8.0 and 8.1 from the
//! sources and open-telemetry/opentelemetry-ebpf-profiler `interpreter/php/php.go`.

/// Offsets in a frame (`zend_execute_data`), in all versions.
pub(super) mod frame {
    /// The instruction that the frame executes.
    pub(in crate::runtime::php) const INSTRUCTION: usize = 0;
    pub(in crate::runtime::php) const FUNCTION: usize = 24;
    /// The object that a method was called on.
    pub(in crate::runtime::php) const THIS: usize = 32;
    /// The type of that object, and flags of the call.
    pub(in crate::runtime::php) const INFO: usize = 40;
    pub(in crate::runtime::php) const PREVIOUS: usize = 48;
    pub(in crate::runtime::php) const SIZE: usize = 56;
    /// In `INFO`: the flag of the first frame that a native call of the evaluation function executes (`ZEND_CALL_TOP`).
    pub(in crate::runtime::php) const TOP: u32 = 1 << 17;
    /// In `INFO`: the type of an object (`IS_OBJECT`).
    pub(in crate::runtime::php) const OBJECT: u32 = 8;
}

/// Offsets in a function (`zend_function`), in all versions.
pub(super) mod function {
    pub(in crate::runtime::php) const KIND: usize = 0;
    pub(in crate::runtime::php) const NAME: usize = 8;
    /// The class of the function.
    pub(in crate::runtime::php) const CLASS: usize = 16;
    /// `ZEND_INTERNAL_FUNCTION`, `ZEND_USER_FUNCTION` and `ZEND_EVAL_CODE`.
    pub(in crate::runtime::php) const INTERNAL: u8 = 1;
    pub(in crate::runtime::php) const USER: u8 = 2;
    pub(in crate::runtime::php) const EVAL: u8 = 4;
}

/// Offsets in an instruction (`zend_op`), in all versions.
pub(super) mod instruction {
    pub(in crate::runtime::php) const LINE: u64 = 24;
    pub(in crate::runtime::php) const SIZE: u64 = 32;
}

/// Offsets in a string (`zend_string`), in all versions: hash and length are adjacent.
pub(super) mod string {
    pub(in crate::runtime::php) const HASH: u64 = 8;
    pub(in crate::runtime::php) const TEXT: u64 = 24;
}

/// The offset of the name in a class (`zend_class_entry`), in all versions.
pub(super) const CLASS_NAME: u64 = 8;

/// Offsets in a generator (`zend_generator`).
pub(super) mod generator {
    pub(in crate::runtime::php) const SIZE: usize = 168;

    /// The offsets of the frame and of the generator it delegates to (`node.parent`), given the offset of the
    /// placeholder frame (`execute_fake`): first those of 8.0 and later, then those of earlier versions.
    pub(in crate::runtime::php) fn fields(placeholder: u64) -> Option<(usize, usize)> {
        match placeholder {
            184 => Some((56, 152)),
            200 => Some((64, 160)),
            _ => None,
        }
    }
}

/// The offsets that differ between versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PhpLayout {
    /// The innermost frame, as an offset in `executor_globals` (`current_execute_data`).
    pub(super) current: u64,
    /// In a function written in PHP (`zend_op_array`): the number and address of its instructions, its file and first
    /// line.
    pub(super) count: usize,
    pub(super) instructions: usize,
    pub(super) file: usize,
    pub(super) first_line: usize,
    /// In a native function: its address (`handler`).
    pub(super) native: usize,
}

impl PhpLayout {
    /// The layout of a version.
    pub(super) fn of_version(major: u8, minor: u8) -> Option<Self> {
        let layout = |[count, instructions, file, first_line, native]: [usize; 5]| Self {
            current: 488,
            count,
            instructions,
            file,
            first_line,
            native,
        };
        Some(match (major, minor) {
            (7, 3) => layout([60, 64, 128, 136, 48]),
            (7, 4) => layout([60, 64, 136, 144, 48]),
            (8, 0 | 1) => layout([68, 72, 144, 152, 56]),
            (8, 2) => layout([80, 88, 152, 160, 72]),
            (8, 3) => layout([76, 80, 144, 152, 72]),
            (8, 4) => layout([96, 104, 168, 176, 88]),
            (8, 5) => Self { current: 512, ..layout([96, 104, 168, 176, 88]) },
            _ => return None,
        })
    }

    /// The number of bytes read of a function written in PHP, and of a native one.
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.first_line + 4, self.native + 8)
    }
}
