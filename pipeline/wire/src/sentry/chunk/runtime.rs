//! The runtimes that execute frames.

use profbridge_model::{AttributeSetId, Dictionary, Location, Value};

use super::path::basename;
use crate::perf_name::{self, Compiler};

/// The runtime of a frame: `profile.frame.type` of the OpenTelemetry semantic conventions (registry attribute), and the
/// error frames of the eBPF profiler (open-telemetry/opentelemetry-ebpf-profiler `libpf/frametype.go`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub(super) enum Runtime {
    /// Native code without a specific runtime, or with a runtime for which Sentry has no name.
    Native = 0,
    /// The operating system's kernel.
    Kernel,
    /// Native code of Rust. It differs from `Native` only in the rules for library code.
    Rust,
    /// A position where unwinding stopped: `unknown`, `abort-marker`, `<invalid>`.
    Error,
    Go,
    Python,
    Node,
    Java,
    Ruby,
    Php,
    Perl,
    Dotnet,
    Beam,
    Lua,
}

pub(super) const RUNTIMES: usize = Runtime::Lua as usize + 1;

impl Runtime {
    /// The runtime with this number.
    pub(super) fn from_number(number: u8) -> Self {
        use Runtime::*;
        const ALL: [Runtime; RUNTIMES] =
            [Native, Kernel, Rust, Error, Go, Python, Node, Java, Ruby, Php, Perl, Dotnet, Beam, Lua];
        ALL.get(usize::from(number)).copied().unwrap_or(Native)
    }

    /// The runtime for a frame type.
    pub(super) fn from_frame_type(kind: &str) -> Option<Self> {
        Some(match kind {
            "native" => Runtime::Native,
            "kernel" => Runtime::Kernel,
            "rust" => Runtime::Rust,
            "go" => Runtime::Go,
            "cpython" | "python" => Runtime::Python,
            "v8js" => Runtime::Node,
            "jvm" => Runtime::Java,
            "ruby" => Runtime::Ruby,
            "php" | "phpjit" => Runtime::Php,
            "perl" => Runtime::Perl,
            "dotnet" => Runtime::Dotnet,
            "beam" => Runtime::Beam,
            "luajit" => Runtime::Lua,
            "unknown" | "abort-marker" | "<invalid>" => Runtime::Error,
            _ => return None,
        })
    }

    /// The runtime of a frame without a frame type: derived from its source file, or else native.
    ///
    /// `native` is correct for a frame with only an address, and harmless for others.
    pub(super) fn from_filename(filename: &[u8]) -> Self {
        let name = basename(filename);
        match name.iter().rposition(|&byte| byte == b'.').map(|dot| &name[dot + 1..]) {
            Some(b"go") => Runtime::Go,
            Some(b"py" | b"pyx") => Runtime::Python,
            Some(b"js" | b"mjs" | b"cjs" | b"ts" | b"jsx" | b"tsx") => Runtime::Node,
            Some(b"java" | b"kt" | b"scala" | b"groovy" | b"clj") => Runtime::Java,
            Some(b"rb") => Runtime::Ruby,
            Some(b"php") => Runtime::Php,
            Some(b"pl" | b"pm") => Runtime::Perl,
            Some(b"cs" | b"fs" | b"vb") => Runtime::Dotnet,
            Some(b"ex" | b"exs" | b"erl") => Runtime::Beam,
            Some(b"lua") => Runtime::Lua,
            Some(b"rs") => Runtime::Rust,
            _ => Runtime::Native,
        }
    }

    /// The runtime in a location's attributes.
    pub(super) fn named(dictionary: &Dictionary, attributes: AttributeSetId) -> Option<Self> {
        let named = dictionary
            .attributes(Some(attributes))
            .find(|attribute| dictionary.string_bytes(attribute.key) == b"profile.frame.type");
        match named.map(|attribute| &attribute.value) {
            Some(Value::String(kind)) => {
                Some(Self::from_frame_type(dictionary.string(*kind)).unwrap_or(Runtime::Native))
            }
            _ => None,
        }
    }

    /// The runtime of a location.
    pub(super) fn of_location(dictionary: &Dictionary, location: &Location) -> Self {
        let named = location.attributes.and_then(|attributes| Self::named(dictionary, attributes));
        match named.unwrap_or_else(|| Self::guessed(dictionary, location)) {
            Runtime::Native => Self::compiled(dictionary, location).unwrap_or(Runtime::Native),
            runtime => runtime,
        }
    }

    /// The runtime of a location whose attributes do not name it.
    pub(super) fn guessed(dictionary: &Dictionary, location: &Location) -> Self {
        let function = dictionary.lines(location).first().and_then(|line| line.function);
        let filename = function.and_then(|function| dictionary.function(function).filename);
        Self::from_filename(dictionary.string_bytes(filename))
    }

    /// The runtime that compiled code outside of any file, if the function's name shows it: profilers without support
    /// for runtimes get such names from perf maps.
    pub(super) fn compiled(dictionary: &Dictionary, location: &Location) -> Option<Self> {
        let mapping = location.mapping.map_or("", |id| dictionary.string(dictionary.mapping(id).filename));
        let function = dictionary.lines(location).last().and_then(|line| line.function)?;
        if !perf_name::is_compiled_at_run_time(mapping) {
            return None;
        }
        perf_name::parse(dictionary.string(dictionary.function(function).name)).map(|name| name.compiler.into())
    }

    /// Sentry's name of the platform (event payloads, `platform`). `cocoa`, `android` and `javascript` must not be used
    /// for servers: Sentry bills and shows them as user interfaces.
    pub(super) fn platform(self) -> &'static str {
        match self {
            Runtime::Native | Runtime::Kernel | Runtime::Rust | Runtime::Error => "native",
            Runtime::Go => "go",
            Runtime::Python => "python",
            Runtime::Node => "node",
            Runtime::Java => "java",
            Runtime::Ruby => "ruby",
            Runtime::Php => "php",
            Runtime::Perl => "perl",
            Runtime::Dotnet => "csharp",
            Runtime::Beam => "elixir",
            Runtime::Lua => "other",
        }
    }

    /// Whether a virtual machine or interpreter executes the program.
    pub(super) fn is_managed(self) -> bool {
        !self.has_machine_address() && self != Runtime::Error
    }

    /// Whether a location's address is in an executable file. An interpreter's address is an index into bytecode, which
    /// a symboliser cannot use.
    pub(super) fn has_machine_address(self) -> bool {
        matches!(self, Runtime::Native | Runtime::Kernel | Runtime::Rust | Runtime::Go)
    }
}

impl From<Compiler> for Runtime {
    fn from(compiler: Compiler) -> Self {
        match compiler {
            Compiler::V8 => Runtime::Node,
            Compiler::CPython => Runtime::Python,
            Compiler::HotSpot => Runtime::Java,
        }
    }
}

/// The platform with frames in the most samples, native frames ignored, because an interpreter's frames are between
/// native ones. For each runtime, `samples` is the number of samples in which it is nearest to the leaf.
pub(super) fn dominant(samples: &[u64; RUNTIMES]) -> &'static str {
    let mut best = (0, Runtime::Native);
    for number in Runtime::Go as u8..RUNTIMES as u8 {
        if samples[usize::from(number)] > best.0 {
            best = (samples[usize::from(number)], Runtime::from_number(number));
        }
    }
    best.1.platform()
}
