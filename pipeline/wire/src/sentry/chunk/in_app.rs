//! Rule 7: whether a frame is the user's own code.
//!
//! Sentry keeps function metrics of own code only, and takes our word for it (getsentry/vroom
//! `internal/frame/frame.go`, `SetInApp`). The defaults follow Sentry's SDKs and vroom.

use super::naming::basename;
use super::runtime::Runtime;
use super::settings::InApp;

/// What decides about a frame.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Place<'a> {
    pub(super) function: &'a str,
    pub(super) module: &'a str,
    pub(super) path: &'a str,
    pub(super) package: &'a str,
}

/// Whether a frame is the user's own code: by the operator's prefixes, else by its runtime's rule.
pub(super) fn in_app(rules: &InApp, runtime: Runtime, place: &Place<'_>) -> bool {
    if !rules.include.is_empty() && matches(&rules.include, place) {
        return true;
    }
    if !rules.exclude.is_empty() && matches(&rules.exclude, place) {
        return false;
    }
    by_runtime(runtime, place)
}

fn matches(prefixes: &[String], place: &Place<'_>) -> bool {
    let fallback = if place.module.is_empty() && place.path.is_empty() { place.function } else { "" };
    prefixes.iter().filter(|prefix| !prefix.is_empty()).any(|prefix| {
        [place.module, place.path, place.package, fallback].iter().any(|text| text.starts_with(prefix.as_str()))
    })
}

fn by_runtime(runtime: Runtime, place: &Place<'_>) -> bool {
    match runtime {
        Runtime::Kernel | Runtime::Error => false,
        Runtime::Native => !is_system_library(place.package) && !place.path.starts_with("/usr/"),
        Runtime::Rust => {
            let std = ["std::", "core::", "alloc::", "<std::", "<core::", "<alloc::", "__rust"];
            let library = ["/rustc/", "/.cargo/registry/", "/.cargo/git/", "/.rustup/", "library/std/"];
            !is_system_library(place.package)
                && !std.iter().any(|prefix| place.function.starts_with(prefix))
                && !contains(place.path, &library)
        }
        Runtime::Go => !contains(place.path, &["/go/src/", "/pkg/mod/", "/vendor/", "/third_party/"]) && !go_std(place),
        Runtime::Python => {
            !place.path.is_empty()
                && !place.path.starts_with('<')
                && !contains(
                    place.path,
                    &["site-packages/", "dist-packages/", "/usr/local/", "/usr/lib/", "/lib/python"],
                )
        }
        Runtime::Node => {
            !place.path.is_empty()
                && !place.path.starts_with("node:")
                && !place.path.starts_with("internal/")
                && !contains(place.path, &["node_modules/"])
        }
        Runtime::Java => {
            let library = ["java.", "javax.", "jakarta.", "jdk.", "sun.", "com.sun.", "kotlin.", "kotlinx.", "scala."];
            !library.iter().any(|prefix| place.module.starts_with(prefix))
        }
        Runtime::Ruby => {
            !place.path.starts_with('<') && !contains(place.path, &["/gems/", "/lib/ruby/", "/usr/lib/", "(eval"])
        }
        Runtime::Php => !contains(place.path, &["/vendor/"]) && !place.path.is_empty(),
        Runtime::Perl => !contains(place.path, &["/usr/share/perl", "/usr/lib/", "/usr/local/lib/", "/perl5/"]),
        Runtime::Dotnet => !["System.", "Microsoft.", "Interop."].iter().any(|prefix| place.module.starts_with(prefix)),
        // Erlang's own modules are lower-case words, an application's are `Shop.Cart`.
        Runtime::Beam => {
            place.module.starts_with(|first: char| first.is_ascii_uppercase()) && !elixir_std(place.module)
        }
        Runtime::Lua => !contains(place.path, &["/usr/share/lua", "/usr/local/share/lua", "/usr/local/openresty/"]),
    }
}

fn contains(path: &str, parts: &[&str]) -> bool {
    parts.iter().any(|part| path.contains(part))
}

/// Libraries of the system, by the names they have on Linux. The eBPF profiler names the file without its folder.
fn is_system_library(package: &str) -> bool {
    let name = basename(package);
    let shared = name.starts_with("lib") && (name.ends_with(".so") || name.contains(".so."));
    shared || name.starts_with("ld-") || name.contains("vdso") || name == "vmlinux"
}

/// Go's own packages have no dot in their first element; `main` is the user's.
fn go_std(place: &Place<'_>) -> bool {
    let first = place.module.split('/').next().unwrap_or("");
    first != "main" && !first.contains('.') && (place.path.is_empty() || !place.path.starts_with('/'))
}

fn elixir_std(module: &str) -> bool {
    let first = module.split('.').next().unwrap_or("");
    matches!(first, "Enum" | "Stream" | "Task" | "GenServer" | "Supervisor" | "Kernel" | "Process" | "Map" | "List")
}
