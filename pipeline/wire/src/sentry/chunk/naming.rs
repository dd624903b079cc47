//! Rule 7: how a function's name is told apart into module and function.
//!
//! Sentry groups functions by module, else package, else file, and shows Java's only where the module has a dot
//! (getsentry/vroom `internal/frame/frame.go`). Names come whole from a profiler.

use super::runtime::Runtime;

/// A name in Sentry's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Name<'a> {
    pub(super) module: &'a str,
    pub(super) function: &'a str,
}

/// Splits a function's name by the conventions of its runtime. The module is empty where there is none.
pub(super) fn split(runtime: Runtime, name: &str) -> Name<'_> {
    let whole = Name { module: "", function: name };
    let split = match runtime {
        Runtime::Java => java(name),
        Runtime::Dotnet => dotnet(name),
        Runtime::Go => go(name),
        Runtime::Beam => beam(name),
        _ => None,
    };
    split.filter(|split| !split.module.is_empty() && !split.function.is_empty()).unwrap_or(whole)
}

/// `void java.lang.Thread.run()` (HotSpot, as the eBPF profiler writes it) and `java.lang.Thread.run`: class and
/// method.
fn java(name: &str) -> Option<Name<'_>> {
    let qualified = name.split('(').next()?;
    let qualified = qualified.rsplit(' ').next()?;
    let (module, function) = qualified.rsplit_once('.')?;
    Some(Name { module, function })
}

/// `System.Threading.Thread.StartCallback()`: type and method. A constructor is called `.ctor`.
fn dotnet(name: &str) -> Option<Name<'_>> {
    let qualified = name.split('(').next()?;
    let (module, function) = qualified.rsplit_once('.')?;
    match module.strip_suffix('.') {
        Some(module) => Some(Name { module, function: &qualified[module.len() + 1..] }),
        None => Some(Name { module, function }),
    }
}

/// `net/http.(*conn).serve`: the package ends at the first dot behind the last slash, as in Sentry's Go SDK
/// (getsentry/sentry-go `stacktrace.go`). Type parameters may hold slashes.
fn go(name: &str) -> Option<Name<'_>> {
    let generic = name.find('[').unwrap_or(name.len());
    let slash = name[..generic].rfind('/').map_or(0, |slash| slash + 1);
    let dot = slash + name[slash..].find('.')?;
    Some(Name { module: &name[..dot], function: &name[dot + 1..] })
}

/// `Elixir.Shop.Cart:total/2`: module and function with its arity.
fn beam(name: &str) -> Option<Name<'_>> {
    let (module, function) = name.split_once(':')?;
    Some(Name { module: module.strip_prefix("Elixir.").unwrap_or(module), function })
}

/// The last part of a path.
pub(super) fn basename(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

/// Whether a path says where on a machine a file lies.
pub(super) fn is_absolute(path: &str) -> bool {
    path.starts_with('/') || path.starts_with("file://") || path.as_bytes().get(1..3) == Some(b":\\")
}
