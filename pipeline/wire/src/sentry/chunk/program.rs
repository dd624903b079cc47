//! Finds the Python program of a process from the outermost frames of its first thread.
//!
//! Python names the started file `__main__`, and imports other modules from that file's folder, which is `sys.path[0]`
//! (CPython documentation, "Initializing the sys.path module search path"). Unlike our own profiler, others do not
//! report a function's module, but the outermost frame is in the started file. With `-m`, two functions of `runpy` are
//! outside of that frame, and the import folder is the working folder at the start, which is unknown.

use profbridge_model::{Dictionary, LocationId, StackId};

use super::module::{below_folder, dotted};
use super::path::is_absolute;
use super::runtime::Runtime;
use super::source::FrameSource;

/// Maximum number of frames to inspect, from the outermost one on. The first ones belong to the interpreter's start.
const MOST_FRAMES: usize = 24;

/// The Python program of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Program {
    /// The file of the program.
    file: Vec<u8>,
    /// Whether modules are imported from the file's folder.
    has_folder: bool,
}

impl Program {
    /// Finds the program of the process with these stacks. `is_python` returns whether a location is a Python function.
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
            let location = dictionary.location(id);
            let source = FrameSource::of(dictionary, Runtime::Python, location, dictionary.lines(location).last()?);
            match &*source.name {
                b"<module>" if !source.file.is_empty() => {
                    return Some(Self { file: source.file.to_vec(), has_folder });
                }
                b"_run_module_as_main" if has_folder => has_folder = false,
                b"_run_code" if !has_folder => {}
                _ => return None,
            }
        }
        None
    }

    /// The folder from which modules are imported.
    pub(super) fn folder(&self) -> Option<&[u8]> {
        let end = self.file.iter().rposition(|&byte| byte == b'/')?;
        Some(&self.file[..end]).filter(|_| self.has_folder && is_absolute(&self.file))
    }

    /// The module of the functions in a file, if the program determines it.
    pub(super) fn module(&self, file: &[u8]) -> Option<Vec<u8>> {
        if file == self.file {
            return Some(b"__main__".to_vec());
        }
        self.folder().and_then(|folder| below_folder(folder, file)).and_then(dotted)
    }
}

/// Removes the last index from a stack.
fn take_last(packed: &mut &[u8]) -> Option<u32> {
    let (last, before) = packed.split_last()?;
    // All bytes of an index except the last have the top bit set.
    let start = before.iter().rposition(|byte| byte & 0x80 == 0).map_or(0, |at| at + 1);
    let (rest, more) = before.split_at(start);
    *packed = rest;
    let number = more.iter().rev().fold(u64::from(*last), |number, byte| number << 7 | u64::from(byte & 0x7f));
    u32::try_from(number).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: the indices of a stack are read from its end, with one byte or several.
    #[test]
    fn from_the_end() {
        let mut packed = &[1, 0x80, 1, 0xff, 0x7f, 0, 0x81, 0x80, 4][..];
        let taken: Vec<_> = std::iter::from_fn(|| take_last(&mut packed)).collect();
        assert_eq!(taken, [1 | 4 << 14, 0, 0x3fff, 128, 1]);
    }
}
