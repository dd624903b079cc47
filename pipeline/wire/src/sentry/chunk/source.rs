//! The source of a frame, as its producer describes it.

use std::borrow::Cow;

use profbridge_model::{Dictionary, Line, Location};

use super::path;
use super::runtime::Runtime;
use crate::perf_name;

const NOTHING: &[u8] = b"";

#[derive(Debug, Clone)]
pub(super) struct FrameSource<'a> {
    pub(super) name: Cow<'a, [u8]>,
    /// The module of a Python function, if the system name contains it; otherwise empty.
    pub(super) module: &'a [u8],
    /// The source file, a path or a URL; empty if there is none.
    pub(super) file: &'a [u8],
    /// The binary that contains the code.
    pub(super) package: &'a [u8],
    pub(super) line: i64,
    pub(super) column: i64,
}

/// The part of the system name before the function's own name: `shop.cart` in `shop.cart.Cart.total`.
fn module<'a>(system_name: &'a [u8], name: &[u8]) -> &'a [u8] {
    let module = system_name.strip_suffix(name).and_then(|module| module.strip_suffix(b"."));
    module.filter(|_| !name.is_empty()).unwrap_or(NOTHING)
}

impl<'a> FrameSource<'a> {
    pub(super) fn of(dictionary: &'a Dictionary, runtime: Runtime, location: &Location, line: &Line) -> Self {
        let function = line.function.map(|id| dictionary.function(id));
        let (name, file) = function.map_or((None, None), |function| {
            let name =
                if dictionary.string_bytes(function.name).is_empty() { function.system_name } else { function.name };
            (name, function.filename)
        });
        let mapped = location.mapping.filter(|_| runtime.has_machine_address() || runtime == Runtime::Error);
        let package = mapped.map_or(NOTHING, |id| dictionary.string_bytes(dictionary.mapping(id).filename));
        let file = match dictionary.string_bytes(file) {
            // The eBPF profiler's placeholder for an unknown file (`interpreter/types.go`, `UnknownSourceFile`).
            b"<unknown>" => NOTHING,
            file => file,
        };
        let known = dictionary.string_bytes(name);
        let module = match function {
            Some(function) if runtime == Runtime::Python => {
                module(dictionary.string_bytes(function.system_name), known)
            }
            _ => NOTHING,
        };
        let mut source = Self { name: known.into(), module, file, package, line: line.line, column: line.column };
        if matches!(runtime, Runtime::Node | Runtime::Python | Runtime::Java)
            && let Some(parsed) = perf_name::parse(dictionary.string(name))
            && Runtime::from(parsed.compiler) == runtime
        {
            source.fill_in(parsed);
        }
        // The eBPF profiler reports the assembly in place of the source file.
        if runtime == Runtime::Dotnet && (file.ends_with(b".dll") || file.ends_with(b".exe")) {
            (source.file, source.package) = (NOTHING, file);
        }
        source
    }

    /// Uses the data of a parsed perf map name where other data is missing.
    fn fill_in(&mut self, parsed: perf_name::PerfName<'a>) {
        self.name = match parsed.function {
            Cow::Borrowed(name) => name.as_bytes().into(),
            Cow::Owned(name) => name.into_bytes().into(),
        };
        if self.file.is_empty() {
            self.file = parsed.file.as_bytes();
        }
        if self.line <= 0 {
            (self.line, self.column) = (parsed.line.into(), parsed.column.into());
        }
    }

    /// The source file for display.
    ///
    /// For a Python file with a known module it is the same as in Sentry's SDK (getsentry/sentry-python
    /// `sentry_sdk/utils.py`, `filename_for_module`): the path from the folder of the outermost package on, if the
    /// module's name shows it.
    pub(super) fn shown<'p>(runtime: Runtime, module: &[u8], path: &'p [u8]) -> &'p [u8] {
        if runtime != Runtime::Python || module.is_empty() || module == path {
            return path;
        }
        let path_only = path.strip_suffix(b"c").filter(|path| path.ends_with(b".py")).unwrap_or(path);
        if !module.contains(&b'.') {
            return path::basename(path_only);
        }
        let stem = path_only.strip_suffix(b".py").unwrap_or(path_only);
        let stem = stem.strip_suffix(b"/__init__").unwrap_or(stem);
        let is_it = |(byte, of): (&u8, &u8)| byte == of || (*byte == b'/' && *of == b'.');
        match stem.len().checked_sub(module.len()) {
            Some(start) if stem[start..].iter().zip(module).all(is_it) && (start == 0 || stem[start - 1] == b'/') => {
                &path_only[start..]
            }
            _ => path,
        }
    }

    /// The source file's path.
    pub(super) fn path(&self) -> Cow<'a, [u8]> {
        path::of_url(self.file)
    }
}
