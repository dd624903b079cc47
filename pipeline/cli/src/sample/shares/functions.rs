//! Interns the functions of all batches.

use std::collections::HashMap;

use profbridge_model::{Dictionary, Line, Location, LocationId, Profiles};

use crate::terminal::is_unprintable;
use crate::views::kind::Kind;

/// At most this many functions are distinguished. Code compiled at run time may add any number of names; further
/// functions share one entry.
const MOST_FUNCTIONS: usize = 200_000;

/// The longest name kept, in bytes.
const LONGEST_NAME: usize = 1024;

/// The name of code without file and name.
const UNKNOWN: &str = "[unknown]";

/// A function as shown to the user.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Function {
    /// Its name, or else its file in brackets. Contains no terminal control characters.
    pub(crate) name: Box<str>,
    /// The base name of its file: of machine code, or of the source of interpreted code; empty for code outside of any
    /// file.
    pub(crate) module: Box<str>,
    /// The source file of interpreted code, since names such as `run`, `<module>` and `<lambda>` occur in many; empty
    /// for other code.
    pub(crate) source: Box<str>,
    /// The first line of an anonymous function, since a file may have many; 0 for others.
    pub(crate) line: u64,
    /// Whether it belongs to the program, and not to the kernel, an interpreter or a library; graphs use this too.
    pub(crate) own: bool,
}

impl Function {
    /// The text after its name: its file, and its position there if the name is not unique. `None` if there is no file,
    /// or the name is the file's.
    pub(crate) fn place(&self) -> Option<String> {
        if self.module.is_empty() || self.name.starts_with('[') {
            return None;
        }
        Some(if self.line > 0 { format!("{}:{}", self.module, self.line) } else { self.module.to_string() })
    }

    /// Whether it explains better why a thread waits than the function it called in another file: `futex` may be called
    /// for anything, a queue of an interpreter's library for one purpose. The C library starts threads and programs, so
    /// it calls everything and explains nothing.
    pub(crate) fn explains(&self, called: &Function) -> bool {
        let c_library = ["libc.", "libc-", "libpthread", "ld-"].iter().any(|prefix| self.module.starts_with(prefix));
        !self.module.is_empty() && self.module != called.module && !c_library
    }

    /// Whether nothing is known about it: generated code without a perf map.
    pub(crate) fn is_unknown(&self) -> bool {
        self.module.is_empty() && &*self.name == UNKNOWN
    }

    /// Whether it waits for a child process: `wait4`, under any of glibc's names for it.
    pub(crate) fn waits_for_a_child(&self) -> bool {
        const NAMES: [&str; 5] = ["wait", "wait3", "wait4", "waitid", "waitpid"];
        let name = self.name.trim_start_matches('_');
        let name = name.strip_prefix("GI_").or_else(|| name.strip_prefix("libc_")).unwrap_or(name);
        let name = name.trim_start_matches('_');
        !self.own && NAMES.contains(&name)
    }
}

/// All functions so far, by number.
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
    /// The functions at a location: several if functions were inlined.
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
        // The vDSO's name already has brackets.
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

/// Whether a name is that of an anonymous function, possibly prefixed by its class or outer function, in JavaScript,
/// Python or PHP.
fn is_anonymous(name: &str) -> bool {
    ["<anonymous>", "<lambda>", "{closure}"].iter().any(|anonymous| name.ends_with(anonymous))
}

/// Makes text of the target safe to show: it must not send control sequences to the terminal.
pub(crate) fn printable(text: &str) -> Box<str> {
    let end = (0..=LONGEST_NAME.min(text.len())).rev().find(|&end| text.is_char_boundary(end)).unwrap_or_default();
    text[..end].chars().map(|c| if is_unprintable(c) { ' ' } else { c }).collect()
}
