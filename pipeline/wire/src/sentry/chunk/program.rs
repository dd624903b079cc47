//! The program that Python executes, by the outermost frames of its first thread.
//!
//! Python calls the file that it was started with `__main__`, and imports other modules from that file's folder, which is
//! `sys.path[0]` (CPython documentation, "Initializing the sys.path module search path"). Other profilers than our own
//! do not say a function's module, but the outermost frame is that file's. With `-m` two functions of `runpy` are around
//! it, and the folder is the one that the program was started in, which nothing says.

use profbridge_model::{Dictionary, LocationId, StackId};

use super::module::{below_folder, dotted};
use super::path::is_absolute;

/// How many frames are looked at from the outermost one on: those of the interpreter's start are before it.
const MOST_FRAMES: usize = 24;

/// The program of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Program {
    /// Its file.
    file: Vec<u8>,
    /// Whether modules are imported from its folder.
    has_folder: bool,
}

impl Program {
    /// The program of the process that has these stacks. `is_python` tells whether a location is a Python function.
    pub(super) fn find(
        dictionary: &Dictionary,
        stacks: impl Iterator<Item = StackId>,
        is_python: impl Fn(LocationId) -> bool,
    ) -> Option<Self> {
        stacks.into_iter().find_map(|stack| Self::of_stack(dictionary, stack, &is_python))
    }

    fn of_stack(dictionary: &Dictionary, stack: StackId, is_python: impl Fn(LocationId) -> bool) -> Option<Self> {
        let mut rest = dictionary.stack_bytes(Some(stack));
        let mut has_folder = true;
        for _ in 0..MOST_FRAMES {
            let Some(id) = LocationId::new(take_last(&mut rest)?) else { continue };
            if !is_python(id) {
                continue;
            }
            let function = dictionary.lines(dictionary.location(id)).last()?.function?;
            let function = dictionary.function(function);
            let file = dictionary.string_bytes(function.filename);
            match dictionary.string_bytes(function.name) {
                b"<module>" if !file.is_empty() => return Some(Self { file: file.to_vec(), has_folder }),
                b"_run_module_as_main" if has_folder => has_folder = false,
                b"_run_code" if !has_folder => {}
                _ => return None,
            }
        }
        None
    }

    /// The folder that modules are imported from.
    pub(super) fn folder(&self) -> Option<&[u8]> {
        let end = self.file.iter().rposition(|&byte| byte == b'/')?;
        Some(&self.file[..end]).filter(|_| self.has_folder && is_absolute(&self.file))
    }

    /// The module of the functions in a file, as far as the program tells it.
    pub(super) fn module(&self, file: &[u8]) -> Option<Vec<u8>> {
        if file == self.file {
            return Some(b"__main__".to_vec());
        }
        self.folder().and_then(|folder| below_folder(folder, file)).and_then(dotted)
    }
}

/// Takes the last index off a stack.
fn take_last(packed: &mut &[u8]) -> Option<u32> {
    let (last, before) = packed.split_last()?;
    // All bytes of a number but its last have the upper bit.
    let start = before.iter().rposition(|byte| byte & 0x80 == 0).map_or(0, |at| at + 1);
    let (rest, more) = before.split_at(start);
    *packed = rest;
    let number = more.iter().rev().fold(u64::from(*last), |number, byte| number << 7 | u64::from(byte & 0x7f));
    u32::try_from(number).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: the numbers of a stack are taken from its end, with one byte or several.
    #[test]
    fn from_the_end() {
        let mut packed = &[1, 0x80, 1, 0xff, 0x7f, 0, 0x81, 0x80, 4][..];
        let taken: Vec<_> = std::iter::from_fn(|| take_last(&mut packed)).collect();
        assert_eq!(taken, [1 | 4 << 14, 0, 0x3fff, 128, 1]);
    }
}
