//! The names that runtimes give to compiled code, in perf maps and in profiles made from them.
//!
//! A perf map has one line of text for each piece of code (perf, `tools/perf/Documentation/jit-interface.txt`), and
//! every runtime has its own format for the name. This module parses:
//!
//! * V8: `JS:*handle /srv.js:2:16`, with the compiler tier in front of the name (v8/v8 `src/logging/log.cc`,
//!   `src/objects/code-kind.cc` `CodeKindToMarker`). A function has one line for each tier that compiled it.
//! * CPython 3.12 and later: `py::digest:/srv/h.py` (python/cpython `Python/perf_trampoline.c`).
//! * HotSpot: `void com.x.Y.m(int)` (openjdk/jdk `src/hotspot/share/code/codeCache.cpp`, `write_perf_map`),
//!   `Lcom/x/Y;::m` (jvm-profiling-tools/perf-map-agent `src/c/perf-map-agent.c`), `Lcom/x/Y;m(I)V` (perf,
//!   `tools/perf/jvmti/libjvmti.c`), and the names of its stubs.
//!
//! The result matches the frame that a profiler with access to the runtime's own data would report.

use std::borrow::Cow;

#[cfg(test)]
mod tests;

/// The runtime that compiled the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Compiler {
    /// V8: Node, Deno, Electron.
    V8,
    /// CPython.
    CPython,
    /// A Java virtual machine.
    HotSpot,
}

impl Compiler {
    /// The frame's type (OpenTelemetry semantic conventions, `profile.frame.type`).
    #[must_use]
    pub fn frame_type(self) -> &'static str {
        match self {
            Self::V8 => "v8js",
            Self::CPython => "cpython",
            Self::HotSpot => "jvm",
        }
    }
}

/// A parsed name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PerfName<'a> {
    /// The runtime that compiled the code.
    pub compiler: Compiler,
    /// The function's name; for Java, class and method joined by a dot. Never empty.
    pub function: Cow<'a, str>,
    /// The source file as the runtime knows it, a path or a URL; empty if unknown.
    pub file: &'a str,
    /// The line where the function begins, from 1; 0 if unknown.
    pub line: u32,
    /// The column where the function begins, from 1; 0 if unknown.
    pub column: u32,
}

impl<'a> PerfName<'a> {
    fn new(compiler: Compiler, function: impl Into<Cow<'a, str>>) -> Self {
        Self { compiler, function: function.into(), file: "", line: 0, column: 0 }
    }
}

/// The name that runtime profilers give to a function without a name (open-telemetry/opentelemetry-ebpf-profiler
/// `interpreter/types.go`).
const ANONYMOUS: &str = "<anonymous>";

/// Parses a name. `None` if none of these runtimes generates such a name.
///
/// Call it only for code outside of any file: a C++ function can have any name.
#[must_use]
pub fn parse(name: &str) -> Option<PerfName<'_>> {
    let parsed = match name.split_once(':') {
        Some((tag, rest)) if !rest.starts_with(':') => v8(name, tag, rest),
        Some(("py", rest)) => cpython(&rest[1..]),
        _ => None,
    };
    parsed.or_else(|| hot_spot(name)).filter(|parsed| !parsed.function.is_empty())
}

/// Whether a mapping of this name holds code compiled at run time instead of a file: `perf-12.map`, `//anon`, `[JIT]
/// tid 12`, `[anon:v8]`, memory without a file (perf, `tools/perf/util/map.c`, and names that profile converters keep).
#[must_use]
pub fn is_compiled_at_run_time(mapping: &str) -> bool {
    let name = mapping.rsplit('/').next().unwrap_or(mapping);
    mapping.is_empty()
        || (name.starts_with("perf-") && name.ends_with(".map"))
        || ["//anon", "[JIT]", "[anon", "[heap]", "[unknown]", "/memfd:", "/dev/zero"]
            .iter()
            .any(|start| mapping.starts_with(start))
}

/// Parses a V8 name, split at its first colon into tag and rest.
fn v8<'a>(name: &'a str, tag: &str, rest: &'a str) -> Option<PerfName<'a>> {
    match tag {
        "JS" | "LazyCompile" | "Function" | "Eval" | "Script" => Some(java_script(without_tier(rest))),
        "Builtin" => Some(PerfName::new(Compiler::V8, rest)),
        // These names do not say what kind of code they are without the tag, so the whole name is kept.
        "BytecodeHandler" | "RegExp" | "Stub" | "Handler" => Some(PerfName::new(Compiler::V8, name)),
        _ => None,
    }
}

/// Strips the tier mark: `~` interpreted, `^` Sparkplug, `+` Maglev, `*` TurboFan, `-` Turboprop until V8 9. A `'`
/// behind it marks code that is specialised for one context.
fn without_tier(text: &str) -> &str {
    match text.strip_prefix(['~', '^', '+', '*', '-']) {
        Some(rest) => rest.strip_prefix('\'').unwrap_or(rest),
        None => text,
    }
}

/// Parses `handle /srv.js:2:16`, ` file:///srv/a.mjs:1:1` or `handle`.
fn java_script(text: &str) -> PerfName<'_> {
    let (place, column) = number_at_end(text);
    let (place, line) = if column == 0 { (place, 0) } else { number_at_end(place) };
    // A single number is the line.
    let (line, column) = if line == 0 { (column, 0) } else { (line, column) };
    let (function, file) = split_script(place);
    let function = if function.is_empty() { ANONYMOUS } else { function };
    PerfName { file, line, column, ..PerfName::new(Compiler::V8, function) }
}

/// Splits a number such as `:12` off the end; 0 if there is no number.
fn number_at_end(text: &str) -> (&str, u32) {
    let Some((front, digits)) = text.rsplit_once(':') else { return (text, 0) };
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    match digits.parse() {
        Ok(number) if is_number => (front, number),
        _ => (text, 0),
    }
}

/// Prefixes of script names. Needed because both function names (`get size`) and paths may contain spaces.
const SCRIPTS: [&str; 9] =
    ["/", "file:", "node:", "internal/", "native ", "http:", "https:", "webpack", "evalmachine."];

fn split_script(text: &str) -> (&str, &str) {
    let spaces = text.match_indices(' ').map(|(at, _)| at);
    let known = spaces.into_iter().find(|&at| SCRIPTS.iter().any(|start| text[at + 1..].starts_with(start)));
    match known.or_else(|| text.rfind(' ')) {
        Some(at) => (text[..at].trim(), text[at + 1..].trim()),
        None => (text.trim(), ""),
    }
}

/// Parses `digest:/srv/h.py`. Neither names nor CPython's additions to them (`<locals>`) contain a colon.
fn cpython(text: &str) -> Option<PerfName<'_>> {
    let (function, file) = text.split_once(':')?;
    let is_name = !file.is_empty() && !file.starts_with(':');
    is_name.then(|| PerfName { file, ..PerfName::new(Compiler::CPython, function) })
}

fn hot_spot(name: &str) -> Option<PerfName<'_>> {
    let method = descriptor(name).or_else(|| declared(name)).or_else(|| qualified(name));
    method.or_else(|| is_stub(name).then(|| PerfName::new(Compiler::HotSpot, name)))
}

/// Parses `Lcom/x/Y;::m`, `Lcom/x/Y;.m(I)V` or `Lcom/x/Y;m(Y.java:12)`: a class as a descriptor (Java Virtual Machine
/// Specification 4.3.2). In a chain of inlined functions (`Lcom/x/Y;::m->Lcom/x/Z;::n`) the innermost one is executing.
fn descriptor(name: &str) -> Option<PerfName<'_>> {
    let name = name.rsplit("->").next().unwrap_or(name);
    let (class, method) = name.strip_prefix('L')?.split_once(';')?;
    let method = method.strip_prefix("::").or_else(|| method.strip_prefix('.')).unwrap_or(method);
    let (method, arguments) = method.split_once('(').unwrap_or((method, ""));
    if !class.split('/').all(is_class_part) || !is_method(method) {
        return None;
    }
    let mut function = dotted(class);
    function.push('.');
    function.push_str(method);
    let (file, line) = source_position(arguments).unwrap_or(("", 0));
    Some(PerfName { file, line, ..PerfName::new(Compiler::HotSpot, function) })
}

/// The class name with dots. In a hidden class's name (`Y$$Lambda/0x00007f0a`) the last slash separates an address, not
/// a package.
fn dotted(class: &str) -> String {
    let mut name = class.replace('/', ".");
    if let Some(at) = class.find("/0x") {
        name.replace_range(at..=at, "/");
    }
    name
}

/// Parses the source position at the end, `Y.java:12)`.
fn source_position(arguments: &str) -> Option<(&str, u32)> {
    let (file, line) = arguments.strip_suffix(')')?.rsplit_once(':')?;
    let is_file = file.contains('.') && !file.contains([';', '/']);
    line.parse().ok().filter(|_| is_file).map(|line| (file, line))
}

/// Parses `void com.x.Y.m(int, java.lang.String)`. The return type distinguishes it from other names that end with a
/// bracket.
fn declared(name: &str) -> Option<PerfName<'_>> {
    let (declaration, arguments) = name.split_once('(')?;
    let (result, method) = declaration.split_once(' ')?;
    let is_type = result.trim_end_matches("[]").split('.').all(is_class_part);
    let (class, function) = method.rsplit_once('.')?;
    (arguments.ends_with(')') && is_type && is_class(class) && is_method(function))
        .then(|| PerfName::new(Compiler::HotSpot, method))
}

/// Parses `com.x.Y.m` or `com.x.Y::m`, with or without arguments. Only the naming conventions (Java Language
/// Specification 6.1: lower-case packages, upper-case classes) distinguish it from other names with dots.
fn qualified(name: &str) -> Option<PerfName<'_>> {
    let (method, arguments) = name.split_once('(').unwrap_or((name, ""));
    let (class, function) = method.split_once("::").or_else(|| method.rsplit_once('.'))?;
    let (package, simple) = class.rsplit_once('.')?;
    let in_package = package.starts_with(|first: char| first.is_ascii_lowercase());
    if !in_package || !simple.starts_with(char::is_uppercase) || !is_class(class) || !is_method(function) {
        return None;
    }
    let (file, line) = source_position(arguments).unwrap_or(("", 0));
    let function = if method.contains("::") { Cow::Owned(format!("{class}.{function}")) } else { method.into() };
    Some(PerfName { file, line, ..PerfName::new(Compiler::HotSpot, function) })
}

/// Whether this is a class name with dots; the name of a hidden class ends with `/0x` and a number.
fn is_class(class: &str) -> bool {
    let (class, hidden) = class.split_once("/0x").unwrap_or((class, ""));
    class.split('.').all(is_class_part) && hidden.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether this is a part of a class or package name.
fn is_class_part(part: &str) -> bool {
    !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '$' | '-' | '+'))
}

/// Whether this is a method name: `m`, `<init>`, `lambda$m$0`, `size-impl`.
fn is_method(name: &str) -> bool {
    is_class_part(name.strip_prefix('<').and_then(|name| name.strip_suffix('>')).unwrap_or(name))
}

/// Whether this is HotSpot's name for code that belongs to no method (openjdk/jdk
/// `src/hotspot/share/code/codeBlob.cpp`, `runtime/stubRoutines.cpp`, `c1/c1_Runtime1.cpp`, `opto/runtime.cpp`).
fn is_stub(name: &str) -> bool {
    let known = [
        "Interpreter",
        "vtable stub",
        "itable stub",
        "vtable chunks",
        "call_stub",
        "flush_icache_stub",
        "I2C/C2I adapters",
        "MethodHandles adapters",
        "InlineCacheBuffer",
        "SafepointBlob",
        "DeoptimizationBlob",
        "ExceptionBlob",
        "UncommonTrapBlob",
        "native signature handlers",
    ];
    let ends = [" Runtime1 stub", " throw_exception", "_Java"];
    name.starts_with("StubRoutines") || known.contains(&name) || ends.iter().any(|end| name.ends_with(end))
}
