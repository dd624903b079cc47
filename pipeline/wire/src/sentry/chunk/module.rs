//! Derives the module of a source file, for functions whose name does not contain the module.
//!
//! Sentry identifies functions by module and name, never by file, so the functions of a file need a module. If the
//! language's Sentry SDK sends a module, the same one is used, so that a program looks the same in Sentry whichever
//! profiler recorded it; otherwise the path is the module. Two files never share a module, unless the SDK's own rule
//! causes this, or they are below different roots.
//!
//! For libraries, well-known folders mark where the module name begins. For files of the application it begins below
//! the folder in which the program was started or to which it was installed. No profiler sends that folder, so the
//! operator may configure such roots. Python's SDK sends names without a folder, so for Python the program's folder is
//! also derived from its outermost frame, and some roots are known by convention.

use std::borrow::Cow;

use super::naming::{SplitName, split};
use super::path::is_absolute;
use super::program::Program;
use super::runtime::Runtime;
use super::source::FrameSource;

/// Conventional roots: the working folders of container images (docker-library's `/usr/src/app`, buildpacks' and
/// devcontainers' `/workspace`, AWS Lambda's `/var/task`). An image has only one of them, and none contains another, so
/// two files below a root have different modules.
///
/// `/opt`, `/srv`, `/root`, home directories and their subfolders are not roots: a machine has several of them, with
/// several projects in each, so `/srv/main.py` and `/home/me/main.py` would become the same module. Their paths do not
/// show the imported name.
const KNOWN_ROOTS: [&str; 5] = ["/app", "/usr/src/app", "/code", "/workspace", "/var/task"];

/// The root folders of applications.
#[derive(Debug, Clone, Copy)]
pub(super) struct Roots<'a> {
    /// The roots that the operator configured.
    pub(super) configured: &'a [String],
    /// The Python program.
    pub(super) program: Option<&'a Program>,
}

impl Roots<'_> {
    /// The path below the deepest matching root of the operator.
    fn strip<'p>(&self, path: &'p [u8]) -> Option<&'p [u8]> {
        self.configured.iter().filter_map(|root| below(root, path)).min_by_key(|rest| rest.len())
    }

    /// The path below a configured root, or else below a conventional one.
    fn strip_known<'p>(&self, path: &'p [u8]) -> Option<&'p [u8]> {
        self.strip(path).or_else(|| KNOWN_ROOTS.iter().find_map(|root| below(root, path)))
    }

    /// Whether a path is below a configured root or in the program's folder.
    pub(super) fn names(&self, path: &[u8]) -> bool {
        let program = self.program.and_then(Program::folder);
        self.configured.iter().any(|root| below(root, path).is_some())
            || program.is_some_and(|folder| below_folder(folder, path).is_some())
    }
}

/// The path below a root, matched folder by folder; `*` matches any folder. `None` for an empty root.
fn below<'p>(root: &str, path: &'p [u8]) -> Option<&'p [u8]> {
    let (root, mut rest) = match root.strip_prefix('/') {
        Some(root) => (root, path.strip_prefix(b"/")?),
        None if root.is_empty() || path.starts_with(b"/") => return None,
        None => (root, path),
    };
    for folder in root.split('/').filter(|folder| !folder.is_empty()) {
        let (first, after) = split_once(rest)?;
        if folder != "*" && folder.as_bytes() != first {
            return None;
        }
        rest = &after[1..];
    }
    Some(rest).filter(|rest| !rest.is_empty())
}

/// The path below exactly this folder.
pub(super) fn below_folder<'p>(folder: &[u8], path: &'p [u8]) -> Option<&'p [u8]> {
    path.strip_prefix(folder)?.strip_prefix(b"/").filter(|rest| !rest.is_empty())
}

/// Splits a path into its first folder and the rest, which begins with the slash.
fn split_once(path: &[u8]) -> Option<(&[u8], &[u8])> {
    path.iter().position(|&byte| byte == b'/').map(|slash| path.split_at(slash))
}

/// Yields the start offset and the name of each part of a path.
fn folders(path: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut start = 0;
    path.split(|&byte| byte == b'/').map(move |name| {
        let at = start;
        start += name.len() + 1;
        (at, name)
    })
}

/// The name of a frame's function, and its module: from the producer, or else from the name, or else from the file.
pub(super) fn qualified_name<'s>(runtime: Runtime, source: &'s FrameSource<'_>, roots: Roots<'_>) -> SplitName<'s> {
    let mut name = split(runtime, &source.name);
    if !source.module.is_empty() {
        name.module = source.module.into();
    } else if name.module.is_empty() {
        name.module = module_name(runtime, &name, source.file, roots);
    }
    name
}

/// The module of a function in this file, whose path is as the producer wrote it. Empty if there is no file, or if no
/// module is needed.
fn module_name<'p>(runtime: Runtime, name: &SplitName<'_>, path: &'p [u8], roots: Roots<'_>) -> Cow<'p, [u8]> {
    if path.is_empty() {
        return path.into();
    }
    match runtime {
        // A compiled Jinja template has no `__name__` among its globals.
        Runtime::Python if is_template(&name.function, path) => b"".into(),
        Runtime::Python => python(path, roots),
        Runtime::Node => node(path),
        Runtime::Ruby if is_method(&name.function) => b"".into(),
        Runtime::Ruby | Runtime::Php | Runtime::Perl | Runtime::Lua | Runtime::Beam => {
            library(runtime, path).map_or_else(|| roots.strip(path).unwrap_or(path).into(), Cow::Owned)
        }
        _ => b"".into(),
    }
}

/// Sentry's Python SDK sends the name under which the module was imported (getsentry/sentry-python
/// `sentry_sdk/profiler/utils.py`, `extract_frame`: `__name__` of the frame's globals): the path below an import
/// folder, with dots. The module of a file that cannot be imported by such a name is its path. A process imports a file
/// under one name, so below the correct root every file has its own module; a relative path starts at an import folder.
fn python<'p>(path: &'p [u8], roots: Roots<'_>) -> Cow<'p, [u8]> {
    if let Some(frozen) = path.strip_prefix(b"<frozen ").and_then(|path| path.strip_suffix(b">")) {
        return frozen.into();
    }
    match path {
        // The eBPF profiler's form of `<frozen importlib._bootstrap>`.
        b"_bootstrap.py" => return b"importlib._bootstrap".into(),
        b"_bootstrap_external.py" => return b"importlib._bootstrap_external".into(),
        _ => {}
    }
    let relative = || (!is_absolute(path)).then(|| path.strip_prefix(b"./").unwrap_or(path));
    let is_packaged = || installed(path).is_some() || roots.strip(path).is_some();
    let by_program = roots.program.and_then(|program| program.module(path));
    if let Some(module) = by_program.filter(|module| module == b"__main__" || !is_packaged()) {
        return module.into();
    }
    let found = installed(path).or_else(|| roots.strip_known(path)).or_else(relative);
    found.and_then(dotted).map_or(path.into(), Cow::Owned)
}

/// Whether Jinja generated this function from a template (pallets/jinja `src/jinja2/compiler.py`): `root`, and one for
/// each block.
fn is_template(function: &[u8], path: &[u8]) -> bool {
    let is_python = [&b".py"[..], b".pyc", b".pyw", b">"].iter().any(|end| path.ends_with(end));
    !is_python && (function == b"root" || function.starts_with(b"block_"))
}

/// The path below the folder of installed packages, or of the standard library.
fn installed(path: &[u8]) -> Option<&[u8]> {
    let packages = find(path, b"/site-packages/").or_else(|| find(path, b"/dist-packages/"));
    if let Some(found) = packages {
        // An egg is itself a folder of packages.
        return match split_once(found) {
            Some((first, rest)) if first.ends_with(b".egg") => Some(&rest[1..]),
            _ => Some(found),
        };
    }
    let mut before: &[u8] = b"";
    for (start, name) in folders(path) {
        if matches!(before, b"lib" | b"lib64" | b"lib32") && is_python(name) {
            let rest = path.get(start + name.len() + 1..)?;
            return Some(rest.strip_prefix(b"lib-dynload/").unwrap_or(rest));
        }
        before = name;
    }
    None
}

/// Whether this is a versioned folder of the standard library: `python3.12`, `pypy3.10`, `python311.zip`.
fn is_python(folder: &[u8]) -> bool {
    let version = folder.strip_prefix(b"python").or_else(|| folder.strip_prefix(b"pypy"));
    version.is_some_and(|version| version.starts_with(b"3"))
}

/// Converts `shop/cart/__init__.py` to `shop.cart`. `None` if a part is not a valid module name.
pub(super) fn dotted(path: &[u8]) -> Option<Vec<u8>> {
    let stem = [&b".py"[..], b".pyc", b".pyw"].iter().find_map(|end| path.strip_suffix(*end))?;
    let stem = stem.strip_suffix(b"/__init__").unwrap_or(stem);
    if stem == b"__init__" || stem.split(|&byte| byte == b'/').any(|part| part.is_empty() || part.contains(&b'.')) {
        return None;
    }
    Some(stem.iter().map(|&byte| if byte == b'/' { b'.' } else { byte }).collect())
}

/// Follows Sentry's profiler for Node (getsentry/sentry-javascript-profiling-node-binaries `bindings/cpu_profiler.cc`,
/// `GetFrameModule`): the path after the last `node_modules/`, or else the whole path, without `.js` (`.mjs` and `.cjs`
/// stay), with a colon for the last slash, dots for the others, and no leading dot. It uses the path that V8 reports,
/// including URLs.
///
/// A name without a folder gets a leading colon, because modules of other languages may have the same name.
fn node(path: &[u8]) -> Cow<'_, [u8]> {
    const PACKAGES: &[u8] = b"node_modules/";
    let stem = path.strip_suffix(b".js").unwrap_or(path);
    let packages = stem.windows(PACKAGES.len()).rposition(|window| window == PACKAGES);
    let stem = packages.map_or(stem, |at| &stem[at + PACKAGES.len()..]);
    let Some(last) = stem.iter().rposition(|&byte| byte == b'/') else {
        let is_bare = packages.is_none() && !stem.contains(&b':');
        return if is_bare { [b":", stem].concat().into() } else { stem.into() };
    };
    let mut module: Vec<u8> = stem.iter().map(|&byte| if byte == b'/' { b'.' } else { byte }).collect();
    module[last] = b':';
    if module[0] == b'.' {
        module.remove(0);
    }
    module.into()
}

/// Whether a Ruby function's name contains its class: `Cart#total`, `block in Cart.of`. A class may be defined in
/// several files, and the SDK sends no module for a top-level class. Methods outside of classes belong to `Object`.
fn is_method(name: &[u8]) -> bool {
    let last = name.rsplit(|&byte| byte == b' ').next().unwrap_or(name);
    let class = last.iter().position(|&byte| byte == b'#' || byte == b'.').map(|at| &last[..at]);
    class.is_some_and(|class| class != b"Object" && class.first().is_some_and(u8::is_ascii_uppercase))
}

/// The path relative to the folder of libraries, which identifies the library and its file on any machine.
fn library(runtime: Runtime, path: &[u8]) -> Option<Vec<u8>> {
    match runtime {
        Runtime::Ruby => {
            // A gem's folder ends with its version (`gems/puma-6.4.2/lib/puma.rb`), which must not distinguish
            // functions.
            let gem = find(path, b"/gems/").and_then(split_once);
            if let Some((gem, rest)) = gem.and_then(|(gem, rest)| Some((without_version(gem)?, rest))) {
                return Some([b"gems/", gem, rest].concat());
            }
            find(path, b"/lib/ruby/").map(|rest| [b"lib/ruby/", behind_versions(rest)].concat())
        }
        Runtime::Php => find(path, b"/vendor/").map(|rest| [b"vendor/", rest].concat()),
        Runtime::Perl => {
            let rest =
                [&b"/share/perl5/"[..], b"/share/perl/", b"/lib/perl5/", b"-linux-gnu/perl/", b"-linux-gnu/perl5/"];
            let rest = rest.iter().find_map(|part| find(path, part))?;
            Some([b"perl5/", behind_versions(rest)].concat())
        }
        Runtime::Lua => {
            let rest = find(path, b"/share/lua/").or_else(|| find(path, b"/openresty/lualib/"))?;
            Some([b"lualib/", behind_versions(rest)].concat())
        }
        _ => None,
    }
}

/// The path after the last occurrence of these folders.
fn find<'p>(path: &'p [u8], part: &[u8]) -> Option<&'p [u8]> {
    path.windows(part.len()).rposition(|window| window == part).map(|at| &path[at + part.len()..])
}

/// Strips leading folders that name a version or an installer: `3.1.0/json.rb`, `vendor_ruby/3.1.0/json.rb`,
/// `5.36/JSON.pm`.
fn behind_versions(path: &[u8]) -> &[u8] {
    let mut rest = path;
    while let Some((first, after)) = split_once(rest) {
        let is_version = first.first().is_some_and(u8::is_ascii_digit);
        if !is_version && !first.ends_with(b"_ruby") && !first.ends_with(b"_perl") {
            break;
        }
        rest = &after[1..];
    }
    rest
}

/// Strips the version from a name such as `puma-6.4.2`; `None` if the name has no version.
fn without_version(gem: &[u8]) -> Option<&[u8]> {
    let dash = gem.iter().rposition(|&byte| byte == b'-');
    dash.filter(|&dash| gem.get(dash + 1).is_some_and(u8::is_ascii_digit)).map(|dash| &gem[..dash])
}
