//! The offsets of fields in V8's objects.
//!
//! Most offsets come from V8's constants for debuggers (`v8dbg_*`, v8/v8 `tools/gen-postmortem-metadata.py`). The other
//! offsets do not change within a minor version: they are from the sources (v8/v8 `src/objects/code.h`,
//! `bytecode-array.tq`, `deoptimization-data.h`), and were checked with programs of Node 18.20, 20.20, 22.23, 24.9 and
//! 24.21.

use crate::elf::{ElfObject, SymbolNames};
use crate::runtime::target::{TargetMemory, half};

/// The symbol of V8's major version, by which a file is recognized as V8.
pub(crate) const MAJOR_VERSION: &str = "_ZN2v88internal7Version6major_E";
const MINOR_VERSION: &str = "_ZN2v88internal7Version6minor_E";

/// The symbol of the table of byte code instruction lengths.
const BYTECODE_SIZES: &str = "_ZN2v88internal11interpreter9Bytecodes14kBytecodeSizesE";

/// V8's constants for debuggers (v8/v8 `tools/gen-postmortem-metadata.py`): sizes and offsets, each with the names it
/// has in different versions. First the size of a tagged word, then the frame offsets of context and function, then
/// fields.
const NUMBERS: [&[&str]; 8] = [
    &["v8dbg_TaggedSize"],
    &["v8dbg_off_fp_context_or_frame_type"],
    &["v8dbg_off_fp_function"],
    &["v8dbg_class_JSFunction__shared__SharedFunctionInfo"],
    &[
        "v8dbg_class_SharedFunctionInfo__name_or_scope_info__Object",
        "v8dbg_class_SharedFunctionInfo__name_or_scope_info__Tagged_Object_",
        "v8dbg_class_SharedFunctionInfo__name_or_scope_info__Tagged_NameOrScopeInfoT_",
    ],
    &[
        "v8dbg_class_SharedFunctionInfo__script_or_debug_info__HeapObject",
        "v8dbg_class_SharedFunctionInfo__script__Tagged_HeapObject_",
    ],
    &["v8dbg_scopeinfo_idx_first_vars"],
    &["v8dbg_class_BytecodeArray__data__uintptr_t"],
];

/// The instance types of V8's objects; the last two do not exist in every version.
const TYPES: [&str; 12] = [
    "v8dbg_type_JSFunction__JS_FUNCTION_TYPE",
    "v8dbg_type_SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE",
    "v8dbg_type_ScopeInfo__SCOPE_INFO_TYPE",
    "v8dbg_type_Code__CODE_TYPE",
    "v8dbg_type_BytecodeArray__BYTECODE_ARRAY_TYPE",
    "v8dbg_type_ByteArray__BYTE_ARRAY_TYPE",
    "v8dbg_type_FixedArray__FIXED_ARRAY_TYPE",
    "v8dbg_type_Script__SCRIPT_TYPE",
    "v8dbg_type_Oddball__ODDBALL_TYPE",
    "v8dbg_type_DebugInfo__DEBUG_INFO_TYPE",
    "v8dbg_type_TrustedByteArray__TRUSTED_BYTE_ARRAY_TYPE",
    "v8dbg_type_SharedFunctionInfoWrapper__SHARED_FUNCTION_INFO_WRAPPER_TYPE",
];

pub(in crate::runtime) static SYMBOLS: SymbolNames = SymbolNames {
    first: &[MAJOR_VERSION],
    section: None,
    others: || [&[MINOR_VERSION, BYTECODE_SIZES], &NUMBERS.concat()[..], &TYPES].concat(),
    text: None,
};

pub(super) use super::positions::Sizes;

/// The supported versions of V8 (Node 18, 20, 22, 24).
const KNOWN: [(u32, u32); 4] = [(10, 2), (11, 3), (12, 4), (13, 6)];

/// The byte code instruction lengths of V8 13.6, since Node 24.10 and later do not export them: 208 operations with
/// operands of one, two and four bytes, in hexadecimal digits.
const SIZES_13_6: &str = include_str!("sizes_13_6.txt");

/// The instance types that distinguish objects (`Map::instance_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Types {
    pub(super) function: u16,
    pub(super) shared: u16,
    pub(super) scope_info: u16,
    pub(super) script: u16,
    /// The type of `undefined`, which is in place of the script in functions without a source.
    pub(super) oddball: u16,
    /// The type of the object in place of the script in functions that are being debugged.
    pub(super) debug_info: u16,
    pub(super) code: u16,
    pub(super) bytecode: u16,
    pub(super) byte_array: u16,
    /// 0 in versions without this type.
    pub(super) trusted_bytes: u16,
    pub(super) fixed_array: u16,
    /// 0 in versions without this type.
    pub(super) shared_wrapper: u16,
}

/// The numbers of the code kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kinds {
    /// The kind of Sparkplug's code. Higher numbers belong to the optimizing compilers.
    pub(super) baseline: u32,
    pub(super) last: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CodeFields {
    /// The deoptimization data; in Sparkplug's code, the byte code.
    pub(super) deoptimization: u64,
    /// The source position table, or Sparkplug's table.
    pub(super) positions: u64,
    /// The offsets of the instruction object and of the instructions' address; `None` if the instructions are in the
    /// `Code` object itself.
    pub(super) instructions: Option<(u64, u64)>,
    pub(super) flags: u64,
    pub(super) size: u64,
}

/// All offsets of one version of V8.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::runtime) struct V8Layout {
    pub(super) types: Types,
    pub(super) kinds: Kinds,
    pub(super) code: CodeFields,
    /// In a closure: its `SharedFunctionInfo`.
    pub(super) shared: u64,
    /// In the `SharedFunctionInfo`: the name or the object with the name, and the script. The code is at 8.
    pub(super) name: u64,
    pub(super) script: u64,
    /// In a script: the value of `//# sourceURL=`.
    pub(super) source_url: u64,
    /// The offset of the instructions within the object that holds them.
    pub(super) head: u64,
    /// In `ScopeInfo`: the index of the first local variable, and whether the positions precede it.
    pub(super) first_local: usize,
    pub(super) positions_first: bool,
    /// In `BytecodeArray`: the source position table, and the first instruction.
    pub(super) bytecode_positions: u64,
    pub(super) bytecode_start: u64,
    /// In the deoptimization data: the array of literals, the function itself, and the inlined calls.
    pub(super) literals: usize,
    pub(super) optimized: usize,
    pub(super) inlined: usize,
    pub(super) sizes: Option<Sizes>,
    /// The constants from which this layout was derived.
    pub(super) constants: Constants,
}

/// The maximum number of function types, counted from the first one: those of classes and of V8's own constructors.
/// Function types are the last of all types (v8/v8 `src/objects/instance-type.h`).
pub(super) const FUNCTION_TYPES: u16 = 32;
/// In a `Map`: the instance type.
pub(super) const INSTANCE_TYPE: u64 = 12;
/// Types below this one are strings.
pub(super) const FIRST_NO_STRING: u16 = 128;

/// V8's own metadata in a file: version, constants for debuggers, and lengths of byte code instructions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::runtime) struct Constants {
    /// Major and minor version.
    pub(super) version: (u32, u32),
    /// The values of [`NUMBERS`].
    pub(super) numbers: [Option<u32>; NUMBERS.len()],
    /// The values of [`TYPES`], 0 for types that do not exist.
    pub(super) types: [u16; TYPES.len()],
    pub(super) sizes: Option<Sizes>,
}

impl Constants {
    /// Reads the metadata of this file; `None` if its memory is not mapped.
    pub(super) fn read(object: &ElfObject, bias: u64, target: &mut dyn TargetMemory) -> Option<Self> {
        let at = |name| Some(object.symbol(name)?.address.wrapping_add(bias));
        let mut value = |name| half(target, at(name)?);
        let version = (value(MAJOR_VERSION)?, value(MINOR_VERSION)?);
        let numbers = NUMBERS.map(|names| value(names.iter().find(|name| object.symbol(name).is_some())?));
        let types = TYPES.map(|name| value(name).and_then(|value| u16::try_from(value).ok()).unwrap_or(0));
        Some(Self { version, numbers, types, sizes: read_sizes(object, bias, target) })
    }
}

fn refused<T>(why: &str) -> Result<T, String> {
    Err(format!("{why}: its functions are not named (those of Node 18, 20, 22 and 24 are)"))
}

impl V8Layout {
    /// The constants from which this layout was derived.
    #[cfg(any(test, feature = "recordings"))]
    pub(in crate::runtime) fn constants(&self) -> &Constants {
        &self.constants
    }

    /// The layout of the V8 in this file; `None` while its memory is not mapped yet.
    ///
    /// # Errors
    ///
    /// A message for the operator: why the layout is unknown.
    pub(super) fn read(object: &ElfObject, bias: u64, target: &mut dyn TargetMemory) -> Result<Option<Self>, String> {
        if [MAJOR_VERSION, MINOR_VERSION].iter().any(|name| object.symbol(name).is_none()) {
            return refused("a V8 of an unknown version");
        }
        // A program that has just started may not have mapped its file yet; the maps will be read again.
        let there = Constants::read(object, bias, target).filter(|constants| constants.version != (0, 0));
        there.map(Self::from_constants).transpose()
    }

    /// Derives the layout from V8's constants.
    ///
    /// # Errors
    ///
    /// A message for the operator: why the layout is unknown.
    pub(in crate::runtime) fn from_constants(constants: Constants) -> Result<Self, String> {
        let version @ (major, minor) = constants.version;
        if !KNOWN.contains(&version) {
            return refused(&format!("V8 {major}.{minor} is not known"));
        }
        let [tagged, context, function, shared, name, script, first_local, data] = constants.numbers;
        if tagged.is_some_and(|size| size != 8) {
            return refused(&format!("V8 {major}.{minor} with compressed pointers"));
        }
        let usual = [Some(8), Some(-8i32 as u32), Some(-16i32 as u32)];
        let (Some(shared), Some(name), Some(script), Some(data), true) =
            (shared, name, script, data, [tagged, context, function] == usual)
        else {
            return refused(&format!("V8 {major}.{minor} without the constants for debuggers"));
        };
        let types = constants.types;
        if types[..10].contains(&0) {
            return refused(&format!("V8 {major}.{minor} without the constants for debuggers"));
        }
        let [function, sfi, scope_info, code, bytecode, byte_array, fixed_array, others @ ..] = types;
        let [script_type, oddball, debug_info, trusted, wrapper] = others;
        let types = Types {
            function,
            shared: sfi,
            scope_info,
            script: script_type,
            oddball,
            debug_info,
            code,
            bytecode,
            byte_array,
            trusted_bytes: trusted,
            fixed_array,
            shared_wrapper: wrapper,
        };
        // Fields are near the start of their objects.
        let near = |offset: u32| u64::from(offset.min(128));
        let at = |offset: u64, flags, size| CodeFields {
            deoptimization: offset,
            positions: offset + 8,
            instructions: Some((32, 40)),
            flags,
            size,
        };
        let in_object = CodeFields { instructions: None, ..at(16, 48, 40) };
        let (kinds, code, head, bytecode_positions, deoptimization) = match version {
            (10, _) => ((11, 13), in_object, 128, 32, (2, 6, 7)),
            (11, _) => ((11, 13), at(16, 48, 56), 16, 32, (2, 6, 7)),
            (12, _) => ((10, 12), at(8, 48, 52), 32, 24, (2, 6, 7)),
            _ => ((10, 12), at(8, 52, 56), 32, 24, (3, 7, 8)),
        };
        Ok(Self {
            types,
            kinds: Kinds { baseline: kinds.0, last: kinds.1 },
            code,
            shared: near(shared),
            name: near(name),
            script: near(script),
            source_url: if major == 10 { 104 } else { 112 },
            head,
            first_local: near(first_local.unwrap_or(3)) as usize,
            positions_first: major >= 13,
            bytecode_positions,
            bytecode_start: near(data),
            literals: deoptimization.0,
            optimized: deoptimization.1,
            inlined: deoptimization.2,
            sizes: constants.sizes.clone().or_else(|| (version == (13, 6)).then(known_sizes)),
            constants,
        })
    }
}

fn read_sizes(object: &ElfObject, bias: u64, target: &mut dyn TargetMemory) -> Option<Sizes> {
    let symbol = object.symbol(BYTECODE_SIZES)?;
    let length = usize::try_from(symbol.size).ok().filter(|size| (1..=Sizes::MAX).contains(size) && size % 3 == 0)?;
    let mut sizes = vec![0; length];
    target.read(symbol.address.wrapping_add(bias), &mut sizes).then_some(Sizes(sizes))
}

fn known_sizes() -> Sizes {
    let digits: Vec<u8> = SIZES_13_6.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
    Sizes(digits.as_chunks::<2>().0.iter().map(|[high, low]| high << 4 | low).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: the table of V8 13.6 has 208 operations with three lengths each, and wider operands never make an
    /// instruction shorter.
    #[test]
    fn sizes() {
        let Sizes(sizes) = known_sizes();
        assert_eq!(sizes.len(), 3 * 208);
        for operation in 4..208 {
            let [one, two, four] = [0, 1, 2].map(|scale| sizes[scale * 208 + operation]);
            assert!(0 < one && one <= two && two <= four && four < 32, "{operation}");
        }
    }
}
