//! The known runtimes, how their files are recognised, and how they can be made to name their code.
//!
//! Each of them writes names to the perf map of its process, `/tmp/perf-PID.map`, which the sampler reads.

use profbridge_sampler::message::Mapping;

use crate::terminal::base_name;

/// The runtime of a program's code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Runtime {
    /// OpenJDK's virtual machine.
    HotSpot,
    /// Eclipse OpenJ9, in IBM Semeru.
    OpenJ9,
    /// Node.js.
    Node,
    Deno,
    DotNet,
    /// Erlang and Elixir.
    Beam,
    /// CPython, with major and minor version if the file name contains them.
    Python(Option<(u32, u32)>),
    /// CRuby.
    Ruby,
    /// PHP, on the command line, in FPM or in a web server.
    Php,
    Perl,
    Go,
    /// Machine code without a known runtime.
    Native,
}

/// The CPython versions whose functions the sampler can read from memory.
const PYTHON: std::ops::RangeInclusive<(u32, u32)> = (3, 8)..=(3, 14);

impl Runtime {
    /// The runtime mapped into a process; of several (Python in a JVM) one that compiles code is preferred.
    pub(crate) fn of(files: &[Mapping]) -> Self {
        let known = files.iter().filter_map(|file| Self::of_file(&file.path));
        // A file name with a version is better than one without (`libpython3.so`).
        let known = known.reduce(|known, other| match (known, other) {
            (Self::Python(known), Self::Python(other)) => Self::Python(known.max(other)),
            (known, other) => known.min(other),
        });
        let go = || files.iter().any(|file| file.go).then_some(Self::Go);
        known.or_else(go).unwrap_or(Self::Native)
    }

    /// The runtime that a file belongs to.
    pub(super) fn of_file(path: &str) -> Option<Self> {
        let name = base_name(path);
        let name = name.strip_suffix(" (deleted)").unwrap_or(name);
        Some(match name {
            "libjvm.so" => Self::HotSpot,
            "node" | "nodejs" => Self::Node,
            "deno" => Self::Deno,
            "libcoreclr.so" => Self::DotNet,
            "beam.smp" => Self::Beam,
            _ if name.starts_with("libj9vm") => Self::OpenJ9,
            _ if name.starts_with("libnode.so") => Self::Node,
            _ if versioned(name, "ruby") || library(name, "libruby") => Self::Ruby,
            _ if ["php", "php-fpm", "php-cgi"].iter().any(|php| versioned(name, php)) || library(name, "libphp") => {
                Self::Php
            }
            _ if versioned(name, "perl") || library(name, "libperl") => Self::Perl,
            _ if versioned(name, "python") => Self::Python(version(&name["python".len()..])),
            _ if library(name, "libpython") => Self::Python(version(&name["libpython".len()..])),
            _ => return None,
        })
    }

    /// Its name in a sentence.
    pub(super) fn what(self) -> String {
        match self {
            Self::HotSpot => "Java (HotSpot)".to_owned(),
            Self::OpenJ9 => "Java (OpenJ9)".to_owned(),
            Self::Node => "JavaScript (Node, V8)".to_owned(),
            Self::Deno => "JavaScript (Deno, V8)".to_owned(),
            Self::DotNet => ".NET".to_owned(),
            Self::Beam => "Erlang".to_owned(),
            Self::Python(Some((major, minor))) => format!("Python {major}.{minor}"),
            Self::Python(None) => "Python".to_owned(),
            Self::Ruby => "Ruby".to_owned(),
            Self::Php => "PHP".to_owned(),
            Self::Perl => "Perl".to_owned(),
            Self::Go => "Go".to_owned(),
            Self::Native => "machine code".to_owned(),
        }
    }

    /// Whether both are the same, ignoring versions.
    pub(super) fn is_same_kind(self, other: Self) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }

    /// Whether its programs are data of one interpreter function, whose name tells nothing about them.
    pub(super) fn is_interpreter(self) -> bool {
        matches!(self, Self::Python(_) | Self::Ruby | Self::Php | Self::Perl)
    }

    /// How to get names for code that it generates at run time.
    ///
    /// Sources: OpenJDK, `src/hotspot/share/runtime/globals.hpp` and `jcmd`'s help; OpenJ9's page of `-XX:+PerfTool`;
    /// `node --v8-options`; .NET's page of `DOTNET_PerfMapEnabled`; Erlang's BeamAsm chapter; Ruby's
    /// `doc/yjit/yjit.md`.
    pub(super) fn naming_generated(self) -> &'static str {
        match self {
            Self::HotSpot => {
                "run `jcmd PID Compiler.perfmap` once it is warm, or start it with -XX:+UnlockDiagnosticVMOptions \
                 -XX:+DumpPerfMapAtExit (Java 17 and later); attach perf-map-agent to earlier ones"
            }
            Self::OpenJ9 => "start it with -XX:+PerfTool",
            Self::Node => {
                "functions of Node 18, 20, 22 and 24 are read from memory, but for WebAssembly's, which nothing names; \
                 start other versions with --perf-basic-prof and --interpreted-frames-native-stack"
            }
            Self::Deno => "start it with --v8-flags=--perf-basic-prof,--interpreted-frames-native-stack",
            Self::DotNet => "start it with DOTNET_PerfMapEnabled=1 in its environment",
            Self::Beam => "start it with +JPperf true, or ERL_FLAGS=\"+JPperf true\" in its environment",
            Self::Ruby => "while they run, functions that its JIT compiled are not told: start it without --yjit",
            Self::Php => {
                "while they run, functions that its JIT compiled are told only of threads that are stopped (--stops \
                 always): use that, or start it with -d opcache.jit=0"
            }
            Self::Python(_) | Self::Perl | Self::Go | Self::Native => {
                "they were made at run time, and what made them can name them in a perf map (/tmp/perf-PID.map)"
            }
        }
    }

    /// How to get names for interpreted functions, if it is known why they are not read from memory: because of the
    /// version, or for a reason given in a note.
    ///
    /// Source: `Doc/howto/perf_profiling.rst` of CPython.
    pub(super) fn naming_interpreted(self, noted: bool) -> Option<&'static str> {
        match self {
            Self::Python(Some(version)) if version > *PYTHON.end() => {
                Some("start it with -X perf or PYTHONPERFSUPPORT=1 in its environment")
            }
            Self::Python(Some(version)) if version < *PYTHON.start() => {
                Some("run it with Python 3.8 to 3.14, whose functions are read from memory")
            }
            Self::Node | Self::Deno => Some(self.naming_generated()),
            Self::Perl => Some("nothing names its functions from outside"),
            Self::Python(_) | Self::Ruby | Self::Php if noted => Some("a note above says why"),
            _ => None,
        }
    }

    /// How to get names for functions of its own file.
    pub(super) fn naming_own(self) -> &'static str {
        match self {
            Self::Go => "build it without -ldflags=-s",
            _ => "build it without `strip` and -s, or install its debug symbols",
        }
    }

    /// Whether a note is about this runtime.
    pub(super) fn is_named_in(self, note: &str) -> bool {
        let name = match self {
            Self::Python(_) => "Python ",
            Self::Ruby => "Ruby ",
            Self::Php => "PHP ",
            _ => return false,
        };
        note.contains(name)
    }

    /// How to get complete stacks, if callers are guessed behind generated code (`generated`) or behind other code.
    pub(super) fn callers(self, generated: bool) -> &'static str {
        match self {
            Self::HotSpot => "start it with -XX:+PreserveFramePointer",
            Self::Ruby if generated => "--yjit-perf keeps frame pointers in compiled code",
            Self::Php if generated => "its JIT's code has no unwind tables: start it with -d opcache.jit=0",
            Self::Node | Self::Deno | Self::DotNet | Self::Beam | Self::Go => {
                "native extensions without unwind tables may be in between: build them with -fno-omit-frame-pointer"
            }
            Self::Ruby | Self::Php | Self::OpenJ9 | Self::Python(_) | Self::Perl | Self::Native => {
                "build what is called with -fasynchronous-unwind-tables (the default of compilers) or -fno-omit-frame-pointer"
            }
        }
    }
}

/// Whether a name is this one, with or without a version suffix: `php`, `php8.2`, `php-fpm8.2`, `ruby3.1`.
fn versioned(name: &str, base: &str) -> bool {
    let rest = name.strip_prefix(base);
    rest.is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit() || c == '.'))
}

/// Whether a name is that of a shared library of any version: `libphp.so`, `libphp8.2.so`, `libruby-3.1.so.3.1`.
fn library(name: &str, base: &str) -> bool {
    name.starts_with(base) && (name.ends_with(".so") || name.contains(".so."))
}

/// The major and minor version in the text after `python` or `libpython`: `3.11`, `3.11.so.1.0`.
fn version(rest: &str) -> Option<(u32, u32)> {
    let (major, rest) = rest.split_once('.')?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    Some((major.parse().ok()?, rest[..end].parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(paths: &[&str], go: bool) -> Vec<Mapping> {
        let file = |path: &&str| Mapping { path: (*path).to_owned(), end: 1, go, ..Mapping::default() };
        paths.iter().map(file).collect()
    }

    /// Guarantees: each runtime is recognised by its file names in distributions, and no other file is.
    #[test]
    fn files_of_runtimes() {
        for (path, runtime) in [
            ("/usr/lib/jvm/java-17/lib/server/libjvm.so", Some(Runtime::HotSpot)),
            ("/opt/semeru/lib/default/libj9vm29.so", Some(Runtime::OpenJ9)),
            ("/usr/bin/node", Some(Runtime::Node)),
            ("/usr/lib/x86_64-linux-gnu/libnode.so.108", Some(Runtime::Node)),
            ("/usr/bin/deno", Some(Runtime::Deno)),
            ("/usr/share/dotnet/shared/Microsoft.NETCore.App/8.0.1/libcoreclr.so", Some(Runtime::DotNet)),
            ("/usr/lib/erlang/erts-14.2/bin/beam.smp", Some(Runtime::Beam)),
            ("/usr/bin/python3.11", Some(Runtime::Python(Some((3, 11))))),
            ("/usr/lib/libpython3.12.so.1.0 (deleted)", Some(Runtime::Python(Some((3, 12))))),
            ("/usr/bin/python", Some(Runtime::Python(None))),
            ("/usr/bin/python3", Some(Runtime::Python(None))),
            ("/usr/lib/libpython3.so", Some(Runtime::Python(None))),
            ("/usr/bin/python2.7", Some(Runtime::Python(Some((2, 7))))),
            ("/usr/lib/libpython3.6m.so.1.0", Some(Runtime::Python(Some((3, 6))))),
            ("/usr/bin/ruby3.1", Some(Runtime::Ruby)),
            ("/usr/lib/libruby-3.1.so.3.1.2", Some(Runtime::Ruby)),
            ("/usr/sbin/php-fpm8.2", Some(Runtime::Php)),
            ("/usr/bin/php", Some(Runtime::Php)),
            ("/usr/lib/apache2/modules/libphp8.2.so", Some(Runtime::Php)),
            ("/usr/bin/perl", Some(Runtime::Perl)),
            ("/usr/lib/libperl.so.5.36", Some(Runtime::Perl)),
            ("/usr/bin/node-exporter", None),
            ("/usr/bin/rubyfmt", None),
            ("/srv/python-app", None),
            ("/usr/lib/libphpcpp.a", None),
            ("[vdso]", None),
            ("", None),
        ] {
            assert_eq!(Runtime::of_file(path), runtime, "{path}");
        }
    }

    /// Guarantees: of several runtimes in a process one that compiles is chosen; Go is recognised by its compiler's
    /// marks, and everything else is machine code.
    #[test]
    fn processes() {
        assert_eq!(Runtime::of(&files(&["/a/libpython3.11.so", "/a/libjvm.so"], false)), Runtime::HotSpot);
        for python in [["/usr/lib/libpython3.so", "/a/libpython3.6m.so.1.0"], ["/usr/bin/python3.6", "/usr/bin/python"]]
        {
            assert_eq!(Runtime::of(&files(&python, false)), Runtime::Python(Some((3, 6))), "{python:?}");
        }
        assert_eq!(Runtime::of(&files(&["/srv/app"], true)), Runtime::Go);
        assert_eq!(Runtime::of(&files(&["/srv/app", "/lib/libc.so.6"], false)), Runtime::Native);
    }
}
