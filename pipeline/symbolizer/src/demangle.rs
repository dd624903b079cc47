//! What a name was before a compiler made a symbol of it.

use std::fmt::{self, Write};

use crate::plt;
use crate::text::MAX_NAME;

/// How deep the C++ demangler may go. Each level takes less than a kilobyte of stack.
const MAX_DEPTH: u32 = 192;

/// Demangles a name: Rust of both kinds, C++ (Itanium ABI), or what it is.
///
/// A suffix of a linker or compiler stays where the demanglers leave it (`.cold`, `.llvm.123`), except for a symbol's
/// version (`memcpy@@GLIBC_2.14`), which is no part of the name. That of a stub ([`plt::SUFFIX`]) stays.
pub(crate) fn demangle(name: &str) -> String {
    let (name, suffix) = name.strip_suffix(plt::SUFFIX).map_or((name, ""), |callee| (callee, plt::SUFFIX));
    let name = match name.find('@') {
        Some(at) if at > 0 => &name[..at],
        _ => name,
    };
    rust(name).or_else(|| cpp(name)).unwrap_or_else(|| name.to_owned()) + suffix
}

/// Whether a name is one that a compiler made of more than itself.
pub(crate) fn is_mangled(name: &str) -> bool {
    name.starts_with("_Z") || name.starts_with("_R")
}

fn rust(name: &str) -> Option<String> {
    // The first kind looks like C++ but for the hash that ends it; without it, it is C++.
    if !(name.starts_with("_R") || name.starts_with("_ZN") && name.contains("17h")) {
        return None;
    }
    let demangled = rustc_demangle::try_demangle(name).ok()?;
    let mut out = Limited::default();
    // Without the hash.
    write!(out, "{demangled:#}").ok()?;
    // The one kind of C++ name that the first kind's reader takes for Rust.
    if name.starts_with("_ZN") && format!("{demangled}").len() == out.text.len() {
        return None;
    }
    Some(out.text)
}

fn cpp(name: &str) -> Option<String> {
    if !name.starts_with("_Z") {
        return None;
    }
    // Clones of GCC (`.cold`, `.part.0`, `.isra.0`) are outside of what the name stands for.
    let (name, suffix) = match name.find('.') {
        Some(at) => name.split_at(at),
        None => (name, ""),
    };
    let options = cpp_demangle::ParseOptions::default().recursion_limit(MAX_DEPTH);
    let symbol = cpp_demangle::Symbol::new_with_options(name, &options).ok()?;
    let mut out = Limited::default();
    let options = cpp_demangle::DemangleOptions::default().recursion_limit(MAX_DEPTH);
    symbol.structured_demangle(&mut out, &options).ok()?;
    out.write_str(suffix).ok()?;
    Some(out.text)
}

/// Text that refuses to grow: substitutions make a name of some bytes one of gigabytes.
#[derive(Debug, Default)]
struct Limited {
    text: String,
}

impl Write for Limited {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.text.len() + text.len() > MAX_NAME {
            return Err(fmt::Error);
        }
        self.text.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
