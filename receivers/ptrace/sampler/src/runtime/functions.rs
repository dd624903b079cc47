//! The functions of one process's interpreters, each with a number that samples refer to.

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use crate::message::{Function, FunctionKind};

/// The most functions of one process.
pub const MAX_FUNCTIONS: usize = 65_536;

/// The most bytes of names and files of one process's functions, all together.
pub const MAX_TEXT: usize = 16 << 20;

/// The longest name of a function, in bytes.
pub const MAX_NAME: usize = 512;

/// The longest path of a function's file, in bytes.
pub const MAX_FILE: usize = 1024;

/// The name of functions that cannot be told: because memory changed while it was read, or because there are too many.
pub const UNKNOWN_FUNCTION: &str = "[unknown function]";

/// The functions that were met. Their numbers ascend from 0 without gaps.
#[derive(Debug, Default)]
pub struct Functions {
    numbers: HashMap<Function, u32, RandomState>,
    text: usize,
    /// Those that the owner was not told of yet.
    fresh: Vec<Function>,
}

impl Functions {
    /// The number of a function; that of the unknown one where there are too many. Names and paths are cut, and control
    /// characters in them are replaced.
    pub fn number(&mut self, kind: FunctionKind, name: &str, file: &str, line: u32) -> u32 {
        self.number_in("", kind, name, file, line)
    }

    /// The same for a function of a module.
    pub fn number_in(&mut self, module: &str, kind: FunctionKind, name: &str, file: &str, line: u32) -> u32 {
        // The first one of each kind, so that there is always room for it.
        let unknown = self.unknown(kind);
        let (name, module) = (plain(name, MAX_NAME), plain(module, MAX_NAME));
        let function = Function { kind, name, module, file: plain(file, MAX_FILE), line };
        self.add(function).unwrap_or(unknown)
    }

    /// The number of the function that stands for those that cannot be told.
    pub fn unknown(&mut self, kind: FunctionKind) -> u32 {
        let (name, module) = (UNKNOWN_FUNCTION.to_owned(), String::new());
        let function = Function { kind, name, module, file: String::new(), line: 0 };
        self.add(function).unwrap_or(0)
    }

    fn add(&mut self, function: Function) -> Option<u32> {
        if let Some(number) = self.numbers.get(&function) {
            return Some(*number);
        }
        let text = function.text();
        if self.numbers.len() >= MAX_FUNCTIONS || self.text + text > MAX_TEXT {
            return None;
        }
        self.text += text;
        let number = self.numbers.len() as u32;
        self.fresh.push(function.clone());
        self.numbers.insert(function, number);
        Some(number)
    }

    /// Takes the functions that the owner was not told of yet, and the number of the first one.
    pub fn take_fresh(&mut self) -> Option<(u32, Vec<Function>)> {
        let fresh = std::mem::take(&mut self.fresh);
        let first = self.numbers.len() - fresh.len();
        (!fresh.is_empty()).then_some((first as u32, fresh))
    }
}

/// The beginning of a text, at most `limit` bytes in whole characters, without control characters.
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

    /// Guarantees: equal functions have one number, numbers ascend without gaps, each function is told once, and texts
    /// are cut in whole characters and made plain.
    #[test]
    fn numbers() {
        let mut functions = Functions::default();
        let kind = FunctionKind::CPython;
        let first = functions.number(kind, "a\nb", "/x.py", 3);
        assert_eq!(functions.number(kind, "a b", "/x.py", 3), first);
        let other = functions.number(kind, &"ö".repeat(300), "/x.py", 4);
        assert_eq!((functions.unknown(kind), first, other), (0, 1, 2));
        let (from, told) = functions.take_fresh().unwrap();
        assert_eq!((from, told.len()), (0, 3));
        assert_eq!((told[1].name.as_str(), told[2].name.len()), ("a b", 512));
        assert_eq!(functions.take_fresh(), None);
        functions.number(kind, "later", "/x.py", 3);
        assert_eq!(functions.take_fresh().unwrap().0, 3);
    }

    /// Guarantees: a target with ever more functions costs a bounded amount, and the rest is the unknown function.
    #[test]
    fn bounds() {
        let mut functions = Functions::default();
        let file = "f".repeat(2000);
        for line in 0..40_000 {
            functions.number(FunctionKind::CPython, "name", &file, line);
        }
        assert!(functions.text <= MAX_TEXT);
        assert_eq!(functions.number(FunctionKind::CPython, "name", &file, 40_000), 0);
        assert_eq!(functions.number(FunctionKind::CPython, "name", &file, 0), 1);
    }
}
