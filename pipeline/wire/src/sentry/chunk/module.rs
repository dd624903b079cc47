//! Which module a source file is, where the function's name does not say it.
//!
//! Sentry tells functions apart by module and name, never by file. So a file's functions need a module: the one that
//! the language's own SDK would send, so that a program is one in Sentry whichever profiler saw it, and where no SDK
//! says one, the path. Two files never have one module, unless the SDK's own rule gives them one, or each lies in
//! another root.
//!
//! Folders of libraries say where a module's name begins, wherever they lie. Files of the application say it by the
//! folder that the program was started in or is installed to, which no profiler sends: the operator may name such
//! roots. Some are known by custom, for Python alone, whose SDK sends names without a folder.

use std::borrow::Cow;

use super::naming::Name;
use super::path::is_absolute;
use super::program::Program;
use super::runtime::Runtime;

/// Roots known by custom: the working folders of container images (docker-library's `/usr/src/app`, buildpacks' and
/// devcontainers' `/workspace`, AWS Lambda's `/var/task`), of which an image has one. None lies in another, so that two
/// files below one have two modules.
///
/// `/opt`, `/srv`, `/root` and homes are none, nor are folders in them: a machine has several of these at once, with
/// several projects in each, and `/srv/main.py` and `/home/me/main.py` would be one. Their paths do not say what was
/// imported.
const KNOWN_ROOTS: [&str; 5] = ["/app", "/usr/src/app", "/code", "/workspace", "/var/task"];

/// The folders that applications lie in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Roots<'a> {
    /// What the operator named.
    pub(super) configured: &'a [String],
    /// The Python program.
    pub(super) program: Option<&'a Program>,
}

impl Roots<'_> {
    /// The path below the deepest root that the operator named.
    fn strip<'p>(&self, path: &'p [u8]) -> Option<&'p [u8]> {
        self.configured.iter().filter_map(|root| below(root, path)).min_by_key(|rest| rest.len())
    }

    /// The same, and where no such root is named below one that is known.
    fn strip_known<'p>(&self, path: &'p [u8]) -> Option<&'p [u8]> {
        self.strip(path).or_else(|| KNOWN_ROOTS.iter().find_map(|root| below(root, path)))
    }

    /// Whether a path lies in a root that the operator named, or in the folder of the program.
    pub(super) fn names(&self, path: &[u8]) -> bool {
        let program = self.program.and_then(Program::folder);
        self.configured.iter().any(|root| below(root, path).is_some())
            || program.is_some_and(|folder| below_folder(folder, path).is_some())
    }
}

/// The rest of a path below a root, folder by folder; `*` is any one. Nothing lies below a root without a name.
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

/// The rest of a path below this very folder.
pub(super) fn below_folder<'p>(folder: &[u8], path: &'p [u8]) -> Option<&'p [u8]> {
    path.strip_prefix(folder)?.strip_prefix(b"/").filter(|rest| !rest.is_empty())
}

/// The first folder, and what follows it, slash included.
fn split_once(path: &[u8]) -> Option<(&[u8], &[u8])> {
    path.iter().position(|&byte| byte == b'/').map(|slash| path.split_at(slash))
}

/// Where each part of a path begins, and what it is.
fn folders(path: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut start = 0;
    path.split(|&byte| byte == b'/').map(move |name| {
        let at = start;
        start += name.len() + 1;
        (at, name)
    })
}

/// The module of a function of this name in this file, as its producer wrote its path. Empty where there is no file, or
/// none is needed.
pub(super) fn of<'p>(runtime: Runtime, name: &Name<'_>, path: &'p [u8], roots: Roots<'_>) -> Cow<'p, [u8]> {
    if path.is_empty() {
        return path.into();
    }
    match runtime {
        // What Jinja compiles a template to has no `__name__` among its global variables.
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

/// What Sentry's Python SDK sends is the name under which the module was imported (getsentry/sentry-python
/// `sentry_sdk/profiler/utils.py`, `extract_frame`: `__name__` of the frame's globals): the path below a folder that
/// imports are looked for in, with dots. A file that no import could have found so is called by its path. A process
/// imports one file by one name, so what it has below the right root has a module of its own; a relative path starts at
/// such a folder.
fn python<'p>(path: &'p [u8], roots: Roots<'_>) -> Cow<'p, [u8]> {
    if let Some(frozen) = path.strip_prefix(b"<frozen ").and_then(|path| path.strip_suffix(b">")) {
        return frozen.into();
    }
    match path {
        // `<frozen importlib._bootstrap>`, as the eBPF profiler writes it.
        b"_bootstrap.py" => return b"importlib._bootstrap".into(),
        b"_bootstrap_external.py" => return b"importlib._bootstrap_external".into(),
        _ => {}
    }
    let known = || roots.program.and_then(|program| program.module(path));
    let relative = || (!is_absolute(path)).then(|| path.strip_prefix(b"./").unwrap_or(path));
    let is_packaged = |path: &[u8]| installed(path).is_some() || roots.strip(path).is_some();
    if let Some(module) = known().filter(|module| module == b"__main__" || !is_packaged(path)) {
        return module.into();
    }
    let found = installed(path).or_else(|| roots.strip_known(path)).or_else(relative);
    found.and_then(dotted).map_or(path.into(), Cow::Owned)
}

/// Whether a function is one that Jinja makes of a template (pallets/jinja `src/jinja2/compiler.py`): `root`, and one
/// for each block.
fn is_template(function: &[u8], path: &[u8]) -> bool {
    let is_python = [&b".py"[..], b".pyc", b".pyw", b">"].iter().any(|end| path.ends_with(end));
    !is_python && (function == b"root" || function.starts_with(b"block_"))
}

/// The path below the folder of packages, or of the standard library.
fn installed(path: &[u8]) -> Option<&[u8]> {
    let packages = find(path, b"/site-packages/").or_else(|| find(path, b"/dist-packages/"));
    if let Some(found) = packages {
        // An egg is a folder of packages of its own.
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

/// `python3.12`, `pypy3.10`, `python311.zip`.
fn is_python(folder: &[u8]) -> bool {
    let version = folder.strip_prefix(b"python").or_else(|| folder.strip_prefix(b"pypy"));
    version.is_some_and(|version| version.starts_with(b"3"))
}

/// `shop/cart/__init__.py` as `shop.cart`. `None` where a part could be no module's name.
pub(super) fn dotted(path: &[u8]) -> Option<Vec<u8>> {
    let stem = [&b".py"[..], b".pyc", b".pyw"].iter().find_map(|end| path.strip_suffix(*end))?;
    let stem = stem.strip_suffix(b"/__init__").unwrap_or(stem);
    if stem == b"__init__" || stem.split(|&byte| byte == b'/').any(|part| part.is_empty() || part.contains(&b'.')) {
        return None;
    }
    Some(stem.iter().map(|&byte| if byte == b'/' { b'.' } else { byte }).collect())
}

/// What Sentry's profiler for Node sends (getsentry/sentry-javascript-profiling-node-binaries
/// `bindings/cpu_profiler.cc`, `GetFrameModule`): the path behind the last `node_modules/`, else all of it, without
/// `.js` (but with `.mjs` and `.cjs`), a colon for the last slash, dots for the others, and none in front. It takes
/// what V8 says, URLs included.
///
/// A name without a folder gets the colon in front: modules of other languages are called so as well.
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

/// Whether a Ruby function's name says its class: `Cart#total`, `block in Cart.of`. Classes are one wherever their
/// parts lie, and the SDK sends no module for those that lie in no other. Methods outside of classes are `Object`'s.
fn is_method(name: &[u8]) -> bool {
    let last = name.rsplit(|&byte| byte == b' ').next().unwrap_or(name);
    let class = last.iter().position(|&byte| byte == b'#' || byte == b'.').map(|at| &last[..at]);
    class.is_some_and(|class| class != b"Object" && class.first().is_some_and(u8::is_ascii_uppercase))
}

/// The path from the folder of libraries on that a file lies in: which library it is, and where in it, on whatever
/// machine.
fn library(runtime: Runtime, path: &[u8]) -> Option<Vec<u8>> {
    match runtime {
        Runtime::Ruby => {
            // A gem's folder ends with its version (`gems/puma-6.4.2/lib/puma.rb`), by which functions are not told
            // apart.
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

/// What stands behind the last place of these folders.
fn find<'p>(path: &'p [u8], part: &[u8]) -> Option<&'p [u8]> {
    path.windows(part.len()).rposition(|window| window == part).map(|at| &path[at + part.len()..])
}

/// Without leading folders of versions and of who installed them: `3.1.0/json.rb`, `vendor_ruby/3.1.0/json.rb`,
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

/// `puma-6.4.2` without its version. `None` where there is none.
fn without_version(gem: &[u8]) -> Option<&[u8]> {
    let dash = gem.iter().rposition(|&byte| byte == b'-');
    dash.filter(|&dash| gem.get(dash + 1).is_some_and(u8::is_ascii_digit)).map(|dash| &gem[..dash])
}
