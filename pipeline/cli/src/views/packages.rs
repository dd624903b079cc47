//! The package that a library's function belongs to, in a word: `fastapi`, `libcrypto`, `tokio`, `net/http`.

use super::stacks::StackFunction;
use crate::terminal::base_name;

/// Stands for functions that an interpreter has built in.
pub(super) const BUILT_IN: &str = "built-in";

/// The package of a function with this short name; empty if nothing names it.
pub(super) fn package(function: &StackFunction, label: &str) -> Box<str> {
    let by_file = of_source(&function.file);
    if function.is_interpreted {
        let by_class = || of_class(&function.name).filter(|_| !function.file.contains('/'));
        return by_class().or(by_file).unwrap_or_else(|| of_script(&function.file)).into();
    }
    // Inlining and static linking put libraries into the program's own file, so the source file says more.
    let found = by_file.or_else(|| of_name(label)).unwrap_or_else(|| of_binary(&function.module));
    found.into()
}

/// The package by the folder of a source file.
fn of_source(file: &str) -> Option<&str> {
    let after = |folder: &str| file.rfind(folder).map(|at| &file[at + folder.len()..]);
    let first = |rest: &'_ str| -> usize { rest.find('/').unwrap_or(rest.len()) };
    if let Some(rest) = after("/site-packages/").or_else(|| after("/dist-packages/")) {
        return Some(module(&rest[..first(rest)]));
    }
    if let Some(rest) = after("/node_modules/") {
        // A package of an organization: `@sentry/node`.
        let end = first(rest);
        let scoped = rest.starts_with('@').then(|| rest.get(end + 1..).map(|name| end + 1 + first(name))).flatten();
        return Some(&rest[..scoped.unwrap_or(end)]);
    }
    if file.starts_with("node:") {
        return Some("node");
    }
    if let Some(frozen) = file.strip_prefix("<frozen ") {
        return Some(frozen.split(['.', '>']).next().unwrap_or_default());
    }
    if file.starts_with("<internal:") {
        return Some("ruby");
    }
    if let Some(at) = file.find("/lib/python3") {
        let rest = &file[at + "/lib/".len()..];
        let inside = rest.get(first(rest) + 1..)?;
        let inside = inside.strip_prefix("lib-dynload/").unwrap_or(inside);
        return Some(module(&inside[..first(inside)]));
    }
    if let Some(rest) = after("/gems/") {
        return Some(without_version(&rest[..first(rest)]));
    }
    if let Some(rest) = after("/lib/ruby/") {
        let named =
            rest.split('/').find(|part| !part.starts_with(|c: char| c.is_ascii_digit()) && !part.ends_with("_ruby"));
        return named.map(module);
    }
    if let Some(rest) = after("/vendor/") {
        // Composer's folders name the vendor and the package, Go's the host and the path.
        let package = rest.split('/').nth(1).filter(|_| file.ends_with(".php"));
        return Some(package.unwrap_or(&rest[..first(rest)]));
    }
    if let Some(rest) = after("/registry/src/") {
        return rest.split('/').nth(1).map(without_version);
    }
    if file.contains("/rustc/") || file.contains("/.rustup/") || file.contains("/usr/include/c++/") {
        return Some("std");
    }
    None
}

/// The package by a function's name: the standard libraries of Rust and C++, and packages of Go.
fn of_name(name: &str) -> Option<&str> {
    let inner = name.trim_start_matches(['<', '&', '_']);
    let standard = ["std::", "core::", "alloc::", "__gnu_cxx::"].iter().any(|start| inner.starts_with(start));
    if standard {
        return Some("std");
    }
    // `net/http.(*conn).serve`, `runtime.gcDrain`.
    let end = name.rfind('/').map_or(0, |slash| slash + 1);
    let dot = name[end..].find('.').filter(|_| !name.contains("::") && !name.contains(' '))?;
    let package = &name[..end + dot];
    let is_go = !package.is_empty() && package.bytes().all(|c| c.is_ascii_alphanumeric() || b"/._-".contains(&c));
    // A suffix of the compiler, `f.cold`, is behind a name without a package.
    is_go
        .then_some(package)
        .filter(|_| !["cold", "isra", "part", "constprop"].iter().any(|end| name.contains(&format!(".{end}"))))
}

/// The first three parts of a Java class's package.
fn of_class(name: &str) -> Option<&str> {
    let class = name.split('(').next().unwrap_or_default();
    let class = class.rsplit(' ').next().unwrap_or_default();
    let class_start = class.split('.').scan(0, |at, part| {
        let start = *at;
        *at += part.len() + 1;
        Some((start, part))
    });
    let (start, _) = class_start.clone().find(|(_, part)| part.starts_with(|c: char| c.is_uppercase()))?;
    let package = class.get(..start.checked_sub(1)?)?;
    let third = package.match_indices('.').nth(2).map_or(package.len(), |(at, _)| at);
    Some(&package[..third])
}

/// The name of a script, or a word for functions that an interpreter has built in.
fn of_script(file: &str) -> &str {
    match base_name(file) {
        "" => BUILT_IN,
        name => module(name),
    }
}

/// A library's name without version: `libcrypto.so.3` is `libcrypto`, `_json.cpython-312-x86_64-linux-gnu.so` `_json`.
fn of_binary(module: &str) -> &str {
    let name = module.split(".so").next().unwrap_or_default();
    name.split(".cpython-").next().unwrap_or_default()
}

fn module(name: &str) -> &str {
    [".pyc", ".py", ".rb", ".mjs", ".cjs", ".js", ".php"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name)
}

/// `puma-6.4.2` without its version.
fn without_version(name: &str) -> &str {
    let dash =
        name.rmatch_indices('-').map(|(at, _)| at).find(|at| name[at + 1..].starts_with(|c: char| c.is_ascii_digit()));
    dash.map_or(name, |at| &name[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: a library is named as its users call it, whatever its language and its version.
    #[test]
    fn packages() {
        for (expected, [name, file, binary], is_interpreted) in [
            ("fastapi", ["run", "/venv/lib/python3.12/site-packages/fastapi/routing.py", ""], true),
            ("six", ["f", "/usr/lib/python3/dist-packages/six.py", ""], true),
            ("json", ["dumps", "/usr/local/lib/python3.12/json/__init__.py", ""], true),
            ("threading", ["run", "/usr/lib/python3.11/threading.py", ""], true),
            ("importlib", ["_find_and_load", "<frozen importlib._bootstrap>", ""], true),
            ("express", ["next", "/srv/node_modules/express/lib/router.js", ""], true),
            ("@sentry/node", ["f", "/srv/node_modules/@sentry/node/build/a.js", ""], true),
            ("node", ["emit", "node:events", ""], true),
            ("built-in", ["map", "", ""], true),
            ("puma", ["run", "/var/lib/gems/3.1.0/gems/puma-6.4.2/lib/puma.rb", ""], true),
            ("json", ["generate", "/usr/lib/ruby/3.1.0/json/common.rb", ""], true),
            ("ruby", ["times", "<internal:kernel>", ""], true),
            ("monolog", ["log", "/srv/vendor/monolog/monolog/src/Logger.php", ""], true),
            ("java.util", ["java.util.HashMap.get", "HashMap.java", ""], true),
            ("org.springframework.web", ["void org.springframework.web.servlet.X.run(int)", "X.java", ""], true),
            (
                "tokio",
                [
                    "tokio::runtime::run",
                    "/home/shop/.cargo/registry/src/index.crates.io-1/tokio-1.44.2/src/a.rs",
                    "shop",
                ],
                false,
            ),
            ("std", ["core::hash::f", "/rustc/abc/library/core/src/hash.rs", "shop"], false),
            ("std", ["std::vector<int>::push_back", "/usr/include/c++/12/vector", "shop"], false),
            ("std", ["<alloc::vec::Vec<T> as X>::f", "", "shop"], false),
            ("net/http", ["net/http.(*conn).serve", "", "shop"], false),
            ("runtime", ["runtime.gcDrain", "", "shop"], false),
            ("libcrypto", ["sha256_block", "", "libcrypto.so.3"], false),
            ("_json", ["scan", "", "_json.cpython-312-x86_64-linux-gnu.so"], false),
            ("shop", ["f.cold", "", "shop"], false),
        ] {
            let function = StackFunction {
                file: file.into(),
                module: binary.into(),
                is_interpreted,
                ..StackFunction::placeholder(name)
            };
            assert_eq!(&*package(&function, name), expected, "{name} {file} {binary}");
        }
    }
}
