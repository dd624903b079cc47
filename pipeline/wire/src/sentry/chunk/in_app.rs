//! Rule 7: whether a frame is the user's own code.
//!
//! Sentry keeps function metrics of own code only, and takes our word for it (getsentry/vroom
//! `internal/frame/frame.go`, `SetInApp`). The defaults follow Sentry's SDKs and vroom. Paths are told by their folders,
//! in one pass.

use super::naming::basename;
use super::runtime::Runtime;
use super::settings::InApp;

/// What decides about a frame.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Place<'a> {
    pub(super) function: &'a [u8],
    pub(super) module: &'a [u8],
    pub(super) path: &'a [u8],
    pub(super) package: &'a [u8],
    /// The process's main executable: its path, or its name where that is all that is known.
    pub(super) executable: &'a [u8],
}

/// Whether a frame is the user's own code: by the operator's prefixes, else by its runtime's rule.
#[inline]
pub(super) fn in_app(rules: &InApp, runtime: Runtime, place: &Place<'_>) -> bool {
    if !rules.include.is_empty() && matches(&rules.include, place) {
        return true;
    }
    if !rules.exclude.is_empty() && matches(&rules.exclude, place) {
        return false;
    }
    by_runtime(runtime, place)
}

/// Whether anything that a frame is told by starts with one of the prefixes. Its function is among it: what machine code is
/// called (`boost::asio::`) says whose it is, and whether a file is known too depends on its debug information.
fn matches(prefixes: &[String], place: &Place<'_>) -> bool {
    prefixes.iter().filter(|prefix| !prefix.is_empty()).any(|prefix| {
        [place.function, place.module, place.path, place.package].iter().any(|text| text.starts_with(prefix.as_bytes()))
    })
}

fn by_runtime(runtime: Runtime, place: &Place<'_>) -> bool {
    let path = place.path;
    match runtime {
        Runtime::Kernel | Runtime::Error => false,
        Runtime::Native | Runtime::Rust => own_machine_code(runtime, place),
        Runtime::Go => !library(runtime, path) && !go_std(place.module),
        Runtime::Python | Runtime::Node | Runtime::Php => {
            !path.is_empty() && !path.starts_with(b"<") && !path.starts_with(b"node:") && !library(runtime, path)
        }
        Runtime::Ruby => !path.starts_with(b"<") && !path.starts_with(b"(eval") && !library(runtime, path),
        Runtime::Perl | Runtime::Lua => !library(runtime, path),
        Runtime::Java => !java_library(place.module),
        Runtime::Dotnet => !starts_with_any(place.module, &[b"System.", b"Microsoft.", b"Interop."]),
        // Erlang's own modules are lower-case words, an application's are `Shop.Cart`.
        Runtime::Beam => place.module.first().is_some_and(u8::is_ascii_uppercase) && !elixir_std(place.module),
    }
}

fn starts_with_any(text: &[u8], prefixes: &[&[u8]]) -> bool {
    prefixes.iter().any(|prefix| text.starts_with(prefix))
}

/// Whether a source file lies in a folder of libraries: of the runtime, of its package manager, or of the system.
fn library(runtime: Runtime, path: &[u8]) -> bool {
    if path.starts_with(b"/usr/lib/") || path.starts_with(b"/usr/local/lib/") || path.starts_with(b"/usr/share/") {
        return true;
    }
    let mut before: &[u8] = b"";
    path.split(|&byte| byte == b'/').any(|folder| {
        let found = match runtime {
            Runtime::Python => matches!(folder, b"site-packages" | b"dist-packages") || folder.starts_with(b"python3."),
            Runtime::Node => matches!(folder, b"node_modules") || (before.is_empty() && folder == b"internal"),
            Runtime::Go => {
                matches!((before, folder), (b"go", b"src") | (b"pkg", b"mod"))
                    || matches!(folder, b"vendor" | b"third_party")
            }
            Runtime::Rust => {
                matches!((before, folder), (b".cargo", _) | (b"library", b"std"))
                    || matches!(folder, b"rustc" | b".rustup")
            }
            Runtime::Ruby => folder == b"gems" || matches!((before, folder), (b"lib", b"ruby")),
            Runtime::Php => folder == b"vendor",
            Runtime::Perl => folder == b"perl5",
            Runtime::Lua => folder == b"openresty",
            _ => false,
        };
        before = folder;
        found
    })
}

/// Machine code is own code in the main executable, wherever that lies and whatever it is called, and in files that are no
/// libraries of the system; but not where the main executable is an interpreter, whose code is not the user's, and not
/// the parts of a language's own library that were compiled or inlined into it.
fn own_machine_code(runtime: Runtime, place: &Place<'_>) -> bool {
    if is_interpreter(place.package) || (is_system_library(place.package) && !is_main(place)) {
        return false;
    }
    // The eBPF profiler calls Rust's code native, too.
    if runtime == Runtime::Rust || place.path.ends_with(b".rs") {
        return !rust_std(place.function) && !library(Runtime::Rust, place.path);
    }
    // `/usr/src/app` is where the images of many languages put the application (docker-library's documentation).
    let system_source = place.path.starts_with(b"/usr/") && !place.path.starts_with(b"/usr/src/app/");
    !system_source && !native_std(place.function)
}

/// Whether a file is the process's main executable. The eBPF profiler names the file without its folder.
fn is_main(place: &Place<'_>) -> bool {
    let (file, main) = (place.package, place.executable);
    let bare = !file.contains(&b'/') || !main.contains(&b'/');
    !file.is_empty() && if bare { basename(file) == basename(main) } else { file == main }
}

/// Executables that run programs in a language of their own, by name without version.
fn is_interpreter(package: &[u8]) -> bool {
    let name = basename(package);
    let end = name.iter().rposition(|byte| !byte.is_ascii_digit() && *byte != b'.').map_or(0, |last| last + 1);
    matches!(
        &name[..end],
        b"python"
            | b"pypy"
            | b"node"
            | b"nodejs"
            | b"deno"
            | b"bun"
            | b"ruby"
            | b"perl"
            | b"php"
            | b"php-fpm"
            | b"php-cgi"
            | b"java"
            | b"dotnet"
            | b"beam.smp"
            | b"lua"
            | b"luajit"
    )
}

/// Libraries of the system: by the folders they lie in (Filesystem Hierarchy Standard 3.0, `/lib`, `/usr/lib`) and by the names they
/// have on Linux, since the eBPF profiler names the file without its folder. Packages of languages lie in folders of libraries, too.
fn is_system_library(package: &[u8]) -> bool {
    let name = basename(package);
    let contains = |part: &[u8]| name.windows(part.len()).any(|window| window == part);
    let shared = name.starts_with(b"lib") && (name.ends_with(b".so") || contains(b".so."));
    let folders: [&[u8]; 4] = [b"/lib", b"/usr/lib", b"/usr/local/lib", b"/usr/share/"];
    shared
        || name.starts_with(b"ld-")
        || contains(b"vdso")
        || name == b"vmlinux"
        || starts_with_any(package, &folders)
        || (package.len() > name.len()
            && package
                .split(|&byte| byte == b'/')
                .any(|folder| matches!(folder, b"site-packages" | b"dist-packages" | b"node_modules" | b"lib-dynload")))
}

/// What a C or C++ program has linked in besides its own code: the start of program and threads, and the standard
/// library, whose templates are compiled into the program (getsentry/sentry `grouping/enhancer`, family native).
fn native_std(function: &[u8]) -> bool {
    matches!(function, b"_start" | b"start_thread" | b"clone" | b"__clone" | b"__clone3" | b"clone3" | b"__restore_rt")
        || starts_with_any(function, &[b"__libc_", b"std::", b"__gnu_cxx::", b"__cxxabiv1::", b"__cxa_"])
}

fn rust_std(function: &[u8]) -> bool {
    starts_with_any(function, &[b"std::", b"core::", b"alloc::", b"<std::", b"<core::", b"<alloc::", b"__rust"])
}

fn java_library(module: &[u8]) -> bool {
    const PREFIXES: [&[u8]; 9] =
        [b"java.", b"javax.", b"jakarta.", b"jdk.", b"sun.", b"com.sun.", b"kotlin.", b"kotlinx.", b"scala."];
    starts_with_any(module, &PREFIXES)
}

/// Whether a package is one of Go's own, by its first element (`go list std`).
fn go_std(module: &[u8]) -> bool {
    let first = module.split(|&byte| byte == b'/').next().unwrap_or(b"");
    matches!(
        first,
        b"archive"
            | b"bufio"
            | b"bytes"
            | b"cmp"
            | b"compress"
            | b"container"
            | b"context"
            | b"crypto"
            | b"database"
            | b"debug"
            | b"embed"
            | b"encoding"
            | b"errors"
            | b"expvar"
            | b"flag"
            | b"fmt"
            | b"go"
            | b"hash"
            | b"html"
            | b"image"
            | b"index"
            | b"internal"
            | b"io"
            | b"iter"
            | b"log"
            | b"maps"
            | b"math"
            | b"mime"
            | b"net"
            | b"os"
            | b"path"
            | b"plugin"
            | b"reflect"
            | b"regexp"
            | b"runtime"
            | b"slices"
            | b"sort"
            | b"strconv"
            | b"strings"
            | b"structs"
            | b"sync"
            | b"syscall"
            | b"testing"
            | b"text"
            | b"time"
            | b"unicode"
            | b"unique"
            | b"unsafe"
            | b"vendor"
            | b"weak"
            | b"type:"
            | b"go:"
    )
}

fn elixir_std(module: &[u8]) -> bool {
    let first = module.split(|&byte| byte == b'.').next().unwrap_or(b"");
    matches!(
        first,
        b"Enum" | b"Stream" | b"Task" | b"GenServer" | b"Supervisor" | b"Kernel" | b"Process" | b"Map" | b"List"
    )
}
