//! Interned strings of answers.

use std::sync::Arc;

use hashbrown::HashSet;

use crate::demangle::demangle;

/// The memory of a string without its content, in bytes: the reference counts and its entry in the table.
const STRING_BYTES: usize = 48;

/// Interns the strings of all answers, since many addresses have the same names and files.
#[derive(Debug, Default)]
pub(super) struct Strings {
    strings: HashSet<Arc<str>>,
    bytes: usize,
}

impl Strings {
    /// The interned copy of `text`.
    pub(super) fn keep(&mut self, text: &str) -> Arc<str> {
        let before = self.strings.len();
        let string = Arc::clone(self.strings.get_or_insert_with(text, |text| text.into()));
        if self.strings.len() > before {
            self.bytes += text.len() + STRING_BYTES;
        }
        string
    }

    /// A name, demangled and as it is in the file.
    pub(super) fn names(&mut self, system_name: &str, demangles: bool) -> (Arc<str>, Arc<str>) {
        let system = self.keep(system_name);
        if !demangles {
            return (Arc::clone(&system), system);
        }
        (self.keep(&demangle(system_name)), system)
    }

    /// Drops the strings that no answer uses any more.
    pub(super) fn sweep(&mut self) {
        self.strings.retain(|string| {
            let keep = Arc::strong_count(string) > 1;
            if !keep {
                self.bytes -= string.len() + STRING_BYTES;
            }
            keep
        });
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}
