//! The functions of one process's interpreters, each with a number that samples refer to.

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use crate::message::{Function, FunctionKind};

/// The maximum number of functions of one process.
pub const MAX_FUNCTIONS: usize = 65_536;

/// The maximum size of all names and files of one process's functions, in bytes.
pub const MAX_TEXT: usize = 16 << 20;

/// How much longer all file paths together may get when folders are put in front of them, in bytes.
pub const MAX_FOLDERS: usize = 1 << 20;

/// The longest name of a function, in bytes.
pub const MAX_NAME: usize = 512;

/// The longest path of a function's file, in bytes.
pub const MAX_FILE: usize = 1024;

/// The name shown for functions that could not be determined: because memory changed during the read, or because there
/// are too many.
pub const UNKNOWN_FUNCTION: &str = "[unknown function]";

/// Numbers and text are reserved for one unknown function of each kind, since it may be needed after the limits are
/// reached.
const KINDS: usize = FunctionKind::COUNT;
const UNKNOWN_TEXT: usize = KINDS * UNKNOWN_FUNCTION.len();

/// The known functions. Their numbers ascend from 0 without gaps.
#[derive(Debug, Default)]
pub struct Functions {
    numbers: HashMap<Function, u32, RandomState>,
    /// The numbers of the unknown functions, by kind.
    unknown: [Option<u32>; KINDS],
    text: usize,
    /// Functions that were not sent to the owner yet.
    fresh: Vec<Function>,
}

impl Functions {
    /// Returns the number of a function, or that of the unknown function if there are too many. Names and paths are
    /// cut, and control characters in them are replaced.
    pub fn number(&mut self, kind: FunctionKind, name: &str, file: &str, line: u32) -> u32 {
        self.number_in("", kind, name, file, line)
    }

    /// The same as [`Self::number`], for a function in a module.
    pub fn number_in(&mut self, module: &str, kind: FunctionKind, name: &str, file: &str, line: u32) -> u32 {
        let unknown = self.unknown(kind);
        let (name, module) = (plain(name, MAX_NAME), plain(module, MAX_NAME));
        let function = Function { kind, name, module, file: plain(file, MAX_FILE), line };
        self.add(function).unwrap_or(unknown)
    }

    /// The number of the unknown function of a kind.
    pub fn unknown(&mut self, kind: FunctionKind) -> u32 {
        if let Some(number) = self.unknown[kind as usize] {
            return number;
        }
        let (name, module) = (UNKNOWN_FUNCTION.to_owned(), String::new());
        let number = self.insert(Function { kind, name, module, file: String::new(), line: 0 });
        self.unknown[kind as usize] = Some(number);
        number
    }

    /// Adds a function and returns its number; `None` if there are too many.
    fn add(&mut self, function: Function) -> Option<u32> {
        if let Some(number) = self.numbers.get(&function) {
            return Some(*number);
        }
        let is_room =
            self.numbers.len() < MAX_FUNCTIONS - KINDS && self.text + function.text() <= MAX_TEXT - UNKNOWN_TEXT;
        is_room.then(|| self.insert(function))
    }

    fn insert(&mut self, function: Function) -> u32 {
        self.text += function.text();
        let number = self.numbers.len() as u32;
        self.fresh.push(function.clone());
        self.numbers.insert(function, number);
        number
    }

    /// Takes the functions that were not sent to the owner yet, and the number of the first one.
    pub fn take_fresh(&mut self) -> Option<(u32, Vec<Function>)> {
        let fresh = std::mem::take(&mut self.fresh);
        let first = self.numbers.len() - fresh.len();
        (!fresh.is_empty()).then_some((first as u32, fresh))
    }
}

/// The start of a text, at most `limit` bytes in whole characters, without control characters.
pub(crate) fn plain(text: &str, limit: usize) -> String {
    let mut end = limit.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: equal functions have one number, numbers ascend without gaps, each function is returned once as
    /// new, and texts are cut at whole characters and cleaned of control characters.
    #[test]
    fn numbers() {
        let mut functions = Functions::default();
        let kind = FunctionKind::CPython;
        let first = functions.number(kind, "a\nb", "/x.py", 3);
        assert_eq!(functions.number(kind, "a b", "/x.py", 3), first);
        let other = functions.number(kind, &"ö".repeat(300), "/x.py", 4);
        // A real function that has the name of the unknown one.
        let named_unknown = functions.number(kind, UNKNOWN_FUNCTION, "", 0);
        assert_eq!((functions.unknown(kind), first, other, named_unknown), (0, 1, 2, 0));
        let (from, fresh) = functions.take_fresh().unwrap();
        assert_eq!((from, fresh.len()), (0, 3));
        assert_eq!((fresh[1].name.as_str(), fresh[2].name.len()), ("a b", 512));
        assert_eq!(functions.take_fresh(), None);
        functions.number(kind, "later", "/x.py", 3);
        assert_eq!(functions.take_fresh().unwrap().0, 3);
    }

    /// Guarantees: a target with ever more functions costs bounded memory, and the rest becomes the unknown function.
    /// If a kind is first needed after a limit is reached, it still gets an unknown function of its own.
    #[test]
    fn bounds() {
        for (file, count) in [("", MAX_FUNCTIONS as u32), (&*"f".repeat(2000), 40_000)] {
            let mut functions = Functions::default();
            for line in 0..count {
                functions.number(FunctionKind::CPython, "name", file, line);
            }
            assert_eq!([count, 0].map(|line| functions.number(FunctionKind::CPython, "name", file, line)), [0, 1]);
            let late = [FunctionKind::Php, FunctionKind::V8, FunctionKind::Ruby];
            let numbers = late.map(|kind| [functions.number(kind, "name", file, 7), functions.unknown(kind)]);
            let (first, fresh) = functions.take_fresh().unwrap();
            assert_eq!(first, 0);
            for (kind, number) in late.iter().zip(numbers) {
                let [named, unknown] = number.map(|number| &fresh[number as usize]);
                assert_eq!((unknown.kind, unknown.name.as_str()), (*kind, UNKNOWN_FUNCTION));
                assert_eq!(named, unknown);
            }
            assert!(fresh.len() <= MAX_FUNCTIONS && functions.text <= MAX_TEXT);
        }
    }
}
