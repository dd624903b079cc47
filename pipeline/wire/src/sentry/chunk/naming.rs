//! Derives the module from a function's name.
//!
//! Sentry groups functions by name and module (or else package), never by file, and shows Java functions only if the
//! module contains a dot (getsentry/vroom `internal/frame/frame.go`). Profilers send full names. They are UTF-8 and
//! only split next to ASCII characters. If a name has no module, the path may have one: see `module`.

use std::borrow::Cow;

use super::path::percent_decoded;
use super::runtime::Runtime;

/// A function's name, split for Sentry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SplitName<'a> {
    pub(super) module: Cow<'a, [u8]>,
    pub(super) function: Cow<'a, [u8]>,
}

/// Splits a function's name by the conventions of its runtime. The module is empty if there is none.
pub(super) fn split(runtime: Runtime, name: &[u8]) -> SplitName<'_> {
    let split = match runtime {
        Runtime::Java => java(name),
        Runtime::Dotnet => dotnet(name),
        Runtime::Go => return go(name),
        Runtime::Beam => beam(name),
        Runtime::Ruby => ruby(name),
        Runtime::Php => php(name),
        _ => None,
    };
    let split = split.filter(|(module, function)| !module.is_empty() && !function.is_empty());
    let (module, function) = split.unwrap_or((b"", name));
    SplitName { module: module.into(), function: function.into() }
}

type ModuleFunction<'a> = (&'a [u8], &'a [u8]);

fn position(text: &[u8], byte: u8) -> Option<usize> {
    text.iter().position(|&other| other == byte)
}

fn last_position(text: &[u8], byte: u8) -> Option<usize> {
    text.iter().rposition(|&other| other == byte)
}

/// The name without its arguments.
fn qualified(name: &[u8]) -> &[u8] {
    &name[..position(name, b'(').unwrap_or(name.len())]
}

/// Splits `void java.lang.Thread.run()` (HotSpot, as the eBPF profiler reports it) or `java.lang.Thread.run` into class
/// and method.
fn java(name: &[u8]) -> Option<ModuleFunction<'_>> {
    let qualified = qualified(name);
    let qualified = &qualified[last_position(qualified, b' ').map_or(0, |space| space + 1)..];
    let dot = last_position(qualified, b'.')?;
    Some((&qualified[..dot], &qualified[dot + 1..]))
}

/// Splits `System.Threading.Thread.StartCallback()` into type and method. A constructor is named `.ctor`.
fn dotnet(name: &[u8]) -> Option<ModuleFunction<'_>> {
    let qualified = qualified(name);
    let dot = last_position(qualified, b'.')?;
    let module = &qualified[..dot];
    match module.strip_suffix(b".") {
        Some(module) => Some((module, &qualified[dot..])),
        None => Some((module, &qualified[dot + 1..])),
    }
}

/// Splits `net/http.(*conn).serve`: the package ends at the first dot after the last slash, as in Sentry's Go SDK
/// (getsentry/sentry-go `stacktrace.go`). Type parameters may contain slashes.
///
/// The linker writes a dot in the last part of a package's path as `%2e` (golang/go `cmd/internal/objabi/path.go`,
/// `PathToPrefix`), and appends `.abi0` to a function's variant for calls from assembly.
fn go(name: &[u8]) -> SplitName<'_> {
    let name = name.strip_suffix(b".abi0").unwrap_or(name);
    let mut dot = None;
    for (position, &byte) in name.iter().enumerate() {
        match byte {
            b'[' => break,
            b'/' => dot = None,
            b'.' => dot = dot.or(Some(position)),
            _ => {}
        }
    }
    let (module, function) = match dot {
        Some(dot) if dot > 0 && dot + 1 < name.len() => (&name[..dot], &name[dot + 1..]),
        _ => (&b""[..], name),
    };
    SplitName { module: percent_decoded(module), function: percent_decoded(function) }
}

/// Splits into module and function with arity: `lists:map/2` for Erlang; for Elixir `Shop.Cart.total/2` (the eBPF
/// profiler's `interpreter/beam/beam.go`) or `Elixir.Shop.Cart:total/2` (the virtual machine's own name).
fn beam(name: &[u8]) -> Option<ModuleFunction<'_>> {
    let plain = name.strip_prefix(b"Elixir.").unwrap_or(name);
    // Parts of an Elixir module begin with a capital letter, names of functions do not.
    let mut end = 0;
    while plain.get(end).is_some_and(u8::is_ascii_uppercase) {
        let part = plain[end..].iter().position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_');
        match part {
            Some(length) if plain[end + length] == b'.' => end += length + 1,
            _ => break,
        }
    }
    match position(plain, b':') {
        Some(colon) if colon >= end => Some((&plain[..colon], &plain[colon + 1..])),
        _ => end.checked_sub(1).map(|dot| (&plain[..dot], &plain[end..])),
    }
}

/// Splits `ActionController::Metal#dispatch` at the last `::`, as Sentry's Ruby SDK does (getsentry/sentry-ruby
/// `sentry-ruby/lib/sentry/profiler/helpers.rb`, `split_module`). The last class stays in the function's name. Ruby's
/// names never have arguments.
fn ruby(name: &[u8]) -> Option<ModuleFunction<'_>> {
    let at = name.windows(2).rposition(|pair| pair == b"::")?;
    (!name[at..].contains(&b')')).then(|| (&name[..at], &name[at + 2..]))
}

/// Splits `App\Cart::total`: the class is the module, and also stays in the function's name, as in Sentry's PHP SDK
/// (getsentry/sentry-php `src/Profiling/Profile.php`).
fn php(name: &[u8]) -> Option<ModuleFunction<'_>> {
    let at = name.windows(2).rposition(|pair| pair == b"::")?;
    Some((&name[..at], name))
}
