//! Finds Ruby in a process: the address of its data, and its version.

use std::sync::Arc;

use super::layout::RubyLayout;
use super::search::{self, ExecutorCode, Located};
use crate::address_space::Module;
use crate::elf::{ElfObject, SymbolNames};
use crate::runtime::target::TargetMemory;

/// The symbols of Ruby's version, of one of its variables, and of the pointer to its virtual machine, which some
/// builds hide.
const VERSION: &str = "ruby_version";
const MARKER: &str = "rb_cObject";
const MACHINE: &str = "ruby_current_vm_ptr";

pub(in crate::runtime) static SYMBOLS: SymbolNames =
    SymbolNames { first: &[VERSION], section: None, others: || vec![MARKER, MACHINE], text: None };

/// A Ruby interpreter.
#[derive(Debug, Clone)]
pub(in crate::runtime) struct RubyPlace {
    /// The variables near the interpreter's data; `None` if the data's address is known.
    pub(super) around: Option<Around>,
    /// Ruby's version: major, minor and teeny number in the upper three bytes.
    pub(in crate::runtime) version: u32,
    pub(super) layout: RubyLayout,
    /// The interpreter's file, and the load bias of the file.
    pub(super) object: Option<(Arc<ElfObject>, u64)>,
    /// The data found so far.
    pub(super) located: Located,
    /// The code that executes Ruby, if it could be read already.
    pub(super) code: Option<Arc<ExecutorCode>>,
}

/// An exported variable of an interpreter, and the pointer to the virtual machine if it has a symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Around {
    pub(super) marker: u64,
    pub(super) machine: Option<u64>,
}

impl PartialEq for RubyPlace {
    fn eq(&self, other: &Self) -> bool {
        let file = |place: &Self| place.object.as_ref().map(|(object, bias)| (object.id(), *bias));
        // Two places are different if one has more data, so that a reader with more data replaces the earlier one.
        self.around == other.around
            && self.version == other.version
            && self.located == other.located
            && file(self) == file(other)
    }
}

impl Eq for RubyPlace {}

impl RubyPlace {
    /// Finds the interpreter whose data is in this module.
    pub(in crate::runtime) fn find(module: &Module, target: &mut dyn TargetMemory) -> Result<Option<Self>, String> {
        let Some(object) = &module.object else { return Ok(None) };
        let at = |name| object.symbol(name).map(|symbol| symbol.address.wrapping_add(module.bias));
        let (Some(version), Some(marker)) = (at(VERSION), at(MARKER)) else { return Ok(None) };
        let mut text = [0; 16];
        if !target.read(version, &mut text) {
            return Ok(None);
        }
        let version = parse(&text).ok_or("a Ruby of an unknown version: its functions are not named")?;
        let mut place = Self::with_version(version)?;
        place.around = Some(Around { marker, machine: at(MACHINE) });
        place.object = Some((Arc::clone(object), module.bias));
        place.located = search::locate(&place, target);
        place.code = search::main_code(&place, target).map(Arc::new);
        Ok(Some(place))
    }

    /// The virtual machine and the variable with the symbol names, 0 while unknown.
    #[cfg(any(test, feature = "recordings"))]
    pub(in crate::runtime) fn data(&self) -> (u64, u64) {
        (self.located.machine, self.located.symbols)
    }

    /// Creates the interpreter with this virtual machine and this symbol table.
    #[cfg(any(test, feature = "recordings"))]
    pub(in crate::runtime) fn at(machine: u64, symbols: u64, version: u32) -> Result<Self, String> {
        Ok(Self { located: Located { machine, symbols }, ..Self::with_version(version)? })
    }

    /// Creates an interpreter of this version, of which nothing else is known.
    fn with_version(version: u32) -> Result<Self, String> {
        let [major, minor, ..] = version.to_be_bytes();
        let layout = RubyLayout::of_version(major, minor).ok_or_else(|| {
            format!("Ruby {major}.{minor} is not known: its functions are not named (those of 3.0 to 3.4 are)")
        })?;
        Ok(Self { around: None, version, layout, object: None, located: Located::default(), code: None })
    }
}

/// Parses a version such as `3.1.7` that ends with a zero byte.
fn parse(text: &[u8]) -> Option<u32> {
    let end = text.iter().position(|byte| *byte == 0)?;
    let text = std::str::from_utf8(&text[..end]).ok()?;
    let mut numbers = text.split('.').map(str::parse::<u8>);
    let (Some(Ok(major)), Some(Ok(minor)), Some(Ok(teeny)), None) =
        (numbers.next(), numbers.next(), numbers.next(), numbers.next())
    else {
        return None;
    };
    Some(u32::from_be_bytes([major, minor, teeny, 0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: Ruby's version is parsed, and other text is rejected.
    #[test]
    fn versions() {
        assert_eq!(parse(b"3.1.7\0xx"), Some(0x0301_0700));
        assert_eq!(parse(b"4.0.0\0"), Some(0x0400_0000));
        for text in [&b"3.1.7"[..], b"3.1\0", b"3.1.7.1\0", b"3.1.700\0", b"-3.1.7\0", b"\0", b"\xff.1.1\0"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    /// Guarantees: unsupported versions are rejected with a message that names them.
    #[test]
    fn refused() {
        let refused = |version| RubyPlace::at(64, 64, version).unwrap_err();
        assert!(refused(0x0207_0400).starts_with("Ruby 2.7 is not known"));
        assert!(refused(0x0305_0000).starts_with("Ruby 3.5 is not known"));
        assert!(refused(0x0400_0100).starts_with("Ruby 4.0 is not known"));
        assert!((0..5).all(|minor| RubyPlace::at(64, 64, 0x0300_0000 | minor << 16).is_ok()));
    }
}
