//! Demangles linker symbols into source names.

use std::fmt::{self, Write};

use crate::plt;
use crate::text::MAX_NAME;

/// How deep the C++ demangler may recurse. Each level takes less than a kilobyte of stack.
const MAX_DEPTH: u32 = 192;

/// Demangles Rust names (both schemes) and C++ names (Itanium ABI); other names are returned unchanged.
///
/// Keeps suffixes that compilers and linkers add (`.cold`, `.llvm.123`, [`plt::SUFFIX`]), except for a symbol's version
/// (`memcpy@@GLIBC_2.14`).
pub(crate) fn demangle(name: &str) -> String {
    let (name, suffix) = name.strip_suffix(plt::SUFFIX).map_or((name, ""), |callee| (callee, plt::SUFFIX));
    let name = match name.find('@') {
        Some(at) if at > 0 => &name[..at],
        _ => name,
    };
    rust(name).or_else(|| cpp(name)).unwrap_or_else(|| name.to_owned()) + suffix
}

pub(crate) fn is_mangled(name: &str) -> bool {
    name.starts_with("_Z") || name.starts_with("_R")
}

fn rust(name: &str) -> Option<String> {
    // Rust's older scheme is C++'s scheme with a hash at the end; without the hash, the name is C++.
    if !(name.starts_with("_R") || name.starts_with("_ZN") && name.contains("17h")) {
        return None;
    }
    let demangled = rustc_demangle::try_demangle(name).ok()?;
    let mut out = Limited::default();
    // The alternate format omits the hash.
    write!(out, "{demangled:#}").ok()?;
    // There was no hash to omit, so the name is C++ after all.
    if name.starts_with("_ZN") && format!("{demangled}").len() == out.text.len() {
        return None;
    }
    Some(out.text)
}

fn cpp(name: &str) -> Option<String> {
    if !name.starts_with("_Z") {
        return None;
    }
    // The demangler does not know the suffixes of GCC's clones (`.cold`, `.part.0`, `.isra.0`).
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

/// A string with a maximum length, because substitutions can expand a short name to gigabytes.
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
