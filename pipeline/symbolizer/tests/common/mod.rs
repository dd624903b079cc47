//! Helpers of the tests: building programs, running tools, and handmade files.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use profbridge_symbolizer::{
    Object, ObjectId, ObjectKey, ObjectSource, Settings, SymbolAnswer, SymbolFrame, Symbolizer,
};

/// Timeout for the background thread, far longer than needed.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// Whether a tool is installed. If not, prints a message, since the test then proves nothing.
pub(crate) fn has(tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("SKIPPED: `{tool}` is not on this machine");
    }
    found
}

/// Runs a tool, which must succeed.
pub(crate) fn run<A: AsRef<OsStr>>(tool: &str, arguments: impl IntoIterator<Item = A>) -> String {
    let output = Command::new(tool).args(arguments).output().unwrap_or_else(|error| panic!("{tool}: {error}"));
    assert!(output.status.success(), "{tool}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The source of one of the programs next to the tests.
pub(crate) fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name)
}

/// Builds one of the programs next to the tests.
pub(crate) fn build(compiler: &str, source: &str, out: &Path, options: &[&str]) -> PathBuf {
    let source = self::source(source);
    let mut arguments: Vec<&OsStr> = options.iter().map(OsStr::new).collect();
    arguments.extend([source.as_os_str(), OsStr::new("-o"), out.as_os_str()]);
    run(compiler, arguments);
    out.to_owned()
}

/// One of the programs next to the tests, built in a new folder. `None` if a tool is missing.
pub(crate) fn built(tools: &[&str], source: &str, options: &[&str]) -> Option<(tempfile::TempDir, PathBuf)> {
    if !tools.iter().all(|tool| has(tool)) {
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = build(tools[0], source, &folder.path().join("program"), options);
    Some((folder, program))
}

/// Settings without any folders of this machine.
pub(crate) fn settings() -> Settings {
    Settings { debug_folders: Vec::new(), ..Settings::default() }
}

/// An object identified only by its path.
pub(crate) fn object_at(path: &Path) -> Object {
    Object {
        key: ObjectKey::Other(path.to_string_lossy().into()),
        source: ObjectSource::Path(path.to_owned()),
        root: None,
        path: path.to_string_lossy().into_owned(),
    }
}

/// A symbolizer with one object.
pub(crate) struct One {
    pub(crate) symbolizer: Symbolizer,
    pub(crate) object: ObjectId,
}

impl One {
    pub(crate) fn new(settings: Settings, object: Object) -> Self {
        let symbolizer = Symbolizer::start(settings).unwrap();
        let object = symbolizer.object(object);
        Self { symbolizer, object }
    }

    /// Asks, waits, and returns the final answers.
    pub(crate) fn answers(&self, addresses: &[u64]) -> Vec<SymbolAnswer> {
        assert_eq!(self.symbolizer.ask(self.object, addresses), addresses.len());
        assert!(self.symbolizer.wait(LIMIT), "{:?}", self.symbolizer.counters());
        let answers = addresses.iter().map(|&address| self.symbolizer.answer(self.object, address));
        answers.inspect(|answer| assert!(!answer.is_late())).collect()
    }

    /// The innermost function of each address.
    pub(crate) fn functions(&self, addresses: &[u64]) -> Vec<Option<String>> {
        self.answers(addresses).iter().map(|answer| function(answer).map(str::to_owned)).collect()
    }

    pub(crate) fn answer(&self, address: u64) -> SymbolAnswer {
        self.answers(&[address]).remove(0)
    }
}

/// The innermost function of an answer.
pub(crate) fn function(answer: &SymbolAnswer) -> Option<&str> {
    frames(answer).first().map(|frame| &*frame.function)
}

pub(crate) fn frames(answer: &SymbolAnswer) -> &[SymbolFrame] {
    answer.symbols().map_or(&[], |symbols| &symbols.frames)
}

/// A symbol as `nm` prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Symbol {
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) name: String,
}

/// The functions of a file that have a size, according to `nm`.
pub(crate) fn nm(path: &Path, options: &[&str]) -> Vec<Symbol> {
    let mut arguments = vec![OsStr::new("--print-size"), OsStr::new("--defined-only")];
    arguments.extend(options.iter().map(OsStr::new));
    arguments.push(path.as_os_str());
    run("nm", arguments).lines().filter_map(symbol).collect()
}

fn symbol(line: &str) -> Option<Symbol> {
    let mut parts = line.splitn(4, ' ');
    let address = u64::from_str_radix(parts.next()?, 16).ok()?;
    let size = u64::from_str_radix(parts.next()?, 16).ok()?;
    let kind = parts.next()?;
    let name = parts.next()?.to_owned();
    matches!(kind, "t" | "T" | "w" | "W").then_some(Symbol { address, size, name })
}

/// The address of the only symbol with a name.
pub(crate) fn address_of(path: &Path, name: &str) -> u64 {
    nm(path, &[]).into_iter().find(|symbol| symbol.name == name).unwrap_or_else(|| panic!("no {name}")).address
}

pub(crate) fn open(path: &Path) -> File {
    File::open(path).unwrap()
}
