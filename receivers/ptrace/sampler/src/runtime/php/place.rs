//! Finds PHP in a process: the address of its state, and its version.

use std::ops::Range;

use super::layout::PhpLayout;
use crate::address_space::Module;
use crate::elf::SymbolNames;
use crate::runtime::target::TargetMemory;

/// The symbols of PHP's state, of its evaluation function, and of the function that returns the kind of evaluation
/// function. In thread-safe builds each thread has its own state; only the last symbol distinguishes these builds.
const STATE: &str = "executor_globals";
const EVALUATION: &str = "execute_ex";
const KIND: &str = "zend_vm_kind";
const STATE_OF_THREADS: &str = "executor_globals_offset";
/// The text before the version: in some builds no symbol gives the version (php-src `main/SAPI.h`,
/// `SAPI_PHP_VERSION_HEADER`).
const PHP_VERSION: &str = "X-Powered-By: PHP/";

pub(in crate::runtime) static SYMBOLS: SymbolNames = SymbolNames {
    first: &[STATE, STATE_OF_THREADS],
    section: None,
    others: || vec![EVALUATION, KIND],
    text: Some(PHP_VERSION),
};

/// The kind of evaluation function that keeps the frame and the instruction in registers and executes all instructions
/// itself (`ZEND_VM_KIND_HYBRID`, php-src `Zend/zend_vm_opcodes.h`): in builds with GCC.
const HYBRID: u32 = 4;

/// A PHP interpreter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::runtime) struct PhpPlace {
    /// The address of `executor_globals`.
    pub(in crate::runtime) globals: u64,
    /// PHP's version: major, minor and release in one byte each.
    pub(in crate::runtime) version: u32,
    pub(super) layout: PhpLayout,
    /// The address range of the evaluation function.
    pub(super) evaluation: Range<u64>,
    /// Whether the evaluation function keeps the frame and the instruction in registers.
    pub(super) hybrid: bool,
}

impl PhpPlace {
    /// Finds the interpreter whose state is in this module.
    pub(in crate::runtime) fn find(
        module: &Module,
        path: &str,
        target: &mut dyn TargetMemory,
    ) -> Result<Option<Self>, String> {
        let Some(object) = &module.object else { return Ok(None) };
        let address = |name| object.symbol(name).map(|symbol| symbol.address.wrapping_add(module.bias));
        let version = address(PHP_VERSION).and_then(|at| version_at(at, target));
        let of_state = address(STATE);
        if of_state.is_none() && address(STATE_OF_THREADS).is_some() {
            let version = version.map_or(String::new(), |version| format!(" {}", text(version)));
            return Err(format!(
                "PHP{version} with thread safety (ZTS): its functions are not named, those of builds without it (NTS) are"
            ));
        }
        let Some(globals) = of_state else { return Ok(None) };
        let Some(version) = version else {
            // Any program may have a symbol of this name.
            let name = path.rsplit('/').next().unwrap_or(path);
            let is_php = name.starts_with("php") || name.starts_with("libphp");
            let reason = "a PHP of an unknown version: its functions are not named";
            return if is_php { Err(reason.to_owned()) } else { Ok(None) };
        };
        let mut place = Self::at(globals, version)?;
        if let Some(symbol) = object.symbol(EVALUATION).filter(|symbol| symbol.size > 0) {
            let start = symbol.address.wrapping_add(module.bias);
            place.evaluation = start..start.saturating_add(symbol.size);
        }
        place.hybrid = address(KIND).and_then(|at| returned(at, target)) == Some(HYBRID);
        Ok(Some(place))
    }

    /// Creates the interpreter whose `executor_globals` is at this address.
    pub(in crate::runtime) fn at(globals: u64, version: u32) -> Result<Self, String> {
        let Some(layout) = PhpLayout::of_version((version >> 16) as u8, (version >> 8) as u8) else {
            let version = text(version);
            return Err(format!("PHP {version} is not known: its functions are not named (those of 7.3 to 8.5 are)"));
        };
        Ok(Self { globals, version, layout, evaluation: 0..0, hybrid: false })
    }
}

fn text(version: u32) -> String {
    format!("{}.{}", version >> 16, version >> 8 & 0xff)
}

/// Reads the version that follows [`PHP_VERSION`] at this address.
fn version_at(address: u64, target: &mut dyn TargetMemory) -> Option<u32> {
    let mut bytes = [0; 32];
    target.read(address, &mut bytes).then_some(())?;
    let version = std::str::from_utf8(bytes.strip_prefix(PHP_VERSION.as_bytes())?).ok()?;
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse::<u8>().ok());
    let (major, minor) = (numbers.next()??, numbers.next()??);
    let release = numbers.next().flatten().unwrap_or(0);
    Some(u32::from(major) << 16 | u32::from(minor) << 8 | u32::from(release))
}

/// The number that a function returns if it does nothing else: `mov eax, NUMBER; ret`, after `endbr64` in some builds.
fn returned(address: u64, target: &mut dyn TargetMemory) -> Option<u32> {
    let mut bytes = [0; 10];
    target.read(address, &mut bytes).then_some(())?;
    let code = bytes.strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa]).unwrap_or(&bytes);
    match code {
        [0xb8, a, b, c, d, 0xc3, ..] => Some(u32::from_le_bytes([*a, *b, *c, *d])),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Recording;

    fn with(bytes: &[u8]) -> Recording {
        let mut recording = Recording::default();
        let mut whole = bytes.to_vec();
        whole.resize(64, 0);
        recording.add(4096, &whole);
        recording
    }

    /// Guarantees: the version is read in the forms that builds have, and nothing else is accepted.
    #[test]
    fn versions() {
        let read = |text: &str| version_at(4096, &mut with(text.as_bytes()));
        assert_eq!(read("X-Powered-By: PHP/8.2.36"), Some(0x08_0224));
        assert_eq!(read("X-Powered-By: PHP/7.4.33-0+deb11u1"), Some(0x07_0421));
        assert_eq!(read("X-Powered-By: PHP/8.5.0alpha1-dev"), Some(0x08_0500));
        for text in ["X-Powered-By: PHP/", "X-Powered-By: PHP/8", "X-Powered-By: PHP/999.1", "PHP/8.2.1"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    /// Guarantees: unsupported versions are rejected with a message that names them.
    #[test]
    fn refused() {
        for (version, name) in [(0x07_0200, "PHP 7.2"), (0x08_0600, "PHP 8.6"), (0x09_0000, "PHP 9.0")] {
            assert!(PhpPlace::at(64, version).unwrap_err().contains(name));
        }
        for version in [0x07_0300, 0x07_0400, 0x08_0000, 0x08_0100, 0x08_0200, 0x08_0300, 0x08_0400, 0x08_0500] {
            assert!(PhpPlace::at(64, version).is_ok());
        }
    }

    /// Guarantees: the kind of evaluation function is read with and without a leading `endbr64`, and other code yields
    /// none.
    #[test]
    fn kinds() {
        let read = |code: &[u8]| returned(4096, &mut with(code));
        assert_eq!(read(&[0xb8, 4, 0, 0, 0, 0xc3]), Some(HYBRID));
        assert_eq!(read(&[0xf3, 0x0f, 0x1e, 0xfa, 0xb8, 1, 0, 0, 0, 0xc3]), Some(1));
        assert_eq!(read(&[0x31, 0xc0, 0xc3]), None);
    }
}
