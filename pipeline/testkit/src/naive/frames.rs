//! Converts locations to frames, with one function per rule.

use opentelemetry_proto::tonic::profiles::v1development::{Line, Location, ProfilesDictionary};

use super::{
    attributes::{indexed, string, text_of},
    chunk::NaiveFrame,
    images::{NaiveImages, mapping},
    modules::module,
};

/// The frames of one location, innermost first: one per line, or a single one without a name.
pub(super) fn frames(
    dictionary: &ProfilesDictionary,
    images: &NaiveImages,
    location: &Location,
    kind: &str,
    root_platform: &str,
) -> Vec<NaiveFrame> {
    if location.lines.is_empty() {
        return vec![frame(dictionary, images, location, None, kind, root_platform)];
    }
    location.lines.iter().map(|line| frame(dictionary, images, location, Some(line), kind, root_platform)).collect()
}

fn frame(
    dictionary: &ProfilesDictionary,
    images: &NaiveImages,
    location: &Location,
    line: Option<&Line>,
    kind: &str,
    root_platform: &str,
) -> NaiveFrame {
    let function = line
        .and_then(|line| dictionary.function_table.get(usize::try_from(line.function_index).ok()?))
        .filter(|_| line.is_some_and(|line| line.function_index > 0));
    let name = function.map_or("", |function| string(dictionary, function.name_strindex));
    let filename = non_empty(function.map_or("", |function| string(dictionary, function.filename_strindex)));
    let package = package(dictionary, location, kind);
    let (class, name) = module_and_name(kind, name);
    let file = || module(kind, name.as_deref().unwrap_or_default(), filename.as_deref().unwrap_or_default());
    let module = class.or_else(file);
    let platform = platform(kind);
    let own = in_app(
        kind,
        package.as_deref(),
        filename.as_deref(),
        (module.as_deref().or(name.as_deref()), module.is_some()),
    );
    // Sentry shows the module of in-app frames whose platform is the chunk's, and for Java only if it contains a dot.
    let names_none = platform == root_platform || (own && !matches!(platform, "native" | "go"));
    let module = module.map(|module| match kind {
        "jvm" if !module.contains('.') => format!("(default).{module}"),
        _ => module,
    });
    let is_anonymous = kind == "v8js" && filename.is_some() && name.as_deref().is_none_or(|name| name == "<anonymous>");
    let function = if is_anonymous { Some(String::new()) } else { name };
    NaiveFrame {
        abs_path: filename.clone().filter(|path| is_absolute(path)),
        lineno: line.and_then(|line| positive(line.line)),
        colno: line.and_then(|line| positive(line.column)),
        instruction_addr: instruction_addr(images, location, kind),
        platform: (!names_none).then(|| platform.to_owned()),
        in_app: Some(own),
        function: function.or_else(|| unnamed(dictionary, location, package.as_deref())),
        filename: match (kind, &module) {
            ("cpython", Some(module)) => filename.map(|path| file_of_module(&path, module)),
            _ => filename,
        },
        module,
        package,
    }
}

/// The file of a Python module, starting at the folder of its outermost package.
fn file_of_module(path: &str, module: &str) -> String {
    let below = format!("{}.py", module.replace('.', "/"));
    if module == path {
        path.to_owned()
    } else if !module.contains('.') {
        path.rsplit('/').next().unwrap_or(path).to_owned()
    } else if path.ends_with(&format!("/{below}")) {
        below
    } else {
        path.to_owned()
    }
}

/// The kind of a location's code.
pub(super) struct CodeKind {
    pub(super) frame_type: String,
    pub(super) platform: &'static str,
}

/// The kind of each location.
pub(super) fn kinds(dictionary: &ProfilesDictionary) -> Vec<CodeKind> {
    let kind = |location| {
        let frame_type = frame_type(dictionary, location);
        CodeKind { platform: platform(&frame_type), frame_type }
    };
    dictionary.location_table.iter().map(kind).collect()
}

/// `profile.frame.type`, or `native` if the producer gives only a mapping, or nothing.
fn frame_type(dictionary: &ProfilesDictionary, location: &Location) -> String {
    let attribute = indexed(dictionary, &location.attribute_indices, "profile.frame.type");
    match attribute.and_then(|value| text_of(dictionary, value)) {
        Some(kind) => kind,
        None if location.mapping_index > 0 => "native".to_owned(),
        None => String::new(),
    }
}

/// Sentry's name of a frame type's platform.
fn platform(frame_type: &str) -> &'static str {
    match frame_type {
        "cpython" => "python",
        "v8js" => "node",
        "jvm" => "java",
        "ruby" => "ruby",
        "php" => "php",
        "dotnet" => "csharp",
        "perl" => "perl",
        "beam" => "elixir",
        "go" => "go",
        "luajit" => "other",
        _ => "native",
    }
}

/// Whether addresses of this frame type are machine addresses rather than bytecode indices.
pub(super) fn has_machine_address(frame_type: &str) -> bool {
    matches!(frame_type, "native" | "kernel" | "go" | "rust")
}

/// Splits a name: a Java frame into class (module) and method, a Go frame into package and function. Other names are
/// not split.
///
/// HotSpot frames look like `void java.lang.Thread.run()` (capture of the eBPF profiler), async-profiler's like
/// `java.lang.Thread.run`.
fn module_and_name(frame_type: &str, name: &str) -> (Option<String>, Option<String>) {
    let split = match frame_type {
        "jvm" => {
            let qualified = name.split('(').next().unwrap_or(name);
            qualified.rsplit(' ').next().unwrap_or(qualified).rsplit_once('.')
        }
        // The package ends at the first dot after the last slash; type parameters may contain slashes.
        "go" => {
            let plain = name.split('[').next().unwrap_or(name);
            let slash = plain.rfind('/').map_or(0, |slash| slash + 1);
            name[slash..].find('.').map(|dot| (&name[..slash + dot], &name[slash + dot + 1..]))
        }
        "ruby" => name.rsplit_once("::").filter(|(_, function)| !function.contains(')')),
        // The class also stays in the name.
        "php" => name.rsplit_once("::").map(|(class, _)| (class, name)),
        _ => None,
    };
    match split {
        Some((module, name)) if !module.is_empty() && !name.is_empty() => {
            (Some(module.to_owned()), Some(name.to_owned()))
        }
        _ => (None, non_empty(name)),
    }
}

/// `[basename]` of the mapping, and the 4 KiB page if the mapping contains the address. All addresses in the workloads
/// are addresses in the file.
fn unnamed(dictionary: &ProfilesDictionary, location: &Location, package: Option<&str>) -> Option<String> {
    let name = format!("[{}]", basename(package?));
    let inside = mapping(dictionary, location.mapping_index)
        .is_some_and(|mapping| mapping.memory_start <= location.address && location.address < mapping.memory_limit);
    Some(if inside { format!("{name}+{:#x}", location.address / 4096 * 4096) } else { name })
}

/// The mapping's file, for frames whose code is in that file.
fn package(dictionary: &ProfilesDictionary, location: &Location, frame_type: &str) -> Option<String> {
    let mapping = mapping(dictionary, location.mapping_index).filter(|_| has_machine_address(frame_type))?;
    non_empty(string(dictionary, mapping.filename_strindex))
}

fn instruction_addr(images: &NaiveImages, location: &Location, frame_type: &str) -> Option<String> {
    if !has_machine_address(frame_type) {
        return None;
    }
    images.absolute(location.mapping_index, location.address).map(|address| format!("{address:#x}"))
}

/// Whether code is the application's own: not the kernel's, a system library's, a package's or the standard library's.
/// `name` is the module if there is one, else the function.
fn in_app(
    frame_type: &str,
    package: Option<&str>,
    filename: Option<&str>,
    (name, has_module): (Option<&str>, bool),
) -> bool {
    frame_type != "kernel"
        && !package.is_some_and(|package| is_system_library(package) || is_interpreter(package))
        && !filename.is_some_and(is_library_path)
        && !match frame_type {
            // Go functions without a package are assembly of the runtime.
            "go" => name.is_some_and(|name| is_go_standard_library(name) || !has_module),
            // Java functions without a class belong to the virtual machine.
            "jvm" => name.is_none_or(|name| is_library_class(name) || !has_module),
            // Functions bundled with the interpreter have no file.
            "cpython" | "v8js" | "php" | "ruby" | "perl" | "luajit" => filename.is_none(),
            "dotnet" => name.is_none_or(|name| {
                !name.contains('.') || name.starts_with("System.") || name.starts_with("Microsoft.")
            }),
            "native" | "rust" | "" => name.is_some_and(|name| is_linked_in(frame_type, name)),
            _ => false,
        }
}

/// Code that a compiler adds to every program: the start-up code, and the standard libraries of C++ and Rust.
fn is_linked_in(frame_type: &str, name: &str) -> bool {
    let start = ["_start", "start_thread", "clone", "__clone", "__clone3", "clone3", "__restore_rt"].contains(&name);
    let prefixes: &[&str] = match frame_type {
        "rust" => &["std::", "core::", "alloc::", "<std::", "<core::", "<alloc::", "__rust"],
        _ => &["__libc_", "std::", "__gnu_cxx::", "__cxxabiv1::", "__cxa_"],
    };
    (start && frame_type != "rust") || prefixes.iter().any(|prefix| name.starts_with(prefix))
}

/// The first path elements of `go list std`: other module paths begin with a host or a different name.
fn is_go_standard_library(package: &str) -> bool {
    const ROOTS: &str = " archive bufio bytes cmp compress container context crypto database debug embed encoding errors \
                         expvar flag fmt go hash html image index internal io iter log maps math mime net os path plugin \
                         reflect regexp runtime slices sort strconv strings structs sync syscall testing text time \
                         unicode unique unsafe vendor weak ";
    package.split('/').next().is_some_and(|root| ROOTS.contains(&format!(" {root} ")))
}

fn is_system_library(package: &str) -> bool {
    let name = basename(package);
    let shared_object = name.starts_with("lib") && (name.ends_with(".so") || name.contains(".so."));
    shared_object || name.starts_with("ld-") || name.contains("vdso") || name == "vmlinux"
}

/// Whether a file is an interpreter, like `python3.12`, whose code is never in-app.
fn is_interpreter(package: &str) -> bool {
    const NAMES: [&str; 16] = [
        "python", "pypy", "node", "nodejs", "deno", "bun", "ruby", "perl", "php", "php-fpm", "php-cgi", "java",
        "dotnet", "beam.smp", "lua", "luajit",
    ];
    let versioned = |c: char| c.is_ascii_digit() || c == '.';
    NAMES.contains(&basename(package).trim_end_matches(versioned))
}

fn is_library_path(path: &str) -> bool {
    const PARTS: [&str; 10] = [
        "site-packages/",
        "dist-packages/",
        "node_modules/",
        "/usr/lib/",
        "/usr/local/lib/python",
        "/usr/local/go/",
        "/pkg/mod/",
        "/gems/",
        "/vendor/",
        "/rustc/",
    ];
    path.starts_with("node:") || path.starts_with("<frozen") || PARTS.iter().any(|part| path.contains(part))
}

fn is_library_class(class: &str) -> bool {
    ["java.", "javax.", "jdk.", "sun.", "com.sun."].iter().any(|prefix| class.starts_with(prefix))
}

fn is_absolute(path: &str) -> bool {
    path.starts_with('/')
}

/// The last part of a path. This is a separate implementation, because the control must share nothing with the
/// converter that it is compared with.
pub(crate) fn basename(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Relay accepts lines and columns only as `u32`, and otherwise rejects the whole chunk.
fn positive(number: i64) -> Option<u32> {
    u32::try_from(number).ok().filter(|&number| number > 0)
}

fn non_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}
