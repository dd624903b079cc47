//! Classifies functions by the origin of their code, for colours and sorting.

use profbridge_model::{Dictionary, Location, Value};

/// The origin of a function's code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// The profiled program.
    Own,
    /// A library of the system, a language or a package.
    Library,
    /// Machine code of an interpreter or a virtual machine.
    Interpreter,
    /// The kernel.
    Kernel,
}

impl Kind {
    /// All kinds, most important first.
    pub(crate) const ALL: [Self; 4] = [Self::Own, Self::Library, Self::Interpreter, Self::Kernel];

    /// The name in legends.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Own => "own code",
            Self::Library => "library",
            Self::Interpreter => "interpreter",
            Self::Kernel => "kernel",
        }
    }

    /// Classifies a function by its name, the file with its machine code, its source file, and its location.
    pub(crate) fn of(dictionary: &Dictionary, location: &Location, name: &str, file: &str, source: &str) -> Self {
        let module = file.rsplit('/').next().unwrap_or_default();
        let frame_type = match dictionary.find(location.attributes, "profile.frame.type") {
            Some(Value::String(kind)) => dictionary.string(*kind),
            _ => "",
        };
        if frame_type == "kernel" || module.starts_with("[kernel") || module == "vmlinux" {
            return Self::Kernel;
        }
        // Interpreted functions have no file of machine code, or have a language as frame type.
        if matches!(frame_type, "" | "native") && is_interpreter(module) {
            return Self::Interpreter;
        }
        // Extensions of an interpreter are recognized by their path, not their name.
        let is_extension = || module.contains(".so") && is_library_source(file);
        if is_system_library(module) || is_extension() || is_standard_library(name) || is_library_source(source) {
            return Self::Library;
        }
        Self::Own
    }
}

/// Files with an interpreter or a virtual machine, by their base names on Linux, with or without a version.
fn is_interpreter(module: &str) -> bool {
    const PROGRAMS: [&str; 16] = [
        "python", "pypy", "node", "nodejs", "deno", "bun", "ruby", "perl", "php", "php-fpm", "php-cgi", "java",
        "dotnet", "beam.smp", "lua", "luajit",
    ];
    const LIBRARIES: [&str; 10] = [
        "libpython",
        "libnode",
        "libruby",
        "libperl",
        "libphp",
        "libjvm",
        "libj9vm",
        "libcoreclr",
        "libluajit",
        "liblua",
    ];
    let module = module.strip_suffix(" (deleted)").unwrap_or(module);
    let base = module.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    PROGRAMS.contains(&base) || LIBRARIES.iter().any(|library| module.starts_with(library))
}

/// System libraries, by their names on Linux.
fn is_system_library(module: &str) -> bool {
    let shared = module.starts_with("lib") && (module.ends_with(".so") || module.contains(".so."));
    shared || module.starts_with("ld-") || module.contains("vdso")
}

/// Source files that do not belong to the program: of a language's library, of packages, of system headers. Inlining
/// and static linking put their functions into the program's own file.
fn is_library_source(path: &str) -> bool {
    const FOLDERS: [&str; 11] = [
        "/rustc/",
        "/.rustup/",
        "/.cargo/",
        "/usr/include/",
        "/go/src/",
        "/go/pkg/mod/",
        "/usr/lib/",
        "/lib/python3",
        "/site-packages/",
        "/dist-packages/",
        "/node_modules/",
    ];
    // Modules built into the executables of Python and Node.
    let built_in = ["<frozen ", "node:"].iter().any(|prefix| path.starts_with(prefix));
    built_in || FOLDERS.iter().any(|folder| path.contains(folder))
}

/// Functions of standard libraries, and the functions that start a program.
fn is_standard_library(name: &str) -> bool {
    const PREFIXES: [&str; 8] = ["std::", "core::", "alloc::", "<std::", "<core::", "<alloc::", "__rust", "runtime."];
    const START: [&str; 4] = ["_start", "__libc_start_main", "__libc_start_call_main", "clone3"];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || START.contains(&name)
}

#[cfg(test)]
mod tests {
    use profbridge_model::{Builder, Location, Mapping};

    use super::*;

    /// Guarantees: code is told by its type, the file it lies in, its source file and its name.
    #[test]
    fn kinds() {
        let kind = |frame_type: &str, name: &str, file: &str, source: &str| {
            let mut builder = Builder::new();
            let attributes = builder.attributes(&[("profile.frame.type", frame_type.into())]);
            let filename = builder.string(file);
            let mapping = builder.mapping(Mapping { filename, memory_limit: 1, ..Mapping::default() });
            let location = Location { attributes, mapping, ..Location::default() };
            builder.location(location, &[]);
            let batch = builder.finish().unwrap();
            let location = batch.dictionary().tables().locations.last().unwrap();
            Kind::of(batch.dictionary(), location, name, file, source)
        };
        for (expected, [frame_type, name, file, source]) in [
            (Kind::Kernel, ["kernel", "do_syscall_64", "", ""]),
            (Kind::Kernel, ["native", "x", "[kernel.kallsyms]", ""]),
            (Kind::Own, ["native", "shop::rank", "shop", "/srv/shop/rank.rs"]),
            (Kind::Own, ["native", "", "", ""]),
            (Kind::Library, ["native", "memcpy", "libc.so.6", ""]),
            (Kind::Library, ["native", "core::hash::f", "shop", ""]),
            (Kind::Library, ["native", "scan", "/usr/lib/python3.12/lib-dynload/_json.cpython-312.so", ""]),
            (Kind::Own, ["native", "scan", "/srv/shop/fast.cpython-312.so", ""]),
            (Kind::Own, ["native", "main", "/usr/lib/postgresql/15/bin/postgres", ""]),
            (Kind::Library, ["native", "f", "shop", "/home/shop/.cargo/registry/src/a/lib.rs"]),
            (Kind::Interpreter, ["native", "_PyEval_EvalFrameDefault", "python3.12", ""]),
            (Kind::Interpreter, ["native", "_PyEval_EvalFrameDefault", "libpython3.12.so.1.0", ""]),
            (Kind::Interpreter, ["", "v8::internal::Runtime", "node", ""]),
            (Kind::Own, ["cpython", "rank", "", "/srv/shop/rank.py"]),
            (Kind::Own, ["cpython", "rank", "python3.12", "/srv/shop/rank.py"]),
            (Kind::Library, ["cpython", "dumps", "", "/usr/local/lib/python3.12/json/__init__.py"]),
            (Kind::Library, ["cpython", "_find_and_load", "", "<frozen importlib._bootstrap>"]),
            (Kind::Library, ["v8js", "emit", "", "node:events"]),
            (Kind::Own, ["native", "main", "nodeship", ""]),
        ] {
            assert_eq!(kind(frame_type, name, file, source), expected, "{frame_type} {name} {file} {source}");
        }
    }
}
