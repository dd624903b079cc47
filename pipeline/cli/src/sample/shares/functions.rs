//! The functions of all batches, each once.

use std::collections::HashMap;

use profbridge_model::{Dictionary, Line, Location, LocationId, Profiles};

use crate::terminal::is_unprintable;
use crate::views::kind::Kind;

/// The most functions that are told apart. Code that is compiled at run time may bring any number of names; beyond this
/// one they share one entry.
const MOST_FUNCTIONS: usize = 200_000;

/// The longest name that is kept, in bytes.
const LONGEST_NAME: usize = 1024;

/// What code is called that lies in no file and has no name.
const UNKNOWN: &str = "[unknown]";

/// A function as a person knows it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Function {
    /// Its name, or the file it lies in, in brackets, where it has none. Nothing in it moves a terminal's cursor.
    pub(crate) name: Box<str>,
    /// The base name of the file it lies in: of machine code, or of the source of what an interpreter runs; empty for
    /// code outside of any file.
    pub(crate) module: Box<str>,
    /// The source file of what lies in no file of machine code, since names such as `run`, `<module>` and `<lambda>`
    /// are in many of them; empty for all else.
    pub(crate) source: Box<str>,
    /// The line where it begins, of what has no name of its own: there are many of them in a file. 0 of all else.
    pub(crate) line: u64,
    /// Whether it belongs to the program and not to the kernel, an interpreter or a library, as graphs tell it.
    pub(crate) own: bool,
}

impl Function {
    /// What is shown behind its name: the file that it lies in, and where in it where the name does not tell. `None`
    /// where there is no file, or the name is the file's.
    pub(crate) fn place(&self) -> Option<String> {
        if self.module.is_empty() || self.name.starts_with('[') {
            return None;
        }
        Some(if self.line > 0 { format!("{}:{}", self.module, self.line) } else { self.module.to_string() })
    }

    /// Whether it says more about why a thread waits than the function it called, which is one of another file:
    /// `futex` may be called for anything, a queue of an interpreter's library for one thing. The C library starts
    /// threads and programs, so it calls everything, and explains nothing.
    pub(crate) fn explains(&self, called: &Function) -> bool {
        let c_library = ["libc.", "libc-", "libpthread", "ld-"].iter().any(|prefix| self.module.starts_with(prefix));
        !self.module.is_empty() && self.module != called.module && !c_library
    }

    /// Whether nothing at all is known of it: code that was made at run time, without a perf map.
    pub(crate) fn is_unknown(&self) -> bool {
        self.module.is_empty() && &*self.name == UNKNOWN
    }

    /// Whether it waits for a process that the program started: `wait4`, under any of glibc's names for it.
    pub(crate) fn waits_for_a_child(&self) -> bool {
        const NAMES: [&str; 5] = ["wait", "wait3", "wait4", "waitid", "waitpid"];
        let name = self.name.trim_start_matches('_');
        let name = name.strip_prefix("GI_").or_else(|| name.strip_prefix("libc_")).unwrap_or(name);
        let name = name.trim_start_matches('_');
        !self.own && NAMES.contains(&name)
    }
}

/// The functions that were seen, by number.
#[derive(Debug, Default)]
pub(crate) struct Functions {
    all: Vec<Function>,
    numbers: HashMap<Function, u32>,
}

/// The functions of each location of one batch, the innermost first.
#[derive(Debug)]
pub(crate) struct Lines {
    starts: Vec<u32>,
    numbers: Vec<u32>,
}

impl Lines {
    /// The functions at a location: more than one where functions were inlined.
    pub(crate) fn of(&self, location: LocationId) -> &[u32] {
        let at = location.index();
        &self.numbers[self.starts[at] as usize..self.starts[at + 1] as usize]
    }
}

impl Functions {
    /// A function by its number.
    pub(crate) fn get(&self, number: u32) -> &Function {
        &self.all[number as usize]
    }

    /// Numbers the functions of a batch.
    pub(crate) fn intern(&mut self, batch: &Profiles) -> Lines {
        let dictionary = &**batch.dictionary();
        let locations = &dictionary.tables().locations;
        let mut lines = Lines { starts: Vec::with_capacity(locations.len() + 1), numbers: Vec::new() };
        for location in locations {
            lines.starts.push(lines.numbers.len() as u32);
            let known = dictionary.lines(location);
            if known.is_empty() {
                lines.numbers.push(self.number(function(dictionary, location, None)));
            }
            for line in known {
                lines.numbers.push(self.number(function(dictionary, location, Some(line))));
            }
        }
        lines.starts.push(lines.numbers.len() as u32);
        lines
    }

    fn number(&mut self, mut function: Function) -> u32 {
        if self.all.len() >= MOST_FUNCTIONS && !self.numbers.contains_key(&function) {
            let (name, empty) = ("[other functions]".into(), || "".into());
            function = Function { name, module: empty(), source: empty(), line: 0, own: false };
        }
        if let Some(&number) = self.numbers.get(&function) {
            return number;
        }
        let number = self.all.len() as u32;
        self.all.push(function.clone());
        self.numbers.insert(function, number);
        number
    }
}

fn function(dictionary: &Dictionary, location: &Location, line: Option<&Line>) -> Function {
    let file = location.mapping.map(|mapping| dictionary.string(dictionary.mapping(mapping).filename));
    let function = line.and_then(|line| line.function).map(|id| dictionary.function(id));
    let source = function.map(|function| dictionary.string(function.filename)).unwrap_or_default();
    let file = file.filter(|file| !file.is_empty());
    let module = file.unwrap_or(source).rsplit('/').next().unwrap_or_default();
    let name = function.map(|function| {
        let name = dictionary.string(function.name);
        if name.is_empty() { dictionary.string(function.system_name) } else { name }
    });
    let name = match name.filter(|name| !name.trim().is_empty()) {
        Some(name) => printable(name),
        // The vDSO has brackets of its own.
        None if module.starts_with('[') => printable(module),
        None if module.is_empty() => UNKNOWN.into(),
        None => printable(&format!("[{module}]")),
    };
    let own = Kind::of(dictionary, location, &name, file.unwrap_or_default(), source) == Kind::Own;
    let start = function.and_then(|function| u64::try_from(function.start_line).ok()).unwrap_or_default();
    let line = if file.is_none() && is_anonymous(&name) { start } else { 0 };
    let source = if file.is_none() { printable(source) } else { "".into() };
    Function { name, module: printable(module), source, line, own }
}

/// Whether a name stands for functions without one, with their class or outer function in front: of JavaScript, Python
/// and PHP.
fn is_anonymous(name: &str) -> bool {
    ["<anonymous>", "<lambda>", "{closure}"].iter().any(|anonymous| name.ends_with(anonymous))
}

/// Text of a target as it may be shown: it must not be able to send commands to the terminal.
pub(crate) fn printable(text: &str) -> Box<str> {
    let end = (0..=LONGEST_NAME.min(text.len())).rev().find(|&end| text.is_char_boundary(end)).unwrap_or_default();
    text[..end].chars().map(|c| if is_unprintable(c) { ' ' } else { c }).collect()
}
