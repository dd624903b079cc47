//! Rule 7: how a function's name is told apart into module and function.
//!
//! Sentry groups functions by module, else package, else file, and shows Java's only where the module has a dot
//! (getsentry/vroom `internal/frame/frame.go`). Names come whole from a profiler. They are UTF-8, and are cut next to
//! ASCII characters only.

use super::runtime::Runtime;

/// A name in Sentry's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Name<'a> {
    pub(super) module: &'a [u8],
    pub(super) function: &'a [u8],
}

/// Splits a function's name by the conventions of its runtime. The module is empty where there is none.
pub(super) fn split(runtime: Runtime, name: &[u8]) -> Name<'_> {
    let whole = Name { module: b"", function: name };
    let split = match runtime {
        Runtime::Java => java(name),
        Runtime::Dotnet => dotnet(name),
        Runtime::Go => go(name),
        Runtime::Beam => beam(name),
        _ => None,
    };
    split.filter(|split| !split.module.is_empty() && !split.function.is_empty()).unwrap_or(whole)
}

fn position(text: &[u8], byte: u8) -> Option<usize> {
    text.iter().position(|&other| other == byte)
}

fn last_position(text: &[u8], byte: u8) -> Option<usize> {
    text.iter().rposition(|&other| other == byte)
}

/// What stands before the arguments.
fn qualified(name: &[u8]) -> &[u8] {
    &name[..position(name, b'(').unwrap_or(name.len())]
}

/// `void java.lang.Thread.run()` (HotSpot, as the eBPF profiler writes it) and `java.lang.Thread.run`: class and
/// method.
fn java(name: &[u8]) -> Option<Name<'_>> {
    let qualified = qualified(name);
    let qualified = &qualified[last_position(qualified, b' ').map_or(0, |space| space + 1)..];
    let dot = last_position(qualified, b'.')?;
    Some(Name { module: &qualified[..dot], function: &qualified[dot + 1..] })
}

/// `System.Threading.Thread.StartCallback()`: type and method. A constructor is called `.ctor`.
fn dotnet(name: &[u8]) -> Option<Name<'_>> {
    let qualified = qualified(name);
    let dot = last_position(qualified, b'.')?;
    let module = &qualified[..dot];
    match module.strip_suffix(b".") {
        Some(module) => Some(Name { module, function: &qualified[dot..] }),
        None => Some(Name { module, function: &qualified[dot + 1..] }),
    }
}

/// `net/http.(*conn).serve`: the package ends at the first dot behind the last slash, as in Sentry's Go SDK
/// (getsentry/sentry-go `stacktrace.go`). Type parameters may hold slashes.
fn go(name: &[u8]) -> Option<Name<'_>> {
    let mut dot = None;
    for (position, &byte) in name.iter().enumerate() {
        match byte {
            b'[' => break,
            b'/' => dot = None,
            b'.' => dot = dot.or(Some(position)),
            _ => {}
        }
    }
    let dot = dot?;
    Some(Name { module: &name[..dot], function: &name[dot + 1..] })
}

/// `Elixir.Shop.Cart:total/2`: module and function with its arity.
fn beam(name: &[u8]) -> Option<Name<'_>> {
    let colon = position(name, b':')?;
    let module = name[..colon].strip_prefix(b"Elixir.").unwrap_or(&name[..colon]);
    Some(Name { module, function: &name[colon + 1..] })
}

/// The last part of a path.
pub(super) fn basename(path: &[u8]) -> &[u8] {
    let start = path.iter().rposition(|&byte| byte == b'/' || byte == b'\\').map_or(0, |slash| slash + 1);
    &path[start..]
}

/// Whether a path says where on a machine a file lies.
pub(super) fn is_absolute(path: &[u8]) -> bool {
    path.starts_with(b"/") || path.starts_with(b"file://") || path.get(1..3) == Some(b":\\")
}
