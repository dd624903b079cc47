//! What a function calls by itself, as its instructions say.

use std::hash::BuildHasher;
use std::ops::Range;

use foldhash::fast::FixedState;

use super::layout::instruction;
use super::text;
use crate::runtime::MAX_NAME;
use crate::runtime::target::{Bounded, Target, half_at, word};

/// The most instructions of a function that are looked through, and the most names of what they call.
const MAX_INSTRUCTIONS: u64 = 4096;
const MAX_NAMES: usize = 256;

/// What a function calls by itself. What could not be read of it, or is too much, may be anything.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Calls {
    /// Names of functions and methods, see [`hash`].
    names: Vec<u64>,
    /// It may call all that there is.
    anything: bool,
    /// It calls values, which may be any function, or goes on with a generator that it has.
    values: bool,
    /// It calls methods, or constructors: then also those that PHP calls instead (`__call`).
    methods: bool,
    /// It reads properties, which may have functions for that.
    properties: bool,
    /// It includes files, or calls `eval`.
    scripts: bool,
}

/// A name of a function, or of a method without its class: which case letters have does not count.
pub(super) fn hash(name: &str) -> u64 {
    FixedState::default().hash_one(name.to_lowercase())
}

impl Calls {
    /// Reads what the function calls that has these instructions; `None` if these cannot be read.
    pub(super) fn read(code: &Range<u64>, target: &mut Bounded<'_>) -> Option<Self> {
        let mut calls = Self::default();
        let length = code.end.saturating_sub(code.start);
        if length > MAX_INSTRUCTIONS * instruction::SIZE {
            calls.anything = true;
            return Some(calls);
        }
        let mut bytes = vec![0; usize::try_from(length).ok()?];
        target.read(code.start, &mut bytes).then_some(())?;
        for (index, one) in bytes.chunks_exact(instruction::SIZE as usize).enumerate() {
            let at = code.start.wrapping_add(index as u64 * instruction::SIZE);
            calls.add(at, one, target);
            if calls.anything {
                calls.names = Vec::new();
                break;
            }
        }
        Some(calls)
    }

    /// Whether it may call the function with this name, which is empty for scripts.
    pub(super) fn permit(&self, name: &str) -> bool {
        let by_kind = match name.as_bytes() {
            [] => self.scripts,
            // What a property has for being read.
            [b'$', ..] => self.properties,
            [b'_', b'_', ..] => self.values || self.methods,
            _ => self.values,
        };
        self.anything || by_kind || (!name.is_empty() && self.names.contains(&hash(name)))
    }

    fn add(&mut self, at: u64, bytes: &[u8], target: &mut Bounded<'_>) {
        let does = bytes[instruction::CODE];
        let is_method = instruction::METHOD_CALLS.contains(&does);
        self.values |= instruction::VALUE_CALLS.contains(&does);
        self.methods |= is_method || does == instruction::NEW;
        self.properties |= instruction::PROPERTY_READS.contains(&does);
        self.scripts |= does == instruction::INCLUDE;
        if !is_method && !instruction::FUNCTION_CALLS.contains(&does) {
            return;
        }
        match bytes[instruction::SECOND_TYPE] {
            instruction::CONSTANT => {
                let distance = i64::from(half_at(bytes, instruction::SECOND).cast_signed());
                let name = word(target, at.wrapping_add_signed(distance));
                let Some(name) = name.and_then(|name| text::string(target, name, MAX_NAME)) else {
                    self.anything = true;
                    return;
                };
                self.add_name(&name);
                // A function that the namespace does not have is looked for outside of it.
                if let Some((_, name)) = name.rsplit_once('\\').filter(|_| does == instruction::NAMESPACE_CALL) {
                    self.add_name(name);
                }
            }
            0 => {}
            // The name is a value.
            _ => self.values = true,
        }
    }

    fn add_name(&mut self, name: &str) {
        let hash = hash(name);
        if !self.names.contains(&hash) {
            self.anything |= self.names.len() >= MAX_NAMES;
            self.names.push(hash);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::string;
    use super::*;
    use crate::runtime::{Allowance, Recording};

    const CODE: u64 = 0x10_0000;
    const TEXTS: u64 = 0x80_0000;

    /// Instructions with the constants that they name.
    fn made(instructions: &[(u8, Option<&str>)]) -> (Range<u64>, Recording) {
        let mut recording = Recording::default();
        let (mut code, mut constants, mut texts) = (Vec::new(), Vec::new(), Vec::new());
        let end = CODE + instructions.len() as u64 * instruction::SIZE;
        for (index, (does, name)) in instructions.iter().enumerate() {
            let mut bytes = [0; instruction::SIZE as usize];
            bytes[instruction::CODE] = *does;
            if let Some(name) = name {
                bytes[instruction::SECOND_TYPE] = instruction::CONSTANT;
                let at = CODE + index as u64 * instruction::SIZE;
                let distance = i32::try_from(end + constants.len() as u64 - at).unwrap();
                bytes[instruction::SECOND..instruction::SECOND + 4].copy_from_slice(&distance.to_le_bytes());
                constants.extend((TEXTS + texts.len() as u64).to_le_bytes());
                texts.extend([0; string::TEXT as usize - 8]);
                texts.extend((name.len() as u64).to_le_bytes());
                texts.extend(name.as_bytes());
                texts.resize(texts.len().next_multiple_of(8), 0);
            }
            code.extend(bytes);
        }
        code.extend(constants);
        recording.add(CODE, &code);
        recording.add(TEXTS, &texts);
        recording.add(TEXTS + texts.len() as u64, &[0; 128]);
        (CODE..end, recording)
    }

    fn read(code: &Range<u64>, recording: &mut Recording) -> Option<Calls> {
        Calls::read(code, &mut Bounded::new(recording, Allowance { reads: 4096, bytes: 1 << 20 }))
    }

    fn calls(instructions: &[(u8, Option<&str>)]) -> Calls {
        let (code, mut recording) = made(instructions);
        read(&code, &mut recording).unwrap()
    }

    /// Guarantees: a function may call what its instructions name, in any case, and of names in a namespace also what
    /// is outside of it, where PHP looks there as well; and nothing else.
    #[test]
    fn names() {
        let calls =
            calls(&[(61, Some("strlen")), (69, Some(r"App\Sub\Collect")), (59, Some(r"App\one")), (113, Some("Make"))]);
        for name in ["strlen", "StrLen", r"App\Sub\collect", "collect", r"app\one", "make"] {
            assert!(calls.permit(name), "{name}");
        }
        for name in ["one", r"Sub\Collect", r"App\Sub\Other", "$value::get", ""] {
            assert!(!calls.permit(name), "{name}");
        }
    }

    /// Guarantees: what PHP calls without its name being there is permitted where an instruction may do that: values
    /// and generators any function, methods and constructors the magic ones, reading a property its function, `include`
    /// and `eval` scripts.
    #[test]
    fn kinds() {
        let may = |does: u8| ["any", "__call", "$value::get", ""].map(|name| calls(&[(does, None)]).permit(name));
        for does in [128, 118, 166] {
            assert_eq!(may(does), [true, true, false, false], "{does}");
        }
        for does in [112, 113, 68] {
            assert_eq!(may(does), [false, true, false, false], "{does}");
        }
        for does in [82, 94, 209] {
            assert_eq!(may(does), [false, false, true, false], "{does}");
        }
        assert_eq!(may(73), [false, false, false, true]);
        assert_eq!(may(1), [false; 4]);
        // A plain function may have such a name as well.
        assert!(calls(&[(61, Some("__"))]).permit("__") && !calls(&[(61, Some("__"))]).permit("__call"));
    }

    /// Guarantees: what is too much or cannot be read may be anything: more instructions or names than are looked at,
    /// and a name that is not there. The same name again is not another one.
    #[test]
    fn limits() {
        let names: Vec<String> = (0..=MAX_NAMES).map(|number| format!("f{number}")).collect();
        let named = |count: usize| names.iter().take(count).map(|name| (61, Some(name.as_str()))).collect::<Vec<_>>();
        let many = calls(&named(MAX_NAMES));
        assert!(many.permit("f255") && !many.permit("other") && !many.permit(""));
        let twice = calls(&[named(MAX_NAMES), named(MAX_NAMES)].concat());
        assert!(twice.permit("f255") && !twice.permit("other"));
        let more = calls(&named(MAX_NAMES + 1));
        assert!(more.permit("other") && more.permit("") && more.permit("$value::get"));
        let long = vec![(1, None); MAX_INSTRUCTIONS as usize];
        assert!(!calls(&long).permit("other"));
        assert!(calls(&[long, vec![(1, None)]].concat()).permit("other"));
        let (code, mut recording) = made(&[(61, Some("strlen"))]);
        recording.parts.remove(&TEXTS);
        assert!(read(&code, &mut recording).unwrap().permit("other"));
        recording.parts.clear();
        assert_eq!(read(&code, &mut recording), None);
    }
}
